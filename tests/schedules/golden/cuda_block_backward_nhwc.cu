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

extern "C" __global__ void __launch_bounds__(32, 32) main_kernel(float* __restrict__ beta2_ptr, float* __restrict__ dz_ptr, float* __restrict__ gamma2_ptr, float* __restrict__ mean2_ptr, float* __restrict__ var2_ptr, float* __restrict__ workspace_ptr, float* __restrict__ y_ptr, int n) {
  alignas(64) int pixels_local_ptr[1];
  alignas(64) int each_local_ptr[1];
  alignas(64) int first_local_ptr[1];
  alignas(64) int vector_local_ptr[1];
  alignas(64) float sum_local_ptr[4];
  alignas(64) float gamma_local_ptr[2];
  alignas(64) float var_local_ptr[2];
  alignas(64) float beta_local_ptr[2];
  alignas(64) float mean_local_ptr[2];
  alignas(64) float inverse_local_ptr[1];
  alignas(64) float factor_local_ptr[6];
  alignas(64) float inverse_local_ptr_1[1];
  alignas(64) int whole_local_ptr[1];
  alignas(64) int start_local_ptr[1];
  alignas(64) float loaded_local_ptr[2];
  alignas(64) float loaded_local_ptr_1[2];
  alignas(64) float loaded_local_ptr_2[2];
  alignas(64) float loaded_local_ptr_3[2];
  alignas(64) float loaded_local_ptr_4[2];
  alignas(64) float loaded_local_ptr_5[2];
  alignas(64) float loaded_local_ptr_6[2];
  alignas(64) float loaded_local_ptr_7[2];
  alignas(64) float z_local_ptr[1];
  alignas(64) float z_local_ptr_1[1];
  alignas(64) float z_local_ptr_2[1];
  alignas(64) float z_local_ptr_3[1];
  alignas(64) float z_local_ptr_4[1];
  alignas(64) float z_local_ptr_5[1];
  alignas(64) float z_local_ptr_6[1];
  alignas(64) float z_local_ptr_7[1];
  alignas(64) float z_local_ptr_8[1];
  alignas(64) float z_local_ptr_9[1];
  alignas(64) float z_local_ptr_10[1];
  alignas(64) float z_local_ptr_11[1];
  alignas(64) float z_local_ptr_12[1];
  alignas(64) float z_local_ptr_13[1];
  alignas(64) float z_local_ptr_14[1];
  alignas(64) float z_local_ptr_15[1];
  alignas(64) int pixel_local_ptr[1];
  alignas(64) float loaded_local_ptr_8[2];
  alignas(64) float loaded_local_ptr_9[2];
  alignas(64) float z_local_ptr_16[1];
  alignas(64) float z_local_ptr_17[1];
  alignas(64) float z_local_ptr_18[1];
  alignas(64) float z_local_ptr_19[1];
  __shared__ alignas(64) float passed_shared_ptr[64];
  pixels_local_ptr[0] = (n * 64);
  each_local_ptr[0] = ((pixels_local_ptr[0] + 15) / 16);
  first_local_ptr[0] = min(((((int)blockIdx.x) >> 1) * each_local_ptr[0]), pixels_local_ptr[0]);
  vector_local_ptr[0] = (((((int)blockIdx.x) & 1) * 8) + ((int)threadIdx.x));
  each_local_ptr[0] = min((first_local_ptr[0] + each_local_ptr[0]), pixels_local_ptr[0]);
  #pragma unroll
  for (int index = 0; index < 4; ++index) {
    sum_local_ptr[index] = 0x0p+0f/*0.000000e+00*/;
  }
  if (vector_local_ptr[0] < 14) {
    *(float2*)(gamma_local_ptr + 0) = *(float2*)(gamma2_ptr + (vector_local_ptr[0] * 2));
    *(float2*)(var_local_ptr + 0) = *(float2*)(var2_ptr + (vector_local_ptr[0] * 2));
    *(float2*)(beta_local_ptr + 0) = *(float2*)(beta2_ptr + (vector_local_ptr[0] * 2));
    *(float2*)(mean_local_ptr + 0) = *(float2*)(mean2_ptr + (vector_local_ptr[0] * 2));
    inverse_local_ptr[0] = rsqrtf((var_local_ptr[0] + 0x1.4f8b588e368f1p-17f/*1.000000e-05*/));
    inverse_local_ptr[0] = (gamma_local_ptr[0] * inverse_local_ptr[0]);
    factor_local_ptr[0] = inverse_local_ptr[0];
    factor_local_ptr[2] = (beta_local_ptr[0] - (mean_local_ptr[0] * inverse_local_ptr[0]));
    factor_local_ptr[4] = mean_local_ptr[0];
    inverse_local_ptr_1[0] = rsqrtf((var_local_ptr[1] + 0x1.4f8b588e368f1p-17f/*1.000000e-05*/));
    inverse_local_ptr_1[0] = (gamma_local_ptr[1] * inverse_local_ptr_1[0]);
    factor_local_ptr[1] = inverse_local_ptr_1[0];
    factor_local_ptr[3] = (beta_local_ptr[1] - (mean_local_ptr[1] * inverse_local_ptr_1[0]));
    factor_local_ptr[5] = mean_local_ptr[1];
    whole_local_ptr[0] = ((each_local_ptr[0] - first_local_ptr[0]) / 16);
    for (int turn = 0; turn < whole_local_ptr[0]; ++turn) {
      start_local_ptr[0] = (((turn * 16) + first_local_ptr[0]) + ((int)threadIdx.y));
      *(float2*)(loaded_local_ptr + 0) = *(float2*)(dz_ptr + ((start_local_ptr[0] * 28) + (vector_local_ptr[0] * 2)));
      *(float2*)(loaded_local_ptr_1 + 0) = *(float2*)(y_ptr + ((start_local_ptr[0] * 28) + (vector_local_ptr[0] * 2)));
      *(float2*)(loaded_local_ptr_2 + 0) = *(float2*)(dz_ptr + (((start_local_ptr[0] * 28) + (vector_local_ptr[0] * 2)) + 112));
      *(float2*)(loaded_local_ptr_3 + 0) = *(float2*)(y_ptr + (((start_local_ptr[0] * 28) + (vector_local_ptr[0] * 2)) + 112));
      *(float2*)(loaded_local_ptr_4 + 0) = *(float2*)(dz_ptr + (((start_local_ptr[0] * 28) + (vector_local_ptr[0] * 2)) + 224));
      *(float2*)(loaded_local_ptr_5 + 0) = *(float2*)(y_ptr + (((start_local_ptr[0] * 28) + (vector_local_ptr[0] * 2)) + 224));
      *(float2*)(loaded_local_ptr_6 + 0) = *(float2*)(dz_ptr + (((start_local_ptr[0] * 28) + (vector_local_ptr[0] * 2)) + 336));
      *(float2*)(loaded_local_ptr_7 + 0) = *(float2*)(y_ptr + (((start_local_ptr[0] * 28) + (vector_local_ptr[0] * 2)) + 336));
      z_local_ptr[0] = ((loaded_local_ptr_1[0] * factor_local_ptr[0]) + factor_local_ptr[2]);
      z_local_ptr_1[0] = z_local_ptr[0];
      z_local_ptr[0] = (loaded_local_ptr[0] * ((0x0p+0f/*0.000000e+00*/ < z_local_ptr[0]) ? 0x1p+0f/*1.000000e+00*/ : 0x0p+0f/*0.000000e+00*/));
      sum_local_ptr[0] = (sum_local_ptr[0] + z_local_ptr[0]);
      sum_local_ptr[2] = (sum_local_ptr[2] + (z_local_ptr[0] * (loaded_local_ptr_1[0] - factor_local_ptr[4])));
      z_local_ptr_2[0] = ((loaded_local_ptr_1[1] * factor_local_ptr[1]) + factor_local_ptr[3]);
      z_local_ptr_3[0] = z_local_ptr_2[0];
      z_local_ptr_2[0] = (loaded_local_ptr[1] * ((0x0p+0f/*0.000000e+00*/ < z_local_ptr_2[0]) ? 0x1p+0f/*1.000000e+00*/ : 0x0p+0f/*0.000000e+00*/));
      sum_local_ptr[1] = (sum_local_ptr[1] + z_local_ptr_2[0]);
      sum_local_ptr[3] = (sum_local_ptr[3] + (z_local_ptr_2[0] * (loaded_local_ptr_1[1] - factor_local_ptr[5])));
      z_local_ptr_4[0] = ((loaded_local_ptr_3[0] * factor_local_ptr[0]) + factor_local_ptr[2]);
      z_local_ptr_5[0] = z_local_ptr_4[0];
      z_local_ptr_4[0] = (loaded_local_ptr_2[0] * ((0x0p+0f/*0.000000e+00*/ < z_local_ptr_4[0]) ? 0x1p+0f/*1.000000e+00*/ : 0x0p+0f/*0.000000e+00*/));
      sum_local_ptr[0] = (sum_local_ptr[0] + z_local_ptr_4[0]);
      sum_local_ptr[2] = (sum_local_ptr[2] + (z_local_ptr_4[0] * (loaded_local_ptr_3[0] - factor_local_ptr[4])));
      z_local_ptr_6[0] = ((loaded_local_ptr_3[1] * factor_local_ptr[1]) + factor_local_ptr[3]);
      z_local_ptr_7[0] = z_local_ptr_6[0];
      z_local_ptr_6[0] = (loaded_local_ptr_2[1] * ((0x0p+0f/*0.000000e+00*/ < z_local_ptr_6[0]) ? 0x1p+0f/*1.000000e+00*/ : 0x0p+0f/*0.000000e+00*/));
      sum_local_ptr[1] = (sum_local_ptr[1] + z_local_ptr_6[0]);
      sum_local_ptr[3] = (sum_local_ptr[3] + (z_local_ptr_6[0] * (loaded_local_ptr_3[1] - factor_local_ptr[5])));
      z_local_ptr_8[0] = ((loaded_local_ptr_5[0] * factor_local_ptr[0]) + factor_local_ptr[2]);
      z_local_ptr_9[0] = z_local_ptr_8[0];
      z_local_ptr_8[0] = (loaded_local_ptr_4[0] * ((0x0p+0f/*0.000000e+00*/ < z_local_ptr_8[0]) ? 0x1p+0f/*1.000000e+00*/ : 0x0p+0f/*0.000000e+00*/));
      sum_local_ptr[0] = (sum_local_ptr[0] + z_local_ptr_8[0]);
      sum_local_ptr[2] = (sum_local_ptr[2] + (z_local_ptr_8[0] * (loaded_local_ptr_5[0] - factor_local_ptr[4])));
      z_local_ptr_10[0] = ((loaded_local_ptr_5[1] * factor_local_ptr[1]) + factor_local_ptr[3]);
      z_local_ptr_11[0] = z_local_ptr_10[0];
      z_local_ptr_10[0] = (loaded_local_ptr_4[1] * ((0x0p+0f/*0.000000e+00*/ < z_local_ptr_10[0]) ? 0x1p+0f/*1.000000e+00*/ : 0x0p+0f/*0.000000e+00*/));
      sum_local_ptr[1] = (sum_local_ptr[1] + z_local_ptr_10[0]);
      sum_local_ptr[3] = (sum_local_ptr[3] + (z_local_ptr_10[0] * (loaded_local_ptr_5[1] - factor_local_ptr[5])));
      z_local_ptr_12[0] = ((loaded_local_ptr_7[0] * factor_local_ptr[0]) + factor_local_ptr[2]);
      z_local_ptr_13[0] = z_local_ptr_12[0];
      z_local_ptr_12[0] = (loaded_local_ptr_6[0] * ((0x0p+0f/*0.000000e+00*/ < z_local_ptr_12[0]) ? 0x1p+0f/*1.000000e+00*/ : 0x0p+0f/*0.000000e+00*/));
      sum_local_ptr[0] = (sum_local_ptr[0] + z_local_ptr_12[0]);
      sum_local_ptr[2] = (sum_local_ptr[2] + (z_local_ptr_12[0] * (loaded_local_ptr_7[0] - factor_local_ptr[4])));
      z_local_ptr_14[0] = ((loaded_local_ptr_7[1] * factor_local_ptr[1]) + factor_local_ptr[3]);
      z_local_ptr_15[0] = z_local_ptr_14[0];
      z_local_ptr_14[0] = (loaded_local_ptr_6[1] * ((0x0p+0f/*0.000000e+00*/ < z_local_ptr_14[0]) ? 0x1p+0f/*1.000000e+00*/ : 0x0p+0f/*0.000000e+00*/));
      sum_local_ptr[1] = (sum_local_ptr[1] + z_local_ptr_14[0]);
      sum_local_ptr[3] = (sum_local_ptr[3] + (z_local_ptr_14[0] * (loaded_local_ptr_7[1] - factor_local_ptr[5])));
    }
    whole_local_ptr[0] = ((whole_local_ptr[0] * 16) + first_local_ptr[0]);
    for (int turn_1 = 0; turn_1 < (((each_local_ptr[0] + 3) - whole_local_ptr[0]) / 4); ++turn_1) {
      pixel_local_ptr[0] = (((turn_1 * 4) + whole_local_ptr[0]) + ((int)threadIdx.y));
      if (pixel_local_ptr[0] < each_local_ptr[0]) {
        *(float2*)(loaded_local_ptr_8 + 0) = *(float2*)(dz_ptr + ((pixel_local_ptr[0] * 28) + (vector_local_ptr[0] * 2)));
        *(float2*)(loaded_local_ptr_9 + 0) = *(float2*)(y_ptr + ((pixel_local_ptr[0] * 28) + (vector_local_ptr[0] * 2)));
        z_local_ptr_16[0] = ((loaded_local_ptr_9[0] * factor_local_ptr[0]) + factor_local_ptr[2]);
        z_local_ptr_17[0] = z_local_ptr_16[0];
        z_local_ptr_16[0] = (loaded_local_ptr_8[0] * ((0x0p+0f/*0.000000e+00*/ < z_local_ptr_16[0]) ? 0x1p+0f/*1.000000e+00*/ : 0x0p+0f/*0.000000e+00*/));
        sum_local_ptr[0] = (sum_local_ptr[0] + z_local_ptr_16[0]);
        sum_local_ptr[2] = (sum_local_ptr[2] + (z_local_ptr_16[0] * (loaded_local_ptr_9[0] - factor_local_ptr[4])));
        z_local_ptr_18[0] = ((loaded_local_ptr_9[1] * factor_local_ptr[1]) + factor_local_ptr[3]);
        z_local_ptr_19[0] = z_local_ptr_18[0];
        z_local_ptr_18[0] = (loaded_local_ptr_8[1] * ((0x0p+0f/*0.000000e+00*/ < z_local_ptr_18[0]) ? 0x1p+0f/*1.000000e+00*/ : 0x0p+0f/*0.000000e+00*/));
        sum_local_ptr[1] = (sum_local_ptr[1] + z_local_ptr_18[0]);
        sum_local_ptr[3] = (sum_local_ptr[3] + (z_local_ptr_18[0] * (loaded_local_ptr_9[1] - factor_local_ptr[5])));
      }
    }
  }
  for (int halving = 0; halving < 2; ++halving) {
    int left = ((3 >> halving) + 1);
    int width_left = ((3 >> (halving + 1)) + 1);
    if (((3 >> (halving + 1)) < ((int)threadIdx.y)) && (((int)threadIdx.y) <= (3 >> halving))) {
      passed_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) - ((3 >> (halving + 1)) * 8)) - 8)] = sum_local_ptr[0];
      passed_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 8) - ((3 >> (halving + 1)) * 8))] = sum_local_ptr[1];
      passed_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 24) - ((3 >> (halving + 1)) * 8))] = sum_local_ptr[2];
      passed_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 40) - ((3 >> (halving + 1)) * 8))] = sum_local_ptr[3];
    }
    __syncthreads();
    if ((((int)threadIdx.y) + (3 >> (halving + 1))) < (3 >> halving)) {
      sum_local_ptr[0] = (sum_local_ptr[0] + passed_shared_ptr[((((int)threadIdx.y) * 8) + ((int)threadIdx.x))]);
      sum_local_ptr[1] = (sum_local_ptr[1] + passed_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 16)]);
      sum_local_ptr[2] = (sum_local_ptr[2] + passed_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 32)]);
      sum_local_ptr[3] = (sum_local_ptr[3] + passed_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 48)]);
    }
    __syncthreads();
  }
  if ((((int)threadIdx.y) == 0) && (vector_local_ptr[0] < 14)) {
    *(float2*)(workspace_ptr + (((((int)blockIdx.x) >> 1) * 56) + (vector_local_ptr[0] * 2))) = *(float2*)(sum_local_ptr + 0);
    *(float2*)(workspace_ptr + ((((((int)blockIdx.x) >> 1) * 56) + (vector_local_ptr[0] * 2)) + 28)) = *(float2*)(sum_local_ptr + 2);
  }
}

