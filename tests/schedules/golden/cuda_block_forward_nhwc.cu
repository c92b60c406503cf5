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

extern "C" __global__ void __launch_bounds__(32, 32) main_kernel(float* __restrict__ workspace_ptr, float* __restrict__ x_ptr, int n) {
  alignas(64) int pixels_local_ptr[1];
  alignas(64) int each_local_ptr[1];
  alignas(64) int first_local_ptr[1];
  alignas(64) int vector_local_ptr[1];
  alignas(64) float moment_local_ptr[6];
  alignas(64) float pivot_local_ptr[2];
  alignas(64) int count_local_ptr[1];
  alignas(64) float loaded_local_ptr[2];
  alignas(64) int whole_local_ptr[1];
  alignas(64) int start_local_ptr[1];
  alignas(64) float loaded_local_ptr_1[2];
  alignas(64) float loaded_local_ptr_2[2];
  alignas(64) float loaded_local_ptr_3[2];
  alignas(64) float loaded_local_ptr_4[2];
  alignas(64) float off_local_ptr[1];
  alignas(64) float off_local_ptr_1[1];
  alignas(64) float off_local_ptr_2[1];
  alignas(64) float off_local_ptr_3[1];
  alignas(64) float off_local_ptr_4[1];
  alignas(64) float off_local_ptr_5[1];
  alignas(64) float off_local_ptr_6[1];
  alignas(64) float off_local_ptr_7[1];
  alignas(64) int pixel_local_ptr[1];
  alignas(64) float loaded_local_ptr_5[2];
  alignas(64) float off_local_ptr_8[1];
  alignas(64) float off_local_ptr_9[1];
  __shared__ alignas(64) float pivots_shared_ptr[96];
  alignas(64) float common_local_ptr[2];
  alignas(64) float pixels_local_ptr_1[1];
  alignas(64) float apart_local_ptr[1];
  alignas(64) float first_local_ptr_1[1];
  alignas(64) float moved_local_ptr[1];
  alignas(64) float apart_local_ptr_1[1];
  alignas(64) float first_local_ptr_2[1];
  alignas(64) float moved_local_ptr_1[1];
  pixels_local_ptr[0] = (n * 81);
  each_local_ptr[0] = ((pixels_local_ptr[0] + 15) / 16);
  first_local_ptr[0] = min(((((int)blockIdx.x) >> 1) * each_local_ptr[0]), pixels_local_ptr[0]);
  vector_local_ptr[0] = (((((int)blockIdx.x) & 1) * 8) + ((int)threadIdx.x));
  each_local_ptr[0] = min((first_local_ptr[0] + each_local_ptr[0]), pixels_local_ptr[0]);
  #pragma unroll
  for (int index = 0; index < 6; ++index) {
    moment_local_ptr[index] = 0x0p+0f/*0.000000e+00*/;
  }
  #pragma unroll
  for (int index_1 = 0; index_1 < 2; ++index_1) {
    pivot_local_ptr[index_1] = 0x0p+0f/*0.000000e+00*/;
  }
  count_local_ptr[0] = 0;
  if (vector_local_ptr[0] < 14) {
    if ((first_local_ptr[0] + ((int)threadIdx.y)) < each_local_ptr[0]) {
      *(float2*)(loaded_local_ptr + 0) = *(float2*)(x_ptr + (((first_local_ptr[0] * 28) + (((int)threadIdx.y) * 28)) + (vector_local_ptr[0] * 2)));
      float condval;
      if (count_local_ptr[0] == 0) {
        condval = loaded_local_ptr[0];
      } else {
        condval = pivot_local_ptr[0];
      }
      pivot_local_ptr[0] = condval;
      float condval_1;
      if (count_local_ptr[0] == 0) {
        condval_1 = loaded_local_ptr[1];
      } else {
        condval_1 = pivot_local_ptr[1];
      }
      pivot_local_ptr[1] = condval_1;
    }
    whole_local_ptr[0] = ((each_local_ptr[0] - first_local_ptr[0]) / 16);
    for (int turn = 0; turn < whole_local_ptr[0]; ++turn) {
      start_local_ptr[0] = (((turn * 16) + first_local_ptr[0]) + ((int)threadIdx.y));
      *(float2*)(loaded_local_ptr_1 + 0) = *(float2*)(x_ptr + ((start_local_ptr[0] * 28) + (vector_local_ptr[0] * 2)));
      *(float2*)(loaded_local_ptr_2 + 0) = *(float2*)(x_ptr + (((start_local_ptr[0] * 28) + (vector_local_ptr[0] * 2)) + 112));
      *(float2*)(loaded_local_ptr_3 + 0) = *(float2*)(x_ptr + (((start_local_ptr[0] * 28) + (vector_local_ptr[0] * 2)) + 224));
      *(float2*)(loaded_local_ptr_4 + 0) = *(float2*)(x_ptr + (((start_local_ptr[0] * 28) + (vector_local_ptr[0] * 2)) + 336));
      off_local_ptr[0] = (loaded_local_ptr_1[0] - pivot_local_ptr[0]);
      moment_local_ptr[0] = (moment_local_ptr[0] + off_local_ptr[0]);
      moment_local_ptr[2] = (moment_local_ptr[2] + (off_local_ptr[0] * off_local_ptr[0]));
      off_local_ptr_1[0] = (loaded_local_ptr_1[1] - pivot_local_ptr[1]);
      moment_local_ptr[1] = (moment_local_ptr[1] + off_local_ptr_1[0]);
      moment_local_ptr[3] = (moment_local_ptr[3] + (off_local_ptr_1[0] * off_local_ptr_1[0]));
      count_local_ptr[0] = (count_local_ptr[0] + 1);
      off_local_ptr_2[0] = (loaded_local_ptr_2[0] - pivot_local_ptr[0]);
      moment_local_ptr[0] = (moment_local_ptr[0] + off_local_ptr_2[0]);
      moment_local_ptr[2] = (moment_local_ptr[2] + (off_local_ptr_2[0] * off_local_ptr_2[0]));
      off_local_ptr_3[0] = (loaded_local_ptr_2[1] - pivot_local_ptr[1]);
      moment_local_ptr[1] = (moment_local_ptr[1] + off_local_ptr_3[0]);
      moment_local_ptr[3] = (moment_local_ptr[3] + (off_local_ptr_3[0] * off_local_ptr_3[0]));
      count_local_ptr[0] = (count_local_ptr[0] + 1);
      off_local_ptr_4[0] = (loaded_local_ptr_3[0] - pivot_local_ptr[0]);
      moment_local_ptr[0] = (moment_local_ptr[0] + off_local_ptr_4[0]);
      moment_local_ptr[2] = (moment_local_ptr[2] + (off_local_ptr_4[0] * off_local_ptr_4[0]));
      off_local_ptr_5[0] = (loaded_local_ptr_3[1] - pivot_local_ptr[1]);
      moment_local_ptr[1] = (moment_local_ptr[1] + off_local_ptr_5[0]);
      moment_local_ptr[3] = (moment_local_ptr[3] + (off_local_ptr_5[0] * off_local_ptr_5[0]));
      count_local_ptr[0] = (count_local_ptr[0] + 1);
      off_local_ptr_6[0] = (loaded_local_ptr_4[0] - pivot_local_ptr[0]);
      moment_local_ptr[0] = (moment_local_ptr[0] + off_local_ptr_6[0]);
      moment_local_ptr[2] = (moment_local_ptr[2] + (off_local_ptr_6[0] * off_local_ptr_6[0]));
      off_local_ptr_7[0] = (loaded_local_ptr_4[1] - pivot_local_ptr[1]);
      moment_local_ptr[1] = (moment_local_ptr[1] + off_local_ptr_7[0]);
      moment_local_ptr[3] = (moment_local_ptr[3] + (off_local_ptr_7[0] * off_local_ptr_7[0]));
      count_local_ptr[0] = (count_local_ptr[0] + 1);
    }
    whole_local_ptr[0] = ((whole_local_ptr[0] * 16) + first_local_ptr[0]);
    for (int turn_1 = 0; turn_1 < (((each_local_ptr[0] + 3) - whole_local_ptr[0]) / 4); ++turn_1) {
      pixel_local_ptr[0] = (((turn_1 * 4) + whole_local_ptr[0]) + ((int)threadIdx.y));
      if (pixel_local_ptr[0] < each_local_ptr[0]) {
        *(float2*)(loaded_local_ptr_5 + 0) = *(float2*)(x_ptr + ((pixel_local_ptr[0] * 28) + (vector_local_ptr[0] * 2)));
        off_local_ptr_8[0] = (loaded_local_ptr_5[0] - pivot_local_ptr[0]);
        moment_local_ptr[0] = (moment_local_ptr[0] + off_local_ptr_8[0]);
        moment_local_ptr[2] = (moment_local_ptr[2] + (off_local_ptr_8[0] * off_local_ptr_8[0]));
        off_local_ptr_9[0] = (loaded_local_ptr_5[1] - pivot_local_ptr[1]);
        moment_local_ptr[1] = (moment_local_ptr[1] + off_local_ptr_9[0]);
        moment_local_ptr[3] = (moment_local_ptr[3] + (off_local_ptr_9[0] * off_local_ptr_9[0]));
        count_local_ptr[0] = (count_local_ptr[0] + 1);
      }
    }
  }
  if (((int)threadIdx.y) == 0) {
    *(float2*)(pivots_shared_ptr + (((int)threadIdx.x) * 2)) = *(float2*)(pivot_local_ptr + 0);
  }
  __syncthreads();
  *(float2*)(common_local_ptr + 0) = *(float2*)(pivots_shared_ptr + (((int)threadIdx.x) * 2));
  pixels_local_ptr_1[0] = ((float)count_local_ptr[0]);
  apart_local_ptr[0] = (pivot_local_ptr[0] - common_local_ptr[0]);
  first_local_ptr_1[0] = moment_local_ptr[0];
  moved_local_ptr[0] = (pixels_local_ptr_1[0] * apart_local_ptr[0]);
  moment_local_ptr[0] = (first_local_ptr_1[0] + moved_local_ptr[0]);
  moment_local_ptr[2] = (moment_local_ptr[2] + (apart_local_ptr[0] * ((first_local_ptr_1[0] + first_local_ptr_1[0]) + moved_local_ptr[0])));
  moment_local_ptr[4] = pixels_local_ptr_1[0];
  apart_local_ptr_1[0] = (pivot_local_ptr[1] - common_local_ptr[1]);
  first_local_ptr_2[0] = moment_local_ptr[1];
  moved_local_ptr_1[0] = (pixels_local_ptr_1[0] * apart_local_ptr_1[0]);
  moment_local_ptr[1] = (first_local_ptr_2[0] + moved_local_ptr_1[0]);
  moment_local_ptr[3] = (moment_local_ptr[3] + (apart_local_ptr_1[0] * ((first_local_ptr_2[0] + first_local_ptr_2[0]) + moved_local_ptr_1[0])));
  moment_local_ptr[5] = pixels_local_ptr_1[0];
  __syncthreads();
  for (int halving = 0; halving < 2; ++halving) {
    int left = ((3 >> halving) + 1);
    int width_left = ((3 >> (halving + 1)) + 1);
    if (((3 >> (halving + 1)) < ((int)threadIdx.y)) && (((int)threadIdx.y) <= (3 >> halving))) {
      pivots_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) - ((3 >> (halving + 1)) * 8)) - 8)] = moment_local_ptr[0];
      pivots_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 8) - ((3 >> (halving + 1)) * 8))] = moment_local_ptr[1];
      pivots_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 24) - ((3 >> (halving + 1)) * 8))] = moment_local_ptr[2];
      pivots_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 40) - ((3 >> (halving + 1)) * 8))] = moment_local_ptr[3];
      pivots_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 56) - ((3 >> (halving + 1)) * 8))] = moment_local_ptr[4];
      pivots_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 72) - ((3 >> (halving + 1)) * 8))] = moment_local_ptr[5];
    }
    __syncthreads();
    if ((((int)threadIdx.y) + (3 >> (halving + 1))) < (3 >> halving)) {
      moment_local_ptr[0] = (moment_local_ptr[0] + pivots_shared_ptr[((((int)threadIdx.y) * 8) + ((int)threadIdx.x))]);
      moment_local_ptr[1] = (moment_local_ptr[1] + pivots_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 16)]);
      moment_local_ptr[2] = (moment_local_ptr[2] + pivots_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 32)]);
      moment_local_ptr[3] = (moment_local_ptr[3] + pivots_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 48)]);
      moment_local_ptr[4] = (moment_local_ptr[4] + pivots_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 64)]);
      moment_local_ptr[5] = (moment_local_ptr[5] + pivots_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 80)]);
    }
    __syncthreads();
  }
  if ((((int)threadIdx.y) == 0) && (vector_local_ptr[0] < 14)) {
    *(float2*)(workspace_ptr + (((((int)blockIdx.x) >> 1) * 112) + (vector_local_ptr[0] * 2))) = *(float2*)(moment_local_ptr + 0);
    *(float2*)(workspace_ptr + ((((((int)blockIdx.x) >> 1) * 112) + (vector_local_ptr[0] * 2)) + 28)) = *(float2*)(moment_local_ptr + 2);
    *(float2*)(workspace_ptr + ((((((int)blockIdx.x) >> 1) * 112) + (vector_local_ptr[0] * 2)) + 56)) = *(float2*)(moment_local_ptr + 4);
    *(float2*)(workspace_ptr + ((((((int)blockIdx.x) >> 1) * 112) + (vector_local_ptr[0] * 2)) + 84)) = *(float2*)(common_local_ptr + 0);
  }
}

