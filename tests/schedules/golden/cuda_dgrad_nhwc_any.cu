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

extern "C" __global__ void __launch_bounds__(32) main_kernel(float* __restrict__ dx_ptr, float* __restrict__ dy_ptr, float* __restrict__ w_ptr, int h, int n, int oh, int ow, int w) {
  alignas(64) float w_local_ptr[36];
  alignas(64) int first_local_ptr[1];
  alignas(64) int done_local_ptr[1];
  alignas(64) int read_at_local_ptr[1];
  alignas(64) int written_at_local_ptr[1];
  alignas(64) float sum_local_ptr[32];
  alignas(64) int row_at_local_ptr[1];
  alignas(64) float loaded_local_ptr[8];
  alignas(64) int row_at_local_ptr_1[1];
  alignas(64) int row_at_local_ptr_2[1];
  alignas(64) int row_at_local_ptr_3[1];
  alignas(64) int row_at_local_ptr_4[1];
  alignas(64) int read_at_local_ptr_1[1];
  alignas(64) int written_at_local_ptr_1[1];
  alignas(64) float sum_local_ptr_1[16];
  alignas(64) int row_at_local_ptr_5[1];
  alignas(64) float loaded_local_ptr_1[8];
  alignas(64) int row_at_local_ptr_6[1];
  int image = ((int)blockIdx.z);
  int block_h = (((int)blockIdx.y) * 2);
  int block_w = (((int)blockIdx.x) * 2);
  #pragma unroll
  for (int vector = 0; vector < 9; ++vector) {
    *(float4*)(w_local_ptr + (vector * 4)) = *(float4*)(w_ptr + ((((int)threadIdx.x) * 36) + (vector * 4)));
  }
  int strip_h = ((((int)blockIdx.y) * 2) + ((int)threadIdx.z));
  int strip_w = ((((int)blockIdx.x) * 2) + ((int)threadIdx.y));
  if ((((((int)blockIdx.y) * 2) + ((int)threadIdx.z)) < ((h + 3) >> 2)) && (((((int)blockIdx.x) * 2) + ((int)threadIdx.y)) < ((w + 1) >> 1))) {
    if (2 < h) {
      first_local_ptr[0] = min(((((int)blockIdx.y) * 4) + (((int)threadIdx.z) * 2)), (((h + 1) >> 1) - 2));
      done_local_ptr[0] = (((((int)blockIdx.y) * 8) + (((int)threadIdx.z) * 4)) - (first_local_ptr[0] * 2));
      read_at_local_ptr[0] = ((((((int)blockIdx.x) * 16) + ((((((int)blockIdx.z) * oh) + first_local_ptr[0]) * ow) * 8)) + (((int)threadIdx.y) * 8)) + ((int)threadIdx.x));
      written_at_local_ptr[0] = ((((((int)blockIdx.x) * 32) + (((int)threadIdx.y) * 16)) + ((((first_local_ptr[0] * 2) + (((int)blockIdx.z) * h)) * w) * 8)) + ((int)threadIdx.x));
      #pragma unroll
      for (int index = 0; index < 32; ++index) {
        sum_local_ptr[index] = 0x0p+0f/*0.000000e+00*/;
      }
      row_at_local_ptr[0] = read_at_local_ptr[0];
      *(float4*)(loaded_local_ptr + 0) = *(float4*)(dy_ptr + (row_at_local_ptr[0] * 4));
      #pragma unroll
      for (int lane = 0; lane < 4; ++lane) {
        loaded_local_ptr[(lane + 4)] = 0x0p+0f/*0.000000e+00*/;
      }
      if ((((((int)blockIdx.x) * 2) + ((int)threadIdx.y)) + 1) < ow) {
        *(float4*)(loaded_local_ptr + 4) = *(float4*)(dy_ptr + ((row_at_local_ptr[0] * 4) + 32));
      }
      #pragma unroll
      for (int kw = 0; kw < 2; ++kw) {
        #pragma unroll
        for (int lane_1 = 0; lane_1 < 4; ++lane_1) {
          sum_local_ptr[(lane_1 + 4)] = (sum_local_ptr[(lane_1 + 4)] + (loaded_local_ptr[((lane_1 + 4) - (kw * 4))] * w_local_ptr[(((lane_1 * 9) + (kw * 2)) + 3)]));
        }
      }
      #pragma unroll
      for (int lane_2 = 0; lane_2 < 4; ++lane_2) {
        sum_local_ptr[lane_2] = (sum_local_ptr[lane_2] + (loaded_local_ptr[lane_2] * w_local_ptr[((lane_2 * 9) + 4)]));
      }
      #pragma unroll
      for (int kw_1 = 0; kw_1 < 2; ++kw_1) {
        #pragma unroll
        for (int lane_3 = 0; lane_3 < 4; ++lane_3) {
          sum_local_ptr[(lane_3 + 12)] = (sum_local_ptr[(lane_3 + 12)] + (loaded_local_ptr[((lane_3 + 4) - (kw_1 * 4))] * w_local_ptr[(((lane_3 * 9) + (kw_1 * 2)) + 6)]));
        }
      }
      #pragma unroll
      for (int lane_4 = 0; lane_4 < 4; ++lane_4) {
        sum_local_ptr[(lane_4 + 8)] = (sum_local_ptr[(lane_4 + 8)] + (loaded_local_ptr[lane_4] * w_local_ptr[((lane_4 * 9) + 7)]));
      }
      row_at_local_ptr_1[0] = written_at_local_ptr[0];
      #pragma unroll
      for (int column = 0; column < 2; ++column) {
        if ((done_local_ptr[0] <= 0) && ((((((int)blockIdx.x) * 4) + (((int)threadIdx.y) * 2)) + column) < w)) {
          *(float4*)(dx_ptr + ((column * 32) + (row_at_local_ptr_1[0] * 4))) = *(float4*)(sum_local_ptr + (column * 4));
        }
      }
      row_at_local_ptr_2[0] = ((ow * 8) + read_at_local_ptr[0]);
      *(float4*)(loaded_local_ptr + 0) = *(float4*)(dy_ptr + (row_at_local_ptr_2[0] * 4));
      #pragma unroll
      for (int lane_5 = 0; lane_5 < 4; ++lane_5) {
        loaded_local_ptr[(lane_5 + 4)] = 0x0p+0f/*0.000000e+00*/;
      }
      if ((((((int)blockIdx.x) * 2) + ((int)threadIdx.y)) + 1) < ow) {
        *(float4*)(loaded_local_ptr + 4) = *(float4*)(dy_ptr + ((row_at_local_ptr_2[0] * 4) + 32));
      }
      #pragma unroll
      for (int kw_2 = 0; kw_2 < 2; ++kw_2) {
        #pragma unroll
        for (int lane_6 = 0; lane_6 < 4; ++lane_6) {
          sum_local_ptr[(lane_6 + 12)] = (sum_local_ptr[(lane_6 + 12)] + (loaded_local_ptr[((lane_6 + 4) - (kw_2 * 4))] * w_local_ptr[((lane_6 * 9) + (kw_2 * 2))]));
        }
      }
      #pragma unroll
      for (int lane_7 = 0; lane_7 < 4; ++lane_7) {
        sum_local_ptr[(lane_7 + 8)] = (sum_local_ptr[(lane_7 + 8)] + (loaded_local_ptr[lane_7] * w_local_ptr[((lane_7 * 9) + 1)]));
      }
      #pragma unroll
      for (int kw_3 = 0; kw_3 < 2; ++kw_3) {
        #pragma unroll
        for (int lane_8 = 0; lane_8 < 4; ++lane_8) {
          sum_local_ptr[(lane_8 + 20)] = (sum_local_ptr[(lane_8 + 20)] + (loaded_local_ptr[((lane_8 + 4) - (kw_3 * 4))] * w_local_ptr[(((lane_8 * 9) + (kw_3 * 2)) + 3)]));
        }
      }
      #pragma unroll
      for (int lane_9 = 0; lane_9 < 4; ++lane_9) {
        sum_local_ptr[(lane_9 + 16)] = (sum_local_ptr[(lane_9 + 16)] + (loaded_local_ptr[lane_9] * w_local_ptr[((lane_9 * 9) + 4)]));
      }
      #pragma unroll
      for (int kw_4 = 0; kw_4 < 2; ++kw_4) {
        #pragma unroll
        for (int lane_10 = 0; lane_10 < 4; ++lane_10) {
          sum_local_ptr[(lane_10 + 28)] = (sum_local_ptr[(lane_10 + 28)] + (loaded_local_ptr[((lane_10 + 4) - (kw_4 * 4))] * w_local_ptr[(((lane_10 * 9) + (kw_4 * 2)) + 6)]));
        }
      }
      #pragma unroll
      for (int lane_11 = 0; lane_11 < 4; ++lane_11) {
        sum_local_ptr[(lane_11 + 24)] = (sum_local_ptr[(lane_11 + 24)] + (loaded_local_ptr[lane_11] * w_local_ptr[((lane_11 * 9) + 7)]));
      }
      row_at_local_ptr_3[0] = ((w * 8) + written_at_local_ptr[0]);
      #pragma unroll
      for (int column_1 = 0; column_1 < 2; ++column_1) {
        if ((done_local_ptr[0] <= 1) && ((((((int)blockIdx.x) * 4) + (((int)threadIdx.y) * 2)) + column_1) < w)) {
          *(float4*)(dx_ptr + ((column_1 * 32) + (row_at_local_ptr_3[0] * 4))) = *(float4*)(sum_local_ptr + ((column_1 * 4) + 8));
        }
      }
      row_at_local_ptr_4[0] = ((w * 16) + written_at_local_ptr[0]);
      #pragma unroll
      for (int column_2 = 0; column_2 < 2; ++column_2) {
        if ((((((int)blockIdx.x) * 4) + (((int)threadIdx.y) * 2)) + column_2) < w) {
          *(float4*)(dx_ptr + ((column_2 * 32) + (row_at_local_ptr_4[0] * 4))) = *(float4*)(sum_local_ptr + ((column_2 * 4) + 16));
        }
      }
      read_at_local_ptr[0] = ((ow * 16) + read_at_local_ptr[0]);
      #pragma unroll
      for (int lane_12 = 0; lane_12 < 4; ++lane_12) {
        loaded_local_ptr[lane_12] = 0x0p+0f/*0.000000e+00*/;
      }
      if ((first_local_ptr[0] + 2) < oh) {
        *(float4*)(loaded_local_ptr + 0) = *(float4*)(dy_ptr + (read_at_local_ptr[0] * 4));
      }
      #pragma unroll
      for (int lane_13 = 0; lane_13 < 4; ++lane_13) {
        loaded_local_ptr[(lane_13 + 4)] = 0x0p+0f/*0.000000e+00*/;
      }
      if (((first_local_ptr[0] + 2) < oh) && ((((((int)blockIdx.x) * 2) + ((int)threadIdx.y)) + 1) < ow)) {
        *(float4*)(loaded_local_ptr + 4) = *(float4*)(dy_ptr + ((read_at_local_ptr[0] * 4) + 32));
      }
      #pragma unroll
      for (int kw_5 = 0; kw_5 < 2; ++kw_5) {
        #pragma unroll
        for (int lane_14 = 0; lane_14 < 4; ++lane_14) {
          sum_local_ptr[(lane_14 + 28)] = (sum_local_ptr[(lane_14 + 28)] + (loaded_local_ptr[((lane_14 + 4) - (kw_5 * 4))] * w_local_ptr[((lane_14 * 9) + (kw_5 * 2))]));
        }
      }
      #pragma unroll
      for (int lane_15 = 0; lane_15 < 4; ++lane_15) {
        sum_local_ptr[(lane_15 + 24)] = (sum_local_ptr[(lane_15 + 24)] + (loaded_local_ptr[lane_15] * w_local_ptr[((lane_15 * 9) + 1)]));
      }
      written_at_local_ptr[0] = ((w * 24) + written_at_local_ptr[0]);
      #pragma unroll
      for (int column_3 = 0; column_3 < 2; ++column_3) {
        if ((((first_local_ptr[0] * 2) + 3) < h) && ((((((int)blockIdx.x) * 4) + (((int)threadIdx.y) * 2)) + column_3) < w)) {
          *(float4*)(dx_ptr + ((column_3 * 32) + (written_at_local_ptr[0] * 4))) = *(float4*)(sum_local_ptr + ((column_3 * 4) + 24));
        }
      }
    } else {
      for (int part = 0; part < 2; ++part) {
        if ((((((int)blockIdx.y) * 8) + (((int)threadIdx.z) * 4)) + (part * 2)) < h) {
          read_at_local_ptr_1[0] = ((((((int)blockIdx.x) * 16) + ((((((((int)blockIdx.y) * 4) + (((int)threadIdx.z) * 2)) + (((int)blockIdx.z) * oh)) + part) * ow) * 8)) + (((int)threadIdx.y) * 8)) + ((int)threadIdx.x));
          written_at_local_ptr_1[0] = ((((((int)blockIdx.x) * 32) + (((int)threadIdx.y) * 16)) + ((((((((int)blockIdx.y) * 8) + (((int)threadIdx.z) * 4)) + (part * 2)) + (((int)blockIdx.z) * h)) * w) * 8)) + ((int)threadIdx.x));
          #pragma unroll
          for (int index_1 = 0; index_1 < 16; ++index_1) {
            sum_local_ptr_1[index_1] = 0x0p+0f/*0.000000e+00*/;
          }
          row_at_local_ptr_5[0] = read_at_local_ptr_1[0];
          *(float4*)(loaded_local_ptr_1 + 0) = *(float4*)(dy_ptr + (row_at_local_ptr_5[0] * 4));
          #pragma unroll
          for (int lane_16 = 0; lane_16 < 4; ++lane_16) {
            loaded_local_ptr_1[(lane_16 + 4)] = 0x0p+0f/*0.000000e+00*/;
          }
          if ((((((int)blockIdx.x) * 2) + ((int)threadIdx.y)) + 1) < ow) {
            *(float4*)(loaded_local_ptr_1 + 4) = *(float4*)(dy_ptr + ((row_at_local_ptr_5[0] * 4) + 32));
          }
          #pragma unroll
          for (int kw_6 = 0; kw_6 < 2; ++kw_6) {
            #pragma unroll
            for (int lane_17 = 0; lane_17 < 4; ++lane_17) {
              sum_local_ptr_1[(lane_17 + 4)] = (sum_local_ptr_1[(lane_17 + 4)] + (loaded_local_ptr_1[((lane_17 + 4) - (kw_6 * 4))] * w_local_ptr[(((lane_17 * 9) + (kw_6 * 2)) + 3)]));
            }
          }
          #pragma unroll
          for (int lane_18 = 0; lane_18 < 4; ++lane_18) {
            sum_local_ptr_1[lane_18] = (sum_local_ptr_1[lane_18] + (loaded_local_ptr_1[lane_18] * w_local_ptr[((lane_18 * 9) + 4)]));
          }
          #pragma unroll
          for (int kw_7 = 0; kw_7 < 2; ++kw_7) {
            #pragma unroll
            for (int lane_19 = 0; lane_19 < 4; ++lane_19) {
              sum_local_ptr_1[(lane_19 + 12)] = (sum_local_ptr_1[(lane_19 + 12)] + (loaded_local_ptr_1[((lane_19 + 4) - (kw_7 * 4))] * w_local_ptr[(((lane_19 * 9) + (kw_7 * 2)) + 6)]));
            }
          }
          #pragma unroll
          for (int lane_20 = 0; lane_20 < 4; ++lane_20) {
            sum_local_ptr_1[(lane_20 + 8)] = (sum_local_ptr_1[(lane_20 + 8)] + (loaded_local_ptr_1[lane_20] * w_local_ptr[((lane_20 * 9) + 7)]));
          }
          row_at_local_ptr_6[0] = written_at_local_ptr_1[0];
          #pragma unroll
          for (int column_4 = 0; column_4 < 2; ++column_4) {
            if ((((((int)blockIdx.x) * 4) + (((int)threadIdx.y) * 2)) + column_4) < w) {
              *(float4*)(dx_ptr + ((column_4 * 32) + (row_at_local_ptr_6[0] * 4))) = *(float4*)(sum_local_ptr_1 + (column_4 * 4));
            }
          }
          read_at_local_ptr_1[0] = ((ow * 8) + read_at_local_ptr_1[0]);
          #pragma unroll
          for (int lane_21 = 0; lane_21 < 4; ++lane_21) {
            loaded_local_ptr_1[lane_21] = 0x0p+0f/*0.000000e+00*/;
          }
          if (((((((int)blockIdx.y) * 4) + (((int)threadIdx.z) * 2)) + part) + 1) < oh) {
            *(float4*)(loaded_local_ptr_1 + 0) = *(float4*)(dy_ptr + (read_at_local_ptr_1[0] * 4));
          }
          #pragma unroll
          for (int lane_22 = 0; lane_22 < 4; ++lane_22) {
            loaded_local_ptr_1[(lane_22 + 4)] = 0x0p+0f/*0.000000e+00*/;
          }
          if ((((((((int)blockIdx.y) * 4) + (((int)threadIdx.z) * 2)) + part) + 1) < oh) && ((((((int)blockIdx.x) * 2) + ((int)threadIdx.y)) + 1) < ow)) {
            *(float4*)(loaded_local_ptr_1 + 4) = *(float4*)(dy_ptr + ((read_at_local_ptr_1[0] * 4) + 32));
          }
          #pragma unroll
          for (int kw_8 = 0; kw_8 < 2; ++kw_8) {
            #pragma unroll
            for (int lane_23 = 0; lane_23 < 4; ++lane_23) {
              sum_local_ptr_1[(lane_23 + 12)] = (sum_local_ptr_1[(lane_23 + 12)] + (loaded_local_ptr_1[((lane_23 + 4) - (kw_8 * 4))] * w_local_ptr[((lane_23 * 9) + (kw_8 * 2))]));
            }
          }
          #pragma unroll
          for (int lane_24 = 0; lane_24 < 4; ++lane_24) {
            sum_local_ptr_1[(lane_24 + 8)] = (sum_local_ptr_1[(lane_24 + 8)] + (loaded_local_ptr_1[lane_24] * w_local_ptr[((lane_24 * 9) + 1)]));
          }
          written_at_local_ptr_1[0] = ((w * 8) + written_at_local_ptr_1[0]);
          #pragma unroll
          for (int column_5 = 0; column_5 < 2; ++column_5) {
            if ((((((((int)blockIdx.y) * 8) + (((int)threadIdx.z) * 4)) + (part * 2)) + 1) < h) && ((((((int)blockIdx.x) * 4) + (((int)threadIdx.y) * 2)) + column_5) < w)) {
              *(float4*)(dx_ptr + ((column_5 * 32) + (written_at_local_ptr_1[0] * 4))) = *(float4*)(sum_local_ptr_1 + ((column_5 * 4) + 8));
            }
          }
        }
      }
    }
  }
}
