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

#define __asm__ asm

#define __volatile__ volatile

__forceinline__ __device__ void async_wait_group_0() {
  asm volatile("cp.async.wait_group 0;" :  :  : "memory");
}

__forceinline__ __device__ void async_wait_group_1() {
  asm volatile("cp.async.wait_group 1;" :  :  : "memory");
}

__forceinline__ __device__ void async_wait_group_2() {
  asm volatile("cp.async.wait_group 2;" :  :  : "memory");
}

__forceinline__ __device__ void async_commit_group() {
  asm volatile("cp.async.commit_group;" :  : );
}

__forceinline__ __device__ void async_copy_or_zero_16_2_2(void* dst, int dst_off, void* src, int src_off, int predicate) {
  uint8_t* dst_p = (uint8_t*)dst + dst_off * 2;
  uint8_t* src_p = (uint8_t*)src + src_off * 2;
  unsigned int dst_addr = __cvta_generic_to_shared(dst_p);
  __asm__ __volatile__(
    "{\n"
    " .reg .pred p;\n"
    " setp.eq.u32 p, %3, 1;\n"
    " @p cp.async.cg.shared.global [%0], [%1], %2;\n"
    " @!p st.shared.v4.u32 [%0], {%4, %4, %4, %4};\n"
    "}\n"
    :: "r"(dst_addr), "l"(src_p), "n"(16), "r"(predicate), "r"(0)
  );
}

