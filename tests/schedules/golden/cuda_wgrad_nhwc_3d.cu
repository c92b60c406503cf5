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

extern "C" __global__ void __launch_bounds__(96, 2) main_kernel(float* __restrict__ dy_ptr, float* __restrict__ workspace_ptr, float* __restrict__ x_ptr, int n) {
  alignas(64) float sums_local_ptr[20];
  alignas(64) float dy_local_ptr[2];
  alignas(64) float x_local_ptr[2];
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
  for (int index = 0; index < 20; ++index) {
    sums_local_ptr[index] = 0x0p+0f/*0.000000e+00*/;
  }
  for (int turn = 0; turn < ((((n * 4) + 7) - ((int)blockIdx.x)) / 8); ++turn) {
    int image = ((turn * 8) + ((int)blockIdx.x));
    int x_depth = ((((int)threadIdx.z) + (((int)blockIdx.x) & 3)) - 1);
    if ((1 <= (((int)threadIdx.z) + (((int)blockIdx.x) & 3))) && ((((int)threadIdx.z) + (((int)blockIdx.x) & 3)) < 5)) {
      for (int step = 0; step < 2; ++step) {
        dy_row_local_ptr[0] = (((((int)threadIdx.y) >> 2) * 4) + (step * 2));
        int dy_row = dy_row_local_ptr[0];
        dy_column_local_ptr[0] = ((((int)threadIdx.y) & 3) * 2);
        int dy_column = dy_column_local_ptr[0];
        dy_at_local_ptr[0] = (((((turn * 2048) + (((int)blockIdx.x) * 256)) + (dy_row * 32)) + (dy_column * 4)) + ((int)threadIdx.x));
        int dy_at = dy_at_local_ptr[0];
        x_row_local_ptr[0] = dy_row;
        int x_row = x_row_local_ptr[0];
        x_at_local_ptr[0] = (((((((turn * 2048) + (((int)blockIdx.x) * 256)) + (((int)threadIdx.z) * 256)) + (x_row * 32)) + (dy_column * 4)) + ((int)threadIdx.x)) - 256);
        int x_at = x_at_local_ptr[0];
        *(float2*)(dy_local_ptr + 0) = *(float2*)(dy_ptr + (dy_at * 2));
        float dy = dy_local_ptr[0];
        float dy_1 = dy_local_ptr[1];
        *(float2*)(dy_local_ptr + 0) = *(float2*)(dy_ptr + ((dy_at * 2) + 8));
        float dy_2 = dy_local_ptr[0];
        float dy_3 = dy_local_ptr[1];
        sums_local_ptr[18] = (sums_local_ptr[18] + dy);
        sums_local_ptr[19] = (sums_local_ptr[19] + dy_1);
        sums_local_ptr[18] = (sums_local_ptr[18] + dy_2);
        sums_local_ptr[19] = (sums_local_ptr[19] + dy_3);
        float2 condval;
        if ((1 <= x_row) && (1 <= dy_column)) {
          condval = *(float2*)(x_ptr + ((x_at * 2) - 72));
        } else {
          condval = make_float2(0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/);
        }
        *(float2*)(x_local_ptr + 0) = condval;
        float x = x_local_ptr[0];
        float x_1 = x_local_ptr[1];
        sums_local_ptr[0] = (sums_local_ptr[0] + (x * dy));
        sums_local_ptr[1] = (sums_local_ptr[1] + (x_1 * dy_1));
        float2 condval_1;
        if (1 <= x_row) {
          condval_1 = *(float2*)(x_ptr + ((x_at * 2) - 64));
        } else {
          condval_1 = make_float2(0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/);
        }
        *(float2*)(x_local_ptr + 0) = condval_1;
        float x_2 = x_local_ptr[0];
        float x_3 = x_local_ptr[1];
        sums_local_ptr[2] = (sums_local_ptr[2] + (x_2 * dy));
        sums_local_ptr[0] = (sums_local_ptr[0] + (x_2 * dy_2));
        sums_local_ptr[3] = (sums_local_ptr[3] + (x_3 * dy_1));
        sums_local_ptr[1] = (sums_local_ptr[1] + (x_3 * dy_3));
        float2 condval_2;
        if (1 <= x_row) {
          condval_2 = *(float2*)(x_ptr + ((x_at * 2) - 56));
        } else {
          condval_2 = make_float2(0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/);
        }
        *(float2*)(x_local_ptr + 0) = condval_2;
        float x_4 = x_local_ptr[0];
        float x_5 = x_local_ptr[1];
        sums_local_ptr[4] = (sums_local_ptr[4] + (x_4 * dy));
        sums_local_ptr[2] = (sums_local_ptr[2] + (x_4 * dy_2));
        sums_local_ptr[5] = (sums_local_ptr[5] + (x_5 * dy_1));
        sums_local_ptr[3] = (sums_local_ptr[3] + (x_5 * dy_3));
        float2 condval_3;
        if ((1 <= x_row) && (dy_column < 6)) {
          condval_3 = *(float2*)(x_ptr + ((x_at * 2) - 48));
        } else {
          condval_3 = make_float2(0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/);
        }
        *(float2*)(x_local_ptr + 0) = condval_3;
        float x_6 = x_local_ptr[0];
        float x_7 = x_local_ptr[1];
        sums_local_ptr[4] = (sums_local_ptr[4] + (x_6 * dy_2));
        sums_local_ptr[5] = (sums_local_ptr[5] + (x_7 * dy_3));
        *(float2*)(dy_local_ptr + 0) = *(float2*)(dy_ptr + ((dy_at * 2) + 64));
        float dy_4 = dy_local_ptr[0];
        float dy_5 = dy_local_ptr[1];
        *(float2*)(dy_local_ptr + 0) = *(float2*)(dy_ptr + ((dy_at * 2) + 72));
        float dy_6 = dy_local_ptr[0];
        float dy_7 = dy_local_ptr[1];
        sums_local_ptr[18] = (sums_local_ptr[18] + dy_4);
        sums_local_ptr[19] = (sums_local_ptr[19] + dy_5);
        sums_local_ptr[18] = (sums_local_ptr[18] + dy_6);
        sums_local_ptr[19] = (sums_local_ptr[19] + dy_7);
        float2 condval_4;
        if (1 <= dy_column) {
          condval_4 = *(float2*)(x_ptr + ((x_at * 2) - 8));
        } else {
          condval_4 = make_float2(0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/);
        }
        *(float2*)(x_local_ptr + 0) = condval_4;
        float x_8 = x_local_ptr[0];
        float x_9 = x_local_ptr[1];
        sums_local_ptr[6] = (sums_local_ptr[6] + (x_8 * dy));
        sums_local_ptr[0] = (sums_local_ptr[0] + (x_8 * dy_4));
        sums_local_ptr[7] = (sums_local_ptr[7] + (x_9 * dy_1));
        sums_local_ptr[1] = (sums_local_ptr[1] + (x_9 * dy_5));
        *(float2*)(x_local_ptr + 0) = *(float2*)(x_ptr + (x_at * 2));
        float x_10 = x_local_ptr[0];
        float x_11 = x_local_ptr[1];
        sums_local_ptr[8] = (sums_local_ptr[8] + (x_10 * dy));
        sums_local_ptr[6] = (sums_local_ptr[6] + (x_10 * dy_2));
        sums_local_ptr[2] = (sums_local_ptr[2] + (x_10 * dy_4));
        sums_local_ptr[0] = (sums_local_ptr[0] + (x_10 * dy_6));
        sums_local_ptr[9] = (sums_local_ptr[9] + (x_11 * dy_1));
        sums_local_ptr[7] = (sums_local_ptr[7] + (x_11 * dy_3));
        sums_local_ptr[3] = (sums_local_ptr[3] + (x_11 * dy_5));
        sums_local_ptr[1] = (sums_local_ptr[1] + (x_11 * dy_7));
        *(float2*)(x_local_ptr + 0) = *(float2*)(x_ptr + ((x_at * 2) + 8));
        float x_12 = x_local_ptr[0];
        float x_13 = x_local_ptr[1];
        sums_local_ptr[10] = (sums_local_ptr[10] + (x_12 * dy));
        sums_local_ptr[8] = (sums_local_ptr[8] + (x_12 * dy_2));
        sums_local_ptr[4] = (sums_local_ptr[4] + (x_12 * dy_4));
        sums_local_ptr[2] = (sums_local_ptr[2] + (x_12 * dy_6));
        sums_local_ptr[11] = (sums_local_ptr[11] + (x_13 * dy_1));
        sums_local_ptr[9] = (sums_local_ptr[9] + (x_13 * dy_3));
        sums_local_ptr[5] = (sums_local_ptr[5] + (x_13 * dy_5));
        sums_local_ptr[3] = (sums_local_ptr[3] + (x_13 * dy_7));
        float2 condval_5;
        if (dy_column < 6) {
          condval_5 = *(float2*)(x_ptr + ((x_at * 2) + 16));
        } else {
          condval_5 = make_float2(0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/);
        }
        *(float2*)(x_local_ptr + 0) = condval_5;
        float x_14 = x_local_ptr[0];
        float x_15 = x_local_ptr[1];
        sums_local_ptr[10] = (sums_local_ptr[10] + (x_14 * dy_2));
        sums_local_ptr[4] = (sums_local_ptr[4] + (x_14 * dy_6));
        sums_local_ptr[11] = (sums_local_ptr[11] + (x_15 * dy_3));
        sums_local_ptr[5] = (sums_local_ptr[5] + (x_15 * dy_7));
        float2 condval_6;
        if (1 <= dy_column) {
          condval_6 = *(float2*)(x_ptr + ((x_at * 2) + 56));
        } else {
          condval_6 = make_float2(0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/);
        }
        *(float2*)(x_local_ptr + 0) = condval_6;
        float x_16 = x_local_ptr[0];
        float x_17 = x_local_ptr[1];
        sums_local_ptr[12] = (sums_local_ptr[12] + (x_16 * dy));
        sums_local_ptr[6] = (sums_local_ptr[6] + (x_16 * dy_4));
        sums_local_ptr[13] = (sums_local_ptr[13] + (x_17 * dy_1));
        sums_local_ptr[7] = (sums_local_ptr[7] + (x_17 * dy_5));
        *(float2*)(x_local_ptr + 0) = *(float2*)(x_ptr + ((x_at * 2) + 64));
        float x_18 = x_local_ptr[0];
        float x_19 = x_local_ptr[1];
        sums_local_ptr[14] = (sums_local_ptr[14] + (x_18 * dy));
        sums_local_ptr[12] = (sums_local_ptr[12] + (x_18 * dy_2));
        sums_local_ptr[8] = (sums_local_ptr[8] + (x_18 * dy_4));
        sums_local_ptr[6] = (sums_local_ptr[6] + (x_18 * dy_6));
        sums_local_ptr[15] = (sums_local_ptr[15] + (x_19 * dy_1));
        sums_local_ptr[13] = (sums_local_ptr[13] + (x_19 * dy_3));
        sums_local_ptr[9] = (sums_local_ptr[9] + (x_19 * dy_5));
        sums_local_ptr[7] = (sums_local_ptr[7] + (x_19 * dy_7));
        *(float2*)(x_local_ptr + 0) = *(float2*)(x_ptr + ((x_at * 2) + 72));
        float x_20 = x_local_ptr[0];
        float x_21 = x_local_ptr[1];
        sums_local_ptr[16] = (sums_local_ptr[16] + (x_20 * dy));
        sums_local_ptr[14] = (sums_local_ptr[14] + (x_20 * dy_2));
        sums_local_ptr[10] = (sums_local_ptr[10] + (x_20 * dy_4));
        sums_local_ptr[8] = (sums_local_ptr[8] + (x_20 * dy_6));
        sums_local_ptr[17] = (sums_local_ptr[17] + (x_21 * dy_1));
        sums_local_ptr[15] = (sums_local_ptr[15] + (x_21 * dy_3));
        sums_local_ptr[11] = (sums_local_ptr[11] + (x_21 * dy_5));
        sums_local_ptr[9] = (sums_local_ptr[9] + (x_21 * dy_7));
        float2 condval_7;
        if (dy_column < 6) {
          condval_7 = *(float2*)(x_ptr + ((x_at * 2) + 80));
        } else {
          condval_7 = make_float2(0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/);
        }
        *(float2*)(x_local_ptr + 0) = condval_7;
        float x_22 = x_local_ptr[0];
        float x_23 = x_local_ptr[1];
        sums_local_ptr[16] = (sums_local_ptr[16] + (x_22 * dy_2));
        sums_local_ptr[10] = (sums_local_ptr[10] + (x_22 * dy_6));
        sums_local_ptr[17] = (sums_local_ptr[17] + (x_23 * dy_3));
        sums_local_ptr[11] = (sums_local_ptr[11] + (x_23 * dy_7));
        float2 condval_8;
        if ((x_row < 6) && (1 <= dy_column)) {
          condval_8 = *(float2*)(x_ptr + ((x_at * 2) + 120));
        } else {
          condval_8 = make_float2(0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/);
        }
        *(float2*)(x_local_ptr + 0) = condval_8;
        float x_24 = x_local_ptr[0];
        float x_25 = x_local_ptr[1];
        sums_local_ptr[12] = (sums_local_ptr[12] + (x_24 * dy_4));
        sums_local_ptr[13] = (sums_local_ptr[13] + (x_25 * dy_5));
        float2 condval_9;
        if (x_row < 6) {
          condval_9 = *(float2*)(x_ptr + ((x_at * 2) + 128));
        } else {
          condval_9 = make_float2(0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/);
        }
        *(float2*)(x_local_ptr + 0) = condval_9;
        float x_26 = x_local_ptr[0];
        float x_27 = x_local_ptr[1];
        sums_local_ptr[14] = (sums_local_ptr[14] + (x_26 * dy_4));
        sums_local_ptr[12] = (sums_local_ptr[12] + (x_26 * dy_6));
        sums_local_ptr[15] = (sums_local_ptr[15] + (x_27 * dy_5));
        sums_local_ptr[13] = (sums_local_ptr[13] + (x_27 * dy_7));
        float2 condval_10;
        if (x_row < 6) {
          condval_10 = *(float2*)(x_ptr + ((x_at * 2) + 136));
        } else {
          condval_10 = make_float2(0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/);
        }
        *(float2*)(x_local_ptr + 0) = condval_10;
        float x_28 = x_local_ptr[0];
        float x_29 = x_local_ptr[1];
        sums_local_ptr[16] = (sums_local_ptr[16] + (x_28 * dy_4));
        sums_local_ptr[14] = (sums_local_ptr[14] + (x_28 * dy_6));
        sums_local_ptr[17] = (sums_local_ptr[17] + (x_29 * dy_5));
        sums_local_ptr[15] = (sums_local_ptr[15] + (x_29 * dy_7));
        float2 condval_11;
        if ((x_row < 6) && (dy_column < 6)) {
          condval_11 = *(float2*)(x_ptr + ((x_at * 2) + 144));
        } else {
          condval_11 = make_float2(0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/);
        }
        *(float2*)(x_local_ptr + 0) = condval_11;
        float x_30 = x_local_ptr[0];
        float x_31 = x_local_ptr[1];
        sums_local_ptr[16] = (sums_local_ptr[16] + (x_30 * dy_6));
        sums_local_ptr[17] = (sums_local_ptr[17] + (x_31 * dy_7));
      }
    }
    if (((((int)threadIdx.z) + (((int)blockIdx.x) & 3)) < 1) || ((((int)threadIdx.z) + (((int)blockIdx.x) & 3)) == 5)) {
      for (int step_1 = 0; step_1 < 2; ++step_1) {
        dy_row_local_ptr_1[0] = (((((int)threadIdx.y) >> 2) * 4) + (step_1 * 2));
        int dy_row_1 = dy_row_local_ptr_1[0];
        dy_column_local_ptr_1[0] = ((((int)threadIdx.y) & 3) * 2);
        int dy_column_1 = dy_column_local_ptr_1[0];
        dy_at_local_ptr_1[0] = (((((turn * 2048) + (((int)blockIdx.x) * 256)) + (dy_row_1 * 32)) + (dy_column_1 * 4)) + ((int)threadIdx.x));
        int dy_at_1 = dy_at_local_ptr_1[0];
        *(float2*)(dy_local_ptr + 0) = *(float2*)(dy_ptr + (dy_at_1 * 2));
        float dy_8 = dy_local_ptr[0];
        float dy_9 = dy_local_ptr[1];
        *(float2*)(dy_local_ptr + 0) = *(float2*)(dy_ptr + ((dy_at_1 * 2) + 8));
        float dy_10 = dy_local_ptr[0];
        float dy_11 = dy_local_ptr[1];
        sums_local_ptr[18] = (sums_local_ptr[18] + dy_8);
        sums_local_ptr[19] = (sums_local_ptr[19] + dy_9);
        sums_local_ptr[18] = (sums_local_ptr[18] + dy_10);
        sums_local_ptr[19] = (sums_local_ptr[19] + dy_11);
        *(float2*)(dy_local_ptr + 0) = *(float2*)(dy_ptr + ((dy_at_1 * 2) + 64));
        float dy_12 = dy_local_ptr[0];
        float dy_13 = dy_local_ptr[1];
        *(float2*)(dy_local_ptr + 0) = *(float2*)(dy_ptr + ((dy_at_1 * 2) + 72));
        float dy_14 = dy_local_ptr[0];
        float dy_15 = dy_local_ptr[1];
        sums_local_ptr[18] = (sums_local_ptr[18] + dy_12);
        sums_local_ptr[19] = (sums_local_ptr[19] + dy_13);
        sums_local_ptr[18] = (sums_local_ptr[18] + dy_14);
        sums_local_ptr[19] = (sums_local_ptr[19] + dy_15);
      }
    }
  }
  for (int halving = 0; halving < 3; ++halving) {
    int left = ((7 >> halving) + 1);
    int width_left = ((7 >> (halving + 1)) + 1);
    if (((7 >> (halving + 1)) < ((int)threadIdx.y)) && (((int)threadIdx.y) <= (7 >> halving))) {
      passed_shared_ptr[(((((((int)threadIdx.z) * 16) + (((int)threadIdx.y) * 4)) + ((int)threadIdx.x)) - ((7 >> (halving + 1)) * 4)) - 4)] = sums_local_ptr[0];
      passed_shared_ptr[(((((((int)threadIdx.z) * 16) + (((int)threadIdx.y) * 4)) + ((int)threadIdx.x)) + 44) - ((7 >> (halving + 1)) * 4))] = sums_local_ptr[1];
      passed_shared_ptr[(((((((int)threadIdx.z) * 16) + (((int)threadIdx.y) * 4)) + ((int)threadIdx.x)) + 92) - ((7 >> (halving + 1)) * 4))] = sums_local_ptr[2];
      passed_shared_ptr[(((((((int)threadIdx.z) * 16) + (((int)threadIdx.y) * 4)) + ((int)threadIdx.x)) + 140) - ((7 >> (halving + 1)) * 4))] = sums_local_ptr[3];
      passed_shared_ptr[(((((((int)threadIdx.z) * 16) + (((int)threadIdx.y) * 4)) + ((int)threadIdx.x)) + 188) - ((7 >> (halving + 1)) * 4))] = sums_local_ptr[4];
      passed_shared_ptr[(((((((int)threadIdx.z) * 16) + (((int)threadIdx.y) * 4)) + ((int)threadIdx.x)) + 236) - ((7 >> (halving + 1)) * 4))] = sums_local_ptr[5];
      passed_shared_ptr[(((((((int)threadIdx.z) * 16) + (((int)threadIdx.y) * 4)) + ((int)threadIdx.x)) + 284) - ((7 >> (halving + 1)) * 4))] = sums_local_ptr[6];
      passed_shared_ptr[(((((((int)threadIdx.z) * 16) + (((int)threadIdx.y) * 4)) + ((int)threadIdx.x)) + 332) - ((7 >> (halving + 1)) * 4))] = sums_local_ptr[7];
      passed_shared_ptr[(((((((int)threadIdx.z) * 16) + (((int)threadIdx.y) * 4)) + ((int)threadIdx.x)) + 380) - ((7 >> (halving + 1)) * 4))] = sums_local_ptr[8];
      passed_shared_ptr[(((((((int)threadIdx.z) * 16) + (((int)threadIdx.y) * 4)) + ((int)threadIdx.x)) + 428) - ((7 >> (halving + 1)) * 4))] = sums_local_ptr[9];
      passed_shared_ptr[(((((((int)threadIdx.z) * 16) + (((int)threadIdx.y) * 4)) + ((int)threadIdx.x)) + 476) - ((7 >> (halving + 1)) * 4))] = sums_local_ptr[10];
      passed_shared_ptr[(((((((int)threadIdx.z) * 16) + (((int)threadIdx.y) * 4)) + ((int)threadIdx.x)) + 524) - ((7 >> (halving + 1)) * 4))] = sums_local_ptr[11];
      passed_shared_ptr[(((((((int)threadIdx.z) * 16) + (((int)threadIdx.y) * 4)) + ((int)threadIdx.x)) + 572) - ((7 >> (halving + 1)) * 4))] = sums_local_ptr[12];
      passed_shared_ptr[(((((((int)threadIdx.z) * 16) + (((int)threadIdx.y) * 4)) + ((int)threadIdx.x)) + 620) - ((7 >> (halving + 1)) * 4))] = sums_local_ptr[13];
      passed_shared_ptr[(((((((int)threadIdx.z) * 16) + (((int)threadIdx.y) * 4)) + ((int)threadIdx.x)) + 668) - ((7 >> (halving + 1)) * 4))] = sums_local_ptr[14];
      passed_shared_ptr[(((((((int)threadIdx.z) * 16) + (((int)threadIdx.y) * 4)) + ((int)threadIdx.x)) + 716) - ((7 >> (halving + 1)) * 4))] = sums_local_ptr[15];
      passed_shared_ptr[(((((((int)threadIdx.z) * 16) + (((int)threadIdx.y) * 4)) + ((int)threadIdx.x)) + 764) - ((7 >> (halving + 1)) * 4))] = sums_local_ptr[16];
      passed_shared_ptr[(((((((int)threadIdx.z) * 16) + (((int)threadIdx.y) * 4)) + ((int)threadIdx.x)) + 812) - ((7 >> (halving + 1)) * 4))] = sums_local_ptr[17];
      passed_shared_ptr[(((((((int)threadIdx.z) * 16) + (((int)threadIdx.y) * 4)) + ((int)threadIdx.x)) + 860) - ((7 >> (halving + 1)) * 4))] = sums_local_ptr[18];
      passed_shared_ptr[(((((((int)threadIdx.z) * 16) + (((int)threadIdx.y) * 4)) + ((int)threadIdx.x)) + 908) - ((7 >> (halving + 1)) * 4))] = sums_local_ptr[19];
    }
    __syncthreads();
    if ((((int)threadIdx.y) + (7 >> (halving + 1))) < (7 >> halving)) {
      sums_local_ptr[0] = (sums_local_ptr[0] + passed_shared_ptr[(((((int)threadIdx.z) * 16) + (((int)threadIdx.y) * 4)) + ((int)threadIdx.x))]);
      sums_local_ptr[1] = (sums_local_ptr[1] + passed_shared_ptr[((((((int)threadIdx.z) * 16) + (((int)threadIdx.y) * 4)) + ((int)threadIdx.x)) + 48)]);
      sums_local_ptr[2] = (sums_local_ptr[2] + passed_shared_ptr[((((((int)threadIdx.z) * 16) + (((int)threadIdx.y) * 4)) + ((int)threadIdx.x)) + 96)]);
      sums_local_ptr[3] = (sums_local_ptr[3] + passed_shared_ptr[((((((int)threadIdx.z) * 16) + (((int)threadIdx.y) * 4)) + ((int)threadIdx.x)) + 144)]);
      sums_local_ptr[4] = (sums_local_ptr[4] + passed_shared_ptr[((((((int)threadIdx.z) * 16) + (((int)threadIdx.y) * 4)) + ((int)threadIdx.x)) + 192)]);
      sums_local_ptr[5] = (sums_local_ptr[5] + passed_shared_ptr[((((((int)threadIdx.z) * 16) + (((int)threadIdx.y) * 4)) + ((int)threadIdx.x)) + 240)]);
      sums_local_ptr[6] = (sums_local_ptr[6] + passed_shared_ptr[((((((int)threadIdx.z) * 16) + (((int)threadIdx.y) * 4)) + ((int)threadIdx.x)) + 288)]);
      sums_local_ptr[7] = (sums_local_ptr[7] + passed_shared_ptr[((((((int)threadIdx.z) * 16) + (((int)threadIdx.y) * 4)) + ((int)threadIdx.x)) + 336)]);
      sums_local_ptr[8] = (sums_local_ptr[8] + passed_shared_ptr[((((((int)threadIdx.z) * 16) + (((int)threadIdx.y) * 4)) + ((int)threadIdx.x)) + 384)]);
      sums_local_ptr[9] = (sums_local_ptr[9] + passed_shared_ptr[((((((int)threadIdx.z) * 16) + (((int)threadIdx.y) * 4)) + ((int)threadIdx.x)) + 432)]);
      sums_local_ptr[10] = (sums_local_ptr[10] + passed_shared_ptr[((((((int)threadIdx.z) * 16) + (((int)threadIdx.y) * 4)) + ((int)threadIdx.x)) + 480)]);
      sums_local_ptr[11] = (sums_local_ptr[11] + passed_shared_ptr[((((((int)threadIdx.z) * 16) + (((int)threadIdx.y) * 4)) + ((int)threadIdx.x)) + 528)]);
      sums_local_ptr[12] = (sums_local_ptr[12] + passed_shared_ptr[((((((int)threadIdx.z) * 16) + (((int)threadIdx.y) * 4)) + ((int)threadIdx.x)) + 576)]);
      sums_local_ptr[13] = (sums_local_ptr[13] + passed_shared_ptr[((((((int)threadIdx.z) * 16) + (((int)threadIdx.y) * 4)) + ((int)threadIdx.x)) + 624)]);
      sums_local_ptr[14] = (sums_local_ptr[14] + passed_shared_ptr[((((((int)threadIdx.z) * 16) + (((int)threadIdx.y) * 4)) + ((int)threadIdx.x)) + 672)]);
      sums_local_ptr[15] = (sums_local_ptr[15] + passed_shared_ptr[((((((int)threadIdx.z) * 16) + (((int)threadIdx.y) * 4)) + ((int)threadIdx.x)) + 720)]);
      sums_local_ptr[16] = (sums_local_ptr[16] + passed_shared_ptr[((((((int)threadIdx.z) * 16) + (((int)threadIdx.y) * 4)) + ((int)threadIdx.x)) + 768)]);
      sums_local_ptr[17] = (sums_local_ptr[17] + passed_shared_ptr[((((((int)threadIdx.z) * 16) + (((int)threadIdx.y) * 4)) + ((int)threadIdx.x)) + 816)]);
      sums_local_ptr[18] = (sums_local_ptr[18] + passed_shared_ptr[((((((int)threadIdx.z) * 16) + (((int)threadIdx.y) * 4)) + ((int)threadIdx.x)) + 864)]);
      sums_local_ptr[19] = (sums_local_ptr[19] + passed_shared_ptr[((((((int)threadIdx.z) * 16) + (((int)threadIdx.y) * 4)) + ((int)threadIdx.x)) + 912)]);
    }
    __syncthreads();
  }
  if (((int)threadIdx.y) == 0) {
    int first = ((((int)blockIdx.x) * 224) + (((int)threadIdx.x) * 54));
    workspace_ptr[(((((int)blockIdx.x) * 224) + (((int)threadIdx.x) * 54)) + (((int)threadIdx.z) * 9))] = sums_local_ptr[0];
    workspace_ptr[((((((int)blockIdx.x) * 224) + (((int)threadIdx.x) * 54)) + (((int)threadIdx.z) * 9)) + 27)] = sums_local_ptr[1];
    workspace_ptr[((((((int)blockIdx.x) * 224) + (((int)threadIdx.x) * 54)) + (((int)threadIdx.z) * 9)) + 1)] = sums_local_ptr[2];
    workspace_ptr[((((((int)blockIdx.x) * 224) + (((int)threadIdx.x) * 54)) + (((int)threadIdx.z) * 9)) + 28)] = sums_local_ptr[3];
    workspace_ptr[((((((int)blockIdx.x) * 224) + (((int)threadIdx.x) * 54)) + (((int)threadIdx.z) * 9)) + 2)] = sums_local_ptr[4];
    workspace_ptr[((((((int)blockIdx.x) * 224) + (((int)threadIdx.x) * 54)) + (((int)threadIdx.z) * 9)) + 29)] = sums_local_ptr[5];
    workspace_ptr[((((((int)blockIdx.x) * 224) + (((int)threadIdx.x) * 54)) + (((int)threadIdx.z) * 9)) + 3)] = sums_local_ptr[6];
    workspace_ptr[((((((int)blockIdx.x) * 224) + (((int)threadIdx.x) * 54)) + (((int)threadIdx.z) * 9)) + 30)] = sums_local_ptr[7];
    workspace_ptr[((((((int)blockIdx.x) * 224) + (((int)threadIdx.x) * 54)) + (((int)threadIdx.z) * 9)) + 4)] = sums_local_ptr[8];
    workspace_ptr[((((((int)blockIdx.x) * 224) + (((int)threadIdx.x) * 54)) + (((int)threadIdx.z) * 9)) + 31)] = sums_local_ptr[9];
    workspace_ptr[((((((int)blockIdx.x) * 224) + (((int)threadIdx.x) * 54)) + (((int)threadIdx.z) * 9)) + 5)] = sums_local_ptr[10];
    workspace_ptr[((((((int)blockIdx.x) * 224) + (((int)threadIdx.x) * 54)) + (((int)threadIdx.z) * 9)) + 32)] = sums_local_ptr[11];
    workspace_ptr[((((((int)blockIdx.x) * 224) + (((int)threadIdx.x) * 54)) + (((int)threadIdx.z) * 9)) + 6)] = sums_local_ptr[12];
    workspace_ptr[((((((int)blockIdx.x) * 224) + (((int)threadIdx.x) * 54)) + (((int)threadIdx.z) * 9)) + 33)] = sums_local_ptr[13];
    workspace_ptr[((((((int)blockIdx.x) * 224) + (((int)threadIdx.x) * 54)) + (((int)threadIdx.z) * 9)) + 7)] = sums_local_ptr[14];
    workspace_ptr[((((((int)blockIdx.x) * 224) + (((int)threadIdx.x) * 54)) + (((int)threadIdx.z) * 9)) + 34)] = sums_local_ptr[15];
    workspace_ptr[((((((int)blockIdx.x) * 224) + (((int)threadIdx.x) * 54)) + (((int)threadIdx.z) * 9)) + 8)] = sums_local_ptr[16];
    workspace_ptr[((((((int)blockIdx.x) * 224) + (((int)threadIdx.x) * 54)) + (((int)threadIdx.z) * 9)) + 35)] = sums_local_ptr[17];
    if (((int)threadIdx.z) == 0) {
      workspace_ptr[(((((int)blockIdx.x) * 224) + (((int)threadIdx.x) * 2)) + 216)] = sums_local_ptr[18];
      workspace_ptr[(((((int)blockIdx.x) * 224) + (((int)threadIdx.x) * 2)) + 217)] = sums_local_ptr[19];
    }
  }
}

