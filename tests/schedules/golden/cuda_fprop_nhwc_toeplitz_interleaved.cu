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

static __device__ unsigned __pack_half2(half x, half y) {
  return (unsigned)__half_as_ushort(y) << 16 | __half_as_ushort(x);
}

typedef unsigned int uint;

__forceinline__ __device__ void tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(float& __d0, float& __d1, float& __d2, float& __d3, uint32_t __a0, uint32_t __a1, uint32_t __a2, uint32_t __a3, uint32_t __b0, uint32_t __b1, float __c0, float __c1, float __c2, float __c3) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};" : "=f"(__d0), "=f"(__d1), "=f"(__d2), "=f"(__d3) : "r"(__a0), "r"(__a1), "r"(__a2), "r"(__a3), "r"(__b0), "r"(__b1), "f"(__c0), "f"(__c1), "f"(__c2), "f"(__c3));
}

__forceinline__ __device__ void tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x4_shared_b16(uint32_t& __r0, uint32_t& __r1, uint32_t& __r2, uint32_t& __r3, uint32_t __p) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(__r0), "=r"(__r1), "=r"(__r2), "=r"(__r3) : "r"(__p) : "memory");
}

__forceinline__ __device__ unsigned int tvm_builtin_cuda_cvta_generic_to_shared(void* p) {
    return __cvta_generic_to_shared(p);
}