extern "C" __global__ void __launch_bounds__(32) main_kernel_1(float* __restrict__ mean1_ptr, float* __restrict__ var1_ptr, float* __restrict__ workspace_ptr, int n) {
  alignas(64) float total_local_ptr[2];
  alignas(64) float apart_local_ptr[1];
  alignas(64) float first_local_ptr[1];
  alignas(64) float count_local_ptr[1];
  __shared__ alignas(64) float passed_shared_ptr[32];
  alignas(64) float share_local_ptr[1];
  alignas(64) float off_local_ptr[1];
  #pragma unroll
  for (int index = 0; index < 2; ++index) {
    total_local_ptr[index] = 0x0p+0f/*0.000000e+00*/;
  }
  if (((((int)blockIdx.x) * 2) + (((int)threadIdx.x) >> 2)) < 7) {
    for (int turn = 0; turn < 4; ++turn) {
      apart_local_ptr[0] = (workspace_ptr[(((((turn * 448) + (((int)threadIdx.y) * 112)) + (((int)blockIdx.x) * 8)) + ((int)threadIdx.x)) + 84)] - workspace_ptr[(((((int)blockIdx.x) * 8) + ((int)threadIdx.x)) + 84)]);
      first_local_ptr[0] = workspace_ptr[((((turn * 448) + (((int)threadIdx.y) * 112)) + (((int)blockIdx.x) * 8)) + ((int)threadIdx.x))];
      count_local_ptr[0] = workspace_ptr[(((((turn * 448) + (((int)threadIdx.y) * 112)) + (((int)blockIdx.x) * 8)) + ((int)threadIdx.x)) + 56)];
      count_local_ptr[0] = (count_local_ptr[0] * apart_local_ptr[0]);
      total_local_ptr[0] = (total_local_ptr[0] + (first_local_ptr[0] + count_local_ptr[0]));
      total_local_ptr[1] = (total_local_ptr[1] + (workspace_ptr[(((((turn * 448) + (((int)threadIdx.y) * 112)) + (((int)blockIdx.x) * 8)) + ((int)threadIdx.x)) + 28)] + (apart_local_ptr[0] * ((first_local_ptr[0] + first_local_ptr[0]) + count_local_ptr[0]))));
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
    share_local_ptr[0] = __fdividef(0x1p+0f/*1.000000e+00*/, ((float)(n * 81)));
    off_local_ptr[0] = (total_local_ptr[0] * share_local_ptr[0]);
    mean1_ptr[((((int)blockIdx.x) * 8) + ((int)threadIdx.x))] = (workspace_ptr[(((((int)blockIdx.x) * 8) + ((int)threadIdx.x)) + 84)] + off_local_ptr[0]);
    off_local_ptr[0] = ((total_local_ptr[1] - (total_local_ptr[0] * off_local_ptr[0])) * share_local_ptr[0]);
    float condval;
    if (off_local_ptr[0] < 0x0p+0f/*0.000000e+00*/) {
      condval = 0x0p+0f/*0.000000e+00*/;
    } else {
      condval = off_local_ptr[0];
    }
    var1_ptr[((((int)blockIdx.x) * 8) + ((int)threadIdx.x))] = condval;
  }
}

extern "C" __global__ void __launch_bounds__(32, 1) main_kernel_2(float* __restrict__ beta1_ptr, float* __restrict__ gamma1_ptr, float* __restrict__ mean1_ptr, float* __restrict__ var1_ptr, float* __restrict__ w_ptr, float* __restrict__ workspace_ptr, float* __restrict__ x_ptr, float* __restrict__ y_ptr, int n) {
  alignas(64) int vector_local_ptr[1];
  alignas(64) int read_from_local_ptr[1];
  __shared__ alignas(64) float weights_shared_ptr[80];
  __shared__ alignas(64) float2 table_shared_ptr[16];
  alignas(64) float gamma_local_ptr[2];
  alignas(64) float var_local_ptr[2];
  alignas(64) float beta_local_ptr[2];
  alignas(64) float mean_local_ptr[2];
  alignas(64) float inverse_local_ptr[1];
  alignas(64) float factor_local_ptr[4];
  alignas(64) float inverse_local_ptr_1[1];
  alignas(64) float moment_local_ptr[6];
  alignas(64) float pivot_local_ptr[2];
  alignas(64) int count_local_ptr[1];
  alignas(64) int tiles_local_ptr[1];
  alignas(64) int each_local_ptr[1];
  alignas(64) int start_local_ptr[1];
  alignas(64) int left_local_ptr[1];
  alignas(64) int patch_left_local_ptr[1];
  __shared__ alignas(64) float patch_shared_ptr[160];
  alignas(64) int number_local_ptr[1];
  alignas(64) int image_local_ptr[1];
  alignas(64) int top_local_ptr[1];
  alignas(64) float factor_local_ptr_1[4];
  alignas(64) int pixel_local_ptr[2];
  alignas(64) float staged_local_ptr[2];
  alignas(64) int pixel_local_ptr_1[2];
  alignas(64) float staged_local_ptr_1[2];
  alignas(64) int pixel_local_ptr_2[2];
  alignas(64) float staged_local_ptr_2[2];
  alignas(64) float z_local_ptr[1];
  alignas(64) float made_local_ptr[2];
  alignas(64) float z_local_ptr_1[1];
  alignas(64) float z_local_ptr_2[1];
  alignas(64) float made_local_ptr_1[2];
  alignas(64) float z_local_ptr_3[1];
  alignas(64) float z_local_ptr_4[1];
  alignas(64) float made_local_ptr_2[2];
  alignas(64) float z_local_ptr_5[1];
  alignas(64) float sum_local_ptr[2];
  alignas(64) float value_local_ptr[4];
  alignas(64) float weight_local_ptr[4];
  alignas(64) float off_local_ptr[1];
  alignas(64) float off_local_ptr_1[1];
  alignas(64) float common_local_ptr[2];
  alignas(64) float pixels_local_ptr[1];
  alignas(64) float apart_local_ptr[1];
  alignas(64) float first_local_ptr[1];
  alignas(64) float moved_local_ptr[1];
  alignas(64) float apart_local_ptr_1[1];
  alignas(64) float first_local_ptr_1[1];
  alignas(64) float moved_local_ptr_1[1];
  vector_local_ptr[0] = (((((int)blockIdx.x) & 1) * 8) + ((int)threadIdx.x));
  read_from_local_ptr[0] = ((((int)threadIdx.y) * 8) + ((int)threadIdx.x));
  #pragma unroll
  for (int turn = 0; turn < 2; ++turn) {
    if (((((((int)blockIdx.x) & 1) * 4) + (turn * 2)) + (((int)threadIdx.y) >> 1)) < 7) {
      weights_shared_ptr[(((((((int)threadIdx.x) & 3) * 20) + (turn * 8)) + (((int)threadIdx.y) * 2)) + (((int)threadIdx.x) >> 2))] = w_ptr[(((((((int)blockIdx.x) & 1) * 64) + (turn * 32)) + (((int)threadIdx.y) * 8)) + ((int)threadIdx.x))];
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
    inverse_local_ptr_1[0] = rsqrtf((var_local_ptr[1] + 0x1.4f8b588e368f1p-17f/*1.000000e-05*/));
    inverse_local_ptr_1[0] = (gamma_local_ptr[1] * inverse_local_ptr_1[0]);
    factor_local_ptr[1] = inverse_local_ptr_1[0];
    factor_local_ptr[3] = (beta_local_ptr[1] - (mean_local_ptr[1] * inverse_local_ptr_1[0]));
    table_shared_ptr[((int)threadIdx.x)] = *(float2*)(factor_local_ptr + 0);
    table_shared_ptr[(((int)threadIdx.x) + 8)] = *(float2*)(factor_local_ptr + 2);
  }
  __syncthreads();
  #pragma unroll
  for (int index = 0; index < 6; ++index) {
    moment_local_ptr[index] = 0x0p+0f/*0.000000e+00*/;
  }
  #pragma unroll
  for (int index_1 = 0; index_1 < 2; ++index_1) {
    pivot_local_ptr[index_1] = 0x0p+0f/*0.000000e+00*/;
  }
  count_local_ptr[0] = 0;
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
    number_local_ptr[0] = number_local_ptr[0];
    top_local_ptr[0] = (((image_local_ptr[0] * 64) + (top_local_ptr[0] * 8)) + left_local_ptr[0]);
    if (vector_local_ptr[0] < 14) {
      *(float2*)(factor_local_ptr_1 + 0) = table_shared_ptr[((int)threadIdx.x)];
      *(float2*)(factor_local_ptr_1 + 2) = table_shared_ptr[(((int)threadIdx.x) + 8)];
      pixel_local_ptr[0] = number_local_ptr[0];
      pixel_local_ptr[1] = (patch_left_local_ptr[0] + ((int)threadIdx.y));
      *(float2*)(staged_local_ptr + 0) = *(float2*)(x_ptr + ((((image_local_ptr[0] * 2268) + (pixel_local_ptr[0] * 252)) + (pixel_local_ptr[1] * 28)) + (vector_local_ptr[0] * 2)));
      pixel_local_ptr_1[0] = (((((int)threadIdx.y) + 4) / 5) + number_local_ptr[0]);
      pixel_local_ptr_1[1] = (patch_left_local_ptr[0] + ((((int)threadIdx.y) + 4) % 5));
      *(float2*)(staged_local_ptr_1 + 0) = *(float2*)(x_ptr + ((((image_local_ptr[0] * 2268) + (pixel_local_ptr_1[0] * 252)) + (pixel_local_ptr_1[1] * 28)) + (vector_local_ptr[0] * 2)));
      if (((int)threadIdx.y) < 2) {
        pixel_local_ptr_2[0] = (number_local_ptr[0] + 1);
        pixel_local_ptr_2[1] = ((patch_left_local_ptr[0] + ((int)threadIdx.y)) + 3);
        *(float2*)(staged_local_ptr_2 + 0) = *(float2*)(x_ptr + ((((image_local_ptr[0] * 2268) + (pixel_local_ptr_2[0] * 252)) + (pixel_local_ptr_2[1] * 28)) + (vector_local_ptr[0] * 2)));
      }
      z_local_ptr[0] = ((staged_local_ptr[0] * factor_local_ptr_1[0]) + factor_local_ptr_1[2]);
      float condval;
      if (z_local_ptr[0] < 0x0p+0f/*0.000000e+00*/) {
        condval = 0x0p+0f/*0.000000e+00*/;
      } else {
        condval = z_local_ptr[0];
      }
      z_local_ptr[0] = condval;
      float condval_1;
      if (0x1.8p+2f/*6.000000e+00*/ < z_local_ptr[0]) {
        condval_1 = 0x1.8p+2f/*6.000000e+00*/;
      } else {
        condval_1 = z_local_ptr[0];
      }
      made_local_ptr[0] = condval_1;
      z_local_ptr_1[0] = ((staged_local_ptr[1] * factor_local_ptr_1[1]) + factor_local_ptr_1[3]);
      float condval_2;
      if (z_local_ptr_1[0] < 0x0p+0f/*0.000000e+00*/) {
        condval_2 = 0x0p+0f/*0.000000e+00*/;
      } else {
        condval_2 = z_local_ptr_1[0];
      }
      z_local_ptr_1[0] = condval_2;
      float condval_3;
      if (0x1.8p+2f/*6.000000e+00*/ < z_local_ptr_1[0]) {
        condval_3 = 0x1.8p+2f/*6.000000e+00*/;
      } else {
        condval_3 = z_local_ptr_1[0];
      }
      made_local_ptr[1] = condval_3;
      *(float2*)(patch_shared_ptr + ((((int)threadIdx.y) * 16) + (((int)threadIdx.x) * 2))) = *(float2*)(made_local_ptr + 0);
      z_local_ptr_2[0] = ((staged_local_ptr_1[0] * factor_local_ptr_1[0]) + factor_local_ptr_1[2]);
      float condval_4;
      if (z_local_ptr_2[0] < 0x0p+0f/*0.000000e+00*/) {
        condval_4 = 0x0p+0f/*0.000000e+00*/;
      } else {
        condval_4 = z_local_ptr_2[0];
      }
      z_local_ptr_2[0] = condval_4;
      float condval_5;
      if (0x1.8p+2f/*6.000000e+00*/ < z_local_ptr_2[0]) {
        condval_5 = 0x1.8p+2f/*6.000000e+00*/;
      } else {
        condval_5 = z_local_ptr_2[0];
      }
      made_local_ptr_1[0] = condval_5;
      z_local_ptr_3[0] = ((staged_local_ptr_1[1] * factor_local_ptr_1[1]) + factor_local_ptr_1[3]);
      float condval_6;
      if (z_local_ptr_3[0] < 0x0p+0f/*0.000000e+00*/) {
        condval_6 = 0x0p+0f/*0.000000e+00*/;
      } else {
        condval_6 = z_local_ptr_3[0];
      }
      z_local_ptr_3[0] = condval_6;
      float condval_7;
      if (0x1.8p+2f/*6.000000e+00*/ < z_local_ptr_3[0]) {
        condval_7 = 0x1.8p+2f/*6.000000e+00*/;
      } else {
        condval_7 = z_local_ptr_3[0];
      }
      made_local_ptr_1[1] = condval_7;
      *(float2*)(patch_shared_ptr + (((((int)threadIdx.y) * 16) + (((int)threadIdx.x) * 2)) + 64)) = *(float2*)(made_local_ptr_1 + 0);
      if (((int)threadIdx.y) < 2) {
        z_local_ptr_4[0] = ((staged_local_ptr_2[0] * factor_local_ptr_1[0]) + factor_local_ptr_1[2]);
        float condval_8;
        if (z_local_ptr_4[0] < 0x0p+0f/*0.000000e+00*/) {
          condval_8 = 0x0p+0f/*0.000000e+00*/;
        } else {
          condval_8 = z_local_ptr_4[0];
        }
        z_local_ptr_4[0] = condval_8;
        float condval_9;
        if (0x1.8p+2f/*6.000000e+00*/ < z_local_ptr_4[0]) {
          condval_9 = 0x1.8p+2f/*6.000000e+00*/;
        } else {
          condval_9 = z_local_ptr_4[0];
        }
        made_local_ptr_2[0] = condval_9;
        z_local_ptr_5[0] = ((staged_local_ptr_2[1] * factor_local_ptr_1[1]) + factor_local_ptr_1[3]);
        float condval_10;
        if (z_local_ptr_5[0] < 0x0p+0f/*0.000000e+00*/) {
          condval_10 = 0x0p+0f/*0.000000e+00*/;
        } else {
          condval_10 = z_local_ptr_5[0];
        }
        z_local_ptr_5[0] = condval_10;
        float condval_11;
        if (0x1.8p+2f/*6.000000e+00*/ < z_local_ptr_5[0]) {
          condval_11 = 0x1.8p+2f/*6.000000e+00*/;
        } else {
          condval_11 = z_local_ptr_5[0];
        }
        made_local_ptr_2[1] = condval_11;
        *(float2*)(patch_shared_ptr + (((((int)threadIdx.y) * 16) + (((int)threadIdx.x) * 2)) + 128)) = *(float2*)(made_local_ptr_2 + 0);
      }
    }
    __syncthreads();
    if (vector_local_ptr[0] < 14) {
      #pragma unroll
      for (int index_2 = 0; index_2 < 2; ++index_2) {
        sum_local_ptr[index_2] = 0x0p+0f/*0.000000e+00*/;
      }
      *(float2*)(value_local_ptr + 0) = *(float2*)(patch_shared_ptr + (read_from_local_ptr[0] * 2));
      *(float2*)(value_local_ptr + 2) = *(float2*)(patch_shared_ptr + ((read_from_local_ptr[0] * 2) + 16));
      *(float2*)(weight_local_ptr + 0) = *(float2*)(weights_shared_ptr + (((int)threadIdx.x) * 2));
      *(float2*)(weight_local_ptr + 2) = *(float2*)(weights_shared_ptr + ((((int)threadIdx.x) * 2) + 20));
      sum_local_ptr[0] = (sum_local_ptr[0] + (value_local_ptr[0] * weight_local_ptr[0]));
      sum_local_ptr[1] = (sum_local_ptr[1] + (value_local_ptr[1] * weight_local_ptr[1]));
      sum_local_ptr[0] = (sum_local_ptr[0] + (value_local_ptr[2] * weight_local_ptr[2]));
      sum_local_ptr[1] = (sum_local_ptr[1] + (value_local_ptr[3] * weight_local_ptr[3]));
      *(float2*)(value_local_ptr + 0) = *(float2*)(patch_shared_ptr + ((read_from_local_ptr[0] * 2) + 80));
      *(float2*)(value_local_ptr + 2) = *(float2*)(patch_shared_ptr + ((read_from_local_ptr[0] * 2) + 96));
      *(float2*)(weight_local_ptr + 0) = *(float2*)(weights_shared_ptr + ((((int)threadIdx.x) * 2) + 40));
      *(float2*)(weight_local_ptr + 2) = *(float2*)(weights_shared_ptr + ((((int)threadIdx.x) * 2) + 60));
      sum_local_ptr[0] = (sum_local_ptr[0] + (value_local_ptr[0] * weight_local_ptr[0]));
      sum_local_ptr[1] = (sum_local_ptr[1] + (value_local_ptr[1] * weight_local_ptr[1]));
      sum_local_ptr[0] = (sum_local_ptr[0] + (value_local_ptr[2] * weight_local_ptr[2]));
      sum_local_ptr[1] = (sum_local_ptr[1] + (value_local_ptr[3] * weight_local_ptr[3]));
      *(float2*)(y_ptr + ((top_local_ptr[0] * 28) + (vector_local_ptr[0] * 2))) = *(float2*)(sum_local_ptr + 0);
      float condval_12;
      if (count_local_ptr[0] == 0) {
        condval_12 = sum_local_ptr[0];
      } else {
        condval_12 = pivot_local_ptr[0];
      }
      pivot_local_ptr[0] = condval_12;
      float condval_13;
      if (count_local_ptr[0] == 0) {
        condval_13 = sum_local_ptr[1];
      } else {
        condval_13 = pivot_local_ptr[1];
      }
      pivot_local_ptr[1] = condval_13;
      off_local_ptr[0] = (sum_local_ptr[0] - pivot_local_ptr[0]);
      moment_local_ptr[0] = (moment_local_ptr[0] + off_local_ptr[0]);
      moment_local_ptr[2] = (moment_local_ptr[2] + (off_local_ptr[0] * off_local_ptr[0]));
      off_local_ptr_1[0] = (sum_local_ptr[1] - pivot_local_ptr[1]);
      moment_local_ptr[1] = (moment_local_ptr[1] + off_local_ptr_1[0]);
      moment_local_ptr[3] = (moment_local_ptr[3] + (off_local_ptr_1[0] * off_local_ptr_1[0]));
      count_local_ptr[0] = (count_local_ptr[0] + 1);
    }
    __syncthreads();
  }
  if (((int)threadIdx.y) == 0) {
    table_shared_ptr[((int)threadIdx.x)] = *(float2*)(pivot_local_ptr + 0);
  }
  __syncthreads();
  *(float2*)(common_local_ptr + 0) = table_shared_ptr[((int)threadIdx.x)];
  pixels_local_ptr[0] = ((float)count_local_ptr[0]);
  apart_local_ptr[0] = (pivot_local_ptr[0] - common_local_ptr[0]);
  first_local_ptr[0] = moment_local_ptr[0];
  moved_local_ptr[0] = (pixels_local_ptr[0] * apart_local_ptr[0]);
  moment_local_ptr[0] = (first_local_ptr[0] + moved_local_ptr[0]);
  moment_local_ptr[2] = (moment_local_ptr[2] + (apart_local_ptr[0] * ((first_local_ptr[0] + first_local_ptr[0]) + moved_local_ptr[0])));
  moment_local_ptr[4] = pixels_local_ptr[0];
  apart_local_ptr_1[0] = (pivot_local_ptr[1] - common_local_ptr[1]);
  first_local_ptr_1[0] = moment_local_ptr[1];
  moved_local_ptr_1[0] = (pixels_local_ptr[0] * apart_local_ptr_1[0]);
  moment_local_ptr[1] = (first_local_ptr_1[0] + moved_local_ptr_1[0]);
  moment_local_ptr[3] = (moment_local_ptr[3] + (apart_local_ptr_1[0] * ((first_local_ptr_1[0] + first_local_ptr_1[0]) + moved_local_ptr_1[0])));
  moment_local_ptr[5] = pixels_local_ptr[0];
  for (int halving = 0; halving < 2; ++halving) {
    int left = ((3 >> halving) + 1);
    int width_left = ((3 >> (halving + 1)) + 1);
    if (((3 >> (halving + 1)) < ((int)threadIdx.y)) && (((int)threadIdx.y) <= (3 >> halving))) {
      patch_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) - ((3 >> (halving + 1)) * 8)) - 8)] = moment_local_ptr[0];
      patch_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 8) - ((3 >> (halving + 1)) * 8))] = moment_local_ptr[1];
      patch_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 24) - ((3 >> (halving + 1)) * 8))] = moment_local_ptr[2];
      patch_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 40) - ((3 >> (halving + 1)) * 8))] = moment_local_ptr[3];
      patch_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 56) - ((3 >> (halving + 1)) * 8))] = moment_local_ptr[4];
      patch_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 72) - ((3 >> (halving + 1)) * 8))] = moment_local_ptr[5];
    }
    __syncthreads();
    if ((((int)threadIdx.y) + (3 >> (halving + 1))) < (3 >> halving)) {
      moment_local_ptr[0] = (moment_local_ptr[0] + patch_shared_ptr[((((int)threadIdx.y) * 8) + ((int)threadIdx.x))]);
      moment_local_ptr[1] = (moment_local_ptr[1] + patch_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 16)]);
      moment_local_ptr[2] = (moment_local_ptr[2] + patch_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 32)]);
      moment_local_ptr[3] = (moment_local_ptr[3] + patch_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 48)]);
      moment_local_ptr[4] = (moment_local_ptr[4] + patch_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 64)]);
      moment_local_ptr[5] = (moment_local_ptr[5] + patch_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 80)]);
    }
    __syncthreads();
  }
  if ((((int)threadIdx.y) == 0) && (vector_local_ptr[0] < 14)) {
    *(float2*)(workspace_ptr + (((((int)blockIdx.x) >> 1) * 112) + (vector_local_ptr[0] * 2))) = *(float2*)(moment_local_ptr + 0);
    *(float2*)(workspace_ptr + ((((((int)blockIdx.x) >> 1) * 112) + (vector_local_ptr[0] * 2)) + 28)) = *(float2*)(moment_local_ptr + 2);
    *(float2*)(workspace_ptr + ((((((int)blockIdx.x) >> 1) * 112) + (vector_local_ptr[0] * 2)) + 56)) = *(float2*)(moment_local_ptr + 4);
    *(float2*)(workspace_ptr + ((((((int)blockIdx.x) >> 1) * 112) + (vector_local_ptr[0] * 2)) + 84)) = *(float2*)(common_local_ptr + 0);
  }
}

