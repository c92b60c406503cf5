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

__forceinline__ __device__ void tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x4_trans_shared_b16(uint32_t& __r0, uint32_t& __r1, uint32_t& __r2, uint32_t& __r3, uint32_t __p) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(__r0), "=r"(__r1), "=r"(__r2), "=r"(__r3) : "r"(__p) : "memory");
}

__forceinline__ __device__ void async_wait_group_0() {
  asm volatile("cp.async.wait_group 0;" :  :  : "memory");
}

__forceinline__ __device__ void async_commit_group() {
  asm volatile("cp.async.commit_group;" :  : );
}

__forceinline__ __device__ void tvm_builtin_ptx_cp_async_cg_src_size_async_cg_shared_global_16(uint32_t __dst_mem, const void* __src_mem, uint32_t __src_size) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :  : "r"(__dst_mem), "l"(__src_mem), "r"(__src_size) : "memory");
}

__forceinline__ __device__ unsigned int tvm_builtin_cuda_cvta_generic_to_shared(void* p) {
    return __cvta_generic_to_shared(p);
}

extern "C" __global__ void __launch_bounds__(64, 10) main_kernel(half* __restrict__ dy_ptr, float* __restrict__ workspace_ptr, half* __restrict__ x_ptr, int n) {
  alignas(64) float sum_local_ptr[24];
  __shared__ alignas(64) half staged_shared_ptr[4096];
  alignas(64) int first_image_local_ptr[1];
  alignas(64) int top_local_ptr[1];
  alignas(64) int first_row_local_ptr[1];
  alignas(64) int vector_local_ptr[1];
  alignas(64) int row_local_ptr[1];
  alignas(64) int first_row_local_ptr_1[1];
  alignas(64) int vector_local_ptr_1[1];
  alignas(64) int row_local_ptr_1[1];
  alignas(64) int dy_at_local_ptr[1];
  alignas(64) uint gradient_local_ptr[16];
  alignas(64) int x_at_local_ptr[1];
  alignas(64) uint source_local_ptr[4];
  alignas(64) uint source_local_ptr_1[4];
  alignas(64) uint source_local_ptr_2[4];
  alignas(64) uint source_local_ptr_3[4];
  alignas(64) uint source_local_ptr_4[4];
  alignas(64) uint source_local_ptr_5[4];
  alignas(64) int own_local_ptr[1];
  alignas(64) float added_local_ptr[1];
  alignas(64) int first_local_ptr[1];
  alignas(64) float added_local_ptr_1[1];
  alignas(64) int first_local_ptr_1[1];
  alignas(64) float added_local_ptr_2[1];
  alignas(64) int first_local_ptr_2[1];
  #pragma unroll
  for (int index = 0; index < 24; ++index) {
    sum_local_ptr[index] = 0x0p+0f/*0.000000e+00*/;
  }
  for (int turn = 0; turn < (((((n + 7) >> 3) + 1) - (((int)blockIdx.x) & 1)) / 2); ++turn) {
    __syncthreads();
    int item = ((turn * 2) + (((int)blockIdx.x) & 1));
    first_image_local_ptr[0] = ((turn * 16) + ((((int)blockIdx.x) & 1) * 8));
    top_local_ptr[0] = 0;
    first_row_local_ptr[0] = (((((int)threadIdx.z) * 32) + ((int)threadIdx.x)) / 3);
    if (first_row_local_ptr[0] < 21) {
      vector_local_ptr[0] = (((((int)threadIdx.z) * 32) + ((int)threadIdx.x)) % 3);
      row_local_ptr[0] = first_row_local_ptr[0];
      if (row_local_ptr[0] < 13) {
        #pragma unroll
        for (int image = 0; image < 8; ++image) {
          tvm_builtin_ptx_cp_async_cg_src_size_async_cg_shared_global_16(tvm_builtin_cuda_cvta_generic_to_shared((&(staged_shared_ptr[(((image * 312) + (row_local_ptr[0] * 24)) + (vector_local_ptr[0] * 8))]))), (&(x_ptr[(((((((first_image_local_ptr[0] * 512) + (image * 512)) + ((((int)blockIdx.x) >> 1) * 128)) + (top_local_ptr[0] * 16)) + (row_local_ptr[0] * 16)) + (vector_local_ptr[0] * 8)) - 32)])), ((((((2 <= (top_local_ptr[0] + row_local_ptr[0])) && ((top_local_ptr[0] + row_local_ptr[0]) < 10)) && (0 <= vector_local_ptr[0])) && (vector_local_ptr[0] < 2)) && ((first_image_local_ptr[0] + image) < n)) ? (uint)16 : (uint)0));
        }
      }
    }
    first_row_local_ptr_1[0] = (((((int)threadIdx.z) * 32) + ((int)threadIdx.x)) / 3);
    if (first_row_local_ptr_1[0] < 21) {
      vector_local_ptr_1[0] = (((((int)threadIdx.z) * 32) + ((int)threadIdx.x)) % 3);
      row_local_ptr_1[0] = first_row_local_ptr_1[0];
      if (row_local_ptr_1[0] < 8) {
        #pragma unroll
        for (int image_1 = 0; image_1 < 8; ++image_1) {
          tvm_builtin_ptx_cp_async_cg_src_size_async_cg_shared_global_16(tvm_builtin_cuda_cvta_generic_to_shared((&(staged_shared_ptr[((((image_1 * 200) + (row_local_ptr_1[0] * 24)) + (vector_local_ptr_1[0] * 8)) + 2496)]))), (&(dy_ptr[((((((first_image_local_ptr[0] * 512) + (image_1 * 512)) + ((((int)blockIdx.x) >> 1) * 128)) + (top_local_ptr[0] * 16)) + (row_local_ptr_1[0] * 16)) + (vector_local_ptr_1[0] * 8))])), ((((((0 <= (top_local_ptr[0] + row_local_ptr_1[0])) && ((top_local_ptr[0] + row_local_ptr_1[0]) < 8)) && (0 <= vector_local_ptr_1[0])) && (vector_local_ptr_1[0] < 2)) && ((first_image_local_ptr[0] + image_1) < n)) ? (uint)16 : (uint)0));
        }
      }
    }
    async_commit_group();
    async_wait_group_0();
    __syncthreads();
    dy_at_local_ptr[0] = ((((((((int)threadIdx.x) & 15) >> 1) * 200) + ((((int)threadIdx.x) & 1) * 96)) + ((((int)threadIdx.x) >> 4) * 8)) + 2496);
    tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x4_trans_shared_b16(gradient_local_ptr[0], gradient_local_ptr[1], gradient_local_ptr[2], gradient_local_ptr[3], tvm_builtin_cuda_cvta_generic_to_shared((&(staged_shared_ptr[dy_at_local_ptr[0]]))));
    tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x4_trans_shared_b16(gradient_local_ptr[4], gradient_local_ptr[5], gradient_local_ptr[6], gradient_local_ptr[7], tvm_builtin_cuda_cvta_generic_to_shared((&(staged_shared_ptr[(dy_at_local_ptr[0] + 24)]))));
    tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x4_trans_shared_b16(gradient_local_ptr[8], gradient_local_ptr[9], gradient_local_ptr[10], gradient_local_ptr[11], tvm_builtin_cuda_cvta_generic_to_shared((&(staged_shared_ptr[(dy_at_local_ptr[0] + 48)]))));
    tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x4_trans_shared_b16(gradient_local_ptr[12], gradient_local_ptr[13], gradient_local_ptr[14], gradient_local_ptr[15], tvm_builtin_cuda_cvta_generic_to_shared((&(staged_shared_ptr[(dy_at_local_ptr[0] + 72)]))));
    x_at_local_ptr[0] = ((((((((int)threadIdx.x) >> 4) * 1248) + (((((int)threadIdx.x) & 7) >> 1) * 312)) + ((((int)threadIdx.x) & 1) * 96)) + (((int)threadIdx.z) * 72)) + (((((int)threadIdx.x) & 15) >> 3) * 8));
    tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x4_trans_shared_b16(source_local_ptr[0], source_local_ptr[1], source_local_ptr[2], source_local_ptr[3], tvm_builtin_cuda_cvta_generic_to_shared((&(staged_shared_ptr[x_at_local_ptr[0]]))));
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[0], sum_local_ptr[1], sum_local_ptr[2], sum_local_ptr[3], source_local_ptr[0], source_local_ptr[1], source_local_ptr[2], source_local_ptr[3], gradient_local_ptr[0], gradient_local_ptr[1], sum_local_ptr[0], sum_local_ptr[1], sum_local_ptr[2], sum_local_ptr[3]);
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[4], sum_local_ptr[5], sum_local_ptr[6], sum_local_ptr[7], source_local_ptr[0], source_local_ptr[1], source_local_ptr[2], source_local_ptr[3], gradient_local_ptr[2], gradient_local_ptr[3], sum_local_ptr[4], sum_local_ptr[5], sum_local_ptr[6], sum_local_ptr[7]);
    tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x4_trans_shared_b16(source_local_ptr_1[0], source_local_ptr_1[1], source_local_ptr_1[2], source_local_ptr_1[3], tvm_builtin_cuda_cvta_generic_to_shared((&(staged_shared_ptr[(x_at_local_ptr[0] + 24)]))));
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[8], sum_local_ptr[9], sum_local_ptr[10], sum_local_ptr[11], source_local_ptr_1[0], source_local_ptr_1[1], source_local_ptr_1[2], source_local_ptr_1[3], gradient_local_ptr[0], gradient_local_ptr[1], sum_local_ptr[8], sum_local_ptr[9], sum_local_ptr[10], sum_local_ptr[11]);
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[12], sum_local_ptr[13], sum_local_ptr[14], sum_local_ptr[15], source_local_ptr_1[0], source_local_ptr_1[1], source_local_ptr_1[2], source_local_ptr_1[3], gradient_local_ptr[2], gradient_local_ptr[3], sum_local_ptr[12], sum_local_ptr[13], sum_local_ptr[14], sum_local_ptr[15]);
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[0], sum_local_ptr[1], sum_local_ptr[2], sum_local_ptr[3], source_local_ptr_1[0], source_local_ptr_1[1], source_local_ptr_1[2], source_local_ptr_1[3], gradient_local_ptr[4], gradient_local_ptr[5], sum_local_ptr[0], sum_local_ptr[1], sum_local_ptr[2], sum_local_ptr[3]);
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[4], sum_local_ptr[5], sum_local_ptr[6], sum_local_ptr[7], source_local_ptr_1[0], source_local_ptr_1[1], source_local_ptr_1[2], source_local_ptr_1[3], gradient_local_ptr[6], gradient_local_ptr[7], sum_local_ptr[4], sum_local_ptr[5], sum_local_ptr[6], sum_local_ptr[7]);
    tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x4_trans_shared_b16(source_local_ptr_2[0], source_local_ptr_2[1], source_local_ptr_2[2], source_local_ptr_2[3], tvm_builtin_cuda_cvta_generic_to_shared((&(staged_shared_ptr[(x_at_local_ptr[0] + 48)]))));
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[16], sum_local_ptr[17], sum_local_ptr[18], sum_local_ptr[19], source_local_ptr_2[0], source_local_ptr_2[1], source_local_ptr_2[2], source_local_ptr_2[3], gradient_local_ptr[0], gradient_local_ptr[1], sum_local_ptr[16], sum_local_ptr[17], sum_local_ptr[18], sum_local_ptr[19]);
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[20], sum_local_ptr[21], sum_local_ptr[22], sum_local_ptr[23], source_local_ptr_2[0], source_local_ptr_2[1], source_local_ptr_2[2], source_local_ptr_2[3], gradient_local_ptr[2], gradient_local_ptr[3], sum_local_ptr[20], sum_local_ptr[21], sum_local_ptr[22], sum_local_ptr[23]);
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[8], sum_local_ptr[9], sum_local_ptr[10], sum_local_ptr[11], source_local_ptr_2[0], source_local_ptr_2[1], source_local_ptr_2[2], source_local_ptr_2[3], gradient_local_ptr[4], gradient_local_ptr[5], sum_local_ptr[8], sum_local_ptr[9], sum_local_ptr[10], sum_local_ptr[11]);
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[12], sum_local_ptr[13], sum_local_ptr[14], sum_local_ptr[15], source_local_ptr_2[0], source_local_ptr_2[1], source_local_ptr_2[2], source_local_ptr_2[3], gradient_local_ptr[6], gradient_local_ptr[7], sum_local_ptr[12], sum_local_ptr[13], sum_local_ptr[14], sum_local_ptr[15]);
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[0], sum_local_ptr[1], sum_local_ptr[2], sum_local_ptr[3], source_local_ptr_2[0], source_local_ptr_2[1], source_local_ptr_2[2], source_local_ptr_2[3], gradient_local_ptr[8], gradient_local_ptr[9], sum_local_ptr[0], sum_local_ptr[1], sum_local_ptr[2], sum_local_ptr[3]);
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[4], sum_local_ptr[5], sum_local_ptr[6], sum_local_ptr[7], source_local_ptr_2[0], source_local_ptr_2[1], source_local_ptr_2[2], source_local_ptr_2[3], gradient_local_ptr[10], gradient_local_ptr[11], sum_local_ptr[4], sum_local_ptr[5], sum_local_ptr[6], sum_local_ptr[7]);
    tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x4_trans_shared_b16(source_local_ptr_3[0], source_local_ptr_3[1], source_local_ptr_3[2], source_local_ptr_3[3], tvm_builtin_cuda_cvta_generic_to_shared((&(staged_shared_ptr[(x_at_local_ptr[0] + 72)]))));
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[16], sum_local_ptr[17], sum_local_ptr[18], sum_local_ptr[19], source_local_ptr_3[0], source_local_ptr_3[1], source_local_ptr_3[2], source_local_ptr_3[3], gradient_local_ptr[4], gradient_local_ptr[5], sum_local_ptr[16], sum_local_ptr[17], sum_local_ptr[18], sum_local_ptr[19]);
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[20], sum_local_ptr[21], sum_local_ptr[22], sum_local_ptr[23], source_local_ptr_3[0], source_local_ptr_3[1], source_local_ptr_3[2], source_local_ptr_3[3], gradient_local_ptr[6], gradient_local_ptr[7], sum_local_ptr[20], sum_local_ptr[21], sum_local_ptr[22], sum_local_ptr[23]);
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[8], sum_local_ptr[9], sum_local_ptr[10], sum_local_ptr[11], source_local_ptr_3[0], source_local_ptr_3[1], source_local_ptr_3[2], source_local_ptr_3[3], gradient_local_ptr[8], gradient_local_ptr[9], sum_local_ptr[8], sum_local_ptr[9], sum_local_ptr[10], sum_local_ptr[11]);
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[12], sum_local_ptr[13], sum_local_ptr[14], sum_local_ptr[15], source_local_ptr_3[0], source_local_ptr_3[1], source_local_ptr_3[2], source_local_ptr_3[3], gradient_local_ptr[10], gradient_local_ptr[11], sum_local_ptr[12], sum_local_ptr[13], sum_local_ptr[14], sum_local_ptr[15]);
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[0], sum_local_ptr[1], sum_local_ptr[2], sum_local_ptr[3], source_local_ptr_3[0], source_local_ptr_3[1], source_local_ptr_3[2], source_local_ptr_3[3], gradient_local_ptr[12], gradient_local_ptr[13], sum_local_ptr[0], sum_local_ptr[1], sum_local_ptr[2], sum_local_ptr[3]);
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[4], sum_local_ptr[5], sum_local_ptr[6], sum_local_ptr[7], source_local_ptr_3[0], source_local_ptr_3[1], source_local_ptr_3[2], source_local_ptr_3[3], gradient_local_ptr[14], gradient_local_ptr[15], sum_local_ptr[4], sum_local_ptr[5], sum_local_ptr[6], sum_local_ptr[7]);
    tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x4_trans_shared_b16(source_local_ptr_4[0], source_local_ptr_4[1], source_local_ptr_4[2], source_local_ptr_4[3], tvm_builtin_cuda_cvta_generic_to_shared((&(staged_shared_ptr[(x_at_local_ptr[0] + 96)]))));
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[16], sum_local_ptr[17], sum_local_ptr[18], sum_local_ptr[19], source_local_ptr_4[0], source_local_ptr_4[1], source_local_ptr_4[2], source_local_ptr_4[3], gradient_local_ptr[8], gradient_local_ptr[9], sum_local_ptr[16], sum_local_ptr[17], sum_local_ptr[18], sum_local_ptr[19]);
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[20], sum_local_ptr[21], sum_local_ptr[22], sum_local_ptr[23], source_local_ptr_4[0], source_local_ptr_4[1], source_local_ptr_4[2], source_local_ptr_4[3], gradient_local_ptr[10], gradient_local_ptr[11], sum_local_ptr[20], sum_local_ptr[21], sum_local_ptr[22], sum_local_ptr[23]);
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[8], sum_local_ptr[9], sum_local_ptr[10], sum_local_ptr[11], source_local_ptr_4[0], source_local_ptr_4[1], source_local_ptr_4[2], source_local_ptr_4[3], gradient_local_ptr[12], gradient_local_ptr[13], sum_local_ptr[8], sum_local_ptr[9], sum_local_ptr[10], sum_local_ptr[11]);
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[12], sum_local_ptr[13], sum_local_ptr[14], sum_local_ptr[15], source_local_ptr_4[0], source_local_ptr_4[1], source_local_ptr_4[2], source_local_ptr_4[3], gradient_local_ptr[14], gradient_local_ptr[15], sum_local_ptr[12], sum_local_ptr[13], sum_local_ptr[14], sum_local_ptr[15]);
    tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x4_trans_shared_b16(source_local_ptr_5[0], source_local_ptr_5[1], source_local_ptr_5[2], source_local_ptr_5[3], tvm_builtin_cuda_cvta_generic_to_shared((&(staged_shared_ptr[(x_at_local_ptr[0] + 120)]))));
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[16], sum_local_ptr[17], sum_local_ptr[18], sum_local_ptr[19], source_local_ptr_5[0], source_local_ptr_5[1], source_local_ptr_5[2], source_local_ptr_5[3], gradient_local_ptr[12], gradient_local_ptr[13], sum_local_ptr[16], sum_local_ptr[17], sum_local_ptr[18], sum_local_ptr[19]);
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[20], sum_local_ptr[21], sum_local_ptr[22], sum_local_ptr[23], source_local_ptr_5[0], source_local_ptr_5[1], source_local_ptr_5[2], source_local_ptr_5[3], gradient_local_ptr[14], gradient_local_ptr[15], sum_local_ptr[20], sum_local_ptr[21], sum_local_ptr[22], sum_local_ptr[23]);
  }
  own_local_ptr[0] = (((((int)threadIdx.z) * 325) + ((((int)threadIdx.x) & 3) * 40)) + (((int)threadIdx.x) >> 2));
  __syncthreads();
  ((float*)staged_shared_ptr)[own_local_ptr[0]] = sum_local_ptr[0];
  ((float*)staged_shared_ptr)[(own_local_ptr[0] + 20)] = sum_local_ptr[1];
  ((float*)staged_shared_ptr)[(own_local_ptr[0] + 8)] = sum_local_ptr[2];
  ((float*)staged_shared_ptr)[(own_local_ptr[0] + 28)] = sum_local_ptr[3];
  ((float*)staged_shared_ptr)[(own_local_ptr[0] + 160)] = sum_local_ptr[4];
  ((float*)staged_shared_ptr)[(own_local_ptr[0] + 180)] = sum_local_ptr[5];
  ((float*)staged_shared_ptr)[(own_local_ptr[0] + 168)] = sum_local_ptr[6];
  ((float*)staged_shared_ptr)[(own_local_ptr[0] + 188)] = sum_local_ptr[7];
  __syncthreads();
  int weight = ((((int)threadIdx.z) * 32) + ((int)threadIdx.x));
  if ((((((int)threadIdx.z) * 16) + (((int)threadIdx.x) >> 1)) < 5) && (((((int)threadIdx.z) * 16) + (((int)threadIdx.x) >> 1)) < 5)) {
    added_local_ptr[0] = 0x0p+0f/*0.000000e+00*/;
    first_local_ptr[0] = ((((((((int)threadIdx.z) * 32) + ((int)threadIdx.x)) / 5) * 325) + (((((int)threadIdx.z) * 32) + ((int)threadIdx.x)) % 5)) - 2);
    #pragma unroll
    for (int column = 0; column < 16; ++column) {
      if ((2 <= (column + (((((int)threadIdx.z) * 32) + ((int)threadIdx.x)) % 5))) && ((column + (((((int)threadIdx.z) * 32) + ((int)threadIdx.x)) % 5)) < 18)) {
        added_local_ptr[0] = (added_local_ptr[0] + ((float*)staged_shared_ptr)[((column * 21) + first_local_ptr[0])]);
      }
    }
    workspace_ptr[(((((((int)blockIdx.x) & 1) * 100) + ((((int)blockIdx.x) >> 1) * 25)) + ((((((int)threadIdx.z) * 32) + ((int)threadIdx.x)) / 5) * 15)) + (((((int)threadIdx.z) * 32) + ((int)threadIdx.x)) % 5))] = added_local_ptr[0];
  }
  __syncthreads();
  ((float*)staged_shared_ptr)[own_local_ptr[0]] = sum_local_ptr[8];
  ((float*)staged_shared_ptr)[(own_local_ptr[0] + 20)] = sum_local_ptr[9];
  ((float*)staged_shared_ptr)[(own_local_ptr[0] + 8)] = sum_local_ptr[10];
  ((float*)staged_shared_ptr)[(own_local_ptr[0] + 28)] = sum_local_ptr[11];
  ((float*)staged_shared_ptr)[(own_local_ptr[0] + 160)] = sum_local_ptr[12];
  ((float*)staged_shared_ptr)[(own_local_ptr[0] + 180)] = sum_local_ptr[13];
  ((float*)staged_shared_ptr)[(own_local_ptr[0] + 168)] = sum_local_ptr[14];
  ((float*)staged_shared_ptr)[(own_local_ptr[0] + 188)] = sum_local_ptr[15];
  __syncthreads();
  int weight_1 = ((((int)threadIdx.z) * 32) + ((int)threadIdx.x));
  if ((((((int)threadIdx.z) * 16) + (((int)threadIdx.x) >> 1)) < 5) && (((((int)threadIdx.z) * 16) + (((int)threadIdx.x) >> 1)) < 5)) {
    added_local_ptr_1[0] = 0x0p+0f/*0.000000e+00*/;
    first_local_ptr_1[0] = ((((((((int)threadIdx.z) * 32) + ((int)threadIdx.x)) / 5) * 325) + (((((int)threadIdx.z) * 32) + ((int)threadIdx.x)) % 5)) - 2);
    #pragma unroll
    for (int column_1 = 0; column_1 < 16; ++column_1) {
      if ((2 <= (column_1 + (((((int)threadIdx.z) * 32) + ((int)threadIdx.x)) % 5))) && ((column_1 + (((((int)threadIdx.z) * 32) + ((int)threadIdx.x)) % 5)) < 18)) {
        added_local_ptr_1[0] = (added_local_ptr_1[0] + ((float*)staged_shared_ptr)[((column_1 * 21) + first_local_ptr_1[0])]);
      }
    }
    workspace_ptr[((((((((int)blockIdx.x) & 1) * 100) + ((((int)blockIdx.x) >> 1) * 25)) + ((((((int)threadIdx.z) * 32) + ((int)threadIdx.x)) / 5) * 15)) + (((((int)threadIdx.z) * 32) + ((int)threadIdx.x)) % 5)) + 5)] = added_local_ptr_1[0];
  }
  __syncthreads();
  ((float*)staged_shared_ptr)[own_local_ptr[0]] = sum_local_ptr[16];
  ((float*)staged_shared_ptr)[(own_local_ptr[0] + 20)] = sum_local_ptr[17];
  ((float*)staged_shared_ptr)[(own_local_ptr[0] + 8)] = sum_local_ptr[18];
  ((float*)staged_shared_ptr)[(own_local_ptr[0] + 28)] = sum_local_ptr[19];
  ((float*)staged_shared_ptr)[(own_local_ptr[0] + 160)] = sum_local_ptr[20];
  ((float*)staged_shared_ptr)[(own_local_ptr[0] + 180)] = sum_local_ptr[21];
  ((float*)staged_shared_ptr)[(own_local_ptr[0] + 168)] = sum_local_ptr[22];
  ((float*)staged_shared_ptr)[(own_local_ptr[0] + 188)] = sum_local_ptr[23];
  __syncthreads();
  int weight_2 = ((((int)threadIdx.z) * 32) + ((int)threadIdx.x));
  if ((((((int)threadIdx.z) * 16) + (((int)threadIdx.x) >> 1)) < 5) && (((((int)threadIdx.z) * 32) + ((int)threadIdx.x)) < 5)) {
    added_local_ptr_2[0] = 0x0p+0f/*0.000000e+00*/;
    first_local_ptr_2[0] = (((((int)threadIdx.z) * 32) + ((int)threadIdx.x)) - 2);
    #pragma unroll
    for (int column_2 = 0; column_2 < 16; ++column_2) {
      if ((1 <= ((((int)threadIdx.z) * 16) + ((((int)threadIdx.x) + column_2) >> 1))) && (((((int)threadIdx.z) * 16) + ((((int)threadIdx.x) + column_2) >> 1)) < 9)) {
        added_local_ptr_2[0] = (added_local_ptr_2[0] + ((float*)staged_shared_ptr)[((column_2 * 21) + first_local_ptr_2[0])]);
      }
    }
    workspace_ptr[((((((((int)blockIdx.x) & 1) * 100) + (((int)threadIdx.z) * 32)) + ((((int)blockIdx.x) >> 1) * 25)) + ((int)threadIdx.x)) + 10)] = added_local_ptr_2[0];
  }
}

extern "C" __global__ void __launch_bounds__(32) main_kernel_1(half* __restrict__ dw_ptr, float* __restrict__ workspace_ptr) {
  alignas(64) float added_local_ptr[1];
  added_local_ptr[0] = 0x0p+0f/*0.000000e+00*/;
  if (((((int)blockIdx.x) * 8) + (((int)threadIdx.x) >> 2)) < 25) {
    for (int turn = 0; turn < 2; ++turn) {
      added_local_ptr[0] = (added_local_ptr[0] + workspace_ptr[(((turn * 100) + (((int)blockIdx.x) * 32)) + ((int)threadIdx.x))]);
    }
  }
  if (((((int)blockIdx.x) * 8) + (((int)threadIdx.x) >> 2)) < 25) {
    dw_ptr[((((int)blockIdx.x) * 32) + ((int)threadIdx.x))] = ((half)added_local_ptr[0]);
  }
}