extern "C" __global__ void __launch_bounds__(32) main_kernel_1(float* __restrict__ dbeta2_ptr, float* __restrict__ dgamma2_ptr, float* __restrict__ var2_ptr, float* __restrict__ workspace_ptr) {
  alignas(64) float total_local_ptr[2];
  __shared__ alignas(64) float passed_shared_ptr[32];
  alignas(64) float inverse_local_ptr[1];
  #pragma unroll
  for (int index = 0; index < 2; ++index) {
    total_local_ptr[index] = 0x0p+0f/*0.000000e+00*/;
  }
  if (((((int)blockIdx.x) * 2) + (((int)threadIdx.x) >> 2)) < 7) {
    for (int turn = 0; turn < 4; ++turn) {
      total_local_ptr[0] = (total_local_ptr[0] + workspace_ptr[((((turn * 224) + (((int)threadIdx.y) * 56)) + (((int)blockIdx.x) * 8)) + ((int)threadIdx.x))]);
      total_local_ptr[1] = (total_local_ptr[1] + workspace_ptr[(((((turn * 224) + (((int)threadIdx.y) * 56)) + (((int)blockIdx.x) * 8)) + ((int)threadIdx.x)) + 28)]);
    }
  }
  for (int halving = 0; halving < 2; ++halving) {
    int left = ((3 >> halving) + 1);
    int width_left = ((3 >> (halving + 1)) + 1);
    if (((3 >> (halving + 1)) < ((int)threadIdx.y)) && (((int)threadIdx.y) <= (3 >> halving))) {
      passed_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) - ((3 >> (halving + 1)) * 8)) - 8)] = total_local_ptr[0];
      passed_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 8) - ((3 >> (halving + 1)) * 8))] = total_local_ptr[1];
    }
    __syncthreads();
    if ((((int)threadIdx.y) + (3 >> (halving + 1))) < (3 >> halving)) {
      total_local_ptr[0] = (total_local_ptr[0] + passed_shared_ptr[((((int)threadIdx.y) * 8) + ((int)threadIdx.x))]);
      total_local_ptr[1] = (total_local_ptr[1] + passed_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 16)]);
    }
    __syncthreads();
  }
  if ((((int)threadIdx.y) == 0) && (((((int)blockIdx.x) * 2) + (((int)threadIdx.x) >> 2)) < 7)) {
    dbeta2_ptr[((((int)blockIdx.x) * 8) + ((int)threadIdx.x))] = total_local_ptr[0];
    inverse_local_ptr[0] = rsqrtf((var2_ptr[((((int)blockIdx.x) * 8) + ((int)threadIdx.x))] + 0x1.4f8b588e368f1p-17f/*1.000000e-05*/));
    dgamma2_ptr[((((int)blockIdx.x) * 8) + ((int)threadIdx.x))] = (total_local_ptr[1] * inverse_local_ptr[0]);
  }
}

