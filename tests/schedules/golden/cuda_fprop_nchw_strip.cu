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

#include <cuda_fp16.h>

extern "C" __global__ void __launch_bounds__(32) main_kernel(half* __restrict__ w_ptr, half* __restrict__ x_ptr, half* __restrict__ y_ptr, int n) {
  alignas(64) float sum_local_ptr[16];
  alignas(64) float weight_local_ptr[9];
  alignas(64) half value_local_ptr[10];
  alignas(64) half value_local_ptr_1[10];
  alignas(64) float wide_local_ptr[10];
  alignas(64) half value_local_ptr_2[10];
  alignas(64) float wide_local_ptr_1[10];
  alignas(64) half value_local_ptr_3[10];
  alignas(64) float wide_local_ptr_2[10];
  alignas(64) half result_local_ptr[16];
  alignas(64) float wide_local_ptr_3[10];
  alignas(64) half result_local_ptr_1[16];
  if (((((int)blockIdx.x) * 8) + ((int)threadIdx.y)) < (n * 4)) {
    #pragma unroll
    for (int index = 0; index < 16; ++index) {
      sum_local_ptr[index] = 0x0p+0f/*0.000000e+00*/;
    }
    weight_local_ptr[0] = ((float)w_ptr[((((int)threadIdx.y) & 3) * 9)]);
    weight_local_ptr[1] = ((float)w_ptr[(((((int)threadIdx.y) & 3) * 9) + 1)]);
    weight_local_ptr[2] = ((float)w_ptr[(((((int)threadIdx.y) & 3) * 9) + 2)]);
    weight_local_ptr[3] = ((float)w_ptr[(((((int)threadIdx.y) & 3) * 9) + 3)]);
    weight_local_ptr[4] = ((float)w_ptr[(((((int)threadIdx.y) & 3) * 9) + 4)]);
    weight_local_ptr[5] = ((float)w_ptr[(((((int)threadIdx.y) & 3) * 9) + 5)]);
    weight_local_ptr[6] = ((float)w_ptr[(((((int)threadIdx.y) & 3) * 9) + 6)]);
    weight_local_ptr[7] = ((float)w_ptr[(((((int)threadIdx.y) & 3) * 9) + 7)]);
    weight_local_ptr[8] = ((float)w_ptr[(((((int)threadIdx.y) & 3) * 9) + 8)]);
    value_local_ptr[8] = __float2half_rn(0x0p+0f/*0.000000e+00*/);
    if ((((int)threadIdx.z) == 1) && (((int)threadIdx.x) == 1)) {
      value_local_ptr[8] = x_ptr[(((((((int)blockIdx.x) * 512) + (((int)threadIdx.y) * 64)) + (((int)threadIdx.z) * 32)) + (((int)threadIdx.x) * 8)) - 17)];
    }
    value_local_ptr[0] = __float2half_rn(0x0p+0f/*0.000000e+00*/);
    value_local_ptr[1] = __float2half_rn(0x0p+0f/*0.000000e+00*/);
    value_local_ptr[2] = __float2half_rn(0x0p+0f/*0.000000e+00*/);
    value_local_ptr[3] = __float2half_rn(0x0p+0f/*0.000000e+00*/);
    value_local_ptr[4] = __float2half_rn(0x0p+0f/*0.000000e+00*/);
    value_local_ptr[5] = __float2half_rn(0x0p+0f/*0.000000e+00*/);
    value_local_ptr[6] = __float2half_rn(0x0p+0f/*0.000000e+00*/);
    value_local_ptr[7] = __float2half_rn(0x0p+0f/*0.000000e+00*/);
    if (((int)threadIdx.z) == 1) {
      *(uint4*)(value_local_ptr + 0) = *(uint4*)(x_ptr + (((((((int)blockIdx.x) * 512) + (((int)threadIdx.y) * 64)) + (((int)threadIdx.z) * 32)) + (((int)threadIdx.x) * 8)) - 16));
    }
    value_local_ptr[9] = __float2half_rn(0x0p+0f/*0.000000e+00*/);
    if ((((int)threadIdx.z) == 1) && (((int)threadIdx.x) == 0)) {
      value_local_ptr[9] = x_ptr[(((((((int)blockIdx.x) * 512) + (((int)threadIdx.y) * 64)) + (((int)threadIdx.z) * 32)) + (((int)threadIdx.x) * 8)) - 8)];
    }
    value_local_ptr_1[8] = __float2half_rn(0x0p+0f/*0.000000e+00*/);
    if (((int)threadIdx.x) == 1) {
      value_local_ptr_1[8] = x_ptr[(((((((int)blockIdx.x) * 512) + (((int)threadIdx.y) * 64)) + (((int)threadIdx.z) * 32)) + (((int)threadIdx.x) * 8)) - 1)];
    }
    *(uint4*)(value_local_ptr_1 + 0) = *(uint4*)(x_ptr + ((((((int)blockIdx.x) * 512) + (((int)threadIdx.y) * 64)) + (((int)threadIdx.z) * 32)) + (((int)threadIdx.x) * 8)));
    value_local_ptr_1[9] = __float2half_rn(0x0p+0f/*0.000000e+00*/);
    if (((int)threadIdx.x) == 0) {
      value_local_ptr_1[9] = x_ptr[(((((((int)blockIdx.x) * 512) + (((int)threadIdx.y) * 64)) + (((int)threadIdx.z) * 32)) + (((int)threadIdx.x) * 8)) + 8)];
    }
    wide_local_ptr[8] = ((float)value_local_ptr[8]);
    wide_local_ptr[0] = ((float)value_local_ptr[0]);
    wide_local_ptr[1] = ((float)value_local_ptr[1]);
    wide_local_ptr[2] = ((float)value_local_ptr[2]);
    wide_local_ptr[3] = ((float)value_local_ptr[3]);
    wide_local_ptr[4] = ((float)value_local_ptr[4]);
    wide_local_ptr[5] = ((float)value_local_ptr[5]);
    wide_local_ptr[6] = ((float)value_local_ptr[6]);
    wide_local_ptr[7] = ((float)value_local_ptr[7]);
    wide_local_ptr[9] = ((float)value_local_ptr[9]);
    sum_local_ptr[0] = (sum_local_ptr[0] + (wide_local_ptr[8] * weight_local_ptr[0]));
    sum_local_ptr[0] = (sum_local_ptr[0] + (wide_local_ptr[0] * weight_local_ptr[1]));
    sum_local_ptr[1] = (sum_local_ptr[1] + (wide_local_ptr[0] * weight_local_ptr[0]));
    sum_local_ptr[0] = (sum_local_ptr[0] + (wide_local_ptr[1] * weight_local_ptr[2]));
    sum_local_ptr[1] = (sum_local_ptr[1] + (wide_local_ptr[1] * weight_local_ptr[1]));
    sum_local_ptr[2] = (sum_local_ptr[2] + (wide_local_ptr[1] * weight_local_ptr[0]));
    sum_local_ptr[1] = (sum_local_ptr[1] + (wide_local_ptr[2] * weight_local_ptr[2]));
    sum_local_ptr[2] = (sum_local_ptr[2] + (wide_local_ptr[2] * weight_local_ptr[1]));
    sum_local_ptr[3] = (sum_local_ptr[3] + (wide_local_ptr[2] * weight_local_ptr[0]));
    sum_local_ptr[2] = (sum_local_ptr[2] + (wide_local_ptr[3] * weight_local_ptr[2]));
    sum_local_ptr[3] = (sum_local_ptr[3] + (wide_local_ptr[3] * weight_local_ptr[1]));
    sum_local_ptr[4] = (sum_local_ptr[4] + (wide_local_ptr[3] * weight_local_ptr[0]));
    sum_local_ptr[3] = (sum_local_ptr[3] + (wide_local_ptr[4] * weight_local_ptr[2]));
    sum_local_ptr[4] = (sum_local_ptr[4] + (wide_local_ptr[4] * weight_local_ptr[1]));
    sum_local_ptr[5] = (sum_local_ptr[5] + (wide_local_ptr[4] * weight_local_ptr[0]));
    sum_local_ptr[4] = (sum_local_ptr[4] + (wide_local_ptr[5] * weight_local_ptr[2]));
    sum_local_ptr[5] = (sum_local_ptr[5] + (wide_local_ptr[5] * weight_local_ptr[1]));
    sum_local_ptr[6] = (sum_local_ptr[6] + (wide_local_ptr[5] * weight_local_ptr[0]));
    sum_local_ptr[5] = (sum_local_ptr[5] + (wide_local_ptr[6] * weight_local_ptr[2]));
    sum_local_ptr[6] = (sum_local_ptr[6] + (wide_local_ptr[6] * weight_local_ptr[1]));
    sum_local_ptr[7] = (sum_local_ptr[7] + (wide_local_ptr[6] * weight_local_ptr[0]));
    sum_local_ptr[6] = (sum_local_ptr[6] + (wide_local_ptr[7] * weight_local_ptr[2]));
    sum_local_ptr[7] = (sum_local_ptr[7] + (wide_local_ptr[7] * weight_local_ptr[1]));
    sum_local_ptr[7] = (sum_local_ptr[7] + (wide_local_ptr[9] * weight_local_ptr[2]));
    value_local_ptr_2[8] = __float2half_rn(0x0p+0f/*0.000000e+00*/);
    if (((int)threadIdx.x) == 1) {
      value_local_ptr_2[8] = x_ptr[(((((((int)blockIdx.x) * 512) + (((int)threadIdx.y) * 64)) + (((int)threadIdx.z) * 32)) + (((int)threadIdx.x) * 8)) + 15)];
    }
    *(uint4*)(value_local_ptr_2 + 0) = *(uint4*)(x_ptr + (((((((int)blockIdx.x) * 512) + (((int)threadIdx.y) * 64)) + (((int)threadIdx.z) * 32)) + (((int)threadIdx.x) * 8)) + 16));
    value_local_ptr_2[9] = __float2half_rn(0x0p+0f/*0.000000e+00*/);
    if (((int)threadIdx.x) == 0) {
      value_local_ptr_2[9] = x_ptr[(((((((int)blockIdx.x) * 512) + (((int)threadIdx.y) * 64)) + (((int)threadIdx.z) * 32)) + (((int)threadIdx.x) * 8)) + 24)];
    }
    wide_local_ptr_1[8] = ((float)value_local_ptr_1[8]);
    wide_local_ptr_1[0] = ((float)value_local_ptr_1[0]);
    wide_local_ptr_1[1] = ((float)value_local_ptr_1[1]);
    wide_local_ptr_1[2] = ((float)value_local_ptr_1[2]);
    wide_local_ptr_1[3] = ((float)value_local_ptr_1[3]);
    wide_local_ptr_1[4] = ((float)value_local_ptr_1[4]);
    wide_local_ptr_1[5] = ((float)value_local_ptr_1[5]);
    wide_local_ptr_1[6] = ((float)value_local_ptr_1[6]);
    wide_local_ptr_1[7] = ((float)value_local_ptr_1[7]);
    wide_local_ptr_1[9] = ((float)value_local_ptr_1[9]);
    sum_local_ptr[0] = (sum_local_ptr[0] + (wide_local_ptr_1[8] * weight_local_ptr[3]));
    sum_local_ptr[8] = (sum_local_ptr[8] + (wide_local_ptr_1[8] * weight_local_ptr[0]));
    sum_local_ptr[0] = (sum_local_ptr[0] + (wide_local_ptr_1[0] * weight_local_ptr[4]));
    sum_local_ptr[1] = (sum_local_ptr[1] + (wide_local_ptr_1[0] * weight_local_ptr[3]));
    sum_local_ptr[8] = (sum_local_ptr[8] + (wide_local_ptr_1[0] * weight_local_ptr[1]));
    sum_local_ptr[9] = (sum_local_ptr[9] + (wide_local_ptr_1[0] * weight_local_ptr[0]));
    sum_local_ptr[0] = (sum_local_ptr[0] + (wide_local_ptr_1[1] * weight_local_ptr[5]));
    sum_local_ptr[1] = (sum_local_ptr[1] + (wide_local_ptr_1[1] * weight_local_ptr[4]));
    sum_local_ptr[2] = (sum_local_ptr[2] + (wide_local_ptr_1[1] * weight_local_ptr[3]));
    sum_local_ptr[8] = (sum_local_ptr[8] + (wide_local_ptr_1[1] * weight_local_ptr[2]));
    sum_local_ptr[9] = (sum_local_ptr[9] + (wide_local_ptr_1[1] * weight_local_ptr[1]));
    sum_local_ptr[10] = (sum_local_ptr[10] + (wide_local_ptr_1[1] * weight_local_ptr[0]));
    sum_local_ptr[1] = (sum_local_ptr[1] + (wide_local_ptr_1[2] * weight_local_ptr[5]));
    sum_local_ptr[2] = (sum_local_ptr[2] + (wide_local_ptr_1[2] * weight_local_ptr[4]));
    sum_local_ptr[3] = (sum_local_ptr[3] + (wide_local_ptr_1[2] * weight_local_ptr[3]));
    sum_local_ptr[9] = (sum_local_ptr[9] + (wide_local_ptr_1[2] * weight_local_ptr[2]));
    sum_local_ptr[10] = (sum_local_ptr[10] + (wide_local_ptr_1[2] * weight_local_ptr[1]));
    sum_local_ptr[11] = (sum_local_ptr[11] + (wide_local_ptr_1[2] * weight_local_ptr[0]));
    sum_local_ptr[2] = (sum_local_ptr[2] + (wide_local_ptr_1[3] * weight_local_ptr[5]));
    sum_local_ptr[3] = (sum_local_ptr[3] + (wide_local_ptr_1[3] * weight_local_ptr[4]));
    sum_local_ptr[4] = (sum_local_ptr[4] + (wide_local_ptr_1[3] * weight_local_ptr[3]));
    sum_local_ptr[10] = (sum_local_ptr[10] + (wide_local_ptr_1[3] * weight_local_ptr[2]));
    sum_local_ptr[11] = (sum_local_ptr[11] + (wide_local_ptr_1[3] * weight_local_ptr[1]));
    sum_local_ptr[12] = (sum_local_ptr[12] + (wide_local_ptr_1[3] * weight_local_ptr[0]));
    sum_local_ptr[3] = (sum_local_ptr[3] + (wide_local_ptr_1[4] * weight_local_ptr[5]));
    sum_local_ptr[4] = (sum_local_ptr[4] + (wide_local_ptr_1[4] * weight_local_ptr[4]));
    sum_local_ptr[5] = (sum_local_ptr[5] + (wide_local_ptr_1[4] * weight_local_ptr[3]));
    sum_local_ptr[11] = (sum_local_ptr[11] + (wide_local_ptr_1[4] * weight_local_ptr[2]));
    sum_local_ptr[12] = (sum_local_ptr[12] + (wide_local_ptr_1[4] * weight_local_ptr[1]));
    sum_local_ptr[13] = (sum_local_ptr[13] + (wide_local_ptr_1[4] * weight_local_ptr[0]));
    sum_local_ptr[4] = (sum_local_ptr[4] + (wide_local_ptr_1[5] * weight_local_ptr[5]));
    sum_local_ptr[5] = (sum_local_ptr[5] + (wide_local_ptr_1[5] * weight_local_ptr[4]));
    sum_local_ptr[6] = (sum_local_ptr[6] + (wide_local_ptr_1[5] * weight_local_ptr[3]));
    sum_local_ptr[12] = (sum_local_ptr[12] + (wide_local_ptr_1[5] * weight_local_ptr[2]));
    sum_local_ptr[13] = (sum_local_ptr[13] + (wide_local_ptr_1[5] * weight_local_ptr[1]));
    sum_local_ptr[14] = (sum_local_ptr[14] + (wide_local_ptr_1[5] * weight_local_ptr[0]));
    sum_local_ptr[5] = (sum_local_ptr[5] + (wide_local_ptr_1[6] * weight_local_ptr[5]));
    sum_local_ptr[6] = (sum_local_ptr[6] + (wide_local_ptr_1[6] * weight_local_ptr[4]));
    sum_local_ptr[7] = (sum_local_ptr[7] + (wide_local_ptr_1[6] * weight_local_ptr[3]));
    sum_local_ptr[13] = (sum_local_ptr[13] + (wide_local_ptr_1[6] * weight_local_ptr[2]));
    sum_local_ptr[14] = (sum_local_ptr[14] + (wide_local_ptr_1[6] * weight_local_ptr[1]));
    sum_local_ptr[15] = (sum_local_ptr[15] + (wide_local_ptr_1[6] * weight_local_ptr[0]));
    sum_local_ptr[6] = (sum_local_ptr[6] + (wide_local_ptr_1[7] * weight_local_ptr[5]));
    sum_local_ptr[7] = (sum_local_ptr[7] + (wide_local_ptr_1[7] * weight_local_ptr[4]));
    sum_local_ptr[14] = (sum_local_ptr[14] + (wide_local_ptr_1[7] * weight_local_ptr[2]));
    sum_local_ptr[15] = (sum_local_ptr[15] + (wide_local_ptr_1[7] * weight_local_ptr[1]));
    sum_local_ptr[7] = (sum_local_ptr[7] + (wide_local_ptr_1[9] * weight_local_ptr[5]));
    sum_local_ptr[15] = (sum_local_ptr[15] + (wide_local_ptr_1[9] * weight_local_ptr[2]));
    value_local_ptr_3[8] = __float2half_rn(0x0p+0f/*0.000000e+00*/);
    if ((((int)threadIdx.z) == 0) && (((int)threadIdx.x) == 1)) {
      value_local_ptr_3[8] = x_ptr[(((((((int)blockIdx.x) * 512) + (((int)threadIdx.y) * 64)) + (((int)threadIdx.z) * 32)) + (((int)threadIdx.x) * 8)) + 31)];
    }
    value_local_ptr_3[0] = __float2half_rn(0x0p+0f/*0.000000e+00*/);
    value_local_ptr_3[1] = __float2half_rn(0x0p+0f/*0.000000e+00*/);
    value_local_ptr_3[2] = __float2half_rn(0x0p+0f/*0.000000e+00*/);
    value_local_ptr_3[3] = __float2half_rn(0x0p+0f/*0.000000e+00*/);
    value_local_ptr_3[4] = __float2half_rn(0x0p+0f/*0.000000e+00*/);
    value_local_ptr_3[5] = __float2half_rn(0x0p+0f/*0.000000e+00*/);
    value_local_ptr_3[6] = __float2half_rn(0x0p+0f/*0.000000e+00*/);
    value_local_ptr_3[7] = __float2half_rn(0x0p+0f/*0.000000e+00*/);
    if (((int)threadIdx.z) == 0) {
      *(uint4*)(value_local_ptr_3 + 0) = *(uint4*)(x_ptr + (((((((int)blockIdx.x) * 512) + (((int)threadIdx.y) * 64)) + (((int)threadIdx.z) * 32)) + (((int)threadIdx.x) * 8)) + 32));
    }
    value_local_ptr_3[9] = __float2half_rn(0x0p+0f/*0.000000e+00*/);
    if ((((int)threadIdx.z) == 0) && (((int)threadIdx.x) == 0)) {
      value_local_ptr_3[9] = x_ptr[(((((((int)blockIdx.x) * 512) + (((int)threadIdx.y) * 64)) + (((int)threadIdx.z) * 32)) + (((int)threadIdx.x) * 8)) + 40)];
    }
    wide_local_ptr_2[8] = ((float)value_local_ptr_2[8]);
    wide_local_ptr_2[0] = ((float)value_local_ptr_2[0]);
    wide_local_ptr_2[1] = ((float)value_local_ptr_2[1]);
    wide_local_ptr_2[2] = ((float)value_local_ptr_2[2]);
    wide_local_ptr_2[3] = ((float)value_local_ptr_2[3]);
    wide_local_ptr_2[4] = ((float)value_local_ptr_2[4]);
    wide_local_ptr_2[5] = ((float)value_local_ptr_2[5]);
    wide_local_ptr_2[6] = ((float)value_local_ptr_2[6]);
    wide_local_ptr_2[7] = ((float)value_local_ptr_2[7]);
    wide_local_ptr_2[9] = ((float)value_local_ptr_2[9]);
    sum_local_ptr[0] = (sum_local_ptr[0] + (wide_local_ptr_2[8] * weight_local_ptr[6]));
    sum_local_ptr[8] = (sum_local_ptr[8] + (wide_local_ptr_2[8] * weight_local_ptr[3]));
    sum_local_ptr[0] = (sum_local_ptr[0] + (wide_local_ptr_2[0] * weight_local_ptr[7]));
    sum_local_ptr[1] = (sum_local_ptr[1] + (wide_local_ptr_2[0] * weight_local_ptr[6]));
    sum_local_ptr[8] = (sum_local_ptr[8] + (wide_local_ptr_2[0] * weight_local_ptr[4]));
    sum_local_ptr[9] = (sum_local_ptr[9] + (wide_local_ptr_2[0] * weight_local_ptr[3]));
    sum_local_ptr[0] = (sum_local_ptr[0] + (wide_local_ptr_2[1] * weight_local_ptr[8]));
    sum_local_ptr[1] = (sum_local_ptr[1] + (wide_local_ptr_2[1] * weight_local_ptr[7]));
    sum_local_ptr[2] = (sum_local_ptr[2] + (wide_local_ptr_2[1] * weight_local_ptr[6]));
    sum_local_ptr[8] = (sum_local_ptr[8] + (wide_local_ptr_2[1] * weight_local_ptr[5]));
    sum_local_ptr[9] = (sum_local_ptr[9] + (wide_local_ptr_2[1] * weight_local_ptr[4]));
    sum_local_ptr[10] = (sum_local_ptr[10] + (wide_local_ptr_2[1] * weight_local_ptr[3]));
    sum_local_ptr[1] = (sum_local_ptr[1] + (wide_local_ptr_2[2] * weight_local_ptr[8]));
    sum_local_ptr[2] = (sum_local_ptr[2] + (wide_local_ptr_2[2] * weight_local_ptr[7]));
    sum_local_ptr[3] = (sum_local_ptr[3] + (wide_local_ptr_2[2] * weight_local_ptr[6]));
    sum_local_ptr[9] = (sum_local_ptr[9] + (wide_local_ptr_2[2] * weight_local_ptr[5]));
    sum_local_ptr[10] = (sum_local_ptr[10] + (wide_local_ptr_2[2] * weight_local_ptr[4]));
    sum_local_ptr[11] = (sum_local_ptr[11] + (wide_local_ptr_2[2] * weight_local_ptr[3]));
    sum_local_ptr[2] = (sum_local_ptr[2] + (wide_local_ptr_2[3] * weight_local_ptr[8]));
    sum_local_ptr[3] = (sum_local_ptr[3] + (wide_local_ptr_2[3] * weight_local_ptr[7]));
    sum_local_ptr[4] = (sum_local_ptr[4] + (wide_local_ptr_2[3] * weight_local_ptr[6]));
    sum_local_ptr[10] = (sum_local_ptr[10] + (wide_local_ptr_2[3] * weight_local_ptr[5]));
    sum_local_ptr[11] = (sum_local_ptr[11] + (wide_local_ptr_2[3] * weight_local_ptr[4]));
    sum_local_ptr[12] = (sum_local_ptr[12] + (wide_local_ptr_2[3] * weight_local_ptr[3]));
    sum_local_ptr[3] = (sum_local_ptr[3] + (wide_local_ptr_2[4] * weight_local_ptr[8]));
    sum_local_ptr[4] = (sum_local_ptr[4] + (wide_local_ptr_2[4] * weight_local_ptr[7]));
    sum_local_ptr[5] = (sum_local_ptr[5] + (wide_local_ptr_2[4] * weight_local_ptr[6]));
    sum_local_ptr[11] = (sum_local_ptr[11] + (wide_local_ptr_2[4] * weight_local_ptr[5]));
    sum_local_ptr[12] = (sum_local_ptr[12] + (wide_local_ptr_2[4] * weight_local_ptr[4]));
    sum_local_ptr[13] = (sum_local_ptr[13] + (wide_local_ptr_2[4] * weight_local_ptr[3]));
    sum_local_ptr[4] = (sum_local_ptr[4] + (wide_local_ptr_2[5] * weight_local_ptr[8]));
    sum_local_ptr[5] = (sum_local_ptr[5] + (wide_local_ptr_2[5] * weight_local_ptr[7]));
    sum_local_ptr[6] = (sum_local_ptr[6] + (wide_local_ptr_2[5] * weight_local_ptr[6]));
    sum_local_ptr[12] = (sum_local_ptr[12] + (wide_local_ptr_2[5] * weight_local_ptr[5]));
    sum_local_ptr[13] = (sum_local_ptr[13] + (wide_local_ptr_2[5] * weight_local_ptr[4]));
    sum_local_ptr[14] = (sum_local_ptr[14] + (wide_local_ptr_2[5] * weight_local_ptr[3]));
    sum_local_ptr[5] = (sum_local_ptr[5] + (wide_local_ptr_2[6] * weight_local_ptr[8]));
    sum_local_ptr[6] = (sum_local_ptr[6] + (wide_local_ptr_2[6] * weight_local_ptr[7]));
    sum_local_ptr[7] = (sum_local_ptr[7] + (wide_local_ptr_2[6] * weight_local_ptr[6]));
    sum_local_ptr[13] = (sum_local_ptr[13] + (wide_local_ptr_2[6] * weight_local_ptr[5]));
    sum_local_ptr[14] = (sum_local_ptr[14] + (wide_local_ptr_2[6] * weight_local_ptr[4]));
    sum_local_ptr[15] = (sum_local_ptr[15] + (wide_local_ptr_2[6] * weight_local_ptr[3]));
    sum_local_ptr[6] = (sum_local_ptr[6] + (wide_local_ptr_2[7] * weight_local_ptr[8]));
    sum_local_ptr[7] = (sum_local_ptr[7] + (wide_local_ptr_2[7] * weight_local_ptr[7]));
    sum_local_ptr[14] = (sum_local_ptr[14] + (wide_local_ptr_2[7] * weight_local_ptr[5]));
    sum_local_ptr[15] = (sum_local_ptr[15] + (wide_local_ptr_2[7] * weight_local_ptr[4]));
    sum_local_ptr[7] = (sum_local_ptr[7] + (wide_local_ptr_2[9] * weight_local_ptr[8]));
    sum_local_ptr[15] = (sum_local_ptr[15] + (wide_local_ptr_2[9] * weight_local_ptr[5]));
    result_local_ptr[0] = ((half)sum_local_ptr[0]);
    result_local_ptr[1] = ((half)sum_local_ptr[1]);
    result_local_ptr[2] = ((half)sum_local_ptr[2]);
    result_local_ptr[3] = ((half)sum_local_ptr[3]);
    result_local_ptr[4] = ((half)sum_local_ptr[4]);
    result_local_ptr[5] = ((half)sum_local_ptr[5]);
    result_local_ptr[6] = ((half)sum_local_ptr[6]);
    result_local_ptr[7] = ((half)sum_local_ptr[7]);
    *(uint4*)(y_ptr + ((((((int)blockIdx.x) * 512) + (((int)threadIdx.y) * 64)) + (((int)threadIdx.z) * 32)) + (((int)threadIdx.x) * 8))) = *(uint4*)(result_local_ptr + 0);
    wide_local_ptr_3[8] = ((float)value_local_ptr_3[8]);
    wide_local_ptr_3[0] = ((float)value_local_ptr_3[0]);
    wide_local_ptr_3[1] = ((float)value_local_ptr_3[1]);
    wide_local_ptr_3[2] = ((float)value_local_ptr_3[2]);
    wide_local_ptr_3[3] = ((float)value_local_ptr_3[3]);
    wide_local_ptr_3[4] = ((float)value_local_ptr_3[4]);
    wide_local_ptr_3[5] = ((float)value_local_ptr_3[5]);
    wide_local_ptr_3[6] = ((float)value_local_ptr_3[6]);
    wide_local_ptr_3[7] = ((float)value_local_ptr_3[7]);
    wide_local_ptr_3[9] = ((float)value_local_ptr_3[9]);
    sum_local_ptr[8] = (sum_local_ptr[8] + (wide_local_ptr_3[8] * weight_local_ptr[6]));
    sum_local_ptr[8] = (sum_local_ptr[8] + (wide_local_ptr_3[0] * weight_local_ptr[7]));
    sum_local_ptr[9] = (sum_local_ptr[9] + (wide_local_ptr_3[0] * weight_local_ptr[6]));
    sum_local_ptr[8] = (sum_local_ptr[8] + (wide_local_ptr_3[1] * weight_local_ptr[8]));
    sum_local_ptr[9] = (sum_local_ptr[9] + (wide_local_ptr_3[1] * weight_local_ptr[7]));
    sum_local_ptr[10] = (sum_local_ptr[10] + (wide_local_ptr_3[1] * weight_local_ptr[6]));
    sum_local_ptr[9] = (sum_local_ptr[9] + (wide_local_ptr_3[2] * weight_local_ptr[8]));
    sum_local_ptr[10] = (sum_local_ptr[10] + (wide_local_ptr_3[2] * weight_local_ptr[7]));
    sum_local_ptr[11] = (sum_local_ptr[11] + (wide_local_ptr_3[2] * weight_local_ptr[6]));
    sum_local_ptr[10] = (sum_local_ptr[10] + (wide_local_ptr_3[3] * weight_local_ptr[8]));
    sum_local_ptr[11] = (sum_local_ptr[11] + (wide_local_ptr_3[3] * weight_local_ptr[7]));
    sum_local_ptr[12] = (sum_local_ptr[12] + (wide_local_ptr_3[3] * weight_local_ptr[6]));
    sum_local_ptr[11] = (sum_local_ptr[11] + (wide_local_ptr_3[4] * weight_local_ptr[8]));
    sum_local_ptr[12] = (sum_local_ptr[12] + (wide_local_ptr_3[4] * weight_local_ptr[7]));
    sum_local_ptr[13] = (sum_local_ptr[13] + (wide_local_ptr_3[4] * weight_local_ptr[6]));
    sum_local_ptr[12] = (sum_local_ptr[12] + (wide_local_ptr_3[5] * weight_local_ptr[8]));
    sum_local_ptr[13] = (sum_local_ptr[13] + (wide_local_ptr_3[5] * weight_local_ptr[7]));
    sum_local_ptr[14] = (sum_local_ptr[14] + (wide_local_ptr_3[5] * weight_local_ptr[6]));
    sum_local_ptr[13] = (sum_local_ptr[13] + (wide_local_ptr_3[6] * weight_local_ptr[8]));
    sum_local_ptr[14] = (sum_local_ptr[14] + (wide_local_ptr_3[6] * weight_local_ptr[7]));
    sum_local_ptr[15] = (sum_local_ptr[15] + (wide_local_ptr_3[6] * weight_local_ptr[6]));
    sum_local_ptr[14] = (sum_local_ptr[14] + (wide_local_ptr_3[7] * weight_local_ptr[8]));
    sum_local_ptr[15] = (sum_local_ptr[15] + (wide_local_ptr_3[7] * weight_local_ptr[7]));
    sum_local_ptr[15] = (sum_local_ptr[15] + (wide_local_ptr_3[9] * weight_local_ptr[8]));
    result_local_ptr_1[8] = ((half)sum_local_ptr[8]);
    result_local_ptr_1[9] = ((half)sum_local_ptr[9]);
    result_local_ptr_1[10] = ((half)sum_local_ptr[10]);
    result_local_ptr_1[11] = ((half)sum_local_ptr[11]);
    result_local_ptr_1[12] = ((half)sum_local_ptr[12]);
    result_local_ptr_1[13] = ((half)sum_local_ptr[13]);
    result_local_ptr_1[14] = ((half)sum_local_ptr[14]);
    result_local_ptr_1[15] = ((half)sum_local_ptr[15]);
    *(uint4*)(y_ptr + (((((((int)blockIdx.x) * 512) + (((int)threadIdx.y) * 64)) + (((int)threadIdx.z) * 32)) + (((int)threadIdx.x) * 8)) + 16)) = *(uint4*)(result_local_ptr_1 + 8);
  }
}
