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

extern "C" __global__ void __launch_bounds__(32) main_kernel(float* __restrict__ w_ptr, float* __restrict__ x_ptr, float* __restrict__ y_ptr, int h, int n, int oh, int ow, int w) {
  alignas(64) float sum_local_ptr[2];
  alignas(64) float weight_local_ptr[3];
  alignas(64) int pitch_local_ptr[1];
  alignas(64) int at_local_ptr[1];
  alignas(64) float value_local_ptr[4];
  alignas(64) int pitch_local_ptr_1[1];
  alignas(64) int at_local_ptr_1[1];
  alignas(64) float sum_local_ptr_1[2];
  alignas(64) float weight_local_ptr_1[3];
  alignas(64) int pitch_local_ptr_2[1];
  alignas(64) int at_local_ptr_2[1];
  alignas(64) float value_local_ptr_1[4];
  alignas(64) int pitch_local_ptr_3[1];
  alignas(64) int at_local_ptr_3[1];
  if ((((((int)blockIdx.y) * 2) + ((int)threadIdx.z)) < oh) && (((((int)blockIdx.x) * 4) + (((int)threadIdx.x) * 2)) < ow)) {
    if (((w % 2) == 0) && ((ow % 2) == 0)) {
      #pragma unroll
      for (int index = 0; index < 2; ++index) {
        sum_local_ptr[index] = 0x0p+0f/*0.000000e+00*/;
      }
      weight_local_ptr[0] = w_ptr[(((int)threadIdx.y) * 3)];
      weight_local_ptr[1] = w_ptr[((((int)threadIdx.y) * 3) + 1)];
      weight_local_ptr[2] = w_ptr[((((int)threadIdx.y) * 3) + 2)];
      pitch_local_ptr[0] = (w / 2);
      int pitch = pitch_local_ptr[0];
      at_local_ptr[0] = (((((int)blockIdx.x) * 2) + ((((((int)blockIdx.y) * 2) + (((((int)blockIdx.z) * 8) + ((int)threadIdx.y)) * h)) + ((int)threadIdx.z)) * pitch)) + ((int)threadIdx.x));
      value_local_ptr[2] = 0x0p+0f/*0.000000e+00*/;
      if (1 < ((((int)blockIdx.x) * 4) + (((int)threadIdx.x) * 2))) {
        value_local_ptr[2] = x_ptr[((at_local_ptr[0] * 2) - 1)];
      }
      *(float2*)(value_local_ptr + 0) = *(float2*)(x_ptr + (at_local_ptr[0] * 2));
      value_local_ptr[3] = 0x0p+0f/*0.000000e+00*/;
      if ((((((int)blockIdx.x) * 4) + (((int)threadIdx.x) * 2)) + 3) <= w) {
        value_local_ptr[3] = x_ptr[((at_local_ptr[0] * 2) + 2)];
      }
      sum_local_ptr[0] = (sum_local_ptr[0] + (value_local_ptr[2] * weight_local_ptr[0]));
      sum_local_ptr[0] = (sum_local_ptr[0] + (value_local_ptr[0] * weight_local_ptr[1]));
      sum_local_ptr[1] = (sum_local_ptr[1] + (value_local_ptr[0] * weight_local_ptr[0]));
      sum_local_ptr[0] = (sum_local_ptr[0] + (value_local_ptr[1] * weight_local_ptr[2]));
      sum_local_ptr[1] = (sum_local_ptr[1] + (value_local_ptr[1] * weight_local_ptr[1]));
      sum_local_ptr[1] = (sum_local_ptr[1] + (value_local_ptr[3] * weight_local_ptr[2]));
      pitch_local_ptr_1[0] = (ow / 2);
      int pitch_1 = pitch_local_ptr_1[0];
      at_local_ptr_1[0] = (((((int)blockIdx.x) * 2) + ((((((int)blockIdx.y) * 2) + (((((int)blockIdx.z) * 8) + ((int)threadIdx.y)) * oh)) + ((int)threadIdx.z)) * pitch_1)) + ((int)threadIdx.x));
      *(float2*)(y_ptr + (at_local_ptr_1[0] * 2)) = *(float2*)(sum_local_ptr + 0);
    } else {
      #pragma unroll
      for (int index_1 = 0; index_1 < 2; ++index_1) {
        sum_local_ptr_1[index_1] = 0x0p+0f/*0.000000e+00*/;
      }
      weight_local_ptr_1[0] = w_ptr[(((int)threadIdx.y) * 3)];
      weight_local_ptr_1[1] = w_ptr[((((int)threadIdx.y) * 3) + 1)];
      weight_local_ptr_1[2] = w_ptr[((((int)threadIdx.y) * 3) + 2)];
      pitch_local_ptr_2[0] = w;
      int pitch_2 = pitch_local_ptr_2[0];
      at_local_ptr_2[0] = (((((int)blockIdx.x) * 4) + (((int)threadIdx.x) * 2)) + ((((((int)blockIdx.y) * 2) + (((((int)blockIdx.z) * 8) + ((int)threadIdx.y)) * h)) + ((int)threadIdx.z)) * pitch_2));
      value_local_ptr_1[0] = 0x0p+0f/*0.000000e+00*/;
      if (1 < ((((int)blockIdx.x) * 4) + (((int)threadIdx.x) * 2))) {
        value_local_ptr_1[0] = x_ptr[(at_local_ptr_2[0] - 1)];
      }
      value_local_ptr_1[1] = x_ptr[at_local_ptr_2[0]];
      value_local_ptr_1[2] = 0x0p+0f/*0.000000e+00*/;
      if ((((((int)blockIdx.x) * 4) + (((int)threadIdx.x) * 2)) + 2) <= w) {
        value_local_ptr_1[2] = x_ptr[(at_local_ptr_2[0] + 1)];
      }
      value_local_ptr_1[3] = 0x0p+0f/*0.000000e+00*/;
      if ((((((int)blockIdx.x) * 4) + (((int)threadIdx.x) * 2)) + 3) <= w) {
        value_local_ptr_1[3] = x_ptr[(at_local_ptr_2[0] + 2)];
      }
      sum_local_ptr_1[0] = (sum_local_ptr_1[0] + (value_local_ptr_1[0] * weight_local_ptr_1[0]));
      sum_local_ptr_1[0] = (sum_local_ptr_1[0] + (value_local_ptr_1[1] * weight_local_ptr_1[1]));
      sum_local_ptr_1[1] = (sum_local_ptr_1[1] + (value_local_ptr_1[1] * weight_local_ptr_1[0]));
      sum_local_ptr_1[0] = (sum_local_ptr_1[0] + (value_local_ptr_1[2] * weight_local_ptr_1[2]));
      sum_local_ptr_1[1] = (sum_local_ptr_1[1] + (value_local_ptr_1[2] * weight_local_ptr_1[1]));
      sum_local_ptr_1[1] = (sum_local_ptr_1[1] + (value_local_ptr_1[3] * weight_local_ptr_1[2]));
      pitch_local_ptr_3[0] = ow;
      int pitch_3 = pitch_local_ptr_3[0];
      at_local_ptr_3[0] = (((((int)blockIdx.x) * 4) + (((int)threadIdx.x) * 2)) + ((((((int)blockIdx.y) * 2) + (((((int)blockIdx.z) * 8) + ((int)threadIdx.y)) * oh)) + ((int)threadIdx.z)) * pitch_3));
      y_ptr[at_local_ptr_3[0]] = sum_local_ptr_1[0];
      if ((((((int)blockIdx.x) * 4) + (((int)threadIdx.x) * 2)) + 2) <= ow) {
        y_ptr[(at_local_ptr_3[0] + 1)] = sum_local_ptr_1[1];
      }
    }
  }
}
