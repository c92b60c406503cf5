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

extern "C" __global__ void __launch_bounds__(64) main_kernel(float* __restrict__ bias_ptr, float* __restrict__ w_ptr, float* __restrict__ x_ptr, float* __restrict__ y_ptr, int n) {
  alignas(64) float sum_local_ptr[8];
  alignas(64) float weight_local_ptr[9];
  alignas(64) float value_local_ptr[6];
  alignas(64) float value_local_ptr_1[6];
  alignas(64) float value_local_ptr_2[6];
  alignas(64) float value_local_ptr_3[6];
  float first = bias_ptr[((((((int)blockIdx.x) & 3) >> 1) * 4) + (((int)threadIdx.y) >> 2))];
  #pragma unroll
  for (int index = 0; index < 8; ++index) {
    sum_local_ptr[index] = first;
  }
  for (int kd = 0; kd < 3; ++kd) {
    int source_depth = ((kd + (((int)threadIdx.y) & 3)) - 1);
    if ((1 <= (kd + (((int)threadIdx.y) & 3))) && ((kd + (((int)threadIdx.y) & 3)) < 5)) {
      weight_local_ptr[0] = w_ptr[(((((((int)blockIdx.x) & 3) >> 1) * 108) + ((((int)threadIdx.y) >> 2) * 27)) + (kd * 9))];
      weight_local_ptr[1] = w_ptr[((((((((int)blockIdx.x) & 3) >> 1) * 108) + ((((int)threadIdx.y) >> 2) * 27)) + (kd * 9)) + 1)];
      weight_local_ptr[2] = w_ptr[((((((((int)blockIdx.x) & 3) >> 1) * 108) + ((((int)threadIdx.y) >> 2) * 27)) + (kd * 9)) + 2)];
      weight_local_ptr[3] = w_ptr[((((((((int)blockIdx.x) & 3) >> 1) * 108) + ((((int)threadIdx.y) >> 2) * 27)) + (kd * 9)) + 3)];
      weight_local_ptr[4] = w_ptr[((((((((int)blockIdx.x) & 3) >> 1) * 108) + ((((int)threadIdx.y) >> 2) * 27)) + (kd * 9)) + 4)];
      weight_local_ptr[5] = w_ptr[((((((((int)blockIdx.x) & 3) >> 1) * 108) + ((((int)threadIdx.y) >> 2) * 27)) + (kd * 9)) + 5)];
      weight_local_ptr[6] = w_ptr[((((((((int)blockIdx.x) & 3) >> 1) * 108) + ((((int)threadIdx.y) >> 2) * 27)) + (kd * 9)) + 6)];
      weight_local_ptr[7] = w_ptr[((((((((int)blockIdx.x) & 3) >> 1) * 108) + ((((int)threadIdx.y) >> 2) * 27)) + (kd * 9)) + 7)];
      weight_local_ptr[8] = w_ptr[((((((((int)blockIdx.x) & 3) >> 1) * 108) + ((((int)threadIdx.y) >> 2) * 27)) + (kd * 9)) + 8)];
      value_local_ptr[4] = 0x0p+0f/*0.000000e+00*/;
      if ((1 < (((((int)blockIdx.x) & 1) * 4) + (((int)threadIdx.z) * 2))) && (((int)threadIdx.x) == 1)) {
        value_local_ptr[4] = x_ptr[((((((((((int)blockIdx.x) >> 1) * 1024) + (((int)threadIdx.y) * 64)) + (kd * 64)) + ((((int)blockIdx.x) & 1) * 32)) + (((int)threadIdx.z) * 16)) + (((int)threadIdx.x) * 4)) - 73)];
      }
      value_local_ptr[0] = 0x0p+0f/*0.000000e+00*/;
      value_local_ptr[1] = 0x0p+0f/*0.000000e+00*/;
      value_local_ptr[2] = 0x0p+0f/*0.000000e+00*/;
      value_local_ptr[3] = 0x0p+0f/*0.000000e+00*/;
      if (1 < (((((int)blockIdx.x) & 1) * 4) + (((int)threadIdx.z) * 2))) {
        *(float4*)(value_local_ptr + 0) = *(float4*)(x_ptr + ((((((((((int)blockIdx.x) >> 1) * 1024) + (((int)threadIdx.y) * 64)) + (kd * 64)) + ((((int)blockIdx.x) & 1) * 32)) + (((int)threadIdx.z) * 16)) + (((int)threadIdx.x) * 4)) - 72));
      }
      value_local_ptr[5] = 0x0p+0f/*0.000000e+00*/;
      if ((1 < (((((int)blockIdx.x) & 1) * 4) + (((int)threadIdx.z) * 2))) && (((int)threadIdx.x) == 0)) {
        value_local_ptr[5] = x_ptr[((((((((((int)blockIdx.x) >> 1) * 1024) + (((int)threadIdx.y) * 64)) + (kd * 64)) + ((((int)blockIdx.x) & 1) * 32)) + (((int)threadIdx.z) * 16)) + (((int)threadIdx.x) * 4)) - 68)];
      }
      value_local_ptr_1[4] = 0x0p+0f/*0.000000e+00*/;
      if (((int)threadIdx.x) == 1) {
        value_local_ptr_1[4] = x_ptr[((((((((((int)blockIdx.x) >> 1) * 1024) + (((int)threadIdx.y) * 64)) + (kd * 64)) + ((((int)blockIdx.x) & 1) * 32)) + (((int)threadIdx.z) * 16)) + (((int)threadIdx.x) * 4)) - 65)];
      }
      *(float4*)(value_local_ptr_1 + 0) = *(float4*)(x_ptr + ((((((((((int)blockIdx.x) >> 1) * 1024) + (((int)threadIdx.y) * 64)) + (kd * 64)) + ((((int)blockIdx.x) & 1) * 32)) + (((int)threadIdx.z) * 16)) + (((int)threadIdx.x) * 4)) - 64));
      value_local_ptr_1[5] = 0x0p+0f/*0.000000e+00*/;
      if (((int)threadIdx.x) == 0) {
        value_local_ptr_1[5] = x_ptr[((((((((((int)blockIdx.x) >> 1) * 1024) + (((int)threadIdx.y) * 64)) + (kd * 64)) + ((((int)blockIdx.x) & 1) * 32)) + (((int)threadIdx.z) * 16)) + (((int)threadIdx.x) * 4)) - 60)];
      }
      sum_local_ptr[0] = (sum_local_ptr[0] + (value_local_ptr[4] * weight_local_ptr[0]));
      sum_local_ptr[0] = (sum_local_ptr[0] + (value_local_ptr[0] * weight_local_ptr[1]));
      sum_local_ptr[1] = (sum_local_ptr[1] + (value_local_ptr[0] * weight_local_ptr[0]));
      sum_local_ptr[0] = (sum_local_ptr[0] + (value_local_ptr[1] * weight_local_ptr[2]));
      sum_local_ptr[1] = (sum_local_ptr[1] + (value_local_ptr[1] * weight_local_ptr[1]));
      sum_local_ptr[2] = (sum_local_ptr[2] + (value_local_ptr[1] * weight_local_ptr[0]));
      sum_local_ptr[1] = (sum_local_ptr[1] + (value_local_ptr[2] * weight_local_ptr[2]));
      sum_local_ptr[2] = (sum_local_ptr[2] + (value_local_ptr[2] * weight_local_ptr[1]));
      sum_local_ptr[3] = (sum_local_ptr[3] + (value_local_ptr[2] * weight_local_ptr[0]));
      sum_local_ptr[2] = (sum_local_ptr[2] + (value_local_ptr[3] * weight_local_ptr[2]));
      sum_local_ptr[3] = (sum_local_ptr[3] + (value_local_ptr[3] * weight_local_ptr[1]));
      sum_local_ptr[3] = (sum_local_ptr[3] + (value_local_ptr[5] * weight_local_ptr[2]));
      value_local_ptr_2[4] = 0x0p+0f/*0.000000e+00*/;
      if (((int)threadIdx.x) == 1) {
        value_local_ptr_2[4] = x_ptr[((((((((((int)blockIdx.x) >> 1) * 1024) + (((int)threadIdx.y) * 64)) + (kd * 64)) + ((((int)blockIdx.x) & 1) * 32)) + (((int)threadIdx.z) * 16)) + (((int)threadIdx.x) * 4)) - 57)];
      }
      *(float4*)(value_local_ptr_2 + 0) = *(float4*)(x_ptr + ((((((((((int)blockIdx.x) >> 1) * 1024) + (((int)threadIdx.y) * 64)) + (kd * 64)) + ((((int)blockIdx.x) & 1) * 32)) + (((int)threadIdx.z) * 16)) + (((int)threadIdx.x) * 4)) - 56));
      value_local_ptr_2[5] = 0x0p+0f/*0.000000e+00*/;
      if (((int)threadIdx.x) == 0) {
        value_local_ptr_2[5] = x_ptr[((((((((((int)blockIdx.x) >> 1) * 1024) + (((int)threadIdx.y) * 64)) + (kd * 64)) + ((((int)blockIdx.x) & 1) * 32)) + (((int)threadIdx.z) * 16)) + (((int)threadIdx.x) * 4)) - 52)];
      }
      sum_local_ptr[0] = (sum_local_ptr[0] + (value_local_ptr_1[4] * weight_local_ptr[3]));
      sum_local_ptr[4] = (sum_local_ptr[4] + (value_local_ptr_1[4] * weight_local_ptr[0]));
      sum_local_ptr[0] = (sum_local_ptr[0] + (value_local_ptr_1[0] * weight_local_ptr[4]));
      sum_local_ptr[1] = (sum_local_ptr[1] + (value_local_ptr_1[0] * weight_local_ptr[3]));
      sum_local_ptr[4] = (sum_local_ptr[4] + (value_local_ptr_1[0] * weight_local_ptr[1]));
      sum_local_ptr[5] = (sum_local_ptr[5] + (value_local_ptr_1[0] * weight_local_ptr[0]));
      sum_local_ptr[0] = (sum_local_ptr[0] + (value_local_ptr_1[1] * weight_local_ptr[5]));
      sum_local_ptr[1] = (sum_local_ptr[1] + (value_local_ptr_1[1] * weight_local_ptr[4]));
      sum_local_ptr[2] = (sum_local_ptr[2] + (value_local_ptr_1[1] * weight_local_ptr[3]));
      sum_local_ptr[4] = (sum_local_ptr[4] + (value_local_ptr_1[1] * weight_local_ptr[2]));
      sum_local_ptr[5] = (sum_local_ptr[5] + (value_local_ptr_1[1] * weight_local_ptr[1]));
      sum_local_ptr[6] = (sum_local_ptr[6] + (value_local_ptr_1[1] * weight_local_ptr[0]));
      sum_local_ptr[1] = (sum_local_ptr[1] + (value_local_ptr_1[2] * weight_local_ptr[5]));
      sum_local_ptr[2] = (sum_local_ptr[2] + (value_local_ptr_1[2] * weight_local_ptr[4]));
      sum_local_ptr[3] = (sum_local_ptr[3] + (value_local_ptr_1[2] * weight_local_ptr[3]));
      sum_local_ptr[5] = (sum_local_ptr[5] + (value_local_ptr_1[2] * weight_local_ptr[2]));
      sum_local_ptr[6] = (sum_local_ptr[6] + (value_local_ptr_1[2] * weight_local_ptr[1]));
      sum_local_ptr[7] = (sum_local_ptr[7] + (value_local_ptr_1[2] * weight_local_ptr[0]));
      sum_local_ptr[2] = (sum_local_ptr[2] + (value_local_ptr_1[3] * weight_local_ptr[5]));
      sum_local_ptr[3] = (sum_local_ptr[3] + (value_local_ptr_1[3] * weight_local_ptr[4]));
      sum_local_ptr[6] = (sum_local_ptr[6] + (value_local_ptr_1[3] * weight_local_ptr[2]));
      sum_local_ptr[7] = (sum_local_ptr[7] + (value_local_ptr_1[3] * weight_local_ptr[1]));
      sum_local_ptr[3] = (sum_local_ptr[3] + (value_local_ptr_1[5] * weight_local_ptr[5]));
      sum_local_ptr[7] = (sum_local_ptr[7] + (value_local_ptr_1[5] * weight_local_ptr[2]));
      value_local_ptr_3[4] = 0x0p+0f/*0.000000e+00*/;
      if (((((((int)blockIdx.x) & 1) * 4) + (((int)threadIdx.z) * 2)) < 5) && (((int)threadIdx.x) == 1)) {
        value_local_ptr_3[4] = x_ptr[((((((((((int)blockIdx.x) >> 1) * 1024) + (((int)threadIdx.y) * 64)) + (kd * 64)) + ((((int)blockIdx.x) & 1) * 32)) + (((int)threadIdx.z) * 16)) + (((int)threadIdx.x) * 4)) - 49)];
      }
      value_local_ptr_3[0] = 0x0p+0f/*0.000000e+00*/;
      value_local_ptr_3[1] = 0x0p+0f/*0.000000e+00*/;
      value_local_ptr_3[2] = 0x0p+0f/*0.000000e+00*/;
      value_local_ptr_3[3] = 0x0p+0f/*0.000000e+00*/;
      if ((((((int)blockIdx.x) & 1) * 4) + (((int)threadIdx.z) * 2)) < 5) {
        *(float4*)(value_local_ptr_3 + 0) = *(float4*)(x_ptr + ((((((((((int)blockIdx.x) >> 1) * 1024) + (((int)threadIdx.y) * 64)) + (kd * 64)) + ((((int)blockIdx.x) & 1) * 32)) + (((int)threadIdx.z) * 16)) + (((int)threadIdx.x) * 4)) - 48));
      }
      value_local_ptr_3[5] = 0x0p+0f/*0.000000e+00*/;
      if (((((((int)blockIdx.x) & 1) * 4) + (((int)threadIdx.z) * 2)) < 5) && (((int)threadIdx.x) == 0)) {
        value_local_ptr_3[5] = x_ptr[((((((((((int)blockIdx.x) >> 1) * 1024) + (((int)threadIdx.y) * 64)) + (kd * 64)) + ((((int)blockIdx.x) & 1) * 32)) + (((int)threadIdx.z) * 16)) + (((int)threadIdx.x) * 4)) - 44)];
      }
      sum_local_ptr[0] = (sum_local_ptr[0] + (value_local_ptr_2[4] * weight_local_ptr[6]));
      sum_local_ptr[4] = (sum_local_ptr[4] + (value_local_ptr_2[4] * weight_local_ptr[3]));
      sum_local_ptr[0] = (sum_local_ptr[0] + (value_local_ptr_2[0] * weight_local_ptr[7]));
      sum_local_ptr[1] = (sum_local_ptr[1] + (value_local_ptr_2[0] * weight_local_ptr[6]));
      sum_local_ptr[4] = (sum_local_ptr[4] + (value_local_ptr_2[0] * weight_local_ptr[4]));
      sum_local_ptr[5] = (sum_local_ptr[5] + (value_local_ptr_2[0] * weight_local_ptr[3]));
      sum_local_ptr[0] = (sum_local_ptr[0] + (value_local_ptr_2[1] * weight_local_ptr[8]));
      sum_local_ptr[1] = (sum_local_ptr[1] + (value_local_ptr_2[1] * weight_local_ptr[7]));
      sum_local_ptr[2] = (sum_local_ptr[2] + (value_local_ptr_2[1] * weight_local_ptr[6]));
      sum_local_ptr[4] = (sum_local_ptr[4] + (value_local_ptr_2[1] * weight_local_ptr[5]));
      sum_local_ptr[5] = (sum_local_ptr[5] + (value_local_ptr_2[1] * weight_local_ptr[4]));
      sum_local_ptr[6] = (sum_local_ptr[6] + (value_local_ptr_2[1] * weight_local_ptr[3]));
      sum_local_ptr[1] = (sum_local_ptr[1] + (value_local_ptr_2[2] * weight_local_ptr[8]));
      sum_local_ptr[2] = (sum_local_ptr[2] + (value_local_ptr_2[2] * weight_local_ptr[7]));
      sum_local_ptr[3] = (sum_local_ptr[3] + (value_local_ptr_2[2] * weight_local_ptr[6]));
      sum_local_ptr[5] = (sum_local_ptr[5] + (value_local_ptr_2[2] * weight_local_ptr[5]));
      sum_local_ptr[6] = (sum_local_ptr[6] + (value_local_ptr_2[2] * weight_local_ptr[4]));
      sum_local_ptr[7] = (sum_local_ptr[7] + (value_local_ptr_2[2] * weight_local_ptr[3]));
      sum_local_ptr[2] = (sum_local_ptr[2] + (value_local_ptr_2[3] * weight_local_ptr[8]));
      sum_local_ptr[3] = (sum_local_ptr[3] + (value_local_ptr_2[3] * weight_local_ptr[7]));
      sum_local_ptr[6] = (sum_local_ptr[6] + (value_local_ptr_2[3] * weight_local_ptr[5]));
      sum_local_ptr[7] = (sum_local_ptr[7] + (value_local_ptr_2[3] * weight_local_ptr[4]));
      sum_local_ptr[3] = (sum_local_ptr[3] + (value_local_ptr_2[5] * weight_local_ptr[8]));
      sum_local_ptr[7] = (sum_local_ptr[7] + (value_local_ptr_2[5] * weight_local_ptr[5]));
      sum_local_ptr[4] = (sum_local_ptr[4] + (value_local_ptr_3[4] * weight_local_ptr[6]));
      sum_local_ptr[4] = (sum_local_ptr[4] + (value_local_ptr_3[0] * weight_local_ptr[7]));
      sum_local_ptr[5] = (sum_local_ptr[5] + (value_local_ptr_3[0] * weight_local_ptr[6]));
      sum_local_ptr[4] = (sum_local_ptr[4] + (value_local_ptr_3[1] * weight_local_ptr[8]));
      sum_local_ptr[5] = (sum_local_ptr[5] + (value_local_ptr_3[1] * weight_local_ptr[7]));
      sum_local_ptr[6] = (sum_local_ptr[6] + (value_local_ptr_3[1] * weight_local_ptr[6]));
      sum_local_ptr[5] = (sum_local_ptr[5] + (value_local_ptr_3[2] * weight_local_ptr[8]));
      sum_local_ptr[6] = (sum_local_ptr[6] + (value_local_ptr_3[2] * weight_local_ptr[7]));
      sum_local_ptr[7] = (sum_local_ptr[7] + (value_local_ptr_3[2] * weight_local_ptr[6]));
      sum_local_ptr[6] = (sum_local_ptr[6] + (value_local_ptr_3[3] * weight_local_ptr[8]));
      sum_local_ptr[7] = (sum_local_ptr[7] + (value_local_ptr_3[3] * weight_local_ptr[7]));
      sum_local_ptr[7] = (sum_local_ptr[7] + (value_local_ptr_3[5] * weight_local_ptr[8]));
    }
  }
  *(float4*)(y_ptr + ((((((((int)blockIdx.x) >> 1) * 1024) + (((int)threadIdx.y) * 64)) + ((((int)blockIdx.x) & 1) * 32)) + (((int)threadIdx.z) * 16)) + (((int)threadIdx.x) * 4))) = *(float4*)(sum_local_ptr + 0);
  *(float4*)(y_ptr + (((((((((int)blockIdx.x) >> 1) * 1024) + (((int)threadIdx.y) * 64)) + ((((int)blockIdx.x) & 1) * 32)) + (((int)threadIdx.z) * 16)) + (((int)threadIdx.x) * 4)) + 8)) = *(float4*)(sum_local_ptr + 4);
}
