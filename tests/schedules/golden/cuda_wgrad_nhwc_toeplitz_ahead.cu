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

typedef unsigned char uchar;

#include <cuda_fp16.h>

typedef unsigned int uint;

__forceinline__ __device__ void tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(float& __d0, float& __d1, float& __d2, float& __d3, uint32_t __a0, uint32_t __a1, uint32_t __a2, uint32_t __a3, uint32_t __b0, uint32_t __b1, float __c0, float __c1, float __c2, float __c3) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};" : "=f"(__d0), "=f"(__d1), "=f"(__d2), "=f"(__d3) : "r"(__a0), "r"(__a1), "r"(__a2), "r"(__a3), "r"(__b0), "r"(__b1), "f"(__c0), "f"(__c1), "f"(__c2), "f"(__c3));
}

__forceinline__ __device__ void tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x4_trans_shared_b16(uint32_t& __r0, uint32_t& __r1, uint32_t& __r2, uint32_t& __r3, uint32_t __p) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(__r0), "=r"(__r1), "=r"(__r2), "=r"(__r3) : "r"(__p) : "memory");
}

__forceinline__ __device__ void tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x2_trans_shared_b16(uint32_t& __r0, uint32_t& __r1, uint32_t __p) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];" : "=r"(__r0), "=r"(__r1) : "r"(__p) : "memory");
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

