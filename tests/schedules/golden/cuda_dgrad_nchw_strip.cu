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
  alignas(64) float sum_local_ptr[32];
  alignas(64) float weight_local_ptr[9];
  alignas(64) float value_local_ptr[5];
  alignas(64) float value_local_ptr_1[5];
  alignas(64) float value_local_ptr_2[5];
  if (((((int)blockIdx.x) * 8) + ((int)threadIdx.y)) < (n * 4)) {
    #pragma unroll
    for (int index = 0; index < 32; ++index) {
      sum_local_ptr[index] = 0x0p+0f/*0.000000e+00*/;
    }
    weight_local_ptr[0] = w_ptr[((((int)threadIdx.y) & 3) * 9)];
    weight_local_ptr[1] = w_ptr[(((((int)threadIdx.y) & 3) * 9) + 1)];
    weight_local_ptr[2] = w_ptr[(((((int)threadIdx.y) & 3) * 9) + 2)];
    weight_local_ptr[3] = w_ptr[(((((int)threadIdx.y) & 3) * 9) + 3)];
    weight_local_ptr[4] = w_ptr[(((((int)threadIdx.y) & 3) * 9) + 4)];
    weight_local_ptr[5] = w_ptr[(((((int)threadIdx.y) & 3) * 9) + 5)];
    weight_local_ptr[6] = w_ptr[(((((int)threadIdx.y) & 3) * 9) + 6)];
    weight_local_ptr[7] = w_ptr[(((((int)threadIdx.y) & 3) * 9) + 7)];
    weight_local_ptr[8] = w_ptr[(((((int)threadIdx.y) & 3) * 9) + 8)];
    *(float4*)(value_local_ptr + 0) = *(float4*)(dy_ptr + ((((((int)blockIdx.x) * 256) + (((int)threadIdx.y) * 32)) + (((int)threadIdx.z) * 16)) + (((int)threadIdx.x) * 4)));
    value_local_ptr[4] = 0x0p+0f/*0.000000e+00*/;
    if (((int)threadIdx.x) == 0) {
      value_local_ptr[4] = dy_ptr[(((((((int)blockIdx.x) * 256) + (((int)threadIdx.y) * 32)) + (((int)threadIdx.z) * 16)) + (((int)threadIdx.x) * 4)) + 4)];
    }
    *(float4*)(value_local_ptr_1 + 0) = *(float4*)(dy_ptr + (((((((int)blockIdx.x) * 256) + (((int)threadIdx.y) * 32)) + (((int)threadIdx.z) * 16)) + (((int)threadIdx.x) * 4)) + 8));
    value_local_ptr_1[4] = 0x0p+0f/*0.000000e+00*/;
    if (((int)threadIdx.x) == 0) {
      value_local_ptr_1[4] = dy_ptr[(((((((int)blockIdx.x) * 256) + (((int)threadIdx.y) * 32)) + (((int)threadIdx.z) * 16)) + (((int)threadIdx.x) * 4)) + 12)];
    }
    sum_local_ptr[0] = (sum_local_ptr[0] + (value_local_ptr[0] * weight_local_ptr[4]));
    sum_local_ptr[1] = (sum_local_ptr[1] + (value_local_ptr[0] * weight_local_ptr[5]));
    sum_local_ptr[8] = (sum_local_ptr[8] + (value_local_ptr[0] * weight_local_ptr[7]));
    sum_local_ptr[9] = (sum_local_ptr[9] + (value_local_ptr[0] * weight_local_ptr[8]));
    sum_local_ptr[1] = (sum_local_ptr[1] + (value_local_ptr[1] * weight_local_ptr[3]));
    sum_local_ptr[2] = (sum_local_ptr[2] + (value_local_ptr[1] * weight_local_ptr[4]));
    sum_local_ptr[3] = (sum_local_ptr[3] + (value_local_ptr[1] * weight_local_ptr[5]));
    sum_local_ptr[9] = (sum_local_ptr[9] + (value_local_ptr[1] * weight_local_ptr[6]));
    sum_local_ptr[10] = (sum_local_ptr[10] + (value_local_ptr[1] * weight_local_ptr[7]));
    sum_local_ptr[11] = (sum_local_ptr[11] + (value_local_ptr[1] * weight_local_ptr[8]));
    sum_local_ptr[3] = (sum_local_ptr[3] + (value_local_ptr[2] * weight_local_ptr[3]));
    sum_local_ptr[4] = (sum_local_ptr[4] + (value_local_ptr[2] * weight_local_ptr[4]));
    sum_local_ptr[5] = (sum_local_ptr[5] + (value_local_ptr[2] * weight_local_ptr[5]));
    sum_local_ptr[11] = (sum_local_ptr[11] + (value_local_ptr[2] * weight_local_ptr[6]));
    sum_local_ptr[12] = (sum_local_ptr[12] + (value_local_ptr[2] * weight_local_ptr[7]));
    sum_local_ptr[13] = (sum_local_ptr[13] + (value_local_ptr[2] * weight_local_ptr[8]));
    sum_local_ptr[5] = (sum_local_ptr[5] + (value_local_ptr[3] * weight_local_ptr[3]));
    sum_local_ptr[6] = (sum_local_ptr[6] + (value_local_ptr[3] * weight_local_ptr[4]));
    sum_local_ptr[7] = (sum_local_ptr[7] + (value_local_ptr[3] * weight_local_ptr[5]));
    sum_local_ptr[13] = (sum_local_ptr[13] + (value_local_ptr[3] * weight_local_ptr[6]));
    sum_local_ptr[14] = (sum_local_ptr[14] + (value_local_ptr[3] * weight_local_ptr[7]));
    sum_local_ptr[15] = (sum_local_ptr[15] + (value_local_ptr[3] * weight_local_ptr[8]));
    sum_local_ptr[7] = (sum_local_ptr[7] + (value_local_ptr[4] * weight_local_ptr[3]));
    sum_local_ptr[15] = (sum_local_ptr[15] + (value_local_ptr[4] * weight_local_ptr[6]));
    *(float4*)(dx_ptr + ((((((int)blockIdx.x) * 1024) + (((int)threadIdx.y) * 128)) + (((int)threadIdx.z) * 64)) + (((int)threadIdx.x) * 8))) = *(float4*)(sum_local_ptr + 0);
    *(float4*)(dx_ptr + (((((((int)blockIdx.x) * 1024) + (((int)threadIdx.y) * 128)) + (((int)threadIdx.z) * 64)) + (((int)threadIdx.x) * 8)) + 4)) = *(float4*)(sum_local_ptr + 4);
    value_local_ptr_2[0] = 0x0p+0f/*0.000000e+00*/;
    value_local_ptr_2[1] = 0x0p+0f/*0.000000e+00*/;
    value_local_ptr_2[2] = 0x0p+0f/*0.000000e+00*/;
    value_local_ptr_2[3] = 0x0p+0f/*0.000000e+00*/;
    if (((int)threadIdx.z) == 0) {
      *(float4*)(value_local_ptr_2 + 0) = *(float4*)(dy_ptr + (((((((int)blockIdx.x) * 256) + (((int)threadIdx.y) * 32)) + (((int)threadIdx.z) * 16)) + (((int)threadIdx.x) * 4)) + 16));
    }
    value_local_ptr_2[4] = 0x0p+0f/*0.000000e+00*/;
    if ((((int)threadIdx.z) == 0) && (((int)threadIdx.x) == 0)) {
      value_local_ptr_2[4] = dy_ptr[(((((((int)blockIdx.x) * 256) + (((int)threadIdx.y) * 32)) + (((int)threadIdx.z) * 16)) + (((int)threadIdx.x) * 4)) + 20)];
    }
    sum_local_ptr[8] = (sum_local_ptr[8] + (value_local_ptr_1[0] * weight_local_ptr[1]));
    sum_local_ptr[9] = (sum_local_ptr[9] + (value_local_ptr_1[0] * weight_local_ptr[2]));
    sum_local_ptr[16] = (sum_local_ptr[16] + (value_local_ptr_1[0] * weight_local_ptr[4]));
    sum_local_ptr[17] = (sum_local_ptr[17] + (value_local_ptr_1[0] * weight_local_ptr[5]));
    sum_local_ptr[24] = (sum_local_ptr[24] + (value_local_ptr_1[0] * weight_local_ptr[7]));
    sum_local_ptr[25] = (sum_local_ptr[25] + (value_local_ptr_1[0] * weight_local_ptr[8]));
    sum_local_ptr[9] = (sum_local_ptr[9] + (value_local_ptr_1[1] * weight_local_ptr[0]));
    sum_local_ptr[10] = (sum_local_ptr[10] + (value_local_ptr_1[1] * weight_local_ptr[1]));
    sum_local_ptr[11] = (sum_local_ptr[11] + (value_local_ptr_1[1] * weight_local_ptr[2]));
    sum_local_ptr[17] = (sum_local_ptr[17] + (value_local_ptr_1[1] * weight_local_ptr[3]));
    sum_local_ptr[18] = (sum_local_ptr[18] + (value_local_ptr_1[1] * weight_local_ptr[4]));
    sum_local_ptr[19] = (sum_local_ptr[19] + (value_local_ptr_1[1] * weight_local_ptr[5]));
    sum_local_ptr[25] = (sum_local_ptr[25] + (value_local_ptr_1[1] * weight_local_ptr[6]));
    sum_local_ptr[26] = (sum_local_ptr[26] + (value_local_ptr_1[1] * weight_local_ptr[7]));
    sum_local_ptr[27] = (sum_local_ptr[27] + (value_local_ptr_1[1] * weight_local_ptr[8]));
    sum_local_ptr[11] = (sum_local_ptr[11] + (value_local_ptr_1[2] * weight_local_ptr[0]));
    sum_local_ptr[12] = (sum_local_ptr[12] + (value_local_ptr_1[2] * weight_local_ptr[1]));
    sum_local_ptr[13] = (sum_local_ptr[13] + (value_local_ptr_1[2] * weight_local_ptr[2]));
    sum_local_ptr[19] = (sum_local_ptr[19] + (value_local_ptr_1[2] * weight_local_ptr[3]));
    sum_local_ptr[20] = (sum_local_ptr[20] + (value_local_ptr_1[2] * weight_local_ptr[4]));
    sum_local_ptr[21] = (sum_local_ptr[21] + (value_local_ptr_1[2] * weight_local_ptr[5]));
    sum_local_ptr[27] = (sum_local_ptr[27] + (value_local_ptr_1[2] * weight_local_ptr[6]));
    sum_local_ptr[28] = (sum_local_ptr[28] + (value_local_ptr_1[2] * weight_local_ptr[7]));
    sum_local_ptr[29] = (sum_local_ptr[29] + (value_local_ptr_1[2] * weight_local_ptr[8]));
    sum_local_ptr[13] = (sum_local_ptr[13] + (value_local_ptr_1[3] * weight_local_ptr[0]));
    sum_local_ptr[14] = (sum_local_ptr[14] + (value_local_ptr_1[3] * weight_local_ptr[1]));
    sum_local_ptr[15] = (sum_local_ptr[15] + (value_local_ptr_1[3] * weight_local_ptr[2]));
    sum_local_ptr[21] = (sum_local_ptr[21] + (value_local_ptr_1[3] * weight_local_ptr[3]));
    sum_local_ptr[22] = (sum_local_ptr[22] + (value_local_ptr_1[3] * weight_local_ptr[4]));
    sum_local_ptr[23] = (sum_local_ptr[23] + (value_local_ptr_1[3] * weight_local_ptr[5]));
    sum_local_ptr[29] = (sum_local_ptr[29] + (value_local_ptr_1[3] * weight_local_ptr[6]));
    sum_local_ptr[30] = (sum_local_ptr[30] + (value_local_ptr_1[3] * weight_local_ptr[7]));
    sum_local_ptr[31] = (sum_local_ptr[31] + (value_local_ptr_1[3] * weight_local_ptr[8]));
    sum_local_ptr[15] = (sum_local_ptr[15] + (value_local_ptr_1[4] * weight_local_ptr[0]));
    sum_local_ptr[23] = (sum_local_ptr[23] + (value_local_ptr_1[4] * weight_local_ptr[3]));
    sum_local_ptr[31] = (sum_local_ptr[31] + (value_local_ptr_1[4] * weight_local_ptr[6]));
    *(float4*)(dx_ptr + (((((((int)blockIdx.x) * 1024) + (((int)threadIdx.y) * 128)) + (((int)threadIdx.z) * 64)) + (((int)threadIdx.x) * 8)) + 16)) = *(float4*)(sum_local_ptr + 8);
    *(float4*)(dx_ptr + (((((((int)blockIdx.x) * 1024) + (((int)threadIdx.y) * 128)) + (((int)threadIdx.z) * 64)) + (((int)threadIdx.x) * 8)) + 20)) = *(float4*)(sum_local_ptr + 12);
    *(float4*)(dx_ptr + (((((((int)blockIdx.x) * 1024) + (((int)threadIdx.y) * 128)) + (((int)threadIdx.z) * 64)) + (((int)threadIdx.x) * 8)) + 32)) = *(float4*)(sum_local_ptr + 16);
    *(float4*)(dx_ptr + (((((((int)blockIdx.x) * 1024) + (((int)threadIdx.y) * 128)) + (((int)threadIdx.z) * 64)) + (((int)threadIdx.x) * 8)) + 36)) = *(float4*)(sum_local_ptr + 20);
    sum_local_ptr[24] = (sum_local_ptr[24] + (value_local_ptr_2[0] * weight_local_ptr[1]));
    sum_local_ptr[25] = (sum_local_ptr[25] + (value_local_ptr_2[0] * weight_local_ptr[2]));
    sum_local_ptr[25] = (sum_local_ptr[25] + (value_local_ptr_2[1] * weight_local_ptr[0]));
    sum_local_ptr[26] = (sum_local_ptr[26] + (value_local_ptr_2[1] * weight_local_ptr[1]));
    sum_local_ptr[27] = (sum_local_ptr[27] + (value_local_ptr_2[1] * weight_local_ptr[2]));
    sum_local_ptr[27] = (sum_local_ptr[27] + (value_local_ptr_2[2] * weight_local_ptr[0]));
    sum_local_ptr[28] = (sum_local_ptr[28] + (value_local_ptr_2[2] * weight_local_ptr[1]));
    sum_local_ptr[29] = (sum_local_ptr[29] + (value_local_ptr_2[2] * weight_local_ptr[2]));
    sum_local_ptr[29] = (sum_local_ptr[29] + (value_local_ptr_2[3] * weight_local_ptr[0]));
    sum_local_ptr[30] = (sum_local_ptr[30] + (value_local_ptr_2[3] * weight_local_ptr[1]));
    sum_local_ptr[31] = (sum_local_ptr[31] + (value_local_ptr_2[3] * weight_local_ptr[2]));
    sum_local_ptr[31] = (sum_local_ptr[31] + (value_local_ptr_2[4] * weight_local_ptr[0]));
    *(float4*)(dx_ptr + (((((((int)blockIdx.x) * 1024) + (((int)threadIdx.y) * 128)) + (((int)threadIdx.z) * 64)) + (((int)threadIdx.x) * 8)) + 48)) = *(float4*)(sum_local_ptr + 24);
    *(float4*)(dx_ptr + (((((((int)blockIdx.x) * 1024) + (((int)threadIdx.y) * 128)) + (((int)threadIdx.z) * 64)) + (((int)threadIdx.x) * 8)) + 52)) = *(float4*)(sum_local_ptr + 28);
  }
}