extern "C" __global__ void __launch_bounds__(64) main_kernel_1(float* __restrict__ dbias_ptr, float* __restrict__ dw_ptr, float* __restrict__ workspace_ptr) {
  alignas(64) float added_local_ptr[1];
  __shared__ alignas(64) float passed_shared_ptr[32];
  added_local_ptr[0] = 0x0p+0f/*0.000000e+00*/;
  for (int turn = 0; turn < 4; ++turn) {
    added_local_ptr[0] = (added_local_ptr[0] + workspace_ptr[((((turn * 448) + (((int)threadIdx.y) * 224)) + (((int)blockIdx.x) * 32)) + ((int)threadIdx.x))]);
  }
  int left = 2;
  int width_left = 1;
  if (((int)threadIdx.y) == 1) {
    passed_shared_ptr[(((((int)threadIdx.y) * 32) + ((int)threadIdx.x)) - 32)] = added_local_ptr[0];
  }
  __syncthreads();
  if (((int)threadIdx.y) < 1) {
    added_local_ptr[0] = (added_local_ptr[0] + passed_shared_ptr[((((int)threadIdx.y) * 32) + ((int)threadIdx.x))]);
  }
  __syncthreads();
  if ((((int)threadIdx.y) == 0) && (((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 3)) < 27)) {
    dw_ptr[((((int)blockIdx.x) * 32) + ((int)threadIdx.x))] = added_local_ptr[0];
  }
  if ((((int)threadIdx.y) == 0) && (((((int)blockIdx.x) * 4) + (((int)threadIdx.x) >> 3)) == 27)) {
    dbias_ptr[(((((int)blockIdx.x) * 32) + ((int)threadIdx.x)) - 216)] = added_local_ptr[0];
  }
}
