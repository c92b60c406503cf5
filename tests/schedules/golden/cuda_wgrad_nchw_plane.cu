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

__forceinline__ __device__ void async_commit_group() {
  asm volatile("cp.async.commit_group;" :  : );
}

__forceinline__ __device__ void async_wait_group_1() {
  asm volatile("cp.async.wait_group 1;" :  :  : "memory");
}

__forceinline__ __device__ void tvm_builtin_ptx_cp_async_cg_src_size_async_cg_shared_global_16(uint32_t __dst_mem, const void* __src_mem, uint32_t __src_size) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :  : "r"(__dst_mem), "l"(__src_mem), "r"(__src_size) : "memory");
}

__forceinline__ __device__ unsigned int tvm_builtin_cuda_cvta_generic_to_shared(void* p) {
    return __cvta_generic_to_shared(p);
}

extern "C" __global__ void __launch_bounds__(32, 32) main_kernel(half* __restrict__ dy_ptr, float* __restrict__ workspace_ptr, half* __restrict__ x_ptr, int n) {
  alignas(64) float sums_local_ptr[18];
  __shared__ alignas(64) half x_planes_shared_ptr[1152];
  __shared__ alignas(64) half dy_planes_shared_ptr[1152];
  alignas(64) int start_local_ptr[1];
  alignas(64) int start_local_ptr_1[1];
  alignas(64) half value_local_ptr[4];
  alignas(64) float wide_local_ptr[4];
  alignas(64) half value_local_ptr_1[4];
  alignas(64) float wide_local_ptr_1[4];
  alignas(64) half value_local_ptr_2[4];
  alignas(64) float wide_local_ptr_2[4];
  alignas(64) half value_local_ptr_3[4];
  alignas(64) float wide_local_ptr_3[4];
  alignas(64) half value_local_ptr_4[4];
  alignas(64) float wide_local_ptr_4[4];
  alignas(64) half value_local_ptr_5[4];
  alignas(64) float wide_local_ptr_5[4];
  alignas(64) half value_local_ptr_6[4];
  alignas(64) float wide_local_ptr_6[4];
  alignas(64) half value_local_ptr_7[4];
  alignas(64) float wide_local_ptr_7[4];
  alignas(64) half value_local_ptr_8[4];
  alignas(64) float wide_local_ptr_8[4];
  alignas(64) half value_local_ptr_9[4];
  alignas(64) float wide_local_ptr_9[4];
  alignas(64) half value_local_ptr_10[4];
  alignas(64) float wide_local_ptr_10[4];
  alignas(64) half value_local_ptr_11[4];
  alignas(64) float wide_local_ptr_11[4];
  #pragma unroll
  for (int index = 0; index < 18; ++index) {
    sums_local_ptr[index] = 0x0p+0f/*0.000000e+00*/;
  }
  int first_image = ((((int)blockIdx.x) >> 2) * 8);
  if (((((int)blockIdx.x) >> 2) * 8) < n) {
    tvm_builtin_ptx_cp_async_cg_src_size_async_cg_shared_global_16(tvm_builtin_cuda_cvta_generic_to_shared((&(x_planes_shared_ptr[(((int)threadIdx.y) * 8)]))), (&(x_ptr[(((((((int)blockIdx.x) >> 2) * 2304) + ((((int)threadIdx.y) / 9) * 216)) + ((((int)blockIdx.x) & 3) * 72)) + (((int)threadIdx.y) * 8))])), (((((((int)blockIdx.x) >> 2) * 8) + (((int)threadIdx.y) / 9)) < n) ? (uint)16 : (uint)0));
    tvm_builtin_ptx_cp_async_cg_src_size_async_cg_shared_global_16(tvm_builtin_cuda_cvta_generic_to_shared((&(dy_planes_shared_ptr[(((int)threadIdx.y) * 8)]))), (&(dy_ptr[(((((((int)blockIdx.x) >> 2) * 2304) + ((((int)threadIdx.y) / 9) * 216)) + ((((int)blockIdx.x) & 3) * 72)) + (((int)threadIdx.y) * 8))])), (((((((int)blockIdx.x) >> 2) * 8) + (((int)threadIdx.y) / 9)) < n) ? (uint)16 : (uint)0));
    tvm_builtin_ptx_cp_async_cg_src_size_async_cg_shared_global_16(tvm_builtin_cuda_cvta_generic_to_shared((&(x_planes_shared_ptr[((((int)threadIdx.y) * 8) + 256)]))), (&(x_ptr[((((((((int)blockIdx.x) >> 2) * 2304) + (((((int)threadIdx.y) + 32) / 9) * 216)) + ((((int)blockIdx.x) & 3) * 72)) + (((int)threadIdx.y) * 8)) + 256)])), (((((((int)blockIdx.x) >> 2) * 8) + ((((int)threadIdx.y) + 32) / 9)) < n) ? (uint)16 : (uint)0));
    tvm_builtin_ptx_cp_async_cg_src_size_async_cg_shared_global_16(tvm_builtin_cuda_cvta_generic_to_shared((&(dy_planes_shared_ptr[((((int)threadIdx.y) * 8) + 256)]))), (&(dy_ptr[((((((((int)blockIdx.x) >> 2) * 2304) + (((((int)threadIdx.y) + 32) / 9) * 216)) + ((((int)blockIdx.x) & 3) * 72)) + (((int)threadIdx.y) * 8)) + 256)])), (((((((int)blockIdx.x) >> 2) * 8) + ((((int)threadIdx.y) + 32) / 9)) < n) ? (uint)16 : (uint)0));
    if (((int)threadIdx.y) < 8) {
      tvm_builtin_ptx_cp_async_cg_src_size_async_cg_shared_global_16(tvm_builtin_cuda_cvta_generic_to_shared((&(x_planes_shared_ptr[((((int)threadIdx.y) * 8) + 512)]))), (&(x_ptr[(((((((int)blockIdx.x) >> 2) * 2304) + ((((int)blockIdx.x) & 3) * 72)) + (((int)threadIdx.y) * 8)) + 2024)])), ((7 < (n - ((((int)blockIdx.x) >> 2) * 8))) ? (uint)16 : (uint)0));
    }
    if (((int)threadIdx.y) < 8) {
      tvm_builtin_ptx_cp_async_cg_src_size_async_cg_shared_global_16(tvm_builtin_cuda_cvta_generic_to_shared((&(dy_planes_shared_ptr[((((int)threadIdx.y) * 8) + 512)]))), (&(dy_ptr[(((((((int)blockIdx.x) >> 2) * 2304) + ((((int)blockIdx.x) & 3) * 72)) + (((int)threadIdx.y) * 8)) + 2024)])), ((7 < (n - ((((int)blockIdx.x) >> 2) * 8))) ? (uint)16 : (uint)0));
    }
  }
  async_commit_group();
  for (int turn = 0; turn < (((n + 15) - ((((int)blockIdx.x) >> 2) * 8)) / 16); ++turn) {
    int first_image_1 = (((turn * 16) + ((((int)blockIdx.x) >> 2) * 8)) + 16);
    if ((((turn * 16) + ((((int)blockIdx.x) >> 2) * 8)) + 16) < n) {
      tvm_builtin_ptx_cp_async_cg_src_size_async_cg_shared_global_16(tvm_builtin_cuda_cvta_generic_to_shared((&(x_planes_shared_ptr[((((turn + 1) & 1) * 576) + (((int)threadIdx.y) * 8))]))), (&(x_ptr[((((((turn * 4608) + ((((int)blockIdx.x) >> 2) * 2304)) + ((((int)threadIdx.y) / 9) * 216)) + ((((int)blockIdx.x) & 3) * 72)) + (((int)threadIdx.y) * 8)) + 4608)])), ((((((turn * 16) + ((((int)blockIdx.x) >> 2) * 8)) + (((int)threadIdx.y) / 9)) + 16) < n) ? (uint)16 : (uint)0));
      tvm_builtin_ptx_cp_async_cg_src_size_async_cg_shared_global_16(tvm_builtin_cuda_cvta_generic_to_shared((&(dy_planes_shared_ptr[((((turn + 1) & 1) * 576) + (((int)threadIdx.y) * 8))]))), (&(dy_ptr[((((((turn * 4608) + ((((int)blockIdx.x) >> 2) * 2304)) + ((((int)threadIdx.y) / 9) * 216)) + ((((int)blockIdx.x) & 3) * 72)) + (((int)threadIdx.y) * 8)) + 4608)])), ((((((turn * 16) + ((((int)blockIdx.x) >> 2) * 8)) + (((int)threadIdx.y) / 9)) + 16) < n) ? (uint)16 : (uint)0));
      tvm_builtin_ptx_cp_async_cg_src_size_async_cg_shared_global_16(tvm_builtin_cuda_cvta_generic_to_shared((&(x_planes_shared_ptr[(((((turn + 1) & 1) * 576) + (((int)threadIdx.y) * 8)) + 256)]))), (&(x_ptr[((((((turn * 4608) + ((((int)blockIdx.x) >> 2) * 2304)) + (((((int)threadIdx.y) + 32) / 9) * 216)) + ((((int)blockIdx.x) & 3) * 72)) + (((int)threadIdx.y) * 8)) + 4864)])), ((((((turn * 16) + ((((int)blockIdx.x) >> 2) * 8)) + ((((int)threadIdx.y) + 32) / 9)) + 16) < n) ? (uint)16 : (uint)0));
      tvm_builtin_ptx_cp_async_cg_src_size_async_cg_shared_global_16(tvm_builtin_cuda_cvta_generic_to_shared((&(dy_planes_shared_ptr[(((((turn + 1) & 1) * 576) + (((int)threadIdx.y) * 8)) + 256)]))), (&(dy_ptr[((((((turn * 4608) + ((((int)blockIdx.x) >> 2) * 2304)) + (((((int)threadIdx.y) + 32) / 9) * 216)) + ((((int)blockIdx.x) & 3) * 72)) + (((int)threadIdx.y) * 8)) + 4864)])), ((((((turn * 16) + ((((int)blockIdx.x) >> 2) * 8)) + ((((int)threadIdx.y) + 32) / 9)) + 16) < n) ? (uint)16 : (uint)0));
      if (((int)threadIdx.y) < 8) {
        tvm_builtin_ptx_cp_async_cg_src_size_async_cg_shared_global_16(tvm_builtin_cuda_cvta_generic_to_shared((&(x_planes_shared_ptr[(((((turn + 1) & 1) * 576) + (((int)threadIdx.y) * 8)) + 512)]))), (&(x_ptr[(((((turn * 4608) + ((((int)blockIdx.x) >> 2) * 2304)) + ((((int)blockIdx.x) & 3) * 72)) + (((int)threadIdx.y) * 8)) + 6632)])), (((((turn * 16) + ((((int)blockIdx.x) >> 2) * 8)) + 23) < n) ? (uint)16 : (uint)0));
      }
      if (((int)threadIdx.y) < 8) {
        tvm_builtin_ptx_cp_async_cg_src_size_async_cg_shared_global_16(tvm_builtin_cuda_cvta_generic_to_shared((&(dy_planes_shared_ptr[(((((turn + 1) & 1) * 576) + (((int)threadIdx.y) * 8)) + 512)]))), (&(dy_ptr[(((((turn * 4608) + ((((int)blockIdx.x) >> 2) * 2304)) + ((((int)blockIdx.x) & 3) * 72)) + (((int)threadIdx.y) * 8)) + 6632)])), (((((turn * 16) + ((((int)blockIdx.x) >> 2) * 8)) + 23) < n) ? (uint)16 : (uint)0));
      }
    }
    async_commit_group();
    async_wait_group_1();
    __syncthreads();
    start_local_ptr[0] = (((turn & 1) * 288) + (((int)threadIdx.y) * 9));
    int start = start_local_ptr[0];
    start_local_ptr_1[0] = (((turn & 1) * 288) + (((int)threadIdx.y) * 9));
    int start_1 = start_local_ptr_1[0];
    *(half2*)(value_local_ptr + 0) = *(half2*)(dy_planes_shared_ptr + (start_1 * 2));
    *(half2*)(value_local_ptr + 2) = *(half2*)(dy_planes_shared_ptr + ((start_1 * 2) + 2));
    wide_local_ptr[0] = ((float)value_local_ptr[0]);
    wide_local_ptr[1] = ((float)value_local_ptr[1]);
    wide_local_ptr[2] = ((float)value_local_ptr[2]);
    *(half2*)(value_local_ptr_1 + 0) = *(half2*)(dy_planes_shared_ptr + ((start_1 * 2) + 2));
    *(half2*)(value_local_ptr_1 + 2) = *(half2*)(dy_planes_shared_ptr + ((start_1 * 2) + 4));
    wide_local_ptr_1[1] = ((float)value_local_ptr_1[1]);
    wide_local_ptr_1[2] = ((float)value_local_ptr_1[2]);
    wide_local_ptr_1[3] = ((float)value_local_ptr_1[3]);
    *(half2*)(value_local_ptr_2 + 0) = *(half2*)(x_planes_shared_ptr + (start * 2));
    *(half2*)(value_local_ptr_2 + 2) = *(half2*)(x_planes_shared_ptr + ((start * 2) + 2));
    wide_local_ptr_2[0] = ((float)value_local_ptr_2[0]);
    wide_local_ptr_2[1] = ((float)value_local_ptr_2[1]);
    wide_local_ptr_2[2] = ((float)value_local_ptr_2[2]);
    sums_local_ptr[4] = (sums_local_ptr[4] + (wide_local_ptr_2[0] * wide_local_ptr[0]));
    sums_local_ptr[3] = (sums_local_ptr[3] + (wide_local_ptr_2[0] * wide_local_ptr[1]));
    sums_local_ptr[1] = (sums_local_ptr[1] + (wide_local_ptr_2[0] * wide_local_ptr_1[1]));
    sums_local_ptr[0] = (sums_local_ptr[0] + (wide_local_ptr_2[0] * wide_local_ptr_1[2]));
    sums_local_ptr[5] = (sums_local_ptr[5] + (wide_local_ptr_2[1] * wide_local_ptr[0]));
    sums_local_ptr[4] = (sums_local_ptr[4] + (wide_local_ptr_2[1] * wide_local_ptr[1]));
    sums_local_ptr[3] = (sums_local_ptr[3] + (wide_local_ptr_2[1] * wide_local_ptr[2]));
    sums_local_ptr[2] = (sums_local_ptr[2] + (wide_local_ptr_2[1] * wide_local_ptr_1[1]));
    sums_local_ptr[1] = (sums_local_ptr[1] + (wide_local_ptr_2[1] * wide_local_ptr_1[2]));
    sums_local_ptr[0] = (sums_local_ptr[0] + (wide_local_ptr_2[1] * wide_local_ptr_1[3]));
    sums_local_ptr[5] = (sums_local_ptr[5] + (wide_local_ptr_2[2] * wide_local_ptr[1]));
    sums_local_ptr[4] = (sums_local_ptr[4] + (wide_local_ptr_2[2] * wide_local_ptr[2]));
    sums_local_ptr[2] = (sums_local_ptr[2] + (wide_local_ptr_2[2] * wide_local_ptr_1[2]));
    sums_local_ptr[1] = (sums_local_ptr[1] + (wide_local_ptr_2[2] * wide_local_ptr_1[3]));
    *(half2*)(value_local_ptr_3 + 0) = *(half2*)(dy_planes_shared_ptr + ((start_1 * 2) + 6));
    *(half2*)(value_local_ptr_3 + 2) = *(half2*)(dy_planes_shared_ptr + ((start_1 * 2) + 8));
    wide_local_ptr_3[0] = ((float)value_local_ptr_3[0]);
    wide_local_ptr_3[1] = ((float)value_local_ptr_3[1]);
    wide_local_ptr_3[2] = ((float)value_local_ptr_3[2]);
    *(half2*)(value_local_ptr_4 + 0) = *(half2*)(x_planes_shared_ptr + ((start * 2) + 2));
    *(half2*)(value_local_ptr_4 + 2) = *(half2*)(x_planes_shared_ptr + ((start * 2) + 4));
    wide_local_ptr_4[1] = ((float)value_local_ptr_4[1]);
    wide_local_ptr_4[2] = ((float)value_local_ptr_4[2]);
    wide_local_ptr_4[3] = ((float)value_local_ptr_4[3]);
    sums_local_ptr[7] = (sums_local_ptr[7] + (wide_local_ptr_4[1] * wide_local_ptr[0]));
    sums_local_ptr[6] = (sums_local_ptr[6] + (wide_local_ptr_4[1] * wide_local_ptr[1]));
    sums_local_ptr[4] = (sums_local_ptr[4] + (wide_local_ptr_4[1] * wide_local_ptr_1[1]));
    sums_local_ptr[3] = (sums_local_ptr[3] + (wide_local_ptr_4[1] * wide_local_ptr_1[2]));
    sums_local_ptr[1] = (sums_local_ptr[1] + (wide_local_ptr_4[1] * wide_local_ptr_3[0]));
    sums_local_ptr[0] = (sums_local_ptr[0] + (wide_local_ptr_4[1] * wide_local_ptr_3[1]));
    sums_local_ptr[8] = (sums_local_ptr[8] + (wide_local_ptr_4[2] * wide_local_ptr[0]));
    sums_local_ptr[7] = (sums_local_ptr[7] + (wide_local_ptr_4[2] * wide_local_ptr[1]));
    sums_local_ptr[6] = (sums_local_ptr[6] + (wide_local_ptr_4[2] * wide_local_ptr[2]));
    sums_local_ptr[5] = (sums_local_ptr[5] + (wide_local_ptr_4[2] * wide_local_ptr_1[1]));
    sums_local_ptr[4] = (sums_local_ptr[4] + (wide_local_ptr_4[2] * wide_local_ptr_1[2]));
    sums_local_ptr[3] = (sums_local_ptr[3] + (wide_local_ptr_4[2] * wide_local_ptr_1[3]));
    sums_local_ptr[2] = (sums_local_ptr[2] + (wide_local_ptr_4[2] * wide_local_ptr_3[0]));
    sums_local_ptr[1] = (sums_local_ptr[1] + (wide_local_ptr_4[2] * wide_local_ptr_3[1]));
    sums_local_ptr[0] = (sums_local_ptr[0] + (wide_local_ptr_4[2] * wide_local_ptr_3[2]));
    sums_local_ptr[8] = (sums_local_ptr[8] + (wide_local_ptr_4[3] * wide_local_ptr[1]));
    sums_local_ptr[7] = (sums_local_ptr[7] + (wide_local_ptr_4[3] * wide_local_ptr[2]));
    sums_local_ptr[5] = (sums_local_ptr[5] + (wide_local_ptr_4[3] * wide_local_ptr_1[2]));
    sums_local_ptr[4] = (sums_local_ptr[4] + (wide_local_ptr_4[3] * wide_local_ptr_1[3]));
    sums_local_ptr[2] = (sums_local_ptr[2] + (wide_local_ptr_4[3] * wide_local_ptr_3[1]));
    sums_local_ptr[1] = (sums_local_ptr[1] + (wide_local_ptr_4[3] * wide_local_ptr_3[2]));
    *(half2*)(value_local_ptr_5 + 0) = *(half2*)(x_planes_shared_ptr + ((start * 2) + 6));
    *(half2*)(value_local_ptr_5 + 2) = *(half2*)(x_planes_shared_ptr + ((start * 2) + 8));
    wide_local_ptr_5[0] = ((float)value_local_ptr_5[0]);
    wide_local_ptr_5[1] = ((float)value_local_ptr_5[1]);
    wide_local_ptr_5[2] = ((float)value_local_ptr_5[2]);
    sums_local_ptr[7] = (sums_local_ptr[7] + (wide_local_ptr_5[0] * wide_local_ptr_1[1]));
    sums_local_ptr[6] = (sums_local_ptr[6] + (wide_local_ptr_5[0] * wide_local_ptr_1[2]));
    sums_local_ptr[4] = (sums_local_ptr[4] + (wide_local_ptr_5[0] * wide_local_ptr_3[0]));
    sums_local_ptr[3] = (sums_local_ptr[3] + (wide_local_ptr_5[0] * wide_local_ptr_3[1]));
    sums_local_ptr[8] = (sums_local_ptr[8] + (wide_local_ptr_5[1] * wide_local_ptr_1[1]));
    sums_local_ptr[7] = (sums_local_ptr[7] + (wide_local_ptr_5[1] * wide_local_ptr_1[2]));
    sums_local_ptr[6] = (sums_local_ptr[6] + (wide_local_ptr_5[1] * wide_local_ptr_1[3]));
    sums_local_ptr[5] = (sums_local_ptr[5] + (wide_local_ptr_5[1] * wide_local_ptr_3[0]));
    sums_local_ptr[4] = (sums_local_ptr[4] + (wide_local_ptr_5[1] * wide_local_ptr_3[1]));
    sums_local_ptr[3] = (sums_local_ptr[3] + (wide_local_ptr_5[1] * wide_local_ptr_3[2]));
    sums_local_ptr[8] = (sums_local_ptr[8] + (wide_local_ptr_5[2] * wide_local_ptr_1[2]));
    sums_local_ptr[7] = (sums_local_ptr[7] + (wide_local_ptr_5[2] * wide_local_ptr_1[3]));
    sums_local_ptr[5] = (sums_local_ptr[5] + (wide_local_ptr_5[2] * wide_local_ptr_3[1]));
    sums_local_ptr[4] = (sums_local_ptr[4] + (wide_local_ptr_5[2] * wide_local_ptr_3[2]));
    *(half2*)(value_local_ptr_6 + 0) = *(half2*)(dy_planes_shared_ptr + ((start_1 * 2) + 8));
    *(half2*)(value_local_ptr_6 + 2) = *(half2*)(dy_planes_shared_ptr + ((start_1 * 2) + 10));
    wide_local_ptr_6[1] = ((float)value_local_ptr_6[1]);
    wide_local_ptr_6[2] = ((float)value_local_ptr_6[2]);
    wide_local_ptr_6[3] = ((float)value_local_ptr_6[3]);
    *(half2*)(value_local_ptr_7 + 0) = *(half2*)(dy_planes_shared_ptr + ((start_1 * 2) + 12));
    *(half2*)(value_local_ptr_7 + 2) = *(half2*)(dy_planes_shared_ptr + ((start_1 * 2) + 14));
    wide_local_ptr_7[0] = ((float)value_local_ptr_7[0]);
    wide_local_ptr_7[1] = ((float)value_local_ptr_7[1]);
    wide_local_ptr_7[2] = ((float)value_local_ptr_7[2]);
    *(half2*)(value_local_ptr_8 + 0) = *(half2*)(x_planes_shared_ptr + ((start * 2) + 8));
    *(half2*)(value_local_ptr_8 + 2) = *(half2*)(x_planes_shared_ptr + ((start * 2) + 10));
    wide_local_ptr_8[1] = ((float)value_local_ptr_8[1]);
    wide_local_ptr_8[2] = ((float)value_local_ptr_8[2]);
    wide_local_ptr_8[3] = ((float)value_local_ptr_8[3]);
    sums_local_ptr[13] = (sums_local_ptr[13] + (wide_local_ptr_8[1] * wide_local_ptr_6[1]));
    sums_local_ptr[12] = (sums_local_ptr[12] + (wide_local_ptr_8[1] * wide_local_ptr_6[2]));
    sums_local_ptr[10] = (sums_local_ptr[10] + (wide_local_ptr_8[1] * wide_local_ptr_7[0]));
    sums_local_ptr[9] = (sums_local_ptr[9] + (wide_local_ptr_8[1] * wide_local_ptr_7[1]));
    sums_local_ptr[14] = (sums_local_ptr[14] + (wide_local_ptr_8[2] * wide_local_ptr_6[1]));
    sums_local_ptr[13] = (sums_local_ptr[13] + (wide_local_ptr_8[2] * wide_local_ptr_6[2]));
    sums_local_ptr[12] = (sums_local_ptr[12] + (wide_local_ptr_8[2] * wide_local_ptr_6[3]));
    sums_local_ptr[11] = (sums_local_ptr[11] + (wide_local_ptr_8[2] * wide_local_ptr_7[0]));
    sums_local_ptr[10] = (sums_local_ptr[10] + (wide_local_ptr_8[2] * wide_local_ptr_7[1]));
    sums_local_ptr[9] = (sums_local_ptr[9] + (wide_local_ptr_8[2] * wide_local_ptr_7[2]));
    sums_local_ptr[14] = (sums_local_ptr[14] + (wide_local_ptr_8[3] * wide_local_ptr_6[2]));
    sums_local_ptr[13] = (sums_local_ptr[13] + (wide_local_ptr_8[3] * wide_local_ptr_6[3]));
    sums_local_ptr[11] = (sums_local_ptr[11] + (wide_local_ptr_8[3] * wide_local_ptr_7[1]));
    sums_local_ptr[10] = (sums_local_ptr[10] + (wide_local_ptr_8[3] * wide_local_ptr_7[2]));
    *(half2*)(value_local_ptr_9 + 0) = *(half2*)(dy_planes_shared_ptr + ((start_1 * 2) + 14));
    *(half2*)(value_local_ptr_9 + 2) = *(half2*)(dy_planes_shared_ptr + ((start_1 * 2) + 16));
    wide_local_ptr_9[1] = ((float)value_local_ptr_9[1]);
    wide_local_ptr_9[2] = ((float)value_local_ptr_9[2]);
    wide_local_ptr_9[3] = ((float)value_local_ptr_9[3]);
    *(half2*)(value_local_ptr_10 + 0) = *(half2*)(x_planes_shared_ptr + ((start * 2) + 12));
    *(half2*)(value_local_ptr_10 + 2) = *(half2*)(x_planes_shared_ptr + ((start * 2) + 14));
    wide_local_ptr_10[0] = ((float)value_local_ptr_10[0]);
    wide_local_ptr_10[1] = ((float)value_local_ptr_10[1]);
    wide_local_ptr_10[2] = ((float)value_local_ptr_10[2]);
    sums_local_ptr[16] = (sums_local_ptr[16] + (wide_local_ptr_10[0] * wide_local_ptr_6[1]));
    sums_local_ptr[15] = (sums_local_ptr[15] + (wide_local_ptr_10[0] * wide_local_ptr_6[2]));
    sums_local_ptr[13] = (sums_local_ptr[13] + (wide_local_ptr_10[0] * wide_local_ptr_7[0]));
    sums_local_ptr[12] = (sums_local_ptr[12] + (wide_local_ptr_10[0] * wide_local_ptr_7[1]));
    sums_local_ptr[10] = (sums_local_ptr[10] + (wide_local_ptr_10[0] * wide_local_ptr_9[1]));
    sums_local_ptr[9] = (sums_local_ptr[9] + (wide_local_ptr_10[0] * wide_local_ptr_9[2]));
    sums_local_ptr[17] = (sums_local_ptr[17] + (wide_local_ptr_10[1] * wide_local_ptr_6[1]));
    sums_local_ptr[16] = (sums_local_ptr[16] + (wide_local_ptr_10[1] * wide_local_ptr_6[2]));
    sums_local_ptr[15] = (sums_local_ptr[15] + (wide_local_ptr_10[1] * wide_local_ptr_6[3]));
    sums_local_ptr[14] = (sums_local_ptr[14] + (wide_local_ptr_10[1] * wide_local_ptr_7[0]));
    sums_local_ptr[13] = (sums_local_ptr[13] + (wide_local_ptr_10[1] * wide_local_ptr_7[1]));
    sums_local_ptr[12] = (sums_local_ptr[12] + (wide_local_ptr_10[1] * wide_local_ptr_7[2]));
    sums_local_ptr[11] = (sums_local_ptr[11] + (wide_local_ptr_10[1] * wide_local_ptr_9[1]));
    sums_local_ptr[10] = (sums_local_ptr[10] + (wide_local_ptr_10[1] * wide_local_ptr_9[2]));
    sums_local_ptr[9] = (sums_local_ptr[9] + (wide_local_ptr_10[1] * wide_local_ptr_9[3]));
    sums_local_ptr[17] = (sums_local_ptr[17] + (wide_local_ptr_10[2] * wide_local_ptr_6[2]));
    sums_local_ptr[16] = (sums_local_ptr[16] + (wide_local_ptr_10[2] * wide_local_ptr_6[3]));
    sums_local_ptr[14] = (sums_local_ptr[14] + (wide_local_ptr_10[2] * wide_local_ptr_7[1]));
    sums_local_ptr[13] = (sums_local_ptr[13] + (wide_local_ptr_10[2] * wide_local_ptr_7[2]));
    sums_local_ptr[11] = (sums_local_ptr[11] + (wide_local_ptr_10[2] * wide_local_ptr_9[2]));
    sums_local_ptr[10] = (sums_local_ptr[10] + (wide_local_ptr_10[2] * wide_local_ptr_9[3]));
    *(half2*)(value_local_ptr_11 + 0) = *(half2*)(x_planes_shared_ptr + ((start * 2) + 14));
    *(half2*)(value_local_ptr_11 + 2) = *(half2*)(x_planes_shared_ptr + ((start * 2) + 16));
    wide_local_ptr_11[1] = ((float)value_local_ptr_11[1]);
    wide_local_ptr_11[2] = ((float)value_local_ptr_11[2]);
    wide_local_ptr_11[3] = ((float)value_local_ptr_11[3]);
    sums_local_ptr[16] = (sums_local_ptr[16] + (wide_local_ptr_11[1] * wide_local_ptr_7[0]));
    sums_local_ptr[15] = (sums_local_ptr[15] + (wide_local_ptr_11[1] * wide_local_ptr_7[1]));
    sums_local_ptr[13] = (sums_local_ptr[13] + (wide_local_ptr_11[1] * wide_local_ptr_9[1]));
    sums_local_ptr[12] = (sums_local_ptr[12] + (wide_local_ptr_11[1] * wide_local_ptr_9[2]));
    sums_local_ptr[17] = (sums_local_ptr[17] + (wide_local_ptr_11[2] * wide_local_ptr_7[0]));
    sums_local_ptr[16] = (sums_local_ptr[16] + (wide_local_ptr_11[2] * wide_local_ptr_7[1]));
    sums_local_ptr[15] = (sums_local_ptr[15] + (wide_local_ptr_11[2] * wide_local_ptr_7[2]));
    sums_local_ptr[14] = (sums_local_ptr[14] + (wide_local_ptr_11[2] * wide_local_ptr_9[1]));
    sums_local_ptr[13] = (sums_local_ptr[13] + (wide_local_ptr_11[2] * wide_local_ptr_9[2]));
    sums_local_ptr[12] = (sums_local_ptr[12] + (wide_local_ptr_11[2] * wide_local_ptr_9[3]));
    sums_local_ptr[17] = (sums_local_ptr[17] + (wide_local_ptr_11[3] * wide_local_ptr_7[1]));
    sums_local_ptr[16] = (sums_local_ptr[16] + (wide_local_ptr_11[3] * wide_local_ptr_7[2]));
    sums_local_ptr[14] = (sums_local_ptr[14] + (wide_local_ptr_11[3] * wide_local_ptr_9[2]));
    sums_local_ptr[13] = (sums_local_ptr[13] + (wide_local_ptr_11[3] * wide_local_ptr_9[3]));
    __syncthreads();
  }
  for (int halving = 0; halving < 3; ++halving) {
    int left = ((7 >> halving) + 1);
    int width_left = ((7 >> (halving + 1)) + 1);
    if (((7 >> (halving + 1)) < (((int)threadIdx.y) >> 2)) && ((((int)threadIdx.y) >> 2) <= (7 >> halving))) {
      ((float*)x_planes_shared_ptr)[((((int)threadIdx.y) - ((7 >> (halving + 1)) * 4)) - 4)] = sums_local_ptr[0];
      ((float*)x_planes_shared_ptr)[((((int)threadIdx.y) + 12) - ((7 >> (halving + 1)) * 4))] = sums_local_ptr[1];
      ((float*)x_planes_shared_ptr)[((((int)threadIdx.y) + 28) - ((7 >> (halving + 1)) * 4))] = sums_local_ptr[2];
      ((float*)x_planes_shared_ptr)[((((int)threadIdx.y) + 44) - ((7 >> (halving + 1)) * 4))] = sums_local_ptr[3];
      ((float*)x_planes_shared_ptr)[((((int)threadIdx.y) + 60) - ((7 >> (halving + 1)) * 4))] = sums_local_ptr[4];
      ((float*)x_planes_shared_ptr)[((((int)threadIdx.y) + 76) - ((7 >> (halving + 1)) * 4))] = sums_local_ptr[5];
      ((float*)x_planes_shared_ptr)[((((int)threadIdx.y) + 92) - ((7 >> (halving + 1)) * 4))] = sums_local_ptr[6];
      ((float*)x_planes_shared_ptr)[((((int)threadIdx.y) + 108) - ((7 >> (halving + 1)) * 4))] = sums_local_ptr[7];
      ((float*)x_planes_shared_ptr)[((((int)threadIdx.y) + 124) - ((7 >> (halving + 1)) * 4))] = sums_local_ptr[8];
      ((float*)x_planes_shared_ptr)[((((int)threadIdx.y) + 140) - ((7 >> (halving + 1)) * 4))] = sums_local_ptr[9];
      ((float*)x_planes_shared_ptr)[((((int)threadIdx.y) + 156) - ((7 >> (halving + 1)) * 4))] = sums_local_ptr[10];
      ((float*)x_planes_shared_ptr)[((((int)threadIdx.y) + 172) - ((7 >> (halving + 1)) * 4))] = sums_local_ptr[11];
      ((float*)x_planes_shared_ptr)[((((int)threadIdx.y) + 188) - ((7 >> (halving + 1)) * 4))] = sums_local_ptr[12];
      ((float*)x_planes_shared_ptr)[((((int)threadIdx.y) + 204) - ((7 >> (halving + 1)) * 4))] = sums_local_ptr[13];
      ((float*)x_planes_shared_ptr)[((((int)threadIdx.y) + 220) - ((7 >> (halving + 1)) * 4))] = sums_local_ptr[14];
      ((float*)x_planes_shared_ptr)[((((int)threadIdx.y) + 236) - ((7 >> (halving + 1)) * 4))] = sums_local_ptr[15];
      ((float*)x_planes_shared_ptr)[((((int)threadIdx.y) + 252) - ((7 >> (halving + 1)) * 4))] = sums_local_ptr[16];
      ((float*)x_planes_shared_ptr)[((((int)threadIdx.y) + 268) - ((7 >> (halving + 1)) * 4))] = sums_local_ptr[17];
    }
    __syncthreads();
    if (((((int)threadIdx.y) >> 2) + (7 >> (halving + 1))) < (7 >> halving)) {
      sums_local_ptr[0] = (sums_local_ptr[0] + ((float*)x_planes_shared_ptr)[((int)threadIdx.y)]);
      sums_local_ptr[1] = (sums_local_ptr[1] + ((float*)x_planes_shared_ptr)[(((int)threadIdx.y) + 16)]);
      sums_local_ptr[2] = (sums_local_ptr[2] + ((float*)x_planes_shared_ptr)[(((int)threadIdx.y) + 32)]);
      sums_local_ptr[3] = (sums_local_ptr[3] + ((float*)x_planes_shared_ptr)[(((int)threadIdx.y) + 48)]);
      sums_local_ptr[4] = (sums_local_ptr[4] + ((float*)x_planes_shared_ptr)[(((int)threadIdx.y) + 64)]);
      sums_local_ptr[5] = (sums_local_ptr[5] + ((float*)x_planes_shared_ptr)[(((int)threadIdx.y) + 80)]);
      sums_local_ptr[6] = (sums_local_ptr[6] + ((float*)x_planes_shared_ptr)[(((int)threadIdx.y) + 96)]);
      sums_local_ptr[7] = (sums_local_ptr[7] + ((float*)x_planes_shared_ptr)[(((int)threadIdx.y) + 112)]);
      sums_local_ptr[8] = (sums_local_ptr[8] + ((float*)x_planes_shared_ptr)[(((int)threadIdx.y) + 128)]);
      sums_local_ptr[9] = (sums_local_ptr[9] + ((float*)x_planes_shared_ptr)[(((int)threadIdx.y) + 144)]);
      sums_local_ptr[10] = (sums_local_ptr[10] + ((float*)x_planes_shared_ptr)[(((int)threadIdx.y) + 160)]);
      sums_local_ptr[11] = (sums_local_ptr[11] + ((float*)x_planes_shared_ptr)[(((int)threadIdx.y) + 176)]);
      sums_local_ptr[12] = (sums_local_ptr[12] + ((float*)x_planes_shared_ptr)[(((int)threadIdx.y) + 192)]);
      sums_local_ptr[13] = (sums_local_ptr[13] + ((float*)x_planes_shared_ptr)[(((int)threadIdx.y) + 208)]);
      sums_local_ptr[14] = (sums_local_ptr[14] + ((float*)x_planes_shared_ptr)[(((int)threadIdx.y) + 224)]);
      sums_local_ptr[15] = (sums_local_ptr[15] + ((float*)x_planes_shared_ptr)[(((int)threadIdx.y) + 240)]);
      sums_local_ptr[16] = (sums_local_ptr[16] + ((float*)x_planes_shared_ptr)[(((int)threadIdx.y) + 256)]);
      sums_local_ptr[17] = (sums_local_ptr[17] + ((float*)x_planes_shared_ptr)[(((int)threadIdx.y) + 272)]);
    }
    __syncthreads();
  }
  if ((((int)threadIdx.y) >> 2) == 0) {
    int channel = (((((int)blockIdx.x) & 3) * 8) + (((int)threadIdx.y) * 2));
    workspace_ptr[((((int)blockIdx.x) * 72) + (((int)threadIdx.y) * 18))] = sums_local_ptr[0];
    workspace_ptr[(((((int)blockIdx.x) * 72) + (((int)threadIdx.y) * 18)) + 1)] = sums_local_ptr[1];
    workspace_ptr[(((((int)blockIdx.x) * 72) + (((int)threadIdx.y) * 18)) + 2)] = sums_local_ptr[2];
    workspace_ptr[(((((int)blockIdx.x) * 72) + (((int)threadIdx.y) * 18)) + 3)] = sums_local_ptr[3];
    workspace_ptr[(((((int)blockIdx.x) * 72) + (((int)threadIdx.y) * 18)) + 4)] = sums_local_ptr[4];
    workspace_ptr[(((((int)blockIdx.x) * 72) + (((int)threadIdx.y) * 18)) + 5)] = sums_local_ptr[5];
    workspace_ptr[(((((int)blockIdx.x) * 72) + (((int)threadIdx.y) * 18)) + 6)] = sums_local_ptr[6];
    workspace_ptr[(((((int)blockIdx.x) * 72) + (((int)threadIdx.y) * 18)) + 7)] = sums_local_ptr[7];
    workspace_ptr[(((((int)blockIdx.x) * 72) + (((int)threadIdx.y) * 18)) + 8)] = sums_local_ptr[8];
    int channel_1 = ((((((int)blockIdx.x) & 3) * 8) + (((int)threadIdx.y) * 2)) + 1);
    workspace_ptr[(((((int)blockIdx.x) * 72) + (((int)threadIdx.y) * 18)) + 9)] = sums_local_ptr[9];
    workspace_ptr[(((((int)blockIdx.x) * 72) + (((int)threadIdx.y) * 18)) + 10)] = sums_local_ptr[10];
    workspace_ptr[(((((int)blockIdx.x) * 72) + (((int)threadIdx.y) * 18)) + 11)] = sums_local_ptr[11];
    workspace_ptr[(((((int)blockIdx.x) * 72) + (((int)threadIdx.y) * 18)) + 12)] = sums_local_ptr[12];
    workspace_ptr[(((((int)blockIdx.x) * 72) + (((int)threadIdx.y) * 18)) + 13)] = sums_local_ptr[13];
    workspace_ptr[(((((int)blockIdx.x) * 72) + (((int)threadIdx.y) * 18)) + 14)] = sums_local_ptr[14];
    workspace_ptr[(((((int)blockIdx.x) * 72) + (((int)threadIdx.y) * 18)) + 15)] = sums_local_ptr[15];
    workspace_ptr[(((((int)blockIdx.x) * 72) + (((int)threadIdx.y) * 18)) + 16)] = sums_local_ptr[16];
    workspace_ptr[(((((int)blockIdx.x) * 72) + (((int)threadIdx.y) * 18)) + 17)] = sums_local_ptr[17];
  }
}

extern "C" __global__ void __launch_bounds__(32) main_kernel_1(half* __restrict__ dw_ptr, float* __restrict__ workspace_ptr) {
  alignas(64) float added_local_ptr[1];
  added_local_ptr[0] = 0x0p+0f/*0.000000e+00*/;
  for (int turn = 0; turn < 2; ++turn) {
    added_local_ptr[0] = (added_local_ptr[0] + workspace_ptr[(((turn * 288) + (((int)blockIdx.x) * 32)) + ((int)threadIdx.x))]);
  }
  dw_ptr[((((int)blockIdx.x) * 32) + ((int)threadIdx.x))] = ((half)added_local_ptr[0]);
}
