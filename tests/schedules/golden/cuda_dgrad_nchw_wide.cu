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

#include <cuda_bf16.h>

struct alignas(8) nv_bfloat164 { unsigned low, high; };
static __device__ nv_bfloat164 make_nv_bfloat164(nv_bfloat16 x, nv_bfloat16 y, nv_bfloat16 z, nv_bfloat16 w) {
  return {(unsigned)__bfloat16_as_ushort(y) << 16 | __bfloat16_as_ushort(x),
          (unsigned)__bfloat16_as_ushort(w) << 16 | __bfloat16_as_ushort(z)};
}

extern "C" __global__ void __launch_bounds__(32) main_kernel(nv_bfloat16* __restrict__ dx_ptr, nv_bfloat16* __restrict__ dy_ptr, nv_bfloat16* __restrict__ w_ptr, int n) {
  alignas(64) float sum_local_ptr[8];
  alignas(64) nv_bfloat16 value_local_ptr[4];
  alignas(64) nv_bfloat16 value_local_ptr_1[4];
  alignas(64) float wide_local_ptr[4];
  __shared__ alignas(64) float staged_shared_ptr[400];
  alignas(64) float wide_local_ptr_1[4];
  alignas(64) nv_bfloat16 value_local_ptr_2[1];
  alignas(64) nv_bfloat16 value_local_ptr_3[1];
  alignas(64) nv_bfloat16 value_local_ptr_4[1];
  alignas(64) nv_bfloat16 value_local_ptr_5[1];
  alignas(64) nv_bfloat16 value_local_ptr_6[1];
  alignas(64) float tap_local_ptr[8];
  alignas(64) float pixel_local_ptr[2];
  alignas(64) float pixel_local_ptr_1[2];
  alignas(64) float pixel_local_ptr_2[2];
  alignas(64) float tap_local_ptr_1[8];
  alignas(64) float pixel_local_ptr_3[2];
  alignas(64) float pixel_local_ptr_4[2];
  alignas(64) float pixel_local_ptr_5[2];
  alignas(64) nv_bfloat16 result_local_ptr[8];
  alignas(64) nv_bfloat16 result_local_ptr_1[8];
  #pragma unroll
  for (int index = 0; index < 8; ++index) {
    sum_local_ptr[index] = 0x0p+0f/*0.000000e+00*/;
  }
  #pragma unroll
  for (int index_1 = 0; index_1 < 4; ++index_1) {
    value_local_ptr[index_1] = __float2bfloat16_rn(0x0p+0f/*0.000000e+00*/);
  }
  if (((((((((int)threadIdx.z) * 8) + (((int)threadIdx.y) * 2)) + ((int)threadIdx.x)) % 14) < 12) && (1 <= (((((((int)threadIdx.z) * 8) + (((int)threadIdx.y) * 2)) + ((int)threadIdx.x)) % 14) % 3))) && ((((((((int)threadIdx.z) * 8) + (((int)threadIdx.y) * 2)) + ((int)threadIdx.x)) % 14) % 3) < 2)) {
    *(nv_bfloat164*)(value_local_ptr + 0) = *(nv_bfloat164*)(dy_ptr + (((((((int)blockIdx.x) * 64) + ((((((int)threadIdx.z) * 4) + ((int)threadIdx.y)) / 7) * 16)) + ((((((((int)threadIdx.z) * 8) + (((int)threadIdx.y) * 2)) + ((int)threadIdx.x)) % 14) / 3) * 4)) + ((((((((int)threadIdx.z) * 8) + (((int)threadIdx.y) * 2)) + ((int)threadIdx.x)) % 14) % 3) * 4)) - 4));
  }
  if (((int)threadIdx.z) < 3) {
    #pragma unroll
    for (int index_2 = 0; index_2 < 4; ++index_2) {
      value_local_ptr_1[index_2] = __float2bfloat16_rn(0x0p+0f/*0.000000e+00*/);
    }
    if ((((((((((int)threadIdx.z) * 8) + (((int)threadIdx.y) * 2)) + ((int)threadIdx.x)) + 4) % 14) < 12) && (1 <= ((((((((int)threadIdx.z) * 8) + (((int)threadIdx.y) * 2)) + ((int)threadIdx.x)) + 4) % 14) % 3))) && (((((((((int)threadIdx.z) * 8) + (((int)threadIdx.y) * 2)) + ((int)threadIdx.x)) + 4) % 14) % 3) < 2)) {
      *(nv_bfloat164*)(value_local_ptr_1 + 0) = *(nv_bfloat164*)(dy_ptr + (((((((int)blockIdx.x) * 64) + ((((((((int)threadIdx.z) * 8) + (((int)threadIdx.y) * 2)) + ((int)threadIdx.x)) + 32) / 14) * 16)) + (((((((((int)threadIdx.z) * 8) + (((int)threadIdx.y) * 2)) + ((int)threadIdx.x)) + 4) % 14) / 3) * 4)) + (((((((((int)threadIdx.z) * 8) + (((int)threadIdx.y) * 2)) + ((int)threadIdx.x)) + 4) % 14) % 3) * 4)) - 4));
    }
  }
  wide_local_ptr[0] = ((float)value_local_ptr[0]);
  wide_local_ptr[1] = ((float)value_local_ptr[1]);
  wide_local_ptr[2] = ((float)value_local_ptr[2]);
  wide_local_ptr[3] = ((float)value_local_ptr[3]);
  *(float4*)(staged_shared_ptr + (((((int)threadIdx.z) * 32) + (((int)threadIdx.y) * 8)) + (((int)threadIdx.x) * 4))) = *(float4*)(wide_local_ptr + 0);
  if (((int)threadIdx.z) < 3) {
    wide_local_ptr_1[0] = ((float)value_local_ptr_1[0]);
    wide_local_ptr_1[1] = ((float)value_local_ptr_1[1]);
    wide_local_ptr_1[2] = ((float)value_local_ptr_1[2]);
    wide_local_ptr_1[3] = ((float)value_local_ptr_1[3]);
    *(float4*)(staged_shared_ptr + ((((((int)threadIdx.z) * 32) + (((int)threadIdx.y) * 8)) + (((int)threadIdx.x) * 4)) + 128)) = *(float4*)(wide_local_ptr_1 + 0);
  }
  value_local_ptr_2[0] = __float2bfloat16_rn(0x0p+0f/*0.000000e+00*/);
  if (((((int)threadIdx.y) * 2) + ((int)threadIdx.x)) < 5) {
    value_local_ptr_2[0] = w_ptr[(((((int)threadIdx.z) * 5) + (((int)threadIdx.y) * 2)) + ((int)threadIdx.x))];
  }
  value_local_ptr_3[0] = __float2bfloat16_rn(0x0p+0f/*0.000000e+00*/);
  if (((((int)threadIdx.y) * 2) + ((int)threadIdx.x)) < 5) {
    value_local_ptr_3[0] = w_ptr[((((((int)threadIdx.z) * 5) + (((int)threadIdx.y) * 2)) + ((int)threadIdx.x)) + 20)];
  }
  value_local_ptr_4[0] = __float2bfloat16_rn(0x0p+0f/*0.000000e+00*/);
  if (((((int)threadIdx.y) * 2) + ((int)threadIdx.x)) < 5) {
    value_local_ptr_4[0] = w_ptr[((((((int)threadIdx.z) * 5) + (((int)threadIdx.y) * 2)) + ((int)threadIdx.x)) + 40)];
  }
  value_local_ptr_5[0] = __float2bfloat16_rn(0x0p+0f/*0.000000e+00*/);
  if (((((int)threadIdx.y) * 2) + ((int)threadIdx.x)) < 5) {
    value_local_ptr_5[0] = w_ptr[((((((int)threadIdx.z) * 5) + (((int)threadIdx.y) * 2)) + ((int)threadIdx.x)) + 60)];
  }
  value_local_ptr_6[0] = __float2bfloat16_rn(0x0p+0f/*0.000000e+00*/);
  if (((((int)threadIdx.y) * 2) + ((int)threadIdx.x)) < 5) {
    value_local_ptr_6[0] = w_ptr[((((((int)threadIdx.z) * 5) + (((int)threadIdx.y) * 2)) + ((int)threadIdx.x)) + 80)];
  }
  staged_shared_ptr[((((((int)threadIdx.z) * 8) + (((int)threadIdx.y) * 2)) + ((int)threadIdx.x)) + 224)] = ((float)value_local_ptr_2[0]);
  staged_shared_ptr[(((((((int)threadIdx.z) * 8) + (((((int)threadIdx.z) + 4) / 5) * 4)) + (((int)threadIdx.y) * 2)) + ((int)threadIdx.x)) + 256)] = ((float)value_local_ptr_3[0]);
  staged_shared_ptr[(((((((int)threadIdx.z) * 8) + (((((int)threadIdx.z) + 8) / 5) * 4)) + (((int)threadIdx.y) * 2)) + ((int)threadIdx.x)) + 288)] = ((float)value_local_ptr_4[0]);
  staged_shared_ptr[(((((((int)threadIdx.z) * 8) + (((((int)threadIdx.z) + 12) / 5) * 4)) + (((int)threadIdx.y) * 2)) + ((int)threadIdx.x)) + 320)] = ((float)value_local_ptr_5[0]);
  staged_shared_ptr[((((((int)threadIdx.z) * 8) + (((int)threadIdx.y) * 2)) + ((int)threadIdx.x)) + 364)] = ((float)value_local_ptr_6[0]);
  __syncthreads();
  for (int q = 0; q < 3; ++q) {
    if ((-1 <= (((int)threadIdx.z) - q)) && ((((int)threadIdx.z) - q) < 3)) {
      *(float4*)(tap_local_ptr + 0) = *(float4*)(staged_shared_ptr + (((((int)threadIdx.y) * 44) + (q * 16)) + 224));
      *(float4*)(tap_local_ptr + 4) = *(float4*)(staged_shared_ptr + (((((int)threadIdx.y) * 44) + (q * 16)) + 228));
      *(float2*)(pixel_local_ptr + 0) = *(float2*)(staged_shared_ptr + (((((((int)threadIdx.y) * 56) + (((int)threadIdx.z) * 12)) + (((int)threadIdx.x) * 2)) + 14) - (q * 12)));
      sum_local_ptr[0] = (sum_local_ptr[0] + (pixel_local_ptr[1] * tap_local_ptr[4]));
      *(float2*)(pixel_local_ptr_1 + 0) = *(float2*)(staged_shared_ptr + (((((((int)threadIdx.y) * 56) + (((int)threadIdx.z) * 12)) + (((int)threadIdx.x) * 2)) + 16) - (q * 12)));
      sum_local_ptr[0] = (sum_local_ptr[0] + (pixel_local_ptr_1[0] * tap_local_ptr[2]));
      sum_local_ptr[1] = (sum_local_ptr[1] + (pixel_local_ptr_1[0] * tap_local_ptr[3]));
      sum_local_ptr[2] = (sum_local_ptr[2] + (pixel_local_ptr_1[0] * tap_local_ptr[4]));
      sum_local_ptr[0] = (sum_local_ptr[0] + (pixel_local_ptr_1[1] * tap_local_ptr[0]));
      sum_local_ptr[1] = (sum_local_ptr[1] + (pixel_local_ptr_1[1] * tap_local_ptr[1]));
      sum_local_ptr[2] = (sum_local_ptr[2] + (pixel_local_ptr_1[1] * tap_local_ptr[2]));
      sum_local_ptr[3] = (sum_local_ptr[3] + (pixel_local_ptr_1[1] * tap_local_ptr[3]));
      *(float2*)(pixel_local_ptr_2 + 0) = *(float2*)(staged_shared_ptr + (((((((int)threadIdx.y) * 56) + (((int)threadIdx.z) * 12)) + (((int)threadIdx.x) * 2)) + 18) - (q * 12)));
      sum_local_ptr[2] = (sum_local_ptr[2] + (pixel_local_ptr_2[0] * tap_local_ptr[0]));
      sum_local_ptr[3] = (sum_local_ptr[3] + (pixel_local_ptr_2[0] * tap_local_ptr[1]));
    }
  }
  for (int q_1 = 0; q_1 < 2; ++q_1) {
    if ((((int)threadIdx.z) - q_1) < 3) {
      *(float4*)(tap_local_ptr_1 + 0) = *(float4*)(staged_shared_ptr + (((((int)threadIdx.y) * 44) + (q_1 * 16)) + 232));
      *(float4*)(tap_local_ptr_1 + 4) = *(float4*)(staged_shared_ptr + (((((int)threadIdx.y) * 44) + (q_1 * 16)) + 236));
      *(float2*)(pixel_local_ptr_3 + 0) = *(float2*)(staged_shared_ptr + (((((((int)threadIdx.y) * 56) + (((int)threadIdx.z) * 12)) + (((int)threadIdx.x) * 2)) + 14) - (q_1 * 12)));
      sum_local_ptr[4] = (sum_local_ptr[4] + (pixel_local_ptr_3[1] * tap_local_ptr_1[4]));
      *(float2*)(pixel_local_ptr_4 + 0) = *(float2*)(staged_shared_ptr + (((((((int)threadIdx.y) * 56) + (((int)threadIdx.z) * 12)) + (((int)threadIdx.x) * 2)) + 16) - (q_1 * 12)));
      sum_local_ptr[4] = (sum_local_ptr[4] + (pixel_local_ptr_4[0] * tap_local_ptr_1[2]));
      sum_local_ptr[5] = (sum_local_ptr[5] + (pixel_local_ptr_4[0] * tap_local_ptr_1[3]));
      sum_local_ptr[6] = (sum_local_ptr[6] + (pixel_local_ptr_4[0] * tap_local_ptr_1[4]));
      sum_local_ptr[4] = (sum_local_ptr[4] + (pixel_local_ptr_4[1] * tap_local_ptr_1[0]));
      sum_local_ptr[5] = (sum_local_ptr[5] + (pixel_local_ptr_4[1] * tap_local_ptr_1[1]));
      sum_local_ptr[6] = (sum_local_ptr[6] + (pixel_local_ptr_4[1] * tap_local_ptr_1[2]));
      sum_local_ptr[7] = (sum_local_ptr[7] + (pixel_local_ptr_4[1] * tap_local_ptr_1[3]));
      *(float2*)(pixel_local_ptr_5 + 0) = *(float2*)(staged_shared_ptr + (((((((int)threadIdx.y) * 56) + (((int)threadIdx.z) * 12)) + (((int)threadIdx.x) * 2)) + 18) - (q_1 * 12)));
      sum_local_ptr[6] = (sum_local_ptr[6] + (pixel_local_ptr_5[0] * tap_local_ptr_1[0]));
      sum_local_ptr[7] = (sum_local_ptr[7] + (pixel_local_ptr_5[0] * tap_local_ptr_1[1]));
    }
  }
  result_local_ptr[0] = ((nv_bfloat16)sum_local_ptr[0]);
  result_local_ptr[1] = ((nv_bfloat16)sum_local_ptr[1]);
  result_local_ptr[2] = ((nv_bfloat16)sum_local_ptr[2]);
  result_local_ptr[3] = ((nv_bfloat16)sum_local_ptr[3]);
  *(nv_bfloat164*)(dx_ptr + ((((((int)blockIdx.x) * 256) + (((int)threadIdx.y) * 64)) + (((int)threadIdx.z) * 16)) + (((int)threadIdx.x) * 4))) = *(nv_bfloat164*)(result_local_ptr + 0);
  result_local_ptr_1[4] = ((nv_bfloat16)sum_local_ptr[4]);
  result_local_ptr_1[5] = ((nv_bfloat16)sum_local_ptr[5]);
  result_local_ptr_1[6] = ((nv_bfloat16)sum_local_ptr[6]);
  result_local_ptr_1[7] = ((nv_bfloat16)sum_local_ptr[7]);
  *(nv_bfloat164*)(dx_ptr + (((((((int)blockIdx.x) * 256) + (((int)threadIdx.y) * 64)) + (((int)threadIdx.z) * 16)) + (((int)threadIdx.x) * 4)) + 8)) = *(nv_bfloat164*)(result_local_ptr_1 + 4);
}
