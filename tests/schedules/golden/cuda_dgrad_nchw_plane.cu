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

extern "C" __global__ void __launch_bounds__(144, 6) main_kernel(nv_bfloat16* __restrict__ dx_ptr, nv_bfloat16* __restrict__ dy_ptr, nv_bfloat16* __restrict__ w_ptr, int n) {
  alignas(64) nv_bfloat16 value_local_ptr[4];
  alignas(64) nv_bfloat16 value_local_ptr_1[4];
  alignas(64) float converted_local_ptr[4];
  __shared__ alignas(64) float planes_shared_ptr[2016];
  alignas(64) float converted_local_ptr_1[4];
  alignas(64) nv_bfloat16 value_local_ptr_2[4];
  __shared__ alignas(64) float kernels_shared_ptr[432];
  alignas(64) float converted_local_ptr_2[4];
  alignas(64) float sum_local_ptr[14];
  alignas(64) float kernel_local_ptr[9];
  alignas(64) float weight_local_ptr[9];
  alignas(64) float value_local_ptr_3[7];
  alignas(64) float value_local_ptr_4[7];
  alignas(64) float result_local_ptr[14];
  alignas(64) float value_local_ptr_5[4];
  alignas(64) float value_local_ptr_6[4];
  alignas(64) nv_bfloat16 converted_local_ptr_3[4];
  alignas(64) nv_bfloat16 converted_local_ptr_4[4];
  #pragma unroll
  for (int index = 0; index < 4; ++index) {
    value_local_ptr[index] = __float2bfloat16_rn(0x0p+0f/*0.000000e+00*/);
  }
  if ((((((int)blockIdx.x) * 84) + ((int)threadIdx.y)) - (n * 35)) < 0) {
    *(nv_bfloat164*)(value_local_ptr + 0) = *(nv_bfloat164*)(dy_ptr + (((((int)blockIdx.x) * 1008) + (((int)threadIdx.y) * 12)) + (((int)threadIdx.x) * 4)));
  }
  if (((int)threadIdx.y) < 36) {
    #pragma unroll
    for (int index_1 = 0; index_1 < 4; ++index_1) {
      value_local_ptr_1[index_1] = __float2bfloat16_rn(0x0p+0f/*0.000000e+00*/);
    }
    if ((((((int)blockIdx.x) * 84) + ((int)threadIdx.y)) - (n * 35)) < -48) {
      *(nv_bfloat164*)(value_local_ptr_1 + 0) = *(nv_bfloat164*)(dy_ptr + ((((((int)blockIdx.x) * 1008) + (((int)threadIdx.y) * 12)) + (((int)threadIdx.x) * 4)) + 576));
    }
  }
      nv_bfloat162 v_ = *(nv_bfloat162*)(value_local_ptr + 0);
    int v__1 = (*(int *)(&(v_))) << 16;
  converted_local_ptr[0] = (*(float *)(&(v__1)));
      nv_bfloat162 v__2 = *(nv_bfloat162*)(value_local_ptr + 0);
    int v__3 = (*(int *)(&(v__2))) & -65536;
  converted_local_ptr[1] = (*(float *)(&(v__3)));
      nv_bfloat162 v__4 = *(nv_bfloat162*)(value_local_ptr + 2);
    int v__5 = (*(int *)(&(v__4))) << 16;
  converted_local_ptr[2] = (*(float *)(&(v__5)));
      nv_bfloat162 v__6 = *(nv_bfloat162*)(value_local_ptr + 2);
    int v__7 = (*(int *)(&(v__6))) & -65536;
  converted_local_ptr[3] = (*(float *)(&(v__7)));
  *(float4*)(planes_shared_ptr + ((((int)threadIdx.y) * 12) + (((int)threadIdx.x) * 4))) = *(float4*)(converted_local_ptr + 0);
  if (((int)threadIdx.y) < 36) {
        nv_bfloat162 v__8 = *(nv_bfloat162*)(value_local_ptr_1 + 0);
      int v__9 = (*(int *)(&(v__8))) << 16;
    converted_local_ptr_1[0] = (*(float *)(&(v__9)));
        nv_bfloat162 v__10 = *(nv_bfloat162*)(value_local_ptr_1 + 0);
      int v__11 = (*(int *)(&(v__10))) & -65536;
    converted_local_ptr_1[1] = (*(float *)(&(v__11)));
        nv_bfloat162 v__12 = *(nv_bfloat162*)(value_local_ptr_1 + 2);
      int v__13 = (*(int *)(&(v__12))) << 16;
    converted_local_ptr_1[2] = (*(float *)(&(v__13)));
        nv_bfloat162 v__14 = *(nv_bfloat162*)(value_local_ptr_1 + 2);
      int v__15 = (*(int *)(&(v__14))) & -65536;
    converted_local_ptr_1[3] = (*(float *)(&(v__15)));
    *(float4*)(planes_shared_ptr + (((((int)threadIdx.y) * 12) + (((int)threadIdx.x) * 4)) + 576)) = *(float4*)(converted_local_ptr_1 + 0);
  }
  if (((int)threadIdx.y) < 36) {
    *(nv_bfloat164*)(value_local_ptr_2 + 0) = *(nv_bfloat164*)(w_ptr + ((((((int)threadIdx.y) * 12) + (((((int)blockIdx.x) * 8) % 20) * 9)) + (((int)threadIdx.x) * 4)) % 180));
  }
  if (((int)threadIdx.y) < 36) {
        nv_bfloat162 v__16 = *(nv_bfloat162*)(value_local_ptr_2 + 0);
      int v__17 = (*(int *)(&(v__16))) << 16;
    converted_local_ptr_2[0] = (*(float *)(&(v__17)));
        nv_bfloat162 v__18 = *(nv_bfloat162*)(value_local_ptr_2 + 0);
      int v__19 = (*(int *)(&(v__18))) & -65536;
    converted_local_ptr_2[1] = (*(float *)(&(v__19)));
        nv_bfloat162 v__20 = *(nv_bfloat162*)(value_local_ptr_2 + 2);
      int v__21 = (*(int *)(&(v__20))) << 16;
    converted_local_ptr_2[2] = (*(float *)(&(v__21)));
        nv_bfloat162 v__22 = *(nv_bfloat162*)(value_local_ptr_2 + 2);
      int v__23 = (*(int *)(&(v__22))) & -65536;
    converted_local_ptr_2[3] = (*(float *)(&(v__23)));
    *(float4*)(kernels_shared_ptr + ((((int)threadIdx.y) * 12) + (((int)threadIdx.x) * 4))) = *(float4*)(converted_local_ptr_2 + 0);
  }
  __syncthreads();
  #pragma unroll
  for (int index_2 = 0; index_2 < 14; ++index_2) {
    sum_local_ptr[index_2] = 0x0p+0f/*0.000000e+00*/;
  }
  kernel_local_ptr[0] = kernels_shared_ptr[(((int)threadIdx.y) * 9)];
  kernel_local_ptr[1] = kernels_shared_ptr[((((int)threadIdx.y) * 9) + 1)];
  kernel_local_ptr[2] = kernels_shared_ptr[((((int)threadIdx.y) * 9) + 2)];
  kernel_local_ptr[3] = kernels_shared_ptr[((((int)threadIdx.y) * 9) + 3)];
  kernel_local_ptr[4] = kernels_shared_ptr[((((int)threadIdx.y) * 9) + 4)];
  kernel_local_ptr[5] = kernels_shared_ptr[((((int)threadIdx.y) * 9) + 5)];
  kernel_local_ptr[6] = kernels_shared_ptr[((((int)threadIdx.y) * 9) + 6)];
  kernel_local_ptr[7] = kernels_shared_ptr[((((int)threadIdx.y) * 9) + 7)];
  kernel_local_ptr[8] = kernels_shared_ptr[((((int)threadIdx.y) * 9) + 8)];
  weight_local_ptr[0] = kernel_local_ptr[0];
  weight_local_ptr[1] = kernel_local_ptr[1];
  weight_local_ptr[2] = kernel_local_ptr[2];
  weight_local_ptr[3] = kernel_local_ptr[3];
  weight_local_ptr[4] = kernel_local_ptr[4];
  weight_local_ptr[5] = kernel_local_ptr[5];
  weight_local_ptr[6] = kernel_local_ptr[6];
  weight_local_ptr[7] = kernel_local_ptr[7];
  weight_local_ptr[8] = kernel_local_ptr[8];
  value_local_ptr_3[0] = planes_shared_ptr[((((int)threadIdx.y) * 21) + (((int)threadIdx.x) * 7))];
  value_local_ptr_3[1] = planes_shared_ptr[(((((int)threadIdx.y) * 21) + (((int)threadIdx.x) * 7)) + 1)];
  value_local_ptr_3[2] = planes_shared_ptr[(((((int)threadIdx.y) * 21) + (((int)threadIdx.x) * 7)) + 2)];
  value_local_ptr_3[3] = planes_shared_ptr[(((((int)threadIdx.y) * 21) + (((int)threadIdx.x) * 7)) + 3)];
  value_local_ptr_3[4] = planes_shared_ptr[(((((int)threadIdx.y) * 21) + (((int)threadIdx.x) * 7)) + 4)];
  value_local_ptr_3[5] = planes_shared_ptr[(((((int)threadIdx.y) * 21) + (((int)threadIdx.x) * 7)) + 5)];
  value_local_ptr_3[6] = planes_shared_ptr[(((((int)threadIdx.y) * 21) + (((int)threadIdx.x) * 7)) + 6)];
  value_local_ptr_4[0] = 0x0p+0f/*0.000000e+00*/;
  if (((int)threadIdx.x) <= 1) {
    value_local_ptr_4[0] = planes_shared_ptr[(((((int)threadIdx.y) * 21) + (((int)threadIdx.x) * 7)) + 7)];
  }
  value_local_ptr_4[1] = 0x0p+0f/*0.000000e+00*/;
  if (((int)threadIdx.x) <= 1) {
    value_local_ptr_4[1] = planes_shared_ptr[(((((int)threadIdx.y) * 21) + (((int)threadIdx.x) * 7)) + 8)];
  }
  value_local_ptr_4[2] = 0x0p+0f/*0.000000e+00*/;
  if (((int)threadIdx.x) <= 1) {
    value_local_ptr_4[2] = planes_shared_ptr[(((((int)threadIdx.y) * 21) + (((int)threadIdx.x) * 7)) + 9)];
  }
  value_local_ptr_4[3] = 0x0p+0f/*0.000000e+00*/;
  if (((int)threadIdx.x) <= 1) {
    value_local_ptr_4[3] = planes_shared_ptr[(((((int)threadIdx.y) * 21) + (((int)threadIdx.x) * 7)) + 10)];
  }
  value_local_ptr_4[4] = 0x0p+0f/*0.000000e+00*/;
  if (((int)threadIdx.x) <= 1) {
    value_local_ptr_4[4] = planes_shared_ptr[(((((int)threadIdx.y) * 21) + (((int)threadIdx.x) * 7)) + 11)];
  }
  value_local_ptr_4[5] = 0x0p+0f/*0.000000e+00*/;
  if (((int)threadIdx.x) <= 1) {
    value_local_ptr_4[5] = planes_shared_ptr[(((((int)threadIdx.y) * 21) + (((int)threadIdx.x) * 7)) + 12)];
  }
  value_local_ptr_4[6] = 0x0p+0f/*0.000000e+00*/;
  if (((int)threadIdx.x) <= 1) {
    value_local_ptr_4[6] = planes_shared_ptr[(((((int)threadIdx.y) * 21) + (((int)threadIdx.x) * 7)) + 13)];
  }
  sum_local_ptr[0] = (sum_local_ptr[0] + (value_local_ptr_3[0] * weight_local_ptr[4]));
  sum_local_ptr[1] = (sum_local_ptr[1] + (value_local_ptr_3[0] * weight_local_ptr[5]));
  sum_local_ptr[7] = (sum_local_ptr[7] + (value_local_ptr_3[0] * weight_local_ptr[7]));
  sum_local_ptr[8] = (sum_local_ptr[8] + (value_local_ptr_3[0] * weight_local_ptr[8]));
  sum_local_ptr[0] = (sum_local_ptr[0] + (value_local_ptr_3[1] * weight_local_ptr[3]));
  sum_local_ptr[1] = (sum_local_ptr[1] + (value_local_ptr_3[1] * weight_local_ptr[4]));
  sum_local_ptr[2] = (sum_local_ptr[2] + (value_local_ptr_3[1] * weight_local_ptr[5]));
  sum_local_ptr[7] = (sum_local_ptr[7] + (value_local_ptr_3[1] * weight_local_ptr[6]));
  sum_local_ptr[8] = (sum_local_ptr[8] + (value_local_ptr_3[1] * weight_local_ptr[7]));
  sum_local_ptr[9] = (sum_local_ptr[9] + (value_local_ptr_3[1] * weight_local_ptr[8]));
  sum_local_ptr[1] = (sum_local_ptr[1] + (value_local_ptr_3[2] * weight_local_ptr[3]));
  sum_local_ptr[2] = (sum_local_ptr[2] + (value_local_ptr_3[2] * weight_local_ptr[4]));
  sum_local_ptr[3] = (sum_local_ptr[3] + (value_local_ptr_3[2] * weight_local_ptr[5]));
  sum_local_ptr[8] = (sum_local_ptr[8] + (value_local_ptr_3[2] * weight_local_ptr[6]));
  sum_local_ptr[9] = (sum_local_ptr[9] + (value_local_ptr_3[2] * weight_local_ptr[7]));
  sum_local_ptr[10] = (sum_local_ptr[10] + (value_local_ptr_3[2] * weight_local_ptr[8]));
  sum_local_ptr[2] = (sum_local_ptr[2] + (value_local_ptr_3[3] * weight_local_ptr[3]));
  sum_local_ptr[3] = (sum_local_ptr[3] + (value_local_ptr_3[3] * weight_local_ptr[4]));
  sum_local_ptr[4] = (sum_local_ptr[4] + (value_local_ptr_3[3] * weight_local_ptr[5]));
  sum_local_ptr[9] = (sum_local_ptr[9] + (value_local_ptr_3[3] * weight_local_ptr[6]));
  sum_local_ptr[10] = (sum_local_ptr[10] + (value_local_ptr_3[3] * weight_local_ptr[7]));
  sum_local_ptr[11] = (sum_local_ptr[11] + (value_local_ptr_3[3] * weight_local_ptr[8]));
  sum_local_ptr[3] = (sum_local_ptr[3] + (value_local_ptr_3[4] * weight_local_ptr[3]));
  sum_local_ptr[4] = (sum_local_ptr[4] + (value_local_ptr_3[4] * weight_local_ptr[4]));
  sum_local_ptr[5] = (sum_local_ptr[5] + (value_local_ptr_3[4] * weight_local_ptr[5]));
  sum_local_ptr[10] = (sum_local_ptr[10] + (value_local_ptr_3[4] * weight_local_ptr[6]));
  sum_local_ptr[11] = (sum_local_ptr[11] + (value_local_ptr_3[4] * weight_local_ptr[7]));
  sum_local_ptr[12] = (sum_local_ptr[12] + (value_local_ptr_3[4] * weight_local_ptr[8]));
  sum_local_ptr[4] = (sum_local_ptr[4] + (value_local_ptr_3[5] * weight_local_ptr[3]));
  sum_local_ptr[5] = (sum_local_ptr[5] + (value_local_ptr_3[5] * weight_local_ptr[4]));
  sum_local_ptr[6] = (sum_local_ptr[6] + (value_local_ptr_3[5] * weight_local_ptr[5]));
  sum_local_ptr[11] = (sum_local_ptr[11] + (value_local_ptr_3[5] * weight_local_ptr[6]));
  sum_local_ptr[12] = (sum_local_ptr[12] + (value_local_ptr_3[5] * weight_local_ptr[7]));
  sum_local_ptr[13] = (sum_local_ptr[13] + (value_local_ptr_3[5] * weight_local_ptr[8]));
  sum_local_ptr[5] = (sum_local_ptr[5] + (value_local_ptr_3[6] * weight_local_ptr[3]));
  sum_local_ptr[6] = (sum_local_ptr[6] + (value_local_ptr_3[6] * weight_local_ptr[4]));
  sum_local_ptr[12] = (sum_local_ptr[12] + (value_local_ptr_3[6] * weight_local_ptr[6]));
  sum_local_ptr[13] = (sum_local_ptr[13] + (value_local_ptr_3[6] * weight_local_ptr[7]));
  result_local_ptr[0] = sum_local_ptr[0];
  result_local_ptr[1] = sum_local_ptr[1];
  result_local_ptr[2] = sum_local_ptr[2];
  result_local_ptr[3] = sum_local_ptr[3];
  result_local_ptr[4] = sum_local_ptr[4];
  result_local_ptr[5] = sum_local_ptr[5];
  result_local_ptr[6] = sum_local_ptr[6];
  sum_local_ptr[7] = (sum_local_ptr[7] + (value_local_ptr_4[0] * weight_local_ptr[1]));
  sum_local_ptr[8] = (sum_local_ptr[8] + (value_local_ptr_4[0] * weight_local_ptr[2]));
  sum_local_ptr[7] = (sum_local_ptr[7] + (value_local_ptr_4[1] * weight_local_ptr[0]));
  sum_local_ptr[8] = (sum_local_ptr[8] + (value_local_ptr_4[1] * weight_local_ptr[1]));
  sum_local_ptr[9] = (sum_local_ptr[9] + (value_local_ptr_4[1] * weight_local_ptr[2]));
  sum_local_ptr[8] = (sum_local_ptr[8] + (value_local_ptr_4[2] * weight_local_ptr[0]));
  sum_local_ptr[9] = (sum_local_ptr[9] + (value_local_ptr_4[2] * weight_local_ptr[1]));
  sum_local_ptr[10] = (sum_local_ptr[10] + (value_local_ptr_4[2] * weight_local_ptr[2]));
  sum_local_ptr[9] = (sum_local_ptr[9] + (value_local_ptr_4[3] * weight_local_ptr[0]));
  sum_local_ptr[10] = (sum_local_ptr[10] + (value_local_ptr_4[3] * weight_local_ptr[1]));
  sum_local_ptr[11] = (sum_local_ptr[11] + (value_local_ptr_4[3] * weight_local_ptr[2]));
  sum_local_ptr[10] = (sum_local_ptr[10] + (value_local_ptr_4[4] * weight_local_ptr[0]));
  sum_local_ptr[11] = (sum_local_ptr[11] + (value_local_ptr_4[4] * weight_local_ptr[1]));
  sum_local_ptr[12] = (sum_local_ptr[12] + (value_local_ptr_4[4] * weight_local_ptr[2]));
  sum_local_ptr[11] = (sum_local_ptr[11] + (value_local_ptr_4[5] * weight_local_ptr[0]));
  sum_local_ptr[12] = (sum_local_ptr[12] + (value_local_ptr_4[5] * weight_local_ptr[1]));
  sum_local_ptr[13] = (sum_local_ptr[13] + (value_local_ptr_4[5] * weight_local_ptr[2]));
  sum_local_ptr[12] = (sum_local_ptr[12] + (value_local_ptr_4[6] * weight_local_ptr[0]));
  sum_local_ptr[13] = (sum_local_ptr[13] + (value_local_ptr_4[6] * weight_local_ptr[1]));
  result_local_ptr[7] = sum_local_ptr[7];
  result_local_ptr[8] = sum_local_ptr[8];
  result_local_ptr[9] = sum_local_ptr[9];
  result_local_ptr[10] = sum_local_ptr[10];
  result_local_ptr[11] = sum_local_ptr[11];
  result_local_ptr[12] = sum_local_ptr[12];
  result_local_ptr[13] = sum_local_ptr[13];
  __syncthreads();
  *(float2*)(planes_shared_ptr + ((((int)threadIdx.y) * 42) + (((int)threadIdx.x) * 14))) = *(float2*)(result_local_ptr + 0);
  *(float2*)(planes_shared_ptr + (((((int)threadIdx.y) * 42) + (((int)threadIdx.x) * 14)) + 2)) = *(float2*)(result_local_ptr + 2);
  *(float2*)(planes_shared_ptr + (((((int)threadIdx.y) * 42) + (((int)threadIdx.x) * 14)) + 4)) = *(float2*)(result_local_ptr + 4);
  *(float2*)(planes_shared_ptr + (((((int)threadIdx.y) * 42) + (((int)threadIdx.x) * 14)) + 6)) = *(float2*)(result_local_ptr + 6);
  *(float2*)(planes_shared_ptr + (((((int)threadIdx.y) * 42) + (((int)threadIdx.x) * 14)) + 8)) = *(float2*)(result_local_ptr + 8);
  *(float2*)(planes_shared_ptr + (((((int)threadIdx.y) * 42) + (((int)threadIdx.x) * 14)) + 10)) = *(float2*)(result_local_ptr + 10);
  *(float2*)(planes_shared_ptr + (((((int)threadIdx.y) * 42) + (((int)threadIdx.x) * 14)) + 12)) = *(float2*)(result_local_ptr + 12);
  __syncthreads();
  for (int round = 0; round < 2; ++round) {
    *(float4*)(value_local_ptr_5 + 0) = *(float4*)(planes_shared_ptr + (((round * 1152) + (((int)threadIdx.y) * 12)) + (((int)threadIdx.x) * 4)));
    if (((round * 4) + (((int)threadIdx.y) / 24)) < 5) {
      *(float4*)(value_local_ptr_6 + 0) = *(float4*)(planes_shared_ptr + ((((round * 1152) + (((int)threadIdx.y) * 12)) + (((int)threadIdx.x) * 4)) + 576));
    }
    if (((((((int)blockIdx.x) * 168) + (round * 96)) + ((int)threadIdx.y)) - (n * 70)) < 0) {
      converted_local_ptr_3[0] = ((nv_bfloat16)value_local_ptr_5[0]);
      converted_local_ptr_3[1] = ((nv_bfloat16)value_local_ptr_5[1]);
      converted_local_ptr_3[2] = ((nv_bfloat16)value_local_ptr_5[2]);
      converted_local_ptr_3[3] = ((nv_bfloat16)value_local_ptr_5[3]);
      *(nv_bfloat164*)(dx_ptr + ((((((int)blockIdx.x) * 2016) + (round * 1152)) + (((int)threadIdx.y) * 12)) + (((int)threadIdx.x) * 4))) = *(nv_bfloat164*)(converted_local_ptr_3 + 0);
    }
    if (((round * 4) + (((int)threadIdx.y) / 24)) < 5) {
      if (((((((int)blockIdx.x) * 168) + (round * 96)) + ((int)threadIdx.y)) - (n * 70)) < -48) {
        converted_local_ptr_4[0] = ((nv_bfloat16)value_local_ptr_6[0]);
        converted_local_ptr_4[1] = ((nv_bfloat16)value_local_ptr_6[1]);
        converted_local_ptr_4[2] = ((nv_bfloat16)value_local_ptr_6[2]);
        converted_local_ptr_4[3] = ((nv_bfloat16)value_local_ptr_6[3]);
        *(nv_bfloat164*)(dx_ptr + (((((((int)blockIdx.x) * 2016) + (round * 1152)) + (((int)threadIdx.y) * 12)) + (((int)threadIdx.x) * 4)) + 576)) = *(nv_bfloat164*)(converted_local_ptr_4 + 0);
      }
    }
  }
}
