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

extern "C" __global__ void __launch_bounds__(32, 6) main_kernel(float* __restrict__ dy_ptr, float* __restrict__ workspace_ptr, float* __restrict__ x_ptr, int h, int n, int oh, int ow, int w) {
  alignas(64) float sums_local_ptr[18];
  alignas(64) int tiles_w_local_ptr[1];
  alignas(64) int tiles_h_local_ptr[1];
  alignas(64) int tile_local_ptr[3];
  alignas(64) int step_local_ptr[1];
  alignas(64) int step_local_ptr_1[1];
  alignas(64) int step_local_ptr_2[1];
  alignas(64) float dy_local_ptr[2];
  alignas(64) float x_local_ptr[2];
  alignas(64) int dy_row_local_ptr[1];
  alignas(64) int dy_column_local_ptr[1];
  alignas(64) int dy_at_local_ptr[1];
  alignas(64) int x_row_local_ptr[1];
  alignas(64) int x_at_local_ptr[1];
  __shared__ alignas(64) float passed_shared_ptr[288];
  #pragma unroll
  for (int index = 0; index < 18; ++index) {
    sums_local_ptr[index] = 0x0p+0f/*0.000000e+00*/;
  }
  tiles_w_local_ptr[0] = ((ow + 1) >> 1);
  int tiles_w = tiles_w_local_ptr[0];
  tiles_h_local_ptr[0] = ((oh + 1) >> 1);
  int tiles_h = tiles_h_local_ptr[0];
  tile_local_ptr[0] = (((((((int)blockIdx.x) >> 1) * 4) + ((int)threadIdx.y)) / tiles_w) / tiles_h);
  tile_local_ptr[1] = (((((((int)blockIdx.x) >> 1) * 4) + ((int)threadIdx.y)) / tiles_w) % tiles_h);
  tile_local_ptr[2] = ((((((int)blockIdx.x) >> 1) * 4) + ((int)threadIdx.y)) % tiles_w);
  step_local_ptr[0] = ((8 / tiles_w) / tiles_h);
  int step = step_local_ptr[0];
  step_local_ptr_1[0] = ((8 / tiles_w) % tiles_h);
  int step_1 = step_local_ptr_1[0];
  step_local_ptr_2[0] = (8 % tiles_w);
  int step_2 = step_local_ptr_2[0];
  for (int turn = 0; turn < ((((((n * tiles_h) * tiles_w) + 7) - ((int)threadIdx.y)) - ((((int)blockIdx.x) >> 1) * 4)) / 8); ++turn) {
    dy_row_local_ptr[0] = (tile_local_ptr[1] * 2);
    int dy_row = dy_row_local_ptr[0];
    dy_column_local_ptr[0] = (tile_local_ptr[2] * 2);
    int dy_column = dy_column_local_ptr[0];
    dy_at_local_ptr[0] = ((((((dy_row * ow) * 16) + (dy_column * 16)) + (((tile_local_ptr[0] * oh) * ow) * 16)) + ((((int)blockIdx.x) & 1) * 8)) + ((int)threadIdx.x));
    int dy_at = dy_at_local_ptr[0];
    x_row_local_ptr[0] = (dy_row * 2);
    int x_row = x_row_local_ptr[0];
    x_at_local_ptr[0] = (((((dy_column * 32) + ((x_row * w) * 16)) + (((tile_local_ptr[0] * h) * w) * 16)) + ((((int)blockIdx.x) & 1) * 8)) + ((int)threadIdx.x));
    int x_at = x_at_local_ptr[0];
    *(float2*)(dy_local_ptr + 0) = *(float2*)(dy_ptr + (dy_at * 2));
    float dy = dy_local_ptr[0];
    float dy_1 = dy_local_ptr[1];
    float2 condval;
    if ((dy_column + 1) < ow) {
      condval = *(float2*)(dy_ptr + ((dy_at * 2) + 32));
    } else {
      condval = make_float2(0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/);
    }
    *(float2*)(dy_local_ptr + 0) = condval;
    float dy_2 = dy_local_ptr[0];
    float dy_3 = dy_local_ptr[1];
    float2 condval_1;
    if ((1 <= x_row) && (1 <= dy_column)) {
      condval_1 = *(float2*)(x_ptr + (((x_at * 2) - (w * 32)) - 32));
    } else {
      condval_1 = make_float2(0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/);
    }
    *(float2*)(x_local_ptr + 0) = condval_1;
    float x = x_local_ptr[0];
    float x_1 = x_local_ptr[1];
    sums_local_ptr[0] = (sums_local_ptr[0] + (x * dy));
    sums_local_ptr[1] = (sums_local_ptr[1] + (x_1 * dy_1));
    float2 condval_2;
    if (1 <= x_row) {
      condval_2 = *(float2*)(x_ptr + ((x_at * 2) - (w * 32)));
    } else {
      condval_2 = make_float2(0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/);
    }
    *(float2*)(x_local_ptr + 0) = condval_2;
    float x_2 = x_local_ptr[0];
    float x_3 = x_local_ptr[1];
    sums_local_ptr[2] = (sums_local_ptr[2] + (x_2 * dy));
    sums_local_ptr[3] = (sums_local_ptr[3] + (x_3 * dy_1));
    float2 condval_3;
    if ((1 <= x_row) && (((dy_column * 2) + 1) < w)) {
      condval_3 = *(float2*)(x_ptr + (((x_at * 2) + 32) - (w * 32)));
    } else {
      condval_3 = make_float2(0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/);
    }
    *(float2*)(x_local_ptr + 0) = condval_3;
    float x_4 = x_local_ptr[0];
    float x_5 = x_local_ptr[1];
    sums_local_ptr[4] = (sums_local_ptr[4] + (x_4 * dy));
    sums_local_ptr[0] = (sums_local_ptr[0] + (x_4 * dy_2));
    sums_local_ptr[5] = (sums_local_ptr[5] + (x_5 * dy_1));
    sums_local_ptr[1] = (sums_local_ptr[1] + (x_5 * dy_3));
    float2 condval_4;
    if ((1 <= x_row) && (((dy_column * 2) + 2) < w)) {
      condval_4 = *(float2*)(x_ptr + (((x_at * 2) + 64) - (w * 32)));
    } else {
      condval_4 = make_float2(0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/);
    }
    *(float2*)(x_local_ptr + 0) = condval_4;
    float x_6 = x_local_ptr[0];
    float x_7 = x_local_ptr[1];
    sums_local_ptr[2] = (sums_local_ptr[2] + (x_6 * dy_2));
    sums_local_ptr[3] = (sums_local_ptr[3] + (x_7 * dy_3));
    float2 condval_5;
    if ((1 <= x_row) && (((dy_column * 2) + 3) < w)) {
      condval_5 = *(float2*)(x_ptr + (((x_at * 2) + 96) - (w * 32)));
    } else {
      condval_5 = make_float2(0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/);
    }
    *(float2*)(x_local_ptr + 0) = condval_5;
    float x_8 = x_local_ptr[0];
    float x_9 = x_local_ptr[1];
    sums_local_ptr[4] = (sums_local_ptr[4] + (x_8 * dy_2));
    sums_local_ptr[5] = (sums_local_ptr[5] + (x_9 * dy_3));
    float2 condval_6;
    if (1 <= dy_column) {
      condval_6 = *(float2*)(x_ptr + ((x_at * 2) - 32));
    } else {
      condval_6 = make_float2(0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/);
    }
    *(float2*)(x_local_ptr + 0) = condval_6;
    float x_10 = x_local_ptr[0];
    float x_11 = x_local_ptr[1];
    sums_local_ptr[6] = (sums_local_ptr[6] + (x_10 * dy));
    sums_local_ptr[7] = (sums_local_ptr[7] + (x_11 * dy_1));
    *(float2*)(x_local_ptr + 0) = *(float2*)(x_ptr + (x_at * 2));
    float x_12 = x_local_ptr[0];
    float x_13 = x_local_ptr[1];
    sums_local_ptr[8] = (sums_local_ptr[8] + (x_12 * dy));
    sums_local_ptr[9] = (sums_local_ptr[9] + (x_13 * dy_1));
    float2 condval_7;
    if (((dy_column * 2) + 1) < w) {
      condval_7 = *(float2*)(x_ptr + ((x_at * 2) + 32));
    } else {
      condval_7 = make_float2(0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/);
    }
    *(float2*)(x_local_ptr + 0) = condval_7;
    float x_14 = x_local_ptr[0];
    float x_15 = x_local_ptr[1];
    sums_local_ptr[10] = (sums_local_ptr[10] + (x_14 * dy));
    sums_local_ptr[6] = (sums_local_ptr[6] + (x_14 * dy_2));
    sums_local_ptr[11] = (sums_local_ptr[11] + (x_15 * dy_1));
    sums_local_ptr[7] = (sums_local_ptr[7] + (x_15 * dy_3));
    float2 condval_8;
    if (((dy_column * 2) + 2) < w) {
      condval_8 = *(float2*)(x_ptr + ((x_at * 2) + 64));
    } else {
      condval_8 = make_float2(0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/);
    }
    *(float2*)(x_local_ptr + 0) = condval_8;
    float x_16 = x_local_ptr[0];
    float x_17 = x_local_ptr[1];
    sums_local_ptr[8] = (sums_local_ptr[8] + (x_16 * dy_2));
    sums_local_ptr[9] = (sums_local_ptr[9] + (x_17 * dy_3));
    float2 condval_9;
    if (((dy_column * 2) + 3) < w) {
      condval_9 = *(float2*)(x_ptr + ((x_at * 2) + 96));
    } else {
      condval_9 = make_float2(0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/);
    }
    *(float2*)(x_local_ptr + 0) = condval_9;
    float x_18 = x_local_ptr[0];
    float x_19 = x_local_ptr[1];
    sums_local_ptr[10] = (sums_local_ptr[10] + (x_18 * dy_2));
    sums_local_ptr[11] = (sums_local_ptr[11] + (x_19 * dy_3));
    float2 condval_10;
    if ((dy_row + 1) < oh) {
      condval_10 = *(float2*)(dy_ptr + ((ow * 32) + (dy_at * 2)));
    } else {
      condval_10 = make_float2(0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/);
    }
    *(float2*)(dy_local_ptr + 0) = condval_10;
    float dy_4 = dy_local_ptr[0];
    float dy_5 = dy_local_ptr[1];
    float2 condval_11;
    if (((dy_row + 1) < oh) && ((dy_column + 1) < ow)) {
      condval_11 = *(float2*)(dy_ptr + (((ow * 32) + (dy_at * 2)) + 32));
    } else {
      condval_11 = make_float2(0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/);
    }
    *(float2*)(dy_local_ptr + 0) = condval_11;
    float dy_6 = dy_local_ptr[0];
    float dy_7 = dy_local_ptr[1];
    float2 condval_12;
    if (((x_row + 1) < h) && (1 <= dy_column)) {
      condval_12 = *(float2*)(x_ptr + (((w * 32) + (x_at * 2)) - 32));
    } else {
      condval_12 = make_float2(0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/);
    }
    *(float2*)(x_local_ptr + 0) = condval_12;
    float x_20 = x_local_ptr[0];
    float x_21 = x_local_ptr[1];
    sums_local_ptr[12] = (sums_local_ptr[12] + (x_20 * dy));
    sums_local_ptr[0] = (sums_local_ptr[0] + (x_20 * dy_4));
    sums_local_ptr[13] = (sums_local_ptr[13] + (x_21 * dy_1));
    sums_local_ptr[1] = (sums_local_ptr[1] + (x_21 * dy_5));
    float2 condval_13;
    if ((x_row + 1) < h) {
      condval_13 = *(float2*)(x_ptr + ((w * 32) + (x_at * 2)));
    } else {
      condval_13 = make_float2(0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/);
    }
    *(float2*)(x_local_ptr + 0) = condval_13;
    float x_22 = x_local_ptr[0];
    float x_23 = x_local_ptr[1];
    sums_local_ptr[14] = (sums_local_ptr[14] + (x_22 * dy));
    sums_local_ptr[2] = (sums_local_ptr[2] + (x_22 * dy_4));
    sums_local_ptr[15] = (sums_local_ptr[15] + (x_23 * dy_1));
    sums_local_ptr[3] = (sums_local_ptr[3] + (x_23 * dy_5));
    float2 condval_14;
    if (((x_row + 1) < h) && (((dy_column * 2) + 1) < w)) {
      condval_14 = *(float2*)(x_ptr + (((w * 32) + (x_at * 2)) + 32));
    } else {
      condval_14 = make_float2(0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/);
    }
    *(float2*)(x_local_ptr + 0) = condval_14;
    float x_24 = x_local_ptr[0];
    float x_25 = x_local_ptr[1];
    sums_local_ptr[16] = (sums_local_ptr[16] + (x_24 * dy));
    sums_local_ptr[12] = (sums_local_ptr[12] + (x_24 * dy_2));
    sums_local_ptr[4] = (sums_local_ptr[4] + (x_24 * dy_4));
    sums_local_ptr[0] = (sums_local_ptr[0] + (x_24 * dy_6));
    sums_local_ptr[17] = (sums_local_ptr[17] + (x_25 * dy_1));
    sums_local_ptr[13] = (sums_local_ptr[13] + (x_25 * dy_3));
    sums_local_ptr[5] = (sums_local_ptr[5] + (x_25 * dy_5));
    sums_local_ptr[1] = (sums_local_ptr[1] + (x_25 * dy_7));
    float2 condval_15;
    if (((x_row + 1) < h) && (((dy_column * 2) + 2) < w)) {
      condval_15 = *(float2*)(x_ptr + (((w * 32) + (x_at * 2)) + 64));
    } else {
      condval_15 = make_float2(0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/);
    }
    *(float2*)(x_local_ptr + 0) = condval_15;
    float x_26 = x_local_ptr[0];
    float x_27 = x_local_ptr[1];
    sums_local_ptr[14] = (sums_local_ptr[14] + (x_26 * dy_2));
    sums_local_ptr[2] = (sums_local_ptr[2] + (x_26 * dy_6));
    sums_local_ptr[15] = (sums_local_ptr[15] + (x_27 * dy_3));
    sums_local_ptr[3] = (sums_local_ptr[3] + (x_27 * dy_7));
    float2 condval_16;
    if (((x_row + 1) < h) && (((dy_column * 2) + 3) < w)) {
      condval_16 = *(float2*)(x_ptr + (((w * 32) + (x_at * 2)) + 96));
    } else {
      condval_16 = make_float2(0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/);
    }
    *(float2*)(x_local_ptr + 0) = condval_16;
    float x_28 = x_local_ptr[0];
    float x_29 = x_local_ptr[1];
    sums_local_ptr[16] = (sums_local_ptr[16] + (x_28 * dy_2));
    sums_local_ptr[4] = (sums_local_ptr[4] + (x_28 * dy_6));
    sums_local_ptr[17] = (sums_local_ptr[17] + (x_29 * dy_3));
    sums_local_ptr[5] = (sums_local_ptr[5] + (x_29 * dy_7));
    float2 condval_17;
    if (((x_row + 2) < h) && (1 <= dy_column)) {
      condval_17 = *(float2*)(x_ptr + (((w * 64) + (x_at * 2)) - 32));
    } else {
      condval_17 = make_float2(0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/);
    }
    *(float2*)(x_local_ptr + 0) = condval_17;
    float x_30 = x_local_ptr[0];
    float x_31 = x_local_ptr[1];
    sums_local_ptr[6] = (sums_local_ptr[6] + (x_30 * dy_4));
    sums_local_ptr[7] = (sums_local_ptr[7] + (x_31 * dy_5));
    float2 condval_18;
    if ((x_row + 2) < h) {
      condval_18 = *(float2*)(x_ptr + ((w * 64) + (x_at * 2)));
    } else {
      condval_18 = make_float2(0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/);
    }
    *(float2*)(x_local_ptr + 0) = condval_18;
    float x_32 = x_local_ptr[0];
    float x_33 = x_local_ptr[1];
    sums_local_ptr[8] = (sums_local_ptr[8] + (x_32 * dy_4));
    sums_local_ptr[9] = (sums_local_ptr[9] + (x_33 * dy_5));
    float2 condval_19;
    if (((x_row + 2) < h) && (((dy_column * 2) + 1) < w)) {
      condval_19 = *(float2*)(x_ptr + (((w * 64) + (x_at * 2)) + 32));
    } else {
      condval_19 = make_float2(0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/);
    }
    *(float2*)(x_local_ptr + 0) = condval_19;
    float x_34 = x_local_ptr[0];
    float x_35 = x_local_ptr[1];
    sums_local_ptr[10] = (sums_local_ptr[10] + (x_34 * dy_4));
    sums_local_ptr[6] = (sums_local_ptr[6] + (x_34 * dy_6));
    sums_local_ptr[11] = (sums_local_ptr[11] + (x_35 * dy_5));
    sums_local_ptr[7] = (sums_local_ptr[7] + (x_35 * dy_7));
    float2 condval_20;
    if (((x_row + 2) < h) && (((dy_column * 2) + 2) < w)) {
      condval_20 = *(float2*)(x_ptr + (((w * 64) + (x_at * 2)) + 64));
    } else {
      condval_20 = make_float2(0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/);
    }
    *(float2*)(x_local_ptr + 0) = condval_20;
    float x_36 = x_local_ptr[0];
    float x_37 = x_local_ptr[1];
    sums_local_ptr[8] = (sums_local_ptr[8] + (x_36 * dy_6));
    sums_local_ptr[9] = (sums_local_ptr[9] + (x_37 * dy_7));
    float2 condval_21;
    if (((x_row + 2) < h) && (((dy_column * 2) + 3) < w)) {
      condval_21 = *(float2*)(x_ptr + (((w * 64) + (x_at * 2)) + 96));
    } else {
      condval_21 = make_float2(0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/);
    }
    *(float2*)(x_local_ptr + 0) = condval_21;
    float x_38 = x_local_ptr[0];
    float x_39 = x_local_ptr[1];
    sums_local_ptr[10] = (sums_local_ptr[10] + (x_38 * dy_6));
    sums_local_ptr[11] = (sums_local_ptr[11] + (x_39 * dy_7));
    float2 condval_22;
    if (((x_row + 3) < h) && (1 <= dy_column)) {
      condval_22 = *(float2*)(x_ptr + (((w * 96) + (x_at * 2)) - 32));
    } else {
      condval_22 = make_float2(0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/);
    }
    *(float2*)(x_local_ptr + 0) = condval_22;
    float x_40 = x_local_ptr[0];
    float x_41 = x_local_ptr[1];
    sums_local_ptr[12] = (sums_local_ptr[12] + (x_40 * dy_4));
    sums_local_ptr[13] = (sums_local_ptr[13] + (x_41 * dy_5));
    float2 condval_23;
    if ((x_row + 3) < h) {
      condval_23 = *(float2*)(x_ptr + ((w * 96) + (x_at * 2)));
    } else {
      condval_23 = make_float2(0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/);
    }
    *(float2*)(x_local_ptr + 0) = condval_23;
    float x_42 = x_local_ptr[0];
    float x_43 = x_local_ptr[1];
    sums_local_ptr[14] = (sums_local_ptr[14] + (x_42 * dy_4));
    sums_local_ptr[15] = (sums_local_ptr[15] + (x_43 * dy_5));
    float2 condval_24;
    if (((x_row + 3) < h) && (((dy_column * 2) + 1) < w)) {
      condval_24 = *(float2*)(x_ptr + (((w * 96) + (x_at * 2)) + 32));
    } else {
      condval_24 = make_float2(0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/);
    }
    *(float2*)(x_local_ptr + 0) = condval_24;
    float x_44 = x_local_ptr[0];
    float x_45 = x_local_ptr[1];
    sums_local_ptr[16] = (sums_local_ptr[16] + (x_44 * dy_4));
    sums_local_ptr[12] = (sums_local_ptr[12] + (x_44 * dy_6));
    sums_local_ptr[17] = (sums_local_ptr[17] + (x_45 * dy_5));
    sums_local_ptr[13] = (sums_local_ptr[13] + (x_45 * dy_7));
    float2 condval_25;
    if (((x_row + 3) < h) && (((dy_column * 2) + 2) < w)) {
      condval_25 = *(float2*)(x_ptr + (((w * 96) + (x_at * 2)) + 64));
    } else {
      condval_25 = make_float2(0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/);
    }
    *(float2*)(x_local_ptr + 0) = condval_25;
    float x_46 = x_local_ptr[0];
    float x_47 = x_local_ptr[1];
    sums_local_ptr[14] = (sums_local_ptr[14] + (x_46 * dy_6));
    sums_local_ptr[15] = (sums_local_ptr[15] + (x_47 * dy_7));
    float2 condval_26;
    if (((x_row + 3) < h) && (((dy_column * 2) + 3) < w)) {
      condval_26 = *(float2*)(x_ptr + (((w * 96) + (x_at * 2)) + 96));
    } else {
      condval_26 = make_float2(0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/);
    }
    *(float2*)(x_local_ptr + 0) = condval_26;
    float x_48 = x_local_ptr[0];
    float x_49 = x_local_ptr[1];
    sums_local_ptr[16] = (sums_local_ptr[16] + (x_48 * dy_6));
    sums_local_ptr[17] = (sums_local_ptr[17] + (x_49 * dy_7));
    tile_local_ptr[0] = (tile_local_ptr[0] + step);
    tile_local_ptr[1] = (tile_local_ptr[1] + step_1);
    tile_local_ptr[2] = (tile_local_ptr[2] + step_2);
    if (tiles_w <= tile_local_ptr[2]) {
      tile_local_ptr[2] = (tile_local_ptr[2] - tiles_w);
      tile_local_ptr[1] = (tile_local_ptr[1] + 1);
    }
    if (tiles_h <= tile_local_ptr[1]) {
      tile_local_ptr[1] = (tile_local_ptr[1] - tiles_h);
      tile_local_ptr[0] = (tile_local_ptr[0] + 1);
    }
  }
  for (int halving = 0; halving < 2; ++halving) {
    int left = ((3 >> halving) + 1);
    int width_left = ((3 >> (halving + 1)) + 1);
    if (((3 >> (halving + 1)) < ((int)threadIdx.y)) && (((int)threadIdx.y) <= (3 >> halving))) {
      passed_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) - ((3 >> (halving + 1)) * 8)) - 8)] = sums_local_ptr[0];
      passed_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 8) - ((3 >> (halving + 1)) * 8))] = sums_local_ptr[1];
      passed_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 24) - ((3 >> (halving + 1)) * 8))] = sums_local_ptr[2];
      passed_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 40) - ((3 >> (halving + 1)) * 8))] = sums_local_ptr[3];
      passed_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 56) - ((3 >> (halving + 1)) * 8))] = sums_local_ptr[4];
      passed_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 72) - ((3 >> (halving + 1)) * 8))] = sums_local_ptr[5];
      passed_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 88) - ((3 >> (halving + 1)) * 8))] = sums_local_ptr[6];
      passed_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 104) - ((3 >> (halving + 1)) * 8))] = sums_local_ptr[7];
      passed_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 120) - ((3 >> (halving + 1)) * 8))] = sums_local_ptr[8];
      passed_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 136) - ((3 >> (halving + 1)) * 8))] = sums_local_ptr[9];
      passed_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 152) - ((3 >> (halving + 1)) * 8))] = sums_local_ptr[10];
      passed_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 168) - ((3 >> (halving + 1)) * 8))] = sums_local_ptr[11];
      passed_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 184) - ((3 >> (halving + 1)) * 8))] = sums_local_ptr[12];
      passed_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 200) - ((3 >> (halving + 1)) * 8))] = sums_local_ptr[13];
      passed_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 216) - ((3 >> (halving + 1)) * 8))] = sums_local_ptr[14];
      passed_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 232) - ((3 >> (halving + 1)) * 8))] = sums_local_ptr[15];
      passed_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 248) - ((3 >> (halving + 1)) * 8))] = sums_local_ptr[16];
      passed_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 264) - ((3 >> (halving + 1)) * 8))] = sums_local_ptr[17];
    }
    __syncthreads();
    if ((((int)threadIdx.y) + (3 >> (halving + 1))) < (3 >> halving)) {
      sums_local_ptr[0] = (sums_local_ptr[0] + passed_shared_ptr[((((int)threadIdx.y) * 8) + ((int)threadIdx.x))]);
      sums_local_ptr[1] = (sums_local_ptr[1] + passed_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 16)]);
      sums_local_ptr[2] = (sums_local_ptr[2] + passed_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 32)]);
      sums_local_ptr[3] = (sums_local_ptr[3] + passed_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 48)]);
      sums_local_ptr[4] = (sums_local_ptr[4] + passed_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 64)]);
      sums_local_ptr[5] = (sums_local_ptr[5] + passed_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 80)]);
      sums_local_ptr[6] = (sums_local_ptr[6] + passed_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 96)]);
      sums_local_ptr[7] = (sums_local_ptr[7] + passed_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 112)]);
      sums_local_ptr[8] = (sums_local_ptr[8] + passed_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 128)]);
      sums_local_ptr[9] = (sums_local_ptr[9] + passed_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 144)]);
      sums_local_ptr[10] = (sums_local_ptr[10] + passed_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 160)]);
      sums_local_ptr[11] = (sums_local_ptr[11] + passed_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 176)]);
      sums_local_ptr[12] = (sums_local_ptr[12] + passed_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 192)]);
      sums_local_ptr[13] = (sums_local_ptr[13] + passed_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 208)]);
      sums_local_ptr[14] = (sums_local_ptr[14] + passed_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 224)]);
      sums_local_ptr[15] = (sums_local_ptr[15] + passed_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 240)]);
      sums_local_ptr[16] = (sums_local_ptr[16] + passed_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 256)]);
      sums_local_ptr[17] = (sums_local_ptr[17] + passed_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 272)]);
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
  for (int turn = 0; turn < 2; ++turn) {
    added_local_ptr[0] = (added_local_ptr[0] + workspace_ptr[(((turn * 288) + (((int)blockIdx.x) * 32)) + ((int)threadIdx.x))]);
  }
  dw_ptr[((((int)blockIdx.x) * 32) + ((int)threadIdx.x))] = added_local_ptr[0];
}
