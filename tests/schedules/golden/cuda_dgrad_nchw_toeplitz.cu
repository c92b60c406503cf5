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

static __device__ nv_bfloat162 make_nv_bfloat162(nv_bfloat16 x, nv_bfloat16 y) { return __halves2bfloat162(x, y); }

typedef unsigned int uint;

__forceinline__ __device__ void tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_bf16_bf16_f32(float& __d0, float& __d1, float& __d2, float& __d3, uint32_t __a0, uint32_t __a1, uint32_t __a2, uint32_t __a3, uint32_t __b0, uint32_t __b1, float __c0, float __c1, float __c2, float __c3) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};" : "=f"(__d0), "=f"(__d1), "=f"(__d2), "=f"(__d3) : "r"(__a0), "r"(__a1), "r"(__a2), "r"(__a3), "r"(__b0), "r"(__b1), "f"(__c0), "f"(__c1), "f"(__c2), "f"(__c3));
}

__forceinline__ __device__ void tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x4_shared_b16(uint32_t& __r0, uint32_t& __r1, uint32_t& __r2, uint32_t& __r3, uint32_t __p) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(__r0), "=r"(__r1), "=r"(__r2), "=r"(__r3) : "r"(__p) : "memory");
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

extern "C" __global__ void __launch_bounds__(64, 8) main_kernel(nv_bfloat16* __restrict__ dx_ptr, nv_bfloat16* __restrict__ dy_ptr, nv_bfloat16* __restrict__ w_ptr, int n) {
  alignas(64) int first_row_local_ptr[1];
  alignas(64) int vector_local_ptr[1];
  __shared__ alignas(64) nv_bfloat16 staged_shared_ptr[2944];
  alignas(64) int row_local_ptr[1];
  alignas(64) nv_bfloat16 value_local_ptr[1];
  alignas(64) int first_row_local_ptr_1[1];
  alignas(64) int vector_local_ptr_1[1];
  alignas(64) int row_local_ptr_1[1];
  alignas(64) nv_bfloat16 weight_local_ptr[1];
  alignas(64) float sum_local_ptr[32];
  alignas(64) int band_local_ptr[1];
  alignas(64) uint tap_local_ptr[15];
  alignas(64) int start_local_ptr[1];
  alignas(64) uint source_local_ptr[4];
  alignas(64) uint source_local_ptr_1[4];
  alignas(64) uint source_local_ptr_2[4];
  alignas(64) uint source_local_ptr_3[4];
  alignas(64) int result_at_local_ptr[1];
  alignas(64) nv_bfloat16 rounded_local_ptr[2];
  alignas(64) nv_bfloat16 rounded_local_ptr_1[2];
  alignas(64) nv_bfloat16 rounded_local_ptr_2[2];
  alignas(64) nv_bfloat16 rounded_local_ptr_3[2];
  alignas(64) nv_bfloat16 rounded_local_ptr_4[2];
  alignas(64) nv_bfloat16 rounded_local_ptr_5[2];
  alignas(64) nv_bfloat16 rounded_local_ptr_6[2];
  alignas(64) nv_bfloat16 rounded_local_ptr_7[2];
  alignas(64) int result_at_local_ptr_1[1];
  alignas(64) nv_bfloat16 rounded_local_ptr_8[2];
  alignas(64) nv_bfloat16 rounded_local_ptr_9[2];
  alignas(64) nv_bfloat16 rounded_local_ptr_10[2];
  alignas(64) nv_bfloat16 rounded_local_ptr_11[2];
  alignas(64) nv_bfloat16 rounded_local_ptr_12[2];
  alignas(64) nv_bfloat16 rounded_local_ptr_13[2];
  alignas(64) nv_bfloat16 rounded_local_ptr_14[2];
  alignas(64) nv_bfloat16 rounded_local_ptr_15[2];
  alignas(64) int first_row_local_ptr_2[1];
  alignas(64) int vector_local_ptr_2[1];
  alignas(64) int row_local_ptr_2[1];
  first_row_local_ptr[0] = (((int)threadIdx.x) >> 4);
  vector_local_ptr[0] = (((int)threadIdx.x) & 15);
  #pragma unroll
  for (int turn = 0; turn < 2; ++turn) {
    row_local_ptr[0] = ((turn * 2) + first_row_local_ptr[0]);
    #pragma unroll
    for (int image = 0; image < 16; ++image) {
      value_local_ptr[0] = __float2bfloat16_rn(0x0p+0f/*0.000000e+00*/);
      if (((((0 <= row_local_ptr[0]) && (row_local_ptr[0] < 4)) && (0 <= vector_local_ptr[0])) && (vector_local_ptr[0] < 13)) && (((((int)blockIdx.x) * 16) + image) < n)) {
        value_local_ptr[0] = dy_ptr[((((((((int)blockIdx.x) * 3328) + (image * 208)) + (((int)blockIdx.y) * 104)) + (((int)threadIdx.z) * 52)) + (row_local_ptr[0] * 13)) + vector_local_ptr[0])];
      }
      staged_shared_ptr[((((((int)threadIdx.z) * 1152) + (image * 72)) + (row_local_ptr[0] * 16)) + vector_local_ptr[0])] = value_local_ptr[0];
    }
  }
  async_commit_group();
  first_row_local_ptr_1[0] = 0;
  #pragma unroll
  for (int part = 0; part < 2; ++part) {
    vector_local_ptr_1[0] = ((part * 32) + ((int)threadIdx.x));
    #pragma unroll
    for (int turn_1 = 0; turn_1 < 5; ++turn_1) {
      row_local_ptr_1[0] = (turn_1 + first_row_local_ptr_1[0]);
      weight_local_ptr[0] = __float2bfloat16_rn(0x0p+0f/*0.000000e+00*/);
      if ((-18 <= ((vector_local_ptr_1[0] >> 5) - (vector_local_ptr_1[0] & 31))) && (((vector_local_ptr_1[0] >> 5) - (vector_local_ptr_1[0] & 31)) < -13)) {
        weight_local_ptr[0] = w_ptr[((((((((int)blockIdx.y) * 50) + (((int)threadIdx.z) * 25)) + (row_local_ptr_1[0] * 5)) + (vector_local_ptr_1[0] >> 5)) + 18) - (vector_local_ptr_1[0] & 31))];
      }
      staged_shared_ptr[((((((int)threadIdx.z) * 320) + (row_local_ptr_1[0] * 64)) + vector_local_ptr_1[0]) + 2304)] = weight_local_ptr[0];
    }
  }
  #pragma unroll
  for (int index = 0; index < 32; ++index) {
    sum_local_ptr[index] = 0x0p+0f/*0.000000e+00*/;
  }
  async_wait_group_0();
  __syncthreads();
  band_local_ptr[0] = (((((((int)threadIdx.z) * 320) + (((((int)threadIdx.x) & 7) >> 2) * 32)) + ((((int)threadIdx.x) & 3) * 2)) + 2312) - ((((int)threadIdx.x) >> 3) * 2));
    int2 v_ = make_int2((band_local_ptr[0])+(1*0), (band_local_ptr[0])+(1*1));
    nv_bfloat162 v__1 = make_nv_bfloat162(staged_shared_ptr[v_.x],staged_shared_ptr[v_.y]);
  tap_local_ptr[0] = (*(uint *)(&(v__1)));
    int2 v__2 = make_int2(((band_local_ptr[0] + 8))+(1*0), ((band_local_ptr[0] + 8))+(1*1));
    nv_bfloat162 v__3 = make_nv_bfloat162(staged_shared_ptr[v__2.x],staged_shared_ptr[v__2.y]);
  tap_local_ptr[1] = (*(uint *)(&(v__3)));
    int2 v__4 = make_int2(((band_local_ptr[0] + 16))+(1*0), ((band_local_ptr[0] + 16))+(1*1));
    nv_bfloat162 v__5 = make_nv_bfloat162(staged_shared_ptr[v__4.x],staged_shared_ptr[v__4.y]);
  tap_local_ptr[2] = (*(uint *)(&(v__5)));
    int2 v__6 = make_int2(((band_local_ptr[0] + 64))+(1*0), ((band_local_ptr[0] + 64))+(1*1));
    nv_bfloat162 v__7 = make_nv_bfloat162(staged_shared_ptr[v__6.x],staged_shared_ptr[v__6.y]);
  tap_local_ptr[3] = (*(uint *)(&(v__7)));
    int2 v__8 = make_int2(((band_local_ptr[0] + 72))+(1*0), ((band_local_ptr[0] + 72))+(1*1));
    nv_bfloat162 v__9 = make_nv_bfloat162(staged_shared_ptr[v__8.x],staged_shared_ptr[v__8.y]);
  tap_local_ptr[4] = (*(uint *)(&(v__9)));
    int2 v__10 = make_int2(((band_local_ptr[0] + 80))+(1*0), ((band_local_ptr[0] + 80))+(1*1));
    nv_bfloat162 v__11 = make_nv_bfloat162(staged_shared_ptr[v__10.x],staged_shared_ptr[v__10.y]);
  tap_local_ptr[5] = (*(uint *)(&(v__11)));
    int2 v__12 = make_int2(((band_local_ptr[0] + 128))+(1*0), ((band_local_ptr[0] + 128))+(1*1));
    nv_bfloat162 v__13 = make_nv_bfloat162(staged_shared_ptr[v__12.x],staged_shared_ptr[v__12.y]);
  tap_local_ptr[6] = (*(uint *)(&(v__13)));
    int2 v__14 = make_int2(((band_local_ptr[0] + 136))+(1*0), ((band_local_ptr[0] + 136))+(1*1));
    nv_bfloat162 v__15 = make_nv_bfloat162(staged_shared_ptr[v__14.x],staged_shared_ptr[v__14.y]);
  tap_local_ptr[7] = (*(uint *)(&(v__15)));
    int2 v__16 = make_int2(((band_local_ptr[0] + 144))+(1*0), ((band_local_ptr[0] + 144))+(1*1));
    nv_bfloat162 v__17 = make_nv_bfloat162(staged_shared_ptr[v__16.x],staged_shared_ptr[v__16.y]);
  tap_local_ptr[8] = (*(uint *)(&(v__17)));
    int2 v__18 = make_int2(((band_local_ptr[0] + 192))+(1*0), ((band_local_ptr[0] + 192))+(1*1));
    nv_bfloat162 v__19 = make_nv_bfloat162(staged_shared_ptr[v__18.x],staged_shared_ptr[v__18.y]);
  tap_local_ptr[9] = (*(uint *)(&(v__19)));
    int2 v__20 = make_int2(((band_local_ptr[0] + 200))+(1*0), ((band_local_ptr[0] + 200))+(1*1));
    nv_bfloat162 v__21 = make_nv_bfloat162(staged_shared_ptr[v__20.x],staged_shared_ptr[v__20.y]);
  tap_local_ptr[10] = (*(uint *)(&(v__21)));
    int2 v__22 = make_int2(((band_local_ptr[0] + 208))+(1*0), ((band_local_ptr[0] + 208))+(1*1));
    nv_bfloat162 v__23 = make_nv_bfloat162(staged_shared_ptr[v__22.x],staged_shared_ptr[v__22.y]);
  tap_local_ptr[11] = (*(uint *)(&(v__23)));
    int2 v__24 = make_int2(((band_local_ptr[0] + 256))+(1*0), ((band_local_ptr[0] + 256))+(1*1));
    nv_bfloat162 v__25 = make_nv_bfloat162(staged_shared_ptr[v__24.x],staged_shared_ptr[v__24.y]);
  tap_local_ptr[12] = (*(uint *)(&(v__25)));
    int2 v__26 = make_int2(((band_local_ptr[0] + 264))+(1*0), ((band_local_ptr[0] + 264))+(1*1));
    nv_bfloat162 v__27 = make_nv_bfloat162(staged_shared_ptr[v__26.x],staged_shared_ptr[v__26.y]);
  tap_local_ptr[13] = (*(uint *)(&(v__27)));
    int2 v__28 = make_int2(((band_local_ptr[0] + 272))+(1*0), ((band_local_ptr[0] + 272))+(1*1));
    nv_bfloat162 v__29 = make_nv_bfloat162(staged_shared_ptr[v__28.x],staged_shared_ptr[v__28.y]);
  tap_local_ptr[14] = (*(uint *)(&(v__29)));
  start_local_ptr[0] = (((((int)threadIdx.z) * 1152) + ((((int)threadIdx.x) & 15) * 72)) + ((((int)threadIdx.x) >> 4) * 8));
  tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x4_shared_b16(source_local_ptr[0], source_local_ptr[1], source_local_ptr[2], source_local_ptr[3], tvm_builtin_cuda_cvta_generic_to_shared((&(staged_shared_ptr[start_local_ptr[0]]))));
  tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_bf16_bf16_f32(sum_local_ptr[0], sum_local_ptr[1], sum_local_ptr[2], sum_local_ptr[3], source_local_ptr[0], source_local_ptr[1], source_local_ptr[2], source_local_ptr[3], tap_local_ptr[7], tap_local_ptr[8], sum_local_ptr[0], sum_local_ptr[1], sum_local_ptr[2], sum_local_ptr[3]);
  tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_bf16_bf16_f32(sum_local_ptr[4], sum_local_ptr[5], sum_local_ptr[6], sum_local_ptr[7], source_local_ptr[0], source_local_ptr[1], source_local_ptr[2], source_local_ptr[3], tap_local_ptr[6], tap_local_ptr[7], sum_local_ptr[4], sum_local_ptr[5], sum_local_ptr[6], sum_local_ptr[7]);
  tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_bf16_bf16_f32(sum_local_ptr[8], sum_local_ptr[9], sum_local_ptr[10], sum_local_ptr[11], source_local_ptr[0], source_local_ptr[1], source_local_ptr[2], source_local_ptr[3], tap_local_ptr[10], tap_local_ptr[11], sum_local_ptr[8], sum_local_ptr[9], sum_local_ptr[10], sum_local_ptr[11]);
  tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_bf16_bf16_f32(sum_local_ptr[12], sum_local_ptr[13], sum_local_ptr[14], sum_local_ptr[15], source_local_ptr[0], source_local_ptr[1], source_local_ptr[2], source_local_ptr[3], tap_local_ptr[9], tap_local_ptr[10], sum_local_ptr[12], sum_local_ptr[13], sum_local_ptr[14], sum_local_ptr[15]);
  tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_bf16_bf16_f32(sum_local_ptr[16], sum_local_ptr[17], sum_local_ptr[18], sum_local_ptr[19], source_local_ptr[0], source_local_ptr[1], source_local_ptr[2], source_local_ptr[3], tap_local_ptr[13], tap_local_ptr[14], sum_local_ptr[16], sum_local_ptr[17], sum_local_ptr[18], sum_local_ptr[19]);
  tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_bf16_bf16_f32(sum_local_ptr[20], sum_local_ptr[21], sum_local_ptr[22], sum_local_ptr[23], source_local_ptr[0], source_local_ptr[1], source_local_ptr[2], source_local_ptr[3], tap_local_ptr[12], tap_local_ptr[13], sum_local_ptr[20], sum_local_ptr[21], sum_local_ptr[22], sum_local_ptr[23]);
  tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x4_shared_b16(source_local_ptr_1[0], source_local_ptr_1[1], source_local_ptr_1[2], source_local_ptr_1[3], tvm_builtin_cuda_cvta_generic_to_shared((&(staged_shared_ptr[(start_local_ptr[0] + 16)]))));
  tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_bf16_bf16_f32(sum_local_ptr[0], sum_local_ptr[1], sum_local_ptr[2], sum_local_ptr[3], source_local_ptr_1[0], source_local_ptr_1[1], source_local_ptr_1[2], source_local_ptr_1[3], tap_local_ptr[4], tap_local_ptr[5], sum_local_ptr[0], sum_local_ptr[1], sum_local_ptr[2], sum_local_ptr[3]);
  tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_bf16_bf16_f32(sum_local_ptr[4], sum_local_ptr[5], sum_local_ptr[6], sum_local_ptr[7], source_local_ptr_1[0], source_local_ptr_1[1], source_local_ptr_1[2], source_local_ptr_1[3], tap_local_ptr[3], tap_local_ptr[4], sum_local_ptr[4], sum_local_ptr[5], sum_local_ptr[6], sum_local_ptr[7]);
  tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_bf16_bf16_f32(sum_local_ptr[8], sum_local_ptr[9], sum_local_ptr[10], sum_local_ptr[11], source_local_ptr_1[0], source_local_ptr_1[1], source_local_ptr_1[2], source_local_ptr_1[3], tap_local_ptr[7], tap_local_ptr[8], sum_local_ptr[8], sum_local_ptr[9], sum_local_ptr[10], sum_local_ptr[11]);
  tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_bf16_bf16_f32(sum_local_ptr[12], sum_local_ptr[13], sum_local_ptr[14], sum_local_ptr[15], source_local_ptr_1[0], source_local_ptr_1[1], source_local_ptr_1[2], source_local_ptr_1[3], tap_local_ptr[6], tap_local_ptr[7], sum_local_ptr[12], sum_local_ptr[13], sum_local_ptr[14], sum_local_ptr[15]);
  tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_bf16_bf16_f32(sum_local_ptr[16], sum_local_ptr[17], sum_local_ptr[18], sum_local_ptr[19], source_local_ptr_1[0], source_local_ptr_1[1], source_local_ptr_1[2], source_local_ptr_1[3], tap_local_ptr[10], tap_local_ptr[11], sum_local_ptr[16], sum_local_ptr[17], sum_local_ptr[18], sum_local_ptr[19]);
  tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_bf16_bf16_f32(sum_local_ptr[20], sum_local_ptr[21], sum_local_ptr[22], sum_local_ptr[23], source_local_ptr_1[0], source_local_ptr_1[1], source_local_ptr_1[2], source_local_ptr_1[3], tap_local_ptr[9], tap_local_ptr[10], sum_local_ptr[20], sum_local_ptr[21], sum_local_ptr[22], sum_local_ptr[23]);
  tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_bf16_bf16_f32(sum_local_ptr[24], sum_local_ptr[25], sum_local_ptr[26], sum_local_ptr[27], source_local_ptr_1[0], source_local_ptr_1[1], source_local_ptr_1[2], source_local_ptr_1[3], tap_local_ptr[13], tap_local_ptr[14], sum_local_ptr[24], sum_local_ptr[25], sum_local_ptr[26], sum_local_ptr[27]);
  tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_bf16_bf16_f32(sum_local_ptr[28], sum_local_ptr[29], sum_local_ptr[30], sum_local_ptr[31], source_local_ptr_1[0], source_local_ptr_1[1], source_local_ptr_1[2], source_local_ptr_1[3], tap_local_ptr[12], tap_local_ptr[13], sum_local_ptr[28], sum_local_ptr[29], sum_local_ptr[30], sum_local_ptr[31]);
  tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x4_shared_b16(source_local_ptr_2[0], source_local_ptr_2[1], source_local_ptr_2[2], source_local_ptr_2[3], tvm_builtin_cuda_cvta_generic_to_shared((&(staged_shared_ptr[(start_local_ptr[0] + 32)]))));
  tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_bf16_bf16_f32(sum_local_ptr[0], sum_local_ptr[1], sum_local_ptr[2], sum_local_ptr[3], source_local_ptr_2[0], source_local_ptr_2[1], source_local_ptr_2[2], source_local_ptr_2[3], tap_local_ptr[1], tap_local_ptr[2], sum_local_ptr[0], sum_local_ptr[1], sum_local_ptr[2], sum_local_ptr[3]);
  tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_bf16_bf16_f32(sum_local_ptr[4], sum_local_ptr[5], sum_local_ptr[6], sum_local_ptr[7], source_local_ptr_2[0], source_local_ptr_2[1], source_local_ptr_2[2], source_local_ptr_2[3], tap_local_ptr[0], tap_local_ptr[1], sum_local_ptr[4], sum_local_ptr[5], sum_local_ptr[6], sum_local_ptr[7]);
  tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_bf16_bf16_f32(sum_local_ptr[8], sum_local_ptr[9], sum_local_ptr[10], sum_local_ptr[11], source_local_ptr_2[0], source_local_ptr_2[1], source_local_ptr_2[2], source_local_ptr_2[3], tap_local_ptr[4], tap_local_ptr[5], sum_local_ptr[8], sum_local_ptr[9], sum_local_ptr[10], sum_local_ptr[11]);
  tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_bf16_bf16_f32(sum_local_ptr[12], sum_local_ptr[13], sum_local_ptr[14], sum_local_ptr[15], source_local_ptr_2[0], source_local_ptr_2[1], source_local_ptr_2[2], source_local_ptr_2[3], tap_local_ptr[3], tap_local_ptr[4], sum_local_ptr[12], sum_local_ptr[13], sum_local_ptr[14], sum_local_ptr[15]);
  tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_bf16_bf16_f32(sum_local_ptr[16], sum_local_ptr[17], sum_local_ptr[18], sum_local_ptr[19], source_local_ptr_2[0], source_local_ptr_2[1], source_local_ptr_2[2], source_local_ptr_2[3], tap_local_ptr[7], tap_local_ptr[8], sum_local_ptr[16], sum_local_ptr[17], sum_local_ptr[18], sum_local_ptr[19]);
  tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_bf16_bf16_f32(sum_local_ptr[20], sum_local_ptr[21], sum_local_ptr[22], sum_local_ptr[23], source_local_ptr_2[0], source_local_ptr_2[1], source_local_ptr_2[2], source_local_ptr_2[3], tap_local_ptr[6], tap_local_ptr[7], sum_local_ptr[20], sum_local_ptr[21], sum_local_ptr[22], sum_local_ptr[23]);
  tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_bf16_bf16_f32(sum_local_ptr[24], sum_local_ptr[25], sum_local_ptr[26], sum_local_ptr[27], source_local_ptr_2[0], source_local_ptr_2[1], source_local_ptr_2[2], source_local_ptr_2[3], tap_local_ptr[10], tap_local_ptr[11], sum_local_ptr[24], sum_local_ptr[25], sum_local_ptr[26], sum_local_ptr[27]);
  tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_bf16_bf16_f32(sum_local_ptr[28], sum_local_ptr[29], sum_local_ptr[30], sum_local_ptr[31], source_local_ptr_2[0], source_local_ptr_2[1], source_local_ptr_2[2], source_local_ptr_2[3], tap_local_ptr[9], tap_local_ptr[10], sum_local_ptr[28], sum_local_ptr[29], sum_local_ptr[30], sum_local_ptr[31]);
  tvm_builtin_ptx_ldmatrix_sync_aligned_m8n8_x4_shared_b16(source_local_ptr_3[0], source_local_ptr_3[1], source_local_ptr_3[2], source_local_ptr_3[3], tvm_builtin_cuda_cvta_generic_to_shared((&(staged_shared_ptr[(start_local_ptr[0] + 48)]))));
  tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_bf16_bf16_f32(sum_local_ptr[8], sum_local_ptr[9], sum_local_ptr[10], sum_local_ptr[11], source_local_ptr_3[0], source_local_ptr_3[1], source_local_ptr_3[2], source_local_ptr_3[3], tap_local_ptr[1], tap_local_ptr[2], sum_local_ptr[8], sum_local_ptr[9], sum_local_ptr[10], sum_local_ptr[11]);
  tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_bf16_bf16_f32(sum_local_ptr[12], sum_local_ptr[13], sum_local_ptr[14], sum_local_ptr[15], source_local_ptr_3[0], source_local_ptr_3[1], source_local_ptr_3[2], source_local_ptr_3[3], tap_local_ptr[0], tap_local_ptr[1], sum_local_ptr[12], sum_local_ptr[13], sum_local_ptr[14], sum_local_ptr[15]);
  tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_bf16_bf16_f32(sum_local_ptr[16], sum_local_ptr[17], sum_local_ptr[18], sum_local_ptr[19], source_local_ptr_3[0], source_local_ptr_3[1], source_local_ptr_3[2], source_local_ptr_3[3], tap_local_ptr[4], tap_local_ptr[5], sum_local_ptr[16], sum_local_ptr[17], sum_local_ptr[18], sum_local_ptr[19]);
  tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_bf16_bf16_f32(sum_local_ptr[20], sum_local_ptr[21], sum_local_ptr[22], sum_local_ptr[23], source_local_ptr_3[0], source_local_ptr_3[1], source_local_ptr_3[2], source_local_ptr_3[3], tap_local_ptr[3], tap_local_ptr[4], sum_local_ptr[20], sum_local_ptr[21], sum_local_ptr[22], sum_local_ptr[23]);
  tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_bf16_bf16_f32(sum_local_ptr[24], sum_local_ptr[25], sum_local_ptr[26], sum_local_ptr[27], source_local_ptr_3[0], source_local_ptr_3[1], source_local_ptr_3[2], source_local_ptr_3[3], tap_local_ptr[7], tap_local_ptr[8], sum_local_ptr[24], sum_local_ptr[25], sum_local_ptr[26], sum_local_ptr[27]);
  tvm_builtin_ptx_mma_sync_aligned_m16n8k16_row_col_f32_bf16_bf16_f32(sum_local_ptr[28], sum_local_ptr[29], sum_local_ptr[30], sum_local_ptr[31], source_local_ptr_3[0], source_local_ptr_3[1], source_local_ptr_3[2], source_local_ptr_3[3], tap_local_ptr[6], tap_local_ptr[7], sum_local_ptr[28], sum_local_ptr[29], sum_local_ptr[30], sum_local_ptr[31]);
  __syncthreads();
  result_at_local_ptr[0] = (((((int)threadIdx.z) * 1152) + ((((int)threadIdx.x) >> 2) * 72)) + ((((int)threadIdx.x) & 3) * 2));
  rounded_local_ptr[0] = ((nv_bfloat16)sum_local_ptr[0]);
  rounded_local_ptr[1] = ((nv_bfloat16)sum_local_ptr[1]);
  *(nv_bfloat162*)(staged_shared_ptr + result_at_local_ptr[0]) = *(nv_bfloat162*)(rounded_local_ptr + 0);
  rounded_local_ptr_1[0] = ((nv_bfloat16)sum_local_ptr[4]);
  rounded_local_ptr_1[1] = ((nv_bfloat16)sum_local_ptr[5]);
  *(nv_bfloat162*)(staged_shared_ptr + (result_at_local_ptr[0] + 8)) = *(nv_bfloat162*)(rounded_local_ptr_1 + 0);
  rounded_local_ptr_2[0] = ((nv_bfloat16)sum_local_ptr[8]);
  rounded_local_ptr_2[1] = ((nv_bfloat16)sum_local_ptr[9]);
  *(nv_bfloat162*)(staged_shared_ptr + (result_at_local_ptr[0] + 16)) = *(nv_bfloat162*)(rounded_local_ptr_2 + 0);
  rounded_local_ptr_3[0] = ((nv_bfloat16)sum_local_ptr[12]);
  rounded_local_ptr_3[1] = ((nv_bfloat16)sum_local_ptr[13]);
  *(nv_bfloat162*)(staged_shared_ptr + (result_at_local_ptr[0] + 24)) = *(nv_bfloat162*)(rounded_local_ptr_3 + 0);
  rounded_local_ptr_4[0] = ((nv_bfloat16)sum_local_ptr[16]);
  rounded_local_ptr_4[1] = ((nv_bfloat16)sum_local_ptr[17]);
  *(nv_bfloat162*)(staged_shared_ptr + (result_at_local_ptr[0] + 32)) = *(nv_bfloat162*)(rounded_local_ptr_4 + 0);
  rounded_local_ptr_5[0] = ((nv_bfloat16)sum_local_ptr[20]);
  rounded_local_ptr_5[1] = ((nv_bfloat16)sum_local_ptr[21]);
  *(nv_bfloat162*)(staged_shared_ptr + (result_at_local_ptr[0] + 40)) = *(nv_bfloat162*)(rounded_local_ptr_5 + 0);
  rounded_local_ptr_6[0] = ((nv_bfloat16)sum_local_ptr[24]);
  rounded_local_ptr_6[1] = ((nv_bfloat16)sum_local_ptr[25]);
  *(nv_bfloat162*)(staged_shared_ptr + (result_at_local_ptr[0] + 48)) = *(nv_bfloat162*)(rounded_local_ptr_6 + 0);
  rounded_local_ptr_7[0] = ((nv_bfloat16)sum_local_ptr[28]);
  rounded_local_ptr_7[1] = ((nv_bfloat16)sum_local_ptr[29]);
  *(nv_bfloat162*)(staged_shared_ptr + (result_at_local_ptr[0] + 56)) = *(nv_bfloat162*)(rounded_local_ptr_7 + 0);
  result_at_local_ptr_1[0] = ((((((int)threadIdx.z) * 1152) + ((((int)threadIdx.x) >> 2) * 72)) + ((((int)threadIdx.x) & 3) * 2)) + 576);
  rounded_local_ptr_8[0] = ((nv_bfloat16)sum_local_ptr[2]);
  rounded_local_ptr_8[1] = ((nv_bfloat16)sum_local_ptr[3]);
  *(nv_bfloat162*)(staged_shared_ptr + result_at_local_ptr_1[0]) = *(nv_bfloat162*)(rounded_local_ptr_8 + 0);
  rounded_local_ptr_9[0] = ((nv_bfloat16)sum_local_ptr[6]);
  rounded_local_ptr_9[1] = ((nv_bfloat16)sum_local_ptr[7]);
  *(nv_bfloat162*)(staged_shared_ptr + (result_at_local_ptr_1[0] + 8)) = *(nv_bfloat162*)(rounded_local_ptr_9 + 0);
  rounded_local_ptr_10[0] = ((nv_bfloat16)sum_local_ptr[10]);
  rounded_local_ptr_10[1] = ((nv_bfloat16)sum_local_ptr[11]);
  *(nv_bfloat162*)(staged_shared_ptr + (result_at_local_ptr_1[0] + 16)) = *(nv_bfloat162*)(rounded_local_ptr_10 + 0);
  rounded_local_ptr_11[0] = ((nv_bfloat16)sum_local_ptr[14]);
  rounded_local_ptr_11[1] = ((nv_bfloat16)sum_local_ptr[15]);
  *(nv_bfloat162*)(staged_shared_ptr + (result_at_local_ptr_1[0] + 24)) = *(nv_bfloat162*)(rounded_local_ptr_11 + 0);
  rounded_local_ptr_12[0] = ((nv_bfloat16)sum_local_ptr[18]);
  rounded_local_ptr_12[1] = ((nv_bfloat16)sum_local_ptr[19]);
  *(nv_bfloat162*)(staged_shared_ptr + (result_at_local_ptr_1[0] + 32)) = *(nv_bfloat162*)(rounded_local_ptr_12 + 0);
  rounded_local_ptr_13[0] = ((nv_bfloat16)sum_local_ptr[22]);
  rounded_local_ptr_13[1] = ((nv_bfloat16)sum_local_ptr[23]);
  *(nv_bfloat162*)(staged_shared_ptr + (result_at_local_ptr_1[0] + 40)) = *(nv_bfloat162*)(rounded_local_ptr_13 + 0);
  rounded_local_ptr_14[0] = ((nv_bfloat16)sum_local_ptr[26]);
  rounded_local_ptr_14[1] = ((nv_bfloat16)sum_local_ptr[27]);
  *(nv_bfloat162*)(staged_shared_ptr + (result_at_local_ptr_1[0] + 48)) = *(nv_bfloat162*)(rounded_local_ptr_14 + 0);
  rounded_local_ptr_15[0] = ((nv_bfloat16)sum_local_ptr[30]);
  rounded_local_ptr_15[1] = ((nv_bfloat16)sum_local_ptr[31]);
  *(nv_bfloat162*)(staged_shared_ptr + (result_at_local_ptr_1[0] + 56)) = *(nv_bfloat162*)(rounded_local_ptr_15 + 0);
  __syncthreads();
  first_row_local_ptr_2[0] = (((int)threadIdx.x) >> 4);
  vector_local_ptr_2[0] = (((int)threadIdx.x) & 15);
  #pragma unroll
  for (int turn_2 = 0; turn_2 < 2; ++turn_2) {
    row_local_ptr_2[0] = ((turn_2 * 2) + first_row_local_ptr_2[0]);
    #pragma unroll
    for (int image_1 = 0; image_1 < 16; ++image_1) {
      if ((vector_local_ptr_2[0] < 13) && (((((int)blockIdx.x) * 16) + image_1) < n)) {
        dx_ptr[((((((((int)blockIdx.x) * 3328) + (image_1 * 208)) + (((int)blockIdx.y) * 104)) + (((int)threadIdx.z) * 52)) + (row_local_ptr_2[0] * 13)) + vector_local_ptr_2[0])] = staged_shared_ptr[((((((int)threadIdx.z) * 1152) + (image_1 * 72)) + (row_local_ptr_2[0] * 16)) + vector_local_ptr_2[0])];
      }
    }
  }
}
