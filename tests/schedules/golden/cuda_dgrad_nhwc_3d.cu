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

extern "C" __global__ void __launch_bounds__(32) main_kernel(float* __restrict__ dx_ptr, float* __restrict__ dy_ptr, float* __restrict__ w_ptr, int n) {
  __shared__ alignas(64) float kernels_shared_ptr[324];
  alignas(64) float sum_local_ptr[8];
  alignas(64) float loaded_local_ptr[8];
  alignas(64) float weight_local_ptr[2];
  int image = (((int)blockIdx.x) >> 3);
  int depth = ((((int)blockIdx.x) & 7) >> 1);
  int block_h = ((((int)blockIdx.x) & 1) * 2);
  int fetched = ((((int)threadIdx.z) * 2) + (((int)threadIdx.y) >> 1));
  #pragma unroll
  for (int turn_c = 0; turn_c < 2; ++turn_c) {
    #pragma unroll
    for (int turn = 0; turn < 4; ++turn) {
      if ((((turn * 8) + ((((int)threadIdx.y) & 1) * 4)) + ((int)threadIdx.x)) < 27) {
        kernels_shared_ptr[((((((turn * 96) + ((((int)threadIdx.y) & 1) * 48)) + (((int)threadIdx.x) * 12)) + (turn_c * 4)) + (((int)threadIdx.z) * 2)) + (((int)threadIdx.y) >> 1))] = w_ptr[((((((turn_c * 108) + (((int)threadIdx.z) * 54)) + ((((int)threadIdx.y) >> 1) * 27)) + (turn * 8)) + ((((int)threadIdx.y) & 1) * 4)) + ((int)threadIdx.x))];
      }
    }
  }
  __syncthreads();
  int strip_h = (((((int)blockIdx.x) & 1) * 2) + ((int)threadIdx.z));
  int strip_w = ((int)threadIdx.y);
  #pragma unroll
  for (int index = 0; index < 8; ++index) {
    sum_local_ptr[index] = 0x0p+0f/*0.000000e+00*/;
  }
  for (int kd = 0; kd < 3; ++kd) {
    int source_depth = (((((((int)blockIdx.x) & 7) >> 1) + 1) - kd) >> 1);
    if ((((((((((int)blockIdx.x) & 7) >> 1) + 1) - kd) % 2) == 0) && (-1 <= (((((int)blockIdx.x) & 7) >> 1) - kd))) && ((((((int)blockIdx.x) & 7) >> 1) - kd) < 3)) {
      #pragma unroll
      for (int lane = 0; lane < 2; ++lane) {
        loaded_local_ptr[lane] = 0x0p+0f/*0.000000e+00*/;
      }
      if ((1 < (((((int)blockIdx.x) & 1) * 4) + (((int)threadIdx.z) * 2))) && (1 <= ((int)threadIdx.y))) {
        *(float2*)(loaded_local_ptr + 0) = *(float2*)(dy_ptr + ((((((((((int)blockIdx.x) >> 3) * 1024) + ((((((((int)blockIdx.x) & 7) >> 1) + 1) - kd) >> 1) * 512)) + ((((int)blockIdx.x) & 1) * 256)) + (((int)threadIdx.z) * 128)) + (((int)threadIdx.y) * 16)) + (((int)threadIdx.x) * 2)) - 72));
      }
      #pragma unroll
      for (int column = 0; column < 2; ++column) {
        #pragma unroll
        for (int lane_1 = 0; lane_1 < 2; ++lane_1) {
          loaded_local_ptr[(((column * 2) + lane_1) + 2)] = 0x0p+0f/*0.000000e+00*/;
        }
        if (1 < (((((int)blockIdx.x) & 1) * 4) + (((int)threadIdx.z) * 2))) {
          *(float2*)(loaded_local_ptr + ((column * 2) + 2)) = *(float2*)(dy_ptr + (((((((((((int)blockIdx.x) >> 3) * 1024) + ((((((((int)blockIdx.x) & 7) >> 1) + 1) - kd) >> 1) * 512)) + ((((int)blockIdx.x) & 1) * 256)) + (((int)threadIdx.z) * 128)) + (((int)threadIdx.y) * 16)) + (column * 8)) + (((int)threadIdx.x) * 2)) - 64));
        }
      }
      #pragma unroll
      for (int lane_2 = 0; lane_2 < 2; ++lane_2) {
        loaded_local_ptr[(lane_2 + 6)] = 0x0p+0f/*0.000000e+00*/;
      }
      if ((1 < (((((int)blockIdx.x) & 1) * 4) + (((int)threadIdx.z) * 2))) && (((int)threadIdx.y) < 3)) {
        *(float2*)(loaded_local_ptr + 6) = *(float2*)(dy_ptr + ((((((((((int)blockIdx.x) >> 3) * 1024) + ((((((((int)blockIdx.x) & 7) >> 1) + 1) - kd) >> 1) * 512)) + ((((int)blockIdx.x) & 1) * 256)) + (((int)threadIdx.z) * 128)) + (((int)threadIdx.y) * 16)) + (((int)threadIdx.x) * 2)) - 48));
      }
      #pragma unroll
      for (int kw = 0; kw < 3; ++kw) {
        *(float2*)(weight_local_ptr + 0) = *(float2*)(kernels_shared_ptr + ((((kd * 108) + (kw * 12)) + (((int)threadIdx.x) * 2)) + 72));
        #pragma unroll
        for (int column_1 = 0; column_1 < 2; ++column_1) {
          #pragma unroll
          for (int lane_3 = 0; lane_3 < 2; ++lane_3) {
            sum_local_ptr[((column_1 * 2) + lane_3)] = (sum_local_ptr[((column_1 * 2) + lane_3)] + (loaded_local_ptr[((((column_1 * 2) + lane_3) + 4) - (kw * 2))] * weight_local_ptr[lane_3]));
          }
        }
      }
      #pragma unroll
      for (int lane_4 = 0; lane_4 < 2; ++lane_4) {
        loaded_local_ptr[lane_4] = 0x0p+0f/*0.000000e+00*/;
      }
      if (1 <= ((int)threadIdx.y)) {
        *(float2*)(loaded_local_ptr + 0) = *(float2*)(dy_ptr + ((((((((((int)blockIdx.x) >> 3) * 1024) + ((((((((int)blockIdx.x) & 7) >> 1) + 1) - kd) >> 1) * 512)) + ((((int)blockIdx.x) & 1) * 256)) + (((int)threadIdx.z) * 128)) + (((int)threadIdx.y) * 16)) + (((int)threadIdx.x) * 2)) - 8));
      }
      #pragma unroll
      for (int column_2 = 0; column_2 < 2; ++column_2) {
        *(float2*)(loaded_local_ptr + ((column_2 * 2) + 2)) = *(float2*)(dy_ptr + ((((((((((int)blockIdx.x) >> 3) * 1024) + ((((((((int)blockIdx.x) & 7) >> 1) + 1) - kd) >> 1) * 512)) + ((((int)blockIdx.x) & 1) * 256)) + (((int)threadIdx.z) * 128)) + (((int)threadIdx.y) * 16)) + (column_2 * 8)) + (((int)threadIdx.x) * 2)));
      }
      #pragma unroll
      for (int lane_5 = 0; lane_5 < 2; ++lane_5) {
        loaded_local_ptr[(lane_5 + 6)] = 0x0p+0f/*0.000000e+00*/;
      }
      if (((int)threadIdx.y) < 3) {
        *(float2*)(loaded_local_ptr + 6) = *(float2*)(dy_ptr + ((((((((((int)blockIdx.x) >> 3) * 1024) + ((((((((int)blockIdx.x) & 7) >> 1) + 1) - kd) >> 1) * 512)) + ((((int)blockIdx.x) & 1) * 256)) + (((int)threadIdx.z) * 128)) + (((int)threadIdx.y) * 16)) + (((int)threadIdx.x) * 2)) + 16));
      }
      #pragma unroll
      for (int kw_1 = 0; kw_1 < 3; ++kw_1) {
        *(float2*)(weight_local_ptr + 0) = *(float2*)(kernels_shared_ptr + ((((kd * 108) + (kw_1 * 12)) + (((int)threadIdx.x) * 2)) + 36));
        #pragma unroll
        for (int column_3 = 0; column_3 < 2; ++column_3) {
          #pragma unroll
          for (int lane_6 = 0; lane_6 < 2; ++lane_6) {
            sum_local_ptr[((column_3 * 2) + lane_6)] = (sum_local_ptr[((column_3 * 2) + lane_6)] + (loaded_local_ptr[((((column_3 * 2) + lane_6) + 4) - (kw_1 * 2))] * weight_local_ptr[lane_6]));
          }
        }
      }
      #pragma unroll
      for (int kw_2 = 0; kw_2 < 3; ++kw_2) {
        *(float2*)(weight_local_ptr + 0) = *(float2*)(kernels_shared_ptr + ((((kd * 108) + (kw_2 * 12)) + (((int)threadIdx.x) * 2)) + 72));
        #pragma unroll
        for (int column_4 = 0; column_4 < 2; ++column_4) {
          #pragma unroll
          for (int lane_7 = 0; lane_7 < 2; ++lane_7) {
            sum_local_ptr[(((column_4 * 2) + lane_7) + 4)] = (sum_local_ptr[(((column_4 * 2) + lane_7) + 4)] + (loaded_local_ptr[((((column_4 * 2) + lane_7) + 4) - (kw_2 * 2))] * weight_local_ptr[lane_7]));
          }
        }
      }
      #pragma unroll
      for (int lane_8 = 0; lane_8 < 2; ++lane_8) {
        loaded_local_ptr[lane_8] = 0x0p+0f/*0.000000e+00*/;
      }
      if (1 <= ((int)threadIdx.y)) {
        *(float2*)(loaded_local_ptr + 0) = *(float2*)(dy_ptr + ((((((((((int)blockIdx.x) >> 3) * 1024) + ((((((((int)blockIdx.x) & 7) >> 1) + 1) - kd) >> 1) * 512)) + ((((int)blockIdx.x) & 1) * 256)) + (((int)threadIdx.z) * 128)) + (((int)threadIdx.y) * 16)) + (((int)threadIdx.x) * 2)) + 56));
      }
      #pragma unroll
      for (int column_5 = 0; column_5 < 2; ++column_5) {
        *(float2*)(loaded_local_ptr + ((column_5 * 2) + 2)) = *(float2*)(dy_ptr + (((((((((((int)blockIdx.x) >> 3) * 1024) + ((((((((int)blockIdx.x) & 7) >> 1) + 1) - kd) >> 1) * 512)) + ((((int)blockIdx.x) & 1) * 256)) + (((int)threadIdx.z) * 128)) + (((int)threadIdx.y) * 16)) + (column_5 * 8)) + (((int)threadIdx.x) * 2)) + 64));
      }
      #pragma unroll
      for (int lane_9 = 0; lane_9 < 2; ++lane_9) {
        loaded_local_ptr[(lane_9 + 6)] = 0x0p+0f/*0.000000e+00*/;
      }
      if (((int)threadIdx.y) < 3) {
        *(float2*)(loaded_local_ptr + 6) = *(float2*)(dy_ptr + ((((((((((int)blockIdx.x) >> 3) * 1024) + ((((((((int)blockIdx.x) & 7) >> 1) + 1) - kd) >> 1) * 512)) + ((((int)blockIdx.x) & 1) * 256)) + (((int)threadIdx.z) * 128)) + (((int)threadIdx.y) * 16)) + (((int)threadIdx.x) * 2)) + 80));
      }
      #pragma unroll
      for (int kw_3 = 0; kw_3 < 3; ++kw_3) {
        *(float2*)(weight_local_ptr + 0) = *(float2*)(kernels_shared_ptr + (((kd * 108) + (kw_3 * 12)) + (((int)threadIdx.x) * 2)));
        #pragma unroll
        for (int column_6 = 0; column_6 < 2; ++column_6) {
          #pragma unroll
          for (int lane_10 = 0; lane_10 < 2; ++lane_10) {
            sum_local_ptr[((column_6 * 2) + lane_10)] = (sum_local_ptr[((column_6 * 2) + lane_10)] + (loaded_local_ptr[((((column_6 * 2) + lane_10) + 4) - (kw_3 * 2))] * weight_local_ptr[lane_10]));
          }
        }
      }
      #pragma unroll
      for (int kw_4 = 0; kw_4 < 3; ++kw_4) {
        *(float2*)(weight_local_ptr + 0) = *(float2*)(kernels_shared_ptr + ((((kd * 108) + (kw_4 * 12)) + (((int)threadIdx.x) * 2)) + 36));
        #pragma unroll
        for (int column_7 = 0; column_7 < 2; ++column_7) {
          #pragma unroll
          for (int lane_11 = 0; lane_11 < 2; ++lane_11) {
            sum_local_ptr[(((column_7 * 2) + lane_11) + 4)] = (sum_local_ptr[(((column_7 * 2) + lane_11) + 4)] + (loaded_local_ptr[((((column_7 * 2) + lane_11) + 4) - (kw_4 * 2))] * weight_local_ptr[lane_11]));
          }
        }
      }
      #pragma unroll
      for (int lane_12 = 0; lane_12 < 2; ++lane_12) {
        loaded_local_ptr[lane_12] = 0x0p+0f/*0.000000e+00*/;
      }
      if (((((((int)blockIdx.x) & 1) * 2) + ((int)threadIdx.z)) < 3) && (1 <= ((int)threadIdx.y))) {
        *(float2*)(loaded_local_ptr + 0) = *(float2*)(dy_ptr + ((((((((((int)blockIdx.x) >> 3) * 1024) + ((((((((int)blockIdx.x) & 7) >> 1) + 1) - kd) >> 1) * 512)) + ((((int)blockIdx.x) & 1) * 256)) + (((int)threadIdx.z) * 128)) + (((int)threadIdx.y) * 16)) + (((int)threadIdx.x) * 2)) + 120));
      }
      #pragma unroll
      for (int column_8 = 0; column_8 < 2; ++column_8) {
        #pragma unroll
        for (int lane_13 = 0; lane_13 < 2; ++lane_13) {
          loaded_local_ptr[(((column_8 * 2) + lane_13) + 2)] = 0x0p+0f/*0.000000e+00*/;
        }
        if ((((((int)blockIdx.x) & 1) * 2) + ((int)threadIdx.z)) < 3) {
          *(float2*)(loaded_local_ptr + ((column_8 * 2) + 2)) = *(float2*)(dy_ptr + (((((((((((int)blockIdx.x) >> 3) * 1024) + ((((((((int)blockIdx.x) & 7) >> 1) + 1) - kd) >> 1) * 512)) + ((((int)blockIdx.x) & 1) * 256)) + (((int)threadIdx.z) * 128)) + (((int)threadIdx.y) * 16)) + (column_8 * 8)) + (((int)threadIdx.x) * 2)) + 128));
        }
      }
      #pragma unroll
      for (int lane_14 = 0; lane_14 < 2; ++lane_14) {
        loaded_local_ptr[(lane_14 + 6)] = 0x0p+0f/*0.000000e+00*/;
      }
      if (((((((int)blockIdx.x) & 1) * 2) + ((int)threadIdx.z)) < 3) && (((int)threadIdx.y) < 3)) {
        *(float2*)(loaded_local_ptr + 6) = *(float2*)(dy_ptr + ((((((((((int)blockIdx.x) >> 3) * 1024) + ((((((((int)blockIdx.x) & 7) >> 1) + 1) - kd) >> 1) * 512)) + ((((int)blockIdx.x) & 1) * 256)) + (((int)threadIdx.z) * 128)) + (((int)threadIdx.y) * 16)) + (((int)threadIdx.x) * 2)) + 144));
      }
      #pragma unroll
      for (int kw_5 = 0; kw_5 < 3; ++kw_5) {
        *(float2*)(weight_local_ptr + 0) = *(float2*)(kernels_shared_ptr + (((kd * 108) + (kw_5 * 12)) + (((int)threadIdx.x) * 2)));
        #pragma unroll
        for (int column_9 = 0; column_9 < 2; ++column_9) {
          #pragma unroll
          for (int lane_15 = 0; lane_15 < 2; ++lane_15) {
            sum_local_ptr[(((column_9 * 2) + lane_15) + 4)] = (sum_local_ptr[(((column_9 * 2) + lane_15) + 4)] + (loaded_local_ptr[((((column_9 * 2) + lane_15) + 4) - (kw_5 * 2))] * weight_local_ptr[lane_15]));
          }
        }
      }
    }
  }
  #pragma unroll
  for (int column_10 = 0; column_10 < 2; ++column_10) {
    *(float2*)(dx_ptr + (((((((int)blockIdx.x) * 256) + (((int)threadIdx.z) * 128)) + (((int)threadIdx.y) * 16)) + (column_10 * 8)) + (((int)threadIdx.x) * 2))) = *(float2*)(sum_local_ptr + (column_10 * 2));
  }
  #pragma unroll
  for (int column_11 = 0; column_11 < 2; ++column_11) {
    *(float2*)(dx_ptr + ((((((((int)blockIdx.x) * 256) + (((int)threadIdx.z) * 128)) + (((int)threadIdx.y) * 16)) + (column_11 * 8)) + (((int)threadIdx.x) * 2)) + 64)) = *(float2*)(sum_local_ptr + ((column_11 * 2) + 4));
  }
}