extern "C" __global__ void __launch_bounds__(32, 1) main_kernel_2(float* __restrict__ beta1_ptr, float* __restrict__ beta2_ptr, float* __restrict__ dbeta2_ptr, float* __restrict__ dgamma2_ptr, float* __restrict__ dx_ptr, float* __restrict__ dz_ptr, float* __restrict__ gamma1_ptr, float* __restrict__ gamma2_ptr, float* __restrict__ mean1_ptr, float* __restrict__ mean2_ptr, float* __restrict__ var1_ptr, float* __restrict__ var2_ptr, float* __restrict__ w_ptr, float* __restrict__ workspace_ptr, float* __restrict__ x_ptr, float* __restrict__ y_ptr, int n) {
  alignas(64) int vector_local_ptr[1];
  alignas(64) int read_from_local_ptr[1];
  __shared__ alignas(64) float weights_shared_ptr[60];
  __shared__ alignas(64) float2 table_shared_ptr[64];
  alignas(64) float gamma_local_ptr[2];
  alignas(64) float var_local_ptr[2];
  alignas(64) float beta_local_ptr[2];
  alignas(64) float mean_local_ptr[2];
  alignas(64) float inverse_local_ptr[1];
  alignas(64) float factor_local_ptr[6];
  alignas(64) float inverse_local_ptr_1[1];
  alignas(64) float gamma_local_ptr_1[2];
  alignas(64) float var_local_ptr_1[2];
  alignas(64) float beta_local_ptr_1[2];
  alignas(64) float mean_local_ptr_1[2];
  alignas(64) float dgamma_local_ptr[2];
  alignas(64) float dbeta_local_ptr[2];
  alignas(64) float inverse_local_ptr_2[1];
  alignas(64) float scale_local_ptr[1];
  alignas(64) float share_local_ptr[1];
  alignas(64) float factor_local_ptr_1[8];
  alignas(64) float inverse_local_ptr_3[1];
  alignas(64) float scale_local_ptr_1[1];
  alignas(64) float share_local_ptr_1[1];
  alignas(64) float sum_local_ptr[10];
  alignas(64) int tiles_local_ptr[1];
  alignas(64) int each_local_ptr[1];
  alignas(64) int start_local_ptr[1];
  alignas(64) int left_local_ptr[1];
  alignas(64) int patch_left_local_ptr[1];
  __shared__ alignas(64) float patch_shared_ptr[192];
  alignas(64) int number_local_ptr[1];
  alignas(64) int image_local_ptr[1];
  alignas(64) int top_local_ptr[1];
  alignas(64) float x_local_ptr[2];
  alignas(64) float factor_local_ptr_2[8];
  alignas(64) int pixel_local_ptr[2];
  alignas(64) float staged_local_ptr[4];
  alignas(64) int pixel_local_ptr_1[2];
  alignas(64) float staged_local_ptr_1[4];
  alignas(64) int pixel_local_ptr_2[2];
  alignas(64) float staged_local_ptr_2[4];
  alignas(64) float made_local_ptr[2];
  alignas(64) float z_local_ptr[1];
  alignas(64) float z_local_ptr_1[1];
  alignas(64) float z_local_ptr_2[1];
  alignas(64) float z_local_ptr_3[1];
  alignas(64) float made_local_ptr_1[2];
  alignas(64) float z_local_ptr_4[1];
  alignas(64) float z_local_ptr_5[1];
  alignas(64) float z_local_ptr_6[1];
  alignas(64) float z_local_ptr_7[1];
  alignas(64) float made_local_ptr_2[2];
  alignas(64) float z_local_ptr_8[1];
  alignas(64) float z_local_ptr_9[1];
  alignas(64) float z_local_ptr_10[1];
  alignas(64) float z_local_ptr_11[1];
  alignas(64) float gradient_local_ptr[2];
  alignas(64) float factor_local_ptr_3[4];
  alignas(64) float z_local_ptr_12[1];
  alignas(64) float activated_local_ptr[2];
  alignas(64) float z_local_ptr_13[1];
  alignas(64) float value_local_ptr[2];
  alignas(64) float weight_local_ptr[2];
  alignas(64) float factor_local_ptr_4[6];
  alignas(64) float z_local_ptr_14[1];
  alignas(64) float z_local_ptr_15[1];
  alignas(64) float d1_local_ptr[2];
  alignas(64) float z_local_ptr_16[1];
  alignas(64) float z_local_ptr_17[1];
  vector_local_ptr[0] = (((((int)blockIdx.x) & 1) * 8) + ((int)threadIdx.x));
  read_from_local_ptr[0] = ((((int)threadIdx.y) * 8) + ((int)threadIdx.x));
  #pragma unroll
  for (int turn = 0; turn < 2; ++turn) {
    if ((((turn * 2) + (((int)threadIdx.y) >> 1)) < 3) && ((((((((int)blockIdx.x) & 1) * 48) + (turn * 32)) + (((int)threadIdx.y) * 8)) + ((int)threadIdx.x)) < 84)) {
      weights_shared_ptr[((((((turn * 32) + (((int)threadIdx.y) * 8)) + ((int)threadIdx.x)) % 3) * 20) + ((((turn * 32) + (((int)threadIdx.y) * 8)) + ((int)threadIdx.x)) / 3))] = w_ptr[(((((((int)blockIdx.x) & 1) * 48) + (turn * 32)) + (((int)threadIdx.y) * 8)) + ((int)threadIdx.x))];
    }
  }
  if ((((int)threadIdx.y) == 0) && (vector_local_ptr[0] < 14)) {
    *(float2*)(gamma_local_ptr + 0) = *(float2*)(gamma1_ptr + (vector_local_ptr[0] * 2));
    *(float2*)(var_local_ptr + 0) = *(float2*)(var1_ptr + (vector_local_ptr[0] * 2));
    *(float2*)(beta_local_ptr + 0) = *(float2*)(beta1_ptr + (vector_local_ptr[0] * 2));
    *(float2*)(mean_local_ptr + 0) = *(float2*)(mean1_ptr + (vector_local_ptr[0] * 2));
    inverse_local_ptr[0] = rsqrtf((var_local_ptr[0] + 0x1.4f8b588e368f1p-17f/*1.000000e-05*/));
    inverse_local_ptr[0] = (gamma_local_ptr[0] * inverse_local_ptr[0]);
    factor_local_ptr[0] = inverse_local_ptr[0];
    factor_local_ptr[2] = (beta_local_ptr[0] - (mean_local_ptr[0] * inverse_local_ptr[0]));
    factor_local_ptr[4] = mean_local_ptr[0];
    inverse_local_ptr_1[0] = rsqrtf((var_local_ptr[1] + 0x1.4f8b588e368f1p-17f/*1.000000e-05*/));
    inverse_local_ptr_1[0] = (gamma_local_ptr[1] * inverse_local_ptr_1[0]);
    factor_local_ptr[1] = inverse_local_ptr_1[0];
    factor_local_ptr[3] = (beta_local_ptr[1] - (mean_local_ptr[1] * inverse_local_ptr_1[0]));
    factor_local_ptr[5] = mean_local_ptr[1];
    table_shared_ptr[((int)threadIdx.x)] = *(float2*)(factor_local_ptr + 0);
    table_shared_ptr[(((int)threadIdx.x) + 8)] = *(float2*)(factor_local_ptr + 2);
    table_shared_ptr[(((int)threadIdx.x) + 16)] = *(float2*)(factor_local_ptr + 4);
  }
  if ((((int)threadIdx.y) == 0) && (vector_local_ptr[0] < 14)) {
    *(float2*)(gamma_local_ptr_1 + 0) = *(float2*)(gamma2_ptr + (vector_local_ptr[0] * 2));
    *(float2*)(var_local_ptr_1 + 0) = *(float2*)(var2_ptr + (vector_local_ptr[0] * 2));
    *(float2*)(beta_local_ptr_1 + 0) = *(float2*)(beta2_ptr + (vector_local_ptr[0] * 2));
    *(float2*)(mean_local_ptr_1 + 0) = *(float2*)(mean2_ptr + (vector_local_ptr[0] * 2));
    *(float2*)(dgamma_local_ptr + 0) = *(float2*)(dgamma2_ptr + (vector_local_ptr[0] * 2));
    *(float2*)(dbeta_local_ptr + 0) = *(float2*)(dbeta2_ptr + (vector_local_ptr[0] * 2));
    inverse_local_ptr_2[0] = rsqrtf((var_local_ptr_1[0] + 0x1.4f8b588e368f1p-17f/*1.000000e-05*/));
    scale_local_ptr[0] = (gamma_local_ptr_1[0] * inverse_local_ptr_2[0]);
    share_local_ptr[0] = __fdividef(scale_local_ptr[0], ((float)(n * 64)));
    inverse_local_ptr_2[0] = (0x0p+0f/*0.000000e+00*/ - ((share_local_ptr[0] * dgamma_local_ptr[0]) * inverse_local_ptr_2[0]));
    factor_local_ptr_1[0] = scale_local_ptr[0];
    factor_local_ptr_1[2] = (beta_local_ptr_1[0] - (mean_local_ptr_1[0] * scale_local_ptr[0]));
    factor_local_ptr_1[4] = inverse_local_ptr_2[0];
    factor_local_ptr_1[6] = ((0x0p+0f/*0.000000e+00*/ - (share_local_ptr[0] * dbeta_local_ptr[0])) - (inverse_local_ptr_2[0] * mean_local_ptr_1[0]));
    inverse_local_ptr_3[0] = rsqrtf((var_local_ptr_1[1] + 0x1.4f8b588e368f1p-17f/*1.000000e-05*/));
    scale_local_ptr_1[0] = (gamma_local_ptr_1[1] * inverse_local_ptr_3[0]);
    share_local_ptr_1[0] = __fdividef(scale_local_ptr_1[0], ((float)(n * 64)));
    inverse_local_ptr_3[0] = (0x0p+0f/*0.000000e+00*/ - ((share_local_ptr_1[0] * dgamma_local_ptr[1]) * inverse_local_ptr_3[0]));
    factor_local_ptr_1[1] = scale_local_ptr_1[0];
    factor_local_ptr_1[3] = (beta_local_ptr_1[1] - (mean_local_ptr_1[1] * scale_local_ptr_1[0]));
    factor_local_ptr_1[5] = inverse_local_ptr_3[0];
    factor_local_ptr_1[7] = ((0x0p+0f/*0.000000e+00*/ - (share_local_ptr_1[0] * dbeta_local_ptr[1])) - (inverse_local_ptr_3[0] * mean_local_ptr_1[1]));
    table_shared_ptr[(((int)threadIdx.x) + 32)] = *(float2*)(factor_local_ptr_1 + 0);
    table_shared_ptr[(((int)threadIdx.x) + 40)] = *(float2*)(factor_local_ptr_1 + 2);
    table_shared_ptr[(((int)threadIdx.x) + 48)] = *(float2*)(factor_local_ptr_1 + 4);
    table_shared_ptr[(((int)threadIdx.x) + 56)] = *(float2*)(factor_local_ptr_1 + 6);
  }
  __syncthreads();
  #pragma unroll
  for (int index = 0; index < 10; ++index) {
    sum_local_ptr[index] = 0x0p+0f/*0.000000e+00*/;
  }
  tiles_local_ptr[0] = (n * 8);
  each_local_ptr[0] = ((tiles_local_ptr[0] + 7) / 8);
  start_local_ptr[0] = min(((((int)blockIdx.x) >> 2) * each_local_ptr[0]), tiles_local_ptr[0]);
  left_local_ptr[0] = ((((((int)blockIdx.x) & 3) >> 1) * 4) + ((int)threadIdx.y));
  patch_left_local_ptr[0] = (((((int)blockIdx.x) & 3) >> 1) * 4);
  each_local_ptr[0] = min(each_local_ptr[0], (tiles_local_ptr[0] - start_local_ptr[0]));
  for (int turn_1 = 0; turn_1 < each_local_ptr[0]; ++turn_1) {
    number_local_ptr[0] = (start_local_ptr[0] + turn_1);
    image_local_ptr[0] = (number_local_ptr[0] / 8);
    number_local_ptr[0] = (number_local_ptr[0] - (image_local_ptr[0] * 8));
    top_local_ptr[0] = number_local_ptr[0];
    number_local_ptr[0] = (number_local_ptr[0] - 1);
    top_local_ptr[0] = (((image_local_ptr[0] * 64) + (top_local_ptr[0] * 8)) + left_local_ptr[0]);
    if (vector_local_ptr[0] < 14) {
      *(float2*)(x_local_ptr + 0) = *(float2*)(x_ptr + ((top_local_ptr[0] * 28) + (vector_local_ptr[0] * 2)));
    }
    if (vector_local_ptr[0] < 14) {
      *(float2*)(factor_local_ptr_2 + 0) = table_shared_ptr[(((int)threadIdx.x) + 32)];
      *(float2*)(factor_local_ptr_2 + 2) = table_shared_ptr[(((int)threadIdx.x) + 40)];
      *(float2*)(factor_local_ptr_2 + 4) = table_shared_ptr[(((int)threadIdx.x) + 48)];
      *(float2*)(factor_local_ptr_2 + 6) = table_shared_ptr[(((int)threadIdx.x) + 56)];
      pixel_local_ptr[0] = number_local_ptr[0];
      pixel_local_ptr[1] = (patch_left_local_ptr[0] + ((int)threadIdx.y));
      float2 condval;
      if ((0 <= pixel_local_ptr[0]) && (pixel_local_ptr[0] < 8)) {
        condval = *(float2*)(dz_ptr + ((((image_local_ptr[0] * 1792) + (pixel_local_ptr[0] * 224)) + (pixel_local_ptr[1] * 28)) + (vector_local_ptr[0] * 2)));
      } else {
        condval = make_float2(0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/);
      }
      *(float2*)(staged_local_ptr + 0) = condval;
      float2 condval_1;
      if ((0 <= pixel_local_ptr[0]) && (pixel_local_ptr[0] < 8)) {
        condval_1 = *(float2*)(y_ptr + ((((image_local_ptr[0] * 1792) + (pixel_local_ptr[0] * 224)) + (pixel_local_ptr[1] * 28)) + (vector_local_ptr[0] * 2)));
      } else {
        condval_1 = make_float2(0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/);
      }
      *(float2*)(staged_local_ptr + 2) = condval_1;
      pixel_local_ptr_1[0] = (number_local_ptr[0] + 1);
      pixel_local_ptr_1[1] = (patch_left_local_ptr[0] + ((int)threadIdx.y));
      float2 condval_2;
      if ((0 <= pixel_local_ptr_1[0]) && (pixel_local_ptr_1[0] < 8)) {
        condval_2 = *(float2*)(dz_ptr + ((((image_local_ptr[0] * 1792) + (pixel_local_ptr_1[0] * 224)) + (pixel_local_ptr_1[1] * 28)) + (vector_local_ptr[0] * 2)));
      } else {
        condval_2 = make_float2(0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/);
      }
      *(float2*)(staged_local_ptr_1 + 0) = condval_2;
      float2 condval_3;
      if ((0 <= pixel_local_ptr_1[0]) && (pixel_local_ptr_1[0] < 8)) {
        condval_3 = *(float2*)(y_ptr + ((((image_local_ptr[0] * 1792) + (pixel_local_ptr_1[0] * 224)) + (pixel_local_ptr_1[1] * 28)) + (vector_local_ptr[0] * 2)));
      } else {
        condval_3 = make_float2(0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/);
      }
      *(float2*)(staged_local_ptr_1 + 2) = condval_3;
      pixel_local_ptr_2[0] = (number_local_ptr[0] + 2);
      pixel_local_ptr_2[1] = (patch_left_local_ptr[0] + ((int)threadIdx.y));
      float2 condval_4;
      if ((0 <= pixel_local_ptr_2[0]) && (pixel_local_ptr_2[0] < 8)) {
        condval_4 = *(float2*)(dz_ptr + ((((image_local_ptr[0] * 1792) + (pixel_local_ptr_2[0] * 224)) + (pixel_local_ptr_2[1] * 28)) + (vector_local_ptr[0] * 2)));
      } else {
        condval_4 = make_float2(0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/);
      }
      *(float2*)(staged_local_ptr_2 + 0) = condval_4;
      float2 condval_5;
      if ((0 <= pixel_local_ptr_2[0]) && (pixel_local_ptr_2[0] < 8)) {
        condval_5 = *(float2*)(y_ptr + ((((image_local_ptr[0] * 1792) + (pixel_local_ptr_2[0] * 224)) + (pixel_local_ptr_2[1] * 28)) + (vector_local_ptr[0] * 2)));
      } else {
        condval_5 = make_float2(0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/);
      }
      *(float2*)(staged_local_ptr_2 + 2) = condval_5;
      #pragma unroll
      for (int index_1 = 0; index_1 < 2; ++index_1) {
        made_local_ptr[index_1] = 0x0p+0f/*0.000000e+00*/;
      }
      if ((0 <= pixel_local_ptr[0]) && (pixel_local_ptr[0] < 8)) {
        z_local_ptr[0] = ((staged_local_ptr[2] * factor_local_ptr_2[0]) + factor_local_ptr_2[2]);
        z_local_ptr_1[0] = z_local_ptr[0];
        z_local_ptr[0] = (staged_local_ptr[0] * ((0x0p+0f/*0.000000e+00*/ < z_local_ptr[0]) ? 0x1p+0f/*1.000000e+00*/ : 0x0p+0f/*0.000000e+00*/));
        made_local_ptr[0] = ((z_local_ptr[0] * factor_local_ptr_2[0]) + ((staged_local_ptr[2] * factor_local_ptr_2[4]) + factor_local_ptr_2[6]));
        z_local_ptr_2[0] = ((staged_local_ptr[3] * factor_local_ptr_2[1]) + factor_local_ptr_2[3]);
        z_local_ptr_3[0] = z_local_ptr_2[0];
        z_local_ptr_2[0] = (staged_local_ptr[1] * ((0x0p+0f/*0.000000e+00*/ < z_local_ptr_2[0]) ? 0x1p+0f/*1.000000e+00*/ : 0x0p+0f/*0.000000e+00*/));
        made_local_ptr[1] = ((z_local_ptr_2[0] * factor_local_ptr_2[1]) + ((staged_local_ptr[3] * factor_local_ptr_2[5]) + factor_local_ptr_2[7]));
      }
      *(float2*)(patch_shared_ptr + ((((int)threadIdx.y) * 16) + (((int)threadIdx.x) * 2))) = *(float2*)(made_local_ptr + 0);
      #pragma unroll
      for (int index_2 = 0; index_2 < 2; ++index_2) {
        made_local_ptr_1[index_2] = 0x0p+0f/*0.000000e+00*/;
      }
      if ((0 <= pixel_local_ptr_1[0]) && (pixel_local_ptr_1[0] < 8)) {
        z_local_ptr_4[0] = ((staged_local_ptr_1[2] * factor_local_ptr_2[0]) + factor_local_ptr_2[2]);
        z_local_ptr_5[0] = z_local_ptr_4[0];
        z_local_ptr_4[0] = (staged_local_ptr_1[0] * ((0x0p+0f/*0.000000e+00*/ < z_local_ptr_4[0]) ? 0x1p+0f/*1.000000e+00*/ : 0x0p+0f/*0.000000e+00*/));
        made_local_ptr_1[0] = ((z_local_ptr_4[0] * factor_local_ptr_2[0]) + ((staged_local_ptr_1[2] * factor_local_ptr_2[4]) + factor_local_ptr_2[6]));
        z_local_ptr_6[0] = ((staged_local_ptr_1[3] * factor_local_ptr_2[1]) + factor_local_ptr_2[3]);
        z_local_ptr_7[0] = z_local_ptr_6[0];
        z_local_ptr_6[0] = (staged_local_ptr_1[1] * ((0x0p+0f/*0.000000e+00*/ < z_local_ptr_6[0]) ? 0x1p+0f/*1.000000e+00*/ : 0x0p+0f/*0.000000e+00*/));
        made_local_ptr_1[1] = ((z_local_ptr_6[0] * factor_local_ptr_2[1]) + ((staged_local_ptr_1[3] * factor_local_ptr_2[5]) + factor_local_ptr_2[7]));
      }
      *(float2*)(patch_shared_ptr + (((((int)threadIdx.y) * 16) + (((int)threadIdx.x) * 2)) + 64)) = *(float2*)(made_local_ptr_1 + 0);
      #pragma unroll
      for (int index_3 = 0; index_3 < 2; ++index_3) {
        made_local_ptr_2[index_3] = 0x0p+0f/*0.000000e+00*/;
      }
      if ((0 <= pixel_local_ptr_2[0]) && (pixel_local_ptr_2[0] < 8)) {
        z_local_ptr_8[0] = ((staged_local_ptr_2[2] * factor_local_ptr_2[0]) + factor_local_ptr_2[2]);
        z_local_ptr_9[0] = z_local_ptr_8[0];
        z_local_ptr_8[0] = (staged_local_ptr_2[0] * ((0x0p+0f/*0.000000e+00*/ < z_local_ptr_8[0]) ? 0x1p+0f/*1.000000e+00*/ : 0x0p+0f/*0.000000e+00*/));
        made_local_ptr_2[0] = ((z_local_ptr_8[0] * factor_local_ptr_2[0]) + ((staged_local_ptr_2[2] * factor_local_ptr_2[4]) + factor_local_ptr_2[6]));
        z_local_ptr_10[0] = ((staged_local_ptr_2[3] * factor_local_ptr_2[1]) + factor_local_ptr_2[3]);
        z_local_ptr_11[0] = z_local_ptr_10[0];
        z_local_ptr_10[0] = (staged_local_ptr_2[1] * ((0x0p+0f/*0.000000e+00*/ < z_local_ptr_10[0]) ? 0x1p+0f/*1.000000e+00*/ : 0x0p+0f/*0.000000e+00*/));
        made_local_ptr_2[1] = ((z_local_ptr_10[0] * factor_local_ptr_2[1]) + ((staged_local_ptr_2[3] * factor_local_ptr_2[5]) + factor_local_ptr_2[7]));
      }
      *(float2*)(patch_shared_ptr + (((((int)threadIdx.y) * 16) + (((int)threadIdx.x) * 2)) + 128)) = *(float2*)(made_local_ptr_2 + 0);
    }
    __syncthreads();
    if (vector_local_ptr[0] < 14) {
      *(float2*)(factor_local_ptr_3 + 0) = table_shared_ptr[((int)threadIdx.x)];
      *(float2*)(factor_local_ptr_3 + 2) = table_shared_ptr[(((int)threadIdx.x) + 8)];
      z_local_ptr_12[0] = ((x_local_ptr[0] * factor_local_ptr_3[0]) + factor_local_ptr_3[2]);
      float condval_6;
      if (z_local_ptr_12[0] < 0x0p+0f/*0.000000e+00*/) {
        condval_6 = 0x0p+0f/*0.000000e+00*/;
      } else {
        condval_6 = z_local_ptr_12[0];
      }
      z_local_ptr_12[0] = condval_6;
      float condval_7;
      if (0x1.8p+2f/*6.000000e+00*/ < z_local_ptr_12[0]) {
        condval_7 = 0x1.8p+2f/*6.000000e+00*/;
      } else {
        condval_7 = z_local_ptr_12[0];
      }
      activated_local_ptr[0] = condval_7;
      z_local_ptr_13[0] = ((x_local_ptr[1] * factor_local_ptr_3[1]) + factor_local_ptr_3[3]);
      float condval_8;
      if (z_local_ptr_13[0] < 0x0p+0f/*0.000000e+00*/) {
        condval_8 = 0x0p+0f/*0.000000e+00*/;
      } else {
        condval_8 = z_local_ptr_13[0];
      }
      z_local_ptr_13[0] = condval_8;
      float condval_9;
      if (0x1.8p+2f/*6.000000e+00*/ < z_local_ptr_13[0]) {
        condval_9 = 0x1.8p+2f/*6.000000e+00*/;
      } else {
        condval_9 = z_local_ptr_13[0];
      }
      activated_local_ptr[1] = condval_9;
      #pragma unroll
      for (int index_4 = 0; index_4 < 2; ++index_4) {
        gradient_local_ptr[index_4] = 0x0p+0f/*0.000000e+00*/;
      }
      *(float2*)(value_local_ptr + 0) = *(float2*)(patch_shared_ptr + (read_from_local_ptr[0] * 2));
      *(float2*)(weight_local_ptr + 0) = *(float2*)(weights_shared_ptr + ((((int)threadIdx.x) * 2) + 40));
      gradient_local_ptr[0] = (gradient_local_ptr[0] + (value_local_ptr[0] * weight_local_ptr[0]));
      sum_local_ptr[4] = (sum_local_ptr[4] + (value_local_ptr[0] * activated_local_ptr[0]));
      gradient_local_ptr[1] = (gradient_local_ptr[1] + (value_local_ptr[1] * weight_local_ptr[1]));
      sum_local_ptr[5] = (sum_local_ptr[5] + (value_local_ptr[1] * activated_local_ptr[1]));
      *(float2*)(value_local_ptr + 0) = *(float2*)(patch_shared_ptr + ((read_from_local_ptr[0] * 2) + 64));
      *(float2*)(weight_local_ptr + 0) = *(float2*)(weights_shared_ptr + ((((int)threadIdx.x) * 2) + 20));
      gradient_local_ptr[0] = (gradient_local_ptr[0] + (value_local_ptr[0] * weight_local_ptr[0]));
      sum_local_ptr[2] = (sum_local_ptr[2] + (value_local_ptr[0] * activated_local_ptr[0]));
      gradient_local_ptr[1] = (gradient_local_ptr[1] + (value_local_ptr[1] * weight_local_ptr[1]));
      sum_local_ptr[3] = (sum_local_ptr[3] + (value_local_ptr[1] * activated_local_ptr[1]));
      *(float2*)(value_local_ptr + 0) = *(float2*)(patch_shared_ptr + ((read_from_local_ptr[0] * 2) + 128));
      *(float2*)(weight_local_ptr + 0) = *(float2*)(weights_shared_ptr + (((int)threadIdx.x) * 2));
      gradient_local_ptr[0] = (gradient_local_ptr[0] + (value_local_ptr[0] * weight_local_ptr[0]));
      sum_local_ptr[0] = (sum_local_ptr[0] + (value_local_ptr[0] * activated_local_ptr[0]));
      gradient_local_ptr[1] = (gradient_local_ptr[1] + (value_local_ptr[1] * weight_local_ptr[1]));
      sum_local_ptr[1] = (sum_local_ptr[1] + (value_local_ptr[1] * activated_local_ptr[1]));
    }
    __syncthreads();
    if (vector_local_ptr[0] < 14) {
      *(float2*)(factor_local_ptr_4 + 0) = table_shared_ptr[((int)threadIdx.x)];
      *(float2*)(factor_local_ptr_4 + 2) = table_shared_ptr[(((int)threadIdx.x) + 8)];
      *(float2*)(factor_local_ptr_4 + 4) = table_shared_ptr[(((int)threadIdx.x) + 16)];
      z_local_ptr_14[0] = ((x_local_ptr[0] * factor_local_ptr_4[0]) + factor_local_ptr_4[2]);
      z_local_ptr_15[0] = z_local_ptr_14[0];
      float condval_10;
      if (z_local_ptr_15[0] < 0x0p+0f/*0.000000e+00*/) {
        condval_10 = 0x0p+0f/*0.000000e+00*/;
      } else {
        condval_10 = z_local_ptr_15[0];
      }
      z_local_ptr_15[0] = condval_10;
      d1_local_ptr[0] = (gradient_local_ptr[0] * (((0x0p+0f/*0.000000e+00*/ < z_local_ptr_14[0]) && (z_local_ptr_14[0] < 0x1.8p+2f/*6.000000e+00*/)) ? 0x1p+0f/*1.000000e+00*/ : 0x0p+0f/*0.000000e+00*/));
      sum_local_ptr[6] = (sum_local_ptr[6] + d1_local_ptr[0]);
      sum_local_ptr[8] = (sum_local_ptr[8] + (d1_local_ptr[0] * (x_local_ptr[0] - factor_local_ptr_4[4])));
      z_local_ptr_16[0] = ((x_local_ptr[1] * factor_local_ptr_4[1]) + factor_local_ptr_4[3]);
      z_local_ptr_17[0] = z_local_ptr_16[0];
      float condval_11;
      if (z_local_ptr_17[0] < 0x0p+0f/*0.000000e+00*/) {
        condval_11 = 0x0p+0f/*0.000000e+00*/;
      } else {
        condval_11 = z_local_ptr_17[0];
      }
      z_local_ptr_17[0] = condval_11;
      d1_local_ptr[1] = (gradient_local_ptr[1] * (((0x0p+0f/*0.000000e+00*/ < z_local_ptr_16[0]) && (z_local_ptr_16[0] < 0x1.8p+2f/*6.000000e+00*/)) ? 0x1p+0f/*1.000000e+00*/ : 0x0p+0f/*0.000000e+00*/));
      sum_local_ptr[7] = (sum_local_ptr[7] + d1_local_ptr[1]);
      sum_local_ptr[9] = (sum_local_ptr[9] + (d1_local_ptr[1] * (x_local_ptr[1] - factor_local_ptr_4[5])));
      *(float2*)(dx_ptr + ((top_local_ptr[0] * 28) + (vector_local_ptr[0] * 2))) = *(float2*)(d1_local_ptr + 0);
    }
  }
  for (int halving = 0; halving < 2; ++halving) {
    int left = ((3 >> halving) + 1);
    int width_left = ((3 >> (halving + 1)) + 1);
    if (((3 >> (halving + 1)) < ((int)threadIdx.y)) && (((int)threadIdx.y) <= (3 >> halving))) {
      patch_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) - ((3 >> (halving + 1)) * 8)) - 8)] = sum_local_ptr[0];
      patch_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 8) - ((3 >> (halving + 1)) * 8))] = sum_local_ptr[1];
      patch_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 24) - ((3 >> (halving + 1)) * 8))] = sum_local_ptr[2];
      patch_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 40) - ((3 >> (halving + 1)) * 8))] = sum_local_ptr[3];
      patch_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 56) - ((3 >> (halving + 1)) * 8))] = sum_local_ptr[4];
      patch_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 72) - ((3 >> (halving + 1)) * 8))] = sum_local_ptr[5];
      patch_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 88) - ((3 >> (halving + 1)) * 8))] = sum_local_ptr[6];
      patch_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 104) - ((3 >> (halving + 1)) * 8))] = sum_local_ptr[7];
      patch_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 120) - ((3 >> (halving + 1)) * 8))] = sum_local_ptr[8];
      patch_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 136) - ((3 >> (halving + 1)) * 8))] = sum_local_ptr[9];
    }
    __syncthreads();
    if ((((int)threadIdx.y) + (3 >> (halving + 1))) < (3 >> halving)) {
      sum_local_ptr[0] = (sum_local_ptr[0] + patch_shared_ptr[((((int)threadIdx.y) * 8) + ((int)threadIdx.x))]);
      sum_local_ptr[1] = (sum_local_ptr[1] + patch_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 16)]);
      sum_local_ptr[2] = (sum_local_ptr[2] + patch_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 32)]);
      sum_local_ptr[3] = (sum_local_ptr[3] + patch_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 48)]);
      sum_local_ptr[4] = (sum_local_ptr[4] + patch_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 64)]);
      sum_local_ptr[5] = (sum_local_ptr[5] + patch_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 80)]);
      sum_local_ptr[6] = (sum_local_ptr[6] + patch_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 96)]);
      sum_local_ptr[7] = (sum_local_ptr[7] + patch_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 112)]);
      sum_local_ptr[8] = (sum_local_ptr[8] + patch_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 128)]);
      sum_local_ptr[9] = (sum_local_ptr[9] + patch_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 144)]);
    }
    __syncthreads();
  }
  if ((((int)threadIdx.y) == 0) && (vector_local_ptr[0] < 14)) {
    *(float2*)(workspace_ptr + (((((int)blockIdx.x) >> 1) * 140) + (vector_local_ptr[0] * 2))) = *(float2*)(sum_local_ptr + 0);
    *(float2*)(workspace_ptr + ((((((int)blockIdx.x) >> 1) * 140) + (vector_local_ptr[0] * 2)) + 28)) = *(float2*)(sum_local_ptr + 2);
    *(float2*)(workspace_ptr + ((((((int)blockIdx.x) >> 1) * 140) + (vector_local_ptr[0] * 2)) + 56)) = *(float2*)(sum_local_ptr + 4);
    *(float2*)(workspace_ptr + ((((((int)blockIdx.x) >> 1) * 140) + (vector_local_ptr[0] * 2)) + 84)) = *(float2*)(sum_local_ptr + 6);
    *(float2*)(workspace_ptr + ((((((int)blockIdx.x) >> 1) * 140) + (vector_local_ptr[0] * 2)) + 112)) = *(float2*)(sum_local_ptr + 8);
  }
}

