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

__forceinline__ __device__ unsigned int tvm_builtin_cuda_cvta_generic_to_shared(void* p) {
    return __cvta_generic_to_shared(p);
}

__forceinline__ __device__ void async_wait_group_0() {
  asm volatile("cp.async.wait_group 0;" :  :  : "memory");
}

__forceinline__ __device__ void async_commit_group() {
  asm volatile("cp.async.commit_group;" :  : );
}

extern "C" __global__ void __launch_bounds__(512, 1) main_kernel(half* __restrict__ dy_ptr, float* __restrict__ workspace_ptr, half* __restrict__ x_ptr, int n) {
  extern __shared__ __align__(64) uchar buf_dyn_shmem_ptr[];
  alignas(64) float sum_local_ptr[20];
  alignas(64) int first_image_local_ptr[1];
  alignas(64) int top_local_ptr[1];
  alignas(64) int first_row_local_ptr[1];
  alignas(64) int vector_local_ptr[1];
  alignas(64) int row_local_ptr[1];
  alignas(64) half pixel_local_ptr[16];
  alignas(64) half word_local_ptr[16];
  alignas(64) int first_row_local_ptr_1[1];
  alignas(64) int vector_local_ptr_1[1];
  alignas(64) int row_local_ptr_1[1];
  alignas(64) half pixel_local_ptr_1[16];
  alignas(64) half word_local_ptr_1[16];
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
  #pragma unroll
  for (int index = 0; index < 20; ++index) {
    sum_local_ptr[index] = 0x0p+0f/*0.000000e+00*/;
  }
  for (int turn = 0; turn < (((((n + 7) >> 3) + 1) - (((int)blockIdx.x) & 1)) / 2); ++turn) {
    __syncthreads();
    int item = ((turn * 2) + (((int)blockIdx.x) & 1));
    first_image_local_ptr[0] = ((turn * 16) + ((((int)blockIdx.x) & 1) * 8));
    top_local_ptr[0] = 0;
    first_row_local_ptr[0] = (((((int)threadIdx.z) * 4) + (((int)threadIdx.x) >> 3)) / 5);
    if (first_row_local_ptr[0] < 12) {
      vector_local_ptr[0] = (((((int)threadIdx.z) * 32) + ((int)threadIdx.x)) % 40);
      row_local_ptr[0] = first_row_local_ptr[0];
      #pragma unroll
      for (int image = 0; image < 8; ++image) {
        #pragma unroll
        for (int index_1 = 0; index_1 < 16; ++index_1) {
          pixel_local_ptr[index_1] = __float2half_rn(0x0p+0f/*0.000000e+00*/);
        }
        if ((((((2 <= (top_local_ptr[0] + row_local_ptr[0])) && ((top_local_ptr[0] + row_local_ptr[0]) < 10)) && (8 <= vector_local_ptr[0])) && (vector_local_ptr[0] < 24)) && ((first_image_local_ptr[0] + image) < n)) && ((((((int)blockIdx.x) >> 1) * 2) + (vector_local_ptr[0] & 1)) < 3)) {
          *(uint4*)(pixel_local_ptr + 0) = *(uint4*)(x_ptr + ((((((((first_image_local_ptr[0] * 3072) + (image * 3072)) + (top_local_ptr[0] * 384)) + (row_local_ptr[0] * 384)) + ((vector_local_ptr[0] >> 1) * 48)) + ((((int)blockIdx.x) >> 1) * 16)) + ((vector_local_ptr[0] & 1) * 8)) - 960));
          *(uint4*)(pixel_local_ptr + 8) = *(uint4*)(x_ptr + ((((((((first_image_local_ptr[0] * 3072) + (image * 3072)) + (top_local_ptr[0] * 384)) + (row_local_ptr[0] * 384)) + ((vector_local_ptr[0] >> 1) * 48)) + ((((int)blockIdx.x) >> 1) * 16)) + ((vector_local_ptr[0] & 1) * 8)) - 936));
        }
        word_local_ptr[0] = pixel_local_ptr[0];
        word_local_ptr[1] = pixel_local_ptr[8];
        *(half2*)(((half*)buf_dyn_shmem_ptr) + ((((((vector_local_ptr[0] & 1) * 31264) + (image * 488)) + (row_local_ptr[0] * 40)) + ((vector_local_ptr[0] >> 1) * 2)) + 5280)) = *(half2*)(word_local_ptr + 0);
        word_local_ptr[2] = pixel_local_ptr[1];
        word_local_ptr[3] = pixel_local_ptr[9];
        *(half2*)(((half*)buf_dyn_shmem_ptr) + ((((((vector_local_ptr[0] & 1) * 31264) + (image * 488)) + (row_local_ptr[0] * 40)) + ((vector_local_ptr[0] >> 1) * 2)) + 9184)) = *(half2*)(word_local_ptr + 2);
        word_local_ptr[4] = pixel_local_ptr[2];
        word_local_ptr[5] = pixel_local_ptr[10];
        *(half2*)(((half*)buf_dyn_shmem_ptr) + ((((((vector_local_ptr[0] & 1) * 31264) + (image * 488)) + (row_local_ptr[0] * 40)) + ((vector_local_ptr[0] >> 1) * 2)) + 13088)) = *(half2*)(word_local_ptr + 4);
        word_local_ptr[6] = pixel_local_ptr[3];
        word_local_ptr[7] = pixel_local_ptr[11];
        *(half2*)(((half*)buf_dyn_shmem_ptr) + ((((((vector_local_ptr[0] & 1) * 31264) + (image * 488)) + (row_local_ptr[0] * 40)) + ((vector_local_ptr[0] >> 1) * 2)) + 16992)) = *(half2*)(word_local_ptr + 6);
        word_local_ptr[8] = pixel_local_ptr[4];
        word_local_ptr[9] = pixel_local_ptr[12];
        *(half2*)(((half*)buf_dyn_shmem_ptr) + ((((((vector_local_ptr[0] & 1) * 31264) + (image * 488)) + (row_local_ptr[0] * 40)) + ((vector_local_ptr[0] >> 1) * 2)) + 20896)) = *(half2*)(word_local_ptr + 8);
        word_local_ptr[10] = pixel_local_ptr[5];
        word_local_ptr[11] = pixel_local_ptr[13];
        *(half2*)(((half*)buf_dyn_shmem_ptr) + ((((((vector_local_ptr[0] & 1) * 31264) + (image * 488)) + (row_local_ptr[0] * 40)) + ((vector_local_ptr[0] >> 1) * 2)) + 24800)) = *(half2*)(word_local_ptr + 10);
        word_local_ptr[12] = pixel_local_ptr[6];
        word_local_ptr[13] = pixel_local_ptr[14];
        *(half2*)(((half*)buf_dyn_shmem_ptr) + ((((((vector_local_ptr[0] & 1) * 31264) + (image * 488)) + (row_local_ptr[0] * 40)) + ((vector_local_ptr[0] >> 1) * 2)) + 28704)) = *(half2*)(word_local_ptr + 12);
        word_local_ptr[14] = pixel_local_ptr[7];
        word_local_ptr[15] = pixel_local_ptr[15];
        *(half2*)(((half*)buf_dyn_shmem_ptr) + ((((((vector_local_ptr[0] & 1) * 31264) + (image * 488)) + (row_local_ptr[0] * 40)) + ((vector_local_ptr[0] >> 1) * 2)) + 32608)) = *(half2*)(word_local_ptr + 14);
      }
    }
    first_row_local_ptr_1[0] = (((((int)threadIdx.z) * 4) + (((int)threadIdx.x) >> 3)) / 3);
    if (first_row_local_ptr_1[0] < 21) {
      vector_local_ptr_1[0] = (((((int)threadIdx.z) * 32) + ((int)threadIdx.x)) % 24);
      row_local_ptr_1[0] = first_row_local_ptr_1[0];
      if (row_local_ptr_1[0] < 8) {
        #pragma unroll
        for (int image_1 = 0; image_1 < 8; ++image_1) {
          #pragma unroll
          for (int index_2 = 0; index_2 < 16; ++index_2) {
            pixel_local_ptr_1[index_2] = __float2half_rn(0x0p+0f/*0.000000e+00*/);
          }
          if ((((((0 <= (top_local_ptr[0] + row_local_ptr_1[0])) && ((top_local_ptr[0] + row_local_ptr_1[0]) < 8)) && (4 <= vector_local_ptr_1[0])) && (vector_local_ptr_1[0] < 20)) && ((first_image_local_ptr[0] + image_1) < n)) && ((((((int)blockIdx.x) >> 1) * 2) + (vector_local_ptr_1[0] & 1)) < 3)) {
            *(uint4*)(pixel_local_ptr_1 + 0) = *(uint4*)(dy_ptr + ((((((((first_image_local_ptr[0] * 3072) + (image_1 * 3072)) + (top_local_ptr[0] * 384)) + (row_local_ptr_1[0] * 384)) + ((vector_local_ptr_1[0] >> 1) * 48)) + ((((int)blockIdx.x) >> 1) * 16)) + ((vector_local_ptr_1[0] & 1) * 8)) - 96));
            *(uint4*)(pixel_local_ptr_1 + 8) = *(uint4*)(dy_ptr + ((((((((first_image_local_ptr[0] * 3072) + (image_1 * 3072)) + (top_local_ptr[0] * 384)) + (row_local_ptr_1[0] * 384)) + ((vector_local_ptr_1[0] >> 1) * 48)) + ((((int)blockIdx.x) >> 1) * 16)) + ((vector_local_ptr_1[0] & 1) * 8)) - 72));
          }
          word_local_ptr_1[0] = pixel_local_ptr_1[0];
          word_local_ptr_1[1] = pixel_local_ptr_1[8];
          *(half2*)(((half*)buf_dyn_shmem_ptr) + ((((((vector_local_ptr_1[0] & 1) * 12832) + (image_1 * 200)) + (row_local_ptr_1[0] * 24)) + ((vector_local_ptr_1[0] >> 1) * 2)) + 67808)) = *(half2*)(word_local_ptr_1 + 0);
          word_local_ptr_1[2] = pixel_local_ptr_1[1];
          word_local_ptr_1[3] = pixel_local_ptr_1[9];
          *(half2*)(((half*)buf_dyn_shmem_ptr) + ((((((vector_local_ptr_1[0] & 1) * 12832) + (image_1 * 200)) + (row_local_ptr_1[0] * 24)) + ((vector_local_ptr_1[0] >> 1) * 2)) + 69408)) = *(half2*)(word_local_ptr_1 + 2);
          word_local_ptr_1[4] = pixel_local_ptr_1[2];
          word_local_ptr_1[5] = pixel_local_ptr_1[10];
          *(half2*)(((half*)buf_dyn_shmem_ptr) + ((((((vector_local_ptr_1[0] & 1) * 12832) + (image_1 * 200)) + (row_local_ptr_1[0] * 24)) + ((vector_local_ptr_1[0] >> 1) * 2)) + 71008)) = *(half2*)(word_local_ptr_1 + 4);
          word_local_ptr_1[6] = pixel_local_ptr_1[3];
          word_local_ptr_1[7] = pixel_local_ptr_1[11];
          *(half2*)(((half*)buf_dyn_shmem_ptr) + ((((((vector_local_ptr_1[0] & 1) * 12832) + (image_1 * 200)) + (row_local_ptr_1[0] * 24)) + ((vector_local_ptr_1[0] >> 1) * 2)) + 72608)) = *(half2*)(word_local_ptr_1 + 6);
          word_local_ptr_1[8] = pixel_local_ptr_1[4];
          word_local_ptr_1[9] = pixel_local_ptr_1[12];
          *(half2*)(((half*)buf_dyn_shmem_ptr) + ((((((vector_local_ptr_1[0] & 1) * 12832) + (image_1 * 200)) + (row_local_ptr_1[0] * 24)) + ((vector_local_ptr_1[0] >> 1) * 2)) + 74208)) = *(half2*)(word_local_ptr_1 + 8);
          word_local_ptr_1[10] = pixel_local_ptr_1[5];
          word_local_ptr_1[11] = pixel_local_ptr_1[13];
          *(half2*)(((half*)buf_dyn_shmem_ptr) + ((((((vector_local_ptr_1[0] & 1) * 12832) + (image_1 * 200)) + (row_local_ptr_1[0] * 24)) + ((vector_local_ptr_1[0] >> 1) * 2)) + 75808)) = *(half2*)(word_local_ptr_1 + 10);
          word_local_ptr_1[12] = pixel_local_ptr_1[6];
          word_local_ptr_1[13] = pixel_local_ptr_1[14];
          *(half2*)(((half*)buf_dyn_shmem_ptr) + ((((((vector_local_ptr_1[0] & 1) * 12832) + (image_1 * 200)) + (row_local_ptr_1[0] * 24)) + ((vector_local_ptr_1[0] >> 1) * 2)) + 77408)) = *(half2*)(word_local_ptr_1 + 12);
          word_local_ptr_1[14] = pixel_local_ptr_1[7];
          word_local_ptr_1[15] = pixel_local_ptr_1[15];
          *(half2*)(((half*)buf_dyn_shmem_ptr) + ((((((vector_local_ptr_1[0] & 1) * 12832) + (image_1 * 200)) + (row_local_ptr_1[0] * 24)) + ((vector_local_ptr_1[0] >> 1) * 2)) + 79008)) = *(half2*)(word_local_ptr_1 + 14);
        }
      }
    }
    async_commit_group();
    async_wait_group_0();
    __syncthreads();
    for (int product = 0; product < 3; ++product) {
      dy_at_local_ptr[0] = (((((((((int)threadIdx.z) >> 3) * 12832) + ((((int)threadIdx.z) & 7) * 1600)) + (((((int)threadIdx.x) & 15) >> 1) * 200)) + ((((int)threadIdx.x) & 1) * 96)) + (product * 8)) + 62528);
      tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x2_trans_shared_b16(gradient_local_ptr[0], gradient_local_ptr[1], tvm_builtin_cuda_cvta_generic_to_shared((&(((half*)buf_dyn_shmem_ptr)[(dy_at_local_ptr[0] + 5280)]))));
      tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x2_trans_shared_b16(gradient_local_ptr[2], gradient_local_ptr[3], tvm_builtin_cuda_cvta_generic_to_shared((&(((half*)buf_dyn_shmem_ptr)[(dy_at_local_ptr[0] + 5304)]))));
      tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x2_trans_shared_b16(gradient_local_ptr[4], gradient_local_ptr[5], tvm_builtin_cuda_cvta_generic_to_shared((&(((half*)buf_dyn_shmem_ptr)[(dy_at_local_ptr[0] + 5328)]))));
      tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x2_trans_shared_b16(gradient_local_ptr[6], gradient_local_ptr[7], tvm_builtin_cuda_cvta_generic_to_shared((&(((half*)buf_dyn_shmem_ptr)[(dy_at_local_ptr[0] + 5352)]))));
      x_at_local_ptr[0] = (((((((((int)threadIdx.z) >> 3) * 31264) + ((((int)threadIdx.z) & 7) * 3904)) + (((((int)threadIdx.x) & 15) >> 1) * 488)) + ((((int)threadIdx.x) & 1) * 160)) + ((((int)threadIdx.x) >> 4) * 8)) + (product * 8));
      tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x4_trans_shared_b16(source_local_ptr[0], source_local_ptr[1], source_local_ptr[2], source_local_ptr[3], tvm_builtin_cuda_cvta_generic_to_shared((&(((half*)buf_dyn_shmem_ptr)[(x_at_local_ptr[0] + 5280)]))));
      tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[0], sum_local_ptr[1], sum_local_ptr[2], sum_local_ptr[3], source_local_ptr[0], source_local_ptr[2], source_local_ptr[1], source_local_ptr[3], gradient_local_ptr[0], gradient_local_ptr[1], sum_local_ptr[0], sum_local_ptr[1], sum_local_ptr[2], sum_local_ptr[3]);
      tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x4_trans_shared_b16(source_local_ptr_1[0], source_local_ptr_1[1], source_local_ptr_1[2], source_local_ptr_1[3], tvm_builtin_cuda_cvta_generic_to_shared((&(((half*)buf_dyn_shmem_ptr)[(x_at_local_ptr[0] + 5320)]))));
      tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[4], sum_local_ptr[5], sum_local_ptr[6], sum_local_ptr[7], source_local_ptr_1[0], source_local_ptr_1[2], source_local_ptr_1[1], source_local_ptr_1[3], gradient_local_ptr[0], gradient_local_ptr[1], sum_local_ptr[4], sum_local_ptr[5], sum_local_ptr[6], sum_local_ptr[7]);
      tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[0], sum_local_ptr[1], sum_local_ptr[2], sum_local_ptr[3], source_local_ptr_1[0], source_local_ptr_1[2], source_local_ptr_1[1], source_local_ptr_1[3], gradient_local_ptr[2], gradient_local_ptr[3], sum_local_ptr[0], sum_local_ptr[1], sum_local_ptr[2], sum_local_ptr[3]);
      tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x4_trans_shared_b16(source_local_ptr_2[0], source_local_ptr_2[1], source_local_ptr_2[2], source_local_ptr_2[3], tvm_builtin_cuda_cvta_generic_to_shared((&(((half*)buf_dyn_shmem_ptr)[(x_at_local_ptr[0] + 5360)]))));
      tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[8], sum_local_ptr[9], sum_local_ptr[10], sum_local_ptr[11], source_local_ptr_2[0], source_local_ptr_2[2], source_local_ptr_2[1], source_local_ptr_2[3], gradient_local_ptr[0], gradient_local_ptr[1], sum_local_ptr[8], sum_local_ptr[9], sum_local_ptr[10], sum_local_ptr[11]);
      tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[4], sum_local_ptr[5], sum_local_ptr[6], sum_local_ptr[7], source_local_ptr_2[0], source_local_ptr_2[2], source_local_ptr_2[1], source_local_ptr_2[3], gradient_local_ptr[2], gradient_local_ptr[3], sum_local_ptr[4], sum_local_ptr[5], sum_local_ptr[6], sum_local_ptr[7]);
      tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[0], sum_local_ptr[1], sum_local_ptr[2], sum_local_ptr[3], source_local_ptr_2[0], source_local_ptr_2[2], source_local_ptr_2[1], source_local_ptr_2[3], gradient_local_ptr[4], gradient_local_ptr[5], sum_local_ptr[0], sum_local_ptr[1], sum_local_ptr[2], sum_local_ptr[3]);
      tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x4_trans_shared_b16(source_local_ptr_3[0], source_local_ptr_3[1], source_local_ptr_3[2], source_local_ptr_3[3], tvm_builtin_cuda_cvta_generic_to_shared((&(((half*)buf_dyn_shmem_ptr)[(x_at_local_ptr[0] + 5400)]))));
      tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[12], sum_local_ptr[13], sum_local_ptr[14], sum_local_ptr[15], source_local_ptr_3[0], source_local_ptr_3[2], source_local_ptr_3[1], source_local_ptr_3[3], gradient_local_ptr[0], gradient_local_ptr[1], sum_local_ptr[12], sum_local_ptr[13], sum_local_ptr[14], sum_local_ptr[15]);
      tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[8], sum_local_ptr[9], sum_local_ptr[10], sum_local_ptr[11], source_local_ptr_3[0], source_local_ptr_3[2], source_local_ptr_3[1], source_local_ptr_3[3], gradient_local_ptr[2], gradient_local_ptr[3], sum_local_ptr[8], sum_local_ptr[9], sum_local_ptr[10], sum_local_ptr[11]);
      tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[4], sum_local_ptr[5], sum_local_ptr[6], sum_local_ptr[7], source_local_ptr_3[0], source_local_ptr_3[2], source_local_ptr_3[1], source_local_ptr_3[3], gradient_local_ptr[4], gradient_local_ptr[5], sum_local_ptr[4], sum_local_ptr[5], sum_local_ptr[6], sum_local_ptr[7]);
      tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[0], sum_local_ptr[1], sum_local_ptr[2], sum_local_ptr[3], source_local_ptr_3[0], source_local_ptr_3[2], source_local_ptr_3[1], source_local_ptr_3[3], gradient_local_ptr[6], gradient_local_ptr[7], sum_local_ptr[0], sum_local_ptr[1], sum_local_ptr[2], sum_local_ptr[3]);
      tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x4_trans_shared_b16(source_local_ptr_4[0], source_local_ptr_4[1], source_local_ptr_4[2], source_local_ptr_4[3], tvm_builtin_cuda_cvta_generic_to_shared((&(((half*)buf_dyn_shmem_ptr)[(x_at_local_ptr[0] + 5440)]))));
      tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[16], sum_local_ptr[17], sum_local_ptr[18], sum_local_ptr[19], source_local_ptr_4[0], source_local_ptr_4[2], source_local_ptr_4[1], source_local_ptr_4[3], gradient_local_ptr[0], gradient_local_ptr[1], sum_local_ptr[16], sum_local_ptr[17], sum_local_ptr[18], sum_local_ptr[19]);
      tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[12], sum_local_ptr[13], sum_local_ptr[14], sum_local_ptr[15], source_local_ptr_4[0], source_local_ptr_4[2], source_local_ptr_4[1], source_local_ptr_4[3], gradient_local_ptr[2], gradient_local_ptr[3], sum_local_ptr[12], sum_local_ptr[13], sum_local_ptr[14], sum_local_ptr[15]);
      tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[8], sum_local_ptr[9], sum_local_ptr[10], sum_local_ptr[11], source_local_ptr_4[0], source_local_ptr_4[2], source_local_ptr_4[1], source_local_ptr_4[3], gradient_local_ptr[4], gradient_local_ptr[5], sum_local_ptr[8], sum_local_ptr[9], sum_local_ptr[10], sum_local_ptr[11]);
      tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[4], sum_local_ptr[5], sum_local_ptr[6], sum_local_ptr[7], source_local_ptr_4[0], source_local_ptr_4[2], source_local_ptr_4[1], source_local_ptr_4[3], gradient_local_ptr[6], gradient_local_ptr[7], sum_local_ptr[4], sum_local_ptr[5], sum_local_ptr[6], sum_local_ptr[7]);
      tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x4_trans_shared_b16(source_local_ptr_5[0], source_local_ptr_5[1], source_local_ptr_5[2], source_local_ptr_5[3], tvm_builtin_cuda_cvta_generic_to_shared((&(((half*)buf_dyn_shmem_ptr)[(x_at_local_ptr[0] + 5480)]))));
      tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[16], sum_local_ptr[17], sum_local_ptr[18], sum_local_ptr[19], source_local_ptr_5[0], source_local_ptr_5[2], source_local_ptr_5[1], source_local_ptr_5[3], gradient_local_ptr[2], gradient_local_ptr[3], sum_local_ptr[16], sum_local_ptr[17], sum_local_ptr[18], sum_local_ptr[19]);
      tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[12], sum_local_ptr[13], sum_local_ptr[14], sum_local_ptr[15], source_local_ptr_5[0], source_local_ptr_5[2], source_local_ptr_5[1], source_local_ptr_5[3], gradient_local_ptr[4], gradient_local_ptr[5], sum_local_ptr[12], sum_local_ptr[13], sum_local_ptr[14], sum_local_ptr[15]);
      tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[8], sum_local_ptr[9], sum_local_ptr[10], sum_local_ptr[11], source_local_ptr_5[0], source_local_ptr_5[2], source_local_ptr_5[1], source_local_ptr_5[3], gradient_local_ptr[6], gradient_local_ptr[7], sum_local_ptr[8], sum_local_ptr[9], sum_local_ptr[10], sum_local_ptr[11]);
      tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x4_trans_shared_b16(source_local_ptr_6[0], source_local_ptr_6[1], source_local_ptr_6[2], source_local_ptr_6[3], tvm_builtin_cuda_cvta_generic_to_shared((&(((half*)buf_dyn_shmem_ptr)[(x_at_local_ptr[0] + 5520)]))));
      tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[16], sum_local_ptr[17], sum_local_ptr[18], sum_local_ptr[19], source_local_ptr_6[0], source_local_ptr_6[2], source_local_ptr_6[1], source_local_ptr_6[3], gradient_local_ptr[4], gradient_local_ptr[5], sum_local_ptr[16], sum_local_ptr[17], sum_local_ptr[18], sum_local_ptr[19]);
      tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[12], sum_local_ptr[13], sum_local_ptr[14], sum_local_ptr[15], source_local_ptr_6[0], source_local_ptr_6[2], source_local_ptr_6[1], source_local_ptr_6[3], gradient_local_ptr[6], gradient_local_ptr[7], sum_local_ptr[12], sum_local_ptr[13], sum_local_ptr[14], sum_local_ptr[15]);
      tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x4_trans_shared_b16(source_local_ptr_7[0], source_local_ptr_7[1], source_local_ptr_7[2], source_local_ptr_7[3], tvm_builtin_cuda_cvta_generic_to_shared((&(((half*)buf_dyn_shmem_ptr)[(x_at_local_ptr[0] + 5560)]))));
      tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(sum_local_ptr[16], sum_local_ptr[17], sum_local_ptr[18], sum_local_ptr[19], source_local_ptr_7[0], source_local_ptr_7[2], source_local_ptr_7[1], source_local_ptr_7[3], gradient_local_ptr[6], gradient_local_ptr[7], sum_local_ptr[16], sum_local_ptr[17], sum_local_ptr[18], sum_local_ptr[19]);
    }
  }
  own_local_ptr[0] = (((((int)threadIdx.z) * 165) + ((((int)threadIdx.x) & 3) * 40)) + (((int)threadIdx.x) >> 2));
  __syncthreads();
  ((float*)buf_dyn_shmem_ptr)[own_local_ptr[0]] = sum_local_ptr[0];
  ((float*)buf_dyn_shmem_ptr)[(own_local_ptr[0] + 20)] = sum_local_ptr[1];
  ((float*)buf_dyn_shmem_ptr)[(own_local_ptr[0] + 8)] = sum_local_ptr[2];
  ((float*)buf_dyn_shmem_ptr)[(own_local_ptr[0] + 28)] = sum_local_ptr[3];
  __syncthreads();
  int weight = ((((int)threadIdx.z) * 32) + ((int)threadIdx.x));
  if ((((((int)threadIdx.z) * 2) + (((int)threadIdx.x) >> 4)) < 5) && ((((((int)blockIdx.x) >> 1) * 2) + (((((int)threadIdx.z) * 32) + ((int)threadIdx.x)) / 40)) < 3)) {
    added_local_ptr[0] = 0x0p+0f/*0.000000e+00*/;
    first_local_ptr[0] = ((((((((int)threadIdx.z) * 32) + ((int)threadIdx.x)) / 5) * 165) + (((((int)threadIdx.z) * 32) + ((int)threadIdx.x)) % 5)) + 2);
    #pragma unroll
    for (int column = 0; column < 8; ++column) {
      added_local_ptr[0] = (added_local_ptr[0] + ((float*)buf_dyn_shmem_ptr)[((column * 21) + first_local_ptr[0])]);
    }
    workspace_ptr[(((((((int)blockIdx.x) & 1) * 600) + ((((int)blockIdx.x) >> 1) * 400)) + ((((((int)threadIdx.z) * 32) + ((int)threadIdx.x)) / 5) * 25)) + (((((int)threadIdx.z) * 32) + ((int)threadIdx.x)) % 5))] = added_local_ptr[0];
  }
  __syncthreads();
  ((float*)buf_dyn_shmem_ptr)[own_local_ptr[0]] = sum_local_ptr[4];
  ((float*)buf_dyn_shmem_ptr)[(own_local_ptr[0] + 20)] = sum_local_ptr[5];
  ((float*)buf_dyn_shmem_ptr)[(own_local_ptr[0] + 8)] = sum_local_ptr[6];
  ((float*)buf_dyn_shmem_ptr)[(own_local_ptr[0] + 28)] = sum_local_ptr[7];
  __syncthreads();
  int weight_1 = ((((int)threadIdx.z) * 32) + ((int)threadIdx.x));
  if ((((((int)threadIdx.z) * 2) + (((int)threadIdx.x) >> 4)) < 5) && ((((((int)blockIdx.x) >> 1) * 2) + (((((int)threadIdx.z) * 32) + ((int)threadIdx.x)) / 40)) < 3)) {
    added_local_ptr_1[0] = 0x0p+0f/*0.000000e+00*/;
    first_local_ptr_1[0] = ((((((((int)threadIdx.z) * 32) + ((int)threadIdx.x)) / 5) * 165) + (((((int)threadIdx.z) * 32) + ((int)threadIdx.x)) % 5)) + 2);
    #pragma unroll
    for (int column_1 = 0; column_1 < 8; ++column_1) {
      added_local_ptr_1[0] = (added_local_ptr_1[0] + ((float*)buf_dyn_shmem_ptr)[((column_1 * 21) + first_local_ptr_1[0])]);
    }
    workspace_ptr[((((((((int)blockIdx.x) & 1) * 600) + ((((int)blockIdx.x) >> 1) * 400)) + ((((((int)threadIdx.z) * 32) + ((int)threadIdx.x)) / 5) * 25)) + (((((int)threadIdx.z) * 32) + ((int)threadIdx.x)) % 5)) + 5)] = added_local_ptr_1[0];
  }
  __syncthreads();
  ((float*)buf_dyn_shmem_ptr)[own_local_ptr[0]] = sum_local_ptr[8];
  ((float*)buf_dyn_shmem_ptr)[(own_local_ptr[0] + 20)] = sum_local_ptr[9];
  ((float*)buf_dyn_shmem_ptr)[(own_local_ptr[0] + 8)] = sum_local_ptr[10];
  ((float*)buf_dyn_shmem_ptr)[(own_local_ptr[0] + 28)] = sum_local_ptr[11];
  __syncthreads();
  int weight_2 = ((((int)threadIdx.z) * 32) + ((int)threadIdx.x));
  if ((((((int)threadIdx.z) * 2) + (((int)threadIdx.x) >> 4)) < 5) && ((((((int)blockIdx.x) >> 1) * 2) + (((((int)threadIdx.z) * 32) + ((int)threadIdx.x)) / 40)) < 3)) {
    added_local_ptr_2[0] = 0x0p+0f/*0.000000e+00*/;
    first_local_ptr_2[0] = ((((((((int)threadIdx.z) * 32) + ((int)threadIdx.x)) / 5) * 165) + (((((int)threadIdx.z) * 32) + ((int)threadIdx.x)) % 5)) + 2);
    #pragma unroll
    for (int column_2 = 0; column_2 < 8; ++column_2) {
      added_local_ptr_2[0] = (added_local_ptr_2[0] + ((float*)buf_dyn_shmem_ptr)[((column_2 * 21) + first_local_ptr_2[0])]);
    }
    workspace_ptr[((((((((int)blockIdx.x) & 1) * 600) + ((((int)blockIdx.x) >> 1) * 400)) + ((((((int)threadIdx.z) * 32) + ((int)threadIdx.x)) / 5) * 25)) + (((((int)threadIdx.z) * 32) + ((int)threadIdx.x)) % 5)) + 10)] = added_local_ptr_2[0];
  }
  __syncthreads();
  ((float*)buf_dyn_shmem_ptr)[own_local_ptr[0]] = sum_local_ptr[12];
  ((float*)buf_dyn_shmem_ptr)[(own_local_ptr[0] + 20)] = sum_local_ptr[13];
  ((float*)buf_dyn_shmem_ptr)[(own_local_ptr[0] + 8)] = sum_local_ptr[14];
  ((float*)buf_dyn_shmem_ptr)[(own_local_ptr[0] + 28)] = sum_local_ptr[15];
  __syncthreads();
  int weight_3 = ((((int)threadIdx.z) * 32) + ((int)threadIdx.x));
  if ((((((int)threadIdx.z) * 2) + (((int)threadIdx.x) >> 4)) < 5) && ((((((int)blockIdx.x) >> 1) * 2) + (((((int)threadIdx.z) * 32) + ((int)threadIdx.x)) / 40)) < 3)) {
    added_local_ptr_3[0] = 0x0p+0f/*0.000000e+00*/;
    first_local_ptr_3[0] = ((((((((int)threadIdx.z) * 32) + ((int)threadIdx.x)) / 5) * 165) + (((((int)threadIdx.z) * 32) + ((int)threadIdx.x)) % 5)) + 2);
    #pragma unroll
    for (int column_3 = 0; column_3 < 8; ++column_3) {
      added_local_ptr_3[0] = (added_local_ptr_3[0] + ((float*)buf_dyn_shmem_ptr)[((column_3 * 21) + first_local_ptr_3[0])]);
    }
    workspace_ptr[((((((((int)blockIdx.x) & 1) * 600) + ((((int)blockIdx.x) >> 1) * 400)) + ((((((int)threadIdx.z) * 32) + ((int)threadIdx.x)) / 5) * 25)) + (((((int)threadIdx.z) * 32) + ((int)threadIdx.x)) % 5)) + 15)] = added_local_ptr_3[0];
  }
  __syncthreads();
  ((float*)buf_dyn_shmem_ptr)[own_local_ptr[0]] = sum_local_ptr[16];
  ((float*)buf_dyn_shmem_ptr)[(own_local_ptr[0] + 20)] = sum_local_ptr[17];
  ((float*)buf_dyn_shmem_ptr)[(own_local_ptr[0] + 8)] = sum_local_ptr[18];
  ((float*)buf_dyn_shmem_ptr)[(own_local_ptr[0] + 28)] = sum_local_ptr[19];
  __syncthreads();
  int weight_4 = ((((int)threadIdx.z) * 32) + ((int)threadIdx.x));
  if ((((((int)threadIdx.z) * 2) + (((int)threadIdx.x) >> 4)) < 5) && ((((((int)blockIdx.x) >> 1) * 2) + (((((int)threadIdx.z) * 32) + ((int)threadIdx.x)) / 40)) < 3)) {
    added_local_ptr_4[0] = 0x0p+0f/*0.000000e+00*/;
    first_local_ptr_4[0] = ((((((((int)threadIdx.z) * 32) + ((int)threadIdx.x)) / 5) * 165) + (((((int)threadIdx.z) * 32) + ((int)threadIdx.x)) % 5)) + 2);
    #pragma unroll
    for (int column_4 = 0; column_4 < 8; ++column_4) {
      added_local_ptr_4[0] = (added_local_ptr_4[0] + ((float*)buf_dyn_shmem_ptr)[((column_4 * 21) + first_local_ptr_4[0])]);
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
