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

#include <cuda_fp16.h>

extern "C" __global__ void __launch_bounds__(64) main_kernel(half* __restrict__ dx_ptr, half* __restrict__ dy_ptr, half* __restrict__ w_ptr, int n) {
  __shared__ alignas(64) float staged_shared_ptr[1728];
  alignas(64) half fetched_local_ptr[12];
  alignas(64) float sum_local_ptr[8];
  for (int ax4_0 = 0; ax4_0 < 2; ++ax4_0) {
    half condval;
    if (((1 <= ((ax4_0 * 8) + ((int)threadIdx.y))) && (((ax4_0 * 8) + ((int)threadIdx.y)) < 9)) && (1 <= ((int)threadIdx.x))) {
      condval = dy_ptr[((((((((int)blockIdx.x) * 512) + (((int)threadIdx.z) * 128)) + (ax4_0 * 128)) + (((int)threadIdx.y) * 16)) + ((int)threadIdx.x)) - 17)];
    } else {
      condval = __float2half_rn(0x0p+0f/*0.000000e+00*/);
    }
    fetched_local_ptr[0] = condval;
    half condval_1;
    if ((1 <= ((ax4_0 * 8) + ((int)threadIdx.y))) && (((ax4_0 * 8) + ((int)threadIdx.y)) < 9)) {
      condval_1 = dy_ptr[((((((((int)blockIdx.x) * 512) + (((int)threadIdx.z) * 128)) + (ax4_0 * 128)) + (((int)threadIdx.y) * 16)) + ((int)threadIdx.x)) - 9)];
    } else {
      condval_1 = __float2half_rn(0x0p+0f/*0.000000e+00*/);
    }
    fetched_local_ptr[1] = condval_1;
    half condval_2;
    if ((((((int)threadIdx.x) < 2) && (1 <= ((ax4_0 * 8) + ((int)threadIdx.y)))) && (((ax4_0 * 8) + ((int)threadIdx.y)) < 9)) && (((int)threadIdx.x) < 1)) {
      condval_2 = dy_ptr[((((((((int)blockIdx.x) * 512) + (((int)threadIdx.z) * 128)) + (ax4_0 * 128)) + (((int)threadIdx.y) * 16)) + ((int)threadIdx.x)) - 1)];
    } else {
      condval_2 = __float2half_rn(0x0p+0f/*0.000000e+00*/);
    }
    fetched_local_ptr[2] = condval_2;
    if (ax4_0 < 1) {
      half condval_3;
      if (1 <= ((int)threadIdx.x)) {
        condval_3 = dy_ptr[((((((((int)blockIdx.x) * 512) + (((int)threadIdx.z) * 128)) + (ax4_0 * 128)) + (((int)threadIdx.y) * 16)) + ((int)threadIdx.x)) + 15)];
      } else {
        condval_3 = __float2half_rn(0x0p+0f/*0.000000e+00*/);
      }
      fetched_local_ptr[3] = condval_3;
      fetched_local_ptr[4] = dy_ptr[((((((((int)blockIdx.x) * 512) + (((int)threadIdx.z) * 128)) + (ax4_0 * 128)) + (((int)threadIdx.y) * 16)) + ((int)threadIdx.x)) + 23)];
      half condval_4;
      if ((((int)threadIdx.x) < 2) && (((int)threadIdx.x) < 1)) {
        condval_4 = dy_ptr[((((((((int)blockIdx.x) * 512) + (((int)threadIdx.z) * 128)) + (ax4_0 * 128)) + (((int)threadIdx.y) * 16)) + ((int)threadIdx.x)) + 31)];
      } else {
        condval_4 = __float2half_rn(0x0p+0f/*0.000000e+00*/);
      }
      fetched_local_ptr[5] = condval_4;
    }
    if (ax4_0 < 1) {
      half condval_5;
      if (1 <= ((int)threadIdx.x)) {
        condval_5 = dy_ptr[((((((((int)blockIdx.x) * 512) + (((int)threadIdx.z) * 128)) + (ax4_0 * 128)) + (((int)threadIdx.y) * 16)) + ((int)threadIdx.x)) + 47)];
      } else {
        condval_5 = __float2half_rn(0x0p+0f/*0.000000e+00*/);
      }
      fetched_local_ptr[6] = condval_5;
      fetched_local_ptr[7] = dy_ptr[((((((((int)blockIdx.x) * 512) + (((int)threadIdx.z) * 128)) + (ax4_0 * 128)) + (((int)threadIdx.y) * 16)) + ((int)threadIdx.x)) + 55)];
      half condval_6;
      if ((((int)threadIdx.x) < 2) && (((int)threadIdx.x) < 1)) {
        condval_6 = dy_ptr[((((((((int)blockIdx.x) * 512) + (((int)threadIdx.z) * 128)) + (ax4_0 * 128)) + (((int)threadIdx.y) * 16)) + ((int)threadIdx.x)) + 63)];
      } else {
        condval_6 = __float2half_rn(0x0p+0f/*0.000000e+00*/);
      }
      fetched_local_ptr[8] = condval_6;
    }
    if (ax4_0 < 1) {
      half condval_7;
      if (1 <= ((int)threadIdx.x)) {
        condval_7 = dy_ptr[((((((((int)blockIdx.x) * 512) + (((int)threadIdx.z) * 128)) + (ax4_0 * 128)) + (((int)threadIdx.y) * 16)) + ((int)threadIdx.x)) + 79)];
      } else {
        condval_7 = __float2half_rn(0x0p+0f/*0.000000e+00*/);
      }
      fetched_local_ptr[9] = condval_7;
      fetched_local_ptr[10] = dy_ptr[((((((((int)blockIdx.x) * 512) + (((int)threadIdx.z) * 128)) + (ax4_0 * 128)) + (((int)threadIdx.y) * 16)) + ((int)threadIdx.x)) + 87)];
      half condval_8;
      if ((((int)threadIdx.x) < 2) && (((int)threadIdx.x) < 1)) {
        condval_8 = dy_ptr[((((((((int)blockIdx.x) * 512) + (((int)threadIdx.z) * 128)) + (ax4_0 * 128)) + (((int)threadIdx.y) * 16)) + ((int)threadIdx.x)) + 95)];
      } else {
        condval_8 = __float2half_rn(0x0p+0f/*0.000000e+00*/);
      }
      fetched_local_ptr[11] = condval_8;
    }
    staged_shared_ptr[((((((int)threadIdx.z) * 432) + (ax4_0 * 336)) + (((int)threadIdx.y) * 42)) + ((int)threadIdx.x))] = ((float)fetched_local_ptr[0]);
    staged_shared_ptr[(((((((int)threadIdx.z) * 432) + (ax4_0 * 336)) + (((int)threadIdx.y) * 42)) + ((int)threadIdx.x)) + 8)] = ((float)fetched_local_ptr[1]);
    staged_shared_ptr[(((((((int)threadIdx.z) * 432) + (ax4_0 * 336)) + (((int)threadIdx.y) * 42)) + ((int)threadIdx.x)) + 16)] = ((float)fetched_local_ptr[2]);
    if (ax4_0 < 1) {
      staged_shared_ptr[(((((((int)threadIdx.z) * 432) + (ax4_0 * 336)) + (((int)threadIdx.y) * 42)) + ((int)threadIdx.x)) + 84)] = ((float)fetched_local_ptr[3]);
      staged_shared_ptr[(((((((int)threadIdx.z) * 432) + (ax4_0 * 336)) + (((int)threadIdx.y) * 42)) + ((int)threadIdx.x)) + 92)] = ((float)fetched_local_ptr[4]);
      staged_shared_ptr[(((((((int)threadIdx.z) * 432) + (ax4_0 * 336)) + (((int)threadIdx.y) * 42)) + ((int)threadIdx.x)) + 100)] = ((float)fetched_local_ptr[5]);
    }
    if (ax4_0 < 1) {
      staged_shared_ptr[(((((((int)threadIdx.z) * 432) + (ax4_0 * 336)) + (((int)threadIdx.y) * 42)) + ((int)threadIdx.x)) + 168)] = ((float)fetched_local_ptr[6]);
      staged_shared_ptr[(((((((int)threadIdx.z) * 432) + (ax4_0 * 336)) + (((int)threadIdx.y) * 42)) + ((int)threadIdx.x)) + 176)] = ((float)fetched_local_ptr[7]);
      staged_shared_ptr[(((((((int)threadIdx.z) * 432) + (ax4_0 * 336)) + (((int)threadIdx.y) * 42)) + ((int)threadIdx.x)) + 184)] = ((float)fetched_local_ptr[8]);
    }
    if (ax4_0 < 1) {
      staged_shared_ptr[(((((((int)threadIdx.z) * 432) + (ax4_0 * 336)) + (((int)threadIdx.y) * 42)) + ((int)threadIdx.x)) + 252)] = ((float)fetched_local_ptr[9]);
      staged_shared_ptr[(((((((int)threadIdx.z) * 432) + (ax4_0 * 336)) + (((int)threadIdx.y) * 42)) + ((int)threadIdx.x)) + 260)] = ((float)fetched_local_ptr[10]);
      staged_shared_ptr[(((((((int)threadIdx.z) * 432) + (ax4_0 * 336)) + (((int)threadIdx.y) * 42)) + ((int)threadIdx.x)) + 268)] = ((float)fetched_local_ptr[11]);
    }
  }
  sum_local_ptr[0] = 0x0p+0f/*0.000000e+00*/;
  sum_local_ptr[4] = 0x0p+0f/*0.000000e+00*/;
  sum_local_ptr[1] = 0x0p+0f/*0.000000e+00*/;
  sum_local_ptr[5] = 0x0p+0f/*0.000000e+00*/;
  sum_local_ptr[2] = 0x0p+0f/*0.000000e+00*/;
  sum_local_ptr[6] = 0x0p+0f/*0.000000e+00*/;
  sum_local_ptr[3] = 0x0p+0f/*0.000000e+00*/;
  sum_local_ptr[7] = 0x0p+0f/*0.000000e+00*/;
  __syncthreads();
  sum_local_ptr[0] = (sum_local_ptr[0] + (staged_shared_ptr[(((((int)threadIdx.z) * 432) + (((int)threadIdx.y) * 168)) + ((int)threadIdx.x))] * ((float)w_ptr[((((int)threadIdx.z) * 9) + 8)])));
  sum_local_ptr[4] = (sum_local_ptr[4] + (staged_shared_ptr[((((((int)threadIdx.z) * 432) + (((int)threadIdx.y) * 168)) + ((int)threadIdx.x)) + 8)] * ((float)w_ptr[((((int)threadIdx.z) * 9) + 8)])));
  sum_local_ptr[1] = (sum_local_ptr[1] + (staged_shared_ptr[((((((int)threadIdx.z) * 432) + (((int)threadIdx.y) * 168)) + ((int)threadIdx.x)) + 42)] * ((float)w_ptr[((((int)threadIdx.z) * 9) + 8)])));
  sum_local_ptr[5] = (sum_local_ptr[5] + (staged_shared_ptr[((((((int)threadIdx.z) * 432) + (((int)threadIdx.y) * 168)) + ((int)threadIdx.x)) + 50)] * ((float)w_ptr[((((int)threadIdx.z) * 9) + 8)])));
  sum_local_ptr[2] = (sum_local_ptr[2] + (staged_shared_ptr[((((((int)threadIdx.z) * 432) + (((int)threadIdx.y) * 168)) + ((int)threadIdx.x)) + 84)] * ((float)w_ptr[((((int)threadIdx.z) * 9) + 8)])));
  sum_local_ptr[6] = (sum_local_ptr[6] + (staged_shared_ptr[((((((int)threadIdx.z) * 432) + (((int)threadIdx.y) * 168)) + ((int)threadIdx.x)) + 92)] * ((float)w_ptr[((((int)threadIdx.z) * 9) + 8)])));
  sum_local_ptr[3] = (sum_local_ptr[3] + (staged_shared_ptr[((((((int)threadIdx.z) * 432) + (((int)threadIdx.y) * 168)) + ((int)threadIdx.x)) + 126)] * ((float)w_ptr[((((int)threadIdx.z) * 9) + 8)])));
  sum_local_ptr[7] = (sum_local_ptr[7] + (staged_shared_ptr[((((((int)threadIdx.z) * 432) + (((int)threadIdx.y) * 168)) + ((int)threadIdx.x)) + 134)] * ((float)w_ptr[((((int)threadIdx.z) * 9) + 8)])));
  sum_local_ptr[0] = (sum_local_ptr[0] + (staged_shared_ptr[((((((int)threadIdx.z) * 432) + (((int)threadIdx.y) * 168)) + ((int)threadIdx.x)) + 1)] * ((float)w_ptr[((((int)threadIdx.z) * 9) + 7)])));
  sum_local_ptr[4] = (sum_local_ptr[4] + (staged_shared_ptr[((((((int)threadIdx.z) * 432) + (((int)threadIdx.y) * 168)) + ((int)threadIdx.x)) + 9)] * ((float)w_ptr[((((int)threadIdx.z) * 9) + 7)])));
  sum_local_ptr[1] = (sum_local_ptr[1] + (staged_shared_ptr[((((((int)threadIdx.z) * 432) + (((int)threadIdx.y) * 168)) + ((int)threadIdx.x)) + 43)] * ((float)w_ptr[((((int)threadIdx.z) * 9) + 7)])));
  sum_local_ptr[5] = (sum_local_ptr[5] + (staged_shared_ptr[((((((int)threadIdx.z) * 432) + (((int)threadIdx.y) * 168)) + ((int)threadIdx.x)) + 51)] * ((float)w_ptr[((((int)threadIdx.z) * 9) + 7)])));
  sum_local_ptr[2] = (sum_local_ptr[2] + (staged_shared_ptr[((((((int)threadIdx.z) * 432) + (((int)threadIdx.y) * 168)) + ((int)threadIdx.x)) + 85)] * ((float)w_ptr[((((int)threadIdx.z) * 9) + 7)])));
  sum_local_ptr[6] = (sum_local_ptr[6] + (staged_shared_ptr[((((((int)threadIdx.z) * 432) + (((int)threadIdx.y) * 168)) + ((int)threadIdx.x)) + 93)] * ((float)w_ptr[((((int)threadIdx.z) * 9) + 7)])));
  sum_local_ptr[3] = (sum_local_ptr[3] + (staged_shared_ptr[((((((int)threadIdx.z) * 432) + (((int)threadIdx.y) * 168)) + ((int)threadIdx.x)) + 127)] * ((float)w_ptr[((((int)threadIdx.z) * 9) + 7)])));
  sum_local_ptr[7] = (sum_local_ptr[7] + (staged_shared_ptr[((((((int)threadIdx.z) * 432) + (((int)threadIdx.y) * 168)) + ((int)threadIdx.x)) + 135)] * ((float)w_ptr[((((int)threadIdx.z) * 9) + 7)])));
  sum_local_ptr[0] = (sum_local_ptr[0] + (staged_shared_ptr[((((((int)threadIdx.z) * 432) + (((int)threadIdx.y) * 168)) + ((int)threadIdx.x)) + 2)] * ((float)w_ptr[((((int)threadIdx.z) * 9) + 6)])));
  sum_local_ptr[4] = (sum_local_ptr[4] + (staged_shared_ptr[((((((int)threadIdx.z) * 432) + (((int)threadIdx.y) * 168)) + ((int)threadIdx.x)) + 10)] * ((float)w_ptr[((((int)threadIdx.z) * 9) + 6)])));
  sum_local_ptr[1] = (sum_local_ptr[1] + (staged_shared_ptr[((((((int)threadIdx.z) * 432) + (((int)threadIdx.y) * 168)) + ((int)threadIdx.x)) + 44)] * ((float)w_ptr[((((int)threadIdx.z) * 9) + 6)])));
  sum_local_ptr[5] = (sum_local_ptr[5] + (staged_shared_ptr[((((((int)threadIdx.z) * 432) + (((int)threadIdx.y) * 168)) + ((int)threadIdx.x)) + 52)] * ((float)w_ptr[((((int)threadIdx.z) * 9) + 6)])));
  sum_local_ptr[2] = (sum_local_ptr[2] + (staged_shared_ptr[((((((int)threadIdx.z) * 432) + (((int)threadIdx.y) * 168)) + ((int)threadIdx.x)) + 86)] * ((float)w_ptr[((((int)threadIdx.z) * 9) + 6)])));
  sum_local_ptr[6] = (sum_local_ptr[6] + (staged_shared_ptr[((((((int)threadIdx.z) * 432) + (((int)threadIdx.y) * 168)) + ((int)threadIdx.x)) + 94)] * ((float)w_ptr[((((int)threadIdx.z) * 9) + 6)])));
  sum_local_ptr[3] = (sum_local_ptr[3] + (staged_shared_ptr[((((((int)threadIdx.z) * 432) + (((int)threadIdx.y) * 168)) + ((int)threadIdx.x)) + 128)] * ((float)w_ptr[((((int)threadIdx.z) * 9) + 6)])));
  sum_local_ptr[7] = (sum_local_ptr[7] + (staged_shared_ptr[((((((int)threadIdx.z) * 432) + (((int)threadIdx.y) * 168)) + ((int)threadIdx.x)) + 136)] * ((float)w_ptr[((((int)threadIdx.z) * 9) + 6)])));
  sum_local_ptr[0] = (sum_local_ptr[0] + (staged_shared_ptr[((((((int)threadIdx.z) * 432) + (((int)threadIdx.y) * 168)) + ((int)threadIdx.x)) + 42)] * ((float)w_ptr[((((int)threadIdx.z) * 9) + 5)])));
  sum_local_ptr[4] = (sum_local_ptr[4] + (staged_shared_ptr[((((((int)threadIdx.z) * 432) + (((int)threadIdx.y) * 168)) + ((int)threadIdx.x)) + 50)] * ((float)w_ptr[((((int)threadIdx.z) * 9) + 5)])));
  sum_local_ptr[1] = (sum_local_ptr[1] + (staged_shared_ptr[((((((int)threadIdx.z) * 432) + (((int)threadIdx.y) * 168)) + ((int)threadIdx.x)) + 84)] * ((float)w_ptr[((((int)threadIdx.z) * 9) + 5)])));
  sum_local_ptr[5] = (sum_local_ptr[5] + (staged_shared_ptr[((((((int)threadIdx.z) * 432) + (((int)threadIdx.y) * 168)) + ((int)threadIdx.x)) + 92)] * ((float)w_ptr[((((int)threadIdx.z) * 9) + 5)])));
  sum_local_ptr[2] = (sum_local_ptr[2] + (staged_shared_ptr[((((((int)threadIdx.z) * 432) + (((int)threadIdx.y) * 168)) + ((int)threadIdx.x)) + 126)] * ((float)w_ptr[((((int)threadIdx.z) * 9) + 5)])));
  sum_local_ptr[6] = (sum_local_ptr[6] + (staged_shared_ptr[((((((int)threadIdx.z) * 432) + (((int)threadIdx.y) * 168)) + ((int)threadIdx.x)) + 134)] * ((float)w_ptr[((((int)threadIdx.z) * 9) + 5)])));
  sum_local_ptr[3] = (sum_local_ptr[3] + (staged_shared_ptr[((((((int)threadIdx.z) * 432) + (((int)threadIdx.y) * 168)) + ((int)threadIdx.x)) + 168)] * ((float)w_ptr[((((int)threadIdx.z) * 9) + 5)])));
  sum_local_ptr[7] = (sum_local_ptr[7] + (staged_shared_ptr[((((((int)threadIdx.z) * 432) + (((int)threadIdx.y) * 168)) + ((int)threadIdx.x)) + 176)] * ((float)w_ptr[((((int)threadIdx.z) * 9) + 5)])));
  sum_local_ptr[0] = (sum_local_ptr[0] + (staged_shared_ptr[((((((int)threadIdx.z) * 432) + (((int)threadIdx.y) * 168)) + ((int)threadIdx.x)) + 43)] * ((float)w_ptr[((((int)threadIdx.z) * 9) + 4)])));
  sum_local_ptr[4] = (sum_local_ptr[4] + (staged_shared_ptr[((((((int)threadIdx.z) * 432) + (((int)threadIdx.y) * 168)) + ((int)threadIdx.x)) + 51)] * ((float)w_ptr[((((int)threadIdx.z) * 9) + 4)])));
  sum_local_ptr[1] = (sum_local_ptr[1] + (staged_shared_ptr[((((((int)threadIdx.z) * 432) + (((int)threadIdx.y) * 168)) + ((int)threadIdx.x)) + 85)] * ((float)w_ptr[((((int)threadIdx.z) * 9) + 4)])));
  sum_local_ptr[5] = (sum_local_ptr[5] + (staged_shared_ptr[((((((int)threadIdx.z) * 432) + (((int)threadIdx.y) * 168)) + ((int)threadIdx.x)) + 93)] * ((float)w_ptr[((((int)threadIdx.z) * 9) + 4)])));
  sum_local_ptr[2] = (sum_local_ptr[2] + (staged_shared_ptr[((((((int)threadIdx.z) * 432) + (((int)threadIdx.y) * 168)) + ((int)threadIdx.x)) + 127)] * ((float)w_ptr[((((int)threadIdx.z) * 9) + 4)])));
  sum_local_ptr[6] = (sum_local_ptr[6] + (staged_shared_ptr[((((((int)threadIdx.z) * 432) + (((int)threadIdx.y) * 168)) + ((int)threadIdx.x)) + 135)] * ((float)w_ptr[((((int)threadIdx.z) * 9) + 4)])));
  sum_local_ptr[3] = (sum_local_ptr[3] + (staged_shared_ptr[((((((int)threadIdx.z) * 432) + (((int)threadIdx.y) * 168)) + ((int)threadIdx.x)) + 169)] * ((float)w_ptr[((((int)threadIdx.z) * 9) + 4)])));
  sum_local_ptr[7] = (sum_local_ptr[7] + (staged_shared_ptr[((((((int)threadIdx.z) * 432) + (((int)threadIdx.y) * 168)) + ((int)threadIdx.x)) + 177)] * ((float)w_ptr[((((int)threadIdx.z) * 9) + 4)])));
  sum_local_ptr[0] = (sum_local_ptr[0] + (staged_shared_ptr[((((((int)threadIdx.z) * 432) + (((int)threadIdx.y) * 168)) + ((int)threadIdx.x)) + 44)] * ((float)w_ptr[((((int)threadIdx.z) * 9) + 3)])));
  sum_local_ptr[4] = (sum_local_ptr[4] + (staged_shared_ptr[((((((int)threadIdx.z) * 432) + (((int)threadIdx.y) * 168)) + ((int)threadIdx.x)) + 52)] * ((float)w_ptr[((((int)threadIdx.z) * 9) + 3)])));
  sum_local_ptr[1] = (sum_local_ptr[1] + (staged_shared_ptr[((((((int)threadIdx.z) * 432) + (((int)threadIdx.y) * 168)) + ((int)threadIdx.x)) + 86)] * ((float)w_ptr[((((int)threadIdx.z) * 9) + 3)])));
  sum_local_ptr[5] = (sum_local_ptr[5] + (staged_shared_ptr[((((((int)threadIdx.z) * 432) + (((int)threadIdx.y) * 168)) + ((int)threadIdx.x)) + 94)] * ((float)w_ptr[((((int)threadIdx.z) * 9) + 3)])));
  sum_local_ptr[2] = (sum_local_ptr[2] + (staged_shared_ptr[((((((int)threadIdx.z) * 432) + (((int)threadIdx.y) * 168)) + ((int)threadIdx.x)) + 128)] * ((float)w_ptr[((((int)threadIdx.z) * 9) + 3)])));
  sum_local_ptr[6] = (sum_local_ptr[6] + (staged_shared_ptr[((((((int)threadIdx.z) * 432) + (((int)threadIdx.y) * 168)) + ((int)threadIdx.x)) + 136)] * ((float)w_ptr[((((int)threadIdx.z) * 9) + 3)])));
  sum_local_ptr[3] = (sum_local_ptr[3] + (staged_shared_ptr[((((((int)threadIdx.z) * 432) + (((int)threadIdx.y) * 168)) + ((int)threadIdx.x)) + 170)] * ((float)w_ptr[((((int)threadIdx.z) * 9) + 3)])));
  sum_local_ptr[7] = (sum_local_ptr[7] + (staged_shared_ptr[((((((int)threadIdx.z) * 432) + (((int)threadIdx.y) * 168)) + ((int)threadIdx.x)) + 178)] * ((float)w_ptr[((((int)threadIdx.z) * 9) + 3)])));
  sum_local_ptr[0] = (sum_local_ptr[0] + (staged_shared_ptr[((((((int)threadIdx.z) * 432) + (((int)threadIdx.y) * 168)) + ((int)threadIdx.x)) + 84)] * ((float)w_ptr[((((int)threadIdx.z) * 9) + 2)])));
  sum_local_ptr[4] = (sum_local_ptr[4] + (staged_shared_ptr[((((((int)threadIdx.z) * 432) + (((int)threadIdx.y) * 168)) + ((int)threadIdx.x)) + 92)] * ((float)w_ptr[((((int)threadIdx.z) * 9) + 2)])));
  sum_local_ptr[1] = (sum_local_ptr[1] + (staged_shared_ptr[((((((int)threadIdx.z) * 432) + (((int)threadIdx.y) * 168)) + ((int)threadIdx.x)) + 126)] * ((float)w_ptr[((((int)threadIdx.z) * 9) + 2)])));
  sum_local_ptr[5] = (sum_local_ptr[5] + (staged_shared_ptr[((((((int)threadIdx.z) * 432) + (((int)threadIdx.y) * 168)) + ((int)threadIdx.x)) + 134)] * ((float)w_ptr[((((int)threadIdx.z) * 9) + 2)])));
  sum_local_ptr[2] = (sum_local_ptr[2] + (staged_shared_ptr[((((((int)threadIdx.z) * 432) + (((int)threadIdx.y) * 168)) + ((int)threadIdx.x)) + 168)] * ((float)w_ptr[((((int)threadIdx.z) * 9) + 2)])));
  sum_local_ptr[6] = (sum_local_ptr[6] + (staged_shared_ptr[((((((int)threadIdx.z) * 432) + (((int)threadIdx.y) * 168)) + ((int)threadIdx.x)) + 176)] * ((float)w_ptr[((((int)threadIdx.z) * 9) + 2)])));
  sum_local_ptr[3] = (sum_local_ptr[3] + (staged_shared_ptr[((((((int)threadIdx.z) * 432) + (((int)threadIdx.y) * 168)) + ((int)threadIdx.x)) + 210)] * ((float)w_ptr[((((int)threadIdx.z) * 9) + 2)])));
  sum_local_ptr[7] = (sum_local_ptr[7] + (staged_shared_ptr[((((((int)threadIdx.z) * 432) + (((int)threadIdx.y) * 168)) + ((int)threadIdx.x)) + 218)] * ((float)w_ptr[((((int)threadIdx.z) * 9) + 2)])));
  sum_local_ptr[0] = (sum_local_ptr[0] + (staged_shared_ptr[((((((int)threadIdx.z) * 432) + (((int)threadIdx.y) * 168)) + ((int)threadIdx.x)) + 85)] * ((float)w_ptr[((((int)threadIdx.z) * 9) + 1)])));
  sum_local_ptr[4] = (sum_local_ptr[4] + (staged_shared_ptr[((((((int)threadIdx.z) * 432) + (((int)threadIdx.y) * 168)) + ((int)threadIdx.x)) + 93)] * ((float)w_ptr[((((int)threadIdx.z) * 9) + 1)])));
  sum_local_ptr[1] = (sum_local_ptr[1] + (staged_shared_ptr[((((((int)threadIdx.z) * 432) + (((int)threadIdx.y) * 168)) + ((int)threadIdx.x)) + 127)] * ((float)w_ptr[((((int)threadIdx.z) * 9) + 1)])));
  sum_local_ptr[5] = (sum_local_ptr[5] + (staged_shared_ptr[((((((int)threadIdx.z) * 432) + (((int)threadIdx.y) * 168)) + ((int)threadIdx.x)) + 135)] * ((float)w_ptr[((((int)threadIdx.z) * 9) + 1)])));
  sum_local_ptr[2] = (sum_local_ptr[2] + (staged_shared_ptr[((((((int)threadIdx.z) * 432) + (((int)threadIdx.y) * 168)) + ((int)threadIdx.x)) + 169)] * ((float)w_ptr[((((int)threadIdx.z) * 9) + 1)])));
  sum_local_ptr[6] = (sum_local_ptr[6] + (staged_shared_ptr[((((((int)threadIdx.z) * 432) + (((int)threadIdx.y) * 168)) + ((int)threadIdx.x)) + 177)] * ((float)w_ptr[((((int)threadIdx.z) * 9) + 1)])));
  sum_local_ptr[3] = (sum_local_ptr[3] + (staged_shared_ptr[((((((int)threadIdx.z) * 432) + (((int)threadIdx.y) * 168)) + ((int)threadIdx.x)) + 211)] * ((float)w_ptr[((((int)threadIdx.z) * 9) + 1)])));
  sum_local_ptr[7] = (sum_local_ptr[7] + (staged_shared_ptr[((((((int)threadIdx.z) * 432) + (((int)threadIdx.y) * 168)) + ((int)threadIdx.x)) + 219)] * ((float)w_ptr[((((int)threadIdx.z) * 9) + 1)])));
  sum_local_ptr[0] = (sum_local_ptr[0] + (staged_shared_ptr[((((((int)threadIdx.z) * 432) + (((int)threadIdx.y) * 168)) + ((int)threadIdx.x)) + 86)] * ((float)w_ptr[(((int)threadIdx.z) * 9)])));
  sum_local_ptr[4] = (sum_local_ptr[4] + (staged_shared_ptr[((((((int)threadIdx.z) * 432) + (((int)threadIdx.y) * 168)) + ((int)threadIdx.x)) + 94)] * ((float)w_ptr[(((int)threadIdx.z) * 9)])));
  sum_local_ptr[1] = (sum_local_ptr[1] + (staged_shared_ptr[((((((int)threadIdx.z) * 432) + (((int)threadIdx.y) * 168)) + ((int)threadIdx.x)) + 128)] * ((float)w_ptr[(((int)threadIdx.z) * 9)])));
  sum_local_ptr[5] = (sum_local_ptr[5] + (staged_shared_ptr[((((((int)threadIdx.z) * 432) + (((int)threadIdx.y) * 168)) + ((int)threadIdx.x)) + 136)] * ((float)w_ptr[(((int)threadIdx.z) * 9)])));
  sum_local_ptr[2] = (sum_local_ptr[2] + (staged_shared_ptr[((((((int)threadIdx.z) * 432) + (((int)threadIdx.y) * 168)) + ((int)threadIdx.x)) + 170)] * ((float)w_ptr[(((int)threadIdx.z) * 9)])));
  sum_local_ptr[6] = (sum_local_ptr[6] + (staged_shared_ptr[((((((int)threadIdx.z) * 432) + (((int)threadIdx.y) * 168)) + ((int)threadIdx.x)) + 178)] * ((float)w_ptr[(((int)threadIdx.z) * 9)])));
  sum_local_ptr[3] = (sum_local_ptr[3] + (staged_shared_ptr[((((((int)threadIdx.z) * 432) + (((int)threadIdx.y) * 168)) + ((int)threadIdx.x)) + 212)] * ((float)w_ptr[(((int)threadIdx.z) * 9)])));
  sum_local_ptr[7] = (sum_local_ptr[7] + (staged_shared_ptr[((((((int)threadIdx.z) * 432) + (((int)threadIdx.y) * 168)) + ((int)threadIdx.x)) + 220)] * ((float)w_ptr[(((int)threadIdx.z) * 9)])));
  dx_ptr[((((((int)blockIdx.x) * 512) + (((int)threadIdx.z) * 128)) + (((int)threadIdx.y) * 64)) + ((int)threadIdx.x))] = ((half)sum_local_ptr[0]);
  dx_ptr[(((((((int)blockIdx.x) * 512) + (((int)threadIdx.z) * 128)) + (((int)threadIdx.y) * 64)) + ((int)threadIdx.x)) + 8)] = ((half)sum_local_ptr[4]);
  dx_ptr[(((((((int)blockIdx.x) * 512) + (((int)threadIdx.z) * 128)) + (((int)threadIdx.y) * 64)) + ((int)threadIdx.x)) + 16)] = ((half)sum_local_ptr[1]);
  dx_ptr[(((((((int)blockIdx.x) * 512) + (((int)threadIdx.z) * 128)) + (((int)threadIdx.y) * 64)) + ((int)threadIdx.x)) + 24)] = ((half)sum_local_ptr[5]);
  dx_ptr[(((((((int)blockIdx.x) * 512) + (((int)threadIdx.z) * 128)) + (((int)threadIdx.y) * 64)) + ((int)threadIdx.x)) + 32)] = ((half)sum_local_ptr[2]);
  dx_ptr[(((((((int)blockIdx.x) * 512) + (((int)threadIdx.z) * 128)) + (((int)threadIdx.y) * 64)) + ((int)threadIdx.x)) + 40)] = ((half)sum_local_ptr[6]);
  dx_ptr[(((((((int)blockIdx.x) * 512) + (((int)threadIdx.z) * 128)) + (((int)threadIdx.y) * 64)) + ((int)threadIdx.x)) + 48)] = ((half)sum_local_ptr[3]);
  dx_ptr[(((((((int)blockIdx.x) * 512) + (((int)threadIdx.z) * 128)) + (((int)threadIdx.y) * 64)) + ((int)threadIdx.x)) + 56)] = ((half)sum_local_ptr[7]);
}
