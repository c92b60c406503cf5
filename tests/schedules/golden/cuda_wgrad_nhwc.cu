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
  alignas(64) float sums_local_ptr[36];
  alignas(64) float dy_local_ptr[4];
  alignas(64) float x_local_ptr[4];
  alignas(64) int dy_row_local_ptr[1];
  alignas(64) int dy_column_local_ptr[1];
  alignas(64) int dy_at_local_ptr[1];
  alignas(64) int x_row_local_ptr[1];
  alignas(64) int x_at_local_ptr[1];
  __shared__ alignas(64) float passed_shared_ptr[1152];
  #pragma unroll
  for (int index = 0; index < 36; ++index) {
    sums_local_ptr[index] = 0x0p+0f/*0.000000e+00*/;
  }
  for (int turn = 0; turn < ((((n + 3) - (((int)threadIdx.y) >> 2)) - (((int)blockIdx.x) * 2)) / 4); ++turn) {
    int image = (((turn * 4) + (((int)blockIdx.x) * 2)) + (((int)threadIdx.y) >> 2));
    for (int step = 0; step < 2; ++step) {
      dy_row_local_ptr[0] = ((((((int)threadIdx.y) & 3) >> 1) * 4) + (step * 2));
      int dy_row = dy_row_local_ptr[0];
      dy_column_local_ptr[0] = ((((int)threadIdx.y) & 1) * 4);
      int dy_column = dy_column_local_ptr[0];
      dy_at_local_ptr[0] = ((((((turn * 2048) + (((int)blockIdx.x) * 1024)) + ((((int)threadIdx.y) >> 2) * 512)) + (dy_row * 64)) + (dy_column * 8)) + ((int)threadIdx.x));
      int dy_at = dy_at_local_ptr[0];
      x_row_local_ptr[0] = dy_row;
      int x_row = x_row_local_ptr[0];
      x_at_local_ptr[0] = ((((((turn * 2048) + (((int)blockIdx.x) * 1024)) + ((((int)threadIdx.y) >> 2) * 512)) + (x_row * 64)) + (dy_column * 8)) + ((int)threadIdx.x));
      int x_at = x_at_local_ptr[0];
      *(float4*)(dy_local_ptr + 0) = *(float4*)(dy_ptr + (dy_at * 4));
      float dy = dy_local_ptr[0];
      float dy_1 = dy_local_ptr[1];
      float dy_2 = dy_local_ptr[2];
      float dy_3 = dy_local_ptr[3];
      *(float4*)(dy_local_ptr + 0) = *(float4*)(dy_ptr + ((dy_at * 4) + 32));
      float dy_4 = dy_local_ptr[0];
      float dy_5 = dy_local_ptr[1];
      float dy_6 = dy_local_ptr[2];
      float dy_7 = dy_local_ptr[3];
      *(float4*)(dy_local_ptr + 0) = *(float4*)(dy_ptr + ((dy_at * 4) + 64));
      float dy_8 = dy_local_ptr[0];
      float dy_9 = dy_local_ptr[1];
      float dy_10 = dy_local_ptr[2];
      float dy_11 = dy_local_ptr[3];
      *(float4*)(dy_local_ptr + 0) = *(float4*)(dy_ptr + ((dy_at * 4) + 96));
      float dy_12 = dy_local_ptr[0];
      float dy_13 = dy_local_ptr[1];
      float dy_14 = dy_local_ptr[2];
      float dy_15 = dy_local_ptr[3];
      float4 condval;
      if ((1 <= x_row) && (1 <= dy_column)) {
        condval = *(float4*)(x_ptr + ((x_at * 4) - 288));
      } else {
        condval = make_float4(0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/);
      }
      *(float4*)(x_local_ptr + 0) = condval;
      float x = x_local_ptr[0];
      float x_1 = x_local_ptr[1];
      float x_2 = x_local_ptr[2];
      float x_3 = x_local_ptr[3];
      sums_local_ptr[0] = (sums_local_ptr[0] + (x * dy));
      sums_local_ptr[1] = (sums_local_ptr[1] + (x_1 * dy_1));
      sums_local_ptr[2] = (sums_local_ptr[2] + (x_2 * dy_2));
      sums_local_ptr[3] = (sums_local_ptr[3] + (x_3 * dy_3));
      float4 condval_1;
      if (1 <= x_row) {
        condval_1 = *(float4*)(x_ptr + ((x_at * 4) - 256));
      } else {
        condval_1 = make_float4(0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/);
      }
      *(float4*)(x_local_ptr + 0) = condval_1;
      float x_4 = x_local_ptr[0];
      float x_5 = x_local_ptr[1];
      float x_6 = x_local_ptr[2];
      float x_7 = x_local_ptr[3];
      sums_local_ptr[4] = (sums_local_ptr[4] + (x_4 * dy));
      sums_local_ptr[0] = (sums_local_ptr[0] + (x_4 * dy_4));
      sums_local_ptr[5] = (sums_local_ptr[5] + (x_5 * dy_1));
      sums_local_ptr[1] = (sums_local_ptr[1] + (x_5 * dy_5));
      sums_local_ptr[6] = (sums_local_ptr[6] + (x_6 * dy_2));
      sums_local_ptr[2] = (sums_local_ptr[2] + (x_6 * dy_6));
      sums_local_ptr[7] = (sums_local_ptr[7] + (x_7 * dy_3));
      sums_local_ptr[3] = (sums_local_ptr[3] + (x_7 * dy_7));
      float4 condval_2;
      if (1 <= x_row) {
        condval_2 = *(float4*)(x_ptr + ((x_at * 4) - 224));
      } else {
        condval_2 = make_float4(0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/);
      }
      *(float4*)(x_local_ptr + 0) = condval_2;
      float x_8 = x_local_ptr[0];
      float x_9 = x_local_ptr[1];
      float x_10 = x_local_ptr[2];
      float x_11 = x_local_ptr[3];
      sums_local_ptr[8] = (sums_local_ptr[8] + (x_8 * dy));
      sums_local_ptr[4] = (sums_local_ptr[4] + (x_8 * dy_4));
      sums_local_ptr[0] = (sums_local_ptr[0] + (x_8 * dy_8));
      sums_local_ptr[9] = (sums_local_ptr[9] + (x_9 * dy_1));
      sums_local_ptr[5] = (sums_local_ptr[5] + (x_9 * dy_5));
      sums_local_ptr[1] = (sums_local_ptr[1] + (x_9 * dy_9));
      sums_local_ptr[10] = (sums_local_ptr[10] + (x_10 * dy_2));
      sums_local_ptr[6] = (sums_local_ptr[6] + (x_10 * dy_6));
      sums_local_ptr[2] = (sums_local_ptr[2] + (x_10 * dy_10));
      sums_local_ptr[11] = (sums_local_ptr[11] + (x_11 * dy_3));
      sums_local_ptr[7] = (sums_local_ptr[7] + (x_11 * dy_7));
      sums_local_ptr[3] = (sums_local_ptr[3] + (x_11 * dy_11));
      float4 condval_3;
      if (1 <= x_row) {
        condval_3 = *(float4*)(x_ptr + ((x_at * 4) - 192));
      } else {
        condval_3 = make_float4(0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/);
      }
      *(float4*)(x_local_ptr + 0) = condval_3;
      float x_12 = x_local_ptr[0];
      float x_13 = x_local_ptr[1];
      float x_14 = x_local_ptr[2];
      float x_15 = x_local_ptr[3];
      sums_local_ptr[8] = (sums_local_ptr[8] + (x_12 * dy_4));
      sums_local_ptr[4] = (sums_local_ptr[4] + (x_12 * dy_8));
      sums_local_ptr[0] = (sums_local_ptr[0] + (x_12 * dy_12));
      sums_local_ptr[9] = (sums_local_ptr[9] + (x_13 * dy_5));
      sums_local_ptr[5] = (sums_local_ptr[5] + (x_13 * dy_9));
      sums_local_ptr[1] = (sums_local_ptr[1] + (x_13 * dy_13));
      sums_local_ptr[10] = (sums_local_ptr[10] + (x_14 * dy_6));
      sums_local_ptr[6] = (sums_local_ptr[6] + (x_14 * dy_10));
      sums_local_ptr[2] = (sums_local_ptr[2] + (x_14 * dy_14));
      sums_local_ptr[11] = (sums_local_ptr[11] + (x_15 * dy_7));
      sums_local_ptr[7] = (sums_local_ptr[7] + (x_15 * dy_11));
      sums_local_ptr[3] = (sums_local_ptr[3] + (x_15 * dy_15));
      float4 condval_4;
      if (1 <= x_row) {
        condval_4 = *(float4*)(x_ptr + ((x_at * 4) - 160));
      } else {
        condval_4 = make_float4(0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/);
      }
      *(float4*)(x_local_ptr + 0) = condval_4;
      float x_16 = x_local_ptr[0];
      float x_17 = x_local_ptr[1];
      float x_18 = x_local_ptr[2];
      float x_19 = x_local_ptr[3];
      sums_local_ptr[8] = (sums_local_ptr[8] + (x_16 * dy_8));
      sums_local_ptr[4] = (sums_local_ptr[4] + (x_16 * dy_12));
      sums_local_ptr[9] = (sums_local_ptr[9] + (x_17 * dy_9));
      sums_local_ptr[5] = (sums_local_ptr[5] + (x_17 * dy_13));
      sums_local_ptr[10] = (sums_local_ptr[10] + (x_18 * dy_10));
      sums_local_ptr[6] = (sums_local_ptr[6] + (x_18 * dy_14));
      sums_local_ptr[11] = (sums_local_ptr[11] + (x_19 * dy_11));
      sums_local_ptr[7] = (sums_local_ptr[7] + (x_19 * dy_15));
      float4 condval_5;
      if ((1 <= x_row) && (dy_column < 4)) {
        condval_5 = *(float4*)(x_ptr + ((x_at * 4) - 128));
      } else {
        condval_5 = make_float4(0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/);
      }
      *(float4*)(x_local_ptr + 0) = condval_5;
      float x_20 = x_local_ptr[0];
      float x_21 = x_local_ptr[1];
      float x_22 = x_local_ptr[2];
      float x_23 = x_local_ptr[3];
      sums_local_ptr[8] = (sums_local_ptr[8] + (x_20 * dy_12));
      sums_local_ptr[9] = (sums_local_ptr[9] + (x_21 * dy_13));
      sums_local_ptr[10] = (sums_local_ptr[10] + (x_22 * dy_14));
      sums_local_ptr[11] = (sums_local_ptr[11] + (x_23 * dy_15));
      *(float4*)(dy_local_ptr + 0) = *(float4*)(dy_ptr + ((dy_at * 4) + 256));
      float dy_16 = dy_local_ptr[0];
      float dy_17 = dy_local_ptr[1];
      float dy_18 = dy_local_ptr[2];
      float dy_19 = dy_local_ptr[3];
      *(float4*)(dy_local_ptr + 0) = *(float4*)(dy_ptr + ((dy_at * 4) + 288));
      float dy_20 = dy_local_ptr[0];
      float dy_21 = dy_local_ptr[1];
      float dy_22 = dy_local_ptr[2];
      float dy_23 = dy_local_ptr[3];
      *(float4*)(dy_local_ptr + 0) = *(float4*)(dy_ptr + ((dy_at * 4) + 320));
      float dy_24 = dy_local_ptr[0];
      float dy_25 = dy_local_ptr[1];
      float dy_26 = dy_local_ptr[2];
      float dy_27 = dy_local_ptr[3];
      *(float4*)(dy_local_ptr + 0) = *(float4*)(dy_ptr + ((dy_at * 4) + 352));
      float dy_28 = dy_local_ptr[0];
      float dy_29 = dy_local_ptr[1];
      float dy_30 = dy_local_ptr[2];
      float dy_31 = dy_local_ptr[3];
      float4 condval_6;
      if (1 <= dy_column) {
        condval_6 = *(float4*)(x_ptr + ((x_at * 4) - 32));
      } else {
        condval_6 = make_float4(0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/);
      }
      *(float4*)(x_local_ptr + 0) = condval_6;
      float x_24 = x_local_ptr[0];
      float x_25 = x_local_ptr[1];
      float x_26 = x_local_ptr[2];
      float x_27 = x_local_ptr[3];
      sums_local_ptr[12] = (sums_local_ptr[12] + (x_24 * dy));
      sums_local_ptr[0] = (sums_local_ptr[0] + (x_24 * dy_16));
      sums_local_ptr[13] = (sums_local_ptr[13] + (x_25 * dy_1));
      sums_local_ptr[1] = (sums_local_ptr[1] + (x_25 * dy_17));
      sums_local_ptr[14] = (sums_local_ptr[14] + (x_26 * dy_2));
      sums_local_ptr[2] = (sums_local_ptr[2] + (x_26 * dy_18));
      sums_local_ptr[15] = (sums_local_ptr[15] + (x_27 * dy_3));
      sums_local_ptr[3] = (sums_local_ptr[3] + (x_27 * dy_19));
      *(float4*)(x_local_ptr + 0) = *(float4*)(x_ptr + (x_at * 4));
      float x_28 = x_local_ptr[0];
      float x_29 = x_local_ptr[1];
      float x_30 = x_local_ptr[2];
      float x_31 = x_local_ptr[3];
      sums_local_ptr[16] = (sums_local_ptr[16] + (x_28 * dy));
      sums_local_ptr[12] = (sums_local_ptr[12] + (x_28 * dy_4));
      sums_local_ptr[4] = (sums_local_ptr[4] + (x_28 * dy_16));
      sums_local_ptr[0] = (sums_local_ptr[0] + (x_28 * dy_20));
      sums_local_ptr[17] = (sums_local_ptr[17] + (x_29 * dy_1));
      sums_local_ptr[13] = (sums_local_ptr[13] + (x_29 * dy_5));
      sums_local_ptr[5] = (sums_local_ptr[5] + (x_29 * dy_17));
      sums_local_ptr[1] = (sums_local_ptr[1] + (x_29 * dy_21));
      sums_local_ptr[18] = (sums_local_ptr[18] + (x_30 * dy_2));
      sums_local_ptr[14] = (sums_local_ptr[14] + (x_30 * dy_6));
      sums_local_ptr[6] = (sums_local_ptr[6] + (x_30 * dy_18));
      sums_local_ptr[2] = (sums_local_ptr[2] + (x_30 * dy_22));
      sums_local_ptr[19] = (sums_local_ptr[19] + (x_31 * dy_3));
      sums_local_ptr[15] = (sums_local_ptr[15] + (x_31 * dy_7));
      sums_local_ptr[7] = (sums_local_ptr[7] + (x_31 * dy_19));
      sums_local_ptr[3] = (sums_local_ptr[3] + (x_31 * dy_23));
      *(float4*)(x_local_ptr + 0) = *(float4*)(x_ptr + ((x_at * 4) + 32));
      float x_32 = x_local_ptr[0];
      float x_33 = x_local_ptr[1];
      float x_34 = x_local_ptr[2];
      float x_35 = x_local_ptr[3];
      sums_local_ptr[20] = (sums_local_ptr[20] + (x_32 * dy));
      sums_local_ptr[16] = (sums_local_ptr[16] + (x_32 * dy_4));
      sums_local_ptr[12] = (sums_local_ptr[12] + (x_32 * dy_8));
      sums_local_ptr[8] = (sums_local_ptr[8] + (x_32 * dy_16));
      sums_local_ptr[4] = (sums_local_ptr[4] + (x_32 * dy_20));
      sums_local_ptr[0] = (sums_local_ptr[0] + (x_32 * dy_24));
      sums_local_ptr[21] = (sums_local_ptr[21] + (x_33 * dy_1));
      sums_local_ptr[17] = (sums_local_ptr[17] + (x_33 * dy_5));
      sums_local_ptr[13] = (sums_local_ptr[13] + (x_33 * dy_9));
      sums_local_ptr[9] = (sums_local_ptr[9] + (x_33 * dy_17));
      sums_local_ptr[5] = (sums_local_ptr[5] + (x_33 * dy_21));
      sums_local_ptr[1] = (sums_local_ptr[1] + (x_33 * dy_25));
      sums_local_ptr[22] = (sums_local_ptr[22] + (x_34 * dy_2));
      sums_local_ptr[18] = (sums_local_ptr[18] + (x_34 * dy_6));
      sums_local_ptr[14] = (sums_local_ptr[14] + (x_34 * dy_10));
      sums_local_ptr[10] = (sums_local_ptr[10] + (x_34 * dy_18));
      sums_local_ptr[6] = (sums_local_ptr[6] + (x_34 * dy_22));
      sums_local_ptr[2] = (sums_local_ptr[2] + (x_34 * dy_26));
      sums_local_ptr[23] = (sums_local_ptr[23] + (x_35 * dy_3));
      sums_local_ptr[19] = (sums_local_ptr[19] + (x_35 * dy_7));
      sums_local_ptr[15] = (sums_local_ptr[15] + (x_35 * dy_11));
      sums_local_ptr[11] = (sums_local_ptr[11] + (x_35 * dy_19));
      sums_local_ptr[7] = (sums_local_ptr[7] + (x_35 * dy_23));
      sums_local_ptr[3] = (sums_local_ptr[3] + (x_35 * dy_27));
      *(float4*)(x_local_ptr + 0) = *(float4*)(x_ptr + ((x_at * 4) + 64));
      float x_36 = x_local_ptr[0];
      float x_37 = x_local_ptr[1];
      float x_38 = x_local_ptr[2];
      float x_39 = x_local_ptr[3];
      sums_local_ptr[20] = (sums_local_ptr[20] + (x_36 * dy_4));
      sums_local_ptr[16] = (sums_local_ptr[16] + (x_36 * dy_8));
      sums_local_ptr[12] = (sums_local_ptr[12] + (x_36 * dy_12));
      sums_local_ptr[8] = (sums_local_ptr[8] + (x_36 * dy_20));
      sums_local_ptr[4] = (sums_local_ptr[4] + (x_36 * dy_24));
      sums_local_ptr[0] = (sums_local_ptr[0] + (x_36 * dy_28));
      sums_local_ptr[21] = (sums_local_ptr[21] + (x_37 * dy_5));
      sums_local_ptr[17] = (sums_local_ptr[17] + (x_37 * dy_9));
      sums_local_ptr[13] = (sums_local_ptr[13] + (x_37 * dy_13));
      sums_local_ptr[9] = (sums_local_ptr[9] + (x_37 * dy_21));
      sums_local_ptr[5] = (sums_local_ptr[5] + (x_37 * dy_25));
      sums_local_ptr[1] = (sums_local_ptr[1] + (x_37 * dy_29));
      sums_local_ptr[22] = (sums_local_ptr[22] + (x_38 * dy_6));
      sums_local_ptr[18] = (sums_local_ptr[18] + (x_38 * dy_10));
      sums_local_ptr[14] = (sums_local_ptr[14] + (x_38 * dy_14));
      sums_local_ptr[10] = (sums_local_ptr[10] + (x_38 * dy_22));
      sums_local_ptr[6] = (sums_local_ptr[6] + (x_38 * dy_26));
      sums_local_ptr[2] = (sums_local_ptr[2] + (x_38 * dy_30));
      sums_local_ptr[23] = (sums_local_ptr[23] + (x_39 * dy_7));
      sums_local_ptr[19] = (sums_local_ptr[19] + (x_39 * dy_11));
      sums_local_ptr[15] = (sums_local_ptr[15] + (x_39 * dy_15));
      sums_local_ptr[11] = (sums_local_ptr[11] + (x_39 * dy_23));
      sums_local_ptr[7] = (sums_local_ptr[7] + (x_39 * dy_27));
      sums_local_ptr[3] = (sums_local_ptr[3] + (x_39 * dy_31));
      *(float4*)(x_local_ptr + 0) = *(float4*)(x_ptr + ((x_at * 4) + 96));
      float x_40 = x_local_ptr[0];
      float x_41 = x_local_ptr[1];
      float x_42 = x_local_ptr[2];
      float x_43 = x_local_ptr[3];
      sums_local_ptr[20] = (sums_local_ptr[20] + (x_40 * dy_8));
      sums_local_ptr[16] = (sums_local_ptr[16] + (x_40 * dy_12));
      sums_local_ptr[8] = (sums_local_ptr[8] + (x_40 * dy_24));
      sums_local_ptr[4] = (sums_local_ptr[4] + (x_40 * dy_28));
      sums_local_ptr[21] = (sums_local_ptr[21] + (x_41 * dy_9));
      sums_local_ptr[17] = (sums_local_ptr[17] + (x_41 * dy_13));
      sums_local_ptr[9] = (sums_local_ptr[9] + (x_41 * dy_25));
      sums_local_ptr[5] = (sums_local_ptr[5] + (x_41 * dy_29));
      sums_local_ptr[22] = (sums_local_ptr[22] + (x_42 * dy_10));
      sums_local_ptr[18] = (sums_local_ptr[18] + (x_42 * dy_14));
      sums_local_ptr[10] = (sums_local_ptr[10] + (x_42 * dy_26));
      sums_local_ptr[6] = (sums_local_ptr[6] + (x_42 * dy_30));
      sums_local_ptr[23] = (sums_local_ptr[23] + (x_43 * dy_11));
      sums_local_ptr[19] = (sums_local_ptr[19] + (x_43 * dy_15));
      sums_local_ptr[11] = (sums_local_ptr[11] + (x_43 * dy_27));
      sums_local_ptr[7] = (sums_local_ptr[7] + (x_43 * dy_31));
      float4 condval_7;
      if (dy_column < 4) {
        condval_7 = *(float4*)(x_ptr + ((x_at * 4) + 128));
      } else {
        condval_7 = make_float4(0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/);
      }
      *(float4*)(x_local_ptr + 0) = condval_7;
      float x_44 = x_local_ptr[0];
      float x_45 = x_local_ptr[1];
      float x_46 = x_local_ptr[2];
      float x_47 = x_local_ptr[3];
      sums_local_ptr[20] = (sums_local_ptr[20] + (x_44 * dy_12));
      sums_local_ptr[8] = (sums_local_ptr[8] + (x_44 * dy_28));
      sums_local_ptr[21] = (sums_local_ptr[21] + (x_45 * dy_13));
      sums_local_ptr[9] = (sums_local_ptr[9] + (x_45 * dy_29));
      sums_local_ptr[22] = (sums_local_ptr[22] + (x_46 * dy_14));
      sums_local_ptr[10] = (sums_local_ptr[10] + (x_46 * dy_30));
      sums_local_ptr[23] = (sums_local_ptr[23] + (x_47 * dy_15));
      sums_local_ptr[11] = (sums_local_ptr[11] + (x_47 * dy_31));
      float4 condval_8;
      if (1 <= dy_column) {
        condval_8 = *(float4*)(x_ptr + ((x_at * 4) + 224));
      } else {
        condval_8 = make_float4(0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/);
      }
      *(float4*)(x_local_ptr + 0) = condval_8;
      float x_48 = x_local_ptr[0];
      float x_49 = x_local_ptr[1];
      float x_50 = x_local_ptr[2];
      float x_51 = x_local_ptr[3];
      sums_local_ptr[24] = (sums_local_ptr[24] + (x_48 * dy));
      sums_local_ptr[12] = (sums_local_ptr[12] + (x_48 * dy_16));
      sums_local_ptr[25] = (sums_local_ptr[25] + (x_49 * dy_1));
      sums_local_ptr[13] = (sums_local_ptr[13] + (x_49 * dy_17));
      sums_local_ptr[26] = (sums_local_ptr[26] + (x_50 * dy_2));
      sums_local_ptr[14] = (sums_local_ptr[14] + (x_50 * dy_18));
      sums_local_ptr[27] = (sums_local_ptr[27] + (x_51 * dy_3));
      sums_local_ptr[15] = (sums_local_ptr[15] + (x_51 * dy_19));
      *(float4*)(x_local_ptr + 0) = *(float4*)(x_ptr + ((x_at * 4) + 256));
      float x_52 = x_local_ptr[0];
      float x_53 = x_local_ptr[1];
      float x_54 = x_local_ptr[2];
      float x_55 = x_local_ptr[3];
      sums_local_ptr[28] = (sums_local_ptr[28] + (x_52 * dy));
      sums_local_ptr[24] = (sums_local_ptr[24] + (x_52 * dy_4));
      sums_local_ptr[16] = (sums_local_ptr[16] + (x_52 * dy_16));
      sums_local_ptr[12] = (sums_local_ptr[12] + (x_52 * dy_20));
      sums_local_ptr[29] = (sums_local_ptr[29] + (x_53 * dy_1));
      sums_local_ptr[25] = (sums_local_ptr[25] + (x_53 * dy_5));
      sums_local_ptr[17] = (sums_local_ptr[17] + (x_53 * dy_17));
      sums_local_ptr[13] = (sums_local_ptr[13] + (x_53 * dy_21));
      sums_local_ptr[30] = (sums_local_ptr[30] + (x_54 * dy_2));
      sums_local_ptr[26] = (sums_local_ptr[26] + (x_54 * dy_6));
      sums_local_ptr[18] = (sums_local_ptr[18] + (x_54 * dy_18));
      sums_local_ptr[14] = (sums_local_ptr[14] + (x_54 * dy_22));
      sums_local_ptr[31] = (sums_local_ptr[31] + (x_55 * dy_3));
      sums_local_ptr[27] = (sums_local_ptr[27] + (x_55 * dy_7));
      sums_local_ptr[19] = (sums_local_ptr[19] + (x_55 * dy_19));
      sums_local_ptr[15] = (sums_local_ptr[15] + (x_55 * dy_23));
      *(float4*)(x_local_ptr + 0) = *(float4*)(x_ptr + ((x_at * 4) + 288));
      float x_56 = x_local_ptr[0];
      float x_57 = x_local_ptr[1];
      float x_58 = x_local_ptr[2];
      float x_59 = x_local_ptr[3];
      sums_local_ptr[32] = (sums_local_ptr[32] + (x_56 * dy));
      sums_local_ptr[28] = (sums_local_ptr[28] + (x_56 * dy_4));
      sums_local_ptr[24] = (sums_local_ptr[24] + (x_56 * dy_8));
      sums_local_ptr[20] = (sums_local_ptr[20] + (x_56 * dy_16));
      sums_local_ptr[16] = (sums_local_ptr[16] + (x_56 * dy_20));
      sums_local_ptr[12] = (sums_local_ptr[12] + (x_56 * dy_24));
      sums_local_ptr[33] = (sums_local_ptr[33] + (x_57 * dy_1));
      sums_local_ptr[29] = (sums_local_ptr[29] + (x_57 * dy_5));
      sums_local_ptr[25] = (sums_local_ptr[25] + (x_57 * dy_9));
      sums_local_ptr[21] = (sums_local_ptr[21] + (x_57 * dy_17));
      sums_local_ptr[17] = (sums_local_ptr[17] + (x_57 * dy_21));
      sums_local_ptr[13] = (sums_local_ptr[13] + (x_57 * dy_25));
      sums_local_ptr[34] = (sums_local_ptr[34] + (x_58 * dy_2));
      sums_local_ptr[30] = (sums_local_ptr[30] + (x_58 * dy_6));
      sums_local_ptr[26] = (sums_local_ptr[26] + (x_58 * dy_10));
      sums_local_ptr[22] = (sums_local_ptr[22] + (x_58 * dy_18));
      sums_local_ptr[18] = (sums_local_ptr[18] + (x_58 * dy_22));
      sums_local_ptr[14] = (sums_local_ptr[14] + (x_58 * dy_26));
      sums_local_ptr[35] = (sums_local_ptr[35] + (x_59 * dy_3));
      sums_local_ptr[31] = (sums_local_ptr[31] + (x_59 * dy_7));
      sums_local_ptr[27] = (sums_local_ptr[27] + (x_59 * dy_11));
      sums_local_ptr[23] = (sums_local_ptr[23] + (x_59 * dy_19));
      sums_local_ptr[19] = (sums_local_ptr[19] + (x_59 * dy_23));
      sums_local_ptr[15] = (sums_local_ptr[15] + (x_59 * dy_27));
      *(float4*)(x_local_ptr + 0) = *(float4*)(x_ptr + ((x_at * 4) + 320));
      float x_60 = x_local_ptr[0];
      float x_61 = x_local_ptr[1];
      float x_62 = x_local_ptr[2];
      float x_63 = x_local_ptr[3];
      sums_local_ptr[32] = (sums_local_ptr[32] + (x_60 * dy_4));
      sums_local_ptr[28] = (sums_local_ptr[28] + (x_60 * dy_8));
      sums_local_ptr[24] = (sums_local_ptr[24] + (x_60 * dy_12));
      sums_local_ptr[20] = (sums_local_ptr[20] + (x_60 * dy_20));
      sums_local_ptr[16] = (sums_local_ptr[16] + (x_60 * dy_24));
      sums_local_ptr[12] = (sums_local_ptr[12] + (x_60 * dy_28));
      sums_local_ptr[33] = (sums_local_ptr[33] + (x_61 * dy_5));
      sums_local_ptr[29] = (sums_local_ptr[29] + (x_61 * dy_9));
      sums_local_ptr[25] = (sums_local_ptr[25] + (x_61 * dy_13));
      sums_local_ptr[21] = (sums_local_ptr[21] + (x_61 * dy_21));
      sums_local_ptr[17] = (sums_local_ptr[17] + (x_61 * dy_25));
      sums_local_ptr[13] = (sums_local_ptr[13] + (x_61 * dy_29));
      sums_local_ptr[34] = (sums_local_ptr[34] + (x_62 * dy_6));
      sums_local_ptr[30] = (sums_local_ptr[30] + (x_62 * dy_10));
      sums_local_ptr[26] = (sums_local_ptr[26] + (x_62 * dy_14));
      sums_local_ptr[22] = (sums_local_ptr[22] + (x_62 * dy_22));
      sums_local_ptr[18] = (sums_local_ptr[18] + (x_62 * dy_26));
      sums_local_ptr[14] = (sums_local_ptr[14] + (x_62 * dy_30));
      sums_local_ptr[35] = (sums_local_ptr[35] + (x_63 * dy_7));
      sums_local_ptr[31] = (sums_local_ptr[31] + (x_63 * dy_11));
      sums_local_ptr[27] = (sums_local_ptr[27] + (x_63 * dy_15));
      sums_local_ptr[23] = (sums_local_ptr[23] + (x_63 * dy_23));
      sums_local_ptr[19] = (sums_local_ptr[19] + (x_63 * dy_27));
      sums_local_ptr[15] = (sums_local_ptr[15] + (x_63 * dy_31));
      *(float4*)(x_local_ptr + 0) = *(float4*)(x_ptr + ((x_at * 4) + 352));
      float x_64 = x_local_ptr[0];
      float x_65 = x_local_ptr[1];
      float x_66 = x_local_ptr[2];
      float x_67 = x_local_ptr[3];
      sums_local_ptr[32] = (sums_local_ptr[32] + (x_64 * dy_8));
      sums_local_ptr[28] = (sums_local_ptr[28] + (x_64 * dy_12));
      sums_local_ptr[20] = (sums_local_ptr[20] + (x_64 * dy_24));
      sums_local_ptr[16] = (sums_local_ptr[16] + (x_64 * dy_28));
      sums_local_ptr[33] = (sums_local_ptr[33] + (x_65 * dy_9));
      sums_local_ptr[29] = (sums_local_ptr[29] + (x_65 * dy_13));
      sums_local_ptr[21] = (sums_local_ptr[21] + (x_65 * dy_25));
      sums_local_ptr[17] = (sums_local_ptr[17] + (x_65 * dy_29));
      sums_local_ptr[34] = (sums_local_ptr[34] + (x_66 * dy_10));
      sums_local_ptr[30] = (sums_local_ptr[30] + (x_66 * dy_14));
      sums_local_ptr[22] = (sums_local_ptr[22] + (x_66 * dy_26));
      sums_local_ptr[18] = (sums_local_ptr[18] + (x_66 * dy_30));
      sums_local_ptr[35] = (sums_local_ptr[35] + (x_67 * dy_11));
      sums_local_ptr[31] = (sums_local_ptr[31] + (x_67 * dy_15));
      sums_local_ptr[23] = (sums_local_ptr[23] + (x_67 * dy_27));
      sums_local_ptr[19] = (sums_local_ptr[19] + (x_67 * dy_31));
      float4 condval_9;
      if (dy_column < 4) {
        condval_9 = *(float4*)(x_ptr + ((x_at * 4) + 384));
      } else {
        condval_9 = make_float4(0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/);
      }
      *(float4*)(x_local_ptr + 0) = condval_9;
      float x_68 = x_local_ptr[0];
      float x_69 = x_local_ptr[1];
      float x_70 = x_local_ptr[2];
      float x_71 = x_local_ptr[3];
      sums_local_ptr[32] = (sums_local_ptr[32] + (x_68 * dy_12));
      sums_local_ptr[20] = (sums_local_ptr[20] + (x_68 * dy_28));
      sums_local_ptr[33] = (sums_local_ptr[33] + (x_69 * dy_13));
      sums_local_ptr[21] = (sums_local_ptr[21] + (x_69 * dy_29));
      sums_local_ptr[34] = (sums_local_ptr[34] + (x_70 * dy_14));
      sums_local_ptr[22] = (sums_local_ptr[22] + (x_70 * dy_30));
      sums_local_ptr[35] = (sums_local_ptr[35] + (x_71 * dy_15));
      sums_local_ptr[23] = (sums_local_ptr[23] + (x_71 * dy_31));
      float4 condval_10;
      if ((x_row < 6) && (1 <= dy_column)) {
        condval_10 = *(float4*)(x_ptr + ((x_at * 4) + 480));
      } else {
        condval_10 = make_float4(0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/);
      }
      *(float4*)(x_local_ptr + 0) = condval_10;
      float x_72 = x_local_ptr[0];
      float x_73 = x_local_ptr[1];
      float x_74 = x_local_ptr[2];
      float x_75 = x_local_ptr[3];
      sums_local_ptr[24] = (sums_local_ptr[24] + (x_72 * dy_16));
      sums_local_ptr[25] = (sums_local_ptr[25] + (x_73 * dy_17));
      sums_local_ptr[26] = (sums_local_ptr[26] + (x_74 * dy_18));
      sums_local_ptr[27] = (sums_local_ptr[27] + (x_75 * dy_19));
      float4 condval_11;
      if (x_row < 6) {
        condval_11 = *(float4*)(x_ptr + ((x_at * 4) + 512));
      } else {
        condval_11 = make_float4(0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/);
      }
      *(float4*)(x_local_ptr + 0) = condval_11;
      float x_76 = x_local_ptr[0];
      float x_77 = x_local_ptr[1];
      float x_78 = x_local_ptr[2];
      float x_79 = x_local_ptr[3];
      sums_local_ptr[28] = (sums_local_ptr[28] + (x_76 * dy_16));
      sums_local_ptr[24] = (sums_local_ptr[24] + (x_76 * dy_20));
      sums_local_ptr[29] = (sums_local_ptr[29] + (x_77 * dy_17));
      sums_local_ptr[25] = (sums_local_ptr[25] + (x_77 * dy_21));
      sums_local_ptr[30] = (sums_local_ptr[30] + (x_78 * dy_18));
      sums_local_ptr[26] = (sums_local_ptr[26] + (x_78 * dy_22));
      sums_local_ptr[31] = (sums_local_ptr[31] + (x_79 * dy_19));
      sums_local_ptr[27] = (sums_local_ptr[27] + (x_79 * dy_23));
      float4 condval_12;
      if (x_row < 6) {
        condval_12 = *(float4*)(x_ptr + ((x_at * 4) + 544));
      } else {
        condval_12 = make_float4(0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/);
      }
      *(float4*)(x_local_ptr + 0) = condval_12;
      float x_80 = x_local_ptr[0];
      float x_81 = x_local_ptr[1];
      float x_82 = x_local_ptr[2];
      float x_83 = x_local_ptr[3];
      sums_local_ptr[32] = (sums_local_ptr[32] + (x_80 * dy_16));
      sums_local_ptr[28] = (sums_local_ptr[28] + (x_80 * dy_20));
      sums_local_ptr[24] = (sums_local_ptr[24] + (x_80 * dy_24));
      sums_local_ptr[33] = (sums_local_ptr[33] + (x_81 * dy_17));
      sums_local_ptr[29] = (sums_local_ptr[29] + (x_81 * dy_21));
      sums_local_ptr[25] = (sums_local_ptr[25] + (x_81 * dy_25));
      sums_local_ptr[34] = (sums_local_ptr[34] + (x_82 * dy_18));
      sums_local_ptr[30] = (sums_local_ptr[30] + (x_82 * dy_22));
      sums_local_ptr[26] = (sums_local_ptr[26] + (x_82 * dy_26));
      sums_local_ptr[35] = (sums_local_ptr[35] + (x_83 * dy_19));
      sums_local_ptr[31] = (sums_local_ptr[31] + (x_83 * dy_23));
      sums_local_ptr[27] = (sums_local_ptr[27] + (x_83 * dy_27));
      float4 condval_13;
      if (x_row < 6) {
        condval_13 = *(float4*)(x_ptr + ((x_at * 4) + 576));
      } else {
        condval_13 = make_float4(0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/);
      }
      *(float4*)(x_local_ptr + 0) = condval_13;
      float x_84 = x_local_ptr[0];
      float x_85 = x_local_ptr[1];
      float x_86 = x_local_ptr[2];
      float x_87 = x_local_ptr[3];
      sums_local_ptr[32] = (sums_local_ptr[32] + (x_84 * dy_20));
      sums_local_ptr[28] = (sums_local_ptr[28] + (x_84 * dy_24));
      sums_local_ptr[24] = (sums_local_ptr[24] + (x_84 * dy_28));
      sums_local_ptr[33] = (sums_local_ptr[33] + (x_85 * dy_21));
      sums_local_ptr[29] = (sums_local_ptr[29] + (x_85 * dy_25));
      sums_local_ptr[25] = (sums_local_ptr[25] + (x_85 * dy_29));
      sums_local_ptr[34] = (sums_local_ptr[34] + (x_86 * dy_22));
      sums_local_ptr[30] = (sums_local_ptr[30] + (x_86 * dy_26));
      sums_local_ptr[26] = (sums_local_ptr[26] + (x_86 * dy_30));
      sums_local_ptr[35] = (sums_local_ptr[35] + (x_87 * dy_23));
      sums_local_ptr[31] = (sums_local_ptr[31] + (x_87 * dy_27));
      sums_local_ptr[27] = (sums_local_ptr[27] + (x_87 * dy_31));
      float4 condval_14;
      if (x_row < 6) {
        condval_14 = *(float4*)(x_ptr + ((x_at * 4) + 608));
      } else {
        condval_14 = make_float4(0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/);
      }
      *(float4*)(x_local_ptr + 0) = condval_14;
      float x_88 = x_local_ptr[0];
      float x_89 = x_local_ptr[1];
      float x_90 = x_local_ptr[2];
      float x_91 = x_local_ptr[3];
      sums_local_ptr[32] = (sums_local_ptr[32] + (x_88 * dy_24));
      sums_local_ptr[28] = (sums_local_ptr[28] + (x_88 * dy_28));
      sums_local_ptr[33] = (sums_local_ptr[33] + (x_89 * dy_25));
      sums_local_ptr[29] = (sums_local_ptr[29] + (x_89 * dy_29));
      sums_local_ptr[34] = (sums_local_ptr[34] + (x_90 * dy_26));
      sums_local_ptr[30] = (sums_local_ptr[30] + (x_90 * dy_30));
      sums_local_ptr[35] = (sums_local_ptr[35] + (x_91 * dy_27));
      sums_local_ptr[31] = (sums_local_ptr[31] + (x_91 * dy_31));
      float4 condval_15;
      if ((x_row < 6) && (dy_column < 4)) {
        condval_15 = *(float4*)(x_ptr + ((x_at * 4) + 640));
      } else {
        condval_15 = make_float4(0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/, 0x0p+0f/*0.000000e+00*/);
      }
      *(float4*)(x_local_ptr + 0) = condval_15;
      float x_92 = x_local_ptr[0];
      float x_93 = x_local_ptr[1];
      float x_94 = x_local_ptr[2];
      float x_95 = x_local_ptr[3];
      sums_local_ptr[32] = (sums_local_ptr[32] + (x_92 * dy_28));
      sums_local_ptr[33] = (sums_local_ptr[33] + (x_93 * dy_29));
      sums_local_ptr[34] = (sums_local_ptr[34] + (x_94 * dy_30));
      sums_local_ptr[35] = (sums_local_ptr[35] + (x_95 * dy_31));
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
      passed_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 568) - ((7 >> (halving + 1)) * 8))] = sums_local_ptr[18];
      passed_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 600) - ((7 >> (halving + 1)) * 8))] = sums_local_ptr[19];
      passed_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 632) - ((7 >> (halving + 1)) * 8))] = sums_local_ptr[20];
      passed_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 664) - ((7 >> (halving + 1)) * 8))] = sums_local_ptr[21];
      passed_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 696) - ((7 >> (halving + 1)) * 8))] = sums_local_ptr[22];
      passed_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 728) - ((7 >> (halving + 1)) * 8))] = sums_local_ptr[23];
      passed_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 760) - ((7 >> (halving + 1)) * 8))] = sums_local_ptr[24];
      passed_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 792) - ((7 >> (halving + 1)) * 8))] = sums_local_ptr[25];
      passed_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 824) - ((7 >> (halving + 1)) * 8))] = sums_local_ptr[26];
      passed_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 856) - ((7 >> (halving + 1)) * 8))] = sums_local_ptr[27];
      passed_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 888) - ((7 >> (halving + 1)) * 8))] = sums_local_ptr[28];
      passed_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 920) - ((7 >> (halving + 1)) * 8))] = sums_local_ptr[29];
      passed_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 952) - ((7 >> (halving + 1)) * 8))] = sums_local_ptr[30];
      passed_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 984) - ((7 >> (halving + 1)) * 8))] = sums_local_ptr[31];
      passed_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 1016) - ((7 >> (halving + 1)) * 8))] = sums_local_ptr[32];
      passed_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 1048) - ((7 >> (halving + 1)) * 8))] = sums_local_ptr[33];
      passed_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 1080) - ((7 >> (halving + 1)) * 8))] = sums_local_ptr[34];
      passed_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 1112) - ((7 >> (halving + 1)) * 8))] = sums_local_ptr[35];
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
      sums_local_ptr[18] = (sums_local_ptr[18] + passed_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 576)]);
      sums_local_ptr[19] = (sums_local_ptr[19] + passed_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 608)]);
      sums_local_ptr[20] = (sums_local_ptr[20] + passed_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 640)]);
      sums_local_ptr[21] = (sums_local_ptr[21] + passed_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 672)]);
      sums_local_ptr[22] = (sums_local_ptr[22] + passed_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 704)]);
      sums_local_ptr[23] = (sums_local_ptr[23] + passed_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 736)]);
      sums_local_ptr[24] = (sums_local_ptr[24] + passed_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 768)]);
      sums_local_ptr[25] = (sums_local_ptr[25] + passed_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 800)]);
      sums_local_ptr[26] = (sums_local_ptr[26] + passed_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 832)]);
      sums_local_ptr[27] = (sums_local_ptr[27] + passed_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 864)]);
      sums_local_ptr[28] = (sums_local_ptr[28] + passed_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 896)]);
      sums_local_ptr[29] = (sums_local_ptr[29] + passed_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 928)]);
      sums_local_ptr[30] = (sums_local_ptr[30] + passed_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 960)]);
      sums_local_ptr[31] = (sums_local_ptr[31] + passed_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 992)]);
      sums_local_ptr[32] = (sums_local_ptr[32] + passed_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 1024)]);
      sums_local_ptr[33] = (sums_local_ptr[33] + passed_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 1056)]);
      sums_local_ptr[34] = (sums_local_ptr[34] + passed_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 1088)]);
      sums_local_ptr[35] = (sums_local_ptr[35] + passed_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 1120)]);
    }
    __syncthreads();
  }
  if (((int)threadIdx.y) == 0) {
    int first = ((((int)blockIdx.x) * 288) + (((int)threadIdx.x) * 36));
    workspace_ptr[((((int)blockIdx.x) * 288) + (((int)threadIdx.x) * 36))] = sums_local_ptr[0];
    workspace_ptr[(((((int)blockIdx.x) * 288) + (((int)threadIdx.x) * 36)) + 9)] = sums_local_ptr[1];
    workspace_ptr[(((((int)blockIdx.x) * 288) + (((int)threadIdx.x) * 36)) + 18)] = sums_local_ptr[2];
    workspace_ptr[(((((int)blockIdx.x) * 288) + (((int)threadIdx.x) * 36)) + 27)] = sums_local_ptr[3];
    workspace_ptr[(((((int)blockIdx.x) * 288) + (((int)threadIdx.x) * 36)) + 1)] = sums_local_ptr[4];
    workspace_ptr[(((((int)blockIdx.x) * 288) + (((int)threadIdx.x) * 36)) + 10)] = sums_local_ptr[5];
    workspace_ptr[(((((int)blockIdx.x) * 288) + (((int)threadIdx.x) * 36)) + 19)] = sums_local_ptr[6];
    workspace_ptr[(((((int)blockIdx.x) * 288) + (((int)threadIdx.x) * 36)) + 28)] = sums_local_ptr[7];
    workspace_ptr[(((((int)blockIdx.x) * 288) + (((int)threadIdx.x) * 36)) + 2)] = sums_local_ptr[8];
    workspace_ptr[(((((int)blockIdx.x) * 288) + (((int)threadIdx.x) * 36)) + 11)] = sums_local_ptr[9];
    workspace_ptr[(((((int)blockIdx.x) * 288) + (((int)threadIdx.x) * 36)) + 20)] = sums_local_ptr[10];
    workspace_ptr[(((((int)blockIdx.x) * 288) + (((int)threadIdx.x) * 36)) + 29)] = sums_local_ptr[11];
    workspace_ptr[(((((int)blockIdx.x) * 288) + (((int)threadIdx.x) * 36)) + 3)] = sums_local_ptr[12];
    workspace_ptr[(((((int)blockIdx.x) * 288) + (((int)threadIdx.x) * 36)) + 12)] = sums_local_ptr[13];
    workspace_ptr[(((((int)blockIdx.x) * 288) + (((int)threadIdx.x) * 36)) + 21)] = sums_local_ptr[14];
    workspace_ptr[(((((int)blockIdx.x) * 288) + (((int)threadIdx.x) * 36)) + 30)] = sums_local_ptr[15];
    workspace_ptr[(((((int)blockIdx.x) * 288) + (((int)threadIdx.x) * 36)) + 4)] = sums_local_ptr[16];
    workspace_ptr[(((((int)blockIdx.x) * 288) + (((int)threadIdx.x) * 36)) + 13)] = sums_local_ptr[17];
    workspace_ptr[(((((int)blockIdx.x) * 288) + (((int)threadIdx.x) * 36)) + 22)] = sums_local_ptr[18];
    workspace_ptr[(((((int)blockIdx.x) * 288) + (((int)threadIdx.x) * 36)) + 31)] = sums_local_ptr[19];
    workspace_ptr[(((((int)blockIdx.x) * 288) + (((int)threadIdx.x) * 36)) + 5)] = sums_local_ptr[20];
    workspace_ptr[(((((int)blockIdx.x) * 288) + (((int)threadIdx.x) * 36)) + 14)] = sums_local_ptr[21];
    workspace_ptr[(((((int)blockIdx.x) * 288) + (((int)threadIdx.x) * 36)) + 23)] = sums_local_ptr[22];
    workspace_ptr[(((((int)blockIdx.x) * 288) + (((int)threadIdx.x) * 36)) + 32)] = sums_local_ptr[23];
    workspace_ptr[(((((int)blockIdx.x) * 288) + (((int)threadIdx.x) * 36)) + 6)] = sums_local_ptr[24];
    workspace_ptr[(((((int)blockIdx.x) * 288) + (((int)threadIdx.x) * 36)) + 15)] = sums_local_ptr[25];
    workspace_ptr[(((((int)blockIdx.x) * 288) + (((int)threadIdx.x) * 36)) + 24)] = sums_local_ptr[26];
    workspace_ptr[(((((int)blockIdx.x) * 288) + (((int)threadIdx.x) * 36)) + 33)] = sums_local_ptr[27];
    workspace_ptr[(((((int)blockIdx.x) * 288) + (((int)threadIdx.x) * 36)) + 7)] = sums_local_ptr[28];
    workspace_ptr[(((((int)blockIdx.x) * 288) + (((int)threadIdx.x) * 36)) + 16)] = sums_local_ptr[29];
    workspace_ptr[(((((int)blockIdx.x) * 288) + (((int)threadIdx.x) * 36)) + 25)] = sums_local_ptr[30];
    workspace_ptr[(((((int)blockIdx.x) * 288) + (((int)threadIdx.x) * 36)) + 34)] = sums_local_ptr[31];
    workspace_ptr[(((((int)blockIdx.x) * 288) + (((int)threadIdx.x) * 36)) + 8)] = sums_local_ptr[32];
    workspace_ptr[(((((int)blockIdx.x) * 288) + (((int)threadIdx.x) * 36)) + 17)] = sums_local_ptr[33];
    workspace_ptr[(((((int)blockIdx.x) * 288) + (((int)threadIdx.x) * 36)) + 26)] = sums_local_ptr[34];
    workspace_ptr[(((((int)blockIdx.x) * 288) + (((int)threadIdx.x) * 36)) + 35)] = sums_local_ptr[35];
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
