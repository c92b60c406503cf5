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

extern "C" __global__ void __launch_bounds__(32) main_kernel(float* __restrict__ bias_ptr, float* __restrict__ w_ptr, float* __restrict__ x_ptr, float* __restrict__ y_ptr, int n) {
  alignas(64) float bias_local_ptr[2];
  alignas(64) float sum_local_ptr[8];
  alignas(64) float loaded_local_ptr[8];
  alignas(64) float w_local_ptr[18];
  int image = (((int)blockIdx.x) >> 3);
  int depth = ((((int)blockIdx.x) & 7) >> 1);
  int block_h = ((((int)blockIdx.x) & 1) * 2);
  *(float2*)(bias_local_ptr + 0) = *(float2*)(bias_ptr + (((int)threadIdx.x) * 2));
  int strip_h = (((((int)blockIdx.x) & 1) * 2) + ((int)threadIdx.z));
  int strip_w = ((int)threadIdx.y);
  #pragma unroll
  for (int row = 0; row < 2; ++row) {
    #pragma unroll
    for (int column = 0; column < 2; ++column) {
      sum_local_ptr[((row * 4) + (column * 2))] = bias_local_ptr[0];
      sum_local_ptr[(((row * 4) + (column * 2)) + 1)] = bias_local_ptr[1];
    }
  }
  for (int kd = 0; kd < 3; ++kd) {
    int source_depth = ((((((int)blockIdx.x) & 7) >> 1) + kd) - 1);
    if ((1 <= (((((int)blockIdx.x) & 7) >> 1) + kd)) && ((((((int)blockIdx.x) & 7) >> 1) + kd) < 5)) {
      #pragma unroll
      for (int run = 0; run < 2; ++run) {
        #pragma unroll
        for (int vector = 0; vector < 9; ++vector) {
          w_local_ptr[((run * 9) + vector)] = w_ptr[((((((int)threadIdx.x) * 54) + (run * 27)) + (kd * 9)) + vector)];
        }
      }
      #pragma unroll
      for (int lane = 0; lane < 2; ++lane) {
        loaded_local_ptr[lane] = 0x0p+0f/*0.000000e+00*/;
      }
      if ((1 < (((((int)blockIdx.x) & 1) * 4) + (((int)threadIdx.z) * 2))) && (1 <= ((int)threadIdx.y))) {
        *(float2*)(loaded_local_ptr + 0) = *(float2*)(x_ptr + ((((((kd * 512) + (((int)blockIdx.x) * 256)) + (((int)threadIdx.z) * 128)) + (((int)threadIdx.y) * 16)) + (((int)threadIdx.x) * 2)) - 584));
      }
      #pragma unroll
      for (int column_1 = 0; column_1 < 2; ++column_1) {
        #pragma unroll
        for (int lane_1 = 0; lane_1 < 2; ++lane_1) {
          loaded_local_ptr[(((column_1 * 2) + lane_1) + 2)] = 0x0p+0f/*0.000000e+00*/;
        }
        if (1 < (((((int)blockIdx.x) & 1) * 4) + (((int)threadIdx.z) * 2))) {
          *(float2*)(loaded_local_ptr + ((column_1 * 2) + 2)) = *(float2*)(x_ptr + (((((((kd * 512) + (((int)blockIdx.x) * 256)) + (((int)threadIdx.z) * 128)) + (((int)threadIdx.y) * 16)) + (column_1 * 8)) + (((int)threadIdx.x) * 2)) - 576));
        }
      }
      #pragma unroll
      for (int lane_2 = 0; lane_2 < 2; ++lane_2) {
        loaded_local_ptr[(lane_2 + 6)] = 0x0p+0f/*0.000000e+00*/;
      }
      if ((1 < (((((int)blockIdx.x) & 1) * 4) + (((int)threadIdx.z) * 2))) && (((int)threadIdx.y) < 3)) {
        *(float2*)(loaded_local_ptr + 6) = *(float2*)(x_ptr + ((((((kd * 512) + (((int)blockIdx.x) * 256)) + (((int)threadIdx.z) * 128)) + (((int)threadIdx.y) * 16)) + (((int)threadIdx.x) * 2)) - 560));
      }
      #pragma unroll
      for (int kw = 0; kw < 3; ++kw) {
        #pragma unroll
        for (int column_2 = 0; column_2 < 2; ++column_2) {
          #pragma unroll
          for (int lane_3 = 0; lane_3 < 2; ++lane_3) {
            sum_local_ptr[((column_2 * 2) + lane_3)] = (sum_local_ptr[((column_2 * 2) + lane_3)] + (loaded_local_ptr[(((kw * 2) + (column_2 * 2)) + lane_3)] * w_local_ptr[((lane_3 * 9) + kw)]));
          }
        }
      }
      #pragma unroll
      for (int lane_4 = 0; lane_4 < 2; ++lane_4) {
        loaded_local_ptr[lane_4] = 0x0p+0f/*0.000000e+00*/;
      }
      if (1 <= ((int)threadIdx.y)) {
        *(float2*)(loaded_local_ptr + 0) = *(float2*)(x_ptr + ((((((kd * 512) + (((int)blockIdx.x) * 256)) + (((int)threadIdx.z) * 128)) + (((int)threadIdx.y) * 16)) + (((int)threadIdx.x) * 2)) - 520));
      }
      #pragma unroll
      for (int column_3 = 0; column_3 < 2; ++column_3) {
        *(float2*)(loaded_local_ptr + ((column_3 * 2) + 2)) = *(float2*)(x_ptr + (((((((kd * 512) + (((int)blockIdx.x) * 256)) + (((int)threadIdx.z) * 128)) + (((int)threadIdx.y) * 16)) + (column_3 * 8)) + (((int)threadIdx.x) * 2)) - 512));
      }
      #pragma unroll
      for (int lane_5 = 0; lane_5 < 2; ++lane_5) {
        loaded_local_ptr[(lane_5 + 6)] = 0x0p+0f/*0.000000e+00*/;
      }
      if (((int)threadIdx.y) < 3) {
        *(float2*)(loaded_local_ptr + 6) = *(float2*)(x_ptr + ((((((kd * 512) + (((int)blockIdx.x) * 256)) + (((int)threadIdx.z) * 128)) + (((int)threadIdx.y) * 16)) + (((int)threadIdx.x) * 2)) - 496));
      }
      #pragma unroll
      for (int kw_1 = 0; kw_1 < 3; ++kw_1) {
        #pragma unroll
        for (int column_4 = 0; column_4 < 2; ++column_4) {
          #pragma unroll
          for (int lane_6 = 0; lane_6 < 2; ++lane_6) {
            sum_local_ptr[((column_4 * 2) + lane_6)] = (sum_local_ptr[((column_4 * 2) + lane_6)] + (loaded_local_ptr[(((kw_1 * 2) + (column_4 * 2)) + lane_6)] * w_local_ptr[(((lane_6 * 9) + kw_1) + 3)]));
          }
        }
      }
      #pragma unroll
      for (int kw_2 = 0; kw_2 < 3; ++kw_2) {
        #pragma unroll
        for (int column_5 = 0; column_5 < 2; ++column_5) {
          #pragma unroll
          for (int lane_7 = 0; lane_7 < 2; ++lane_7) {
            sum_local_ptr[(((column_5 * 2) + lane_7) + 4)] = (sum_local_ptr[(((column_5 * 2) + lane_7) + 4)] + (loaded_local_ptr[(((kw_2 * 2) + (column_5 * 2)) + lane_7)] * w_local_ptr[((lane_7 * 9) + kw_2)]));
          }
        }
      }
      #pragma unroll
      for (int lane_8 = 0; lane_8 < 2; ++lane_8) {
        loaded_local_ptr[lane_8] = 0x0p+0f/*0.000000e+00*/;
      }
      if (1 <= ((int)threadIdx.y)) {
        *(float2*)(loaded_local_ptr + 0) = *(float2*)(x_ptr + ((((((kd * 512) + (((int)blockIdx.x) * 256)) + (((int)threadIdx.z) * 128)) + (((int)threadIdx.y) * 16)) + (((int)threadIdx.x) * 2)) - 456));
      }
      #pragma unroll
      for (int column_6 = 0; column_6 < 2; ++column_6) {
        *(float2*)(loaded_local_ptr + ((column_6 * 2) + 2)) = *(float2*)(x_ptr + (((((((kd * 512) + (((int)blockIdx.x) * 256)) + (((int)threadIdx.z) * 128)) + (((int)threadIdx.y) * 16)) + (column_6 * 8)) + (((int)threadIdx.x) * 2)) - 448));
      }
      #pragma unroll
      for (int lane_9 = 0; lane_9 < 2; ++lane_9) {
        loaded_local_ptr[(lane_9 + 6)] = 0x0p+0f/*0.000000e+00*/;
      }
      if (((int)threadIdx.y) < 3) {
        *(float2*)(loaded_local_ptr + 6) = *(float2*)(x_ptr + ((((((kd * 512) + (((int)blockIdx.x) * 256)) + (((int)threadIdx.z) * 128)) + (((int)threadIdx.y) * 16)) + (((int)threadIdx.x) * 2)) - 432));
      }
      #pragma unroll
      for (int kw_3 = 0; kw_3 < 3; ++kw_3) {
        #pragma unroll
        for (int column_7 = 0; column_7 < 2; ++column_7) {
          #pragma unroll
          for (int lane_10 = 0; lane_10 < 2; ++lane_10) {
            sum_local_ptr[((column_7 * 2) + lane_10)] = (sum_local_ptr[((column_7 * 2) + lane_10)] + (loaded_local_ptr[(((kw_3 * 2) + (column_7 * 2)) + lane_10)] * w_local_ptr[(((lane_10 * 9) + kw_3) + 6)]));
          }
        }
      }
      #pragma unroll
      for (int kw_4 = 0; kw_4 < 3; ++kw_4) {
        #pragma unroll
        for (int column_8 = 0; column_8 < 2; ++column_8) {
          #pragma unroll
          for (int lane_11 = 0; lane_11 < 2; ++lane_11) {
            sum_local_ptr[(((column_8 * 2) + lane_11) + 4)] = (sum_local_ptr[(((column_8 * 2) + lane_11) + 4)] + (loaded_local_ptr[(((kw_4 * 2) + (column_8 * 2)) + lane_11)] * w_local_ptr[(((lane_11 * 9) + kw_4) + 3)]));
          }
        }
      }
      #pragma unroll
      for (int lane_12 = 0; lane_12 < 2; ++lane_12) {
        loaded_local_ptr[lane_12] = 0x0p+0f/*0.000000e+00*/;
      }
      if (((((((int)blockIdx.x) & 1) * 2) + ((int)threadIdx.z)) < 3) && (1 <= ((int)threadIdx.y))) {
        *(float2*)(loaded_local_ptr + 0) = *(float2*)(x_ptr + ((((((kd * 512) + (((int)blockIdx.x) * 256)) + (((int)threadIdx.z) * 128)) + (((int)threadIdx.y) * 16)) + (((int)threadIdx.x) * 2)) - 392));
      }
      #pragma unroll
      for (int column_9 = 0; column_9 < 2; ++column_9) {
        #pragma unroll
        for (int lane_13 = 0; lane_13 < 2; ++lane_13) {
          loaded_local_ptr[(((column_9 * 2) + lane_13) + 2)] = 0x0p+0f/*0.000000e+00*/;
        }
        if ((((((int)blockIdx.x) & 1) * 2) + ((int)threadIdx.z)) < 3) {
          *(float2*)(loaded_local_ptr + ((column_9 * 2) + 2)) = *(float2*)(x_ptr + (((((((kd * 512) + (((int)blockIdx.x) * 256)) + (((int)threadIdx.z) * 128)) + (((int)threadIdx.y) * 16)) + (column_9 * 8)) + (((int)threadIdx.x) * 2)) - 384));
        }
      }
      #pragma unroll
      for (int lane_14 = 0; lane_14 < 2; ++lane_14) {
        loaded_local_ptr[(lane_14 + 6)] = 0x0p+0f/*0.000000e+00*/;
      }
      if (((((((int)blockIdx.x) & 1) * 2) + ((int)threadIdx.z)) < 3) && (((int)threadIdx.y) < 3)) {
        *(float2*)(loaded_local_ptr + 6) = *(float2*)(x_ptr + ((((((kd * 512) + (((int)blockIdx.x) * 256)) + (((int)threadIdx.z) * 128)) + (((int)threadIdx.y) * 16)) + (((int)threadIdx.x) * 2)) - 368));
      }
      #pragma unroll
      for (int kw_5 = 0; kw_5 < 3; ++kw_5) {
        #pragma unroll
        for (int column_10 = 0; column_10 < 2; ++column_10) {
          #pragma unroll
          for (int lane_15 = 0; lane_15 < 2; ++lane_15) {
            sum_local_ptr[(((column_10 * 2) + lane_15) + 4)] = (sum_local_ptr[(((column_10 * 2) + lane_15) + 4)] + (loaded_local_ptr[(((kw_5 * 2) + (column_10 * 2)) + lane_15)] * w_local_ptr[(((lane_15 * 9) + kw_5) + 6)]));
          }
        }
      }
    }
  }
  #pragma unroll
  for (int column_11 = 0; column_11 < 2; ++column_11) {
    *(float2*)(y_ptr + (((((((int)blockIdx.x) * 256) + (((int)threadIdx.z) * 128)) + (((int)threadIdx.y) * 16)) + (column_11 * 8)) + (((int)threadIdx.x) * 2))) = *(float2*)(sum_local_ptr + (column_11 * 2));
  }
  #pragma unroll
  for (int column_12 = 0; column_12 < 2; ++column_12) {
    *(float2*)(y_ptr + ((((((((int)blockIdx.x) * 256) + (((int)threadIdx.z) * 128)) + (((int)threadIdx.y) * 16)) + (column_12 * 8)) + (((int)threadIdx.x) * 2)) + 64)) = *(float2*)(sum_local_ptr + ((column_12 * 2) + 4));
  }
}