extern "C" __global__ void __launch_bounds__(256, 2) main_kernel(half* __restrict__ w_ptr, half* __restrict__ x_ptr, half* __restrict__ y_ptr, int n) {
  alignas(64) int weight_local_ptr[1];
  alignas(64) half ahead_local_ptr[1];
  alignas(64) int row_local_ptr[1];
  extern __shared__ __align__(64) half staged_shared_ptr[];
  alignas(64) int first_row_local_ptr[1];
  alignas(64) int vector_local_ptr[1];
  alignas(64) int row_local_ptr_1[1];
  alignas(64) half pixel_local_ptr[16];
  alignas(64) half word_local_ptr[16];
  alignas(64) int weight_local_ptr_1[1];
  alignas(64) int row_local_ptr_2[1];
  alignas(64) int weight_local_ptr_2[1];
  alignas(64) int row_local_ptr_3[1];
  alignas(64) float sum_local_ptr[32];
  alignas(64) int band_local_ptr[1];
  alignas(64) uint tap_local_ptr[15];
  alignas(64) int start_local_ptr[1];
  alignas(64) uint source_local_ptr[4];
  alignas(64) uint source_local_ptr_1[4];
  alignas(64) uint source_local_ptr_2[4];
  alignas(64) uint source_local_ptr_3[4];
  alignas(64) uint source_local_ptr_4[4];
  alignas(64) uint source_local_ptr_5[4];
  alignas(64) uint source_local_ptr_6[4];
  alignas(64) uint source_local_ptr_7[4];
  alignas(64) uint source_local_ptr_8[4];
  alignas(64) int result_at_local_ptr[1];
  alignas(64) half rounded_local_ptr[2];
  alignas(64) half rounded_local_ptr_1[2];
  alignas(64) half rounded_local_ptr_2[2];
  alignas(64) half rounded_local_ptr_3[2];
  alignas(64) half rounded_local_ptr_4[2];
  alignas(64) half rounded_local_ptr_5[2];
  alignas(64) half rounded_local_ptr_6[2];
  alignas(64) half rounded_local_ptr_7[2];
  alignas(64) int result_at_local_ptr_1[1];
  alignas(64) half rounded_local_ptr_8[2];
  alignas(64) half rounded_local_ptr_9[2];
  alignas(64) half rounded_local_ptr_10[2];
  alignas(64) half rounded_local_ptr_11[2];
  alignas(64) half rounded_local_ptr_12[2];
  alignas(64) half rounded_local_ptr_13[2];
  alignas(64) half rounded_local_ptr_14[2];
  alignas(64) half rounded_local_ptr_15[2];
  alignas(64) int first_row_local_ptr_1[1];
  alignas(64) int vector_local_ptr_1[1];
  alignas(64) half word_local_ptr_1[16];
  alignas(64) half pixel_local_ptr_1[16];
  weight_local_ptr[0] = ((int)threadIdx.x);
  if (weight_local_ptr[0] < 25) {
    row_local_ptr[0] = (weight_local_ptr[0] / 5);
    ahead_local_ptr[0] = w_ptr[(((((int)blockIdx.y) * 400) + (((int)threadIdx.z) * 25)) + weight_local_ptr[0])];
  }
  #pragma unroll
  for (int turn = 0; turn < 2; ++turn) {
    if ((((turn * 32) + (((int)threadIdx.z) * 4)) + (((int)threadIdx.x) >> 3)) < 45) {
      *(uint4*)(staged_shared_ptr + ((((turn * 2048) + (((int)threadIdx.z) * 256)) + (((int)threadIdx.x) * 8)) + 30784)) = make_uint4(__pack_half2(__float2half_rn(0x0p+0f/*0.000000e+00*/), __float2half_rn(0x0p+0f/*0.000000e+00*/)), __pack_half2(__float2half_rn(0x0p+0f/*0.000000e+00*/), __float2half_rn(0x0p+0f/*0.000000e+00*/)), __pack_half2(__float2half_rn(0x0p+0f/*0.000000e+00*/), __float2half_rn(0x0p+0f/*0.000000e+00*/)), __pack_half2(__float2half_rn(0x0p+0f/*0.000000e+00*/), __float2half_rn(0x0p+0f/*0.000000e+00*/)));
    }
  }
  first_row_local_ptr[0] = (((((int)threadIdx.z) * 4) + (((int)threadIdx.x) >> 3)) / 3);
  if (first_row_local_ptr[0] < 10) {
    vector_local_ptr[0] = (((((int)threadIdx.z) * 32) + ((int)threadIdx.x)) % 24);
    row_local_ptr_1[0] = first_row_local_ptr[0];
    #pragma unroll
    for (int image = 0; image < 8; ++image) {
      #pragma unroll
      for (int index = 0; index < 16; ++index) {
        pixel_local_ptr[index] = __float2half_rn(0x0p+0f/*0.000000e+00*/);
      }
      if ((((((1 <= row_local_ptr_1[0]) && (row_local_ptr_1[0] < 9)) && (0 <= vector_local_ptr[0])) && (vector_local_ptr[0] < 16)) && (((((int)blockIdx.x) * 8) + image) < n)) && (((((int)blockIdx.y) * 2) + (vector_local_ptr[0] & 1)) < 3)) {
        *(uint4*)(pixel_local_ptr + 0) = *(uint4*)(x_ptr + (((((((((int)blockIdx.x) * 24576) + (image * 3072)) + (row_local_ptr_1[0] * 384)) + ((vector_local_ptr[0] >> 1) * 48)) + (((int)blockIdx.y) * 16)) + ((vector_local_ptr[0] & 1) * 8)) - 384));
        *(uint4*)(pixel_local_ptr + 8) = *(uint4*)(x_ptr + (((((((((int)blockIdx.x) * 24576) + (image * 3072)) + (row_local_ptr_1[0] * 384)) + ((vector_local_ptr[0] >> 1) * 48)) + (((int)blockIdx.y) * 16)) + ((vector_local_ptr[0] & 1) * 8)) - 360));
      }
      word_local_ptr[0] = pixel_local_ptr[0];
      word_local_ptr[1] = pixel_local_ptr[8];
      *(half2*)(staged_shared_ptr + (((((vector_local_ptr[0] & 1) * 15392) + (image * 240)) + (row_local_ptr_1[0] * 24)) + ((vector_local_ptr[0] >> 1) * 2))) = *(half2*)(word_local_ptr + 0);
      word_local_ptr[2] = pixel_local_ptr[1];
      word_local_ptr[3] = pixel_local_ptr[9];
      *(half2*)(staged_shared_ptr + ((((((vector_local_ptr[0] & 1) * 15392) + (image * 240)) + (row_local_ptr_1[0] * 24)) + ((vector_local_ptr[0] >> 1) * 2)) + 1920)) = *(half2*)(word_local_ptr + 2);
      word_local_ptr[4] = pixel_local_ptr[2];
      word_local_ptr[5] = pixel_local_ptr[10];
      *(half2*)(staged_shared_ptr + ((((((vector_local_ptr[0] & 1) * 15392) + (image * 240)) + (row_local_ptr_1[0] * 24)) + ((vector_local_ptr[0] >> 1) * 2)) + 3840)) = *(half2*)(word_local_ptr + 4);
      word_local_ptr[6] = pixel_local_ptr[3];
      word_local_ptr[7] = pixel_local_ptr[11];
      *(half2*)(staged_shared_ptr + ((((((vector_local_ptr[0] & 1) * 15392) + (image * 240)) + (row_local_ptr_1[0] * 24)) + ((vector_local_ptr[0] >> 1) * 2)) + 5760)) = *(half2*)(word_local_ptr + 6);
      word_local_ptr[8] = pixel_local_ptr[4];
      word_local_ptr[9] = pixel_local_ptr[12];
      *(half2*)(staged_shared_ptr + ((((((vector_local_ptr[0] & 1) * 15392) + (image * 240)) + (row_local_ptr_1[0] * 24)) + ((vector_local_ptr[0] >> 1) * 2)) + 7680)) = *(half2*)(word_local_ptr + 8);
      word_local_ptr[10] = pixel_local_ptr[5];
      word_local_ptr[11] = pixel_local_ptr[13];
      *(half2*)(staged_shared_ptr + ((((((vector_local_ptr[0] & 1) * 15392) + (image * 240)) + (row_local_ptr_1[0] * 24)) + ((vector_local_ptr[0] >> 1) * 2)) + 9600)) = *(half2*)(word_local_ptr + 10);
      word_local_ptr[12] = pixel_local_ptr[6];
      word_local_ptr[13] = pixel_local_ptr[14];
      *(half2*)(staged_shared_ptr + ((((((vector_local_ptr[0] & 1) * 15392) + (image * 240)) + (row_local_ptr_1[0] * 24)) + ((vector_local_ptr[0] >> 1) * 2)) + 11520)) = *(half2*)(word_local_ptr + 12);
      word_local_ptr[14] = pixel_local_ptr[7];
      word_local_ptr[15] = pixel_local_ptr[15];
      *(half2*)(staged_shared_ptr + ((((((vector_local_ptr[0] & 1) * 15392) + (image * 240)) + (row_local_ptr_1[0] * 24)) + ((vector_local_ptr[0] >> 1) * 2)) + 13440)) = *(half2*)(word_local_ptr + 14);
    }
  }
  __syncthreads();
  for (int turn_c = 0; turn_c < 2; ++turn_c) {
    weight_local_ptr_1[0] = ((int)threadIdx.x);
    if ((weight_local_ptr_1[0] < 25) && (((((int)blockIdx.y) * 2) + turn_c) < 3)) {
      row_local_ptr_2[0] = (weight_local_ptr_1[0] / 5);
      row_local_ptr_2[0] = ((((((int)threadIdx.z) * 360) + (row_local_ptr_2[0] * 67)) + weight_local_ptr_1[0]) + 30798);
      staged_shared_ptr[row_local_ptr_2[0]] = ahead_local_ptr[0];
      staged_shared_ptr[(row_local_ptr_2[0] + 37)] = ahead_local_ptr[0];
    }
    weight_local_ptr_2[0] = ((int)threadIdx.x);
    if (((weight_local_ptr_2[0] < 25) && (((int)blockIdx.y) < 1)) && (turn_c < 1)) {
      row_local_ptr_3[0] = (weight_local_ptr_2[0] / 5);
      ahead_local_ptr[0] = w_ptr[(((((((int)blockIdx.y) * 400) + (turn_c * 200)) + (((int)threadIdx.z) * 25)) + weight_local_ptr_2[0]) + 200)];
    }
    __syncthreads();
    #pragma unroll
    for (int index_1 = 0; index_1 < 32; ++index_1) {
      sum_local_ptr[index_1] = 0x0p+0f/*0.000000e+00*/;
    }
    band_local_ptr[0] = (((((((int)threadIdx.z) * 360) + (((((int)threadIdx.x) & 7) >> 2) * 36)) + ((((int)threadIdx.x) & 3) * 2)) + 30792) - ((((int)threadIdx.x) >> 3) * 2));
      int2 v_ = make_int2((band_local_ptr[0])+(1*0), (band_local_ptr[0])+(1*1));
      half2 v__1 = make_half2(staged_shared_ptr[v_.x],staged_shared_ptr[v_.y]);
    tap_local_ptr[0] = (*(uint *)(&(v__1)));
      int2 v__2 = make_int2(((band_local_ptr[0] + 8))+(1*0), ((band_local_ptr[0] + 8))+(1*1));
      half2 v__3 = make_half2(staged_shared_ptr[v__2.x],staged_shared_ptr[v__2.y]);
    tap_local_ptr[1] = (*(uint *)(&(v__3)));
      int2 v__4 = make_int2(((band_local_ptr[0] + 16))+(1*0), ((band_local_ptr[0] + 16))+(1*1));
      half2 v__5 = make_half2(staged_shared_ptr[v__4.x],staged_shared_ptr[v__4.y]);
    tap_local_ptr[2] = (*(uint *)(&(v__5)));
      int2 v__6 = make_int2(((band_local_ptr[0] + 72))+(1*0), ((band_local_ptr[0] + 72))+(1*1));
      half2 v__7 = make_half2(staged_shared_ptr[v__6.x],staged_shared_ptr[v__6.y]);
    tap_local_ptr[3] = (*(uint *)(&(v__7)));
      int2 v__8 = make_int2(((band_local_ptr[0] + 80))+(1*0), ((band_local_ptr[0] + 80))+(1*1));
      half2 v__9 = make_half2(staged_shared_ptr[v__8.x],staged_shared_ptr[v__8.y]);
    tap_local_ptr[4] = (*(uint *)(&(v__9)));
      int2 v__10 = make_int2(((band_local_ptr[0] + 88))+(1*0), ((band_local_ptr[0] + 88))+(1*1));
      half2 v__11 = make_half2(staged_shared_ptr[v__10.x],staged_shared_ptr[v__10.y]);
    tap_local_ptr[5] = (*(uint *)(&(v__11)));
      int2 v__12 = make_int2(((band_local_ptr[0] + 144))+(1*0), ((band_local_ptr[0] + 144))+(1*1));
      half2 v__13 = make_half2(staged_shared_ptr[v__12.x],staged_shared_ptr[v__12.y]);
    tap_local_ptr[6] = (*(uint *)(&(v__13)));
      int2 v__14 = make_int2(((band_local_ptr[0] + 152))+(1*0), ((band_local_ptr[0] + 152))+(1*1));
      half2 v__15 = make_half2(staged_shared_ptr[v__14.x],staged_shared_ptr[v__14.y]);
    tap_local_ptr[7] = (*(uint *)(&(v__15)));
      int2 v__16 = make_int2(((band_local_ptr[0] + 160))+(1*0), ((band_local_ptr[0] + 160))+(1*1));
      half2 v__17 = make_half2(staged_shared_ptr[v__16.x],staged_shared_ptr[v__16.y]);
    tap_local_ptr[8] = (*(uint *)(&(v__17)));
      int2 v__18 = make_int2(((band_local_ptr[0] + 216))+(1*0), ((band_local_ptr[0] + 216))+(1*1));
      half2 v__19 = make_half2(staged_shared_ptr[v__18.x],staged_shared_ptr[v__18.y]);
    tap_local_ptr[9] = (*(uint *)(&(v__19)));
      int2 v__20 = make_int2(((band_local_ptr[0] + 224))+(1*0), ((band_local_ptr[0] + 224))+(1*1));
      half2 v__21 = make_half2(staged_shared_ptr[v__20.x],staged_shared_ptr[v__20.y]);
    tap_local_ptr[10] = (*(uint *)(&(v__21)));
      int2 v__22 = make_int2(((band_local_ptr[0] + 232))+(1*0), ((band_local_ptr[0] + 232))+(1*1));
      half2 v__23 = make_half2(staged_shared_ptr[v__22.x],staged_shared_ptr[v__22.y]);
    tap_local_ptr[11] = (*(uint *)(&(v__23)));
      int2 v__24 = make_int2(((band_local_ptr[0] + 288))+(1*0), ((band_local_ptr[0] + 288))+(1*1));
      half2 v__25 = make_half2(staged_shared_ptr[v__24.x],staged_shared_ptr[v__24.y]);
    tap_local_ptr[12] = (*(uint *)(&(v__25)));
      int2 v__26 = make_int2(((band_local_ptr[0] + 296))+(1*0), ((band_local_ptr[0] + 296))+(1*1));
      half2 v__27 = make_half2(staged_shared_ptr[v__26.x],staged_shared_ptr[v__26.y]);
    tap_local_ptr[13] = (*(uint *)(&(v__27)));
      int2 v__28 = make_int2(((band_local_ptr[0] + 304))+(1*0), ((band_local_ptr[0] + 304))+(1*1));
      half2 v__29 = make_half2(staged_shared_ptr[v__28.x],staged_shared_ptr[v__28.y]);
    tap_local_ptr[14] = (*(uint *)(&(v__29)));
    start_local_ptr[0] = (((((turn_c * 15392) + (((int)threadIdx.z) * 1920)) + (((((int)threadIdx.x) & 15) >> 1) * 240)) + ((((int)threadIdx.x) & 1) * 24)) + ((((int)threadIdx.x) >> 4) * 8));
    tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x4_shared_b16(source_local_ptr[0], source_local_ptr[1], source_local_ptr[2], source_local_ptr[3], tvm_builtin_cuda_cvta_generic_to_shared((&(staged_shared_ptr[start_local_ptr[0]]))));
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[0], sum_local_ptr[1], sum_local_ptr[2], sum_local_ptr[3], source_local_ptr[0], source_local_ptr[1], source_local_ptr[2], source_local_ptr[3], tap_local_ptr[4], tap_local_ptr[5], sum_local_ptr[0], sum_local_ptr[1], sum_local_ptr[2], sum_local_ptr[3]);
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[4], sum_local_ptr[5], sum_local_ptr[6], sum_local_ptr[7], source_local_ptr[0], source_local_ptr[1], source_local_ptr[2], source_local_ptr[3], tap_local_ptr[3], tap_local_ptr[4], sum_local_ptr[4], sum_local_ptr[5], sum_local_ptr[6], sum_local_ptr[7]);
    tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x4_shared_b16(source_local_ptr_1[0], source_local_ptr_1[1], source_local_ptr_1[2], source_local_ptr_1[3], tvm_builtin_cuda_cvta_generic_to_shared((&(staged_shared_ptr[(start_local_ptr[0] + 24)]))));
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[0], sum_local_ptr[1], sum_local_ptr[2], sum_local_ptr[3], source_local_ptr_1[0], source_local_ptr_1[1], source_local_ptr_1[2], source_local_ptr_1[3], tap_local_ptr[7], tap_local_ptr[8], sum_local_ptr[0], sum_local_ptr[1], sum_local_ptr[2], sum_local_ptr[3]);
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[4], sum_local_ptr[5], sum_local_ptr[6], sum_local_ptr[7], source_local_ptr_1[0], source_local_ptr_1[1], source_local_ptr_1[2], source_local_ptr_1[3], tap_local_ptr[6], tap_local_ptr[7], sum_local_ptr[4], sum_local_ptr[5], sum_local_ptr[6], sum_local_ptr[7]);
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[8], sum_local_ptr[9], sum_local_ptr[10], sum_local_ptr[11], source_local_ptr_1[0], source_local_ptr_1[1], source_local_ptr_1[2], source_local_ptr_1[3], tap_local_ptr[1], tap_local_ptr[2], sum_local_ptr[8], sum_local_ptr[9], sum_local_ptr[10], sum_local_ptr[11]);
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[12], sum_local_ptr[13], sum_local_ptr[14], sum_local_ptr[15], source_local_ptr_1[0], source_local_ptr_1[1], source_local_ptr_1[2], source_local_ptr_1[3], tap_local_ptr[0], tap_local_ptr[1], sum_local_ptr[12], sum_local_ptr[13], sum_local_ptr[14], sum_local_ptr[15]);
    tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x4_shared_b16(source_local_ptr_2[0], source_local_ptr_2[1], source_local_ptr_2[2], source_local_ptr_2[3], tvm_builtin_cuda_cvta_generic_to_shared((&(staged_shared_ptr[(start_local_ptr[0] + 48)]))));
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[0], sum_local_ptr[1], sum_local_ptr[2], sum_local_ptr[3], source_local_ptr_2[0], source_local_ptr_2[1], source_local_ptr_2[2], source_local_ptr_2[3], tap_local_ptr[10], tap_local_ptr[11], sum_local_ptr[0], sum_local_ptr[1], sum_local_ptr[2], sum_local_ptr[3]);
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[4], sum_local_ptr[5], sum_local_ptr[6], sum_local_ptr[7], source_local_ptr_2[0], source_local_ptr_2[1], source_local_ptr_2[2], source_local_ptr_2[3], tap_local_ptr[9], tap_local_ptr[10], sum_local_ptr[4], sum_local_ptr[5], sum_local_ptr[6], sum_local_ptr[7]);
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[8], sum_local_ptr[9], sum_local_ptr[10], sum_local_ptr[11], source_local_ptr_2[0], source_local_ptr_2[1], source_local_ptr_2[2], source_local_ptr_2[3], tap_local_ptr[4], tap_local_ptr[5], sum_local_ptr[8], sum_local_ptr[9], sum_local_ptr[10], sum_local_ptr[11]);
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[12], sum_local_ptr[13], sum_local_ptr[14], sum_local_ptr[15], source_local_ptr_2[0], source_local_ptr_2[1], source_local_ptr_2[2], source_local_ptr_2[3], tap_local_ptr[3], tap_local_ptr[4], sum_local_ptr[12], sum_local_ptr[13], sum_local_ptr[14], sum_local_ptr[15]);
    tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x4_shared_b16(source_local_ptr_3[0], source_local_ptr_3[1], source_local_ptr_3[2], source_local_ptr_3[3], tvm_builtin_cuda_cvta_generic_to_shared((&(staged_shared_ptr[(start_local_ptr[0] + 72)]))));
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[0], sum_local_ptr[1], sum_local_ptr[2], sum_local_ptr[3], source_local_ptr_3[0], source_local_ptr_3[1], source_local_ptr_3[2], source_local_ptr_3[3], tap_local_ptr[13], tap_local_ptr[14], sum_local_ptr[0], sum_local_ptr[1], sum_local_ptr[2], sum_local_ptr[3]);
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[4], sum_local_ptr[5], sum_local_ptr[6], sum_local_ptr[7], source_local_ptr_3[0], source_local_ptr_3[1], source_local_ptr_3[2], source_local_ptr_3[3], tap_local_ptr[12], tap_local_ptr[13], sum_local_ptr[4], sum_local_ptr[5], sum_local_ptr[6], sum_local_ptr[7]);
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[8], sum_local_ptr[9], sum_local_ptr[10], sum_local_ptr[11], source_local_ptr_3[0], source_local_ptr_3[1], source_local_ptr_3[2], source_local_ptr_3[3], tap_local_ptr[7], tap_local_ptr[8], sum_local_ptr[8], sum_local_ptr[9], sum_local_ptr[10], sum_local_ptr[11]);
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[12], sum_local_ptr[13], sum_local_ptr[14], sum_local_ptr[15], source_local_ptr_3[0], source_local_ptr_3[1], source_local_ptr_3[2], source_local_ptr_3[3], tap_local_ptr[6], tap_local_ptr[7], sum_local_ptr[12], sum_local_ptr[13], sum_local_ptr[14], sum_local_ptr[15]);
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[16], sum_local_ptr[17], sum_local_ptr[18], sum_local_ptr[19], source_local_ptr_3[0], source_local_ptr_3[1], source_local_ptr_3[2], source_local_ptr_3[3], tap_local_ptr[1], tap_local_ptr[2], sum_local_ptr[16], sum_local_ptr[17], sum_local_ptr[18], sum_local_ptr[19]);
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[20], sum_local_ptr[21], sum_local_ptr[22], sum_local_ptr[23], source_local_ptr_3[0], source_local_ptr_3[1], source_local_ptr_3[2], source_local_ptr_3[3], tap_local_ptr[0], tap_local_ptr[1], sum_local_ptr[20], sum_local_ptr[21], sum_local_ptr[22], sum_local_ptr[23]);
    tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x4_shared_b16(source_local_ptr_4[0], source_local_ptr_4[1], source_local_ptr_4[2], source_local_ptr_4[3], tvm_builtin_cuda_cvta_generic_to_shared((&(staged_shared_ptr[(start_local_ptr[0] + 96)]))));
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[8], sum_local_ptr[9], sum_local_ptr[10], sum_local_ptr[11], source_local_ptr_4[0], source_local_ptr_4[1], source_local_ptr_4[2], source_local_ptr_4[3], tap_local_ptr[10], tap_local_ptr[11], sum_local_ptr[8], sum_local_ptr[9], sum_local_ptr[10], sum_local_ptr[11]);
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[12], sum_local_ptr[13], sum_local_ptr[14], sum_local_ptr[15], source_local_ptr_4[0], source_local_ptr_4[1], source_local_ptr_4[2], source_local_ptr_4[3], tap_local_ptr[9], tap_local_ptr[10], sum_local_ptr[12], sum_local_ptr[13], sum_local_ptr[14], sum_local_ptr[15]);
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[16], sum_local_ptr[17], sum_local_ptr[18], sum_local_ptr[19], source_local_ptr_4[0], source_local_ptr_4[1], source_local_ptr_4[2], source_local_ptr_4[3], tap_local_ptr[4], tap_local_ptr[5], sum_local_ptr[16], sum_local_ptr[17], sum_local_ptr[18], sum_local_ptr[19]);
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[20], sum_local_ptr[21], sum_local_ptr[22], sum_local_ptr[23], source_local_ptr_4[0], source_local_ptr_4[1], source_local_ptr_4[2], source_local_ptr_4[3], tap_local_ptr[3], tap_local_ptr[4], sum_local_ptr[20], sum_local_ptr[21], sum_local_ptr[22], sum_local_ptr[23]);
    tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x4_shared_b16(source_local_ptr_5[0], source_local_ptr_5[1], source_local_ptr_5[2], source_local_ptr_5[3], tvm_builtin_cuda_cvta_generic_to_shared((&(staged_shared_ptr[(start_local_ptr[0] + 120)]))));
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[8], sum_local_ptr[9], sum_local_ptr[10], sum_local_ptr[11], source_local_ptr_5[0], source_local_ptr_5[1], source_local_ptr_5[2], source_local_ptr_5[3], tap_local_ptr[13], tap_local_ptr[14], sum_local_ptr[8], sum_local_ptr[9], sum_local_ptr[10], sum_local_ptr[11]);
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[12], sum_local_ptr[13], sum_local_ptr[14], sum_local_ptr[15], source_local_ptr_5[0], source_local_ptr_5[1], source_local_ptr_5[2], source_local_ptr_5[3], tap_local_ptr[12], tap_local_ptr[13], sum_local_ptr[12], sum_local_ptr[13], sum_local_ptr[14], sum_local_ptr[15]);
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[16], sum_local_ptr[17], sum_local_ptr[18], sum_local_ptr[19], source_local_ptr_5[0], source_local_ptr_5[1], source_local_ptr_5[2], source_local_ptr_5[3], tap_local_ptr[7], tap_local_ptr[8], sum_local_ptr[16], sum_local_ptr[17], sum_local_ptr[18], sum_local_ptr[19]);
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[20], sum_local_ptr[21], sum_local_ptr[22], sum_local_ptr[23], source_local_ptr_5[0], source_local_ptr_5[1], source_local_ptr_5[2], source_local_ptr_5[3], tap_local_ptr[6], tap_local_ptr[7], sum_local_ptr[20], sum_local_ptr[21], sum_local_ptr[22], sum_local_ptr[23]);
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[24], sum_local_ptr[25], sum_local_ptr[26], sum_local_ptr[27], source_local_ptr_5[0], source_local_ptr_5[1], source_local_ptr_5[2], source_local_ptr_5[3], tap_local_ptr[1], tap_local_ptr[2], sum_local_ptr[24], sum_local_ptr[25], sum_local_ptr[26], sum_local_ptr[27]);
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[28], sum_local_ptr[29], sum_local_ptr[30], sum_local_ptr[31], source_local_ptr_5[0], source_local_ptr_5[1], source_local_ptr_5[2], source_local_ptr_5[3], tap_local_ptr[0], tap_local_ptr[1], sum_local_ptr[28], sum_local_ptr[29], sum_local_ptr[30], sum_local_ptr[31]);
    tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x4_shared_b16(source_local_ptr_6[0], source_local_ptr_6[1], source_local_ptr_6[2], source_local_ptr_6[3], tvm_builtin_cuda_cvta_generic_to_shared((&(staged_shared_ptr[(start_local_ptr[0] + 144)]))));
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[16], sum_local_ptr[17], sum_local_ptr[18], sum_local_ptr[19], source_local_ptr_6[0], source_local_ptr_6[1], source_local_ptr_6[2], source_local_ptr_6[3], tap_local_ptr[10], tap_local_ptr[11], sum_local_ptr[16], sum_local_ptr[17], sum_local_ptr[18], sum_local_ptr[19]);
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[20], sum_local_ptr[21], sum_local_ptr[22], sum_local_ptr[23], source_local_ptr_6[0], source_local_ptr_6[1], source_local_ptr_6[2], source_local_ptr_6[3], tap_local_ptr[9], tap_local_ptr[10], sum_local_ptr[20], sum_local_ptr[21], sum_local_ptr[22], sum_local_ptr[23]);
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[24], sum_local_ptr[25], sum_local_ptr[26], sum_local_ptr[27], source_local_ptr_6[0], source_local_ptr_6[1], source_local_ptr_6[2], source_local_ptr_6[3], tap_local_ptr[4], tap_local_ptr[5], sum_local_ptr[24], sum_local_ptr[25], sum_local_ptr[26], sum_local_ptr[27]);
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[28], sum_local_ptr[29], sum_local_ptr[30], sum_local_ptr[31], source_local_ptr_6[0], source_local_ptr_6[1], source_local_ptr_6[2], source_local_ptr_6[3], tap_local_ptr[3], tap_local_ptr[4], sum_local_ptr[28], sum_local_ptr[29], sum_local_ptr[30], sum_local_ptr[31]);
    tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x4_shared_b16(source_local_ptr_7[0], source_local_ptr_7[1], source_local_ptr_7[2], source_local_ptr_7[3], tvm_builtin_cuda_cvta_generic_to_shared((&(staged_shared_ptr[(start_local_ptr[0] + 168)]))));
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[16], sum_local_ptr[17], sum_local_ptr[18], sum_local_ptr[19], source_local_ptr_7[0], source_local_ptr_7[1], source_local_ptr_7[2], source_local_ptr_7[3], tap_local_ptr[13], tap_local_ptr[14], sum_local_ptr[16], sum_local_ptr[17], sum_local_ptr[18], sum_local_ptr[19]);
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[20], sum_local_ptr[21], sum_local_ptr[22], sum_local_ptr[23], source_local_ptr_7[0], source_local_ptr_7[1], source_local_ptr_7[2], source_local_ptr_7[3], tap_local_ptr[12], tap_local_ptr[13], sum_local_ptr[20], sum_local_ptr[21], sum_local_ptr[22], sum_local_ptr[23]);
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[24], sum_local_ptr[25], sum_local_ptr[26], sum_local_ptr[27], source_local_ptr_7[0], source_local_ptr_7[1], source_local_ptr_7[2], source_local_ptr_7[3], tap_local_ptr[7], tap_local_ptr[8], sum_local_ptr[24], sum_local_ptr[25], sum_local_ptr[26], sum_local_ptr[27]);
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[28], sum_local_ptr[29], sum_local_ptr[30], sum_local_ptr[31], source_local_ptr_7[0], source_local_ptr_7[1], source_local_ptr_7[2], source_local_ptr_7[3], tap_local_ptr[6], tap_local_ptr[7], sum_local_ptr[28], sum_local_ptr[29], sum_local_ptr[30], sum_local_ptr[31]);
    tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x4_shared_b16(source_local_ptr_8[0], source_local_ptr_8[1], source_local_ptr_8[2], source_local_ptr_8[3], tvm_builtin_cuda_cvta_generic_to_shared((&(staged_shared_ptr[(start_local_ptr[0] + 192)]))));
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[24], sum_local_ptr[25], sum_local_ptr[26], sum_local_ptr[27], source_local_ptr_8[0], source_local_ptr_8[1], source_local_ptr_8[2], source_local_ptr_8[3], tap_local_ptr[10], tap_local_ptr[11], sum_local_ptr[24], sum_local_ptr[25], sum_local_ptr[26], sum_local_ptr[27]);
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[28], sum_local_ptr[29], sum_local_ptr[30], sum_local_ptr[31], source_local_ptr_8[0], source_local_ptr_8[1], source_local_ptr_8[2], source_local_ptr_8[3], tap_local_ptr[9], tap_local_ptr[10], sum_local_ptr[28], sum_local_ptr[29], sum_local_ptr[30], sum_local_ptr[31]);
    __syncthreads();
    result_at_local_ptr[0] = (((((turn_c * 15392) + (((int)threadIdx.z) * 1920)) + ((((int)threadIdx.x) >> 3) * 208)) + (((((int)threadIdx.x) & 7) >> 2) * 24)) + ((((int)threadIdx.x) & 3) * 2));
    rounded_local_ptr[0] = ((half)sum_local_ptr[0]);
    rounded_local_ptr[1] = ((half)sum_local_ptr[1]);
    *(half2*)(staged_shared_ptr + result_at_local_ptr[0]) = *(half2*)(rounded_local_ptr + 0);
    rounded_local_ptr_1[0] = ((half)sum_local_ptr[4]);
    rounded_local_ptr_1[1] = ((half)sum_local_ptr[5]);
    *(half2*)(staged_shared_ptr + (result_at_local_ptr[0] + 8)) = *(half2*)(rounded_local_ptr_1 + 0);
    rounded_local_ptr_2[0] = ((half)sum_local_ptr[8]);
    rounded_local_ptr_2[1] = ((half)sum_local_ptr[9]);
    *(half2*)(staged_shared_ptr + (result_at_local_ptr[0] + 48)) = *(half2*)(rounded_local_ptr_2 + 0);
    rounded_local_ptr_3[0] = ((half)sum_local_ptr[12]);
    rounded_local_ptr_3[1] = ((half)sum_local_ptr[13]);
    *(half2*)(staged_shared_ptr + (result_at_local_ptr[0] + 56)) = *(half2*)(rounded_local_ptr_3 + 0);
    rounded_local_ptr_4[0] = ((half)sum_local_ptr[16]);
    rounded_local_ptr_4[1] = ((half)sum_local_ptr[17]);
    *(half2*)(staged_shared_ptr + (result_at_local_ptr[0] + 96)) = *(half2*)(rounded_local_ptr_4 + 0);
    rounded_local_ptr_5[0] = ((half)sum_local_ptr[20]);
    rounded_local_ptr_5[1] = ((half)sum_local_ptr[21]);
    *(half2*)(staged_shared_ptr + (result_at_local_ptr[0] + 104)) = *(half2*)(rounded_local_ptr_5 + 0);
    rounded_local_ptr_6[0] = ((half)sum_local_ptr[24]);
    rounded_local_ptr_6[1] = ((half)sum_local_ptr[25]);
    *(half2*)(staged_shared_ptr + (result_at_local_ptr[0] + 144)) = *(half2*)(rounded_local_ptr_6 + 0);
    rounded_local_ptr_7[0] = ((half)sum_local_ptr[28]);
    rounded_local_ptr_7[1] = ((half)sum_local_ptr[29]);
    *(half2*)(staged_shared_ptr + (result_at_local_ptr[0] + 152)) = *(half2*)(rounded_local_ptr_7 + 0);
    result_at_local_ptr_1[0] = ((((((turn_c * 15392) + (((int)threadIdx.z) * 1920)) + ((((int)threadIdx.x) >> 3) * 208)) + (((((int)threadIdx.x) & 7) >> 2) * 24)) + ((((int)threadIdx.x) & 3) * 2)) + 832);
    rounded_local_ptr_8[0] = ((half)sum_local_ptr[2]);
    rounded_local_ptr_8[1] = ((half)sum_local_ptr[3]);
    *(half2*)(staged_shared_ptr + result_at_local_ptr_1[0]) = *(half2*)(rounded_local_ptr_8 + 0);
    rounded_local_ptr_9[0] = ((half)sum_local_ptr[6]);
    rounded_local_ptr_9[1] = ((half)sum_local_ptr[7]);
    *(half2*)(staged_shared_ptr + (result_at_local_ptr_1[0] + 8)) = *(half2*)(rounded_local_ptr_9 + 0);
    rounded_local_ptr_10[0] = ((half)sum_local_ptr[10]);
    rounded_local_ptr_10[1] = ((half)sum_local_ptr[11]);
    *(half2*)(staged_shared_ptr + (result_at_local_ptr_1[0] + 48)) = *(half2*)(rounded_local_ptr_10 + 0);
    rounded_local_ptr_11[0] = ((half)sum_local_ptr[14]);
    rounded_local_ptr_11[1] = ((half)sum_local_ptr[15]);
    *(half2*)(staged_shared_ptr + (result_at_local_ptr_1[0] + 56)) = *(half2*)(rounded_local_ptr_11 + 0);
    rounded_local_ptr_12[0] = ((half)sum_local_ptr[18]);
    rounded_local_ptr_12[1] = ((half)sum_local_ptr[19]);
    *(half2*)(staged_shared_ptr + (result_at_local_ptr_1[0] + 96)) = *(half2*)(rounded_local_ptr_12 + 0);
    rounded_local_ptr_13[0] = ((half)sum_local_ptr[22]);
    rounded_local_ptr_13[1] = ((half)sum_local_ptr[23]);
    *(half2*)(staged_shared_ptr + (result_at_local_ptr_1[0] + 104)) = *(half2*)(rounded_local_ptr_13 + 0);
    rounded_local_ptr_14[0] = ((half)sum_local_ptr[26]);
    rounded_local_ptr_14[1] = ((half)sum_local_ptr[27]);
    *(half2*)(staged_shared_ptr + (result_at_local_ptr_1[0] + 144)) = *(half2*)(rounded_local_ptr_14 + 0);
    rounded_local_ptr_15[0] = ((half)sum_local_ptr[30]);
    rounded_local_ptr_15[1] = ((half)sum_local_ptr[31]);
    *(half2*)(staged_shared_ptr + (result_at_local_ptr_1[0] + 152)) = *(half2*)(rounded_local_ptr_15 + 0);
  }
  __syncthreads();
  first_row_local_ptr_1[0] = ((((int)threadIdx.z) * 2) + (((int)threadIdx.x) >> 4));
  vector_local_ptr_1[0] = (((int)threadIdx.x) & 15);
  first_row_local_ptr_1[0] = first_row_local_ptr_1[0];
  if (first_row_local_ptr_1[0] < 8) {
    #pragma unroll
    for (int image_1 = 0; image_1 < 8; ++image_1) {
      if ((((((int)blockIdx.x) * 8) + image_1) < n) && (((((int)blockIdx.y) * 2) + (vector_local_ptr_1[0] & 1)) < 3)) {
        *(half2*)(word_local_ptr_1 + 0) = *(half2*)(staged_shared_ptr + (((((vector_local_ptr_1[0] & 1) * 15392) + (image_1 * 208)) + (first_row_local_ptr_1[0] * 24)) + ((vector_local_ptr_1[0] >> 1) * 2)));
        pixel_local_ptr_1[0] = word_local_ptr_1[0];
        pixel_local_ptr_1[8] = word_local_ptr_1[1];
        *(half2*)(word_local_ptr_1 + 2) = *(half2*)(staged_shared_ptr + ((((((vector_local_ptr_1[0] & 1) * 15392) + (image_1 * 208)) + (first_row_local_ptr_1[0] * 24)) + ((vector_local_ptr_1[0] >> 1) * 2)) + 1920));
        pixel_local_ptr_1[1] = word_local_ptr_1[2];
        pixel_local_ptr_1[9] = word_local_ptr_1[3];
        *(half2*)(word_local_ptr_1 + 4) = *(half2*)(staged_shared_ptr + ((((((vector_local_ptr_1[0] & 1) * 15392) + (image_1 * 208)) + (first_row_local_ptr_1[0] * 24)) + ((vector_local_ptr_1[0] >> 1) * 2)) + 3840));
        pixel_local_ptr_1[2] = word_local_ptr_1[4];
        pixel_local_ptr_1[10] = word_local_ptr_1[5];
        *(half2*)(word_local_ptr_1 + 6) = *(half2*)(staged_shared_ptr + ((((((vector_local_ptr_1[0] & 1) * 15392) + (image_1 * 208)) + (first_row_local_ptr_1[0] * 24)) + ((vector_local_ptr_1[0] >> 1) * 2)) + 5760));
        pixel_local_ptr_1[3] = word_local_ptr_1[6];
        pixel_local_ptr_1[11] = word_local_ptr_1[7];
        *(half2*)(word_local_ptr_1 + 8) = *(half2*)(staged_shared_ptr + ((((((vector_local_ptr_1[0] & 1) * 15392) + (image_1 * 208)) + (first_row_local_ptr_1[0] * 24)) + ((vector_local_ptr_1[0] >> 1) * 2)) + 7680));
        pixel_local_ptr_1[4] = word_local_ptr_1[8];
        pixel_local_ptr_1[12] = word_local_ptr_1[9];
        *(half2*)(word_local_ptr_1 + 10) = *(half2*)(staged_shared_ptr + ((((((vector_local_ptr_1[0] & 1) * 15392) + (image_1 * 208)) + (first_row_local_ptr_1[0] * 24)) + ((vector_local_ptr_1[0] >> 1) * 2)) + 9600));
        pixel_local_ptr_1[5] = word_local_ptr_1[10];
        pixel_local_ptr_1[13] = word_local_ptr_1[11];
        *(half2*)(word_local_ptr_1 + 12) = *(half2*)(staged_shared_ptr + ((((((vector_local_ptr_1[0] & 1) * 15392) + (image_1 * 208)) + (first_row_local_ptr_1[0] * 24)) + ((vector_local_ptr_1[0] >> 1) * 2)) + 11520));
        pixel_local_ptr_1[6] = word_local_ptr_1[12];
        pixel_local_ptr_1[14] = word_local_ptr_1[13];
        *(half2*)(word_local_ptr_1 + 14) = *(half2*)(staged_shared_ptr + ((((((vector_local_ptr_1[0] & 1) * 15392) + (image_1 * 208)) + (first_row_local_ptr_1[0] * 24)) + ((vector_local_ptr_1[0] >> 1) * 2)) + 13440));
        pixel_local_ptr_1[7] = word_local_ptr_1[14];
        pixel_local_ptr_1[15] = word_local_ptr_1[15];
        if ((((0 <= first_row_local_ptr_1[0]) && (first_row_local_ptr_1[0] < 8)) && (0 <= vector_local_ptr_1[0])) && (vector_local_ptr_1[0] < 16)) {
          *(uint4*)(y_ptr + ((((((((int)blockIdx.x) * 24576) + (image_1 * 3072)) + (first_row_local_ptr_1[0] * 384)) + ((vector_local_ptr_1[0] >> 1) * 48)) + (((int)blockIdx.y) * 16)) + ((vector_local_ptr_1[0] & 1) * 8))) = *(uint4*)(pixel_local_ptr_1 + 0);
          *(uint4*)(y_ptr + (((((((((int)blockIdx.x) * 24576) + (image_1 * 3072)) + (first_row_local_ptr_1[0] * 384)) + ((vector_local_ptr_1[0] >> 1) * 48)) + (((int)blockIdx.y) * 16)) + ((vector_local_ptr_1[0] & 1) * 8)) + 24)) = *(uint4*)(pixel_local_ptr_1 + 8);
        }
      }
    }
  }
}
