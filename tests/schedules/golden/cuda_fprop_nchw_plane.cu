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

struct alignas(8) half4 { unsigned low, high; };
static __device__ half4 make_half4(half x, half y, half z, half w) {
  return {(unsigned)__half_as_ushort(y) << 16 | __half_as_ushort(x),
          (unsigned)__half_as_ushort(w) << 16 | __half_as_ushort(z)};
}

extern "C" __global__ void __launch_bounds__(32, 32) main_kernel(half* __restrict__ bias_ptr, half* __restrict__ w_ptr, half* __restrict__ x_ptr, half* __restrict__ y_ptr, int n) {
  alignas(64) half value_local_ptr[8];
  alignas(64) half value_local_ptr_1[8];
  alignas(64) half value_local_ptr_2[8];
  __shared__ alignas(64) half planes_shared_ptr[576];
  __shared__ alignas(64) float kernels_shared_ptr[576];
  alignas(64) half value_local_ptr_3[4];
  alignas(64) half value_local_ptr_4[4];
  alignas(64) half value_local_ptr_5[4];
  alignas(64) float converted_local_ptr[4];
  alignas(64) float converted_local_ptr_1[4];
  alignas(64) float converted_local_ptr_2[4];
  alignas(64) float sum_local_ptr[9];
  alignas(64) float kernel_local_ptr[10];
  alignas(64) float weight_local_ptr[9];
  alignas(64) half value_local_ptr_6[4];
  alignas(64) half value_local_ptr_7[4];
  alignas(64) float wide_local_ptr[4];
  alignas(64) half value_local_ptr_8[4];
  alignas(64) float wide_local_ptr_1[4];
  alignas(64) half result_local_ptr[9];
  alignas(64) float wide_local_ptr_2[4];
  alignas(64) float sum_local_ptr_1[9];
  alignas(64) float kernel_local_ptr_1[10];
  alignas(64) float weight_local_ptr_1[9];
  alignas(64) half value_local_ptr_9[4];
  alignas(64) half value_local_ptr_10[4];
  alignas(64) float wide_local_ptr_3[4];
  alignas(64) half value_local_ptr_11[4];
  alignas(64) float wide_local_ptr_4[4];
  alignas(64) half result_local_ptr_1[9];
  alignas(64) float wide_local_ptr_5[4];
  alignas(64) half value_local_ptr_12[8];
  alignas(64) half value_local_ptr_13[8];
  alignas(64) half value_local_ptr_14[8];
  float first = ((float)bias_ptr[(((int)threadIdx.y) * 2)]);
  float first_1 = ((float)bias_ptr[((((int)threadIdx.y) * 2) + 1)]);
  *(uint4*)(value_local_ptr + 0) = *(uint4*)(x_ptr + ((((int)blockIdx.x) * 576) + (((int)threadIdx.y) * 8)));
  *(uint4*)(value_local_ptr_1 + 0) = *(uint4*)(x_ptr + (((((int)blockIdx.x) * 576) + (((int)threadIdx.y) * 8)) + 256));
  if (((int)threadIdx.y) < 8) {
    *(uint4*)(value_local_ptr_2 + 0) = *(uint4*)(x_ptr + (((((int)blockIdx.x) * 576) + (((int)threadIdx.y) * 8)) + 512));
  }
  *(uint4*)(planes_shared_ptr + (((int)threadIdx.y) * 8)) = *(uint4*)(value_local_ptr + 0);
  *(uint4*)(planes_shared_ptr + ((((int)threadIdx.y) * 8) + 256)) = *(uint4*)(value_local_ptr_1 + 0);
  if (((int)threadIdx.y) < 8) {
    *(uint4*)(planes_shared_ptr + ((((int)threadIdx.y) * 8) + 512)) = *(uint4*)(value_local_ptr_2 + 0);
  }
  for (int round = 0; round < 2; ++round) {
    *(half4*)(value_local_ptr_3 + 0) = *(half4*)(w_ptr + ((round * 384) + (((int)threadIdx.y) * 4)));
    if (((round * 6) + (((int)threadIdx.y) >> 4)) < 7) {
      *(half4*)(value_local_ptr_4 + 0) = *(half4*)(w_ptr + ((((round * 384) + (((int)threadIdx.y) * 4)) + 128) % 576));
    }
    if (((round * 6) + (((int)threadIdx.y) >> 4)) < 5) {
      *(half4*)(value_local_ptr_5 + 0) = *(half4*)(w_ptr + ((((round * 384) + (((int)threadIdx.y) * 4)) + 256) % 576));
    }
    converted_local_ptr[0] = ((float)value_local_ptr_3[0]);
    converted_local_ptr[1] = ((float)value_local_ptr_3[1]);
    converted_local_ptr[2] = ((float)value_local_ptr_3[2]);
    converted_local_ptr[3] = ((float)value_local_ptr_3[3]);
    *(float4*)(kernels_shared_ptr + ((round * 384) + (((int)threadIdx.y) * 4))) = *(float4*)(converted_local_ptr + 0);
    if (((round * 6) + (((int)threadIdx.y) >> 4)) < 7) {
      converted_local_ptr_1[0] = ((float)value_local_ptr_4[0]);
      converted_local_ptr_1[1] = ((float)value_local_ptr_4[1]);
      converted_local_ptr_1[2] = ((float)value_local_ptr_4[2]);
      converted_local_ptr_1[3] = ((float)value_local_ptr_4[3]);
      *(float4*)(kernels_shared_ptr + (((round * 384) + (((int)threadIdx.y) * 4)) + 128)) = *(float4*)(converted_local_ptr_1 + 0);
    }
    if (((round * 6) + (((int)threadIdx.y) >> 4)) < 5) {
      converted_local_ptr_2[0] = ((float)value_local_ptr_5[0]);
      converted_local_ptr_2[1] = ((float)value_local_ptr_5[1]);
      converted_local_ptr_2[2] = ((float)value_local_ptr_5[2]);
      converted_local_ptr_2[3] = ((float)value_local_ptr_5[3]);
      *(float4*)(kernels_shared_ptr + (((round * 384) + (((int)threadIdx.y) * 4)) + 256)) = *(float4*)(converted_local_ptr_2 + 0);
    }
  }
  __syncthreads();
  #pragma unroll
  for (int index = 0; index < 9; ++index) {
    sum_local_ptr[index] = first;
  }
  *(float2*)(kernel_local_ptr + 0) = *(float2*)(kernels_shared_ptr + (((int)threadIdx.y) * 18));
  *(float2*)(kernel_local_ptr + 2) = *(float2*)(kernels_shared_ptr + ((((int)threadIdx.y) * 18) + 2));
  *(float2*)(kernel_local_ptr + 4) = *(float2*)(kernels_shared_ptr + ((((int)threadIdx.y) * 18) + 4));
  *(float2*)(kernel_local_ptr + 6) = *(float2*)(kernels_shared_ptr + ((((int)threadIdx.y) * 18) + 6));
  *(float2*)(kernel_local_ptr + 8) = *(float2*)(kernels_shared_ptr + ((((int)threadIdx.y) * 18) + 8));
  weight_local_ptr[0] = kernel_local_ptr[0];
  weight_local_ptr[1] = kernel_local_ptr[1];
  weight_local_ptr[2] = kernel_local_ptr[2];
  weight_local_ptr[3] = kernel_local_ptr[3];
  weight_local_ptr[4] = kernel_local_ptr[4];
  weight_local_ptr[5] = kernel_local_ptr[5];
  weight_local_ptr[6] = kernel_local_ptr[6];
  weight_local_ptr[7] = kernel_local_ptr[7];
  weight_local_ptr[8] = kernel_local_ptr[8];
  *(half2*)(value_local_ptr_6 + 0) = *(half2*)(planes_shared_ptr + (((int)threadIdx.y) * 18));
  *(half2*)(value_local_ptr_6 + 2) = *(half2*)(planes_shared_ptr + ((((int)threadIdx.y) * 18) + 2));
  *(half2*)(value_local_ptr_7 + 0) = *(half2*)(planes_shared_ptr + ((((int)threadIdx.y) * 18) + 2));
  *(half2*)(value_local_ptr_7 + 2) = *(half2*)(planes_shared_ptr + ((((int)threadIdx.y) * 18) + 4));
  wide_local_ptr[0] = ((float)value_local_ptr_6[0]);
  wide_local_ptr[1] = ((float)value_local_ptr_6[1]);
  wide_local_ptr[2] = ((float)value_local_ptr_6[2]);
  sum_local_ptr[0] = (sum_local_ptr[0] + (wide_local_ptr[0] * weight_local_ptr[4]));
  sum_local_ptr[1] = (sum_local_ptr[1] + (wide_local_ptr[0] * weight_local_ptr[3]));
  sum_local_ptr[3] = (sum_local_ptr[3] + (wide_local_ptr[0] * weight_local_ptr[1]));
  sum_local_ptr[4] = (sum_local_ptr[4] + (wide_local_ptr[0] * weight_local_ptr[0]));
  sum_local_ptr[0] = (sum_local_ptr[0] + (wide_local_ptr[1] * weight_local_ptr[5]));
  sum_local_ptr[1] = (sum_local_ptr[1] + (wide_local_ptr[1] * weight_local_ptr[4]));
  sum_local_ptr[2] = (sum_local_ptr[2] + (wide_local_ptr[1] * weight_local_ptr[3]));
  sum_local_ptr[3] = (sum_local_ptr[3] + (wide_local_ptr[1] * weight_local_ptr[2]));
  sum_local_ptr[4] = (sum_local_ptr[4] + (wide_local_ptr[1] * weight_local_ptr[1]));
  sum_local_ptr[5] = (sum_local_ptr[5] + (wide_local_ptr[1] * weight_local_ptr[0]));
  sum_local_ptr[1] = (sum_local_ptr[1] + (wide_local_ptr[2] * weight_local_ptr[5]));
  sum_local_ptr[2] = (sum_local_ptr[2] + (wide_local_ptr[2] * weight_local_ptr[4]));
  sum_local_ptr[4] = (sum_local_ptr[4] + (wide_local_ptr[2] * weight_local_ptr[2]));
  sum_local_ptr[5] = (sum_local_ptr[5] + (wide_local_ptr[2] * weight_local_ptr[1]));
  *(half2*)(value_local_ptr_8 + 0) = *(half2*)(planes_shared_ptr + ((((int)threadIdx.y) * 18) + 6));
  *(half2*)(value_local_ptr_8 + 2) = *(half2*)(planes_shared_ptr + ((((int)threadIdx.y) * 18) + 8));
  wide_local_ptr_1[1] = ((float)value_local_ptr_7[1]);
  wide_local_ptr_1[2] = ((float)value_local_ptr_7[2]);
  wide_local_ptr_1[3] = ((float)value_local_ptr_7[3]);
  sum_local_ptr[0] = (sum_local_ptr[0] + (wide_local_ptr_1[1] * weight_local_ptr[7]));
  sum_local_ptr[1] = (sum_local_ptr[1] + (wide_local_ptr_1[1] * weight_local_ptr[6]));
  sum_local_ptr[3] = (sum_local_ptr[3] + (wide_local_ptr_1[1] * weight_local_ptr[4]));
  sum_local_ptr[4] = (sum_local_ptr[4] + (wide_local_ptr_1[1] * weight_local_ptr[3]));
  sum_local_ptr[6] = (sum_local_ptr[6] + (wide_local_ptr_1[1] * weight_local_ptr[1]));
  sum_local_ptr[7] = (sum_local_ptr[7] + (wide_local_ptr_1[1] * weight_local_ptr[0]));
  sum_local_ptr[0] = (sum_local_ptr[0] + (wide_local_ptr_1[2] * weight_local_ptr[8]));
  sum_local_ptr[1] = (sum_local_ptr[1] + (wide_local_ptr_1[2] * weight_local_ptr[7]));
  sum_local_ptr[2] = (sum_local_ptr[2] + (wide_local_ptr_1[2] * weight_local_ptr[6]));
  sum_local_ptr[3] = (sum_local_ptr[3] + (wide_local_ptr_1[2] * weight_local_ptr[5]));
  sum_local_ptr[4] = (sum_local_ptr[4] + (wide_local_ptr_1[2] * weight_local_ptr[4]));
  sum_local_ptr[5] = (sum_local_ptr[5] + (wide_local_ptr_1[2] * weight_local_ptr[3]));
  sum_local_ptr[6] = (sum_local_ptr[6] + (wide_local_ptr_1[2] * weight_local_ptr[2]));
  sum_local_ptr[7] = (sum_local_ptr[7] + (wide_local_ptr_1[2] * weight_local_ptr[1]));
  sum_local_ptr[8] = (sum_local_ptr[8] + (wide_local_ptr_1[2] * weight_local_ptr[0]));
  sum_local_ptr[1] = (sum_local_ptr[1] + (wide_local_ptr_1[3] * weight_local_ptr[8]));
  sum_local_ptr[2] = (sum_local_ptr[2] + (wide_local_ptr_1[3] * weight_local_ptr[7]));
  sum_local_ptr[4] = (sum_local_ptr[4] + (wide_local_ptr_1[3] * weight_local_ptr[5]));
  sum_local_ptr[5] = (sum_local_ptr[5] + (wide_local_ptr_1[3] * weight_local_ptr[4]));
  sum_local_ptr[7] = (sum_local_ptr[7] + (wide_local_ptr_1[3] * weight_local_ptr[2]));
  sum_local_ptr[8] = (sum_local_ptr[8] + (wide_local_ptr_1[3] * weight_local_ptr[1]));
  result_local_ptr[0] = ((half)sum_local_ptr[0]);
  result_local_ptr[1] = ((half)sum_local_ptr[1]);
  result_local_ptr[2] = ((half)sum_local_ptr[2]);
  wide_local_ptr_2[0] = ((float)value_local_ptr_8[0]);
  wide_local_ptr_2[1] = ((float)value_local_ptr_8[1]);
  wide_local_ptr_2[2] = ((float)value_local_ptr_8[2]);
  sum_local_ptr[3] = (sum_local_ptr[3] + (wide_local_ptr_2[0] * weight_local_ptr[7]));
  sum_local_ptr[4] = (sum_local_ptr[4] + (wide_local_ptr_2[0] * weight_local_ptr[6]));
  sum_local_ptr[6] = (sum_local_ptr[6] + (wide_local_ptr_2[0] * weight_local_ptr[4]));
  sum_local_ptr[7] = (sum_local_ptr[7] + (wide_local_ptr_2[0] * weight_local_ptr[3]));
  sum_local_ptr[3] = (sum_local_ptr[3] + (wide_local_ptr_2[1] * weight_local_ptr[8]));
  sum_local_ptr[4] = (sum_local_ptr[4] + (wide_local_ptr_2[1] * weight_local_ptr[7]));
  sum_local_ptr[5] = (sum_local_ptr[5] + (wide_local_ptr_2[1] * weight_local_ptr[6]));
  sum_local_ptr[6] = (sum_local_ptr[6] + (wide_local_ptr_2[1] * weight_local_ptr[5]));
  sum_local_ptr[7] = (sum_local_ptr[7] + (wide_local_ptr_2[1] * weight_local_ptr[4]));
  sum_local_ptr[8] = (sum_local_ptr[8] + (wide_local_ptr_2[1] * weight_local_ptr[3]));
  sum_local_ptr[4] = (sum_local_ptr[4] + (wide_local_ptr_2[2] * weight_local_ptr[8]));
  sum_local_ptr[5] = (sum_local_ptr[5] + (wide_local_ptr_2[2] * weight_local_ptr[7]));
  sum_local_ptr[7] = (sum_local_ptr[7] + (wide_local_ptr_2[2] * weight_local_ptr[5]));
  sum_local_ptr[8] = (sum_local_ptr[8] + (wide_local_ptr_2[2] * weight_local_ptr[4]));
  result_local_ptr[3] = ((half)sum_local_ptr[3]);
  result_local_ptr[4] = ((half)sum_local_ptr[4]);
  result_local_ptr[5] = ((half)sum_local_ptr[5]);
  result_local_ptr[6] = ((half)sum_local_ptr[6]);
  result_local_ptr[7] = ((half)sum_local_ptr[7]);
  result_local_ptr[8] = ((half)sum_local_ptr[8]);
  #pragma unroll
  for (int index_1 = 0; index_1 < 9; ++index_1) {
    sum_local_ptr_1[index_1] = first_1;
  }
  *(float2*)(kernel_local_ptr_1 + 0) = *(float2*)(kernels_shared_ptr + ((((int)threadIdx.y) * 18) + 8));
  *(float2*)(kernel_local_ptr_1 + 2) = *(float2*)(kernels_shared_ptr + ((((int)threadIdx.y) * 18) + 10));
  *(float2*)(kernel_local_ptr_1 + 4) = *(float2*)(kernels_shared_ptr + ((((int)threadIdx.y) * 18) + 12));
  *(float2*)(kernel_local_ptr_1 + 6) = *(float2*)(kernels_shared_ptr + ((((int)threadIdx.y) * 18) + 14));
  *(float2*)(kernel_local_ptr_1 + 8) = *(float2*)(kernels_shared_ptr + ((((int)threadIdx.y) * 18) + 16));
  weight_local_ptr_1[0] = kernel_local_ptr_1[1];
  weight_local_ptr_1[1] = kernel_local_ptr_1[2];
  weight_local_ptr_1[2] = kernel_local_ptr_1[3];
  weight_local_ptr_1[3] = kernel_local_ptr_1[4];
  weight_local_ptr_1[4] = kernel_local_ptr_1[5];
  weight_local_ptr_1[5] = kernel_local_ptr_1[6];
  weight_local_ptr_1[6] = kernel_local_ptr_1[7];
  weight_local_ptr_1[7] = kernel_local_ptr_1[8];
  weight_local_ptr_1[8] = kernel_local_ptr_1[9];
  *(half2*)(value_local_ptr_9 + 0) = *(half2*)(planes_shared_ptr + ((((int)threadIdx.y) * 18) + 8));
  *(half2*)(value_local_ptr_9 + 2) = *(half2*)(planes_shared_ptr + ((((int)threadIdx.y) * 18) + 10));
  *(half2*)(value_local_ptr_10 + 0) = *(half2*)(planes_shared_ptr + ((((int)threadIdx.y) * 18) + 12));
  *(half2*)(value_local_ptr_10 + 2) = *(half2*)(planes_shared_ptr + ((((int)threadIdx.y) * 18) + 14));
  wide_local_ptr_3[1] = ((float)value_local_ptr_9[1]);
  wide_local_ptr_3[2] = ((float)value_local_ptr_9[2]);
  wide_local_ptr_3[3] = ((float)value_local_ptr_9[3]);
  sum_local_ptr_1[0] = (sum_local_ptr_1[0] + (wide_local_ptr_3[1] * weight_local_ptr_1[4]));
  sum_local_ptr_1[1] = (sum_local_ptr_1[1] + (wide_local_ptr_3[1] * weight_local_ptr_1[3]));
  sum_local_ptr_1[3] = (sum_local_ptr_1[3] + (wide_local_ptr_3[1] * weight_local_ptr_1[1]));
  sum_local_ptr_1[4] = (sum_local_ptr_1[4] + (wide_local_ptr_3[1] * weight_local_ptr_1[0]));
  sum_local_ptr_1[0] = (sum_local_ptr_1[0] + (wide_local_ptr_3[2] * weight_local_ptr_1[5]));
  sum_local_ptr_1[1] = (sum_local_ptr_1[1] + (wide_local_ptr_3[2] * weight_local_ptr_1[4]));
  sum_local_ptr_1[2] = (sum_local_ptr_1[2] + (wide_local_ptr_3[2] * weight_local_ptr_1[3]));
  sum_local_ptr_1[3] = (sum_local_ptr_1[3] + (wide_local_ptr_3[2] * weight_local_ptr_1[2]));
  sum_local_ptr_1[4] = (sum_local_ptr_1[4] + (wide_local_ptr_3[2] * weight_local_ptr_1[1]));
  sum_local_ptr_1[5] = (sum_local_ptr_1[5] + (wide_local_ptr_3[2] * weight_local_ptr_1[0]));
  sum_local_ptr_1[1] = (sum_local_ptr_1[1] + (wide_local_ptr_3[3] * weight_local_ptr_1[5]));
  sum_local_ptr_1[2] = (sum_local_ptr_1[2] + (wide_local_ptr_3[3] * weight_local_ptr_1[4]));
  sum_local_ptr_1[4] = (sum_local_ptr_1[4] + (wide_local_ptr_3[3] * weight_local_ptr_1[2]));
  sum_local_ptr_1[5] = (sum_local_ptr_1[5] + (wide_local_ptr_3[3] * weight_local_ptr_1[1]));
  *(half2*)(value_local_ptr_11 + 0) = *(half2*)(planes_shared_ptr + ((((int)threadIdx.y) * 18) + 14));
  *(half2*)(value_local_ptr_11 + 2) = *(half2*)(planes_shared_ptr + ((((int)threadIdx.y) * 18) + 16));
  wide_local_ptr_4[0] = ((float)value_local_ptr_10[0]);
  wide_local_ptr_4[1] = ((float)value_local_ptr_10[1]);
  wide_local_ptr_4[2] = ((float)value_local_ptr_10[2]);
  sum_local_ptr_1[0] = (sum_local_ptr_1[0] + (wide_local_ptr_4[0] * weight_local_ptr_1[7]));
  sum_local_ptr_1[1] = (sum_local_ptr_1[1] + (wide_local_ptr_4[0] * weight_local_ptr_1[6]));
  sum_local_ptr_1[3] = (sum_local_ptr_1[3] + (wide_local_ptr_4[0] * weight_local_ptr_1[4]));
  sum_local_ptr_1[4] = (sum_local_ptr_1[4] + (wide_local_ptr_4[0] * weight_local_ptr_1[3]));
  sum_local_ptr_1[6] = (sum_local_ptr_1[6] + (wide_local_ptr_4[0] * weight_local_ptr_1[1]));
  sum_local_ptr_1[7] = (sum_local_ptr_1[7] + (wide_local_ptr_4[0] * weight_local_ptr_1[0]));
  sum_local_ptr_1[0] = (sum_local_ptr_1[0] + (wide_local_ptr_4[1] * weight_local_ptr_1[8]));
  sum_local_ptr_1[1] = (sum_local_ptr_1[1] + (wide_local_ptr_4[1] * weight_local_ptr_1[7]));
  sum_local_ptr_1[2] = (sum_local_ptr_1[2] + (wide_local_ptr_4[1] * weight_local_ptr_1[6]));
  sum_local_ptr_1[3] = (sum_local_ptr_1[3] + (wide_local_ptr_4[1] * weight_local_ptr_1[5]));
  sum_local_ptr_1[4] = (sum_local_ptr_1[4] + (wide_local_ptr_4[1] * weight_local_ptr_1[4]));
  sum_local_ptr_1[5] = (sum_local_ptr_1[5] + (wide_local_ptr_4[1] * weight_local_ptr_1[3]));
  sum_local_ptr_1[6] = (sum_local_ptr_1[6] + (wide_local_ptr_4[1] * weight_local_ptr_1[2]));
  sum_local_ptr_1[7] = (sum_local_ptr_1[7] + (wide_local_ptr_4[1] * weight_local_ptr_1[1]));
  sum_local_ptr_1[8] = (sum_local_ptr_1[8] + (wide_local_ptr_4[1] * weight_local_ptr_1[0]));
  sum_local_ptr_1[1] = (sum_local_ptr_1[1] + (wide_local_ptr_4[2] * weight_local_ptr_1[8]));
  sum_local_ptr_1[2] = (sum_local_ptr_1[2] + (wide_local_ptr_4[2] * weight_local_ptr_1[7]));
  sum_local_ptr_1[4] = (sum_local_ptr_1[4] + (wide_local_ptr_4[2] * weight_local_ptr_1[5]));
  sum_local_ptr_1[5] = (sum_local_ptr_1[5] + (wide_local_ptr_4[2] * weight_local_ptr_1[4]));
  sum_local_ptr_1[7] = (sum_local_ptr_1[7] + (wide_local_ptr_4[2] * weight_local_ptr_1[2]));
  sum_local_ptr_1[8] = (sum_local_ptr_1[8] + (wide_local_ptr_4[2] * weight_local_ptr_1[1]));
  result_local_ptr_1[8] = ((half)sum_local_ptr_1[0]);
  result_local_ptr_1[0] = ((half)sum_local_ptr_1[1]);
  result_local_ptr_1[1] = ((half)sum_local_ptr_1[2]);
  wide_local_ptr_5[1] = ((float)value_local_ptr_11[1]);
  wide_local_ptr_5[2] = ((float)value_local_ptr_11[2]);
  wide_local_ptr_5[3] = ((float)value_local_ptr_11[3]);
  sum_local_ptr_1[3] = (sum_local_ptr_1[3] + (wide_local_ptr_5[1] * weight_local_ptr_1[7]));
  sum_local_ptr_1[4] = (sum_local_ptr_1[4] + (wide_local_ptr_5[1] * weight_local_ptr_1[6]));
  sum_local_ptr_1[6] = (sum_local_ptr_1[6] + (wide_local_ptr_5[1] * weight_local_ptr_1[4]));
  sum_local_ptr_1[7] = (sum_local_ptr_1[7] + (wide_local_ptr_5[1] * weight_local_ptr_1[3]));
  sum_local_ptr_1[3] = (sum_local_ptr_1[3] + (wide_local_ptr_5[2] * weight_local_ptr_1[8]));
  sum_local_ptr_1[4] = (sum_local_ptr_1[4] + (wide_local_ptr_5[2] * weight_local_ptr_1[7]));
  sum_local_ptr_1[5] = (sum_local_ptr_1[5] + (wide_local_ptr_5[2] * weight_local_ptr_1[6]));
  sum_local_ptr_1[6] = (sum_local_ptr_1[6] + (wide_local_ptr_5[2] * weight_local_ptr_1[5]));
  sum_local_ptr_1[7] = (sum_local_ptr_1[7] + (wide_local_ptr_5[2] * weight_local_ptr_1[4]));
  sum_local_ptr_1[8] = (sum_local_ptr_1[8] + (wide_local_ptr_5[2] * weight_local_ptr_1[3]));
  sum_local_ptr_1[4] = (sum_local_ptr_1[4] + (wide_local_ptr_5[3] * weight_local_ptr_1[8]));
  sum_local_ptr_1[5] = (sum_local_ptr_1[5] + (wide_local_ptr_5[3] * weight_local_ptr_1[7]));
  sum_local_ptr_1[7] = (sum_local_ptr_1[7] + (wide_local_ptr_5[3] * weight_local_ptr_1[5]));
  sum_local_ptr_1[8] = (sum_local_ptr_1[8] + (wide_local_ptr_5[3] * weight_local_ptr_1[4]));
  result_local_ptr_1[2] = ((half)sum_local_ptr_1[3]);
  result_local_ptr_1[3] = ((half)sum_local_ptr_1[4]);
  result_local_ptr_1[4] = ((half)sum_local_ptr_1[5]);
  result_local_ptr_1[5] = ((half)sum_local_ptr_1[6]);
  result_local_ptr_1[6] = ((half)sum_local_ptr_1[7]);
  result_local_ptr_1[7] = ((half)sum_local_ptr_1[8]);
  __syncthreads();
  *(half2*)(planes_shared_ptr + (((int)threadIdx.y) * 18)) = *(half2*)(result_local_ptr + 0);
  *(half2*)(planes_shared_ptr + ((((int)threadIdx.y) * 18) + 2)) = *(half2*)(result_local_ptr + 2);
  *(half2*)(planes_shared_ptr + ((((int)threadIdx.y) * 18) + 4)) = *(half2*)(result_local_ptr + 4);
  *(half2*)(planes_shared_ptr + ((((int)threadIdx.y) * 18) + 6)) = *(half2*)(result_local_ptr + 6);
  planes_shared_ptr[((((int)threadIdx.y) * 18) + 8)] = result_local_ptr[8];
  planes_shared_ptr[((((int)threadIdx.y) * 18) + 9)] = result_local_ptr_1[8];
  *(half2*)(planes_shared_ptr + ((((int)threadIdx.y) * 18) + 10)) = *(half2*)(result_local_ptr_1 + 0);
  *(half2*)(planes_shared_ptr + ((((int)threadIdx.y) * 18) + 12)) = *(half2*)(result_local_ptr_1 + 2);
  *(half2*)(planes_shared_ptr + ((((int)threadIdx.y) * 18) + 14)) = *(half2*)(result_local_ptr_1 + 4);
  *(half2*)(planes_shared_ptr + ((((int)threadIdx.y) * 18) + 16)) = *(half2*)(result_local_ptr_1 + 6);
  __syncthreads();
  *(uint4*)(value_local_ptr_12 + 0) = *(uint4*)(planes_shared_ptr + (((int)threadIdx.y) * 8));
  *(uint4*)(value_local_ptr_13 + 0) = *(uint4*)(planes_shared_ptr + ((((int)threadIdx.y) * 8) + 256));
  if (((int)threadIdx.y) < 8) {
    *(uint4*)(value_local_ptr_14 + 0) = *(uint4*)(planes_shared_ptr + ((((int)threadIdx.y) * 8) + 512));
  }
  *(uint4*)(y_ptr + ((((int)blockIdx.x) * 576) + (((int)threadIdx.y) * 8))) = *(uint4*)(value_local_ptr_12 + 0);
  *(uint4*)(y_ptr + (((((int)blockIdx.x) * 576) + (((int)threadIdx.y) * 8)) + 256)) = *(uint4*)(value_local_ptr_13 + 0);
  if (((int)threadIdx.y) < 8) {
    *(uint4*)(y_ptr + (((((int)blockIdx.x) * 576) + (((int)threadIdx.y) * 8)) + 512)) = *(uint4*)(value_local_ptr_14 + 0);
  }
}
