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

typedef unsigned int uint;

__forceinline__ __device__ void tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(float& __d0, float& __d1, float& __d2, float& __d3, uint32_t __a0, uint32_t __a1, uint32_t __a2, uint32_t __a3, uint32_t __b0, uint32_t __b1, float __c0, float __c1, float __c2, float __c3) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};" : "=f"(__d0), "=f"(__d1), "=f"(__d2), "=f"(__d3) : "r"(__a0), "r"(__a1), "r"(__a2), "r"(__a3), "r"(__b0), "r"(__b1), "f"(__c0), "f"(__c1), "f"(__c2), "f"(__c3));
}

__forceinline__ __device__ void tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x2_shared_b16(uint32_t& __r0, uint32_t& __r1, uint32_t __p) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];" : "=r"(__r0), "=r"(__r1) : "r"(__p) : "memory");
}

__forceinline__ __device__ void tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x4_shared_b16(uint32_t& __r0, uint32_t& __r1, uint32_t& __r2, uint32_t& __r3, uint32_t __p) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(__r0), "=r"(__r1), "=r"(__r2), "=r"(__r3) : "r"(__p) : "memory");
}

__forceinline__ __device__ void async_wait_group_0() {
  asm volatile("cp.async.wait_group 0;" :  :  : "memory");
}

__forceinline__ __device__ void async_commit_group() {
  asm volatile("cp.async.commit_group;" :  : );
}

__forceinline__ __device__ void tvm_builtin_ptx_mma_sync_aligned_m16n8k8_row_col_f32_f16_f16_f32(float& __d0, float& __d1, float& __d2, float& __d3, uint32_t __a0, uint32_t __a1, uint32_t __b0, float __c0, float __c1, float __c2, float __c3) {
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %8, %9, %10};" : "=f"(__d0), "=f"(__d1), "=f"(__d2), "=f"(__d3) : "r"(__a0), "r"(__a1), "r"(__b0), "f"(__c0), "f"(__c1), "f"(__c2), "f"(__c3));
}

__forceinline__ __device__ void tvm_builtin_ptx_cp_async_cg_src_size_async_cg_shared_global_16(uint32_t __dst_mem, const void* __src_mem, uint32_t __src_size) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :  : "r"(__dst_mem), "l"(__src_mem), "r"(__src_size) : "memory");
}

__forceinline__ __device__ unsigned int tvm_builtin_cuda_cvta_generic_to_shared(void* p) {
    return __cvta_generic_to_shared(p);
}