extern "C" __global__ void __launch_bounds__(32) main_kernel_3(float* __restrict__ dbeta1_ptr, float* __restrict__ dgamma1_ptr, float* __restrict__ dw_ptr, float* __restrict__ var1_ptr, float* __restrict__ workspace_ptr) {
  alignas(64) float total_local_ptr[1];
  __shared__ alignas(64) float passed_shared_ptr[16];
  alignas(64) float inverse_local_ptr[1];
  total_local_ptr[0] = 0x0p+0f/*0.000000e+00*/;
  if (((((int)blockIdx.x) * 2) + (((int)threadIdx.x) >> 2)) < 7) {
    for (int turn = 0; turn < 4; ++turn) {
      total_local_ptr[0] = (total_local_ptr[0] + workspace_ptr[(((((turn * 560) + (((int)threadIdx.y) * 140)) + (((int)blockIdx.y) * 28)) + (((int)blockIdx.x) * 8)) + ((int)threadIdx.x))]);
    }
  }
  for (int halving = 0; halving < 2; ++halving) {
    int left = ((3 >> halving) + 1);
    int width_left = ((3 >> (halving + 1)) + 1);
    if (((3 >> (halving + 1)) < ((int)threadIdx.y)) && (((int)threadIdx.y) <= (3 >> halving))) {
      passed_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) - ((3 >> (halving + 1)) * 8)) - 8)] = total_local_ptr[0];
    }
    __syncthreads();
    if ((((int)threadIdx.y) + (3 >> (halving + 1))) < (3 >> halving)) {
      total_local_ptr[0] = (total_local_ptr[0] + passed_shared_ptr[((((int)threadIdx.y) * 8) + ((int)threadIdx.x))]);
    }
    __syncthreads();
  }
  if ((((int)threadIdx.y) == 0) && (((((int)blockIdx.x) * 2) + (((int)threadIdx.x) >> 2)) < 7)) {
    if (((int)blockIdx.y) < 3) {
      dw_ptr[(((((int)blockIdx.x) * 24) + (((int)threadIdx.x) * 3)) + ((int)blockIdx.y))] = total_local_ptr[0];
    }
    if (((int)blockIdx.y) == 3) {
      dbeta1_ptr[((((int)blockIdx.x) * 8) + ((int)threadIdx.x))] = total_local_ptr[0];
    }
    if (((int)blockIdx.y) == 4) {
      inverse_local_ptr[0] = rsqrtf((var1_ptr[((((int)blockIdx.x) * 8) + ((int)threadIdx.x))] + 0x1.4f8b588e368f1p-17f/*1.000000e-05*/));
      dgamma1_ptr[((((int)blockIdx.x) * 8) + ((int)threadIdx.x))] = (total_local_ptr[0] * inverse_local_ptr[0]);
    }
  }
}

