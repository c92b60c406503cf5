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

extern "C" __global__ void __launch_bounds__(64, 2) main_kernel(float* __restrict__ dy_ptr, float* __restrict__ workspace_ptr, float* __restrict__ x_ptr, int n) {
  alignas(64) float sums_local_ptr[18];
  alignas(64) float dy_local_ptr[2];
  alignas(64) float x_local_ptr[2];
  alignas(64) int dy_row_local_ptr[1];
  alignas(64) int dy_column_local_ptr[1];
  alignas(64) int dy_at_local_ptr[1];
  alignas(64) int x_row_local_ptr[1];
  alignas(64) int x_at_local_ptr[1];
  __shared__ alignas(64) float passed_shared_ptr[576];
  #pragma unroll
  for (int index = 0; index < 18; ++index) {
    sums_local_ptr[index] = 0x0p+0f/*0.000000e+00*/;
  }
  for (int turn = 0; turn < (((n + 3) - (((int)blockIdx.x) >> 1)) / 4); ++turn) {
    int image = ((turn * 4) + (((int)blockIdx.x) >> 1));
    for (int step = 0; step < 2; ++step) {
      dy_row_local_ptr[0] = (((((int)threadIdx.y) >> 2) * 4) + (step * 2));
      int dy_row = dy_row_local_ptr[0];
      dy_column_local_ptr[0] = ((((int)threadIdx.y) & 3) * 2);
      int dy_column = dy_column_local_ptr[0];
      dy_at_local_ptr[0] = ((((((turn * 4096) + ((((int)blockIdx.x) >> 1) * 1024)) + (dy_row * 128)) + (dy_column * 16)) + ((((int)blockIdx.x) & 1) * 8)) + ((int)threadIdx.x));
      int dy_at = dy_at_local_ptr[0];
      x_row_local_ptr[0] = dy_row;
      int x_row = x_row_local_ptr[0];
      x_at_local_ptr[0] = ((((((turn * 4096) + ((((int)blockIdx.x) >> 1) * 1024)) + (x_row * 128)) + (dy_column * 16)) + ((((int)blockIdx.x) & 1) * 8)) + ((int)threadIdx.x));
      int x_at = x_at_local_ptr[0];
      *(float2*)(dy_local_ptr + 0) = *(float2*)(dy_ptr + (dy_at * 2));
      float dy = dy_local_ptr[0];
      float dy_1 = dy_local_ptr[1];
      *(float2*)(dy_local_ptr + 0) = *(float2*)(dy_ptr + ((dy_at * 2) + 32));
      float dy_2 = dy_local_ptr[0];
      float dy_3 = dy_local_ptr[1];
      float2 condval;
      if ((1 <= x_row) && (1 <= dy_column)) {
        condval = *(float2*)(x_ptr + ((x_at * 2) - 288));
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
        condval_1 = *(float2*)(x_ptr + ((x_at * 2) - 256));
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
        condval_2 = *(float2*)(x_ptr + ((x_at * 2) - 224));
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
        condval_3 = *(float2*)(x_ptr + ((x_at * 2) - 192));
      } else {
        condval_3 = make_float2(0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/);
      }
      *(float2*)(x_local_ptr + 0) = condval_3;
      float x_6 = x_local_ptr[0];
      float x_7 = x_local_ptr[1];
      sums_local_ptr[4] = (sums_local_ptr[4] + (x_6 * dy_2));
      sums_local_ptr[5] = (sums_local_ptr[5] + (x_7 * dy_3));
      *(float2*)(dy_local_ptr + 0) = *(float2*)(dy_ptr + ((dy_at * 2) + 256));
      float dy_4 = dy_local_ptr[0];
      float dy_5 = dy_local_ptr[1];
      *(float2*)(dy_local_ptr + 0) = *(float2*)(dy_ptr + ((dy_at * 2) + 288));
      float dy_6 = dy_local_ptr[0];
      float dy_7 = dy_local_ptr[1];
      float2 condval_4;
      if (1 <= dy_column) {
        condval_4 = *(float2*)(x_ptr + ((x_at * 2) - 32));
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
      *(float2*)(x_local_ptr + 0) = *(float2*)(x_ptr + ((x_at * 2) + 32));
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
        condval_5 = *(float2*)(x_ptr + ((x_at * 2) + 64));
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
        condval_6 = *(float2*)(x_ptr + ((x_at * 2) + 224));
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
      *(float2*)(x_local_ptr + 0) = *(float2*)(x_ptr + ((x_at * 2) + 256));
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
      *(float2*)(x_local_ptr + 0) = *(float2*)(x_ptr + ((x_at * 2) + 288));
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
        condval_7 = *(float2*)(x_ptr + ((x_at * 2) + 320));
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
        condval_8 = *(float2*)(x_ptr + ((x_at * 2) + 480));
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
        condval_9 = *(float2*)(x_ptr + ((x_at * 2) + 512));
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
        condval_10 = *(float2*)(x_ptr + ((x_at * 2) + 544));
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
        condval_11 = *(float2*)(x_ptr + ((x_at * 2) + 576));
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
  for (int halving = 0; halving < 3; ++halving) {
    int left = ((7 >> halving) + 1);
    int width_left = ((7 >> (halving + 1)) + 1);
    if (((7 >> (halving + 1)) < ((int)threadIdx.y)) && (((int)threadIdx.y) <= (7 >> halving))) {
      passed_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) - ((7 >> (halving + 1)) * 8)) - 8)] = sums_local_ptr[0];
      passed_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 24) - ((7 >> (halving + 1)) * 8))] = sums_local_ptr[1];
      passed_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 56) - ((7 >> (halving + 1)) * 8))] = sums_local_ptr[2];
      passed_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 88) - ((7 >> (halving + 1)) * 8))] = sums_local_ptr[3];
      passed_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 120) - ((7 >> (halving + 1)) * 8))] = sums_local_ptr[4];
      passed_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 152) - ((7 >> (halving + 1)) * 8))] = sums_local_ptr[5];
      passed_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 184) - ((7 >> (halving + 1)) * 8))] = sums_local_ptr[6];
      passed_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 216) - ((7 >> (halving + 1)) * 8))] = sums_local_ptr[7];
      passed_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 248) - ((7 >> (halving + 1)) * 8))] = sums_local_ptr[8];
      passed_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 280) - ((7 >> (halving + 1)) * 8))] = sums_local_ptr[9];
      passed_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 312) - ((7 >> (halving + 1)) * 8))] = sums_local_ptr[10];
      passed_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 344) - ((7 >> (halving + 1)) * 8))] = sums_local_ptr[11];
      passed_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 376) - ((7 >> (halving + 1)) * 8))] = sums_local_ptr[12];
      passed_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 408) - ((7 >> (halving + 1)) * 8))] = sums_local_ptr[13];
      passed_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 440) - ((7 >> (halving + 1)) * 8))] = sums_local_ptr[14];
      passed_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 472) - ((7 >> (halving + 1)) * 8))] = sums_local_ptr[15];
      passed_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 504) - ((7 >> (halving + 1)) * 8))] = sums_local_ptr[16];
      passed_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 536) - ((7 >> (halving + 1)) * 8))] = sums_local_ptr[17];
    }
    __syncthreads();
    if ((((int)threadIdx.y) + (7 >> (halving + 1))) < (7 >> halving)) {
      sums_local_ptr[0] = (sums_local_ptr[0] + passed_shared_ptr[((((int)threadIdx.y) * 8) + ((int)threadIdx.x))]);
      sums_local_ptr[1] = (sums_local_ptr[1] + passed_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 32)]);
      sums_local_ptr[2] = (sums_local_ptr[2] + passed_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 64)]);
      sums_local_ptr[3] = (sums_local_ptr[3] + passed_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 96)]);
      sums_local_ptr[4] = (sums_local_ptr[4] + passed_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 128)]);
      sums_local_ptr[5] = (sums_local_ptr[5] + passed_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 160)]);
      sums_local_ptr[6] = (sums_local_ptr[6] + passed_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 192)]);
      sums_local_ptr[7] = (sums_local_ptr[7] + passed_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 224)]);
      sums_local_ptr[8] = (sums_local_ptr[8] + passed_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 256)]);
      sums_local_ptr[9] = (sums_local_ptr[9] + passed_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 288)]);
      sums_local_ptr[10] = (sums_local_ptr[10] + passed_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 320)]);
      sums_local_ptr[11] = (sums_local_ptr[11] + passed_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 352)]);
      sums_local_ptr[12] = (sums_local_ptr[12] + passed_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 384)]);
      sums_local_ptr[13] = (sums_local_ptr[13] + passed_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 416)]);
      sums_local_ptr[14] = (sums_local_ptr[14] + passed_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 448)]);
      sums_local_ptr[15] = (sums_local_ptr[15] + passed_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 480)]);
      sums_local_ptr[16] = (sums_local_ptr[16] + passed_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 512)]);
      sums_local_ptr[17] = (sums_local_ptr[17] + passed_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 544)]);
    }
    __syncthreads();
  }
  if (((int)threadIdx.y) == 0) {
    int first = ((((int)blockIdx.x) * 144) + (((int)threadIdx.x) * 18));
    workspace_ptr[((((int)blockIdx.x) * 144) + (((int)threadIdx.x) * 18))] = sums_local_ptr[0];
    workspace_ptr[(((((int)blockIdx.x) * 144) + (((int)threadIdx.x) * 18)) + 9)] = sums_local_ptr[1];
    workspace_ptr[(((((int)blockIdx.x) * 144) + (((int)threadIdx.x) * 18)) + 1)] = sums_local_ptr[2];
    workspace_ptr[(((((int)blockIdx.x) * 144) + (((int)threadIdx.x) * 18)) + 10)] = sums_local_ptr[3];
    workspace_ptr[(((((int)blockIdx.x) * 144) + (((int)threadIdx.x) * 18)) + 2)] = sums_local_ptr[4];
    workspace_ptr[(((((int)blockIdx.x) * 144) + (((int)threadIdx.x) * 18)) + 11)] = sums_local_ptr[5];
    workspace_ptr[(((((int)blockIdx.x) * 144) + (((int)threadIdx.x) * 18)) + 3)] = sums_local_ptr[6];
    workspace_ptr[(((((int)blockIdx.x) * 144) + (((int)threadIdx.x) * 18)) + 12)] = sums_local_ptr[7];
    workspace_ptr[(((((int)blockIdx.x) * 144) + (((int)threadIdx.x) * 18)) + 4)] = sums_local_ptr[8];
    workspace_ptr[(((((int)blockIdx.x) * 144) + (((int)threadIdx.x) * 18)) + 13)] = sums_local_ptr[9];
    workspace_ptr[(((((int)blockIdx.x) * 144) + (((int)threadIdx.x) * 18)) + 5)] = sums_local_ptr[10];
    workspace_ptr[(((((int)blockIdx.x) * 144) + (((int)threadIdx.x) * 18)) + 14)] = sums_local_ptr[11];
    workspace_ptr[(((((int)blockIdx.x) * 144) + (((int)threadIdx.x) * 18)) + 6)] = sums_local_ptr[12];
    workspace_ptr[(((((int)blockIdx.x) * 144) + (((int)threadIdx.x) * 18)) + 15)] = sums_local_ptr[13];
    workspace_ptr[(((((int)blockIdx.x) * 144) + (((int)threadIdx.x) * 18)) + 7)] = sums_local_ptr[14];
    workspace_ptr[(((((int)blockIdx.x) * 144) + (((int)threadIdx.x) * 18)) + 16)] = sums_local_ptr[15];
    workspace_ptr[(((((int)blockIdx.x) * 144) + (((int)threadIdx.x) * 18)) + 8)] = sums_local_ptr[16];
    workspace_ptr[(((((int)blockIdx.x) * 144) + (((int)threadIdx.x) * 18)) + 17)] = sums_local_ptr[17];
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
