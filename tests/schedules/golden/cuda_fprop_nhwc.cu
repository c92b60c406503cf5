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
  alignas(64) float sum_local_ptr[64];
  alignas(64) float loaded_local_ptr[24];
  int image = ((int)blockIdx.x);
  #pragma unroll
  for (int vector = 0; vector < 9; ++vector) {
    *(float4*)(w_local_ptr + (vector * 4)) = *(float4*)(w_ptr + ((((int)threadIdx.x) * 36) + (vector * 4)));
  }
  int strip_h = ((int)threadIdx.z);
  int strip_w = ((int)threadIdx.y);
  #pragma unroll
  for (int index = 0; index < 64; ++index) {
    sum_local_ptr[index] = 0x0p+0f/*0.000000e+00*/;
  }
  #pragma unroll
  for (int lane = 0; lane < 4; ++lane) {
    loaded_local_ptr[lane] = 0x0p+0f/*0.000000e+00*/;
  }
  if ((((int)threadIdx.z) == 1) && (((int)threadIdx.y) == 1)) {
    *(float4*)(loaded_local_ptr + 0) = *(float4*)(x_ptr + (((((((int)blockIdx.x) * 2048) + (((int)threadIdx.z) * 1024)) + (((int)threadIdx.y) * 128)) + (((int)threadIdx.x) * 4)) - 288));
  }
  #pragma unroll
  for (int column = 0; column < 4; ++column) {
    #pragma unroll
    for (int lane_1 = 0; lane_1 < 4; ++lane_1) {
      loaded_local_ptr[(((column * 4) + lane_1) + 4)] = 0x0p+0f/*0.000000e+00*/;
    }
    if (((int)threadIdx.z) == 1) {
      *(float4*)(loaded_local_ptr + ((column * 4) + 4)) = *(float4*)(x_ptr + ((((((((int)blockIdx.x) * 2048) + (((int)threadIdx.z) * 1024)) + (((int)threadIdx.y) * 128)) + (column * 32)) + (((int)threadIdx.x) * 4)) - 256));
    }
  }
  #pragma unroll
  for (int lane_2 = 0; lane_2 < 4; ++lane_2) {
    loaded_local_ptr[(lane_2 + 20)] = 0x0p+0f/*0.000000e+00*/;
  }
  if ((((int)threadIdx.z) == 1) && (((int)threadIdx.y) < 1)) {
    *(float4*)(loaded_local_ptr + 20) = *(float4*)(x_ptr + (((((((int)blockIdx.x) * 2048) + (((int)threadIdx.z) * 1024)) + (((int)threadIdx.y) * 128)) + (((int)threadIdx.x) * 4)) - 128));
  }
  #pragma unroll
  for (int kw = 0; kw < 3; ++kw) {
    #pragma unroll
    for (int column_1 = 0; column_1 < 4; ++column_1) {
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
  if (((int)threadIdx.y) == 1) {
    *(float4*)(loaded_local_ptr + 0) = *(float4*)(x_ptr + (((((((int)blockIdx.x) * 2048) + (((int)threadIdx.z) * 1024)) + (((int)threadIdx.y) * 128)) + (((int)threadIdx.x) * 4)) - 32));
  }
  #pragma unroll
  for (int column_2 = 0; column_2 < 4; ++column_2) {
    *(float4*)(loaded_local_ptr + ((column_2 * 4) + 4)) = *(float4*)(x_ptr + (((((((int)blockIdx.x) * 2048) + (((int)threadIdx.z) * 1024)) + (((int)threadIdx.y) * 128)) + (column_2 * 32)) + (((int)threadIdx.x) * 4)));
  }
  #pragma unroll
  for (int lane_5 = 0; lane_5 < 4; ++lane_5) {
    loaded_local_ptr[(lane_5 + 20)] = 0x0p+0f/*0.000000e+00*/;
  }
  if (((int)threadIdx.y) < 1) {
    *(float4*)(loaded_local_ptr + 20) = *(float4*)(x_ptr + (((((((int)blockIdx.x) * 2048) + (((int)threadIdx.z) * 1024)) + (((int)threadIdx.y) * 128)) + (((int)threadIdx.x) * 4)) + 128));
  }
  #pragma unroll
  for (int kw_1 = 0; kw_1 < 3; ++kw_1) {
    #pragma unroll
    for (int column_3 = 0; column_3 < 4; ++column_3) {
      #pragma unroll
      for (int lane_6 = 0; lane_6 < 4; ++lane_6) {
        sum_local_ptr[((column_3 * 4) + lane_6)] = (sum_local_ptr[((column_3 * 4) + lane_6)] + (loaded_local_ptr[(((kw_1 * 4) + (column_3 * 4)) + lane_6)] * w_local_ptr[(((lane_6 * 9) + kw_1) + 3)]));
      }
    }
  }
  #pragma unroll
  for (int kw_2 = 0; kw_2 < 3; ++kw_2) {
    #pragma unroll
    for (int column_4 = 0; column_4 < 4; ++column_4) {
      #pragma unroll
      for (int lane_7 = 0; lane_7 < 4; ++lane_7) {
        sum_local_ptr[(((column_4 * 4) + lane_7) + 16)] = (sum_local_ptr[(((column_4 * 4) + lane_7) + 16)] + (loaded_local_ptr[(((kw_2 * 4) + (column_4 * 4)) + lane_7)] * w_local_ptr[((lane_7 * 9) + kw_2)]));
      }
    }
  }
  #pragma unroll
  for (int lane_8 = 0; lane_8 < 4; ++lane_8) {
    loaded_local_ptr[lane_8] = 0x0p+0f/*0.000000e+00*/;
  }
  if (((int)threadIdx.y) == 1) {
    *(float4*)(loaded_local_ptr + 0) = *(float4*)(x_ptr + (((((((int)blockIdx.x) * 2048) + (((int)threadIdx.z) * 1024)) + (((int)threadIdx.y) * 128)) + (((int)threadIdx.x) * 4)) + 224));
  }
  #pragma unroll
  for (int column_5 = 0; column_5 < 4; ++column_5) {
    *(float4*)(loaded_local_ptr + ((column_5 * 4) + 4)) = *(float4*)(x_ptr + ((((((((int)blockIdx.x) * 2048) + (((int)threadIdx.z) * 1024)) + (((int)threadIdx.y) * 128)) + (column_5 * 32)) + (((int)threadIdx.x) * 4)) + 256));
  }
  #pragma unroll
  for (int lane_9 = 0; lane_9 < 4; ++lane_9) {
    loaded_local_ptr[(lane_9 + 20)] = 0x0p+0f/*0.000000e+00*/;
  }
  if (((int)threadIdx.y) < 1) {
    *(float4*)(loaded_local_ptr + 20) = *(float4*)(x_ptr + (((((((int)blockIdx.x) * 2048) + (((int)threadIdx.z) * 1024)) + (((int)threadIdx.y) * 128)) + (((int)threadIdx.x) * 4)) + 384));
  }
  #pragma unroll
  for (int kw_3 = 0; kw_3 < 3; ++kw_3) {
    #pragma unroll
    for (int column_6 = 0; column_6 < 4; ++column_6) {
      #pragma unroll
      for (int lane_10 = 0; lane_10 < 4; ++lane_10) {
        sum_local_ptr[((column_6 * 4) + lane_10)] = (sum_local_ptr[((column_6 * 4) + lane_10)] + (loaded_local_ptr[(((kw_3 * 4) + (column_6 * 4)) + lane_10)] * w_local_ptr[(((lane_10 * 9) + kw_3) + 6)]));
      }
    }
  }
  #pragma unroll
  for (int kw_4 = 0; kw_4 < 3; ++kw_4) {
    #pragma unroll
    for (int column_7 = 0; column_7 < 4; ++column_7) {
      #pragma unroll
      for (int lane_11 = 0; lane_11 < 4; ++lane_11) {
        sum_local_ptr[(((column_7 * 4) + lane_11) + 16)] = (sum_local_ptr[(((column_7 * 4) + lane_11) + 16)] + (loaded_local_ptr[(((kw_4 * 4) + (column_7 * 4)) + lane_11)] * w_local_ptr[(((lane_11 * 9) + kw_4) + 3)]));
      }
    }
  }
  #pragma unroll
  for (int kw_5 = 0; kw_5 < 3; ++kw_5) {
    #pragma unroll
    for (int column_8 = 0; column_8 < 4; ++column_8) {
      #pragma unroll
      for (int lane_12 = 0; lane_12 < 4; ++lane_12) {
        sum_local_ptr[(((column_8 * 4) + lane_12) + 32)] = (sum_local_ptr[(((column_8 * 4) + lane_12) + 32)] + (loaded_local_ptr[(((kw_5 * 4) + (column_8 * 4)) + lane_12)] * w_local_ptr[((lane_12 * 9) + kw_5)]));
      }
    }
  }
  #pragma unroll
  for (int column_9 = 0; column_9 < 4; ++column_9) {
    *(float4*)(y_ptr + (((((((int)blockIdx.x) * 2048) + (((int)threadIdx.z) * 1024)) + (((int)threadIdx.y) * 128)) + (column_9 * 32)) + (((int)threadIdx.x) * 4))) = *(float4*)(sum_local_ptr + (column_9 * 4));
  }
  #pragma unroll
  for (int lane_13 = 0; lane_13 < 4; ++lane_13) {
    loaded_local_ptr[lane_13] = 0x0p+0f/*0.000000e+00*/;
  }
  if (((int)threadIdx.y) == 1) {
    *(float4*)(loaded_local_ptr + 0) = *(float4*)(x_ptr + (((((((int)blockIdx.x) * 2048) + (((int)threadIdx.z) * 1024)) + (((int)threadIdx.y) * 128)) + (((int)threadIdx.x) * 4)) + 480));
  }
  #pragma unroll
  for (int column_10 = 0; column_10 < 4; ++column_10) {
    *(float4*)(loaded_local_ptr + ((column_10 * 4) + 4)) = *(float4*)(x_ptr + ((((((((int)blockIdx.x) * 2048) + (((int)threadIdx.z) * 1024)) + (((int)threadIdx.y) * 128)) + (column_10 * 32)) + (((int)threadIdx.x) * 4)) + 512));
  }
  #pragma unroll
  for (int lane_14 = 0; lane_14 < 4; ++lane_14) {
    loaded_local_ptr[(lane_14 + 20)] = 0x0p+0f/*0.000000e+00*/;
  }
  if (((int)threadIdx.y) < 1) {
    *(float4*)(loaded_local_ptr + 20) = *(float4*)(x_ptr + (((((((int)blockIdx.x) * 2048) + (((int)threadIdx.z) * 1024)) + (((int)threadIdx.y) * 128)) + (((int)threadIdx.x) * 4)) + 640));
  }
  #pragma unroll
  for (int kw_6 = 0; kw_6 < 3; ++kw_6) {
    #pragma unroll
    for (int column_11 = 0; column_11 < 4; ++column_11) {
      #pragma unroll
      for (int lane_15 = 0; lane_15 < 4; ++lane_15) {
        sum_local_ptr[(((column_11 * 4) + lane_15) + 16)] = (sum_local_ptr[(((column_11 * 4) + lane_15) + 16)] + (loaded_local_ptr[(((kw_6 * 4) + (column_11 * 4)) + lane_15)] * w_local_ptr[(((lane_15 * 9) + kw_6) + 6)]));
      }
    }
  }
  #pragma unroll
  for (int kw_7 = 0; kw_7 < 3; ++kw_7) {
    #pragma unroll
    for (int column_12 = 0; column_12 < 4; ++column_12) {
      #pragma unroll
      for (int lane_16 = 0; lane_16 < 4; ++lane_16) {
        sum_local_ptr[(((column_12 * 4) + lane_16) + 32)] = (sum_local_ptr[(((column_12 * 4) + lane_16) + 32)] + (loaded_local_ptr[(((kw_7 * 4) + (column_12 * 4)) + lane_16)] * w_local_ptr[(((lane_16 * 9) + kw_7) + 3)]));
      }
    }
  }
  #pragma unroll
  for (int kw_8 = 0; kw_8 < 3; ++kw_8) {
    #pragma unroll
    for (int column_13 = 0; column_13 < 4; ++column_13) {
      #pragma unroll
      for (int lane_17 = 0; lane_17 < 4; ++lane_17) {
        sum_local_ptr[(((column_13 * 4) + lane_17) + 48)] = (sum_local_ptr[(((column_13 * 4) + lane_17) + 48)] + (loaded_local_ptr[(((kw_8 * 4) + (column_13 * 4)) + lane_17)] * w_local_ptr[((lane_17 * 9) + kw_8)]));
      }
    }
  }
  #pragma unroll
  for (int column_14 = 0; column_14 < 4; ++column_14) {
    *(float4*)(y_ptr + ((((((((int)blockIdx.x) * 2048) + (((int)threadIdx.z) * 1024)) + (((int)threadIdx.y) * 128)) + (column_14 * 32)) + (((int)threadIdx.x) * 4)) + 256)) = *(float4*)(sum_local_ptr + ((column_14 * 4) + 16));
  }
  #pragma unroll
  for (int lane_18 = 0; lane_18 < 4; ++lane_18) {
    loaded_local_ptr[lane_18] = 0x0p+0f/*0.000000e+00*/;
  }
  if (((int)threadIdx.y) == 1) {
    *(float4*)(loaded_local_ptr + 0) = *(float4*)(x_ptr + (((((((int)blockIdx.x) * 2048) + (((int)threadIdx.z) * 1024)) + (((int)threadIdx.y) * 128)) + (((int)threadIdx.x) * 4)) + 736));
  }
  #pragma unroll
  for (int column_15 = 0; column_15 < 4; ++column_15) {
    *(float4*)(loaded_local_ptr + ((column_15 * 4) + 4)) = *(float4*)(x_ptr + ((((((((int)blockIdx.x) * 2048) + (((int)threadIdx.z) * 1024)) + (((int)threadIdx.y) * 128)) + (column_15 * 32)) + (((int)threadIdx.x) * 4)) + 768));
  }
  #pragma unroll
  for (int lane_19 = 0; lane_19 < 4; ++lane_19) {
    loaded_local_ptr[(lane_19 + 20)] = 0x0p+0f/*0.000000e+00*/;
  }
  if (((int)threadIdx.y) < 1) {
    *(float4*)(loaded_local_ptr + 20) = *(float4*)(x_ptr + (((((((int)blockIdx.x) * 2048) + (((int)threadIdx.z) * 1024)) + (((int)threadIdx.y) * 128)) + (((int)threadIdx.x) * 4)) + 896));
  }
  #pragma unroll
  for (int kw_9 = 0; kw_9 < 3; ++kw_9) {
    #pragma unroll
    for (int column_16 = 0; column_16 < 4; ++column_16) {
      #pragma unroll
      for (int lane_20 = 0; lane_20 < 4; ++lane_20) {
        sum_local_ptr[(((column_16 * 4) + lane_20) + 32)] = (sum_local_ptr[(((column_16 * 4) + lane_20) + 32)] + (loaded_local_ptr[(((kw_9 * 4) + (column_16 * 4)) + lane_20)] * w_local_ptr[(((lane_20 * 9) + kw_9) + 6)]));
      }
    }
  }
  #pragma unroll
  for (int kw_10 = 0; kw_10 < 3; ++kw_10) {
    #pragma unroll
    for (int column_17 = 0; column_17 < 4; ++column_17) {
      #pragma unroll
      for (int lane_21 = 0; lane_21 < 4; ++lane_21) {
        sum_local_ptr[(((column_17 * 4) + lane_21) + 48)] = (sum_local_ptr[(((column_17 * 4) + lane_21) + 48)] + (loaded_local_ptr[(((kw_10 * 4) + (column_17 * 4)) + lane_21)] * w_local_ptr[(((lane_21 * 9) + kw_10) + 3)]));
      }
    }
  }
  #pragma unroll
  for (int column_18 = 0; column_18 < 4; ++column_18) {
    *(float4*)(y_ptr + ((((((((int)blockIdx.x) * 2048) + (((int)threadIdx.z) * 1024)) + (((int)threadIdx.y) * 128)) + (column_18 * 32)) + (((int)threadIdx.x) * 4)) + 512)) = *(float4*)(sum_local_ptr + ((column_18 * 4) + 32));
  }
  #pragma unroll
  for (int lane_22 = 0; lane_22 < 4; ++lane_22) {
    loaded_local_ptr[lane_22] = 0x0p+0f/*0.000000e+00*/;
  }
  if ((((int)threadIdx.z) < 1) && (((int)threadIdx.y) == 1)) {
    *(float4*)(loaded_local_ptr + 0) = *(float4*)(x_ptr + (((((((int)blockIdx.x) * 2048) + (((int)threadIdx.z) * 1024)) + (((int)threadIdx.y) * 128)) + (((int)threadIdx.x) * 4)) + 992));
  }
  #pragma unroll
  for (int column_19 = 0; column_19 < 4; ++column_19) {
    #pragma unroll
    for (int lane_23 = 0; lane_23 < 4; ++lane_23) {
      loaded_local_ptr[(((column_19 * 4) + lane_23) + 4)] = 0x0p+0f/*0.000000e+00*/;
    }
    if (((int)threadIdx.z) < 1) {
      *(float4*)(loaded_local_ptr + ((column_19 * 4) + 4)) = *(float4*)(x_ptr + ((((((((int)blockIdx.x) * 2048) + (((int)threadIdx.z) * 1024)) + (((int)threadIdx.y) * 128)) + (column_19 * 32)) + (((int)threadIdx.x) * 4)) + 1024));
    }
  }
  #pragma unroll
  for (int lane_24 = 0; lane_24 < 4; ++lane_24) {
    loaded_local_ptr[(lane_24 + 20)] = 0x0p+0f/*0.000000e+00*/;
  }
  if ((((int)threadIdx.z) < 1) && (((int)threadIdx.y) < 1)) {
    *(float4*)(loaded_local_ptr + 20) = *(float4*)(x_ptr + (((((((int)blockIdx.x) * 2048) + (((int)threadIdx.z) * 1024)) + (((int)threadIdx.y) * 128)) + (((int)threadIdx.x) * 4)) + 1152));
  }
  #pragma unroll
  for (int kw_11 = 0; kw_11 < 3; ++kw_11) {
    #pragma unroll
    for (int column_20 = 0; column_20 < 4; ++column_20) {
      #pragma unroll
      for (int lane_25 = 0; lane_25 < 4; ++lane_25) {
        sum_local_ptr[(((column_20 * 4) + lane_25) + 48)] = (sum_local_ptr[(((column_20 * 4) + lane_25) + 48)] + (loaded_local_ptr[(((kw_11 * 4) + (column_20 * 4)) + lane_25)] * w_local_ptr[(((lane_25 * 9) + kw_11) + 6)]));
      }
    }
  }
  #pragma unroll
  for (int column_21 = 0; column_21 < 4; ++column_21) {
    *(float4*)(y_ptr + ((((((((int)blockIdx.x) * 2048) + (((int)threadIdx.z) * 1024)) + (((int)threadIdx.y) * 128)) + (column_21 * 32)) + (((int)threadIdx.x) * 4)) + 768)) = *(float4*)(sum_local_ptr + ((column_21 * 4) + 48));
  }
}
