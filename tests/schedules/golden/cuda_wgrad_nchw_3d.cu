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

extern "C" __global__ void __launch_bounds__(192, 2) main_kernel(float* __restrict__ dy_ptr, float* __restrict__ workspace_ptr, float* __restrict__ x_ptr, int n) {
  alignas(64) float sums_local_ptr[10];
  alignas(64) float dy_local_ptr[4];
  alignas(64) float x_local_ptr[4];
  alignas(64) int dy_row_local_ptr[1];
  alignas(64) int dy_column_local_ptr[1];
  alignas(64) int dy_at_local_ptr[1];
  alignas(64) int x_row_local_ptr[1];
  alignas(64) int x_at_local_ptr[1];
  alignas(64) int dy_row_local_ptr_1[1];
  alignas(64) int dy_column_local_ptr_1[1];
  alignas(64) int dy_at_local_ptr_1[1];
  __shared__ alignas(64) float passed_shared_ptr[960];
  #pragma unroll
  for (int index = 0; index < 10; ++index) {
    sums_local_ptr[index] = 0x0p+0f/*0.000000e+00*/;
  }
  for (int turn = 0; turn < (((((n * 4) + 7) - (((int)threadIdx.x) >> 2)) - ((((int)blockIdx.x) >> 1) * 4)) / 8); ++turn) {
    int image = (((turn * 8) + ((((int)blockIdx.x) >> 1) * 4)) + (((int)threadIdx.x) >> 2));
    int x_depth = (((((int)threadIdx.x) >> 2) + ((int)threadIdx.z)) - 1);
    if ((1 <= ((((int)threadIdx.x) >> 2) + ((int)threadIdx.z))) && (((((int)threadIdx.x) >> 2) + ((int)threadIdx.z)) < 5)) {
      for (int step = 0; step < 2; ++step) {
        dy_row_local_ptr[0] = ((((((int)threadIdx.x) & 3) >> 1) * 4) + (step * 2));
        int dy_row = dy_row_local_ptr[0];
        dy_column_local_ptr[0] = ((((int)threadIdx.x) & 1) * 4);
        int dy_column = dy_column_local_ptr[0];
        dy_at_local_ptr[0] = ((((((turn * 1024) + (((int)blockIdx.x) * 256)) + (((int)threadIdx.y) * 64)) + ((((int)threadIdx.x) >> 2) * 16)) + (dy_row * 2)) + (dy_column >> 2));
        int dy_at = dy_at_local_ptr[0];
        x_row_local_ptr[0] = dy_row;
        int x_row = x_row_local_ptr[0];
        x_at_local_ptr[0] = ((((((((turn * 1024) + (((int)blockIdx.x) * 256)) + (((int)threadIdx.y) * 64)) + ((((int)threadIdx.x) >> 2) * 16)) + (((int)threadIdx.z) * 16)) + (x_row * 2)) + (dy_column >> 2)) - 16);
        int x_at = x_at_local_ptr[0];
        *(float4*)(dy_local_ptr + 0) = *(float4*)(dy_ptr + (dy_at * 4));
        float dy = dy_local_ptr[0];
        float dy_1 = dy_local_ptr[1];
        float dy_2 = dy_local_ptr[2];
        float dy_3 = dy_local_ptr[3];
        sums_local_ptr[9] = (sums_local_ptr[9] + dy);
        sums_local_ptr[9] = (sums_local_ptr[9] + dy_1);
        sums_local_ptr[9] = (sums_local_ptr[9] + dy_2);
        sums_local_ptr[9] = (sums_local_ptr[9] + dy_3);
        float condval;
        if ((1 <= x_row) && (1 <= dy_column)) {
          condval = x_ptr[((x_at * 4) - 9)];
        } else {
          condval = 0x0p+0f/*0.000000e+00*/;
        }
        float x = condval;
        sums_local_ptr[0] = (sums_local_ptr[0] + (x * dy));
        float4 condval_1;
        if (1 <= x_row) {
          condval_1 = *(float4*)(x_ptr + ((x_at * 4) - 8));
        } else {
          condval_1 = make_float4(0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/);
        }
        *(float4*)(x_local_ptr + 0) = condval_1;
        float x_1 = x_local_ptr[0];
        float x_2 = x_local_ptr[1];
        float x_3 = x_local_ptr[2];
        float x_4 = x_local_ptr[3];
        sums_local_ptr[1] = (sums_local_ptr[1] + (x_1 * dy));
        sums_local_ptr[0] = (sums_local_ptr[0] + (x_1 * dy_1));
        sums_local_ptr[2] = (sums_local_ptr[2] + (x_2 * dy));
        sums_local_ptr[1] = (sums_local_ptr[1] + (x_2 * dy_1));
        sums_local_ptr[0] = (sums_local_ptr[0] + (x_2 * dy_2));
        sums_local_ptr[2] = (sums_local_ptr[2] + (x_3 * dy_1));
        sums_local_ptr[1] = (sums_local_ptr[1] + (x_3 * dy_2));
        sums_local_ptr[0] = (sums_local_ptr[0] + (x_3 * dy_3));
        sums_local_ptr[2] = (sums_local_ptr[2] + (x_4 * dy_2));
        sums_local_ptr[1] = (sums_local_ptr[1] + (x_4 * dy_3));
        float condval_2;
        if ((1 <= x_row) && (dy_column < 4)) {
          condval_2 = x_ptr[((x_at * 4) - 4)];
        } else {
          condval_2 = 0x0p+0f/*0.000000e+00*/;
        }
        float x_5 = condval_2;
        sums_local_ptr[2] = (sums_local_ptr[2] + (x_5 * dy_3));
        *(float4*)(dy_local_ptr + 0) = *(float4*)(dy_ptr + ((dy_at * 4) + 8));
        float dy_4 = dy_local_ptr[0];
        float dy_5 = dy_local_ptr[1];
        float dy_6 = dy_local_ptr[2];
        float dy_7 = dy_local_ptr[3];
        sums_local_ptr[9] = (sums_local_ptr[9] + dy_4);
        sums_local_ptr[9] = (sums_local_ptr[9] + dy_5);
        sums_local_ptr[9] = (sums_local_ptr[9] + dy_6);
        sums_local_ptr[9] = (sums_local_ptr[9] + dy_7);
        float condval_3;
        if (1 <= dy_column) {
          condval_3 = x_ptr[((x_at * 4) - 1)];
        } else {
          condval_3 = 0x0p+0f/*0.000000e+00*/;
        }
        float x_6 = condval_3;
        sums_local_ptr[3] = (sums_local_ptr[3] + (x_6 * dy));
        sums_local_ptr[0] = (sums_local_ptr[0] + (x_6 * dy_4));
        *(float4*)(x_local_ptr + 0) = *(float4*)(x_ptr + (x_at * 4));
        float x_7 = x_local_ptr[0];
        float x_8 = x_local_ptr[1];
        float x_9 = x_local_ptr[2];
        float x_10 = x_local_ptr[3];
        sums_local_ptr[4] = (sums_local_ptr[4] + (x_7 * dy));
        sums_local_ptr[3] = (sums_local_ptr[3] + (x_7 * dy_1));
        sums_local_ptr[1] = (sums_local_ptr[1] + (x_7 * dy_4));
        sums_local_ptr[0] = (sums_local_ptr[0] + (x_7 * dy_5));
        sums_local_ptr[5] = (sums_local_ptr[5] + (x_8 * dy));
        sums_local_ptr[4] = (sums_local_ptr[4] + (x_8 * dy_1));
        sums_local_ptr[3] = (sums_local_ptr[3] + (x_8 * dy_2));
        sums_local_ptr[2] = (sums_local_ptr[2] + (x_8 * dy_4));
        sums_local_ptr[1] = (sums_local_ptr[1] + (x_8 * dy_5));
        sums_local_ptr[0] = (sums_local_ptr[0] + (x_8 * dy_6));
        sums_local_ptr[5] = (sums_local_ptr[5] + (x_9 * dy_1));
        sums_local_ptr[4] = (sums_local_ptr[4] + (x_9 * dy_2));
        sums_local_ptr[3] = (sums_local_ptr[3] + (x_9 * dy_3));
        sums_local_ptr[2] = (sums_local_ptr[2] + (x_9 * dy_5));
        sums_local_ptr[1] = (sums_local_ptr[1] + (x_9 * dy_6));
        sums_local_ptr[0] = (sums_local_ptr[0] + (x_9 * dy_7));
        sums_local_ptr[5] = (sums_local_ptr[5] + (x_10 * dy_2));
        sums_local_ptr[4] = (sums_local_ptr[4] + (x_10 * dy_3));
        sums_local_ptr[2] = (sums_local_ptr[2] + (x_10 * dy_6));
        sums_local_ptr[1] = (sums_local_ptr[1] + (x_10 * dy_7));
        float condval_4;
        if (dy_column < 4) {
          condval_4 = x_ptr[((x_at * 4) + 4)];
        } else {
          condval_4 = 0x0p+0f/*0.000000e+00*/;
        }
        float x_11 = condval_4;
        sums_local_ptr[5] = (sums_local_ptr[5] + (x_11 * dy_3));
        sums_local_ptr[2] = (sums_local_ptr[2] + (x_11 * dy_7));
        float condval_5;
        if (1 <= dy_column) {
          condval_5 = x_ptr[((x_at * 4) + 7)];
        } else {
          condval_5 = 0x0p+0f/*0.000000e+00*/;
        }
        float x_12 = condval_5;
        sums_local_ptr[6] = (sums_local_ptr[6] + (x_12 * dy));
        sums_local_ptr[3] = (sums_local_ptr[3] + (x_12 * dy_4));
        *(float4*)(x_local_ptr + 0) = *(float4*)(x_ptr + ((x_at * 4) + 8));
        float x_13 = x_local_ptr[0];
        float x_14 = x_local_ptr[1];
        float x_15 = x_local_ptr[2];
        float x_16 = x_local_ptr[3];
        sums_local_ptr[7] = (sums_local_ptr[7] + (x_13 * dy));
        sums_local_ptr[6] = (sums_local_ptr[6] + (x_13 * dy_1));
        sums_local_ptr[4] = (sums_local_ptr[4] + (x_13 * dy_4));
        sums_local_ptr[3] = (sums_local_ptr[3] + (x_13 * dy_5));
        sums_local_ptr[8] = (sums_local_ptr[8] + (x_14 * dy));
        sums_local_ptr[7] = (sums_local_ptr[7] + (x_14 * dy_1));
        sums_local_ptr[6] = (sums_local_ptr[6] + (x_14 * dy_2));
        sums_local_ptr[5] = (sums_local_ptr[5] + (x_14 * dy_4));
        sums_local_ptr[4] = (sums_local_ptr[4] + (x_14 * dy_5));
        sums_local_ptr[3] = (sums_local_ptr[3] + (x_14 * dy_6));
        sums_local_ptr[8] = (sums_local_ptr[8] + (x_15 * dy_1));
        sums_local_ptr[7] = (sums_local_ptr[7] + (x_15 * dy_2));
        sums_local_ptr[6] = (sums_local_ptr[6] + (x_15 * dy_3));
        sums_local_ptr[5] = (sums_local_ptr[5] + (x_15 * dy_5));
        sums_local_ptr[4] = (sums_local_ptr[4] + (x_15 * dy_6));
        sums_local_ptr[3] = (sums_local_ptr[3] + (x_15 * dy_7));
        sums_local_ptr[8] = (sums_local_ptr[8] + (x_16 * dy_2));
        sums_local_ptr[7] = (sums_local_ptr[7] + (x_16 * dy_3));
        sums_local_ptr[5] = (sums_local_ptr[5] + (x_16 * dy_6));
        sums_local_ptr[4] = (sums_local_ptr[4] + (x_16 * dy_7));
        float condval_6;
        if (dy_column < 4) {
          condval_6 = x_ptr[((x_at * 4) + 12)];
        } else {
          condval_6 = 0x0p+0f/*0.000000e+00*/;
        }
        float x_17 = condval_6;
        sums_local_ptr[8] = (sums_local_ptr[8] + (x_17 * dy_3));
        sums_local_ptr[5] = (sums_local_ptr[5] + (x_17 * dy_7));
        float condval_7;
        if ((x_row < 6) && (1 <= dy_column)) {
          condval_7 = x_ptr[((x_at * 4) + 15)];
        } else {
          condval_7 = 0x0p+0f/*0.000000e+00*/;
        }
        float x_18 = condval_7;
        sums_local_ptr[6] = (sums_local_ptr[6] + (x_18 * dy_4));
        float4 condval_8;
        if (x_row < 6) {
          condval_8 = *(float4*)(x_ptr + ((x_at * 4) + 16));
        } else {
          condval_8 = make_float4(0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/);
        }
        *(float4*)(x_local_ptr + 0) = condval_8;
        float x_19 = x_local_ptr[0];
        float x_20 = x_local_ptr[1];
        float x_21 = x_local_ptr[2];
        float x_22 = x_local_ptr[3];
        sums_local_ptr[7] = (sums_local_ptr[7] + (x_19 * dy_4));
        sums_local_ptr[6] = (sums_local_ptr[6] + (x_19 * dy_5));
        sums_local_ptr[8] = (sums_local_ptr[8] + (x_20 * dy_4));
        sums_local_ptr[7] = (sums_local_ptr[7] + (x_20 * dy_5));
        sums_local_ptr[6] = (sums_local_ptr[6] + (x_20 * dy_6));
        sums_local_ptr[8] = (sums_local_ptr[8] + (x_21 * dy_5));
        sums_local_ptr[7] = (sums_local_ptr[7] + (x_21 * dy_6));
        sums_local_ptr[6] = (sums_local_ptr[6] + (x_21 * dy_7));
        sums_local_ptr[8] = (sums_local_ptr[8] + (x_22 * dy_6));
        sums_local_ptr[7] = (sums_local_ptr[7] + (x_22 * dy_7));
        float condval_9;
        if ((x_row < 6) && (dy_column < 4)) {
          condval_9 = x_ptr[((x_at * 4) + 20)];
        } else {
          condval_9 = 0x0p+0f/*0.000000e+00*/;
        }
        float x_23 = condval_9;
        sums_local_ptr[8] = (sums_local_ptr[8] + (x_23 * dy_7));
      }
    }
    if ((((((int)threadIdx.x) >> 2) + ((int)threadIdx.z)) < 1) || (((((int)threadIdx.x) >> 2) + ((int)threadIdx.z)) == 5)) {
      for (int step_1 = 0; step_1 < 2; ++step_1) {
        dy_row_local_ptr_1[0] = ((((((int)threadIdx.x) & 3) >> 1) * 4) + (step_1 * 2));
        int dy_row_1 = dy_row_local_ptr_1[0];
        dy_column_local_ptr_1[0] = ((((int)threadIdx.x) & 1) * 4);
        int dy_column_1 = dy_column_local_ptr_1[0];
        dy_at_local_ptr_1[0] = ((((((turn * 1024) + (((int)blockIdx.x) * 256)) + (((int)threadIdx.y) * 64)) + ((((int)threadIdx.x) >> 2) * 16)) + (dy_row_1 * 2)) + (dy_column_1 >> 2));
        int dy_at_1 = dy_at_local_ptr_1[0];
        *(float4*)(dy_local_ptr + 0) = *(float4*)(dy_ptr + (dy_at_1 * 4));
        float dy_8 = dy_local_ptr[0];
        float dy_9 = dy_local_ptr[1];
        float dy_10 = dy_local_ptr[2];
        float dy_11 = dy_local_ptr[3];
        sums_local_ptr[9] = (sums_local_ptr[9] + dy_8);
        sums_local_ptr[9] = (sums_local_ptr[9] + dy_9);
        sums_local_ptr[9] = (sums_local_ptr[9] + dy_10);
        sums_local_ptr[9] = (sums_local_ptr[9] + dy_11);
        *(float4*)(dy_local_ptr + 0) = *(float4*)(dy_ptr + ((dy_at_1 * 4) + 8));
        float dy_12 = dy_local_ptr[0];
        float dy_13 = dy_local_ptr[1];
        float dy_14 = dy_local_ptr[2];
        float dy_15 = dy_local_ptr[3];
        sums_local_ptr[9] = (sums_local_ptr[9] + dy_12);
        sums_local_ptr[9] = (sums_local_ptr[9] + dy_13);
        sums_local_ptr[9] = (sums_local_ptr[9] + dy_14);
        sums_local_ptr[9] = (sums_local_ptr[9] + dy_15);
      }
    }
  }
  for (int halving = 0; halving < 4; ++halving) {
    int left = ((15 >> halving) + 1);
    int width_left = ((15 >> (halving + 1)) + 1);
    if (((15 >> (halving + 1)) < ((int)threadIdx.x)) && (((int)threadIdx.x) <= (15 >> halving))) {
      passed_shared_ptr[(((((((int)threadIdx.z) * 32) + (((int)threadIdx.y) * 8)) + ((int)threadIdx.x)) - (15 >> (halving + 1))) - 1)] = sums_local_ptr[0];
      passed_shared_ptr[(((((((int)threadIdx.z) * 32) + (((int)threadIdx.y) * 8)) + ((int)threadIdx.x)) + 95) - (15 >> (halving + 1)))] = sums_local_ptr[1];
      passed_shared_ptr[(((((((int)threadIdx.z) * 32) + (((int)threadIdx.y) * 8)) + ((int)threadIdx.x)) + 191) - (15 >> (halving + 1)))] = sums_local_ptr[2];
      passed_shared_ptr[(((((((int)threadIdx.z) * 32) + (((int)threadIdx.y) * 8)) + ((int)threadIdx.x)) + 287) - (15 >> (halving + 1)))] = sums_local_ptr[3];
      passed_shared_ptr[(((((((int)threadIdx.z) * 32) + (((int)threadIdx.y) * 8)) + ((int)threadIdx.x)) + 383) - (15 >> (halving + 1)))] = sums_local_ptr[4];
      passed_shared_ptr[(((((((int)threadIdx.z) * 32) + (((int)threadIdx.y) * 8)) + ((int)threadIdx.x)) + 479) - (15 >> (halving + 1)))] = sums_local_ptr[5];
      passed_shared_ptr[(((((((int)threadIdx.z) * 32) + (((int)threadIdx.y) * 8)) + ((int)threadIdx.x)) + 575) - (15 >> (halving + 1)))] = sums_local_ptr[6];
      passed_shared_ptr[(((((((int)threadIdx.z) * 32) + (((int)threadIdx.y) * 8)) + ((int)threadIdx.x)) + 671) - (15 >> (halving + 1)))] = sums_local_ptr[7];
      passed_shared_ptr[(((((((int)threadIdx.z) * 32) + (((int)threadIdx.y) * 8)) + ((int)threadIdx.x)) + 767) - (15 >> (halving + 1)))] = sums_local_ptr[8];
      passed_shared_ptr[(((((((int)threadIdx.z) * 32) + (((int)threadIdx.y) * 8)) + ((int)threadIdx.x)) + 863) - (15 >> (halving + 1)))] = sums_local_ptr[9];
    }
    __syncthreads();
    if ((((int)threadIdx.x) + (15 >> (halving + 1))) < (15 >> halving)) {
      sums_local_ptr[0] = (sums_local_ptr[0] + passed_shared_ptr[(((((int)threadIdx.z) * 32) + (((int)threadIdx.y) * 8)) + ((int)threadIdx.x))]);
      sums_local_ptr[1] = (sums_local_ptr[1] + passed_shared_ptr[((((((int)threadIdx.z) * 32) + (((int)threadIdx.y) * 8)) + ((int)threadIdx.x)) + 96)]);
      sums_local_ptr[2] = (sums_local_ptr[2] + passed_shared_ptr[((((((int)threadIdx.z) * 32) + (((int)threadIdx.y) * 8)) + ((int)threadIdx.x)) + 192)]);
      sums_local_ptr[3] = (sums_local_ptr[3] + passed_shared_ptr[((((((int)threadIdx.z) * 32) + (((int)threadIdx.y) * 8)) + ((int)threadIdx.x)) + 288)]);
      sums_local_ptr[4] = (sums_local_ptr[4] + passed_shared_ptr[((((((int)threadIdx.z) * 32) + (((int)threadIdx.y) * 8)) + ((int)threadIdx.x)) + 384)]);
      sums_local_ptr[5] = (sums_local_ptr[5] + passed_shared_ptr[((((((int)threadIdx.z) * 32) + (((int)threadIdx.y) * 8)) + ((int)threadIdx.x)) + 480)]);
      sums_local_ptr[6] = (sums_local_ptr[6] + passed_shared_ptr[((((((int)threadIdx.z) * 32) + (((int)threadIdx.y) * 8)) + ((int)threadIdx.x)) + 576)]);
      sums_local_ptr[7] = (sums_local_ptr[7] + passed_shared_ptr[((((((int)threadIdx.z) * 32) + (((int)threadIdx.y) * 8)) + ((int)threadIdx.x)) + 672)]);
      sums_local_ptr[8] = (sums_local_ptr[8] + passed_shared_ptr[((((((int)threadIdx.z) * 32) + (((int)threadIdx.y) * 8)) + ((int)threadIdx.x)) + 768)]);
      sums_local_ptr[9] = (sums_local_ptr[9] + passed_shared_ptr[((((((int)threadIdx.z) * 32) + (((int)threadIdx.y) * 8)) + ((int)threadIdx.x)) + 864)]);
    }
    __syncthreads();
  }
  if (((int)threadIdx.x) == 0) {
    int first = ((((((int)blockIdx.x) >> 1) * 224) + ((((int)blockIdx.x) & 1) * 108)) + (((int)threadIdx.y) * 27));
    workspace_ptr[(((((((int)blockIdx.x) >> 1) * 224) + ((((int)blockIdx.x) & 1) * 108)) + (((int)threadIdx.y) * 27)) + (((int)threadIdx.z) * 9))] = sums_local_ptr[0];
    workspace_ptr[((((((((int)blockIdx.x) >> 1) * 224) + ((((int)blockIdx.x) & 1) * 108)) + (((int)threadIdx.y) * 27)) + (((int)threadIdx.z) * 9)) + 1)] = sums_local_ptr[1];
    workspace_ptr[((((((((int)blockIdx.x) >> 1) * 224) + ((((int)blockIdx.x) & 1) * 108)) + (((int)threadIdx.y) * 27)) + (((int)threadIdx.z) * 9)) + 2)] = sums_local_ptr[2];
    workspace_ptr[((((((((int)blockIdx.x) >> 1) * 224) + ((((int)blockIdx.x) & 1) * 108)) + (((int)threadIdx.y) * 27)) + (((int)threadIdx.z) * 9)) + 3)] = sums_local_ptr[3];
    workspace_ptr[((((((((int)blockIdx.x) >> 1) * 224) + ((((int)blockIdx.x) & 1) * 108)) + (((int)threadIdx.y) * 27)) + (((int)threadIdx.z) * 9)) + 4)] = sums_local_ptr[4];
    workspace_ptr[((((((((int)blockIdx.x) >> 1) * 224) + ((((int)blockIdx.x) & 1) * 108)) + (((int)threadIdx.y) * 27)) + (((int)threadIdx.z) * 9)) + 5)] = sums_local_ptr[5];
    workspace_ptr[((((((((int)blockIdx.x) >> 1) * 224) + ((((int)blockIdx.x) & 1) * 108)) + (((int)threadIdx.y) * 27)) + (((int)threadIdx.z) * 9)) + 6)] = sums_local_ptr[6];
    workspace_ptr[((((((((int)blockIdx.x) >> 1) * 224) + ((((int)blockIdx.x) & 1) * 108)) + (((int)threadIdx.y) * 27)) + (((int)threadIdx.z) * 9)) + 7)] = sums_local_ptr[7];
    workspace_ptr[((((((((int)blockIdx.x) >> 1) * 224) + ((((int)blockIdx.x) & 1) * 108)) + (((int)threadIdx.y) * 27)) + (((int)threadIdx.z) * 9)) + 8)] = sums_local_ptr[8];
    if (((int)threadIdx.z) == 0) {
      workspace_ptr[(((((((int)blockIdx.x) >> 1) * 224) + ((((int)blockIdx.x) & 1) * 4)) + ((int)threadIdx.y)) + 216)] = sums_local_ptr[9];
    }
  }
}

extern "C" __global__ void __launch_bounds__(32) main_kernel_1(float* __restrict__ dbias_ptr, float* __restrict__ dw_ptr, float* __restrict__ workspace_ptr) {
  alignas(64) float added_local_ptr[1];
  added_local_ptr[0] = 0x0p+0f/*0.000000e+00*/;
  for (int turn = 0; turn < 2; ++turn) {
    added_local_ptr[0] = (added_local_ptr[0] + workspace_ptr[(((turn * 224) + (((int)blockIdx.x) * 32)) + ((int)threadIdx.x))]);
  }
  if (((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 3)) < 27) {
    dw_ptr[((((int)blockIdx.x) * 32) + ((int)threadIdx.x))] = added_local_ptr[0];
  }
  if (((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 3)) == 27) {
    dbias_ptr[(((((int)blockIdx.x) * 32) + ((int)threadIdx.x)) - 216)] = added_local_ptr[0];
  }
}
