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

typedef unsigned int uint;

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

extern "C" __global__ void __launch_bounds__(32) main_kernel(float* __restrict__ bias_ptr, float* __restrict__ w_ptr, float* __restrict__ x_ptr, float* __restrict__ y_ptr, int n) {
  __shared__ alignas(64) float patch_shared_ptr[1600];
  __shared__ alignas(64) float kernels_shared_ptr[180];
  alignas(64) float bias_local_ptr[4];
  alignas(64) float weight_local_ptr[4];
  alignas(64) float sum_local_ptr[16];
  alignas(64) float loaded_local_ptr[16];
  int image = (((int)blockIdx.x) >> 1);
  int copied_w = (((((int)threadIdx.z) & 1) * 2) + ((int)threadIdx.y));
  int copied_h = (((int)threadIdx.z) >> 1);
  int copied_c = (((((int)blockIdx.x) & 1) * 16) + (((int)threadIdx.x) * 4));
  #pragma unroll
  for (int turn_h = 0; turn_h < 5; ++turn_h) {
    tvm_builtin_ptx_cp_async_cg_src_size_async_cg_shared_global_16(tvm_builtin_cuda_cvta_generic_to_shared((&(patch_shared_ptr[(((((turn_h * 320) + ((((int)threadIdx.z) >> 1) * 160)) + ((((int)threadIdx.z) & 1) * 32)) + (((int)threadIdx.y) * 16)) + (((int)threadIdx.x) * 4))]))), (&(x_ptr[(((((((((((int)blockIdx.x) >> 1) * 2048) + (turn_h * 512)) + ((((int)threadIdx.z) >> 1) * 256)) + ((((int)threadIdx.z) & 1) * 64)) + (((int)threadIdx.y) * 32)) + ((((int)blockIdx.x) & 1) * 16)) + (((int)threadIdx.x) * 4)) - 288)])), ((((1 <= ((turn_h * 2) + (((int)threadIdx.z) >> 1))) && (((turn_h * 2) + (((int)threadIdx.z) >> 1)) < 9)) && (1 <= (((((int)threadIdx.z) & 1) * 2) + ((int)threadIdx.y)))) ? (uint)16 : (uint)0));
  }
  #pragma unroll
  for (int turn_h_1 = 0; turn_h_1 < 5; ++turn_h_1) {
    tvm_builtin_ptx_cp_async_cg_src_size_async_cg_shared_global_16(tvm_builtin_cuda_cvta_generic_to_shared((&(patch_shared_ptr[((((((turn_h_1 * 320) + ((((int)threadIdx.z) >> 1) * 160)) + ((((int)threadIdx.z) & 1) * 32)) + (((int)threadIdx.y) * 16)) + (((int)threadIdx.x) * 4)) + 64)]))), (&(x_ptr[(((((((((((int)blockIdx.x) >> 1) * 2048) + (turn_h_1 * 512)) + ((((int)threadIdx.z) >> 1) * 256)) + ((((int)threadIdx.z) & 1) * 64)) + (((int)threadIdx.y) * 32)) + ((((int)blockIdx.x) & 1) * 16)) + (((int)threadIdx.x) * 4)) - 160)])), (((1 <= ((turn_h_1 * 2) + (((int)threadIdx.z) >> 1))) && (((turn_h_1 * 2) + (((int)threadIdx.z) >> 1)) < 9)) ? (uint)16 : (uint)0));
  }
  #pragma unroll
  for (int turn_h_2 = 0; turn_h_2 < 5; ++turn_h_2) {
    if ((((int)threadIdx.z) & 1) < 1) {
      tvm_builtin_ptx_cp_async_cg_src_size_async_cg_shared_global_16(tvm_builtin_cuda_cvta_generic_to_shared((&(patch_shared_ptr[((((((turn_h_2 * 320) + ((((int)threadIdx.z) >> 1) * 160)) + ((((int)threadIdx.z) & 1) * 32)) + (((int)threadIdx.y) * 16)) + (((int)threadIdx.x) * 4)) + 128)]))), (&(x_ptr[(((((((((((int)blockIdx.x) >> 1) * 2048) + (turn_h_2 * 512)) + ((((int)threadIdx.z) >> 1) * 256)) + ((((int)threadIdx.z) & 1) * 64)) + (((int)threadIdx.y) * 32)) + ((((int)blockIdx.x) & 1) * 16)) + (((int)threadIdx.x) * 4)) - 32)])), ((((1 <= ((turn_h_2 * 2) + (((int)threadIdx.z) >> 1))) && (((turn_h_2 * 2) + (((int)threadIdx.z) >> 1)) < 9)) && ((((((int)threadIdx.z) & 1) * 2) + ((int)threadIdx.y)) < 1)) ? (uint)16 : (uint)0));
    }
  }
  async_commit_group();
  int fetched = ((int)threadIdx.z);
  #pragma unroll
  for (int turn_c = 0; turn_c < 4; ++turn_c) {
    #pragma unroll
    for (int turn = 0; turn < 2; ++turn) {
      if ((((turn * 8) + (((int)threadIdx.y) * 4)) + ((int)threadIdx.x)) < 9) {
        kernels_shared_ptr[(((((turn * 160) + (((int)threadIdx.y) * 80)) + (((int)threadIdx.x) * 20)) + (turn_c * 4)) + ((int)threadIdx.z))] = w_ptr[(((((((((int)blockIdx.x) & 1) * 144) + (turn_c * 36)) + (((int)threadIdx.z) * 9)) + (turn * 8)) + (((int)threadIdx.y) * 4)) + ((int)threadIdx.x))];
      }
    }
  }
  async_wait_group_0();
  __syncthreads();
  *(float4*)(bias_local_ptr + 0) = *(float4*)(bias_ptr + (((((int)blockIdx.x) & 1) * 16) + (((int)threadIdx.x) * 4)));
  for (int vthread_w = 0; vthread_w < 2; ++vthread_w) {
    int strip_h = ((int)threadIdx.z);
    int strip_w = ((vthread_w * 2) + ((int)threadIdx.y));
    #pragma unroll
    for (int row = 0; row < 2; ++row) {
      #pragma unroll
      for (int column = 0; column < 2; ++column) {
        sum_local_ptr[((row * 8) + (column * 4))] = bias_local_ptr[0];
        sum_local_ptr[(((row * 8) + (column * 4)) + 1)] = bias_local_ptr[1];
        sum_local_ptr[(((row * 8) + (column * 4)) + 2)] = bias_local_ptr[2];
        sum_local_ptr[(((row * 8) + (column * 4)) + 3)] = bias_local_ptr[3];
      }
    }
    for (int turn_1 = 0; turn_1 < 4; ++turn_1) {
      if ((1 <= ((((int)threadIdx.z) * 2) + turn_1)) && (((((int)threadIdx.z) * 2) + turn_1) < 9)) {
        *(float4*)(loaded_local_ptr + 0) = *(float4*)(patch_shared_ptr + (((((((int)threadIdx.z) * 320) + (turn_1 * 160)) + (vthread_w * 64)) + (((int)threadIdx.y) * 32)) + (((int)threadIdx.x) * 4)));
        #pragma unroll
        for (int column_1 = 0; column_1 < 2; ++column_1) {
          *(float4*)(loaded_local_ptr + ((column_1 * 4) + 4)) = *(float4*)(patch_shared_ptr + (((((((((int)threadIdx.z) * 320) + (turn_1 * 160)) + (vthread_w * 64)) + (((int)threadIdx.y) * 32)) + (column_1 * 16)) + (((int)threadIdx.x) * 4)) + 16));
        }
        *(float4*)(loaded_local_ptr + 12) = *(float4*)(patch_shared_ptr + ((((((((int)threadIdx.z) * 320) + (turn_1 * 160)) + (vthread_w * 64)) + (((int)threadIdx.y) * 32)) + (((int)threadIdx.x) * 4)) + 48));
        int kh = turn_1;
        if (turn_1 < 3) {
          #pragma unroll
          for (int kw = 0; kw < 3; ++kw) {
            *(float4*)(weight_local_ptr + 0) = *(float4*)(kernels_shared_ptr + (((turn_1 * 60) + (kw * 20)) + (((int)threadIdx.x) * 4)));
            #pragma unroll
            for (int column_2 = 0; column_2 < 2; ++column_2) {
              #pragma unroll
              for (int lane = 0; lane < 4; ++lane) {
                sum_local_ptr[((column_2 * 4) + lane)] = (sum_local_ptr[((column_2 * 4) + lane)] + (loaded_local_ptr[(((kw * 4) + (column_2 * 4)) + lane)] * weight_local_ptr[lane]));
              }
            }
          }
        }
        int kh_1 = (turn_1 - 1);
        if (1 <= turn_1) {
          #pragma unroll
          for (int kw_1 = 0; kw_1 < 3; ++kw_1) {
            *(float4*)(weight_local_ptr + 0) = *(float4*)(kernels_shared_ptr + ((((turn_1 * 60) + (kw_1 * 20)) + (((int)threadIdx.x) * 4)) - 60));
            #pragma unroll
            for (int column_3 = 0; column_3 < 2; ++column_3) {
              #pragma unroll
              for (int lane_1 = 0; lane_1 < 4; ++lane_1) {
                sum_local_ptr[(((column_3 * 4) + lane_1) + 8)] = (sum_local_ptr[(((column_3 * 4) + lane_1) + 8)] + (loaded_local_ptr[(((kw_1 * 4) + (column_3 * 4)) + lane_1)] * weight_local_ptr[lane_1]));
              }
            }
          }
        }
      }
    }
    #pragma unroll
    for (int column_4 = 0; column_4 < 2; ++column_4) {
      *(float4*)(y_ptr + ((((((((((int)blockIdx.x) >> 1) * 2048) + (((int)threadIdx.z) * 512)) + (vthread_w * 128)) + (((int)threadIdx.y) * 64)) + (column_4 * 32)) + ((((int)blockIdx.x) & 1) * 16)) + (((int)threadIdx.x) * 4))) = *(float4*)(sum_local_ptr + (column_4 * 4));
    }
    #pragma unroll
    for (int column_5 = 0; column_5 < 2; ++column_5) {
      *(float4*)(y_ptr + (((((((((((int)blockIdx.x) >> 1) * 2048) + (((int)threadIdx.z) * 512)) + (vthread_w * 128)) + (((int)threadIdx.y) * 64)) + (column_5 * 32)) + ((((int)blockIdx.x) & 1) * 16)) + (((int)threadIdx.x) * 4)) + 256)) = *(float4*)(sum_local_ptr + ((column_5 * 4) + 8));
    }
  }
}
