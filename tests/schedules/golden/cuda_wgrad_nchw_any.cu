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

extern "C" __global__ void __launch_bounds__(32, 1) main_kernel(float* __restrict__ dy_ptr, float* __restrict__ workspace_ptr, float* __restrict__ x_ptr, int h, int n, int oh, int ow, int w) {
  alignas(64) float sums_local_ptr[3];
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
  alignas(64) int row_local_ptr[1];
  alignas(64) int x_row_local_ptr[1];
  alignas(64) int x_at_local_ptr[1];
  alignas(64) int row_local_ptr_1[1];
  alignas(64) int tiles_w_local_ptr_1[1];
  alignas(64) int tiles_h_local_ptr_1[1];
  alignas(64) int tile_local_ptr_1[3];
  alignas(64) int step_local_ptr_3[1];
  alignas(64) int step_local_ptr_4[1];
  alignas(64) int step_local_ptr_5[1];
  alignas(64) int dy_row_local_ptr_1[1];
  alignas(64) int dy_column_local_ptr_1[1];
  alignas(64) int dy_at_local_ptr_1[1];
  alignas(64) int row_local_ptr_2[1];
  alignas(64) int x_row_local_ptr_1[1];
  alignas(64) int x_at_local_ptr_1[1];
  alignas(64) int row_local_ptr_3[1];
  __shared__ alignas(64) float passed_shared_ptr[48];
  #pragma unroll
  for (int index = 0; index < 3; ++index) {
    sums_local_ptr[index] = 0x0p+0f/*0.000000e+00*/;
  }
  if (((w % 2) == 0) && ((ow % 2) == 0)) {
    tiles_w_local_ptr[0] = ((ow + 1) >> 1);
    int tiles_w = tiles_w_local_ptr[0];
    tiles_h_local_ptr[0] = oh;
    int tiles_h = tiles_h_local_ptr[0];
    tile_local_ptr[0] = (((((((int)blockIdx.x) >> 2) * 16) + ((int)threadIdx.x)) / tiles_w) / tiles_h);
    tile_local_ptr[1] = (((((((int)blockIdx.x) >> 2) * 16) + ((int)threadIdx.x)) / tiles_w) % tiles_h);
    tile_local_ptr[2] = ((((((int)blockIdx.x) >> 2) * 16) + ((int)threadIdx.x)) % tiles_w);
    step_local_ptr[0] = ((64 / tiles_w) / tiles_h);
    int step = step_local_ptr[0];
    step_local_ptr_1[0] = ((64 / tiles_w) % tiles_h);
    int step_1 = step_local_ptr_1[0];
    step_local_ptr_2[0] = (64 % tiles_w);
    int step_2 = step_local_ptr_2[0];
    for (int turn = 0; turn < ((((((n * tiles_h) * tiles_w) + 63) - ((int)threadIdx.x)) - ((((int)blockIdx.x) >> 2) * 16)) / 64); ++turn) {
      dy_row_local_ptr[0] = tile_local_ptr[1];
      int dy_row = dy_row_local_ptr[0];
      dy_column_local_ptr[0] = (tile_local_ptr[2] * 2);
      int dy_column = dy_column_local_ptr[0];
      dy_at_local_ptr[0] = ((((tile_local_ptr[0] * oh) * ow) * 4) + ((((((((((int)blockIdx.x) & 3) * 2) + ((int)threadIdx.y)) * oh) + dy_row) * ow) + dy_column) >> 1));
      int dy_at = dy_at_local_ptr[0];
      row_local_ptr[0] = (ow / 2);
      int row = row_local_ptr[0];
      x_row_local_ptr[0] = dy_row;
      int x_row = x_row_local_ptr[0];
      x_at_local_ptr[0] = ((((tile_local_ptr[0] * h) * w) * 4) + ((((((((((int)blockIdx.x) & 3) * 2) + ((int)threadIdx.y)) * h) + x_row) * w) + dy_column) >> 1));
      int x_at = x_at_local_ptr[0];
      row_local_ptr_1[0] = (w / 2);
      int row_1 = row_local_ptr_1[0];
      *(float2*)(dy_local_ptr + 0) = *(float2*)(dy_ptr + (dy_at * 2));
      float dy = dy_local_ptr[0];
      float dy_1 = dy_local_ptr[1];
      float condval;
      if (1 <= dy_column) {
        condval = x_ptr[((x_at * 2) - 1)];
      } else {
        condval = 0x0p+0f/*0.000000e+00*/;
      }
      float x = condval;
      sums_local_ptr[0] = (sums_local_ptr[0] + (x * dy));
      *(float2*)(x_local_ptr + 0) = *(float2*)(x_ptr + (x_at * 2));
      float x_1 = x_local_ptr[0];
      float x_2 = x_local_ptr[1];
      sums_local_ptr[1] = (sums_local_ptr[1] + (x_1 * dy));
      sums_local_ptr[0] = (sums_local_ptr[0] + (x_1 * dy_1));
      sums_local_ptr[2] = (sums_local_ptr[2] + (x_2 * dy));
      sums_local_ptr[1] = (sums_local_ptr[1] + (x_2 * dy_1));
      float condval_1;
      if ((dy_column + 2) < w) {
        condval_1 = x_ptr[((x_at * 2) + 2)];
      } else {
        condval_1 = 0x0p+0f/*0.000000e+00*/;
      }
      float x_3 = condval_1;
      sums_local_ptr[2] = (sums_local_ptr[2] + (x_3 * dy_1));
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
  } else {
    tiles_w_local_ptr_1[0] = ((ow + 1) >> 1);
    int tiles_w_1 = tiles_w_local_ptr_1[0];
    tiles_h_local_ptr_1[0] = oh;
    int tiles_h_1 = tiles_h_local_ptr_1[0];
    tile_local_ptr_1[0] = (((((((int)blockIdx.x) >> 2) * 16) + ((int)threadIdx.x)) / tiles_w_1) / tiles_h_1);
    tile_local_ptr_1[1] = (((((((int)blockIdx.x) >> 2) * 16) + ((int)threadIdx.x)) / tiles_w_1) % tiles_h_1);
    tile_local_ptr_1[2] = ((((((int)blockIdx.x) >> 2) * 16) + ((int)threadIdx.x)) % tiles_w_1);
    step_local_ptr_3[0] = ((64 / tiles_w_1) / tiles_h_1);
    int step_3 = step_local_ptr_3[0];
    step_local_ptr_4[0] = ((64 / tiles_w_1) % tiles_h_1);
    int step_4 = step_local_ptr_4[0];
    step_local_ptr_5[0] = (64 % tiles_w_1);
    int step_5 = step_local_ptr_5[0];
    for (int turn_1 = 0; turn_1 < ((((((n * tiles_h_1) * tiles_w_1) + 63) - ((int)threadIdx.x)) - ((((int)blockIdx.x) >> 2) * 16)) / 64); ++turn_1) {
      dy_row_local_ptr_1[0] = tile_local_ptr_1[1];
      int dy_row_1 = dy_row_local_ptr_1[0];
      dy_column_local_ptr_1[0] = (tile_local_ptr_1[2] * 2);
      int dy_column_1 = dy_column_local_ptr_1[0];
      dy_at_local_ptr_1[0] = ((((((tile_local_ptr_1[0] * oh) * ow) * 8) + (((((((int)blockIdx.x) & 3) * 2) + ((int)threadIdx.y)) * oh) * ow)) + (dy_row_1 * ow)) + dy_column_1);
      int dy_at_1 = dy_at_local_ptr_1[0];
      row_local_ptr_2[0] = ow;
      int row_2 = row_local_ptr_2[0];
      x_row_local_ptr_1[0] = dy_row_1;
      int x_row_1 = x_row_local_ptr_1[0];
      x_at_local_ptr_1[0] = ((((((tile_local_ptr_1[0] * h) * w) * 8) + (((((((int)blockIdx.x) & 3) * 2) + ((int)threadIdx.y)) * h) * w)) + (x_row_1 * w)) + dy_column_1);
      int x_at_1 = x_at_local_ptr_1[0];
      row_local_ptr_3[0] = w;
      int row_3 = row_local_ptr_3[0];
      float dy_2 = dy_ptr[dy_at_1];
      float condval_2;
      if ((dy_column_1 + 1) < ow) {
        condval_2 = dy_ptr[(dy_at_1 + 1)];
      } else {
        condval_2 = 0x0p+0f/*0.000000e+00*/;
      }
      float dy_3 = condval_2;
      float condval_3;
      if (1 <= dy_column_1) {
        condval_3 = x_ptr[(x_at_1 - 1)];
      } else {
        condval_3 = 0x0p+0f/*0.000000e+00*/;
      }
      float x_4 = condval_3;
      sums_local_ptr[0] = (sums_local_ptr[0] + (x_4 * dy_2));
      float x_5 = x_ptr[x_at_1];
      sums_local_ptr[1] = (sums_local_ptr[1] + (x_5 * dy_2));
      sums_local_ptr[0] = (sums_local_ptr[0] + (x_5 * dy_3));
      float condval_4;
      if ((dy_column_1 + 1) < w) {
        condval_4 = x_ptr[(x_at_1 + 1)];
      } else {
        condval_4 = 0x0p+0f/*0.000000e+00*/;
      }
      float x_6 = condval_4;
      sums_local_ptr[2] = (sums_local_ptr[2] + (x_6 * dy_2));
      sums_local_ptr[1] = (sums_local_ptr[1] + (x_6 * dy_3));
      float condval_5;
      if ((dy_column_1 + 2) < w) {
        condval_5 = x_ptr[(x_at_1 + 2)];
      } else {
        condval_5 = 0x0p+0f/*0.000000e+00*/;
      }
      float x_7 = condval_5;
      sums_local_ptr[2] = (sums_local_ptr[2] + (x_7 * dy_3));
      tile_local_ptr_1[0] = (tile_local_ptr_1[0] + step_3);
      tile_local_ptr_1[1] = (tile_local_ptr_1[1] + step_4);
      tile_local_ptr_1[2] = (tile_local_ptr_1[2] + step_5);
      if (tiles_w_1 <= tile_local_ptr_1[2]) {
        tile_local_ptr_1[2] = (tile_local_ptr_1[2] - tiles_w_1);
        tile_local_ptr_1[1] = (tile_local_ptr_1[1] + 1);
      }
      if (tiles_h_1 <= tile_local_ptr_1[1]) {
        tile_local_ptr_1[1] = (tile_local_ptr_1[1] - tiles_h_1);
        tile_local_ptr_1[0] = (tile_local_ptr_1[0] + 1);
      }
    }
  }
  for (int halving = 0; halving < 4; ++halving) {
    int left = ((15 >> halving) + 1);
    int width_left = ((15 >> (halving + 1)) + 1);
    if (((15 >> (halving + 1)) < ((int)threadIdx.x)) && (((int)threadIdx.x) <= (15 >> halving))) {
      passed_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) - (15 >> (halving + 1))) - 1)] = sums_local_ptr[0];
      passed_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 15) - (15 >> (halving + 1)))] = sums_local_ptr[1];
      passed_shared_ptr[((((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 31) - (15 >> (halving + 1)))] = sums_local_ptr[2];
    }
    __syncthreads();
    if ((((int)threadIdx.x) + (15 >> (halving + 1))) < (15 >> halving)) {
      sums_local_ptr[0] = (sums_local_ptr[0] + passed_shared_ptr[((((int)threadIdx.y) * 8) + ((int)threadIdx.x))]);
      sums_local_ptr[1] = (sums_local_ptr[1] + passed_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 16)]);
      sums_local_ptr[2] = (sums_local_ptr[2] + passed_shared_ptr[(((((int)threadIdx.y) * 8) + ((int)threadIdx.x)) + 32)]);
    }
    __syncthreads();
  }
  if (((int)threadIdx.x) == 0) {
    int first = ((((int)blockIdx.x) * 6) + (((int)threadIdx.y) * 3));
    workspace_ptr[((((int)blockIdx.x) * 6) + (((int)threadIdx.y) * 3))] = sums_local_ptr[0];
    workspace_ptr[(((((int)blockIdx.x) * 6) + (((int)threadIdx.y) * 3)) + 1)] = sums_local_ptr[1];
    workspace_ptr[(((((int)blockIdx.x) * 6) + (((int)threadIdx.y) * 3)) + 2)] = sums_local_ptr[2];
  }
}

extern "C" __global__ void __launch_bounds__(32) main_kernel_1(float* __restrict__ dw_ptr, float* __restrict__ workspace_ptr) {
  alignas(64) float added_local_ptr[1];
  added_local_ptr[0] = 0x0p+0f/*0.000000e+00*/;
  if (((int)threadIdx.x) < 24) {
    for (int turn = 0; turn < 4; ++turn) {
      added_local_ptr[0] = (added_local_ptr[0] + workspace_ptr[((turn * 24) + ((int)threadIdx.x))]);
    }
  }
  if (((int)threadIdx.x) < 24) {
    dw_ptr[((int)threadIdx.x)] = added_local_ptr[0];
  }
}