extern "C" __global__ void __launch_bounds__(64) main_kernel(half* __restrict__ w_ptr, half* __restrict__ x_ptr, half* __restrict__ y_ptr, int n) {
  __shared__ alignas(64) half staged_shared_ptr[1920];
  alignas(64) float sum_local_ptr[4];
  for (int ax0_ax1_ax2_ax3_ax4_ax5_fused_0 = 0; ax0_ax1_ax2_ax3_ax4_ax5_fused_0 < 2; ++ax0_ax1_ax2_ax3_ax4_ax5_fused_0) {
    if ((((ax0_ax1_ax2_ax3_ax4_ax5_fused_0 * 4) + (((int)threadIdx.z) * 2)) + ((int)threadIdx.y)) < 5) {
      async_copy_or_zero_16_2_2(staged_shared_ptr, ((((((((ax0_ax1_ax2_ax3_ax4_ax5_fused_0 * 64) + (((int)threadIdx.z) * 32)) + (((int)threadIdx.y) * 16)) + ((int)threadIdx.x)) / 40) * 320) + ((((((ax0_ax1_ax2_ax3_ax4_ax5_fused_0 * 16) + (((int)threadIdx.z) * 8)) + (((int)threadIdx.y) * 4)) + (((int)threadIdx.x) >> 2)) % 10) * 32)) + ((((int)threadIdx.x) & 3) * 8)), x_ptr, (((((((int)blockIdx.x) * 1024) + ((((((ax0_ax1_ax2_ax3_ax4_ax5_fused_0 * 64) + (((int)threadIdx.z) * 32)) + (((int)threadIdx.y) * 16)) + ((int)threadIdx.x)) / 40) * 128)) + ((((((ax0_ax1_ax2_ax3_ax4_ax5_fused_0 * 16) + (((int)threadIdx.z) * 8)) + (((int)threadIdx.y) * 4)) + (((int)threadIdx.x) >> 2)) % 10) * 16)) + ((((int)threadIdx.x) & 3) * 8)) - 24), ((((1 <= (((((ax0_ax1_ax2_ax3_ax4_ax5_fused_0 * 16) + (((int)threadIdx.z) * 8)) + (((int)threadIdx.y) * 4)) + (((int)threadIdx.x) >> 2)) % 10)) && ((((((ax0_ax1_ax2_ax3_ax4_ax5_fused_0 * 16) + (((int)threadIdx.z) * 8)) + (((int)threadIdx.y) * 4)) + (((int)threadIdx.x) >> 2)) % 10) < 9)) && (1 <= (((int)threadIdx.x) & 3))) && ((((int)threadIdx.x) & 3) < 3)));
    }
  }
  async_commit_group();
  for (int ax0_ax1_ax2_ax3_ax4_ax5_fused_0_1 = 0; ax0_ax1_ax2_ax3_ax4_ax5_fused_0_1 < 2; ++ax0_ax1_ax2_ax3_ax4_ax5_fused_0_1) {
    if ((((ax0_ax1_ax2_ax3_ax4_ax5_fused_0_1 * 4) + (((int)threadIdx.z) * 2)) + ((int)threadIdx.y)) < 5) {
      async_copy_or_zero_16_2_2(staged_shared_ptr, (((((((((ax0_ax1_ax2_ax3_ax4_ax5_fused_0_1 * 64) + (((int)threadIdx.z) * 32)) + (((int)threadIdx.y) * 16)) + ((int)threadIdx.x)) / 40) * 320) + ((((((ax0_ax1_ax2_ax3_ax4_ax5_fused_0_1 * 16) + (((int)threadIdx.z) * 8)) + (((int)threadIdx.y) * 4)) + (((int)threadIdx.x) >> 2)) % 10) * 32)) + ((((int)threadIdx.x) & 3) * 8)) + 640), x_ptr, (((((((int)blockIdx.x) * 1024) + ((((((ax0_ax1_ax2_ax3_ax4_ax5_fused_0_1 * 64) + (((int)threadIdx.z) * 32)) + (((int)threadIdx.y) * 16)) + ((int)threadIdx.x)) / 40) * 128)) + ((((((ax0_ax1_ax2_ax3_ax4_ax5_fused_0_1 * 16) + (((int)threadIdx.z) * 8)) + (((int)threadIdx.y) * 4)) + (((int)threadIdx.x) >> 2)) % 10) * 16)) + ((((int)threadIdx.x) & 3) * 8)) + 232), ((((1 <= (((((ax0_ax1_ax2_ax3_ax4_ax5_fused_0_1 * 16) + (((int)threadIdx.z) * 8)) + (((int)threadIdx.y) * 4)) + (((int)threadIdx.x) >> 2)) % 10)) && ((((((ax0_ax1_ax2_ax3_ax4_ax5_fused_0_1 * 16) + (((int)threadIdx.z) * 8)) + (((int)threadIdx.y) * 4)) + (((int)threadIdx.x) >> 2)) % 10) < 9)) && (1 <= (((int)threadIdx.x) & 3))) && ((((int)threadIdx.x) & 3) < 3)));
    }
  }
  async_commit_group();
  for (int c_0_row_0_column_0_fused_1 = 0; c_0_row_0_column_0_fused_1 < 2; ++c_0_row_0_column_0_fused_1) {
    __syncthreads();
    for (int ax0_ax1_ax2_ax3_ax4_ax5_fused_0_2 = 0; ax0_ax1_ax2_ax3_ax4_ax5_fused_0_2 < 2; ++ax0_ax1_ax2_ax3_ax4_ax5_fused_0_2) {
      if ((((ax0_ax1_ax2_ax3_ax4_ax5_fused_0_2 * 4) + (((int)threadIdx.z) * 2)) + ((int)threadIdx.y)) < 5) {
        async_copy_or_zero_16_2_2(staged_shared_ptr, ((((((c_0_row_0_column_0_fused_1 + 2) % 3) * 640) + ((((((ax0_ax1_ax2_ax3_ax4_ax5_fused_0_2 * 64) + (((int)threadIdx.z) * 32)) + (((int)threadIdx.y) * 16)) + ((int)threadIdx.x)) / 40) * 320)) + ((((((ax0_ax1_ax2_ax3_ax4_ax5_fused_0_2 * 16) + (((int)threadIdx.z) * 8)) + (((int)threadIdx.y) * 4)) + (((int)threadIdx.x) >> 2)) % 10) * 32)) + ((((int)threadIdx.x) & 3) * 8)), x_ptr, ((((((((int)blockIdx.x) * 1024) + (c_0_row_0_column_0_fused_1 * 256)) + ((((((ax0_ax1_ax2_ax3_ax4_ax5_fused_0_2 * 64) + (((int)threadIdx.z) * 32)) + (((int)threadIdx.y) * 16)) + ((int)threadIdx.x)) / 40) * 128)) + ((((((ax0_ax1_ax2_ax3_ax4_ax5_fused_0_2 * 16) + (((int)threadIdx.z) * 8)) + (((int)threadIdx.y) * 4)) + (((int)threadIdx.x) >> 2)) % 10) * 16)) + ((((int)threadIdx.x) & 3) * 8)) + 488), ((((1 <= (((((ax0_ax1_ax2_ax3_ax4_ax5_fused_0_2 * 16) + (((int)threadIdx.z) * 8)) + (((int)threadIdx.y) * 4)) + (((int)threadIdx.x) >> 2)) % 10)) && ((((((ax0_ax1_ax2_ax3_ax4_ax5_fused_0_2 * 16) + (((int)threadIdx.z) * 8)) + (((int)threadIdx.y) * 4)) + (((int)threadIdx.x) >> 2)) % 10) < 9)) && (1 <= (((int)threadIdx.x) & 3))) && ((((int)threadIdx.x) & 3) < 3)));
      }
    }
    async_commit_group();
    sum_local_ptr[0] = 0x0p+0f/*0.000000e+00*/;
    sum_local_ptr[1] = 0x0p+0f/*0.000000e+00*/;
    sum_local_ptr[2] = 0x0p+0f/*0.000000e+00*/;
    sum_local_ptr[3] = 0x0p+0f/*0.000000e+00*/;
    async_wait_group_2();
    __syncthreads();
    sum_local_ptr[0] = (sum_local_ptr[0] + (((float)staged_shared_ptr[(((((c_0_row_0_column_0_fused_1 * 640) + (((int)threadIdx.z) * 320)) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 7)]) * ((float)w_ptr[((((((int)blockIdx.x) & 1) * 72) + (c_0_row_0_column_0_fused_1 * 18)) + (((int)threadIdx.z) * 9))])));
    sum_local_ptr[1] = (sum_local_ptr[1] + (((float)staged_shared_ptr[(((((c_0_row_0_column_0_fused_1 * 640) + (((int)threadIdx.z) * 320)) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 39)]) * ((float)w_ptr[((((((int)blockIdx.x) & 1) * 72) + (c_0_row_0_column_0_fused_1 * 18)) + (((int)threadIdx.z) * 9))])));
    sum_local_ptr[2] = (sum_local_ptr[2] + (((float)staged_shared_ptr[(((((c_0_row_0_column_0_fused_1 * 640) + (((int)threadIdx.z) * 320)) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 71)]) * ((float)w_ptr[((((((int)blockIdx.x) & 1) * 72) + (c_0_row_0_column_0_fused_1 * 18)) + (((int)threadIdx.z) * 9))])));
    sum_local_ptr[3] = (sum_local_ptr[3] + (((float)staged_shared_ptr[(((((c_0_row_0_column_0_fused_1 * 640) + (((int)threadIdx.z) * 320)) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 103)]) * ((float)w_ptr[((((((int)blockIdx.x) & 1) * 72) + (c_0_row_0_column_0_fused_1 * 18)) + (((int)threadIdx.z) * 9))])));
    sum_local_ptr[0] = (sum_local_ptr[0] + (((float)staged_shared_ptr[(((((c_0_row_0_column_0_fused_1 * 640) + (((int)threadIdx.z) * 320)) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 8)]) * ((float)w_ptr[(((((((int)blockIdx.x) & 1) * 72) + (c_0_row_0_column_0_fused_1 * 18)) + (((int)threadIdx.z) * 9)) + 1)])));
    sum_local_ptr[1] = (sum_local_ptr[1] + (((float)staged_shared_ptr[(((((c_0_row_0_column_0_fused_1 * 640) + (((int)threadIdx.z) * 320)) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 40)]) * ((float)w_ptr[(((((((int)blockIdx.x) & 1) * 72) + (c_0_row_0_column_0_fused_1 * 18)) + (((int)threadIdx.z) * 9)) + 1)])));
    sum_local_ptr[2] = (sum_local_ptr[2] + (((float)staged_shared_ptr[(((((c_0_row_0_column_0_fused_1 * 640) + (((int)threadIdx.z) * 320)) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 72)]) * ((float)w_ptr[(((((((int)blockIdx.x) & 1) * 72) + (c_0_row_0_column_0_fused_1 * 18)) + (((int)threadIdx.z) * 9)) + 1)])));
    sum_local_ptr[3] = (sum_local_ptr[3] + (((float)staged_shared_ptr[(((((c_0_row_0_column_0_fused_1 * 640) + (((int)threadIdx.z) * 320)) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 104)]) * ((float)w_ptr[(((((((int)blockIdx.x) & 1) * 72) + (c_0_row_0_column_0_fused_1 * 18)) + (((int)threadIdx.z) * 9)) + 1)])));
    sum_local_ptr[0] = (sum_local_ptr[0] + (((float)staged_shared_ptr[(((((c_0_row_0_column_0_fused_1 * 640) + (((int)threadIdx.z) * 320)) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 9)]) * ((float)w_ptr[(((((((int)blockIdx.x) & 1) * 72) + (c_0_row_0_column_0_fused_1 * 18)) + (((int)threadIdx.z) * 9)) + 2)])));
    sum_local_ptr[1] = (sum_local_ptr[1] + (((float)staged_shared_ptr[(((((c_0_row_0_column_0_fused_1 * 640) + (((int)threadIdx.z) * 320)) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 41)]) * ((float)w_ptr[(((((((int)blockIdx.x) & 1) * 72) + (c_0_row_0_column_0_fused_1 * 18)) + (((int)threadIdx.z) * 9)) + 2)])));
    sum_local_ptr[2] = (sum_local_ptr[2] + (((float)staged_shared_ptr[(((((c_0_row_0_column_0_fused_1 * 640) + (((int)threadIdx.z) * 320)) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 73)]) * ((float)w_ptr[(((((((int)blockIdx.x) & 1) * 72) + (c_0_row_0_column_0_fused_1 * 18)) + (((int)threadIdx.z) * 9)) + 2)])));
    sum_local_ptr[3] = (sum_local_ptr[3] + (((float)staged_shared_ptr[(((((c_0_row_0_column_0_fused_1 * 640) + (((int)threadIdx.z) * 320)) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 105)]) * ((float)w_ptr[(((((((int)blockIdx.x) & 1) * 72) + (c_0_row_0_column_0_fused_1 * 18)) + (((int)threadIdx.z) * 9)) + 2)])));
    sum_local_ptr[0] = (sum_local_ptr[0] + (((float)staged_shared_ptr[(((((c_0_row_0_column_0_fused_1 * 640) + (((int)threadIdx.z) * 320)) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 39)]) * ((float)w_ptr[(((((((int)blockIdx.x) & 1) * 72) + (c_0_row_0_column_0_fused_1 * 18)) + (((int)threadIdx.z) * 9)) + 3)])));
    sum_local_ptr[1] = (sum_local_ptr[1] + (((float)staged_shared_ptr[(((((c_0_row_0_column_0_fused_1 * 640) + (((int)threadIdx.z) * 320)) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 71)]) * ((float)w_ptr[(((((((int)blockIdx.x) & 1) * 72) + (c_0_row_0_column_0_fused_1 * 18)) + (((int)threadIdx.z) * 9)) + 3)])));
    sum_local_ptr[2] = (sum_local_ptr[2] + (((float)staged_shared_ptr[(((((c_0_row_0_column_0_fused_1 * 640) + (((int)threadIdx.z) * 320)) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 103)]) * ((float)w_ptr[(((((((int)blockIdx.x) & 1) * 72) + (c_0_row_0_column_0_fused_1 * 18)) + (((int)threadIdx.z) * 9)) + 3)])));
    sum_local_ptr[3] = (sum_local_ptr[3] + (((float)staged_shared_ptr[(((((c_0_row_0_column_0_fused_1 * 640) + (((int)threadIdx.z) * 320)) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 135)]) * ((float)w_ptr[(((((((int)blockIdx.x) & 1) * 72) + (c_0_row_0_column_0_fused_1 * 18)) + (((int)threadIdx.z) * 9)) + 3)])));
    sum_local_ptr[0] = (sum_local_ptr[0] + (((float)staged_shared_ptr[(((((c_0_row_0_column_0_fused_1 * 640) + (((int)threadIdx.z) * 320)) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 40)]) * ((float)w_ptr[(((((((int)blockIdx.x) & 1) * 72) + (c_0_row_0_column_0_fused_1 * 18)) + (((int)threadIdx.z) * 9)) + 4)])));
    sum_local_ptr[1] = (sum_local_ptr[1] + (((float)staged_shared_ptr[(((((c_0_row_0_column_0_fused_1 * 640) + (((int)threadIdx.z) * 320)) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 72)]) * ((float)w_ptr[(((((((int)blockIdx.x) & 1) * 72) + (c_0_row_0_column_0_fused_1 * 18)) + (((int)threadIdx.z) * 9)) + 4)])));
    sum_local_ptr[2] = (sum_local_ptr[2] + (((float)staged_shared_ptr[(((((c_0_row_0_column_0_fused_1 * 640) + (((int)threadIdx.z) * 320)) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 104)]) * ((float)w_ptr[(((((((int)blockIdx.x) & 1) * 72) + (c_0_row_0_column_0_fused_1 * 18)) + (((int)threadIdx.z) * 9)) + 4)])));
    sum_local_ptr[3] = (sum_local_ptr[3] + (((float)staged_shared_ptr[(((((c_0_row_0_column_0_fused_1 * 640) + (((int)threadIdx.z) * 320)) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 136)]) * ((float)w_ptr[(((((((int)blockIdx.x) & 1) * 72) + (c_0_row_0_column_0_fused_1 * 18)) + (((int)threadIdx.z) * 9)) + 4)])));
    sum_local_ptr[0] = (sum_local_ptr[0] + (((float)staged_shared_ptr[(((((c_0_row_0_column_0_fused_1 * 640) + (((int)threadIdx.z) * 320)) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 41)]) * ((float)w_ptr[(((((((int)blockIdx.x) & 1) * 72) + (c_0_row_0_column_0_fused_1 * 18)) + (((int)threadIdx.z) * 9)) + 5)])));
    sum_local_ptr[1] = (sum_local_ptr[1] + (((float)staged_shared_ptr[(((((c_0_row_0_column_0_fused_1 * 640) + (((int)threadIdx.z) * 320)) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 73)]) * ((float)w_ptr[(((((((int)blockIdx.x) & 1) * 72) + (c_0_row_0_column_0_fused_1 * 18)) + (((int)threadIdx.z) * 9)) + 5)])));
    sum_local_ptr[2] = (sum_local_ptr[2] + (((float)staged_shared_ptr[(((((c_0_row_0_column_0_fused_1 * 640) + (((int)threadIdx.z) * 320)) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 105)]) * ((float)w_ptr[(((((((int)blockIdx.x) & 1) * 72) + (c_0_row_0_column_0_fused_1 * 18)) + (((int)threadIdx.z) * 9)) + 5)])));
    sum_local_ptr[3] = (sum_local_ptr[3] + (((float)staged_shared_ptr[(((((c_0_row_0_column_0_fused_1 * 640) + (((int)threadIdx.z) * 320)) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 137)]) * ((float)w_ptr[(((((((int)blockIdx.x) & 1) * 72) + (c_0_row_0_column_0_fused_1 * 18)) + (((int)threadIdx.z) * 9)) + 5)])));
    sum_local_ptr[0] = (sum_local_ptr[0] + (((float)staged_shared_ptr[(((((c_0_row_0_column_0_fused_1 * 640) + (((int)threadIdx.z) * 320)) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 71)]) * ((float)w_ptr[(((((((int)blockIdx.x) & 1) * 72) + (c_0_row_0_column_0_fused_1 * 18)) + (((int)threadIdx.z) * 9)) + 6)])));
    sum_local_ptr[1] = (sum_local_ptr[1] + (((float)staged_shared_ptr[(((((c_0_row_0_column_0_fused_1 * 640) + (((int)threadIdx.z) * 320)) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 103)]) * ((float)w_ptr[(((((((int)blockIdx.x) & 1) * 72) + (c_0_row_0_column_0_fused_1 * 18)) + (((int)threadIdx.z) * 9)) + 6)])));
    sum_local_ptr[2] = (sum_local_ptr[2] + (((float)staged_shared_ptr[(((((c_0_row_0_column_0_fused_1 * 640) + (((int)threadIdx.z) * 320)) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 135)]) * ((float)w_ptr[(((((((int)blockIdx.x) & 1) * 72) + (c_0_row_0_column_0_fused_1 * 18)) + (((int)threadIdx.z) * 9)) + 6)])));
    sum_local_ptr[3] = (sum_local_ptr[3] + (((float)staged_shared_ptr[(((((c_0_row_0_column_0_fused_1 * 640) + (((int)threadIdx.z) * 320)) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 167)]) * ((float)w_ptr[(((((((int)blockIdx.x) & 1) * 72) + (c_0_row_0_column_0_fused_1 * 18)) + (((int)threadIdx.z) * 9)) + 6)])));
    sum_local_ptr[0] = (sum_local_ptr[0] + (((float)staged_shared_ptr[(((((c_0_row_0_column_0_fused_1 * 640) + (((int)threadIdx.z) * 320)) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 72)]) * ((float)w_ptr[(((((((int)blockIdx.x) & 1) * 72) + (c_0_row_0_column_0_fused_1 * 18)) + (((int)threadIdx.z) * 9)) + 7)])));
    sum_local_ptr[1] = (sum_local_ptr[1] + (((float)staged_shared_ptr[(((((c_0_row_0_column_0_fused_1 * 640) + (((int)threadIdx.z) * 320)) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 104)]) * ((float)w_ptr[(((((((int)blockIdx.x) & 1) * 72) + (c_0_row_0_column_0_fused_1 * 18)) + (((int)threadIdx.z) * 9)) + 7)])));
    sum_local_ptr[2] = (sum_local_ptr[2] + (((float)staged_shared_ptr[(((((c_0_row_0_column_0_fused_1 * 640) + (((int)threadIdx.z) * 320)) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 136)]) * ((float)w_ptr[(((((((int)blockIdx.x) & 1) * 72) + (c_0_row_0_column_0_fused_1 * 18)) + (((int)threadIdx.z) * 9)) + 7)])));
    sum_local_ptr[3] = (sum_local_ptr[3] + (((float)staged_shared_ptr[(((((c_0_row_0_column_0_fused_1 * 640) + (((int)threadIdx.z) * 320)) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 168)]) * ((float)w_ptr[(((((((int)blockIdx.x) & 1) * 72) + (c_0_row_0_column_0_fused_1 * 18)) + (((int)threadIdx.z) * 9)) + 7)])));
    sum_local_ptr[0] = (sum_local_ptr[0] + (((float)staged_shared_ptr[(((((c_0_row_0_column_0_fused_1 * 640) + (((int)threadIdx.z) * 320)) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 73)]) * ((float)w_ptr[(((((((int)blockIdx.x) & 1) * 72) + (c_0_row_0_column_0_fused_1 * 18)) + (((int)threadIdx.z) * 9)) + 8)])));
    sum_local_ptr[1] = (sum_local_ptr[1] + (((float)staged_shared_ptr[(((((c_0_row_0_column_0_fused_1 * 640) + (((int)threadIdx.z) * 320)) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 105)]) * ((float)w_ptr[(((((((int)blockIdx.x) & 1) * 72) + (c_0_row_0_column_0_fused_1 * 18)) + (((int)threadIdx.z) * 9)) + 8)])));
    sum_local_ptr[2] = (sum_local_ptr[2] + (((float)staged_shared_ptr[(((((c_0_row_0_column_0_fused_1 * 640) + (((int)threadIdx.z) * 320)) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 137)]) * ((float)w_ptr[(((((((int)blockIdx.x) & 1) * 72) + (c_0_row_0_column_0_fused_1 * 18)) + (((int)threadIdx.z) * 9)) + 8)])));
    sum_local_ptr[3] = (sum_local_ptr[3] + (((float)staged_shared_ptr[(((((c_0_row_0_column_0_fused_1 * 640) + (((int)threadIdx.z) * 320)) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 169)]) * ((float)w_ptr[(((((((int)blockIdx.x) & 1) * 72) + (c_0_row_0_column_0_fused_1 * 18)) + (((int)threadIdx.z) * 9)) + 8)])));
    y_ptr[(((((((int)blockIdx.x) * 1024) + (c_0_row_0_column_0_fused_1 * 256)) + (((int)threadIdx.z) * 128)) + (((int)threadIdx.y) * 64)) + ((int)threadIdx.x))] = ((half)sum_local_ptr[0]);
    y_ptr[((((((((int)blockIdx.x) * 1024) + (c_0_row_0_column_0_fused_1 * 256)) + (((int)threadIdx.z) * 128)) + (((int)threadIdx.y) * 64)) + ((int)threadIdx.x)) + 16)] = ((half)sum_local_ptr[1]);
    y_ptr[((((((((int)blockIdx.x) * 1024) + (c_0_row_0_column_0_fused_1 * 256)) + (((int)threadIdx.z) * 128)) + (((int)threadIdx.y) * 64)) + ((int)threadIdx.x)) + 32)] = ((half)sum_local_ptr[2]);
    y_ptr[((((((((int)blockIdx.x) * 1024) + (c_0_row_0_column_0_fused_1 * 256)) + (((int)threadIdx.z) * 128)) + (((int)threadIdx.y) * 64)) + ((int)threadIdx.x)) + 48)] = ((half)sum_local_ptr[3]);
  }
  sum_local_ptr[0] = 0x0p+0f/*0.000000e+00*/;
  sum_local_ptr[1] = 0x0p+0f/*0.000000e+00*/;
  sum_local_ptr[2] = 0x0p+0f/*0.000000e+00*/;
  sum_local_ptr[3] = 0x0p+0f/*0.000000e+00*/;
  async_wait_group_1();
  __syncthreads();
  sum_local_ptr[0] = (sum_local_ptr[0] + (((float)staged_shared_ptr[((((((int)threadIdx.z) * 320) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 1287)]) * ((float)w_ptr[((((((int)blockIdx.x) & 1) * 72) + (((int)threadIdx.z) * 9)) + 36)])));
  sum_local_ptr[1] = (sum_local_ptr[1] + (((float)staged_shared_ptr[((((((int)threadIdx.z) * 320) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 1319)]) * ((float)w_ptr[((((((int)blockIdx.x) & 1) * 72) + (((int)threadIdx.z) * 9)) + 36)])));
  sum_local_ptr[2] = (sum_local_ptr[2] + (((float)staged_shared_ptr[((((((int)threadIdx.z) * 320) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 1351)]) * ((float)w_ptr[((((((int)blockIdx.x) & 1) * 72) + (((int)threadIdx.z) * 9)) + 36)])));
  sum_local_ptr[3] = (sum_local_ptr[3] + (((float)staged_shared_ptr[((((((int)threadIdx.z) * 320) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 1383)]) * ((float)w_ptr[((((((int)blockIdx.x) & 1) * 72) + (((int)threadIdx.z) * 9)) + 36)])));
  sum_local_ptr[0] = (sum_local_ptr[0] + (((float)staged_shared_ptr[((((((int)threadIdx.z) * 320) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 1288)]) * ((float)w_ptr[((((((int)blockIdx.x) & 1) * 72) + (((int)threadIdx.z) * 9)) + 37)])));
  sum_local_ptr[1] = (sum_local_ptr[1] + (((float)staged_shared_ptr[((((((int)threadIdx.z) * 320) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 1320)]) * ((float)w_ptr[((((((int)blockIdx.x) & 1) * 72) + (((int)threadIdx.z) * 9)) + 37)])));
  sum_local_ptr[2] = (sum_local_ptr[2] + (((float)staged_shared_ptr[((((((int)threadIdx.z) * 320) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 1352)]) * ((float)w_ptr[((((((int)blockIdx.x) & 1) * 72) + (((int)threadIdx.z) * 9)) + 37)])));
  sum_local_ptr[3] = (sum_local_ptr[3] + (((float)staged_shared_ptr[((((((int)threadIdx.z) * 320) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 1384)]) * ((float)w_ptr[((((((int)blockIdx.x) & 1) * 72) + (((int)threadIdx.z) * 9)) + 37)])));
  sum_local_ptr[0] = (sum_local_ptr[0] + (((float)staged_shared_ptr[((((((int)threadIdx.z) * 320) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 1289)]) * ((float)w_ptr[((((((int)blockIdx.x) & 1) * 72) + (((int)threadIdx.z) * 9)) + 38)])));
  sum_local_ptr[1] = (sum_local_ptr[1] + (((float)staged_shared_ptr[((((((int)threadIdx.z) * 320) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 1321)]) * ((float)w_ptr[((((((int)blockIdx.x) & 1) * 72) + (((int)threadIdx.z) * 9)) + 38)])));
  sum_local_ptr[2] = (sum_local_ptr[2] + (((float)staged_shared_ptr[((((((int)threadIdx.z) * 320) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 1353)]) * ((float)w_ptr[((((((int)blockIdx.x) & 1) * 72) + (((int)threadIdx.z) * 9)) + 38)])));
  sum_local_ptr[3] = (sum_local_ptr[3] + (((float)staged_shared_ptr[((((((int)threadIdx.z) * 320) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 1385)]) * ((float)w_ptr[((((((int)blockIdx.x) & 1) * 72) + (((int)threadIdx.z) * 9)) + 38)])));
  sum_local_ptr[0] = (sum_local_ptr[0] + (((float)staged_shared_ptr[((((((int)threadIdx.z) * 320) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 1319)]) * ((float)w_ptr[((((((int)blockIdx.x) & 1) * 72) + (((int)threadIdx.z) * 9)) + 39)])));
  sum_local_ptr[1] = (sum_local_ptr[1] + (((float)staged_shared_ptr[((((((int)threadIdx.z) * 320) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 1351)]) * ((float)w_ptr[((((((int)blockIdx.x) & 1) * 72) + (((int)threadIdx.z) * 9)) + 39)])));
  sum_local_ptr[2] = (sum_local_ptr[2] + (((float)staged_shared_ptr[((((((int)threadIdx.z) * 320) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 1383)]) * ((float)w_ptr[((((((int)blockIdx.x) & 1) * 72) + (((int)threadIdx.z) * 9)) + 39)])));
  sum_local_ptr[3] = (sum_local_ptr[3] + (((float)staged_shared_ptr[((((((int)threadIdx.z) * 320) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 1415)]) * ((float)w_ptr[((((((int)blockIdx.x) & 1) * 72) + (((int)threadIdx.z) * 9)) + 39)])));
  sum_local_ptr[0] = (sum_local_ptr[0] + (((float)staged_shared_ptr[((((((int)threadIdx.z) * 320) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 1320)]) * ((float)w_ptr[((((((int)blockIdx.x) & 1) * 72) + (((int)threadIdx.z) * 9)) + 40)])));
  sum_local_ptr[1] = (sum_local_ptr[1] + (((float)staged_shared_ptr[((((((int)threadIdx.z) * 320) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 1352)]) * ((float)w_ptr[((((((int)blockIdx.x) & 1) * 72) + (((int)threadIdx.z) * 9)) + 40)])));
  sum_local_ptr[2] = (sum_local_ptr[2] + (((float)staged_shared_ptr[((((((int)threadIdx.z) * 320) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 1384)]) * ((float)w_ptr[((((((int)blockIdx.x) & 1) * 72) + (((int)threadIdx.z) * 9)) + 40)])));
  sum_local_ptr[3] = (sum_local_ptr[3] + (((float)staged_shared_ptr[((((((int)threadIdx.z) * 320) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 1416)]) * ((float)w_ptr[((((((int)blockIdx.x) & 1) * 72) + (((int)threadIdx.z) * 9)) + 40)])));
  sum_local_ptr[0] = (sum_local_ptr[0] + (((float)staged_shared_ptr[((((((int)threadIdx.z) * 320) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 1321)]) * ((float)w_ptr[((((((int)blockIdx.x) & 1) * 72) + (((int)threadIdx.z) * 9)) + 41)])));
  sum_local_ptr[1] = (sum_local_ptr[1] + (((float)staged_shared_ptr[((((((int)threadIdx.z) * 320) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 1353)]) * ((float)w_ptr[((((((int)blockIdx.x) & 1) * 72) + (((int)threadIdx.z) * 9)) + 41)])));
  sum_local_ptr[2] = (sum_local_ptr[2] + (((float)staged_shared_ptr[((((((int)threadIdx.z) * 320) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 1385)]) * ((float)w_ptr[((((((int)blockIdx.x) & 1) * 72) + (((int)threadIdx.z) * 9)) + 41)])));
  sum_local_ptr[3] = (sum_local_ptr[3] + (((float)staged_shared_ptr[((((((int)threadIdx.z) * 320) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 1417)]) * ((float)w_ptr[((((((int)blockIdx.x) & 1) * 72) + (((int)threadIdx.z) * 9)) + 41)])));
  sum_local_ptr[0] = (sum_local_ptr[0] + (((float)staged_shared_ptr[((((((int)threadIdx.z) * 320) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 1351)]) * ((float)w_ptr[((((((int)blockIdx.x) & 1) * 72) + (((int)threadIdx.z) * 9)) + 42)])));
  sum_local_ptr[1] = (sum_local_ptr[1] + (((float)staged_shared_ptr[((((((int)threadIdx.z) * 320) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 1383)]) * ((float)w_ptr[((((((int)blockIdx.x) & 1) * 72) + (((int)threadIdx.z) * 9)) + 42)])));
  sum_local_ptr[2] = (sum_local_ptr[2] + (((float)staged_shared_ptr[((((((int)threadIdx.z) * 320) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 1415)]) * ((float)w_ptr[((((((int)blockIdx.x) & 1) * 72) + (((int)threadIdx.z) * 9)) + 42)])));
  sum_local_ptr[3] = (sum_local_ptr[3] + (((float)staged_shared_ptr[((((((int)threadIdx.z) * 320) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 1447)]) * ((float)w_ptr[((((((int)blockIdx.x) & 1) * 72) + (((int)threadIdx.z) * 9)) + 42)])));
  sum_local_ptr[0] = (sum_local_ptr[0] + (((float)staged_shared_ptr[((((((int)threadIdx.z) * 320) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 1352)]) * ((float)w_ptr[((((((int)blockIdx.x) & 1) * 72) + (((int)threadIdx.z) * 9)) + 43)])));
  sum_local_ptr[1] = (sum_local_ptr[1] + (((float)staged_shared_ptr[((((((int)threadIdx.z) * 320) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 1384)]) * ((float)w_ptr[((((((int)blockIdx.x) & 1) * 72) + (((int)threadIdx.z) * 9)) + 43)])));
  sum_local_ptr[2] = (sum_local_ptr[2] + (((float)staged_shared_ptr[((((((int)threadIdx.z) * 320) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 1416)]) * ((float)w_ptr[((((((int)blockIdx.x) & 1) * 72) + (((int)threadIdx.z) * 9)) + 43)])));
  sum_local_ptr[3] = (sum_local_ptr[3] + (((float)staged_shared_ptr[((((((int)threadIdx.z) * 320) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 1448)]) * ((float)w_ptr[((((((int)blockIdx.x) & 1) * 72) + (((int)threadIdx.z) * 9)) + 43)])));
  sum_local_ptr[0] = (sum_local_ptr[0] + (((float)staged_shared_ptr[((((((int)threadIdx.z) * 320) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 1353)]) * ((float)w_ptr[((((((int)blockIdx.x) & 1) * 72) + (((int)threadIdx.z) * 9)) + 44)])));
  sum_local_ptr[1] = (sum_local_ptr[1] + (((float)staged_shared_ptr[((((((int)threadIdx.z) * 320) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 1385)]) * ((float)w_ptr[((((((int)blockIdx.x) & 1) * 72) + (((int)threadIdx.z) * 9)) + 44)])));
  sum_local_ptr[2] = (sum_local_ptr[2] + (((float)staged_shared_ptr[((((((int)threadIdx.z) * 320) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 1417)]) * ((float)w_ptr[((((((int)blockIdx.x) & 1) * 72) + (((int)threadIdx.z) * 9)) + 44)])));
  sum_local_ptr[3] = (sum_local_ptr[3] + (((float)staged_shared_ptr[((((((int)threadIdx.z) * 320) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 1449)]) * ((float)w_ptr[((((((int)blockIdx.x) & 1) * 72) + (((int)threadIdx.z) * 9)) + 44)])));
  y_ptr[(((((((int)blockIdx.x) * 1024) + (((int)threadIdx.z) * 128)) + (((int)threadIdx.y) * 64)) + ((int)threadIdx.x)) + 512)] = ((half)sum_local_ptr[0]);
  y_ptr[(((((((int)blockIdx.x) * 1024) + (((int)threadIdx.z) * 128)) + (((int)threadIdx.y) * 64)) + ((int)threadIdx.x)) + 528)] = ((half)sum_local_ptr[1]);
  y_ptr[(((((((int)blockIdx.x) * 1024) + (((int)threadIdx.z) * 128)) + (((int)threadIdx.y) * 64)) + ((int)threadIdx.x)) + 544)] = ((half)sum_local_ptr[2]);
  y_ptr[(((((((int)blockIdx.x) * 1024) + (((int)threadIdx.z) * 128)) + (((int)threadIdx.y) * 64)) + ((int)threadIdx.x)) + 560)] = ((half)sum_local_ptr[3]);
  sum_local_ptr[0] = 0x0p+0f/*0.000000e+00*/;
  sum_local_ptr[1] = 0x0p+0f/*0.000000e+00*/;
  sum_local_ptr[2] = 0x0p+0f/*0.000000e+00*/;
  sum_local_ptr[3] = 0x0p+0f/*0.000000e+00*/;
  async_wait_group_0();
  __syncthreads();
  sum_local_ptr[0] = (sum_local_ptr[0] + (((float)staged_shared_ptr[((((((int)threadIdx.z) * 320) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 7)]) * ((float)w_ptr[((((((int)blockIdx.x) & 1) * 72) + (((int)threadIdx.z) * 9)) + 54)])));
  sum_local_ptr[1] = (sum_local_ptr[1] + (((float)staged_shared_ptr[((((((int)threadIdx.z) * 320) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 39)]) * ((float)w_ptr[((((((int)blockIdx.x) & 1) * 72) + (((int)threadIdx.z) * 9)) + 54)])));
  sum_local_ptr[2] = (sum_local_ptr[2] + (((float)staged_shared_ptr[((((((int)threadIdx.z) * 320) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 71)]) * ((float)w_ptr[((((((int)blockIdx.x) & 1) * 72) + (((int)threadIdx.z) * 9)) + 54)])));
  sum_local_ptr[3] = (sum_local_ptr[3] + (((float)staged_shared_ptr[((((((int)threadIdx.z) * 320) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 103)]) * ((float)w_ptr[((((((int)blockIdx.x) & 1) * 72) + (((int)threadIdx.z) * 9)) + 54)])));
  sum_local_ptr[0] = (sum_local_ptr[0] + (((float)staged_shared_ptr[((((((int)threadIdx.z) * 320) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 8)]) * ((float)w_ptr[((((((int)blockIdx.x) & 1) * 72) + (((int)threadIdx.z) * 9)) + 55)])));
  sum_local_ptr[1] = (sum_local_ptr[1] + (((float)staged_shared_ptr[((((((int)threadIdx.z) * 320) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 40)]) * ((float)w_ptr[((((((int)blockIdx.x) & 1) * 72) + (((int)threadIdx.z) * 9)) + 55)])));
  sum_local_ptr[2] = (sum_local_ptr[2] + (((float)staged_shared_ptr[((((((int)threadIdx.z) * 320) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 72)]) * ((float)w_ptr[((((((int)blockIdx.x) & 1) * 72) + (((int)threadIdx.z) * 9)) + 55)])));
  sum_local_ptr[3] = (sum_local_ptr[3] + (((float)staged_shared_ptr[((((((int)threadIdx.z) * 320) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 104)]) * ((float)w_ptr[((((((int)blockIdx.x) & 1) * 72) + (((int)threadIdx.z) * 9)) + 55)])));
  sum_local_ptr[0] = (sum_local_ptr[0] + (((float)staged_shared_ptr[((((((int)threadIdx.z) * 320) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 9)]) * ((float)w_ptr[((((((int)blockIdx.x) & 1) * 72) + (((int)threadIdx.z) * 9)) + 56)])));
  sum_local_ptr[1] = (sum_local_ptr[1] + (((float)staged_shared_ptr[((((((int)threadIdx.z) * 320) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 41)]) * ((float)w_ptr[((((((int)blockIdx.x) & 1) * 72) + (((int)threadIdx.z) * 9)) + 56)])));
  sum_local_ptr[2] = (sum_local_ptr[2] + (((float)staged_shared_ptr[((((((int)threadIdx.z) * 320) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 73)]) * ((float)w_ptr[((((((int)blockIdx.x) & 1) * 72) + (((int)threadIdx.z) * 9)) + 56)])));
  sum_local_ptr[3] = (sum_local_ptr[3] + (((float)staged_shared_ptr[((((((int)threadIdx.z) * 320) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 105)]) * ((float)w_ptr[((((((int)blockIdx.x) & 1) * 72) + (((int)threadIdx.z) * 9)) + 56)])));
  sum_local_ptr[0] = (sum_local_ptr[0] + (((float)staged_shared_ptr[((((((int)threadIdx.z) * 320) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 39)]) * ((float)w_ptr[((((((int)blockIdx.x) & 1) * 72) + (((int)threadIdx.z) * 9)) + 57)])));
  sum_local_ptr[1] = (sum_local_ptr[1] + (((float)staged_shared_ptr[((((((int)threadIdx.z) * 320) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 71)]) * ((float)w_ptr[((((((int)blockIdx.x) & 1) * 72) + (((int)threadIdx.z) * 9)) + 57)])));
  sum_local_ptr[2] = (sum_local_ptr[2] + (((float)staged_shared_ptr[((((((int)threadIdx.z) * 320) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 103)]) * ((float)w_ptr[((((((int)blockIdx.x) & 1) * 72) + (((int)threadIdx.z) * 9)) + 57)])));
  sum_local_ptr[3] = (sum_local_ptr[3] + (((float)staged_shared_ptr[((((((int)threadIdx.z) * 320) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 135)]) * ((float)w_ptr[((((((int)blockIdx.x) & 1) * 72) + (((int)threadIdx.z) * 9)) + 57)])));
  sum_local_ptr[0] = (sum_local_ptr[0] + (((float)staged_shared_ptr[((((((int)threadIdx.z) * 320) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 40)]) * ((float)w_ptr[((((((int)blockIdx.x) & 1) * 72) + (((int)threadIdx.z) * 9)) + 58)])));
  sum_local_ptr[1] = (sum_local_ptr[1] + (((float)staged_shared_ptr[((((((int)threadIdx.z) * 320) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 72)]) * ((float)w_ptr[((((((int)blockIdx.x) & 1) * 72) + (((int)threadIdx.z) * 9)) + 58)])));
  sum_local_ptr[2] = (sum_local_ptr[2] + (((float)staged_shared_ptr[((((((int)threadIdx.z) * 320) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 104)]) * ((float)w_ptr[((((((int)blockIdx.x) & 1) * 72) + (((int)threadIdx.z) * 9)) + 58)])));
  sum_local_ptr[3] = (sum_local_ptr[3] + (((float)staged_shared_ptr[((((((int)threadIdx.z) * 320) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 136)]) * ((float)w_ptr[((((((int)blockIdx.x) & 1) * 72) + (((int)threadIdx.z) * 9)) + 58)])));
  sum_local_ptr[0] = (sum_local_ptr[0] + (((float)staged_shared_ptr[((((((int)threadIdx.z) * 320) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 41)]) * ((float)w_ptr[((((((int)blockIdx.x) & 1) * 72) + (((int)threadIdx.z) * 9)) + 59)])));
  sum_local_ptr[1] = (sum_local_ptr[1] + (((float)staged_shared_ptr[((((((int)threadIdx.z) * 320) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 73)]) * ((float)w_ptr[((((((int)blockIdx.x) & 1) * 72) + (((int)threadIdx.z) * 9)) + 59)])));
  sum_local_ptr[2] = (sum_local_ptr[2] + (((float)staged_shared_ptr[((((((int)threadIdx.z) * 320) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 105)]) * ((float)w_ptr[((((((int)blockIdx.x) & 1) * 72) + (((int)threadIdx.z) * 9)) + 59)])));
  sum_local_ptr[3] = (sum_local_ptr[3] + (((float)staged_shared_ptr[((((((int)threadIdx.z) * 320) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 137)]) * ((float)w_ptr[((((((int)blockIdx.x) & 1) * 72) + (((int)threadIdx.z) * 9)) + 59)])));
  sum_local_ptr[0] = (sum_local_ptr[0] + (((float)staged_shared_ptr[((((((int)threadIdx.z) * 320) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 71)]) * ((float)w_ptr[((((((int)blockIdx.x) & 1) * 72) + (((int)threadIdx.z) * 9)) + 60)])));
  sum_local_ptr[1] = (sum_local_ptr[1] + (((float)staged_shared_ptr[((((((int)threadIdx.z) * 320) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 103)]) * ((float)w_ptr[((((((int)blockIdx.x) & 1) * 72) + (((int)threadIdx.z) * 9)) + 60)])));
  sum_local_ptr[2] = (sum_local_ptr[2] + (((float)staged_shared_ptr[((((((int)threadIdx.z) * 320) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 135)]) * ((float)w_ptr[((((((int)blockIdx.x) & 1) * 72) + (((int)threadIdx.z) * 9)) + 60)])));
  sum_local_ptr[3] = (sum_local_ptr[3] + (((float)staged_shared_ptr[((((((int)threadIdx.z) * 320) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 167)]) * ((float)w_ptr[((((((int)blockIdx.x) & 1) * 72) + (((int)threadIdx.z) * 9)) + 60)])));
  sum_local_ptr[0] = (sum_local_ptr[0] + (((float)staged_shared_ptr[((((((int)threadIdx.z) * 320) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 72)]) * ((float)w_ptr[((((((int)blockIdx.x) & 1) * 72) + (((int)threadIdx.z) * 9)) + 61)])));
  sum_local_ptr[1] = (sum_local_ptr[1] + (((float)staged_shared_ptr[((((((int)threadIdx.z) * 320) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 104)]) * ((float)w_ptr[((((((int)blockIdx.x) & 1) * 72) + (((int)threadIdx.z) * 9)) + 61)])));
  sum_local_ptr[2] = (sum_local_ptr[2] + (((float)staged_shared_ptr[((((((int)threadIdx.z) * 320) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 136)]) * ((float)w_ptr[((((((int)blockIdx.x) & 1) * 72) + (((int)threadIdx.z) * 9)) + 61)])));
  sum_local_ptr[3] = (sum_local_ptr[3] + (((float)staged_shared_ptr[((((((int)threadIdx.z) * 320) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 168)]) * ((float)w_ptr[((((((int)blockIdx.x) & 1) * 72) + (((int)threadIdx.z) * 9)) + 61)])));
  sum_local_ptr[0] = (sum_local_ptr[0] + (((float)staged_shared_ptr[((((((int)threadIdx.z) * 320) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 73)]) * ((float)w_ptr[((((((int)blockIdx.x) & 1) * 72) + (((int)threadIdx.z) * 9)) + 62)])));
  sum_local_ptr[1] = (sum_local_ptr[1] + (((float)staged_shared_ptr[((((((int)threadIdx.z) * 320) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 105)]) * ((float)w_ptr[((((((int)blockIdx.x) & 1) * 72) + (((int)threadIdx.z) * 9)) + 62)])));
  sum_local_ptr[2] = (sum_local_ptr[2] + (((float)staged_shared_ptr[((((((int)threadIdx.z) * 320) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 137)]) * ((float)w_ptr[((((((int)blockIdx.x) & 1) * 72) + (((int)threadIdx.z) * 9)) + 62)])));
  sum_local_ptr[3] = (sum_local_ptr[3] + (((float)staged_shared_ptr[((((((int)threadIdx.z) * 320) + (((int)threadIdx.y) * 128)) + ((int)threadIdx.x)) + 169)]) * ((float)w_ptr[((((((int)blockIdx.x) & 1) * 72) + (((int)threadIdx.z) * 9)) + 62)])));
  y_ptr[(((((((int)blockIdx.x) * 1024) + (((int)threadIdx.z) * 128)) + (((int)threadIdx.y) * 64)) + ((int)threadIdx.x)) + 768)] = ((half)sum_local_ptr[0]);
  y_ptr[(((((((int)blockIdx.x) * 1024) + (((int)threadIdx.z) * 128)) + (((int)threadIdx.y) * 64)) + ((int)threadIdx.x)) + 784)] = ((half)sum_local_ptr[1]);
  y_ptr[(((((((int)blockIdx.x) * 1024) + (((int)threadIdx.z) * 128)) + (((int)threadIdx.y) * 64)) + ((int)threadIdx.x)) + 800)] = ((half)sum_local_ptr[2]);
  y_ptr[(((((((int)blockIdx.x) * 1024) + (((int)threadIdx.z) * 128)) + (((int)threadIdx.y) * 64)) + ((int)threadIdx.x)) + 816)] = ((half)sum_local_ptr[3]);
}
