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
  alignas(64) float sum_local_ptr[8];
  alignas(64) float value_local_ptr[4];
  alignas(64) float value_local_ptr_1[4];
  alignas(64) float value_local_ptr_2[4];
  alignas(64) float wide_local_ptr[4];
  __shared__ alignas(64) float staged_shared_ptr[512];
  alignas(64) float wide_local_ptr_1[4];
  alignas(64) float wide_local_ptr_2[4];
  alignas(64) float value_local_ptr_3[1];
  alignas(64) float value_local_ptr_4[1];
  alignas(64) float value_local_ptr_5[1];
  alignas(64) float value_local_ptr_6[1];
  alignas(64) float value_local_ptr_7[1];
  alignas(64) float value_local_ptr_8[1];
  alignas(64) float value_local_ptr_9[1];
  alignas(64) float tap_local_ptr[8];
  alignas(64) float pixel_local_ptr[4];
  alignas(64) float pixel_local_ptr_1[4];
  #pragma unroll
  for (int index = 0; index < 8; ++index) {
    sum_local_ptr[index] = 0x0p+0f/*0.000000e+00*/;
  }
  #pragma unroll
  for (int index_1 = 0; index_1 < 4; ++index_1) {
    value_local_ptr[index_1] = 0x0p+0f/*0.000000e+00*/;
  }
  if ((((((int)threadIdx.z) * 4) + ((int)threadIdx.y)) % 17) < 16) {
    *(float4*)(value_local_ptr + 0) = *(float4*)(x_ptr + (((((int)blockIdx.x) * 256) + ((((((int)threadIdx.z) * 4) + ((int)threadIdx.y)) / 17) * 64)) + ((((((int)threadIdx.z) * 4) + ((int)threadIdx.y)) % 17) * 4)));
  }
  #pragma unroll
  for (int index_2 = 0; index_2 < 4; ++index_2) {
    value_local_ptr_1[index_2] = 0x0p+0f/*0.000000e+00*/;
  }
  if (((((((int)threadIdx.z) * 4) + ((int)threadIdx.y)) + 15) % 17) < 16) {
    *(float4*)(value_local_ptr_1 + 0) = *(float4*)(x_ptr + (((((int)blockIdx.x) * 256) + (((((((int)threadIdx.z) * 4) + ((int)threadIdx.y)) + 32) / 17) * 64)) + (((((((int)threadIdx.z) * 4) + ((int)threadIdx.y)) + 15) % 17) * 4)));
  }
  if (((int)threadIdx.z) < 1) {
    #pragma unroll
    for (int index_3 = 0; index_3 < 4; ++index_3) {
      value_local_ptr_2[index_3] = 0x0p+0f/*0.000000e+00*/;
    }
    if (((((int)threadIdx.z) * 4) + ((int)threadIdx.y)) < 3) {
      *(float4*)(value_local_ptr_2 + 0) = *(float4*)(x_ptr + (((((((int)blockIdx.x) * 256) + (((int)threadIdx.z) * 16)) + (((((int)threadIdx.y) + 13) >> 1) * 8)) + (((((int)threadIdx.y) + 1) & 1) * 4)) + 192));
    }
  }
  wide_local_ptr[0] = value_local_ptr[0];
  wide_local_ptr[1] = value_local_ptr[1];
  wide_local_ptr[2] = value_local_ptr[2];
  wide_local_ptr[3] = value_local_ptr[3];
  *(float4*)(staged_shared_ptr + ((((int)threadIdx.z) * 16) + (((int)threadIdx.y) * 4))) = *(float4*)(wide_local_ptr + 0);
  wide_local_ptr_1[0] = value_local_ptr_1[0];
  wide_local_ptr_1[1] = value_local_ptr_1[1];
  wide_local_ptr_1[2] = value_local_ptr_1[2];
  wide_local_ptr_1[3] = value_local_ptr_1[3];
  *(float4*)(staged_shared_ptr + (((((int)threadIdx.z) * 16) + (((int)threadIdx.y) * 4)) + 128)) = *(float4*)(wide_local_ptr_1 + 0);
  if (((int)threadIdx.z) < 1) {
    wide_local_ptr_2[0] = value_local_ptr_2[0];
    wide_local_ptr_2[1] = value_local_ptr_2[1];
    wide_local_ptr_2[2] = value_local_ptr_2[2];
    wide_local_ptr_2[3] = value_local_ptr_2[3];
    *(float4*)(staged_shared_ptr + (((((int)threadIdx.z) * 16) + (((int)threadIdx.y) * 4)) + 256)) = *(float4*)(wide_local_ptr_2 + 0);
  }
  value_local_ptr_3[0] = 0x0p+0f/*0.000000e+00*/;
  if ((((((int)threadIdx.z) & 1) * 4) + ((int)threadIdx.y)) < 7) {
    value_local_ptr_3[0] = w_ptr[((((((int)threadIdx.z) >> 1) * 7) + ((((int)threadIdx.z) & 1) * 4)) + ((int)threadIdx.y))];
  }
  value_local_ptr_4[0] = 0x0p+0f/*0.000000e+00*/;
  if ((((((int)threadIdx.z) & 1) * 4) + ((int)threadIdx.y)) < 7) {
    value_local_ptr_4[0] = w_ptr[(((((((int)threadIdx.z) >> 1) * 7) + ((((int)threadIdx.z) & 1) * 4)) + ((int)threadIdx.y)) + 28)];
  }
  value_local_ptr_5[0] = 0x0p+0f/*0.000000e+00*/;
  if ((((((int)threadIdx.z) & 1) * 4) + ((int)threadIdx.y)) < 7) {
    value_local_ptr_5[0] = w_ptr[(((((((int)threadIdx.z) >> 1) * 7) + ((((int)threadIdx.z) & 1) * 4)) + ((int)threadIdx.y)) + 56)];
  }
  value_local_ptr_6[0] = 0x0p+0f/*0.000000e+00*/;
  if ((((((int)threadIdx.z) & 1) * 4) + ((int)threadIdx.y)) < 7) {
    value_local_ptr_6[0] = w_ptr[(((((((int)threadIdx.z) >> 1) * 7) + ((((int)threadIdx.z) & 1) * 4)) + ((int)threadIdx.y)) + 84)];
  }
  value_local_ptr_7[0] = 0x0p+0f/*0.000000e+00*/;
  if ((((((int)threadIdx.z) & 1) * 4) + ((int)threadIdx.y)) < 7) {
    value_local_ptr_7[0] = w_ptr[(((((((int)threadIdx.z) >> 1) * 7) + ((((int)threadIdx.z) & 1) * 4)) + ((int)threadIdx.y)) + 112)];
  }
  value_local_ptr_8[0] = 0x0p+0f/*0.000000e+00*/;
  if ((((((int)threadIdx.z) & 1) * 4) + ((int)threadIdx.y)) < 7) {
    value_local_ptr_8[0] = w_ptr[(((((((int)threadIdx.z) >> 1) * 7) + ((((int)threadIdx.z) & 1) * 4)) + ((int)threadIdx.y)) + 140)];
  }
  value_local_ptr_9[0] = 0x0p+0f/*0.000000e+00*/;
  if ((((((int)threadIdx.z) & 1) * 4) + ((int)threadIdx.y)) < 7) {
    value_local_ptr_9[0] = w_ptr[(((((((int)threadIdx.z) >> 1) * 7) + ((((int)threadIdx.z) & 1) * 4)) + ((int)threadIdx.y)) + 168)];
  }
  staged_shared_ptr[(((((int)threadIdx.z) * 4) + ((int)threadIdx.y)) + 272)] = value_local_ptr_3[0];
  staged_shared_ptr[((((((((int)threadIdx.z) + 8) / 14) * 4) + (((int)threadIdx.z) * 4)) + ((int)threadIdx.y)) + 304)] = value_local_ptr_4[0];
  staged_shared_ptr[(((((int)threadIdx.z) * 4) + ((int)threadIdx.y)) + 340)] = value_local_ptr_5[0];
  staged_shared_ptr[((((((((int)threadIdx.z) + 24) / 14) * 4) + (((int)threadIdx.z) * 4)) + ((int)threadIdx.y)) + 368)] = value_local_ptr_6[0];
  staged_shared_ptr[(((((int)threadIdx.z) * 4) + ((int)threadIdx.y)) + 408)] = value_local_ptr_7[0];
  staged_shared_ptr[((((((((int)threadIdx.z) + 40) / 14) * 4) + (((int)threadIdx.z) * 4)) + ((int)threadIdx.y)) + 432)] = value_local_ptr_8[0];
  staged_shared_ptr[(((((int)threadIdx.z) * 4) + ((int)threadIdx.y)) + 476)] = value_local_ptr_9[0];
  __syncthreads();
  for (int q = 0; q < 7; ++q) {
    if ((3 <= (((int)threadIdx.z) + q)) && ((((int)threadIdx.z) + q) < 11)) {
      *(float4*)(tap_local_ptr + 0) = *(float4*)(staged_shared_ptr + (((((int)threadIdx.y) * 60) + (q * 8)) + 272));
      *(float4*)(tap_local_ptr + 4) = *(float4*)(staged_shared_ptr + (((((int)threadIdx.y) * 60) + (q * 8)) + 276));
      *(float4*)(pixel_local_ptr + 0) = *(float4*)(staged_shared_ptr + ((((((int)threadIdx.y) * 68) + (((int)threadIdx.z) * 8)) + (q * 8)) - 24));
      sum_local_ptr[0] = (sum_local_ptr[0] + (pixel_local_ptr[0] * tap_local_ptr[3]));
      sum_local_ptr[1] = (sum_local_ptr[1] + (pixel_local_ptr[0] * tap_local_ptr[2]));
      sum_local_ptr[2] = (sum_local_ptr[2] + (pixel_local_ptr[0] * tap_local_ptr[1]));
      sum_local_ptr[3] = (sum_local_ptr[3] + (pixel_local_ptr[0] * tap_local_ptr[0]));
      sum_local_ptr[0] = (sum_local_ptr[0] + (pixel_local_ptr[1] * tap_local_ptr[4]));
      sum_local_ptr[1] = (sum_local_ptr[1] + (pixel_local_ptr[1] * tap_local_ptr[3]));
      sum_local_ptr[2] = (sum_local_ptr[2] + (pixel_local_ptr[1] * tap_local_ptr[2]));
      sum_local_ptr[3] = (sum_local_ptr[3] + (pixel_local_ptr[1] * tap_local_ptr[1]));
      sum_local_ptr[4] = (sum_local_ptr[4] + (pixel_local_ptr[1] * tap_local_ptr[0]));
      sum_local_ptr[0] = (sum_local_ptr[0] + (pixel_local_ptr[2] * tap_local_ptr[5]));
      sum_local_ptr[1] = (sum_local_ptr[1] + (pixel_local_ptr[2] * tap_local_ptr[4]));
      sum_local_ptr[2] = (sum_local_ptr[2] + (pixel_local_ptr[2] * tap_local_ptr[3]));
      sum_local_ptr[3] = (sum_local_ptr[3] + (pixel_local_ptr[2] * tap_local_ptr[2]));
      sum_local_ptr[4] = (sum_local_ptr[4] + (pixel_local_ptr[2] * tap_local_ptr[1]));
      sum_local_ptr[5] = (sum_local_ptr[5] + (pixel_local_ptr[2] * tap_local_ptr[0]));
      sum_local_ptr[0] = (sum_local_ptr[0] + (pixel_local_ptr[3] * tap_local_ptr[6]));
      sum_local_ptr[1] = (sum_local_ptr[1] + (pixel_local_ptr[3] * tap_local_ptr[5]));
      sum_local_ptr[2] = (sum_local_ptr[2] + (pixel_local_ptr[3] * tap_local_ptr[4]));
      sum_local_ptr[3] = (sum_local_ptr[3] + (pixel_local_ptr[3] * tap_local_ptr[3]));
      sum_local_ptr[4] = (sum_local_ptr[4] + (pixel_local_ptr[3] * tap_local_ptr[2]));
      sum_local_ptr[5] = (sum_local_ptr[5] + (pixel_local_ptr[3] * tap_local_ptr[1]));
      sum_local_ptr[6] = (sum_local_ptr[6] + (pixel_local_ptr[3] * tap_local_ptr[0]));
      *(float4*)(pixel_local_ptr_1 + 0) = *(float4*)(staged_shared_ptr + ((((((int)threadIdx.y) * 68) + (((int)threadIdx.z) * 8)) + (q * 8)) - 20));
      sum_local_ptr[1] = (sum_local_ptr[1] + (pixel_local_ptr_1[0] * tap_local_ptr[6]));
      sum_local_ptr[2] = (sum_local_ptr[2] + (pixel_local_ptr_1[0] * tap_local_ptr[5]));
      sum_local_ptr[3] = (sum_local_ptr[3] + (pixel_local_ptr_1[0] * tap_local_ptr[4]));
      sum_local_ptr[4] = (sum_local_ptr[4] + (pixel_local_ptr_1[0] * tap_local_ptr[3]));
      sum_local_ptr[5] = (sum_local_ptr[5] + (pixel_local_ptr_1[0] * tap_local_ptr[2]));
      sum_local_ptr[6] = (sum_local_ptr[6] + (pixel_local_ptr_1[0] * tap_local_ptr[1]));
      sum_local_ptr[7] = (sum_local_ptr[7] + (pixel_local_ptr_1[0] * tap_local_ptr[0]));
      sum_local_ptr[2] = (sum_local_ptr[2] + (pixel_local_ptr_1[1] * tap_local_ptr[6]));
      sum_local_ptr[3] = (sum_local_ptr[3] + (pixel_local_ptr_1[1] * tap_local_ptr[5]));
      sum_local_ptr[4] = (sum_local_ptr[4] + (pixel_local_ptr_1[1] * tap_local_ptr[4]));
      sum_local_ptr[5] = (sum_local_ptr[5] + (pixel_local_ptr_1[1] * tap_local_ptr[3]));
      sum_local_ptr[6] = (sum_local_ptr[6] + (pixel_local_ptr_1[1] * tap_local_ptr[2]));
      sum_local_ptr[7] = (sum_local_ptr[7] + (pixel_local_ptr_1[1] * tap_local_ptr[1]));
      sum_local_ptr[3] = (sum_local_ptr[3] + (pixel_local_ptr_1[2] * tap_local_ptr[6]));
      sum_local_ptr[4] = (sum_local_ptr[4] + (pixel_local_ptr_1[2] * tap_local_ptr[5]));
      sum_local_ptr[5] = (sum_local_ptr[5] + (pixel_local_ptr_1[2] * tap_local_ptr[4]));
      sum_local_ptr[6] = (sum_local_ptr[6] + (pixel_local_ptr_1[2] * tap_local_ptr[3]));
      sum_local_ptr[7] = (sum_local_ptr[7] + (pixel_local_ptr_1[2] * tap_local_ptr[2]));
      sum_local_ptr[4] = (sum_local_ptr[4] + (pixel_local_ptr_1[3] * tap_local_ptr[6]));
      sum_local_ptr[5] = (sum_local_ptr[5] + (pixel_local_ptr_1[3] * tap_local_ptr[5]));
      sum_local_ptr[6] = (sum_local_ptr[6] + (pixel_local_ptr_1[3] * tap_local_ptr[4]));
      sum_local_ptr[7] = (sum_local_ptr[7] + (pixel_local_ptr_1[3] * tap_local_ptr[3]));
    }
  }
  *(float4*)(y_ptr + (((((int)blockIdx.x) * 256) + (((int)threadIdx.y) * 64)) + (((int)threadIdx.z) * 8))) = *(float4*)(sum_local_ptr + 0);
  *(float4*)(y_ptr + ((((((int)blockIdx.x) * 256) + (((int)threadIdx.y) * 64)) + (((int)threadIdx.z) * 8)) + 4)) = *(float4*)(sum_local_ptr + 4);
}
