#ifdef __CUDACC_RTC__
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
#else
#include <cstdint>
#endif

extern "C" __global__ void __launch_bounds__(32) main_kernel(float* __restrict__ w_ptr, float* __restrict__ x_ptr, float* __restrict__ y_ptr, int n) {
  alignas(64) float w_local_ptr[36];
  alignas(64) float sum_local_ptr[16];
  alignas(64) float loaded_local_ptr[16];
  int image = (((int)blockIdx.x) >> 2);
  int block_h = (((((int)blockIdx.x) & 3) >> 1) * 2);
  int block_w = ((((int)blockIdx.x) & 1) * 2);
  #pragma unroll
  for (int vector = 0; vector < 9; ++vector) {
    *(float4*)(w_local_ptr + (vector * 4)) = *(float4*)(w_ptr + ((((int)threadIdx.x) * 36) + (vector * 4)));
  }
  int strip_h = ((((((int)blockIdx.x) & 3) >> 1) * 2) + ((int)threadIdx.z));
  int strip_w = (((((int)blockIdx.x) & 1) * 2) + ((int)threadIdx.y));
  #pragma unroll
  for (int index = 0; index < 16; ++index) {
    sum_local_ptr[index] = 0x0p+0f/*0.000000e+00*/;
  }
  #pragma unroll
  for (int lane = 0; lane < 4; ++lane) {
    loaded_local_ptr[lane] = 0x0p+0f/*0.000000e+00*/;
  }
  if ((1 < ((((((int)blockIdx.x) & 3) >> 1) * 4) + (((int)threadIdx.z) * 2))) && (1 < (((((int)blockIdx.x) & 1) * 4) + (((int)threadIdx.y) * 2)))) {
    *(float4*)(loaded_local_ptr + 0) = *(float4*)(x_ptr + (((((((((int)blockIdx.x) >> 1) * 1024) + (((int)threadIdx.z) * 512)) + ((((int)blockIdx.x) & 1) * 128)) + (((int)threadIdx.y) * 64)) + (((int)threadIdx.x) * 4)) - 288));
  }
  #pragma unroll
  for (int column = 0; column < 2; ++column) {
    #pragma unroll
    for (int lane_1 = 0; lane_1 < 4; ++lane_1) {
      loaded_local_ptr[(((column * 4) + lane_1) + 4)] = 0x0p+0f/*0.000000e+00*/;
    }
    if (1 < ((((((int)blockIdx.x) & 3) >> 1) * 4) + (((int)threadIdx.z) * 2))) {
      *(float4*)(loaded_local_ptr + ((column * 4) + 4)) = *(float4*)(x_ptr + ((((((((((int)blockIdx.x) >> 1) * 1024) + (((int)threadIdx.z) * 512)) + ((((int)blockIdx.x) & 1) * 128)) + (((int)threadIdx.y) * 64)) + (column * 32)) + (((int)threadIdx.x) * 4)) - 256));
    }
  }
  #pragma unroll
  for (int lane_2 = 0; lane_2 < 4; ++lane_2) {
    loaded_local_ptr[(lane_2 + 12)] = 0x0p+0f/*0.000000e+00*/;
  }
  if ((1 < ((((((int)blockIdx.x) & 3) >> 1) * 4) + (((int)threadIdx.z) * 2))) && ((((((int)blockIdx.x) & 1) * 2) + ((int)threadIdx.y)) < 3)) {
    *(float4*)(loaded_local_ptr + 12) = *(float4*)(x_ptr + (((((((((int)blockIdx.x) >> 1) * 1024) + (((int)threadIdx.z) * 512)) + ((((int)blockIdx.x) & 1) * 128)) + (((int)threadIdx.y) * 64)) + (((int)threadIdx.x) * 4)) - 192));
  }
  #pragma unroll
  for (int kw = 0; kw < 3; ++kw) {
    #pragma unroll
    for (int column_1 = 0; column_1 < 2; ++column_1) {
      #pragma unroll
      for (int lane_3 = 0; lane_3 < 4; ++lane_3) {
        sum_local_ptr[((column_1 * 4) + lane_3)] = (sum_local_ptr[((column_1 * 4) + lane_3)] + (loaded_local_ptr[(((kw * 4) + (column_1 * 4)) + lane_3)] * w_local_ptr[((lane_3 * 9) + kw)]));
      }
    }
  }
  #pragma unroll
  for (int lane_4 = 0; lane_4 < 4; ++lane_4) {
    loaded_local_ptr[lane_4] = 0x0p+0f/*0.000000e+00*/;
  }
  if (1 < (((((int)blockIdx.x) & 1) * 4) + (((int)threadIdx.y) * 2))) {
    *(float4*)(loaded_local_ptr + 0) = *(float4*)(x_ptr + (((((((((int)blockIdx.x) >> 1) * 1024) + (((int)threadIdx.z) * 512)) + ((((int)blockIdx.x) & 1) * 128)) + (((int)threadIdx.y) * 64)) + (((int)threadIdx.x) * 4)) - 32));
  }
  #pragma unroll
  for (int column_2 = 0; column_2 < 2; ++column_2) {
    *(float4*)(loaded_local_ptr + ((column_2 * 4) + 4)) = *(float4*)(x_ptr + (((((((((int)blockIdx.x) >> 1) * 1024) + (((int)threadIdx.z) * 512)) + ((((int)blockIdx.x) & 1) * 128)) + (((int)threadIdx.y) * 64)) + (column_2 * 32)) + (((int)threadIdx.x) * 4)));
  }
  #pragma unroll
  for (int lane_5 = 0; lane_5 < 4; ++lane_5) {
    loaded_local_ptr[(lane_5 + 12)] = 0x0p+0f/*0.000000e+00*/;
  }
  if ((((((int)blockIdx.x) & 1) * 2) + ((int)threadIdx.y)) < 3) {
    *(float4*)(loaded_local_ptr + 12) = *(float4*)(x_ptr + (((((((((int)blockIdx.x) >> 1) * 1024) + (((int)threadIdx.z) * 512)) + ((((int)blockIdx.x) & 1) * 128)) + (((int)threadIdx.y) * 64)) + (((int)threadIdx.x) * 4)) + 64));
  }
  #pragma unroll
  for (int kw_1 = 0; kw_1 < 3; ++kw_1) {
    #pragma unroll
    for (int column_3 = 0; column_3 < 2; ++column_3) {
      #pragma unroll
      for (int lane_6 = 0; lane_6 < 4; ++lane_6) {
        sum_local_ptr[((column_3 * 4) + lane_6)] = (sum_local_ptr[((column_3 * 4) + lane_6)] + (loaded_local_ptr[(((kw_1 * 4) + (column_3 * 4)) + lane_6)] * w_local_ptr[(((lane_6 * 9) + kw_1) + 3)]));
      }
    }
  }
  #pragma unroll
  for (int kw_2 = 0; kw_2 < 3; ++kw_2) {
    #pragma unroll
    for (int column_4 = 0; column_4 < 2; ++column_4) {
      #pragma unroll
      for (int lane_7 = 0; lane_7 < 4; ++lane_7) {
        sum_local_ptr[(((column_4 * 4) + lane_7) + 8)] = (sum_local_ptr[(((column_4 * 4) + lane_7) + 8)] + (loaded_local_ptr[(((kw_2 * 4) + (column_4 * 4)) + lane_7)] * w_local_ptr[((lane_7 * 9) + kw_2)]));
      }
    }
  }
  #pragma unroll
  for (int lane_8 = 0; lane_8 < 4; ++lane_8) {
    loaded_local_ptr[lane_8] = 0x0p+0f/*0.000000e+00*/;
  }
  if (1 < (((((int)blockIdx.x) & 1) * 4) + (((int)threadIdx.y) * 2))) {
    *(float4*)(loaded_local_ptr + 0) = *(float4*)(x_ptr + (((((((((int)blockIdx.x) >> 1) * 1024) + (((int)threadIdx.z) * 512)) + ((((int)blockIdx.x) & 1) * 128)) + (((int)threadIdx.y) * 64)) + (((int)threadIdx.x) * 4)) + 224));
  }
  #pragma unroll
  for (int column_5 = 0; column_5 < 2; ++column_5) {
    *(float4*)(loaded_local_ptr + ((column_5 * 4) + 4)) = *(float4*)(x_ptr + ((((((((((int)blockIdx.x) >> 1) * 1024) + (((int)threadIdx.z) * 512)) + ((((int)blockIdx.x) & 1) * 128)) + (((int)threadIdx.y) * 64)) + (column_5 * 32)) + (((int)threadIdx.x) * 4)) + 256));
  }
  #pragma unroll
  for (int lane_9 = 0; lane_9 < 4; ++lane_9) {
    loaded_local_ptr[(lane_9 + 12)] = 0x0p+0f/*0.000000e+00*/;
  }
  if ((((((int)blockIdx.x) & 1) * 2) + ((int)threadIdx.y)) < 3) {
    *(float4*)(loaded_local_ptr + 12) = *(float4*)(x_ptr + (((((((((int)blockIdx.x) >> 1) * 1024) + (((int)threadIdx.z) * 512)) + ((((int)blockIdx.x) & 1) * 128)) + (((int)threadIdx.y) * 64)) + (((int)threadIdx.x) * 4)) + 320));
  }
  #pragma unroll
  for (int kw_3 = 0; kw_3 < 3; ++kw_3) {
    #pragma unroll
    for (int column_6 = 0; column_6 < 2; ++column_6) {
      #pragma unroll
      for (int lane_10 = 0; lane_10 < 4; ++lane_10) {
        sum_local_ptr[((column_6 * 4) + lane_10)] = (sum_local_ptr[((column_6 * 4) + lane_10)] + (loaded_local_ptr[(((kw_3 * 4) + (column_6 * 4)) + lane_10)] * w_local_ptr[(((lane_10 * 9) + kw_3) + 6)]));
      }
    }
  }
  #pragma unroll
  for (int kw_4 = 0; kw_4 < 3; ++kw_4) {
    #pragma unroll
    for (int column_7 = 0; column_7 < 2; ++column_7) {
      #pragma unroll
      for (int lane_11 = 0; lane_11 < 4; ++lane_11) {
        sum_local_ptr[(((column_7 * 4) + lane_11) + 8)] = (sum_local_ptr[(((column_7 * 4) + lane_11) + 8)] + (loaded_local_ptr[(((kw_4 * 4) + (column_7 * 4)) + lane_11)] * w_local_ptr[(((lane_11 * 9) + kw_4) + 3)]));
      }
    }
  }
  #pragma unroll
  for (int column_8 = 0; column_8 < 2; ++column_8) {
    *(float4*)(y_ptr + (((((((((int)blockIdx.x) >> 1) * 1024) + (((int)threadIdx.z) * 512)) + ((((int)blockIdx.x) & 1) * 128)) + (((int)threadIdx.y) * 64)) + (column_8 * 32)) + (((int)threadIdx.x) * 4))) = *(float4*)(sum_local_ptr + (column_8 * 4));
  }
  #pragma unroll
  for (int lane_12 = 0; lane_12 < 4; ++lane_12) {
    loaded_local_ptr[lane_12] = 0x0p+0f/*0.000000e+00*/;
  }
  if ((((((((int)blockIdx.x) & 3) >> 1) * 2) + ((int)threadIdx.z)) < 3) && (1 < (((((int)blockIdx.x) & 1) * 4) + (((int)threadIdx.y) * 2)))) {
    *(float4*)(loaded_local_ptr + 0) = *(float4*)(x_ptr + (((((((((int)blockIdx.x) >> 1) * 1024) + (((int)threadIdx.z) * 512)) + ((((int)blockIdx.x) & 1) * 128)) + (((int)threadIdx.y) * 64)) + (((int)threadIdx.x) * 4)) + 480));
  }
  #pragma unroll
  for (int column_9 = 0; column_9 < 2; ++column_9) {
    #pragma unroll
    for (int lane_13 = 0; lane_13 < 4; ++lane_13) {
      loaded_local_ptr[(((column_9 * 4) + lane_13) + 4)] = 0x0p+0f/*0.000000e+00*/;
    }
    if (((((((int)blockIdx.x) & 3) >> 1) * 2) + ((int)threadIdx.z)) < 3) {
      *(float4*)(loaded_local_ptr + ((column_9 * 4) + 4)) = *(float4*)(x_ptr + ((((((((((int)blockIdx.x) >> 1) * 1024) + (((int)threadIdx.z) * 512)) + ((((int)blockIdx.x) & 1) * 128)) + (((int)threadIdx.y) * 64)) + (column_9 * 32)) + (((int)threadIdx.x) * 4)) + 512));
    }
  }
  #pragma unroll
  for (int lane_14 = 0; lane_14 < 4; ++lane_14) {
    loaded_local_ptr[(lane_14 + 12)] = 0x0p+0f/*0.000000e+00*/;
  }
  if ((((((((int)blockIdx.x) & 3) >> 1) * 2) + ((int)threadIdx.z)) < 3) && ((((((int)blockIdx.x) & 1) * 2) + ((int)threadIdx.y)) < 3)) {
    *(float4*)(loaded_local_ptr + 12) = *(float4*)(x_ptr + (((((((((int)blockIdx.x) >> 1) * 1024) + (((int)threadIdx.z) * 512)) + ((((int)blockIdx.x) & 1) * 128)) + (((int)threadIdx.y) * 64)) + (((int)threadIdx.x) * 4)) + 576));
  }
  #pragma unroll
  for (int kw_5 = 0; kw_5 < 3; ++kw_5) {
    #pragma unroll
    for (int column_10 = 0; column_10 < 2; ++column_10) {
      #pragma unroll
      for (int lane_15 = 0; lane_15 < 4; ++lane_15) {
        sum_local_ptr[(((column_10 * 4) + lane_15) + 8)] = (sum_local_ptr[(((column_10 * 4) + lane_15) + 8)] + (loaded_local_ptr[(((kw_5 * 4) + (column_10 * 4)) + lane_15)] * w_local_ptr[(((lane_15 * 9) + kw_5) + 6)]));
      }
    }
  }
  #pragma unroll
  for (int column_11 = 0; column_11 < 2; ++column_11) {
    *(float4*)(y_ptr + ((((((((((int)blockIdx.x) >> 1) * 1024) + (((int)threadIdx.z) * 512)) + ((((int)blockIdx.x) & 1) * 128)) + (((int)threadIdx.y) * 64)) + (column_11 * 32)) + (((int)threadIdx.x) * 4)) + 256)) = *(float4*)(sum_local_ptr + ((column_11 * 4) + 8));
  }
}