extern "C" __global__ void __launch_bounds__(32) main_kernel_3(float* __restrict__ mean2_ptr, float* __restrict__ var2_ptr, float* __restrict__ workspace_ptr, int n) {
  alignas(64) float total_local_ptr[2];
  alignas(64) float apart_local_ptr[1];
  alignas(64) float first_local_ptr[1];
  alignas(64) float count_local_ptr[1];
  __shared__ alignas(64) float passed_shared_ptr[32];
  alignas(64) float share_local_ptr[1];
  alignas(64) float off_local_ptr[1];
  #pragma unroll
  for (int index = 0; index < 2; ++index) {
    total_local_ptr[index] = 0x0p+0f/*0.000000e+00*/;
  }
  if (((((int)blockIdx.x) * 2) + (((int)threadIdx.x) >> 2)) < 7) {
    for (int turn = 0; turn < 4; ++turn) {
      apart_local_ptr[0] = (workspace_ptr[(((((turn * 448) + (((int)threadIdx.y) * 112)) + (((int)blockIdx.x) * 8)) + ((int)threadIdx.x)) + 84)] - workspace_ptr[(((((int)blockIdx.x) * 8) + ((int)threadIdx.x)) + 84)]);
      first_local_ptr[0] = workspace_ptr[((((turn * 448) + (((int)threadIdx.y) * 112)) + (((int)blockIdx.x) * 8)) + ((int)threadIdx.x))];
      count_local_ptr[0] = workspace_ptr[(((((turn * 448) + (((int)threadIdx.y) * 112)) + (((int)blockIdx.x) * 8)) + ((int)threadIdx.x)) + 56)];
      count_local_ptr[0] = (count_local_ptr[0] * apart_local_ptr[0]);
      total_local_ptr[0] = (total_local_ptr[0] + (first_local_ptr[0] + count_local_ptr[0]));
      total_local_ptr[1] = (total_local_ptr[1] + (workspace_ptr[(((((turn * 448) + (((int)threadIdx.y) * 112)) + (((int)blockIdx.x) * 8)) + ((int)threadIdx.x)) + 28)] + (apart_local_ptr[0] * ((first_local_ptr[0] + first_local_ptr[0]) + count_local_ptr[0]))));
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
    share_local_ptr[0] = __fdividef(0x1p+0f/*1.000000e+00*/, ((float)(n * 64)));
    off_local_ptr[0] = (total_local_ptr[0] * share_local_ptr[0]);
    mean2_ptr[((((int)blockIdx.x) * 8) + ((int)threadIdx.x))] = (workspace_ptr[(((((int)blockIdx.x) * 8) + ((int)threadIdx.x)) + 84)] + off_local_ptr[0]);
    off_local_ptr[0] = ((total_local_ptr[1] - (total_local_ptr[0] * off_local_ptr[0])) * share_local_ptr[0]);
    float condval;
    if (off_local_ptr[0] < 0x0p+0f/*0.000000e+00*/) {
      condval = 0x0p+0f/*0.000000e+00*/;
    } else {
      condval = off_local_ptr[0];
    }
    var2_ptr[((((int)blockIdx.x) * 8) + ((int)threadIdx.x))] = condval;
  }
}

extern "C" __global__ void __launch_bounds__(32, 32) main_kernel_4(float* __restrict__ beta2_ptr, float* __restrict__ gamma2_ptr, float* __restrict__ mean2_ptr, float* __restrict__ var2_ptr, float* __restrict__ y_ptr, float* __restrict__ z_ptr, int n) {
  alignas(64) int pixels_local_ptr[1];
  alignas(64) int each_local_ptr[1];
  alignas(64) int first_local_ptr[1];
  alignas(64) int vector_local_ptr[1];
  alignas(64) float gamma_local_ptr[2];
  alignas(64) float var_local_ptr[2];
  alignas(64) float beta_local_ptr[2];
  alignas(64) float mean_local_ptr[2];
  alignas(64) float inverse_local_ptr[1];
  alignas(64) float factor_local_ptr[4];
  alignas(64) float inverse_local_ptr_1[1];
  alignas(64) int whole_local_ptr[1];
  alignas(64) int start_local_ptr[1];
  alignas(64) float loaded_local_ptr[2];
  alignas(64) float loaded_local_ptr_1[2];
  alignas(64) float loaded_local_ptr_2[2];
  alignas(64) float loaded_local_ptr_3[2];
  alignas(64) float z_local_ptr[1];
  alignas(64) float made_local_ptr[2];
  alignas(64) float z_local_ptr_1[1];
  alignas(64) float z_local_ptr_2[1];
  alignas(64) float made_local_ptr_1[2];
  alignas(64) float z_local_ptr_3[1];
  alignas(64) float z_local_ptr_4[1];
  alignas(64) float made_local_ptr_2[2];
  alignas(64) float z_local_ptr_5[1];
  alignas(64) float z_local_ptr_6[1];
  alignas(64) float made_local_ptr_3[2];
  alignas(64) float z_local_ptr_7[1];
  alignas(64) int pixel_local_ptr[1];
  alignas(64) float loaded_local_ptr_4[2];
  alignas(64) float z_local_ptr_8[1];
  alignas(64) float made_local_ptr_4[2];
  alignas(64) float z_local_ptr_9[1];
  pixels_local_ptr[0] = (n * 64);
  each_local_ptr[0] = ((pixels_local_ptr[0] + 15) / 16);
  first_local_ptr[0] = min(((((int)blockIdx.x) >> 1) * each_local_ptr[0]), pixels_local_ptr[0]);
  vector_local_ptr[0] = (((((int)blockIdx.x) & 1) * 8) + ((int)threadIdx.x));
  each_local_ptr[0] = min((first_local_ptr[0] + each_local_ptr[0]), pixels_local_ptr[0]);
  if (vector_local_ptr[0] < 14) {
    *(float2*)(gamma_local_ptr + 0) = *(float2*)(gamma2_ptr + (vector_local_ptr[0] * 2));
    *(float2*)(var_local_ptr + 0) = *(float2*)(var2_ptr + (vector_local_ptr[0] * 2));
    *(float2*)(beta_local_ptr + 0) = *(float2*)(beta2_ptr + (vector_local_ptr[0] * 2));
    *(float2*)(mean_local_ptr + 0) = *(float2*)(mean2_ptr + (vector_local_ptr[0] * 2));
    inverse_local_ptr[0] = rsqrtf((var_local_ptr[0] + 0x1.4f8b588e368f1p-17f/*1.000000e-05*/));
    inverse_local_ptr[0] = (gamma_local_ptr[0] * inverse_local_ptr[0]);
    factor_local_ptr[0] = inverse_local_ptr[0];
    factor_local_ptr[2] = (beta_local_ptr[0] - (mean_local_ptr[0] * inverse_local_ptr[0]));
    inverse_local_ptr_1[0] = rsqrtf((var_local_ptr[1] + 0x1.4f8b588e368f1p-17f/*1.000000e-05*/));
    inverse_local_ptr_1[0] = (gamma_local_ptr[1] * inverse_local_ptr_1[0]);
    factor_local_ptr[1] = inverse_local_ptr_1[0];
    factor_local_ptr[3] = (beta_local_ptr[1] - (mean_local_ptr[1] * inverse_local_ptr_1[0]));
    whole_local_ptr[0] = ((each_local_ptr[0] - first_local_ptr[0]) / 16);
    for (int turn = 0; turn < whole_local_ptr[0]; ++turn) {
      start_local_ptr[0] = (((turn * 16) + first_local_ptr[0]) + ((int)threadIdx.y));
      *(float2*)(loaded_local_ptr + 0) = *(float2*)(y_ptr + ((start_local_ptr[0] * 28) + (vector_local_ptr[0] * 2)));
      *(float2*)(loaded_local_ptr_1 + 0) = *(float2*)(y_ptr + (((start_local_ptr[0] * 28) + (vector_local_ptr[0] * 2)) + 112));
      *(float2*)(loaded_local_ptr_2 + 0) = *(float2*)(y_ptr + (((start_local_ptr[0] * 28) + (vector_local_ptr[0] * 2)) + 224));
      *(float2*)(loaded_local_ptr_3 + 0) = *(float2*)(y_ptr + (((start_local_ptr[0] * 28) + (vector_local_ptr[0] * 2)) + 336));
      z_local_ptr[0] = ((loaded_local_ptr[0] * factor_local_ptr[0]) + factor_local_ptr[2]);
      float condval;
      if (z_local_ptr[0] < 0x0p+0f/*0.000000e+00*/) {
        condval = 0x0p+0f/*0.000000e+00*/;
      } else {
        condval = z_local_ptr[0];
      }
      made_local_ptr[0] = condval;
      z_local_ptr_1[0] = ((loaded_local_ptr[1] * factor_local_ptr[1]) + factor_local_ptr[3]);
      float condval_1;
      if (z_local_ptr_1[0] < 0x0p+0f/*0.000000e+00*/) {
        condval_1 = 0x0p+0f/*0.000000e+00*/;
      } else {
        condval_1 = z_local_ptr_1[0];
      }
      made_local_ptr[1] = condval_1;
      *(float2*)(z_ptr + ((start_local_ptr[0] * 28) + (vector_local_ptr[0] * 2))) = *(float2*)(made_local_ptr + 0);
      z_local_ptr_2[0] = ((loaded_local_ptr_1[0] * factor_local_ptr[0]) + factor_local_ptr[2]);
      float condval_2;
      if (z_local_ptr_2[0] < 0x0p+0f/*0.000000e+00*/) {
        condval_2 = 0x0p+0f/*0.000000e+00*/;
      } else {
        condval_2 = z_local_ptr_2[0];
      }
      made_local_ptr_1[0] = condval_2;
      z_local_ptr_3[0] = ((loaded_local_ptr_1[1] * factor_local_ptr[1]) + factor_local_ptr[3]);
      float condval_3;
      if (z_local_ptr_3[0] < 0x0p+0f/*0.000000e+00*/) {
        condval_3 = 0x0p+0f/*0.000000e+00*/;
      } else {
        condval_3 = z_local_ptr_3[0];
      }
      made_local_ptr_1[1] = condval_3;
      *(float2*)(z_ptr + (((start_local_ptr[0] * 28) + (vector_local_ptr[0] * 2)) + 112)) = *(float2*)(made_local_ptr_1 + 0);
      z_local_ptr_4[0] = ((loaded_local_ptr_2[0] * factor_local_ptr[0]) + factor_local_ptr[2]);
      float condval_4;
      if (z_local_ptr_4[0] < 0x0p+0f/*0.000000e+00*/) {
        condval_4 = 0x0p+0f/*0.000000e+00*/;
      } else {
        condval_4 = z_local_ptr_4[0];
      }
      made_local_ptr_2[0] = condval_4;
      z_local_ptr_5[0] = ((loaded_local_ptr_2[1] * factor_local_ptr[1]) + factor_local_ptr[3]);
      float condval_5;
      if (z_local_ptr_5[0] < 0x0p+0f/*0.000000e+00*/) {
        condval_5 = 0x0p+0f/*0.000000e+00*/;
      } else {
        condval_5 = z_local_ptr_5[0];
      }
      made_local_ptr_2[1] = condval_5;
      *(float2*)(z_ptr + (((start_local_ptr[0] * 28) + (vector_local_ptr[0] * 2)) + 224)) = *(float2*)(made_local_ptr_2 + 0);
      z_local_ptr_6[0] = ((loaded_local_ptr_3[0] * factor_local_ptr[0]) + factor_local_ptr[2]);
      float condval_6;
      if (z_local_ptr_6[0] < 0x0p+0f/*0.000000e+00*/) {
        condval_6 = 0x0p+0f/*0.000000e+00*/;
      } else {
        condval_6 = z_local_ptr_6[0];
      }
      made_local_ptr_3[0] = condval_6;
      z_local_ptr_7[0] = ((loaded_local_ptr_3[1] * factor_local_ptr[1]) + factor_local_ptr[3]);
      float condval_7;
      if (z_local_ptr_7[0] < 0x0p+0f/*0.000000e+00*/) {
        condval_7 = 0x0p+0f/*0.000000e+00*/;
      } else {
        condval_7 = z_local_ptr_7[0];
      }
      made_local_ptr_3[1] = condval_7;
      *(float2*)(z_ptr + (((start_local_ptr[0] * 28) + (vector_local_ptr[0] * 2)) + 336)) = *(float2*)(made_local_ptr_3 + 0);
    }
    whole_local_ptr[0] = ((whole_local_ptr[0] * 16) + first_local_ptr[0]);
    for (int turn_1 = 0; turn_1 < (((each_local_ptr[0] + 3) - whole_local_ptr[0]) / 4); ++turn_1) {
      pixel_local_ptr[0] = (((turn_1 * 4) + whole_local_ptr[0]) + ((int)threadIdx.y));
      if (pixel_local_ptr[0] < each_local_ptr[0]) {
        *(float2*)(loaded_local_ptr_4 + 0) = *(float2*)(y_ptr + ((pixel_local_ptr[0] * 28) + (vector_local_ptr[0] * 2)));
        z_local_ptr_8[0] = ((loaded_local_ptr_4[0] * factor_local_ptr[0]) + factor_local_ptr[2]);
        float condval_8;
        if (z_local_ptr_8[0] < 0x0p+0f/*0.000000e+00*/) {
          condval_8 = 0x0p+0f/*0.000000e+00*/;
        } else {
          condval_8 = z_local_ptr_8[0];
        }
        made_local_ptr_4[0] = condval_8;
        z_local_ptr_9[0] = ((loaded_local_ptr_4[1] * factor_local_ptr[1]) + factor_local_ptr[3]);
        float condval_9;
        if (z_local_ptr_9[0] < 0x0p+0f/*0.000000e+00*/) {
          condval_9 = 0x0p+0f/*0.000000e+00*/;
        } else {
          condval_9 = z_local_ptr_9[0];
        }
        made_local_ptr_4[1] = condval_9;
        *(float2*)(z_ptr + ((pixel_local_ptr[0] * 28) + (vector_local_ptr[0] * 2))) = *(float2*)(made_local_ptr_4 + 0);
      }
    }
  }
}