extern "C" __global__ void __launch_bounds__(64, 12) main_kernel(half* __restrict__ bias_ptr, half* __restrict__ w_ptr, half* __restrict__ x_ptr, half* __restrict__ y_ptr, int n) {
  alignas(64) int first_row_local_ptr[1];
  __shared__ alignas(64) half staged_shared_ptr[4224];
  alignas(64) int vector_local_ptr[1];
  alignas(64) int row_local_ptr[1];
  alignas(64) int first_row_local_ptr_1[1];
  alignas(64) int vector_local_ptr_1[1];
  alignas(64) int row_local_ptr_1[1];
  alignas(64) half weight_local_ptr[1];
  alignas(64) float first_local_ptr[1];
  alignas(64) float sum_local_ptr[16];
  alignas(64) int band_local_ptr[1];
  alignas(64) uint tap_local_ptr[6];
  alignas(64) int start_local_ptr[1];
  alignas(64) uint source_local_ptr[6];
  alignas(64) uint source_local_ptr_1[6];
  alignas(64) uint source_local_ptr_2[6];
  alignas(64) uint source_local_ptr_3[6];
  alignas(64) uint source_local_ptr_4[6];
  alignas(64) int band_local_ptr_1[1];
  alignas(64) uint tap_local_ptr_1[3];
  alignas(64) int start_local_ptr_1[1];
  alignas(64) uint source_local_ptr_5[6];
  alignas(64) uint source_local_ptr_6[6];
  alignas(64) uint source_local_ptr_7[6];
  alignas(64) uint source_local_ptr_8[6];
  alignas(64) int result_at_local_ptr[1];
  alignas(64) half rounded_local_ptr[2];
  alignas(64) half rounded_local_ptr_1[2];
  alignas(64) half rounded_local_ptr_2[2];
  alignas(64) half rounded_local_ptr_3[2];
  alignas(64) int result_at_local_ptr_1[1];
  alignas(64) half rounded_local_ptr_4[2];
  alignas(64) half rounded_local_ptr_5[2];
  alignas(64) half rounded_local_ptr_6[2];
  alignas(64) half rounded_local_ptr_7[2];
  alignas(64) int first_row_local_ptr_2[1];
  alignas(64) int vector_local_ptr_2[1];
  first_row_local_ptr[0] = (((((int)threadIdx.y) * 32) + ((int)threadIdx.x)) / 5);
  if (first_row_local_ptr[0] < 12) {
    vector_local_ptr[0] = (((((int)threadIdx.y) * 32) + ((int)threadIdx.x)) % 5);
    row_local_ptr[0] = first_row_local_ptr[0];
    #pragma unroll
    for (int image = 0; image < 8; ++image) {
      tvm_builtin_ptx_cp_async_cg_src_size_async_cg_shared_global_16(tvm_builtin_cuda_cvta_generic_to_shared((&(staged_shared_ptr[(((image * 488) + (row_local_ptr[0] * 40)) + (vector_local_ptr[0] * 8))]))), (&(x_ptr[((((((((int)blockIdx.x) * 4096) + (image * 512)) + (((int)blockIdx.y) * 128)) + (row_local_ptr[0] * 16)) + (vector_local_ptr[0] * 8)) - 40)])), ((((((2 <= row_local_ptr[0]) && (row_local_ptr[0] < 10)) && (1 <= vector_local_ptr[0])) && (vector_local_ptr[0] < 3)) && (((((int)blockIdx.x) * 8) + image) < n)) ? (uint)16 : (uint)0));
    }
  }
  async_commit_group();
  first_row_local_ptr_1[0] = 0;
  vector_local_ptr_1[0] = ((((int)threadIdx.y) * 32) + ((int)threadIdx.x));
  #pragma unroll
  for (int turn = 0; turn < 5; ++turn) {
    row_local_ptr_1[0] = (turn + first_row_local_ptr_1[0]);
    weight_local_ptr[0] = __float2half_rn(0x0p+0f/*0.000000e+00*/);
    if ((14 <= ((vector_local_ptr_1[0] & 31) - (vector_local_ptr_1[0] >> 5))) && (((vector_local_ptr_1[0] & 31) - (vector_local_ptr_1[0] >> 5)) < 19)) {
      weight_local_ptr[0] = w_ptr[(((((((int)blockIdx.y) * 25) + (row_local_ptr_1[0] * 5)) + (vector_local_ptr_1[0] & 31)) - (vector_local_ptr_1[0] >> 5)) - 14)];
    }
    staged_shared_ptr[(((row_local_ptr_1[0] * 64) + vector_local_ptr_1[0]) + 3904)] = weight_local_ptr[0];
  }
  first_local_ptr[0] = ((float)bias_ptr[((int)blockIdx.y)]);
  #pragma unroll
  for (int index = 0; index < 16; ++index) {
    sum_local_ptr[index] = first_local_ptr[0];
  }
  async_wait_group_0();
  __syncthreads();
  for (int turn_1 = 0; turn_1 < 2; ++turn_1) {
    band_local_ptr[0] = (((((turn_1 * 128) + (((((int)threadIdx.x) & 7) >> 2) * 32)) + ((((int)threadIdx.x) & 3) * 2)) + 3912) - ((((int)threadIdx.x) >> 3) * 2));
      int2 v_ = make_int2((band_local_ptr[0])+(1*0), (band_local_ptr[0])+(1*1));
      half2 v__1 = make_half2(staged_shared_ptr[v_.x],staged_shared_ptr[v_.y]);
    tap_local_ptr[0] = (*(uint *)(&(v__1)));
      int2 v__2 = make_int2(((band_local_ptr[0] + 8))+(1*0), ((band_local_ptr[0] + 8))+(1*1));
      half2 v__3 = make_half2(staged_shared_ptr[v__2.x],staged_shared_ptr[v__2.y]);
    tap_local_ptr[1] = (*(uint *)(&(v__3)));
      int2 v__4 = make_int2(((band_local_ptr[0] + 16))+(1*0), ((band_local_ptr[0] + 16))+(1*1));
      half2 v__5 = make_half2(staged_shared_ptr[v__4.x],staged_shared_ptr[v__4.y]);
    tap_local_ptr[2] = (*(uint *)(&(v__5)));
      int2 v__6 = make_int2(((band_local_ptr[0] + 64))+(1*0), ((band_local_ptr[0] + 64))+(1*1));
      half2 v__7 = make_half2(staged_shared_ptr[v__6.x],staged_shared_ptr[v__6.y]);
    tap_local_ptr[3] = (*(uint *)(&(v__7)));
      int2 v__8 = make_int2(((band_local_ptr[0] + 72))+(1*0), ((band_local_ptr[0] + 72))+(1*1));
      half2 v__9 = make_half2(staged_shared_ptr[v__8.x],staged_shared_ptr[v__8.y]);
    tap_local_ptr[4] = (*(uint *)(&(v__9)));
      int2 v__10 = make_int2(((band_local_ptr[0] + 80))+(1*0), ((band_local_ptr[0] + 80))+(1*1));
      half2 v__11 = make_half2(staged_shared_ptr[v__10.x],staged_shared_ptr[v__10.y]);
    tap_local_ptr[5] = (*(uint *)(&(v__11)));
    start_local_ptr[0] = (((((((((int)threadIdx.x) & 15) >> 1) * 488) + ((((int)threadIdx.x) & 1) * 160)) + (turn_1 * 80)) + ((((int)threadIdx.x) >> 4) * 8)) + (((int)threadIdx.y) * 8));
    tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x4_shared_b16(source_local_ptr[0], source_local_ptr[1], source_local_ptr[2], source_local_ptr[3], tvm_builtin_cuda_cvta_generic_to_shared((&(staged_shared_ptr[start_local_ptr[0]]))));
    tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x2_shared_b16(source_local_ptr[4], source_local_ptr[5], tvm_builtin_cuda_cvta_generic_to_shared((&(staged_shared_ptr[(start_local_ptr[0] + 16)]))));
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[0], sum_local_ptr[1], sum_local_ptr[2], sum_local_ptr[3], source_local_ptr[0], source_local_ptr[1], source_local_ptr[2], source_local_ptr[3], tap_local_ptr[0], tap_local_ptr[1], sum_local_ptr[0], sum_local_ptr[1], sum_local_ptr[2], sum_local_ptr[3]);
    tvm_builtin_ptx_mma_sync_aligned_m16n8k8_row_col_f32_f16_f16_f32(sum_local_ptr[0], sum_local_ptr[1], sum_local_ptr[2], sum_local_ptr[3], source_local_ptr[4], source_local_ptr[5], tap_local_ptr[2], sum_local_ptr[0], sum_local_ptr[1], sum_local_ptr[2], sum_local_ptr[3]);
    tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x4_shared_b16(source_local_ptr_1[0], source_local_ptr_1[1], source_local_ptr_1[2], source_local_ptr_1[3], tvm_builtin_cuda_cvta_generic_to_shared((&(staged_shared_ptr[(start_local_ptr[0] + 40)]))));
    tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x2_shared_b16(source_local_ptr_1[4], source_local_ptr_1[5], tvm_builtin_cuda_cvta_generic_to_shared((&(staged_shared_ptr[(start_local_ptr[0] + 56)]))));
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[0], sum_local_ptr[1], sum_local_ptr[2], sum_local_ptr[3], source_local_ptr_1[0], source_local_ptr_1[1], source_local_ptr_1[2], source_local_ptr_1[3], tap_local_ptr[3], tap_local_ptr[4], sum_local_ptr[0], sum_local_ptr[1], sum_local_ptr[2], sum_local_ptr[3]);
    tvm_builtin_ptx_mma_sync_aligned_m16n8k8_row_col_f32_f16_f16_f32(sum_local_ptr[0], sum_local_ptr[1], sum_local_ptr[2], sum_local_ptr[3], source_local_ptr_1[4], source_local_ptr_1[5], tap_local_ptr[5], sum_local_ptr[0], sum_local_ptr[1], sum_local_ptr[2], sum_local_ptr[3]);
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[4], sum_local_ptr[5], sum_local_ptr[6], sum_local_ptr[7], source_local_ptr_1[0], source_local_ptr_1[1], source_local_ptr_1[2], source_local_ptr_1[3], tap_local_ptr[0], tap_local_ptr[1], sum_local_ptr[4], sum_local_ptr[5], sum_local_ptr[6], sum_local_ptr[7]);
    tvm_builtin_ptx_mma_sync_aligned_m16n8k8_row_col_f32_f16_f16_f32(sum_local_ptr[4], sum_local_ptr[5], sum_local_ptr[6], sum_local_ptr[7], source_local_ptr_1[4], source_local_ptr_1[5], tap_local_ptr[2], sum_local_ptr[4], sum_local_ptr[5], sum_local_ptr[6], sum_local_ptr[7]);
    tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x4_shared_b16(source_local_ptr_2[0], source_local_ptr_2[1], source_local_ptr_2[2], source_local_ptr_2[3], tvm_builtin_cuda_cvta_generic_to_shared((&(staged_shared_ptr[(start_local_ptr[0] + 80)]))));
    tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x2_shared_b16(source_local_ptr_2[4], source_local_ptr_2[5], tvm_builtin_cuda_cvta_generic_to_shared((&(staged_shared_ptr[(start_local_ptr[0] + 96)]))));
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[4], sum_local_ptr[5], sum_local_ptr[6], sum_local_ptr[7], source_local_ptr_2[0], source_local_ptr_2[1], source_local_ptr_2[2], source_local_ptr_2[3], tap_local_ptr[3], tap_local_ptr[4], sum_local_ptr[4], sum_local_ptr[5], sum_local_ptr[6], sum_local_ptr[7]);
    tvm_builtin_ptx_mma_sync_aligned_m16n8k8_row_col_f32_f16_f16_f32(sum_local_ptr[4], sum_local_ptr[5], sum_local_ptr[6], sum_local_ptr[7], source_local_ptr_2[4], source_local_ptr_2[5], tap_local_ptr[5], sum_local_ptr[4], sum_local_ptr[5], sum_local_ptr[6], sum_local_ptr[7]);
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[8], sum_local_ptr[9], sum_local_ptr[10], sum_local_ptr[11], source_local_ptr_2[0], source_local_ptr_2[1], source_local_ptr_2[2], source_local_ptr_2[3], tap_local_ptr[0], tap_local_ptr[1], sum_local_ptr[8], sum_local_ptr[9], sum_local_ptr[10], sum_local_ptr[11]);
    tvm_builtin_ptx_mma_sync_aligned_m16n8k8_row_col_f32_f16_f16_f32(sum_local_ptr[8], sum_local_ptr[9], sum_local_ptr[10], sum_local_ptr[11], source_local_ptr_2[4], source_local_ptr_2[5], tap_local_ptr[2], sum_local_ptr[8], sum_local_ptr[9], sum_local_ptr[10], sum_local_ptr[11]);
    tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x4_shared_b16(source_local_ptr_3[0], source_local_ptr_3[1], source_local_ptr_3[2], source_local_ptr_3[3], tvm_builtin_cuda_cvta_generic_to_shared((&(staged_shared_ptr[(start_local_ptr[0] + 120)]))));
    tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x2_shared_b16(source_local_ptr_3[4], source_local_ptr_3[5], tvm_builtin_cuda_cvta_generic_to_shared((&(staged_shared_ptr[(start_local_ptr[0] + 136)]))));
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[8], sum_local_ptr[9], sum_local_ptr[10], sum_local_ptr[11], source_local_ptr_3[0], source_local_ptr_3[1], source_local_ptr_3[2], source_local_ptr_3[3], tap_local_ptr[3], tap_local_ptr[4], sum_local_ptr[8], sum_local_ptr[9], sum_local_ptr[10], sum_local_ptr[11]);
    tvm_builtin_ptx_mma_sync_aligned_m16n8k8_row_col_f32_f16_f16_f32(sum_local_ptr[8], sum_local_ptr[9], sum_local_ptr[10], sum_local_ptr[11], source_local_ptr_3[4], source_local_ptr_3[5], tap_local_ptr[5], sum_local_ptr[8], sum_local_ptr[9], sum_local_ptr[10], sum_local_ptr[11]);
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[12], sum_local_ptr[13], sum_local_ptr[14], sum_local_ptr[15], source_local_ptr_3[0], source_local_ptr_3[1], source_local_ptr_3[2], source_local_ptr_3[3], tap_local_ptr[0], tap_local_ptr[1], sum_local_ptr[12], sum_local_ptr[13], sum_local_ptr[14], sum_local_ptr[15]);
    tvm_builtin_ptx_mma_sync_aligned_m16n8k8_row_col_f32_f16_f16_f32(sum_local_ptr[12], sum_local_ptr[13], sum_local_ptr[14], sum_local_ptr[15], source_local_ptr_3[4], source_local_ptr_3[5], tap_local_ptr[2], sum_local_ptr[12], sum_local_ptr[13], sum_local_ptr[14], sum_local_ptr[15]);
    tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x4_shared_b16(source_local_ptr_4[0], source_local_ptr_4[1], source_local_ptr_4[2], source_local_ptr_4[3], tvm_builtin_cuda_cvta_generic_to_shared((&(staged_shared_ptr[(start_local_ptr[0] + 160)]))));
    tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x2_shared_b16(source_local_ptr_4[4], source_local_ptr_4[5], tvm_builtin_cuda_cvta_generic_to_shared((&(staged_shared_ptr[(start_local_ptr[0] + 176)]))));
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[12], sum_local_ptr[13], sum_local_ptr[14], sum_local_ptr[15], source_local_ptr_4[0], source_local_ptr_4[1], source_local_ptr_4[2], source_local_ptr_4[3], tap_local_ptr[3], tap_local_ptr[4], sum_local_ptr[12], sum_local_ptr[13], sum_local_ptr[14], sum_local_ptr[15]);
    tvm_builtin_ptx_mma_sync_aligned_m16n8k8_row_col_f32_f16_f16_f32(sum_local_ptr[12], sum_local_ptr[13], sum_local_ptr[14], sum_local_ptr[15], source_local_ptr_4[4], source_local_ptr_4[5], tap_local_ptr[5], sum_local_ptr[12], sum_local_ptr[13], sum_local_ptr[14], sum_local_ptr[15]);
  }
  band_local_ptr_1[0] = ((((((((int)threadIdx.x) & 7) >> 2) * 32) + ((((int)threadIdx.x) & 3) * 2)) + 4168) - ((((int)threadIdx.x) >> 3) * 2));
    int2 v__12 = make_int2((band_local_ptr_1[0])+(1*0), (band_local_ptr_1[0])+(1*1));
    half2 v__13 = make_half2(staged_shared_ptr[v__12.x],staged_shared_ptr[v__12.y]);
  tap_local_ptr_1[0] = (*(uint *)(&(v__13)));
    int2 v__14 = make_int2(((band_local_ptr_1[0] + 8))+(1*0), ((band_local_ptr_1[0] + 8))+(1*1));
    half2 v__15 = make_half2(staged_shared_ptr[v__14.x],staged_shared_ptr[v__14.y]);
  tap_local_ptr_1[1] = (*(uint *)(&(v__15)));
    int2 v__16 = make_int2(((band_local_ptr_1[0] + 16))+(1*0), ((band_local_ptr_1[0] + 16))+(1*1));
    half2 v__17 = make_half2(staged_shared_ptr[v__16.x],staged_shared_ptr[v__16.y]);
  tap_local_ptr_1[2] = (*(uint *)(&(v__17)));
  start_local_ptr_1[0] = ((((((((int)threadIdx.x) & 15) >> 1) * 488) + ((((int)threadIdx.x) & 1) * 160)) + ((((int)threadIdx.x) >> 4) * 8)) + (((int)threadIdx.y) * 8));
  tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x4_shared_b16(source_local_ptr_5[0], source_local_ptr_5[1], source_local_ptr_5[2], source_local_ptr_5[3], tvm_builtin_cuda_cvta_generic_to_shared((&(staged_shared_ptr[(start_local_ptr_1[0] + 160)]))));
  tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x2_shared_b16(source_local_ptr_5[4], source_local_ptr_5[5], tvm_builtin_cuda_cvta_generic_to_shared((&(staged_shared_ptr[(start_local_ptr_1[0] + 176)]))));
  tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[0], sum_local_ptr[1], sum_local_ptr[2], sum_local_ptr[3], source_local_ptr_5[0], source_local_ptr_5[1], source_local_ptr_5[2], source_local_ptr_5[3], tap_local_ptr_1[0], tap_local_ptr_1[1], sum_local_ptr[0], sum_local_ptr[1], sum_local_ptr[2], sum_local_ptr[3]);
  tvm_builtin_ptx_mma_sync_aligned_m16n8k8_row_col_f32_f16_f16_f32(sum_local_ptr[0], sum_local_ptr[1], sum_local_ptr[2], sum_local_ptr[3], source_local_ptr_5[4], source_local_ptr_5[5], tap_local_ptr_1[2], sum_local_ptr[0], sum_local_ptr[1], sum_local_ptr[2], sum_local_ptr[3]);
  tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x4_shared_b16(source_local_ptr_6[0], source_local_ptr_6[1], source_local_ptr_6[2], source_local_ptr_6[3], tvm_builtin_cuda_cvta_generic_to_shared((&(staged_shared_ptr[(start_local_ptr_1[0] + 200)]))));
  tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x2_shared_b16(source_local_ptr_6[4], source_local_ptr_6[5], tvm_builtin_cuda_cvta_generic_to_shared((&(staged_shared_ptr[(start_local_ptr_1[0] + 216)]))));
  tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[4], sum_local_ptr[5], sum_local_ptr[6], sum_local_ptr[7], source_local_ptr_6[0], source_local_ptr_6[1], source_local_ptr_6[2], source_local_ptr_6[3], tap_local_ptr_1[0], tap_local_ptr_1[1], sum_local_ptr[4], sum_local_ptr[5], sum_local_ptr[6], sum_local_ptr[7]);
  tvm_builtin_ptx_mma_sync_aligned_m16n8k8_row_col_f32_f16_f16_f32(sum_local_ptr[4], sum_local_ptr[5], sum_local_ptr[6], sum_local_ptr[7], source_local_ptr_6[4], source_local_ptr_6[5], tap_local_ptr_1[2], sum_local_ptr[4], sum_local_ptr[5], sum_local_ptr[6], sum_local_ptr[7]);
  tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x4_shared_b16(source_local_ptr_7[0], source_local_ptr_7[1], source_local_ptr_7[2], source_local_ptr_7[3], tvm_builtin_cuda_cvta_generic_to_shared((&(staged_shared_ptr[(start_local_ptr_1[0] + 240)]))));
  tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x2_shared_b16(source_local_ptr_7[4], source_local_ptr_7[5], tvm_builtin_cuda_cvta_generic_to_shared((&(staged_shared_ptr[(start_local_ptr_1[0] + 256)]))));
  tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[8], sum_local_ptr[9], sum_local_ptr[10], sum_local_ptr[11], source_local_ptr_7[0], source_local_ptr_7[1], source_local_ptr_7[2], source_local_ptr_7[3], tap_local_ptr_1[0], tap_local_ptr_1[1], sum_local_ptr[8], sum_local_ptr[9], sum_local_ptr[10], sum_local_ptr[11]);
  tvm_builtin_ptx_mma_sync_aligned_m16n8k8_row_col_f32_f16_f16_f32(sum_local_ptr[8], sum_local_ptr[9], sum_local_ptr[10], sum_local_ptr[11], source_local_ptr_7[4], source_local_ptr_7[5], tap_local_ptr_1[2], sum_local_ptr[8], sum_local_ptr[9], sum_local_ptr[10], sum_local_ptr[11]);
  tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x4_shared_b16(source_local_ptr_8[0], source_local_ptr_8[1], source_local_ptr_8[2], source_local_ptr_8[3], tvm_builtin_cuda_cvta_generic_to_shared((&(staged_shared_ptr[(start_local_ptr_1[0] + 280)]))));
  tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x2_shared_b16(source_local_ptr_8[4], source_local_ptr_8[5], tvm_builtin_cuda_cvta_generic_to_shared((&(staged_shared_ptr[(start_local_ptr_1[0] + 296)]))));
  tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[12], sum_local_ptr[13], sum_local_ptr[14], sum_local_ptr[15], source_local_ptr_8[0], source_local_ptr_8[1], source_local_ptr_8[2], source_local_ptr_8[3], tap_local_ptr_1[0], tap_local_ptr_1[1], sum_local_ptr[12], sum_local_ptr[13], sum_local_ptr[14], sum_local_ptr[15]);
  tvm_builtin_ptx_mma_sync_aligned_m16n8k8_row_col_f32_f16_f16_f32(sum_local_ptr[12], sum_local_ptr[13], sum_local_ptr[14], sum_local_ptr[15], source_local_ptr_8[4], source_local_ptr_8[5], tap_local_ptr_1[2], sum_local_ptr[12], sum_local_ptr[13], sum_local_ptr[14], sum_local_ptr[15]);
  __syncthreads();
  result_at_local_ptr[0] = (((((((int)threadIdx.x) >> 3) * 200) + (((((int)threadIdx.x) & 7) >> 2) * 96)) + (((int)threadIdx.y) * 8)) + ((((int)threadIdx.x) & 3) * 2));
  rounded_local_ptr[0] = ((half)sum_local_ptr[0]);
  rounded_local_ptr[1] = ((half)sum_local_ptr[1]);
  *(half2*)(staged_shared_ptr + result_at_local_ptr[0]) = *(half2*)(rounded_local_ptr + 0);
  rounded_local_ptr_1[0] = ((half)sum_local_ptr[4]);
  rounded_local_ptr_1[1] = ((half)sum_local_ptr[5]);
  *(half2*)(staged_shared_ptr + (result_at_local_ptr[0] + 24)) = *(half2*)(rounded_local_ptr_1 + 0);
  rounded_local_ptr_2[0] = ((half)sum_local_ptr[8]);
  rounded_local_ptr_2[1] = ((half)sum_local_ptr[9]);
  *(half2*)(staged_shared_ptr + (result_at_local_ptr[0] + 48)) = *(half2*)(rounded_local_ptr_2 + 0);
  rounded_local_ptr_3[0] = ((half)sum_local_ptr[12]);
  rounded_local_ptr_3[1] = ((half)sum_local_ptr[13]);
  *(half2*)(staged_shared_ptr + (result_at_local_ptr[0] + 72)) = *(half2*)(rounded_local_ptr_3 + 0);
  result_at_local_ptr_1[0] = ((((((((int)threadIdx.x) >> 3) * 200) + (((((int)threadIdx.x) & 7) >> 2) * 96)) + (((int)threadIdx.y) * 8)) + ((((int)threadIdx.x) & 3) * 2)) + 800);
  rounded_local_ptr_4[0] = ((half)sum_local_ptr[2]);
  rounded_local_ptr_4[1] = ((half)sum_local_ptr[3]);
  *(half2*)(staged_shared_ptr + result_at_local_ptr_1[0]) = *(half2*)(rounded_local_ptr_4 + 0);
  rounded_local_ptr_5[0] = ((half)sum_local_ptr[6]);
  rounded_local_ptr_5[1] = ((half)sum_local_ptr[7]);
  *(half2*)(staged_shared_ptr + (result_at_local_ptr_1[0] + 24)) = *(half2*)(rounded_local_ptr_5 + 0);
  rounded_local_ptr_6[0] = ((half)sum_local_ptr[10]);
  rounded_local_ptr_6[1] = ((half)sum_local_ptr[11]);
  *(half2*)(staged_shared_ptr + (result_at_local_ptr_1[0] + 48)) = *(half2*)(rounded_local_ptr_6 + 0);
  rounded_local_ptr_7[0] = ((half)sum_local_ptr[14]);
  rounded_local_ptr_7[1] = ((half)sum_local_ptr[15]);
  *(half2*)(staged_shared_ptr + (result_at_local_ptr_1[0] + 72)) = *(half2*)(rounded_local_ptr_7 + 0);
  __syncthreads();
  first_row_local_ptr_2[0] = ((((int)threadIdx.y) * 16) + (((int)threadIdx.x) >> 1));
  vector_local_ptr_2[0] = (((int)threadIdx.x) & 1);
  first_row_local_ptr_2[0] = first_row_local_ptr_2[0];
  if (first_row_local_ptr_2[0] < 8) {
    #pragma unroll
    for (int image_1 = 0; image_1 < 8; ++image_1) {
      if (((((int)blockIdx.x) * 8) + image_1) < n) {
        *(uint4*)(y_ptr + (((((((int)blockIdx.x) * 4096) + (image_1 * 512)) + (((int)blockIdx.y) * 128)) + (first_row_local_ptr_2[0] * 16)) + (vector_local_ptr_2[0] * 8))) = *(uint4*)(staged_shared_ptr + (((image_1 * 200) + (first_row_local_ptr_2[0] * 24)) + (vector_local_ptr_2[0] * 8)));
      }
    }
  }
}
