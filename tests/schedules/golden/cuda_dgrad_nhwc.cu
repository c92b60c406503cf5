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
  alignas(64) float sum_local_ptr[16];
  alignas(64) float loaded_local_ptr[8];
  alignas(64) float weight_local_ptr[4];
  int image = (((int)blockIdx.x) >> 2);
  int block_h = (((((int)blockIdx.x) & 3) >> 1) * 2);
  int block_w = ((((int)blockIdx.x) & 1) * 2);
  int fetched = ((((int)threadIdx.z) * 2) + ((int)threadIdx.y));
  #pragma unroll
  for (int turn_c = 0; turn_c < 8; ++turn_c) {
    #pragma unroll
    for (int turn = 0; turn < 2; ++turn) {
      if (((turn * 8) + ((int)threadIdx.x)) < 9) {
        kernels_shared_ptr[(((((turn * 288) + (((int)threadIdx.x) * 36)) + (turn_c * 4)) + (((int)threadIdx.z) * 2)) + ((int)threadIdx.y))] = w_ptr[(((((turn_c * 36) + (((int)threadIdx.z) * 18)) + (((int)threadIdx.y) * 9)) + (turn * 8)) + ((int)threadIdx.x))];
      }
    }
  }
  __syncthreads();
  int strip_h = ((((((int)blockIdx.x) & 3) >> 1) * 2) + ((int)threadIdx.z));
  int strip_w = (((((int)blockIdx.x) & 1) * 2) + ((int)threadIdx.y));
  #pragma unroll
  for (int index = 0; index < 16; ++index) {
    sum_local_ptr[index] = 0x0p+0f/*0.000000e+00*/;
  }
  *(float4*)(loaded_local_ptr + 0) = *(float4*)(dy_ptr + ((((((((int)blockIdx.x) >> 1) * 256) + (((int)threadIdx.z) * 128)) + ((((int)blockIdx.x) & 1) * 64)) + (((int)threadIdx.y) * 32)) + (((int)threadIdx.x) * 4)));
  #pragma unroll
  for (int lane = 0; lane < 4; ++lane) {
    loaded_local_ptr[(lane + 4)] = 0x0p+0f/*0.000000e+00*/;
  }
  if ((((((int)blockIdx.x) & 1) * 2) + ((int)threadIdx.y)) < 3) {
    *(float4*)(loaded_local_ptr + 4) = *(float4*)(dy_ptr + (((((((((int)blockIdx.x) >> 1) * 256) + (((int)threadIdx.z) * 128)) + ((((int)blockIdx.x) & 1) * 64)) + (((int)threadIdx.y) * 32)) + (((int)threadIdx.x) * 4)) + 32));
  }
  #pragma unroll
  for (int kw = 0; kw < 2; ++kw) {
    *(float4*)(weight_local_ptr + 0) = *(float4*)(kernels_shared_ptr + (((kw * 72) + (((int)threadIdx.x) * 4)) + 108));
    #pragma unroll
    for (int lane_1 = 0; lane_1 < 4; ++lane_1) {
      sum_local_ptr[(lane_1 + 4)] = (sum_local_ptr[(lane_1 + 4)] + (loaded_local_ptr[((lane_1 + 4) - (kw * 4))] * weight_local_ptr[lane_1]));
    }
  }
  *(float4*)(weight_local_ptr + 0) = *(float4*)(kernels_shared_ptr + ((((int)threadIdx.x) * 4) + 144));
  #pragma unroll
  for (int lane_2 = 0; lane_2 < 4; ++lane_2) {
    sum_local_ptr[lane_2] = (sum_local_ptr[lane_2] + (loaded_local_ptr[lane_2] * weight_local_ptr[lane_2]));
  }
  #pragma unroll
  for (int kw_1 = 0; kw_1 < 2; ++kw_1) {
    *(float4*)(weight_local_ptr + 0) = *(float4*)(kernels_shared_ptr + (((kw_1 * 72) + (((int)threadIdx.x) * 4)) + 216));
    #pragma unroll
    for (int lane_3 = 0; lane_3 < 4; ++lane_3) {
      sum_local_ptr[(lane_3 + 12)] = (sum_local_ptr[(lane_3 + 12)] + (loaded_local_ptr[((lane_3 + 4) - (kw_1 * 4))] * weight_local_ptr[lane_3]));
    }
  }
  *(float4*)(weight_local_ptr + 0) = *(float4*)(kernels_shared_ptr + ((((int)threadIdx.x) * 4) + 252));
  #pragma unroll
  for (int lane_4 = 0; lane_4 < 4; ++lane_4) {
    sum_local_ptr[(lane_4 + 8)] = (sum_local_ptr[(lane_4 + 8)] + (loaded_local_ptr[lane_4] * weight_local_ptr[lane_4]));
  }
  #pragma unroll
  for (int column = 0; column < 2; ++column) {
    *(float4*)(dx_ptr + (((((((((int)blockIdx.x) >> 1) * 1024) + (((int)threadIdx.z) * 512)) + ((((int)blockIdx.x) & 1) * 128)) + (((int)threadIdx.y) * 64)) + (column * 32)) + (((int)threadIdx.x) * 4))) = *(float4*)(sum_local_ptr + (column * 4));
  }
  #pragma unroll
  for (int lane_5 = 0; lane_5 < 4; ++lane_5) {
    loaded_local_ptr[lane_5] = 0x0p+0f/*0.000000e+00*/;
  }
  if (((((((int)blockIdx.x) & 3) >> 1) * 2) + ((int)threadIdx.z)) < 3) {
    *(float4*)(loaded_local_ptr + 0) = *(float4*)(dy_ptr + (((((((((int)blockIdx.x) >> 1) * 256) + (((int)threadIdx.z) * 128)) + ((((int)blockIdx.x) & 1) * 64)) + (((int)threadIdx.y) * 32)) + (((int)threadIdx.x) * 4)) + 128));
  }
  #pragma unroll
  for (int lane_6 = 0; lane_6 < 4; ++lane_6) {
    loaded_local_ptr[(lane_6 + 4)] = 0x0p+0f/*0.000000e+00*/;
  }
  if ((((((((int)blockIdx.x) & 3) >> 1) * 2) + ((int)threadIdx.z)) < 3) && ((((((int)blockIdx.x) & 1) * 2) + ((int)threadIdx.y)) < 3)) {
    *(float4*)(loaded_local_ptr + 4) = *(float4*)(dy_ptr + (((((((((int)blockIdx.x) >> 1) * 256) + (((int)threadIdx.z) * 128)) + ((((int)blockIdx.x) & 1) * 64)) + (((int)threadIdx.y) * 32)) + (((int)threadIdx.x) * 4)) + 160));
  }
  #pragma unroll
  for (int kw_2 = 0; kw_2 < 2; ++kw_2) {
    *(float4*)(weight_local_ptr + 0) = *(float4*)(kernels_shared_ptr + ((kw_2 * 72) + (((int)threadIdx.x) * 4)));
    #pragma unroll
    for (int lane_7 = 0; lane_7 < 4; ++lane_7) {
      sum_local_ptr[(lane_7 + 12)] = (sum_local_ptr[(lane_7 + 12)] + (loaded_local_ptr[((lane_7 + 4) - (kw_2 * 4))] * weight_local_ptr[lane_7]));
    }
  }
  *(float4*)(weight_local_ptr + 0) = *(float4*)(kernels_shared_ptr + ((((int)threadIdx.x) * 4) + 36));
  #pragma unroll
  for (int lane_8 = 0; lane_8 < 4; ++lane_8) {
    sum_local_ptr[(lane_8 + 8)] = (sum_local_ptr[(lane_8 + 8)] + (loaded_local_ptr[lane_8] * weight_local_ptr[lane_8]));
  }
  #pragma unroll
  for (int column_1 = 0; column_1 < 2; ++column_1) {
    *(float4*)(dx_ptr + ((((((((((int)blockIdx.x) >> 1) * 1024) + (((int)threadIdx.z) * 512)) + ((((int)blockIdx.x) & 1) * 128)) + (((int)threadIdx.y) * 64)) + (column_1 * 32)) + (((int)threadIdx.x) * 4)) + 256)) = *(float4*)(sum_local_ptr + ((column_1 * 4) + 8));
  }
}