extern "C" __global__ void __launch_bounds__(32, 32) main_kernel_4(float* __restrict__ dbeta1_ptr, float* __restrict__ dgamma1_ptr, float* __restrict__ dx_ptr, float* __restrict__ gamma1_ptr, float* __restrict__ mean1_ptr, float* __restrict__ var1_ptr, float* __restrict__ x_ptr, int n) {
  alignas(64) int pixels_local_ptr[1];
  alignas(64) int each_local_ptr[1];
  alignas(64) int first_local_ptr[1];
  alignas(64) int vector_local_ptr[1];
  alignas(64) float gamma_local_ptr[2];
  alignas(64) float var_local_ptr[2];
  alignas(64) float dgamma_local_ptr[2];
  alignas(64) float dbeta_local_ptr[2];
  alignas(64) float mean_local_ptr[2];
  alignas(64) float inverse_local_ptr[1];
  alignas(64) float scale_local_ptr[1];
  alignas(64) float share_local_ptr[1];
  alignas(64) float factor_local_ptr[6];
  alignas(64) float inverse_local_ptr_1[1];
  alignas(64) float scale_local_ptr_1[1];
  alignas(64) float share_local_ptr_1[1];
  alignas(64) int whole_local_ptr[1];
  alignas(64) int start_local_ptr[1];
  alignas(64) float loaded_local_ptr[2];
  alignas(64) float loaded_local_ptr_1[2];
  alignas(64) float loaded_local_ptr_2[2];
  alignas(64) float loaded_local_ptr_3[2];
  alignas(64) float loaded_local_ptr_4[2];
  alignas(64) float loaded_local_ptr_5[2];
  alignas(64) float loaded_local_ptr_6[2];
  alignas(64) float loaded_local_ptr_7[2];
  alignas(64) float made_local_ptr[2];
  alignas(64) float made_local_ptr_1[2];
  alignas(64) float made_local_ptr_2[2];
  alignas(64) float made_local_ptr_3[2];
  alignas(64) int pixel_local_ptr[1];
  alignas(64) float loaded_local_ptr_8[2];
  alignas(64) float loaded_local_ptr_9[2];
  alignas(64) float made_local_ptr_4[2];
  pixels_local_ptr[0] = (n * 64);
  each_local_ptr[0] = ((pixels_local_ptr[0] + 15) / 16);
  first_local_ptr[0] = min(((((int)blockIdx.x) >> 1) * each_local_ptr[0]), pixels_local_ptr[0]);
  vector_local_ptr[0] = (((((int)blockIdx.x) & 1) * 8) + ((int)threadIdx.x));
  each_local_ptr[0] = min((first_local_ptr[0] + each_local_ptr[0]), pixels_local_ptr[0]);
  if (vector_local_ptr[0] < 14) {
    *(float2*)(gamma_local_ptr + 0) = *(float2*)(gamma1_ptr + (vector_local_ptr[0] * 2));
    *(float2*)(var_local_ptr + 0) = *(float2*)(var1_ptr + (vector_local_ptr[0] * 2));
    *(float2*)(dgamma_local_ptr + 0) = *(float2*)(dgamma1_ptr + (vector_local_ptr[0] * 2));
    *(float2*)(dbeta_local_ptr + 0) = *(float2*)(dbeta1_ptr + (vector_local_ptr[0] * 2));
    *(float2*)(mean_local_ptr + 0) = *(float2*)(mean1_ptr + (vector_local_ptr[0] * 2));
    inverse_local_ptr[0] = rsqrtf((var_local_ptr[0] + 0x1.4f8b588e368f1p-17f/*1.000000e-05*/));
    scale_local_ptr[0] = (gamma_local_ptr[0] * inverse_local_ptr[0]);
    share_local_ptr[0] = __fdividef(scale_local_ptr[0], ((float)(n * 64)));
    inverse_local_ptr[0] = (0x0p+0f/*0.000000e+00*/ - ((share_local_ptr[0] * dgamma_local_ptr[0]) * inverse_local_ptr[0]));
    factor_local_ptr[0] = scale_local_ptr[0];
    factor_local_ptr[2] = inverse_local_ptr[0];
    factor_local_ptr[4] = ((0x0p+0f/*0.000000e+00*/ - (share_local_ptr[0] * dbeta_local_ptr[0])) - (inverse_local_ptr[0] * mean_local_ptr[0]));
    inverse_local_ptr_1[0] = rsqrtf((var_local_ptr[1] + 0x1.4f8b588e368f1p-17f/*1.000000e-05*/));
    scale_local_ptr_1[0] = (gamma_local_ptr[1] * inverse_local_ptr_1[0]);
    share_local_ptr_1[0] = __fdividef(scale_local_ptr_1[0], ((float)(n * 64)));
    inverse_local_ptr_1[0] = (0x0p+0f/*0.000000e+00*/ - ((share_local_ptr_1[0] * dgamma_local_ptr[1]) * inverse_local_ptr_1[0]));
    factor_local_ptr[1] = scale_local_ptr_1[0];
    factor_local_ptr[3] = inverse_local_ptr_1[0];
    factor_local_ptr[5] = ((0x0p+0f/*0.000000e+00*/ - (share_local_ptr_1[0] * dbeta_local_ptr[1])) - (inverse_local_ptr_1[0] * mean_local_ptr[1]));
    whole_local_ptr[0] = ((each_local_ptr[0] - first_local_ptr[0]) / 16);
    for (int turn = 0; turn < whole_local_ptr[0]; ++turn) {
      start_local_ptr[0] = (((turn * 16) + first_local_ptr[0]) + ((int)threadIdx.y));
      *(float2*)(loaded_local_ptr + 0) = *(float2*)(dx_ptr + ((start_local_ptr[0] * 28) + (vector_local_ptr[0] * 2)));
      *(float2*)(loaded_local_ptr_1 + 0) = *(float2*)(x_ptr + ((start_local_ptr[0] * 28) + (vector_local_ptr[0] * 2)));
      *(float2*)(loaded_local_ptr_2 + 0) = *(float2*)(dx_ptr + (((start_local_ptr[0] * 28) + (vector_local_ptr[0] * 2)) + 112));
      *(float2*)(loaded_local_ptr_3 + 0) = *(float2*)(x_ptr + (((start_local_ptr[0] * 28) + (vector_local_ptr[0] * 2)) + 112));
      *(float2*)(loaded_local_ptr_4 + 0) = *(float2*)(dx_ptr + (((start_local_ptr[0] * 28) + (vector_local_ptr[0] * 2)) + 224));
      *(float2*)(loaded_local_ptr_5 + 0) = *(float2*)(x_ptr + (((start_local_ptr[0] * 28) + (vector_local_ptr[0] * 2)) + 224));
      *(float2*)(loaded_local_ptr_6 + 0) = *(float2*)(dx_ptr + (((start_local_ptr[0] * 28) + (vector_local_ptr[0] * 2)) + 336));
      *(float2*)(loaded_local_ptr_7 + 0) = *(float2*)(x_ptr + (((start_local_ptr[0] * 28) + (vector_local_ptr[0] * 2)) + 336));
      made_local_ptr[0] = ((loaded_local_ptr[0] * factor_local_ptr[0]) + ((loaded_local_ptr_1[0] * factor_local_ptr[2]) + factor_local_ptr[4]));
      made_local_ptr[1] = ((loaded_local_ptr[1] * factor_local_ptr[1]) + ((loaded_local_ptr_1[1] * factor_local_ptr[3]) + factor_local_ptr[5]));
      *(float2*)(dx_ptr + ((start_local_ptr[0] * 28) + (vector_local_ptr[0] * 2))) = *(float2*)(made_local_ptr + 0);
      made_local_ptr_1[0] = ((loaded_local_ptr_2[0] * factor_local_ptr[0]) + ((loaded_local_ptr_3[0] * factor_local_ptr[2]) + factor_local_ptr[4]));
      made_local_ptr_1[1] = ((loaded_local_ptr_2[1] * factor_local_ptr[1]) + ((loaded_local_ptr_3[1] * factor_local_ptr[3]) + factor_local_ptr[5]));
      *(float2*)(dx_ptr + (((start_local_ptr[0] * 28) + (vector_local_ptr[0] * 2)) + 112)) = *(float2*)(made_local_ptr_1 + 0);
      made_local_ptr_2[0] = ((loaded_local_ptr_4[0] * factor_local_ptr[0]) + ((loaded_local_ptr_5[0] * factor_local_ptr[2]) + factor_local_ptr[4]));
      made_local_ptr_2[1] = ((loaded_local_ptr_4[1] * factor_local_ptr[1]) + ((loaded_local_ptr_5[1] * factor_local_ptr[3]) + factor_local_ptr[5]));
      *(float2*)(dx_ptr + (((start_local_ptr[0] * 28) + (vector_local_ptr[0] * 2)) + 224)) = *(float2*)(made_local_ptr_2 + 0);
      made_local_ptr_3[0] = ((loaded_local_ptr_6[0] * factor_local_ptr[0]) + ((loaded_local_ptr_7[0] * factor_local_ptr[2]) + factor_local_ptr[4]));
      made_local_ptr_3[1] = ((loaded_local_ptr_6[1] * factor_local_ptr[1]) + ((loaded_local_ptr_7[1] * factor_local_ptr[3]) + factor_local_ptr[5]));
      *(float2*)(dx_ptr + (((start_local_ptr[0] * 28) + (vector_local_ptr[0] * 2)) + 336)) = *(float2*)(made_local_ptr_3 + 0);
    }
    whole_local_ptr[0] = ((whole_local_ptr[0] * 16) + first_local_ptr[0]);
    for (int turn_1 = 0; turn_1 < (((each_local_ptr[0] + 3) - whole_local_ptr[0]) / 4); ++turn_1) {
      pixel_local_ptr[0] = (((turn_1 * 4) + whole_local_ptr[0]) + ((int)threadIdx.y));
      if (pixel_local_ptr[0] < each_local_ptr[0]) {
        *(float2*)(loaded_local_ptr_8 + 0) = *(float2*)(dx_ptr + ((pixel_local_ptr[0] * 28) + (vector_local_ptr[0] * 2)));
        *(float2*)(loaded_local_ptr_9 + 0) = *(float2*)(x_ptr + ((pixel_local_ptr[0] * 28) + (vector_local_ptr[0] * 2)));
        made_local_ptr_4[0] = ((loaded_local_ptr_8[0] * factor_local_ptr[0]) + ((loaded_local_ptr_9[0] * factor_local_ptr[2]) + factor_local_ptr[4]));
        made_local_ptr_4[1] = ((loaded_local_ptr_8[1] * factor_local_ptr[1]) + ((loaded_local_ptr_9[1] * factor_local_ptr[3]) + factor_local_ptr[5]));
        *(float2*)(dx_ptr + ((pixel_local_ptr[0] * 28) + (vector_local_ptr[0] * 2))) = *(float2*)(made_local_ptr_4 + 0);
      }
    }
  }
}