extern "C" __global__ void __launch_bounds__(512, 1) main_kernel(half* __restrict__ dy_ptr, float* __restrict__ workspace_ptr, half* __restrict__ x_ptr, int n) {
  extern __shared__ __align__(64) uchar buf_dyn_shmem_ptr[];
  alignas(64) uint start_local_ptr[1];
  alignas(64) float sum_local_ptr[20];
  alignas(64) float sum_of_pair_local_ptr[12];
  alignas(64) half zero_local_ptr[8];
  alignas(64) int at_local_ptr[1];
  alignas(64) int first_image_local_ptr[1];
  alignas(64) int top_local_ptr[1];
  alignas(64) int first_row_local_ptr[1];
  alignas(64) int vector_local_ptr[1];
  alignas(64) int first_row_local_ptr_1[1];
  alignas(64) int vector_local_ptr_1[1];
  alignas(64) int first_row_local_ptr_2[1];
  alignas(64) int vector_local_ptr_2[1];
  alignas(64) int loaded_local_ptr[1];
  alignas(64) uint word_local_ptr[2];
  alignas(64) int first_row_local_ptr_3[1];
  alignas(64) int vector_local_ptr_3[1];
  alignas(64) int loaded_local_ptr_1[1];
  alignas(64) uint word_local_ptr_1[2];
  alignas(64) int first_image_local_ptr_1[1];
  alignas(64) int top_local_ptr_1[1];
  alignas(64) int first_row_local_ptr_4[1];
  alignas(64) int vector_local_ptr_4[1];
  alignas(64) int first_row_local_ptr_5[1];
  alignas(64) int vector_local_ptr_5[1];
  alignas(64) int dy_at_local_ptr[1];
  alignas(64) uint gradient_local_ptr[8];
  alignas(64) int x_at_local_ptr[1];
  alignas(64) uint source_local_ptr[4];
  alignas(64) uint source_local_ptr_1[4];
  alignas(64) uint source_local_ptr_2[4];
  alignas(64) uint source_local_ptr_3[4];
  alignas(64) uint source_local_ptr_4[4];
  alignas(64) uint source_local_ptr_5[4];
  alignas(64) uint source_local_ptr_6[4];
  alignas(64) uint source_local_ptr_7[4];
  alignas(64) int odd_at_local_ptr[1];
  alignas(64) int pair_at_local_ptr[1];
  alignas(64) uint odd_local_ptr[4];
  alignas(64) uint odd_local_ptr_1[4];
  alignas(64) uint odd_local_ptr_2[4];
  alignas(64) uint odd_local_ptr_3[4];
  alignas(64) uint odd_local_ptr_4[4];
  alignas(64) uint odd_local_ptr_5[4];
  alignas(64) uint odd_local_ptr_6[4];
  alignas(64) uint odd_local_ptr_7[4];
  alignas(64) int own_local_ptr[1];
  alignas(64) float added_local_ptr[1];
  alignas(64) int first_local_ptr[1];
  alignas(64) float added_local_ptr_1[1];
  alignas(64) int first_local_ptr_1[1];
  alignas(64) float added_local_ptr_2[1];
  alignas(64) int first_local_ptr_2[1];
  alignas(64) float added_local_ptr_3[1];
  alignas(64) int first_local_ptr_3[1];
  alignas(64) float added_local_ptr_4[1];
  alignas(64) int first_local_ptr_4[1];
  start_local_ptr[0] = tvm_builtin_cuda_cvta_generic_to_shared((&(((half*)buf_dyn_shmem_ptr)[0])));
  #pragma unroll
  for (int index = 0; index < 20; ++index) {
    sum_local_ptr[index] = 0x0p+0f/*0.000000e+00*/;
  }
  #pragma unroll
  for (int index_1 = 0; index_1 < 12; ++index_1) {
    sum_of_pair_local_ptr[index_1] = 0x0p+0f/*0.000000e+00*/;
  }
  #pragma unroll
  for (int index_2 = 0; index_2 < 8; ++index_2) {
    zero_local_ptr[index_2] = __float2half_rn(0x0p+0f/*0.000000e+00*/);
  }
  __syncthreads();
  #pragma unroll
  for (int turn = 0; turn < 12; ++turn) {
    at_local_ptr[0] = (((turn * 4096) + (((int)threadIdx.z) * 256)) + (((int)threadIdx.x) * 8));
    if (at_local_ptr[0] < 45440) {
      *(uint4*)(((half*)buf_dyn_shmem_ptr) + (at_local_ptr[0] + 16512)) = *(uint4*)(zero_local_ptr + 0);
    }
  }
  if (0 < (((n + 3) >> 2) - (((int)blockIdx.x) & 1))) {
    int item = (((int)blockIdx.x) & 1);
    first_image_local_ptr[0] = ((((int)blockIdx.x) & 1) * 4);
    top_local_ptr[0] = 0;
    first_row_local_ptr[0] = ((int)threadIdx.z);
    vector_local_ptr[0] = ((int)threadIdx.x);
    first_row_local_ptr[0] = first_row_local_ptr[0];
    if (first_row_local_ptr[0] < 8) {
      #pragma unroll
      for (int image = 0; image < 4; ++image) {
        tvm_builtin_ptx_cp_async_cg_src_size_async_cg_shared_global_16(tvm_builtin_cuda_cvta_generic_to_shared((&(((half*)buf_dyn_shmem_ptr)[(((((vector_local_ptr[0] & 1) * 4128) + (image * 1024)) + (first_row_local_ptr[0] * 128)) + ((vector_local_ptr[0] >> 1) * 8))]))), (&(x_ptr[(((((((first_image_local_ptr[0] * 3072) + (image * 3072)) + (top_local_ptr[0] * 384)) + (first_row_local_ptr[0] * 384)) + ((vector_local_ptr[0] >> 1) * 24)) + ((((int)blockIdx.x) >> 1) * 16)) + ((vector_local_ptr[0] & 1) * 8))])), (((((((0 <= (top_local_ptr[0] + first_row_local_ptr[0])) && ((top_local_ptr[0] + first_row_local_ptr[0]) < 8)) && (0 <= vector_local_ptr[0])) && (vector_local_ptr[0] < 32)) && ((first_image_local_ptr[0] + image) < n)) && ((((((int)blockIdx.x) >> 1) * 2) + (vector_local_ptr[0] & 1)) < 3)) ? (uint)16 : (uint)0));
      }
    }
    first_row_local_ptr_1[0] = ((int)threadIdx.z);
    vector_local_ptr_1[0] = ((int)threadIdx.x);
    first_row_local_ptr_1[0] = first_row_local_ptr_1[0];
    if (first_row_local_ptr_1[0] < 8) {
      #pragma unroll
      for (int image_1 = 0; image_1 < 4; ++image_1) {
        tvm_builtin_ptx_cp_async_cg_src_size_async_cg_shared_global_16(tvm_builtin_cuda_cvta_generic_to_shared((&(((half*)buf_dyn_shmem_ptr)[((((((vector_local_ptr_1[0] & 1) * 4128) + (image_1 * 1024)) + (first_row_local_ptr_1[0] * 128)) + ((vector_local_ptr_1[0] >> 1) * 8)) + 8256)]))), (&(dy_ptr[(((((((first_image_local_ptr[0] * 3072) + (image_1 * 3072)) + (top_local_ptr[0] * 384)) + (first_row_local_ptr_1[0] * 384)) + ((vector_local_ptr_1[0] >> 1) * 24)) + ((((int)blockIdx.x) >> 1) * 16)) + ((vector_local_ptr_1[0] & 1) * 8))])), (((((((0 <= (top_local_ptr[0] + first_row_local_ptr_1[0])) && ((top_local_ptr[0] + first_row_local_ptr_1[0]) < 8)) && (0 <= vector_local_ptr_1[0])) && (vector_local_ptr_1[0] < 32)) && ((first_image_local_ptr[0] + image_1) < n)) && ((((((int)blockIdx.x) >> 1) * 2) + (vector_local_ptr_1[0] & 1)) < 3)) ? (uint)16 : (uint)0));
      }
    }
    async_commit_group();
  }
  for (int turn_1 = 0; turn_1 < (((((n + 3) >> 2) + 1) - (((int)blockIdx.x) & 1)) / 2); ++turn_1) {
    async_wait_group_0();
    __syncthreads();
    first_row_local_ptr_2[0] = (((int)threadIdx.z) >> 1);
    vector_local_ptr_2[0] = (((int)threadIdx.z) & 1);
    first_row_local_ptr_2[0] = first_row_local_ptr_2[0];
    loaded_local_ptr[0] = (((vector_local_ptr_2[0] * 4128) + (first_row_local_ptr_2[0] * 128)) + (((int)threadIdx.x) * 8));
    vector_local_ptr_2[0] = (((((vector_local_ptr_2[0] * 15968) + ((((int)threadIdx.x) >> 2) * 1992)) + (first_row_local_ptr_2[0] * 40)) + ((((int)threadIdx.x) & 3) * 2)) + 88);
    #pragma unroll
    for (int image_2 = 0; image_2 < 4; ++image_2) {
      tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x2_trans_shared_b16(word_local_ptr[0], word_local_ptr[1], (start_local_ptr[0] + ((uint)((image_2 * 2048) + (loaded_local_ptr[0] * 2)))));
        uint v_ = word_local_ptr[0];
      *(half2*)(((half*)buf_dyn_shmem_ptr) + (((image_2 * 496) + vector_local_ptr_2[0]) + 16512)) = (*(half2 *)(&(v_)));
        uint v__1 = word_local_ptr[1];
      *(half2*)(((half*)buf_dyn_shmem_ptr) + (((image_2 * 496) + vector_local_ptr_2[0]) + 16520)) = (*(half2 *)(&(v__1)));
    }
    first_row_local_ptr_3[0] = (((int)threadIdx.z) >> 1);
    vector_local_ptr_3[0] = (((int)threadIdx.z) & 1);
    first_row_local_ptr_3[0] = first_row_local_ptr_3[0];
    loaded_local_ptr_1[0] = ((((vector_local_ptr_3[0] * 4128) + (first_row_local_ptr_3[0] * 128)) + (((int)threadIdx.x) * 8)) + 8256);
    vector_local_ptr_3[0] = (((((vector_local_ptr_3[0] * 6752) + ((((int)threadIdx.x) >> 2) * 840)) + (first_row_local_ptr_3[0] * 24)) + ((((int)threadIdx.x) & 3) * 2)) + 31936);
    #pragma unroll
    for (int image_3 = 0; image_3 < 4; ++image_3) {
      tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x2_trans_shared_b16(word_local_ptr_1[0], word_local_ptr_1[1], (start_local_ptr[0] + ((uint)((image_3 * 2048) + (loaded_local_ptr_1[0] * 2)))));
        uint v__2 = word_local_ptr_1[0];
      *(half2*)(((half*)buf_dyn_shmem_ptr) + (((image_3 * 208) + vector_local_ptr_3[0]) + 16512)) = (*(half2 *)(&(v__2)));
        uint v__3 = word_local_ptr_1[1];
      *(half2*)(((half*)buf_dyn_shmem_ptr) + (((image_3 * 208) + vector_local_ptr_3[0]) + 16520)) = (*(half2 *)(&(v__3)));
    }
    __syncthreads();
    if ((turn_1 + 1) < (((((n + 3) >> 2) + 1) - (((int)blockIdx.x) & 1)) / 2)) {
      int item_1 = (((turn_1 * 2) + (((int)blockIdx.x) & 1)) + 2);
      first_image_local_ptr_1[0] = (((turn_1 * 8) + ((((int)blockIdx.x) & 1) * 4)) + 8);
      top_local_ptr_1[0] = 0;
      first_row_local_ptr_4[0] = ((int)threadIdx.z);
      vector_local_ptr_4[0] = ((int)threadIdx.x);
      first_row_local_ptr_4[0] = first_row_local_ptr_4[0];
      if (first_row_local_ptr_4[0] < 8) {
        #pragma unroll
        for (int image_4 = 0; image_4 < 4; ++image_4) {
          tvm_builtin_ptx_cp_async_cg_src_size_async_cg_shared_global_16(tvm_builtin_cuda_cvta_generic_to_shared((&(((half*)buf_dyn_shmem_ptr)[(((((vector_local_ptr_4[0] & 1) * 4128) + (image_4 * 1024)) + (first_row_local_ptr_4[0] * 128)) + ((vector_local_ptr_4[0] >> 1) * 8))]))), (&(x_ptr[(((((((first_image_local_ptr_1[0] * 3072) + (image_4 * 3072)) + (top_local_ptr_1[0] * 384)) + (first_row_local_ptr_4[0] * 384)) + ((vector_local_ptr_4[0] >> 1) * 24)) + ((((int)blockIdx.x) >> 1) * 16)) + ((vector_local_ptr_4[0] & 1) * 8))])), (((((((0 <= (top_local_ptr_1[0] + first_row_local_ptr_4[0])) && ((top_local_ptr_1[0] + first_row_local_ptr_4[0]) < 8)) && (0 <= vector_local_ptr_4[0])) && (vector_local_ptr_4[0] < 32)) && ((first_image_local_ptr_1[0] + image_4) < n)) && ((((((int)blockIdx.x) >> 1) * 2) + (vector_local_ptr_4[0] & 1)) < 3)) ? (uint)16 : (uint)0));
        }
      }
      first_row_local_ptr_5[0] = ((int)threadIdx.z);
      vector_local_ptr_5[0] = ((int)threadIdx.x);
      first_row_local_ptr_5[0] = first_row_local_ptr_5[0];
      if (first_row_local_ptr_5[0] < 8) {
        #pragma unroll
        for (int image_5 = 0; image_5 < 4; ++image_5) {
          tvm_builtin_ptx_cp_async_cg_src_size_async_cg_shared_global_16(tvm_builtin_cuda_cvta_generic_to_shared((&(((half*)buf_dyn_shmem_ptr)[((((((vector_local_ptr_5[0] & 1) * 4128) + (image_5 * 1024)) + (first_row_local_ptr_5[0] * 128)) + ((vector_local_ptr_5[0] >> 1) * 8)) + 8256)]))), (&(dy_ptr[(((((((first_image_local_ptr_1[0] * 3072) + (image_5 * 3072)) + (top_local_ptr_1[0] * 384)) + (first_row_local_ptr_5[0] * 384)) + ((vector_local_ptr_5[0] >> 1) * 24)) + ((((int)blockIdx.x) >> 1) * 16)) + ((vector_local_ptr_5[0] & 1) * 8))])), (((((((0 <= (top_local_ptr_1[0] + first_row_local_ptr_5[0])) && ((top_local_ptr_1[0] + first_row_local_ptr_5[0]) < 8)) && (0 <= vector_local_ptr_5[0])) && (vector_local_ptr_5[0] < 32)) && ((first_image_local_ptr_1[0] + image_5) < n)) && ((((((int)blockIdx.x) >> 1) * 2) + (vector_local_ptr_5[0] & 1)) < 3)) ? (uint)16 : (uint)0));
        }
      }
      async_commit_group();
    }
    dy_at_local_ptr[0] = (((((((((int)threadIdx.z) >> 3) * 6752) + ((((int)threadIdx.z) & 7) * 840)) + (((((int)threadIdx.x) & 15) >> 2) * 208)) + (((((int)threadIdx.x) & 3) >> 1) * 96)) + ((((int)threadIdx.x) & 1) * 8)) + 31936);
    __syncthreads();
    tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x2_trans_shared_b16(gradient_local_ptr[0], gradient_local_ptr[1], tvm_builtin_cuda_cvta_generic_to_shared((&(((half*)buf_dyn_shmem_ptr)[(dy_at_local_ptr[0] + 16512)]))));
    tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x2_trans_shared_b16(gradient_local_ptr[2], gradient_local_ptr[3], tvm_builtin_cuda_cvta_generic_to_shared((&(((half*)buf_dyn_shmem_ptr)[(dy_at_local_ptr[0] + 16536)]))));
    tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x2_trans_shared_b16(gradient_local_ptr[4], gradient_local_ptr[5], tvm_builtin_cuda_cvta_generic_to_shared((&(((half*)buf_dyn_shmem_ptr)[(dy_at_local_ptr[0] + 16560)]))));
    tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x2_trans_shared_b16(gradient_local_ptr[6], gradient_local_ptr[7], tvm_builtin_cuda_cvta_generic_to_shared((&(((half*)buf_dyn_shmem_ptr)[(dy_at_local_ptr[0] + 16584)]))));
    x_at_local_ptr[0] = ((((((((((int)threadIdx.z) >> 3) * 15968) + ((((int)threadIdx.z) & 7) * 1992)) + ((((int)threadIdx.x) >> 4) * 992)) + (((((int)threadIdx.x) & 7) >> 2) * 496)) + (((((int)threadIdx.x) & 3) >> 1) * 160)) + (((((int)threadIdx.x) & 15) >> 3) * 8)) + ((((int)threadIdx.x) & 1) * 8));
    tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x4_trans_shared_b16(source_local_ptr[0], source_local_ptr[1], source_local_ptr[2], source_local_ptr[3], tvm_builtin_cuda_cvta_generic_to_shared((&(((half*)buf_dyn_shmem_ptr)[(x_at_local_ptr[0] + 16512)]))));
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[0], sum_local_ptr[1], sum_local_ptr[2], sum_local_ptr[3], source_local_ptr[0], source_local_ptr[1], source_local_ptr[2], source_local_ptr[3], gradient_local_ptr[0], gradient_local_ptr[1], sum_local_ptr[0], sum_local_ptr[1], sum_local_ptr[2], sum_local_ptr[3]);
    tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x4_trans_shared_b16(source_local_ptr_1[0], source_local_ptr_1[1], source_local_ptr_1[2], source_local_ptr_1[3], tvm_builtin_cuda_cvta_generic_to_shared((&(((half*)buf_dyn_shmem_ptr)[(x_at_local_ptr[0] + 16552)]))));
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[4], sum_local_ptr[5], sum_local_ptr[6], sum_local_ptr[7], source_local_ptr_1[0], source_local_ptr_1[1], source_local_ptr_1[2], source_local_ptr_1[3], gradient_local_ptr[0], gradient_local_ptr[1], sum_local_ptr[4], sum_local_ptr[5], sum_local_ptr[6], sum_local_ptr[7]);
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[0], sum_local_ptr[1], sum_local_ptr[2], sum_local_ptr[3], source_local_ptr_1[0], source_local_ptr_1[1], source_local_ptr_1[2], source_local_ptr_1[3], gradient_local_ptr[2], gradient_local_ptr[3], sum_local_ptr[0], sum_local_ptr[1], sum_local_ptr[2], sum_local_ptr[3]);
    tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x4_trans_shared_b16(source_local_ptr_2[0], source_local_ptr_2[1], source_local_ptr_2[2], source_local_ptr_2[3], tvm_builtin_cuda_cvta_generic_to_shared((&(((half*)buf_dyn_shmem_ptr)[(x_at_local_ptr[0] + 16592)]))));
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[8], sum_local_ptr[9], sum_local_ptr[10], sum_local_ptr[11], source_local_ptr_2[0], source_local_ptr_2[1], source_local_ptr_2[2], source_local_ptr_2[3], gradient_local_ptr[0], gradient_local_ptr[1], sum_local_ptr[8], sum_local_ptr[9], sum_local_ptr[10], sum_local_ptr[11]);
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[4], sum_local_ptr[5], sum_local_ptr[6], sum_local_ptr[7], source_local_ptr_2[0], source_local_ptr_2[1], source_local_ptr_2[2], source_local_ptr_2[3], gradient_local_ptr[2], gradient_local_ptr[3], sum_local_ptr[4], sum_local_ptr[5], sum_local_ptr[6], sum_local_ptr[7]);
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[0], sum_local_ptr[1], sum_local_ptr[2], sum_local_ptr[3], source_local_ptr_2[0], source_local_ptr_2[1], source_local_ptr_2[2], source_local_ptr_2[3], gradient_local_ptr[4], gradient_local_ptr[5], sum_local_ptr[0], sum_local_ptr[1], sum_local_ptr[2], sum_local_ptr[3]);
    tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x4_trans_shared_b16(source_local_ptr_3[0], source_local_ptr_3[1], source_local_ptr_3[2], source_local_ptr_3[3], tvm_builtin_cuda_cvta_generic_to_shared((&(((half*)buf_dyn_shmem_ptr)[(x_at_local_ptr[0] + 16632)]))));
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[12], sum_local_ptr[13], sum_local_ptr[14], sum_local_ptr[15], source_local_ptr_3[0], source_local_ptr_3[1], source_local_ptr_3[2], source_local_ptr_3[3], gradient_local_ptr[0], gradient_local_ptr[1], sum_local_ptr[12], sum_local_ptr[13], sum_local_ptr[14], sum_local_ptr[15]);
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[8], sum_local_ptr[9], sum_local_ptr[10], sum_local_ptr[11], source_local_ptr_3[0], source_local_ptr_3[1], source_local_ptr_3[2], source_local_ptr_3[3], gradient_local_ptr[2], gradient_local_ptr[3], sum_local_ptr[8], sum_local_ptr[9], sum_local_ptr[10], sum_local_ptr[11]);
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[4], sum_local_ptr[5], sum_local_ptr[6], sum_local_ptr[7], source_local_ptr_3[0], source_local_ptr_3[1], source_local_ptr_3[2], source_local_ptr_3[3], gradient_local_ptr[4], gradient_local_ptr[5], sum_local_ptr[4], sum_local_ptr[5], sum_local_ptr[6], sum_local_ptr[7]);
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[0], sum_local_ptr[1], sum_local_ptr[2], sum_local_ptr[3], source_local_ptr_3[0], source_local_ptr_3[1], source_local_ptr_3[2], source_local_ptr_3[3], gradient_local_ptr[6], gradient_local_ptr[7], sum_local_ptr[0], sum_local_ptr[1], sum_local_ptr[2], sum_local_ptr[3]);
    tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x4_trans_shared_b16(source_local_ptr_4[0], source_local_ptr_4[1], source_local_ptr_4[2], source_local_ptr_4[3], tvm_builtin_cuda_cvta_generic_to_shared((&(((half*)buf_dyn_shmem_ptr)[(x_at_local_ptr[0] + 16672)]))));
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[16], sum_local_ptr[17], sum_local_ptr[18], sum_local_ptr[19], source_local_ptr_4[0], source_local_ptr_4[1], source_local_ptr_4[2], source_local_ptr_4[3], gradient_local_ptr[0], gradient_local_ptr[1], sum_local_ptr[16], sum_local_ptr[17], sum_local_ptr[18], sum_local_ptr[19]);
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[12], sum_local_ptr[13], sum_local_ptr[14], sum_local_ptr[15], source_local_ptr_4[0], source_local_ptr_4[1], source_local_ptr_4[2], source_local_ptr_4[3], gradient_local_ptr[2], gradient_local_ptr[3], sum_local_ptr[12], sum_local_ptr[13], sum_local_ptr[14], sum_local_ptr[15]);
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[8], sum_local_ptr[9], sum_local_ptr[10], sum_local_ptr[11], source_local_ptr_4[0], source_local_ptr_4[1], source_local_ptr_4[2], source_local_ptr_4[3], gradient_local_ptr[4], gradient_local_ptr[5], sum_local_ptr[8], sum_local_ptr[9], sum_local_ptr[10], sum_local_ptr[11]);
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[4], sum_local_ptr[5], sum_local_ptr[6], sum_local_ptr[7], source_local_ptr_4[0], source_local_ptr_4[1], source_local_ptr_4[2], source_local_ptr_4[3], gradient_local_ptr[6], gradient_local_ptr[7], sum_local_ptr[4], sum_local_ptr[5], sum_local_ptr[6], sum_local_ptr[7]);
    tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x4_trans_shared_b16(source_local_ptr_5[0], source_local_ptr_5[1], source_local_ptr_5[2], source_local_ptr_5[3], tvm_builtin_cuda_cvta_generic_to_shared((&(((half*)buf_dyn_shmem_ptr)[(x_at_local_ptr[0] + 16712)]))));
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[16], sum_local_ptr[17], sum_local_ptr[18], sum_local_ptr[19], source_local_ptr_5[0], source_local_ptr_5[1], source_local_ptr_5[2], source_local_ptr_5[3], gradient_local_ptr[2], gradient_local_ptr[3], sum_local_ptr[16], sum_local_ptr[17], sum_local_ptr[18], sum_local_ptr[19]);
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[12], sum_local_ptr[13], sum_local_ptr[14], sum_local_ptr[15], source_local_ptr_5[0], source_local_ptr_5[1], source_local_ptr_5[2], source_local_ptr_5[3], gradient_local_ptr[4], gradient_local_ptr[5], sum_local_ptr[12], sum_local_ptr[13], sum_local_ptr[14], sum_local_ptr[15]);
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[8], sum_local_ptr[9], sum_local_ptr[10], sum_local_ptr[11], source_local_ptr_5[0], source_local_ptr_5[1], source_local_ptr_5[2], source_local_ptr_5[3], gradient_local_ptr[6], gradient_local_ptr[7], sum_local_ptr[8], sum_local_ptr[9], sum_local_ptr[10], sum_local_ptr[11]);
    tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x4_trans_shared_b16(source_local_ptr_6[0], source_local_ptr_6[1], source_local_ptr_6[2], source_local_ptr_6[3], tvm_builtin_cuda_cvta_generic_to_shared((&(((half*)buf_dyn_shmem_ptr)[(x_at_local_ptr[0] + 16752)]))));
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[16], sum_local_ptr[17], sum_local_ptr[18], sum_local_ptr[19], source_local_ptr_6[0], source_local_ptr_6[1], source_local_ptr_6[2], source_local_ptr_6[3], gradient_local_ptr[4], gradient_local_ptr[5], sum_local_ptr[16], sum_local_ptr[17], sum_local_ptr[18], sum_local_ptr[19]);
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[12], sum_local_ptr[13], sum_local_ptr[14], sum_local_ptr[15], source_local_ptr_6[0], source_local_ptr_6[1], source_local_ptr_6[2], source_local_ptr_6[3], gradient_local_ptr[6], gradient_local_ptr[7], sum_local_ptr[12], sum_local_ptr[13], sum_local_ptr[14], sum_local_ptr[15]);
    tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x4_trans_shared_b16(source_local_ptr_7[0], source_local_ptr_7[1], source_local_ptr_7[2], source_local_ptr_7[3], tvm_builtin_cuda_cvta_generic_to_shared((&(((half*)buf_dyn_shmem_ptr)[(x_at_local_ptr[0] + 16792)]))));
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[16], sum_local_ptr[17], sum_local_ptr[18], sum_local_ptr[19], source_local_ptr_7[0], source_local_ptr_7[1], source_local_ptr_7[2], source_local_ptr_7[3], gradient_local_ptr[6], gradient_local_ptr[7], sum_local_ptr[16], sum_local_ptr[17], sum_local_ptr[18], sum_local_ptr[19]);
    odd_at_local_ptr[0] = ((((((((((int)threadIdx.z) >> 3) * 15968) + ((((int)threadIdx.z) & 7) * 1992)) + ((((int)threadIdx.x) >> 4) * 992)) + (((((int)threadIdx.x) & 7) >> 2) * 496)) + (((((int)threadIdx.x) & 3) >> 1) * 160)) + ((((int)threadIdx.x) & 1) * 8)) + 16);
    pair_at_local_ptr[0] = ((((((int)threadIdx.x) & 15) >> 3) * 40) + odd_at_local_ptr[0]);
    tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x4_trans_shared_b16(odd_local_ptr[0], odd_local_ptr[1], odd_local_ptr[2], odd_local_ptr[3], tvm_builtin_cuda_cvta_generic_to_shared((&(((half*)buf_dyn_shmem_ptr)[(pair_at_local_ptr[0] + 16512)]))));
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_of_pair_local_ptr[0], sum_of_pair_local_ptr[1], sum_of_pair_local_ptr[2], sum_of_pair_local_ptr[3], odd_local_ptr[0], odd_local_ptr[1], odd_local_ptr[2], odd_local_ptr[3], gradient_local_ptr[0], gradient_local_ptr[1], sum_of_pair_local_ptr[0], sum_of_pair_local_ptr[1], sum_of_pair_local_ptr[2], sum_of_pair_local_ptr[3]);
    tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x4_trans_shared_b16(odd_local_ptr_1[0], odd_local_ptr_1[1], odd_local_ptr_1[2], odd_local_ptr_1[3], tvm_builtin_cuda_cvta_generic_to_shared((&(((half*)buf_dyn_shmem_ptr)[(pair_at_local_ptr[0] + 16552)]))));
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_of_pair_local_ptr[0], sum_of_pair_local_ptr[1], sum_of_pair_local_ptr[2], sum_of_pair_local_ptr[3], odd_local_ptr_1[0], odd_local_ptr_1[1], odd_local_ptr_1[2], odd_local_ptr_1[3], gradient_local_ptr[2], gradient_local_ptr[3], sum_of_pair_local_ptr[0], sum_of_pair_local_ptr[1], sum_of_pair_local_ptr[2], sum_of_pair_local_ptr[3]);
    tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x4_trans_shared_b16(odd_local_ptr_2[0], odd_local_ptr_2[1], odd_local_ptr_2[2], odd_local_ptr_2[3], tvm_builtin_cuda_cvta_generic_to_shared((&(((half*)buf_dyn_shmem_ptr)[(pair_at_local_ptr[0] + 16592)]))));
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_of_pair_local_ptr[4], sum_of_pair_local_ptr[5], sum_of_pair_local_ptr[6], sum_of_pair_local_ptr[7], odd_local_ptr_2[0], odd_local_ptr_2[1], odd_local_ptr_2[2], odd_local_ptr_2[3], gradient_local_ptr[0], gradient_local_ptr[1], sum_of_pair_local_ptr[4], sum_of_pair_local_ptr[5], sum_of_pair_local_ptr[6], sum_of_pair_local_ptr[7]);
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_of_pair_local_ptr[0], sum_of_pair_local_ptr[1], sum_of_pair_local_ptr[2], sum_of_pair_local_ptr[3], odd_local_ptr_2[0], odd_local_ptr_2[1], odd_local_ptr_2[2], odd_local_ptr_2[3], gradient_local_ptr[4], gradient_local_ptr[5], sum_of_pair_local_ptr[0], sum_of_pair_local_ptr[1], sum_of_pair_local_ptr[2], sum_of_pair_local_ptr[3]);
    tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x4_trans_shared_b16(odd_local_ptr_3[0], odd_local_ptr_3[1], odd_local_ptr_3[2], odd_local_ptr_3[3], tvm_builtin_cuda_cvta_generic_to_shared((&(((half*)buf_dyn_shmem_ptr)[(pair_at_local_ptr[0] + 16632)]))));
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_of_pair_local_ptr[4], sum_of_pair_local_ptr[5], sum_of_pair_local_ptr[6], sum_of_pair_local_ptr[7], odd_local_ptr_3[0], odd_local_ptr_3[1], odd_local_ptr_3[2], odd_local_ptr_3[3], gradient_local_ptr[2], gradient_local_ptr[3], sum_of_pair_local_ptr[4], sum_of_pair_local_ptr[5], sum_of_pair_local_ptr[6], sum_of_pair_local_ptr[7]);
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_of_pair_local_ptr[0], sum_of_pair_local_ptr[1], sum_of_pair_local_ptr[2], sum_of_pair_local_ptr[3], odd_local_ptr_3[0], odd_local_ptr_3[1], odd_local_ptr_3[2], odd_local_ptr_3[3], gradient_local_ptr[6], gradient_local_ptr[7], sum_of_pair_local_ptr[0], sum_of_pair_local_ptr[1], sum_of_pair_local_ptr[2], sum_of_pair_local_ptr[3]);
    tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x4_trans_shared_b16(odd_local_ptr_4[0], odd_local_ptr_4[1], odd_local_ptr_4[2], odd_local_ptr_4[3], tvm_builtin_cuda_cvta_generic_to_shared((&(((half*)buf_dyn_shmem_ptr)[(pair_at_local_ptr[0] + 16672)]))));
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_of_pair_local_ptr[8], sum_of_pair_local_ptr[9], sum_of_pair_local_ptr[10], sum_of_pair_local_ptr[11], odd_local_ptr_4[0], odd_local_ptr_4[1], odd_local_ptr_4[2], odd_local_ptr_4[3], gradient_local_ptr[0], gradient_local_ptr[1], sum_of_pair_local_ptr[8], sum_of_pair_local_ptr[9], sum_of_pair_local_ptr[10], sum_of_pair_local_ptr[11]);
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_of_pair_local_ptr[4], sum_of_pair_local_ptr[5], sum_of_pair_local_ptr[6], sum_of_pair_local_ptr[7], odd_local_ptr_4[0], odd_local_ptr_4[1], odd_local_ptr_4[2], odd_local_ptr_4[3], gradient_local_ptr[4], gradient_local_ptr[5], sum_of_pair_local_ptr[4], sum_of_pair_local_ptr[5], sum_of_pair_local_ptr[6], sum_of_pair_local_ptr[7]);
    tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x4_trans_shared_b16(odd_local_ptr_5[0], odd_local_ptr_5[1], odd_local_ptr_5[2], odd_local_ptr_5[3], tvm_builtin_cuda_cvta_generic_to_shared((&(((half*)buf_dyn_shmem_ptr)[(pair_at_local_ptr[0] + 16712)]))));
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_of_pair_local_ptr[8], sum_of_pair_local_ptr[9], sum_of_pair_local_ptr[10], sum_of_pair_local_ptr[11], odd_local_ptr_5[0], odd_local_ptr_5[1], odd_local_ptr_5[2], odd_local_ptr_5[3], gradient_local_ptr[2], gradient_local_ptr[3], sum_of_pair_local_ptr[8], sum_of_pair_local_ptr[9], sum_of_pair_local_ptr[10], sum_of_pair_local_ptr[11]);
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_of_pair_local_ptr[4], sum_of_pair_local_ptr[5], sum_of_pair_local_ptr[6], sum_of_pair_local_ptr[7], odd_local_ptr_5[0], odd_local_ptr_5[1], odd_local_ptr_5[2], odd_local_ptr_5[3], gradient_local_ptr[6], gradient_local_ptr[7], sum_of_pair_local_ptr[4], sum_of_pair_local_ptr[5], sum_of_pair_local_ptr[6], sum_of_pair_local_ptr[7]);
    tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x4_trans_shared_b16(odd_local_ptr_6[0], odd_local_ptr_6[1], odd_local_ptr_6[2], odd_local_ptr_6[3], tvm_builtin_cuda_cvta_generic_to_shared((&(((half*)buf_dyn_shmem_ptr)[(pair_at_local_ptr[0] + 16752)]))));
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_of_pair_local_ptr[8], sum_of_pair_local_ptr[9], sum_of_pair_local_ptr[10], sum_of_pair_local_ptr[11], odd_local_ptr_6[0], odd_local_ptr_6[1], odd_local_ptr_6[2], odd_local_ptr_6[3], gradient_local_ptr[4], gradient_local_ptr[5], sum_of_pair_local_ptr[8], sum_of_pair_local_ptr[9], sum_of_pair_local_ptr[10], sum_of_pair_local_ptr[11]);
    tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x4_trans_shared_b16(odd_local_ptr_7[0], odd_local_ptr_7[1], odd_local_ptr_7[2], odd_local_ptr_7[3], tvm_builtin_cuda_cvta_generic_to_shared((&(((half*)buf_dyn_shmem_ptr)[(odd_at_local_ptr[0] + 16792)]))));
    tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_of_pair_local_ptr[8], sum_of_pair_local_ptr[9], sum_of_pair_local_ptr[10], sum_of_pair_local_ptr[11], odd_local_ptr_7[0], (uint)0, odd_local_ptr_7[2], (uint)0, gradient_local_ptr[6], gradient_local_ptr[7], sum_of_pair_local_ptr[8], sum_of_pair_local_ptr[9], sum_of_pair_local_ptr[10], sum_of_pair_local_ptr[11]);
  }
  own_local_ptr[0] = (((((int)threadIdx.z) * 229) + ((((int)threadIdx.x) & 3) * 56)) + (((int)threadIdx.x) >> 2));
  __syncthreads();
  ((float*)buf_dyn_shmem_ptr)[own_local_ptr[0]] = sum_local_ptr[0];
  ((float*)buf_dyn_shmem_ptr)[(own_local_ptr[0] + 28)] = sum_local_ptr[1];
  ((float*)buf_dyn_shmem_ptr)[(own_local_ptr[0] + 8)] = sum_local_ptr[2];
  ((float*)buf_dyn_shmem_ptr)[(own_local_ptr[0] + 36)] = sum_local_ptr[3];
  ((float*)buf_dyn_shmem_ptr)[(own_local_ptr[0] + 16)] = sum_of_pair_local_ptr[0];
  ((float*)buf_dyn_shmem_ptr)[(own_local_ptr[0] + 44)] = sum_of_pair_local_ptr[1];
  __syncthreads();
  int weight = ((((int)threadIdx.z) * 32) + ((int)threadIdx.x));
  if ((((((int)threadIdx.z) * 2) + (((int)threadIdx.x) >> 4)) < 5) && ((((((int)blockIdx.x) >> 1) * 2) + (((((int)threadIdx.z) * 32) + ((int)threadIdx.x)) / 40)) < 3)) {
    added_local_ptr[0] = 0x0p+0f/*0.000000e+00*/;
    first_local_ptr[0] = ((((((((int)threadIdx.z) * 32) + ((int)threadIdx.x)) / 5) * 229) + (((((int)threadIdx.z) * 32) + ((int)threadIdx.x)) % 5)) + 6);
    #pragma unroll
    for (int column = 0; column < 8; ++column) {
      added_local_ptr[0] = (added_local_ptr[0] + ((float*)buf_dyn_shmem_ptr)[((column * 29) + first_local_ptr[0])]);
    }
    workspace_ptr[(((((((int)blockIdx.x) & 1) * 600) + ((((int)blockIdx.x) >> 1) * 400)) + ((((((int)threadIdx.z) * 32) + ((int)threadIdx.x)) / 5) * 25)) + (((((int)threadIdx.z) * 32) + ((int)threadIdx.x)) % 5))] = added_local_ptr[0];
  }
  __syncthreads();
  ((float*)buf_dyn_shmem_ptr)[own_local_ptr[0]] = sum_local_ptr[4];
  ((float*)buf_dyn_shmem_ptr)[(own_local_ptr[0] + 28)] = sum_local_ptr[5];
  ((float*)buf_dyn_shmem_ptr)[(own_local_ptr[0] + 8)] = sum_local_ptr[6];
  ((float*)buf_dyn_shmem_ptr)[(own_local_ptr[0] + 36)] = sum_local_ptr[7];
  ((float*)buf_dyn_shmem_ptr)[(own_local_ptr[0] + 16)] = sum_of_pair_local_ptr[2];
  ((float*)buf_dyn_shmem_ptr)[(own_local_ptr[0] + 44)] = sum_of_pair_local_ptr[3];
  __syncthreads();
  int weight_1 = ((((int)threadIdx.z) * 32) + ((int)threadIdx.x));
  if ((((((int)threadIdx.z) * 2) + (((int)threadIdx.x) >> 4)) < 5) && ((((((int)blockIdx.x) >> 1) * 2) + (((((int)threadIdx.z) * 32) + ((int)threadIdx.x)) / 40)) < 3)) {
    added_local_ptr_1[0] = 0x0p+0f/*0.000000e+00*/;
    first_local_ptr_1[0] = ((((((((int)threadIdx.z) * 32) + ((int)threadIdx.x)) / 5) * 229) + (((((int)threadIdx.z) * 32) + ((int)threadIdx.x)) % 5)) + 6);
    #pragma unroll
    for (int column_1 = 0; column_1 < 8; ++column_1) {
      added_local_ptr_1[0] = (added_local_ptr_1[0] + ((float*)buf_dyn_shmem_ptr)[((column_1 * 29) + first_local_ptr_1[0])]);
    }
    workspace_ptr[((((((((int)blockIdx.x) & 1) * 600) + ((((int)blockIdx.x) >> 1) * 400)) + ((((((int)threadIdx.z) * 32) + ((int)threadIdx.x)) / 5) * 25)) + (((((int)threadIdx.z) * 32) + ((int)threadIdx.x)) % 5)) + 5)] = added_local_ptr_1[0];
  }
  __syncthreads();
  ((float*)buf_dyn_shmem_ptr)[own_local_ptr[0]] = sum_local_ptr[8];
  ((float*)buf_dyn_shmem_ptr)[(own_local_ptr[0] + 28)] = sum_local_ptr[9];
  ((float*)buf_dyn_shmem_ptr)[(own_local_ptr[0] + 8)] = sum_local_ptr[10];
  ((float*)buf_dyn_shmem_ptr)[(own_local_ptr[0] + 36)] = sum_local_ptr[11];
  ((float*)buf_dyn_shmem_ptr)[(own_local_ptr[0] + 16)] = sum_of_pair_local_ptr[4];
  ((float*)buf_dyn_shmem_ptr)[(own_local_ptr[0] + 44)] = sum_of_pair_local_ptr[5];
  __syncthreads();
  int weight_2 = ((((int)threadIdx.z) * 32) + ((int)threadIdx.x));
  if ((((((int)threadIdx.z) * 2) + (((int)threadIdx.x) >> 4)) < 5) && ((((((int)blockIdx.x) >> 1) * 2) + (((((int)threadIdx.z) * 32) + ((int)threadIdx.x)) / 40)) < 3)) {
    added_local_ptr_2[0] = 0x0p+0f/*0.000000e+00*/;
    first_local_ptr_2[0] = ((((((((int)threadIdx.z) * 32) + ((int)threadIdx.x)) / 5) * 229) + (((((int)threadIdx.z) * 32) + ((int)threadIdx.x)) % 5)) + 6);
    #pragma unroll
    for (int column_2 = 0; column_2 < 8; ++column_2) {
      added_local_ptr_2[0] = (added_local_ptr_2[0] + ((float*)buf_dyn_shmem_ptr)[((column_2 * 29) + first_local_ptr_2[0])]);
    }
    workspace_ptr[((((((((int)blockIdx.x) & 1) * 600) + ((((int)blockIdx.x) >> 1) * 400)) + ((((((int)threadIdx.z) * 32) + ((int)threadIdx.x)) / 5) * 25)) + (((((int)threadIdx.z) * 32) + ((int)threadIdx.x)) % 5)) + 10)] = added_local_ptr_2[0];
  }
  __syncthreads();
  ((float*)buf_dyn_shmem_ptr)[own_local_ptr[0]] = sum_local_ptr[12];
  ((float*)buf_dyn_shmem_ptr)[(own_local_ptr[0] + 28)] = sum_local_ptr[13];
  ((float*)buf_dyn_shmem_ptr)[(own_local_ptr[0] + 8)] = sum_local_ptr[14];
  ((float*)buf_dyn_shmem_ptr)[(own_local_ptr[0] + 36)] = sum_local_ptr[15];
  ((float*)buf_dyn_shmem_ptr)[(own_local_ptr[0] + 16)] = sum_of_pair_local_ptr[6];
  ((float*)buf_dyn_shmem_ptr)[(own_local_ptr[0] + 44)] = sum_of_pair_local_ptr[7];
  __syncthreads();
  int weight_3 = ((((int)threadIdx.z) * 32) + ((int)threadIdx.x));
  if ((((((int)threadIdx.z) * 2) + (((int)threadIdx.x) >> 4)) < 5) && ((((((int)blockIdx.x) >> 1) * 2) + (((((int)threadIdx.z) * 32) + ((int)threadIdx.x)) / 40)) < 3)) {
    added_local_ptr_3[0] = 0x0p+0f/*0.000000e+00*/;
    first_local_ptr_3[0] = ((((((((int)threadIdx.z) * 32) + ((int)threadIdx.x)) / 5) * 229) + (((((int)threadIdx.z) * 32) + ((int)threadIdx.x)) % 5)) + 6);
    #pragma unroll
    for (int column_3 = 0; column_3 < 8; ++column_3) {
      added_local_ptr_3[0] = (added_local_ptr_3[0] + ((float*)buf_dyn_shmem_ptr)[((column_3 * 29) + first_local_ptr_3[0])]);
    }
    workspace_ptr[((((((((int)blockIdx.x) & 1) * 600) + ((((int)blockIdx.x) >> 1) * 400)) + ((((((int)threadIdx.z) * 32) + ((int)threadIdx.x)) / 5) * 25)) + (((((int)threadIdx.z) * 32) + ((int)threadIdx.x)) % 5)) + 15)] = added_local_ptr_3[0];
  }
  __syncthreads();
  ((float*)buf_dyn_shmem_ptr)[own_local_ptr[0]] = sum_local_ptr[16];
  ((float*)buf_dyn_shmem_ptr)[(own_local_ptr[0] + 28)] = sum_local_ptr[17];
  ((float*)buf_dyn_shmem_ptr)[(own_local_ptr[0] + 8)] = sum_local_ptr[18];
  ((float*)buf_dyn_shmem_ptr)[(own_local_ptr[0] + 36)] = sum_local_ptr[19];
  ((float*)buf_dyn_shmem_ptr)[(own_local_ptr[0] + 16)] = sum_of_pair_local_ptr[8];
  ((float*)buf_dyn_shmem_ptr)[(own_local_ptr[0] + 44)] = sum_of_pair_local_ptr[9];
  __syncthreads();
  int weight_4 = ((((int)threadIdx.z) * 32) + ((int)threadIdx.x));
  if ((((((int)threadIdx.z) * 2) + (((int)threadIdx.x) >> 4)) < 5) && ((((((int)blockIdx.x) >> 1) * 2) + (((((int)threadIdx.z) * 32) + ((int)threadIdx.x)) / 40)) < 3)) {
    added_local_ptr_4[0] = 0x0p+0f/*0.000000e+00*/;
    first_local_ptr_4[0] = ((((((((int)threadIdx.z) * 32) + ((int)threadIdx.x)) / 5) * 229) + (((((int)threadIdx.z) * 32) + ((int)threadIdx.x)) % 5)) + 6);
    #pragma unroll
    for (int column_4 = 0; column_4 < 8; ++column_4) {
      added_local_ptr_4[0] = (added_local_ptr_4[0] + ((float*)buf_dyn_shmem_ptr)[((column_4 * 29) + first_local_ptr_4[0])]);
    }
    workspace_ptr[((((((((int)blockIdx.x) & 1) * 600) + ((((int)blockIdx.x) >> 1) * 400)) + ((((((int)threadIdx.z) * 32) + ((int)threadIdx.x)) / 5) * 25)) + (((((int)threadIdx.z) * 32) + ((int)threadIdx.x)) % 5)) + 20)] = added_local_ptr_4[0];
  }
}

extern "C" __global__ void __launch_bounds__(32) main_kernel_1(half* __restrict__ dw_ptr, float* __restrict__ workspace_ptr) {
  alignas(64) float added_local_ptr[1];
  added_local_ptr[0] = 0x0p+0f/*0.000000e+00*/;
  if (((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 3)) < 75) {
    for (int turn = 0; turn < 2; ++turn) {
      added_local_ptr[0] = (added_local_ptr[0] + workspace_ptr[(((turn * 600) + (((int)blockIdx.x) * 32)) + ((int)threadIdx.x))]);
    }
  }
  if (((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 3)) < 75) {
    dw_ptr[((((int)blockIdx.x) * 32) + ((int)threadIdx.x))] = ((half)added_local_ptr[0]);
  }
}
