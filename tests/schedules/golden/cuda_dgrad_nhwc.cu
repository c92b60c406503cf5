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

extern "C" __global__ void __launch_bounds__(32) main_kernel(float* __restrict__ dx_ptr, float* __restrict__ dy_ptr, float* __restrict__ w_ptr, int n) {
  __shared__ alignas(64) float kernels_shared_ptr[324];
  alignas(64) float sum_local_ptr[64];
  alignas(64) float loaded_local_ptr[12];
  alignas(64) float weight_local_ptr[4];
  int image = ((int)blockIdx.x);
  int fetched = ((((int)threadIdx.z) * 2) + ((int)threadIdx.y));
  #pragma unroll
  for (int turn_c = 0; turn_c < 8; ++turn_c) {
    #pragma unroll
    for (int turn = 0; turn < 2; ++turn) {
      if (((turn * 8) + ((int)threadIdx.x)) < 9) {
        kernels_shared_ptr[(((((turn * 288) + (((int)threadIdx.x) * 36)) + (turn_c * 4)) + (((int)threadIdx.z) * 2)) + ((int)threadIdx.y))] = w_ptr[(((((turn_c * 36) + (((int)threadIdx.z) * 18)) + (((int)threadIdx.y) * 9)) + (turn * 8)) + ((int)threadIdx.x))];
      }
    }
  }
  __syncthreads();
  int strip_h = ((int)threadIdx.z);
  int strip_w = ((int)threadIdx.y);
  #pragma unroll
  for (int index = 0; index < 64; ++index) {
    sum_local_ptr[index] = 0x0p+0f/*0.000000e+00*/;
  }
  #pragma unroll
  for (int column = 0; column < 2; ++column) {
    *(float4*)(loaded_local_ptr + (column * 4)) = *(float4*)(dy_ptr + (((((((int)blockIdx.x) * 512) + (((int)threadIdx.z) * 256)) + (((int)threadIdx.y) * 64)) + (column * 32)) + (((int)threadIdx.x) * 4)));
  }
  #pragma unroll
  for (int lane = 0; lane < 4; ++lane) {
    loaded_local_ptr[(lane + 8)] = 0x0p+0f/*0.000000e+00*/;
  }
  if (((int)threadIdx.y) < 1) {
    *(float4*)(loaded_local_ptr + 8) = *(float4*)(dy_ptr + (((((((int)blockIdx.x) * 512) + (((int)threadIdx.z) * 256)) + (((int)threadIdx.y) * 64)) + (((int)threadIdx.x) * 4)) + 64));
  }
  #pragma unroll
  for (int kw = 0; kw < 2; ++kw) {
    *(float4*)(weight_local_ptr + 0) = *(float4*)(kernels_shared_ptr + (((kw * 72) + (((int)threadIdx.x) * 4)) + 108));
    #pragma unroll
    for (int column_1 = 0; column_1 < 2; ++column_1) {
      #pragma unroll
      for (int lane_1 = 0; lane_1 < 4; ++lane_1) {
        sum_local_ptr[(((column_1 * 8) + lane_1) + 4)] = (sum_local_ptr[(((column_1 * 8) + lane_1) + 4)] + (loaded_local_ptr[((((column_1 * 4) + lane_1) + 4) - (kw * 4))] * weight_local_ptr[lane_1]));
      }
    }
  }
  *(float4*)(weight_local_ptr + 0) = *(float4*)(kernels_shared_ptr + ((((int)threadIdx.x) * 4) + 144));
  #pragma unroll
  for (int column_2 = 0; column_2 < 2; ++column_2) {
    #pragma unroll
    for (int lane_2 = 0; lane_2 < 4; ++lane_2) {
      sum_local_ptr[((column_2 * 8) + lane_2)] = (sum_local_ptr[((column_2 * 8) + lane_2)] + (loaded_local_ptr[((column_2 * 4) + lane_2)] * weight_local_ptr[lane_2]));
    }
  }
  #pragma unroll
  for (int kw_1 = 0; kw_1 < 2; ++kw_1) {
    *(float4*)(weight_local_ptr + 0) = *(float4*)(kernels_shared_ptr + (((kw_1 * 72) + (((int)threadIdx.x) * 4)) + 216));
    #pragma unroll
    for (int column_3 = 0; column_3 < 2; ++column_3) {
      #pragma unroll
      for (int lane_3 = 0; lane_3 < 4; ++lane_3) {
        sum_local_ptr[(((column_3 * 8) + lane_3) + 20)] = (sum_local_ptr[(((column_3 * 8) + lane_3) + 20)] + (loaded_local_ptr[((((column_3 * 4) + lane_3) + 4) - (kw_1 * 4))] * weight_local_ptr[lane_3]));
      }
    }
  }
  *(float4*)(weight_local_ptr + 0) = *(float4*)(kernels_shared_ptr + ((((int)threadIdx.x) * 4) + 252));
  #pragma unroll
  for (int column_4 = 0; column_4 < 2; ++column_4) {
    #pragma unroll
    for (int lane_4 = 0; lane_4 < 4; ++lane_4) {
      sum_local_ptr[(((column_4 * 8) + lane_4) + 16)] = (sum_local_ptr[(((column_4 * 8) + lane_4) + 16)] + (loaded_local_ptr[((column_4 * 4) + lane_4)] * weight_local_ptr[lane_4]));
    }
  }
  #pragma unroll
  for (int column_5 = 0; column_5 < 4; ++column_5) {
    *(float4*)(dx_ptr + (((((((int)blockIdx.x) * 2048) + (((int)threadIdx.z) * 1024)) + (((int)threadIdx.y) * 128)) + (column_5 * 32)) + (((int)threadIdx.x) * 4))) = *(float4*)(sum_local_ptr + (column_5 * 4));
  }
  #pragma unroll
  for (int column_6 = 0; column_6 < 2; ++column_6) {
    *(float4*)(loaded_local_ptr + (column_6 * 4)) = *(float4*)(dy_ptr + ((((((((int)blockIdx.x) * 512) + (((int)threadIdx.z) * 256)) + (((int)threadIdx.y) * 64)) + (column_6 * 32)) + (((int)threadIdx.x) * 4)) + 128));
  }
  #pragma unroll
  for (int lane_5 = 0; lane_5 < 4; ++lane_5) {
    loaded_local_ptr[(lane_5 + 8)] = 0x0p+0f/*0.000000e+00*/;
  }
  if (((int)threadIdx.y) < 1) {
    *(float4*)(loaded_local_ptr + 8) = *(float4*)(dy_ptr + (((((((int)blockIdx.x) * 512) + (((int)threadIdx.z) * 256)) + (((int)threadIdx.y) * 64)) + (((int)threadIdx.x) * 4)) + 192));
  }
  #pragma unroll
  for (int kw_2 = 0; kw_2 < 2; ++kw_2) {
    *(float4*)(weight_local_ptr + 0) = *(float4*)(kernels_shared_ptr + ((kw_2 * 72) + (((int)threadIdx.x) * 4)));
    #pragma unroll
    for (int column_7 = 0; column_7 < 2; ++column_7) {
      #pragma unroll
      for (int lane_6 = 0; lane_6 < 4; ++lane_6) {
        sum_local_ptr[(((column_7 * 8) + lane_6) + 20)] = (sum_local_ptr[(((column_7 * 8) + lane_6) + 20)] + (loaded_local_ptr[((((column_7 * 4) + lane_6) + 4) - (kw_2 * 4))] * weight_local_ptr[lane_6]));
      }
    }
  }
  *(float4*)(weight_local_ptr + 0) = *(float4*)(kernels_shared_ptr + ((((int)threadIdx.x) * 4) + 36));
  #pragma unroll
  for (int column_8 = 0; column_8 < 2; ++column_8) {
    #pragma unroll
    for (int lane_7 = 0; lane_7 < 4; ++lane_7) {
      sum_local_ptr[(((column_8 * 8) + lane_7) + 16)] = (sum_local_ptr[(((column_8 * 8) + lane_7) + 16)] + (loaded_local_ptr[((column_8 * 4) + lane_7)] * weight_local_ptr[lane_7]));
    }
  }
  #pragma unroll
  for (int kw_3 = 0; kw_3 < 2; ++kw_3) {
    *(float4*)(weight_local_ptr + 0) = *(float4*)(kernels_shared_ptr + (((kw_3 * 72) + (((int)threadIdx.x) * 4)) + 108));
    #pragma unroll
    for (int column_9 = 0; column_9 < 2; ++column_9) {
      #pragma unroll
      for (int lane_8 = 0; lane_8 < 4; ++lane_8) {
        sum_local_ptr[(((column_9 * 8) + lane_8) + 36)] = (sum_local_ptr[(((column_9 * 8) + lane_8) + 36)] + (loaded_local_ptr[((((column_9 * 4) + lane_8) + 4) - (kw_3 * 4))] * weight_local_ptr[lane_8]));
      }
    }
  }
  *(float4*)(weight_local_ptr + 0) = *(float4*)(kernels_shared_ptr + ((((int)threadIdx.x) * 4) + 144));
  #pragma unroll
  for (int column_10 = 0; column_10 < 2; ++column_10) {
    #pragma unroll
    for (int lane_9 = 0; lane_9 < 4; ++lane_9) {
      sum_local_ptr[(((column_10 * 8) + lane_9) + 32)] = (sum_local_ptr[(((column_10 * 8) + lane_9) + 32)] + (loaded_local_ptr[((column_10 * 4) + lane_9)] * weight_local_ptr[lane_9]));
    }
  }
  #pragma unroll
  for (int kw_4 = 0; kw_4 < 2; ++kw_4) {
    *(float4*)(weight_local_ptr + 0) = *(float4*)(kernels_shared_ptr + (((kw_4 * 72) + (((int)threadIdx.x) * 4)) + 216));
    #pragma unroll
    for (int column_11 = 0; column_11 < 2; ++column_11) {
      #pragma unroll
      for (int lane_10 = 0; lane_10 < 4; ++lane_10) {
        sum_local_ptr[(((column_11 * 8) + lane_10) + 52)] = (sum_local_ptr[(((column_11 * 8) + lane_10) + 52)] + (loaded_local_ptr[((((column_11 * 4) + lane_10) + 4) - (kw_4 * 4))] * weight_local_ptr[lane_10]));
      }
    }
  }
  *(float4*)(weight_local_ptr + 0) = *(float4*)(kernels_shared_ptr + ((((int)threadIdx.x) * 4) + 252));
  #pragma unroll
  for (int column_12 = 0; column_12 < 2; ++column_12) {
    #pragma unroll
    for (int lane_11 = 0; lane_11 < 4; ++lane_11) {
      sum_local_ptr[(((column_12 * 8) + lane_11) + 48)] = (sum_local_ptr[(((column_12 * 8) + lane_11) + 48)] + (loaded_local_ptr[((column_12 * 4) + lane_11)] * weight_local_ptr[lane_11]));
    }
  }
  #pragma unroll
  for (int column_13 = 0; column_13 < 4; ++column_13) {
    *(float4*)(dx_ptr + ((((((((int)blockIdx.x) * 2048) + (((int)threadIdx.z) * 1024)) + (((int)threadIdx.y) * 128)) + (column_13 * 32)) + (((int)threadIdx.x) * 4)) + 256)) = *(float4*)(sum_local_ptr + ((column_13 * 4) + 16));
  }
  #pragma unroll
  for (int column_14 = 0; column_14 < 4; ++column_14) {
    *(float4*)(dx_ptr + ((((((((int)blockIdx.x) * 2048) + (((int)threadIdx.z) * 1024)) + (((int)threadIdx.y) * 128)) + (column_14 * 32)) + (((int)threadIdx.x) * 4)) + 512)) = *(float4*)(sum_local_ptr + ((column_14 * 4) + 32));
  }
  #pragma unroll
  for (int column_15 = 0; column_15 < 2; ++column_15) {
    #pragma unroll
    for (int lane_12 = 0; lane_12 < 4; ++lane_12) {
      loaded_local_ptr[((column_15 * 4) + lane_12)] = 0x0p+0f/*0.000000e+00*/;
    }
    if (((int)threadIdx.z) < 1) {
      *(float4*)(loaded_local_ptr + (column_15 * 4)) = *(float4*)(dy_ptr + ((((((((int)blockIdx.x) * 512) + (((int)threadIdx.z) * 256)) + (((int)threadIdx.y) * 64)) + (column_15 * 32)) + (((int)threadIdx.x) * 4)) + 256));
    }
  }
  #pragma unroll
  for (int lane_13 = 0; lane_13 < 4; ++lane_13) {
    loaded_local_ptr[(lane_13 + 8)] = 0x0p+0f/*0.000000e+00*/;
  }
  if ((((int)threadIdx.z) < 1) && (((int)threadIdx.y) < 1)) {
    *(float4*)(loaded_local_ptr + 8) = *(float4*)(dy_ptr + (((((((int)blockIdx.x) * 512) + (((int)threadIdx.z) * 256)) + (((int)threadIdx.y) * 64)) + (((int)threadIdx.x) * 4)) + 320));
  }
  #pragma unroll
  for (int kw_5 = 0; kw_5 < 2; ++kw_5) {
    *(float4*)(weight_local_ptr + 0) = *(float4*)(kernels_shared_ptr + ((kw_5 * 72) + (((int)threadIdx.x) * 4)));
    #pragma unroll
    for (int column_16 = 0; column_16 < 2; ++column_16) {
      #pragma unroll
      for (int lane_14 = 0; lane_14 < 4; ++lane_14) {
        sum_local_ptr[(((column_16 * 8) + lane_14) + 52)] = (sum_local_ptr[(((column_16 * 8) + lane_14) + 52)] + (loaded_local_ptr[((((column_16 * 4) + lane_14) + 4) - (kw_5 * 4))] * weight_local_ptr[lane_14]));
      }
    }
  }
  *(float4*)(weight_local_ptr + 0) = *(float4*)(kernels_shared_ptr + ((((int)threadIdx.x) * 4) + 36));
  #pragma unroll
  for (int column_17 = 0; column_17 < 2; ++column_17) {
    #pragma unroll
    for (int lane_15 = 0; lane_15 < 4; ++lane_15) {
      sum_local_ptr[(((column_17 * 8) + lane_15) + 48)] = (sum_local_ptr[(((column_17 * 8) + lane_15) + 48)] + (loaded_local_ptr[((column_17 * 4) + lane_15)] * weight_local_ptr[lane_15]));
    }
  }
  #pragma unroll
  for (int column_18 = 0; column_18 < 4; ++column_18) {
    *(float4*)(dx_ptr + ((((((((int)blockIdx.x) * 2048) + (((int)threadIdx.z) * 1024)) + (((int)threadIdx.y) * 128)) + (column_18 * 32)) + (((int)threadIdx.x) * 4)) + 768)) = *(float4*)(sum_local_ptr + ((column_18 * 4) + 48));
  }
}
