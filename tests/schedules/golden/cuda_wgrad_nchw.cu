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

extern "C" __global__ void __launch_bounds__(128, 2) main_kernel(float* __restrict__ dy_ptr, float* __restrict__ workspace_ptr, float* __restrict__ x_ptr, int n) {
  alignas(64) float sums_local_ptr[9];
  alignas(64) float dy_local_ptr[2];
  alignas(64) float x_local_ptr[2];
  alignas(64) int dy_row_local_ptr[1];
  alignas(64) int dy_column_local_ptr[1];
  alignas(64) int dy_at_local_ptr[1];
  alignas(64) int x_row_local_ptr[1];
  alignas(64) int x_at_local_ptr[1];
  __shared__ alignas(64) float passed_shared_ptr[576];
  #pragma unroll
  for (int index = 0; index < 9; ++index) {
    sums_local_ptr[index] = 0x0p+0f/*0.000000e+00*/;
  }
  for (int turn = 0; turn < ((((n + 7) - (((int)threadIdx.x) >> 3)) - ((((int)blockIdx.x) >> 2) * 2)) / 8); ++turn) {
    int image = (((turn * 8) + ((((int)blockIdx.x) >> 2) * 2)) + (((int)threadIdx.x) >> 3));
    for (int step = 0; step < 2; ++step) {
      dy_row_local_ptr[0] = ((((((int)threadIdx.x) & 7) >> 2) * 4) + (step * 2));
      int dy_row = dy_row_local_ptr[0];
      dy_column_local_ptr[0] = ((((int)threadIdx.x) & 3) * 2);
      int dy_column = dy_column_local_ptr[0];
      dy_at_local_ptr[0] = (((((((turn * 8192) + ((((int)blockIdx.x) >> 2) * 2048)) + ((((int)threadIdx.x) >> 3) * 1024)) + ((((int)blockIdx.x) & 3) * 256)) + (((int)threadIdx.y) * 32)) + (dy_row * 4)) + (dy_column >> 1));
      int dy_at = dy_at_local_ptr[0];
      x_row_local_ptr[0] = dy_row;
      int x_row = x_row_local_ptr[0];
      x_at_local_ptr[0] = (((((((turn * 8192) + ((((int)blockIdx.x) >> 2) * 2048)) + ((((int)threadIdx.x) >> 3) * 1024)) + ((((int)blockIdx.x) & 3) * 256)) + (((int)threadIdx.y) * 32)) + (x_row * 4)) + (dy_column >> 1));
      int x_at = x_at_local_ptr[0];
      *(float2*)(dy_local_ptr + 0) = *(float2*)(dy_ptr + (dy_at * 2));
      float dy = dy_local_ptr[0];
      float dy_1 = dy_local_ptr[1];
      float condval;
      if ((1 <= x_row) && (1 <= dy_column)) {
        condval = x_ptr[((x_at * 2) - 9)];
      } else {
        condval = 0x0p+0f/*0.000000e+00*/;
      }
      float x = condval;
      sums_local_ptr[0] = (sums_local_ptr[0] + (x * dy));
      float2 condval_1;
      if (1 <= x_row) {
        condval_1 = *(float2*)(x_ptr + ((x_at * 2) - 8));
      } else {
        condval_1 = make_float2(0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/);
      }
      *(float2*)(x_local_ptr + 0) = condval_1;
      float x_1 = x_local_ptr[0];
      float x_2 = x_local_ptr[1];
      sums_local_ptr[1] = (sums_local_ptr[1] + (x_1 * dy));
      sums_local_ptr[0] = (sums_local_ptr[0] + (x_1 * dy_1));
      sums_local_ptr[2] = (sums_local_ptr[2] + (x_2 * dy));
      sums_local_ptr[1] = (sums_local_ptr[1] + (x_2 * dy_1));
      float condval_2;
      if ((1 <= x_row) && (dy_column < 6)) {
        condval_2 = x_ptr[((x_at * 2) - 6)];
      } else {
        condval_2 = 0x0p+0f/*0.000000e+00*/;
      }
      float x_3 = condval_2;
      sums_local_ptr[2] = (sums_local_ptr[2] + (x_3 * dy_1));
      *(float2*)(dy_local_ptr + 0) = *(float2*)(dy_ptr + ((dy_at * 2) + 8));
      float dy_2 = dy_local_ptr[0];
      float dy_3 = dy_local_ptr[1];
      float condval_3;
      if (1 <= dy_column) {
        condval_3 = x_ptr[((x_at * 2) - 1)];
      } else {
        condval_3 = 0x0p+0f/*0.000000e+00*/;
      }
      float x_4 = condval_3;
      sums_local_ptr[3] = (sums_local_ptr[3] + (x_4 * dy));
      sums_local_ptr[0] = (sums_local_ptr[0] + (x_4 * dy_2));
      *(float2*)(x_local_ptr + 0) = *(float2*)(x_ptr + (x_at * 2));
      float x_5 = x_local_ptr[0];
      float x_6 = x_local_ptr[1];
      sums_local_ptr[4] = (sums_local_ptr[4] + (x_5 * dy));
      sums_local_ptr[3] = (sums_local_ptr[3] + (x_5 * dy_1));
      sums_local_ptr[1] = (sums_local_ptr[1] + (x_5 * dy_2));
      sums_local_ptr[0] = (sums_local_ptr[0] + (x_5 * dy_3));
      sums_local_ptr[5] = (sums_local_ptr[5] + (x_6 * dy));
      sums_local_ptr[4] = (sums_local_ptr[4] + (x_6 * dy_1));
      sums_local_ptr[2] = (sums_local_ptr[2] + (x_6 * dy_2));
      sums_local_ptr[1] = (sums_local_ptr[1] + (x_6 * dy_3));
      float condval_4;
      if (dy_column < 6) {
        condval_4 = x_ptr[((x_at * 2) + 2)];
      } else {
        condval_4 = 0x0p+0f/*0.000000e+00*/;
      }
      float x_7 = condval_4;
      sums_local_ptr[5] = (sums_local_ptr[5] + (x_7 * dy_1));
      sums_local_ptr[2] = (sums_local_ptr[2] + (x_7 * dy_3));
      float condval_5;
      if (1 <= dy_column) {
        condval_5 = x_ptr[((x_at * 2) + 7)];
      } else {
        condval_5 = 0x0p+0f/*0.000000e+00*/;
      }
      float x_8 = condval_5;
      sums_local_ptr[6] = (sums_local_ptr[6] + (x_8 * dy));
      sums_local_ptr[3] = (sums_local_ptr[3] + (x_8 * dy_2));
      *(float2*)(x_local_ptr + 0) = *(float2*)(x_ptr + ((x_at * 2) + 8));
      float x_9 = x_local_ptr[0];
      float x_10 = x_local_ptr[1];
      sums_local_ptr[7] = (sums_local_ptr[7] + (x_9 * dy));
      sums_local_ptr[6] = (sums_local_ptr[6] + (x_9 * dy_1));
      sums_local_ptr[4] = (sums_local_ptr[4] + (x_9 * dy_2));
      sums_local_ptr[3] = (sums_local_ptr[3] + (x_9 * dy_3));
      sums_local_ptr[8] = (sums_local_ptr[8] + (x_10 * dy));
      sums_local_ptr[7] = (sums_local_ptr[7] + (x_10 * dy_1));
      sums_local_ptr[5] = (sums_local_ptr[5] + (x_10 * dy_2));
      sums_local_ptr[4] = (sums_local_ptr[4] + (x_10 * dy_3));
      float condval_6;
      if (dy_column < 6) {
        condval_6 = x_ptr[((x_at * 2) + 10)];
      } else {
        condval_6 = 0x0p+0f/*0.000000e+00*/;
      }
      float x_11 = condval_6;
      sums_local_ptr[8] = (sums_local_ptr[8] + (x_11 * dy_1));
      sums_local_ptr[5] = (sums_local_ptr[5] + (x_11 * dy_3));
      float condval_7;
      if ((x_row < 6) && (1 <= dy_column)) {
        condval_7 = x_ptr[((x_at * 2) + 15)];
      } else {
        condval_7 = 0x0p+0f/*0.000000e+00*/;
      }
      float x_12 = condval_7;
      sums_local_ptr[6] = (sums_local_ptr[6] + (x_12 * dy_2));
      float2 condval_8;
      if (x_row < 6) {
        condval_8 = *(float2*)(x_ptr + ((x_at * 2) + 16));
      } else {
        condval_8 = make_float2(0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/);
      }
      *(float2*)(x_local_ptr + 0) = condval_8;
      float x_13 = x_local_ptr[0];
      float x_14 = x_local_ptr[1];
      sums_local_ptr[7] = (sums_local_ptr[7] + (x_13 * dy_2));
      sums_local_ptr[6] = (sums_local_ptr[6] + (x_13 * dy_3));
      sums_local_ptr[8] = (sums_local_ptr[8] + (x_14 * dy_2));
      sums_local_ptr[7] = (sums_local_ptr[7] + (x_14 * dy_3));
      float condval_9;
      if ((x_row < 6) && (dy_column < 6)) {
        condval_9 = x_ptr[((x_at * 2) + 18)];
      } else {
        condval_9 = 0x0p+0f/*0.000000e+00*/;
      }
      float x_15 = condval_9;
      sums_local_ptr[8] = (sums_local_ptr[8] + (x_15 * dy_3));
    }
  }
  for (int halving = 0; halving < 4; ++halving) {
    int left = ((15 >> halving) + 1);
    int width_left = ((15 >> (halving + 1)) + 1);
    if (((15 >> (halving + 1)) < ((int)threadIdx.x)) && (((int)threadIdx.x) <= (15 >> halving))) {
      passed_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) - (15 >> (halving + 1))) - 1)] = sums_local_ptr[0];
      passed_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 63) - (15 >> (halving + 1)))] = sums_local_ptr[1];
      passed_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 127) - (15 >> (halving + 1)))] = sums_local_ptr[2];
      passed_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 191) - (15 >> (halving + 1)))] = sums_local_ptr[3];
      passed_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 255) - (15 >> (halving + 1)))] = sums_local_ptr[4];
      passed_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 319) - (15 >> (halving + 1)))] = sums_local_ptr[5];
      passed_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 383) - (15 >> (halving + 1)))] = sums_local_ptr[6];
      passed_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 447) - (15 >> (halving + 1)))] = sums_local_ptr[7];
      passed_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 511) - (15 >> (halving + 1)))] = sums_local_ptr[8];
    }
    __syncthreads();
    if ((((int)threadIdx.x) + (15 >> (halving + 1))) < (15 >> halving)) {
      sums_local_ptr[0] = (sums_local_ptr[0] + passed_shared_ptr[((((int)threadIdx.y) * 8) + ((int)threadIdx.x))]);
      sums_local_ptr[1] = (sums_local_ptr[1] + passed_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 64)]);
      sums_local_ptr[2] = (sums_local_ptr[2] + passed_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 128)]);
      sums_local_ptr[3] = (sums_local_ptr[3] + passed_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 192)]);
      sums_local_ptr[4] = (sums_local_ptr[4] + passed_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 256)]);
      sums_local_ptr[5] = (sums_local_ptr[5] + passed_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 320)]);
      sums_local_ptr[6] = (sums_local_ptr[6] + passed_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 384)]);
      sums_local_ptr[7] = (sums_local_ptr[7] + passed_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 448)]);
      sums_local_ptr[8] = (sums_local_ptr[8] + passed_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 512)]);
    }
    __syncthreads();
  }
  if (((int)threadIdx.x) == 0) {
    int first = ((((int)blockIdx.x) * 72) + (((int)threadIdx.y) * 9));
    workspace_ptr[((((int)blockIdx.x) * 72) + (((int)threadIdx.y) * 9))] = sums_local_ptr[0];
    workspace_ptr[(((((int)blockIdx.x) * 72) + (((int)threadIdx.y) * 9)) + 1)] = sums_local_ptr[1];
    workspace_ptr[(((((int)blockIdx.x) * 72) + (((int)threadIdx.y) * 9)) + 2)] = sums_local_ptr[2];
    workspace_ptr[(((((int)blockIdx.x) * 72) + (((int)threadIdx.y) * 9)) + 3)] = sums_local_ptr[3];
    workspace_ptr[(((((int)blockIdx.x) * 72) + (((int)threadIdx.y) * 9)) + 4)] = sums_local_ptr[4];
    workspace_ptr[(((((int)blockIdx.x) * 72) + (((int)threadIdx.y) * 9)) + 5)] = sums_local_ptr[5];
    workspace_ptr[(((((int)blockIdx.x) * 72) + (((int)threadIdx.y) * 9)) + 6)] = sums_local_ptr[6];
    workspace_ptr[(((((int)blockIdx.x) * 72) + (((int)threadIdx.y) * 9)) + 7)] = sums_local_ptr[7];
    workspace_ptr[(((((int)blockIdx.x) * 72) + (((int)threadIdx.y) * 9)) + 8)] = sums_local_ptr[8];
  }
}

extern "C" __global__ void __launch_bounds__(32) main_kernel_1(float* __restrict__ dw_ptr, float* __restrict__ workspace_ptr) {
  alignas(64) float added_local_ptr[1];
  added_local_ptr[0] = 0x0p+0f/*0.000000e+00*/;
  for (int turn = 0; turn < 4; ++turn) {
    added_local_ptr[0] = (added_local_ptr[0] + workspace_ptr[(((turn * 288) + (((int)blockIdx.x) * 32)) + ((int)threadIdx.x))]);
  }
  dw_ptr[((((int)blockIdx.x) * 32) + ((int)threadIdx.x))] = added_local_ptr[0];
}
