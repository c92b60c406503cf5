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

extern "C" __global__ void __launch_bounds__(32) main_kernel(float* __restrict__ dx_ptr, float* __restrict__ dy_ptr, float* __restrict__ w_ptr, int h, int n, int oh, int ow, int w) {
  alignas(64) float w_local_ptr[18];
  alignas(64) int read_at_local_ptr[1];
  alignas(64) int written_at_local_ptr[1];
  alignas(64) float sum_local_ptr[8];
  alignas(64) int row_at_local_ptr[1];
  alignas(64) float loaded_local_ptr[4];
  alignas(64) int row_at_local_ptr_1[1];
  int image = ((int)blockIdx.z);
  int block_h = (((int)blockIdx.y) * 2);
  int block_w = ((((int)blockIdx.x) >> 1) * 2);
  #pragma unroll
  for (int vector = 0; vector < 9; ++vector) {
    *(float2*)(w_local_ptr + (vector * 2)) = *(float2*)(w_ptr + ((((((int)blockIdx.x) & 1) * 144) + (((int)threadIdx.x) * 18)) + (vector * 2)));
  }
  int strip_h = ((((int)blockIdx.y) * 2) + ((int)threadIdx.z));
  int strip_w = (((((int)blockIdx.x) >> 1) * 2) + ((int)threadIdx.y));
  if ((((((int)blockIdx.y) * 2) + ((int)threadIdx.z)) < ((h + 1) >> 1)) && ((((((int)blockIdx.x) >> 1) * 2) + ((int)threadIdx.y)) < ((w + 1) >> 1))) {
    read_at_local_ptr[0] = ((((((((int)blockIdx.x) >> 1) * 32) + (((((((int)blockIdx.y) * 2) + (((int)blockIdx.z) * oh)) + ((int)threadIdx.z)) * ow) * 16)) + (((int)threadIdx.y) * 16)) + ((((int)blockIdx.x) & 1) * 8)) + ((int)threadIdx.x));
    written_at_local_ptr[0] = ((((((((int)blockIdx.x) >> 1) * 64) + (((int)threadIdx.y) * 32)) + (((((((int)blockIdx.y) * 4) + (((int)threadIdx.z) * 2)) + (((int)blockIdx.z) * h)) * w) * 16)) + ((((int)blockIdx.x) & 1) * 8)) + ((int)threadIdx.x));
    #pragma unroll
    for (int index = 0; index < 8; ++index) {
      sum_local_ptr[index] = 0x0p+0f/*0.000000e+00*/;
    }
    row_at_local_ptr[0] = read_at_local_ptr[0];
    *(float2*)(loaded_local_ptr + 0) = *(float2*)(dy_ptr + (row_at_local_ptr[0] * 2));
    #pragma unroll
    for (int lane = 0; lane < 2; ++lane) {
      loaded_local_ptr[(lane + 2)] = 0x0p+0f/*0.000000e+00*/;
    }
    if (((((((int)blockIdx.x) >> 1) * 2) + ((int)threadIdx.y)) + 1) < ow) {
      *(float2*)(loaded_local_ptr + 2) = *(float2*)(dy_ptr + ((row_at_local_ptr[0] * 2) + 32));
    }
    #pragma unroll
    for (int kw = 0; kw < 2; ++kw) {
      #pragma unroll
      for (int lane_1 = 0; lane_1 < 2; ++lane_1) {
        sum_local_ptr[(lane_1 + 2)] = (sum_local_ptr[(lane_1 + 2)] + (loaded_local_ptr[((lane_1 + 2) - (kw * 2))] * w_local_ptr[(((lane_1 * 9) + (kw * 2)) + 3)]));
      }
    }
    #pragma unroll
    for (int lane_2 = 0; lane_2 < 2; ++lane_2) {
      sum_local_ptr[lane_2] = (sum_local_ptr[lane_2] + (loaded_local_ptr[lane_2] * w_local_ptr[((lane_2 * 9) + 4)]));
    }
    #pragma unroll
    for (int kw_1 = 0; kw_1 < 2; ++kw_1) {
      #pragma unroll
      for (int lane_3 = 0; lane_3 < 2; ++lane_3) {
        sum_local_ptr[(lane_3 + 6)] = (sum_local_ptr[(lane_3 + 6)] + (loaded_local_ptr[((lane_3 + 2) - (kw_1 * 2))] * w_local_ptr[(((lane_3 * 9) + (kw_1 * 2)) + 6)]));
      }
    }
    #pragma unroll
    for (int lane_4 = 0; lane_4 < 2; ++lane_4) {
      sum_local_ptr[(lane_4 + 4)] = (sum_local_ptr[(lane_4 + 4)] + (loaded_local_ptr[lane_4] * w_local_ptr[((lane_4 * 9) + 7)]));
    }
    row_at_local_ptr_1[0] = written_at_local_ptr[0];
    #pragma unroll
    for (int column = 0; column < 2; ++column) {
      if (((((((int)blockIdx.x) >> 1) * 4) + (((int)threadIdx.y) * 2)) + column) < w) {
        *(float2*)(dx_ptr + ((column * 32) + (row_at_local_ptr_1[0] * 2))) = *(float2*)(sum_local_ptr + (column * 2));
      }
    }
    read_at_local_ptr[0] = ((ow * 16) + read_at_local_ptr[0]);
    #pragma unroll
    for (int lane_5 = 0; lane_5 < 2; ++lane_5) {
      loaded_local_ptr[lane_5] = 0x0p+0f/*0.000000e+00*/;
    }
    if ((((((int)blockIdx.y) * 2) + ((int)threadIdx.z)) + 1) < oh) {
      *(float2*)(loaded_local_ptr + 0) = *(float2*)(dy_ptr + (read_at_local_ptr[0] * 2));
    }
    #pragma unroll
    for (int lane_6 = 0; lane_6 < 2; ++lane_6) {
      loaded_local_ptr[(lane_6 + 2)] = 0x0p+0f/*0.000000e+00*/;
    }
    if (((((((int)blockIdx.y) * 2) + ((int)threadIdx.z)) + 1) < oh) && (((((((int)blockIdx.x) >> 1) * 2) + ((int)threadIdx.y)) + 1) < ow)) {
      *(float2*)(loaded_local_ptr + 2) = *(float2*)(dy_ptr + ((read_at_local_ptr[0] * 2) + 32));
    }
    #pragma unroll
    for (int kw_2 = 0; kw_2 < 2; ++kw_2) {
      #pragma unroll
      for (int lane_7 = 0; lane_7 < 2; ++lane_7) {
        sum_local_ptr[(lane_7 + 6)] = (sum_local_ptr[(lane_7 + 6)] + (loaded_local_ptr[((lane_7 + 2) - (kw_2 * 2))] * w_local_ptr[((lane_7 * 9) + (kw_2 * 2))]));
      }
    }
    #pragma unroll
    for (int lane_8 = 0; lane_8 < 2; ++lane_8) {
      sum_local_ptr[(lane_8 + 4)] = (sum_local_ptr[(lane_8 + 4)] + (loaded_local_ptr[lane_8] * w_local_ptr[((lane_8 * 9) + 1)]));
    }
    written_at_local_ptr[0] = ((w * 16) + written_at_local_ptr[0]);
    #pragma unroll
    for (int column_1 = 0; column_1 < 2; ++column_1) {
      if (((((((int)blockIdx.y) * 4) + (((int)threadIdx.z) * 2)) + 1) < h) && (((((((int)blockIdx.x) >> 1) * 4) + (((int)threadIdx.y) * 2)) + column_1) < w)) {
        *(float2*)(dx_ptr + ((column_1 * 32) + (written_at_local_ptr[0] * 2))) = *(float2*)(sum_local_ptr + ((column_1 * 2) + 4));
      }
    }
  }
}
