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
  __shared__ alignas(64) float kernels_shared_ptr[96];
  alignas(64) float sum_local_ptr[8];
  alignas(64) float loaded_local_ptr[6];
  alignas(64) float weight_local_ptr[2];
  int image = (((int)blockIdx.x) >> 3);
  int depth = ((((int)blockIdx.x) & 7) >> 1);
  int block_h = ((((int)blockIdx.x) & 1) * 2);
  int fetched = ((((int)threadIdx.z) * 2) + (((int)threadIdx.y) >> 1));
  #pragma unroll
  for (int turn_c = 0; turn_c < 2; ++turn_c) {
    kernels_shared_ptr[((((((((int)threadIdx.y) & 1) * 48) + (((int)threadIdx.x) * 12)) + (turn_c * 4)) + (((int)threadIdx.z) * 2)) + (((int)threadIdx.y) >> 1))] = w_ptr[((((turn_c * 32) + (((int)threadIdx.z) * 16)) + (((int)threadIdx.y) * 4)) + ((int)threadIdx.x))];
  }
  __syncthreads();
  int strip_h = (((((int)blockIdx.x) & 1) * 2) + ((int)threadIdx.z));
  int strip_w = ((int)threadIdx.y);
  #pragma unroll
  for (int index = 0; index < 8; ++index) {
    sum_local_ptr[index] = 0x0p+0f/*0.000000e+00*/;
  }
  for (int kd = 0; kd < 2; ++kd) {
    int source_depth = (((((((int)blockIdx.x) & 7) >> 1) + 1) - kd) >> 1);
    if ((((((((int)blockIdx.x) & 7) >> 1) + 1) - kd) % 2) == 0) {
      #pragma unroll
      for (int column = 0; column < 3; ++column) {
        *(float2*)(loaded_local_ptr + (column * 2)) = *(float2*)(dy_ptr + ((((((((((int)blockIdx.x) >> 3) * 1944) + ((((((((int)blockIdx.x) & 7) >> 1) + 1) - kd) >> 1) * 648)) + ((((int)blockIdx.x) & 1) * 288)) + (((int)threadIdx.z) * 144)) + (((int)threadIdx.y) * 16)) + (column * 8)) + (((int)threadIdx.x) * 2)));
      }
      #pragma unroll
      for (int kw = 0; kw < 2; ++kw) {
        *(float2*)(weight_local_ptr + 0) = *(float2*)(kernels_shared_ptr + ((((kd * 48) + (kw * 12)) + (((int)threadIdx.x) * 2)) + 24));
        #pragma unroll
        for (int column_1 = 0; column_1 < 2; ++column_1) {
          #pragma unroll
          for (int lane = 0; lane < 2; ++lane) {
            sum_local_ptr[((column_1 * 2) + lane)] = (sum_local_ptr[((column_1 * 2) + lane)] + (loaded_local_ptr[((((column_1 * 2) + lane) + 2) - (kw * 2))] * weight_local_ptr[lane]));
          }
        }
      }
      #pragma unroll
      for (int column_2 = 0; column_2 < 3; ++column_2) {
        *(float2*)(loaded_local_ptr + (column_2 * 2)) = *(float2*)(dy_ptr + (((((((((((int)blockIdx.x) >> 3) * 1944) + ((((((((int)blockIdx.x) & 7) >> 1) + 1) - kd) >> 1) * 648)) + ((((int)blockIdx.x) & 1) * 288)) + (((int)threadIdx.z) * 144)) + (((int)threadIdx.y) * 16)) + (column_2 * 8)) + (((int)threadIdx.x) * 2)) + 72));
      }
      #pragma unroll
      for (int kw_1 = 0; kw_1 < 2; ++kw_1) {
        *(float2*)(weight_local_ptr + 0) = *(float2*)(kernels_shared_ptr + (((kd * 48) + (kw_1 * 12)) + (((int)threadIdx.x) * 2)));
        #pragma unroll
        for (int column_3 = 0; column_3 < 2; ++column_3) {
          #pragma unroll
          for (int lane_1 = 0; lane_1 < 2; ++lane_1) {
            sum_local_ptr[((column_3 * 2) + lane_1)] = (sum_local_ptr[((column_3 * 2) + lane_1)] + (loaded_local_ptr[((((column_3 * 2) + lane_1) + 2) - (kw_1 * 2))] * weight_local_ptr[lane_1]));
          }
        }
      }
      #pragma unroll
      for (int kw_2 = 0; kw_2 < 2; ++kw_2) {
        *(float2*)(weight_local_ptr + 0) = *(float2*)(kernels_shared_ptr + ((((kd * 48) + (kw_2 * 12)) + (((int)threadIdx.x) * 2)) + 24));
        #pragma unroll
        for (int column_4 = 0; column_4 < 2; ++column_4) {
          #pragma unroll
          for (int lane_2 = 0; lane_2 < 2; ++lane_2) {
            sum_local_ptr[(((column_4 * 2) + lane_2) + 4)] = (sum_local_ptr[(((column_4 * 2) + lane_2) + 4)] + (loaded_local_ptr[((((column_4 * 2) + lane_2) + 2) - (kw_2 * 2))] * weight_local_ptr[lane_2]));
          }
        }
      }
      #pragma unroll
      for (int column_5 = 0; column_5 < 3; ++column_5) {
        *(float2*)(loaded_local_ptr + (column_5 * 2)) = *(float2*)(dy_ptr + (((((((((((int)blockIdx.x) >> 3) * 1944) + ((((((((int)blockIdx.x) & 7) >> 1) + 1) - kd) >> 1) * 648)) + ((((int)blockIdx.x) & 1) * 288)) + (((int)threadIdx.z) * 144)) + (((int)threadIdx.y) * 16)) + (column_5 * 8)) + (((int)threadIdx.x) * 2)) + 144));
      }
      #pragma unroll
      for (int kw_3 = 0; kw_3 < 2; ++kw_3) {
        *(float2*)(weight_local_ptr + 0) = *(float2*)(kernels_shared_ptr + (((kd * 48) + (kw_3 * 12)) + (((int)threadIdx.x) * 2)));
        #pragma unroll
        for (int column_6 = 0; column_6 < 2; ++column_6) {
          #pragma unroll
          for (int lane_3 = 0; lane_3 < 2; ++lane_3) {
            sum_local_ptr[(((column_6 * 2) + lane_3) + 4)] = (sum_local_ptr[(((column_6 * 2) + lane_3) + 4)] + (loaded_local_ptr[((((column_6 * 2) + lane_3) + 2) - (kw_3 * 2))] * weight_local_ptr[lane_3]));
          }
        }
      }
    }
  }
  #pragma unroll
  for (int column_7 = 0; column_7 < 2; ++column_7) {
    *(float2*)(dx_ptr + (((((((int)blockIdx.x) * 256) + (((int)threadIdx.z) * 128)) + (((int)threadIdx.y) * 16)) + (column_7 * 8)) + (((int)threadIdx.x) * 2))) = *(float2*)(sum_local_ptr + (column_7 * 2));
  }
  #pragma unroll
  for (int column_8 = 0; column_8 < 2; ++column_8) {
    *(float2*)(dx_ptr + ((((((((int)blockIdx.x) * 256) + (((int)threadIdx.z) * 128)) + (((int)threadIdx.y) * 16)) + (column_8 * 8)) + (((int)threadIdx.x) * 2)) + 64)) = *(float2*)(sum_local_ptr + ((column_8 * 2) + 4));
  }
}
