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

extern "C" __global__ void __launch_bounds__(64) main_kernel(float* __restrict__ w_ptr, float* __restrict__ x_ptr, float* __restrict__ y_ptr, int n) {
  __shared__ alignas(64) float staged_shared_ptr[2000];
  alignas(64) float fetched_local_ptr[12];
  alignas(64) float sum_local_ptr[4];
  for (int ax4_0 = 0; ax4_0 < 3; ++ax4_0) {
    float condval;
    if ((((((ax4_0 * 8) + ((int)threadIdx.y)) < 17) && (1 <= ((ax4_0 * 8) + ((int)threadIdx.y)))) && (((ax4_0 * 8) + ((int)threadIdx.y)) < 17)) && (1 <= ((int)threadIdx.x))) {
      condval = x_ptr[((((((((int)blockIdx.x) * 1024) + (((int)threadIdx.z) * 512)) + (ax4_0 * 256)) + (((int)threadIdx.y) * 32)) + (((int)threadIdx.x) * 2)) - 33)];
    } else {
      condval = 0x0p+0f/*0.000000e+00*/;
    }
    fetched_local_ptr[0] = condval;
    float condval_1;
    if (((((ax4_0 * 8) + ((int)threadIdx.y)) < 17) && (1 <= ((ax4_0 * 8) + ((int)threadIdx.y)))) && (((ax4_0 * 8) + ((int)threadIdx.y)) < 17)) {
      condval_1 = x_ptr[((((((((int)blockIdx.x) * 1024) + (((int)threadIdx.z) * 512)) + (ax4_0 * 256)) + (((int)threadIdx.y) * 32)) + (((int)threadIdx.x) * 2)) - 17)];
    } else {
      condval_1 = 0x0p+0f/*0.000000e+00*/;
    }
    fetched_local_ptr[1] = condval_1;
    float condval_2;
    if (((((((ax4_0 * 8) + ((int)threadIdx.y)) < 17) && (((int)threadIdx.x) < 1)) && (1 <= ((ax4_0 * 8) + ((int)threadIdx.y)))) && (((ax4_0 * 8) + ((int)threadIdx.y)) < 17)) && (((int)threadIdx.x) < 1)) {
      condval_2 = x_ptr[((((((((int)blockIdx.x) * 1024) + (((int)threadIdx.z) * 512)) + (ax4_0 * 256)) + (((int)threadIdx.y) * 32)) + (((int)threadIdx.x) * 2)) - 1)];
    } else {
      condval_2 = 0x0p+0f/*0.000000e+00*/;
    }
    fetched_local_ptr[2] = condval_2;
    float condval_3;
    if (((((ax4_0 * 8) + ((int)threadIdx.y)) < 17) && (1 <= ((ax4_0 * 8) + ((int)threadIdx.y)))) && (((ax4_0 * 8) + ((int)threadIdx.y)) < 17)) {
      condval_3 = x_ptr[((((((((int)blockIdx.x) * 1024) + (((int)threadIdx.z) * 512)) + (ax4_0 * 256)) + (((int)threadIdx.y) * 32)) + (((int)threadIdx.x) * 2)) - 32)];
    } else {
      condval_3 = 0x0p+0f/*0.000000e+00*/;
    }
    fetched_local_ptr[3] = condval_3;
    float condval_4;
    if (((((ax4_0 * 8) + ((int)threadIdx.y)) < 17) && (1 <= ((ax4_0 * 8) + ((int)threadIdx.y)))) && (((ax4_0 * 8) + ((int)threadIdx.y)) < 17)) {
      condval_4 = x_ptr[((((((((int)blockIdx.x) * 1024) + (((int)threadIdx.z) * 512)) + (ax4_0 * 256)) + (((int)threadIdx.y) * 32)) + (((int)threadIdx.x) * 2)) - 16)];
    } else {
      condval_4 = 0x0p+0f/*0.000000e+00*/;
    }
    fetched_local_ptr[4] = condval_4;
    fetched_local_ptr[5] = 0x0p+0f/*0.000000e+00*/;
    if (ax4_0 < 2) {
      float condval_5;
      if (1 <= ((int)threadIdx.x)) {
        condval_5 = x_ptr[((((((((int)blockIdx.x) * 1024) + (((int)threadIdx.z) * 512)) + (ax4_0 * 256)) + (((int)threadIdx.y) * 32)) + (((int)threadIdx.x) * 2)) + 95)];
      } else {
        condval_5 = 0x0p+0f/*0.000000e+00*/;
      }
      fetched_local_ptr[6] = condval_5;
      fetched_local_ptr[7] = x_ptr[((((((((int)blockIdx.x) * 1024) + (((int)threadIdx.z) * 512)) + (ax4_0 * 256)) + (((int)threadIdx.y) * 32)) + (((int)threadIdx.x) * 2)) + 111)];
      float condval_6;
      if ((((int)threadIdx.x) < 1) && (((int)threadIdx.x) < 1)) {
        condval_6 = x_ptr[((((((((int)blockIdx.x) * 1024) + (((int)threadIdx.z) * 512)) + (ax4_0 * 256)) + (((int)threadIdx.y) * 32)) + (((int)threadIdx.x) * 2)) + 127)];
      } else {
        condval_6 = 0x0p+0f/*0.000000e+00*/;
      }
      fetched_local_ptr[8] = condval_6;
      fetched_local_ptr[9] = x_ptr[((((((((int)blockIdx.x) * 1024) + (((int)threadIdx.z) * 512)) + (ax4_0 * 256)) + (((int)threadIdx.y) * 32)) + (((int)threadIdx.x) * 2)) + 96)];
      fetched_local_ptr[10] = x_ptr[((((((((int)blockIdx.x) * 1024) + (((int)threadIdx.z) * 512)) + (ax4_0 * 256)) + (((int)threadIdx.y) * 32)) + (((int)threadIdx.x) * 2)) + 112)];
      fetched_local_ptr[11] = 0x0p+0f/*0.000000e+00*/;
    }
    staged_shared_ptr[((((((int)threadIdx.z) * 1000) + (ax4_0 * 400)) + (((int)threadIdx.y) * 50)) + ((int)threadIdx.x))] = fetched_local_ptr[0];
    staged_shared_ptr[(((((((int)threadIdx.z) * 1000) + (ax4_0 * 400)) + (((int)threadIdx.y) * 50)) + ((int)threadIdx.x)) + 8)] = fetched_local_ptr[1];
    staged_shared_ptr[(((((((int)threadIdx.z) * 1000) + (ax4_0 * 400)) + (((int)threadIdx.y) * 50)) + ((int)threadIdx.x)) + 16)] = fetched_local_ptr[2];
    staged_shared_ptr[(((((((int)threadIdx.z) * 1000) + (ax4_0 * 400)) + (((int)threadIdx.y) * 50)) + ((int)threadIdx.x)) + 24)] = fetched_local_ptr[3];
    staged_shared_ptr[(((((((int)threadIdx.z) * 1000) + (ax4_0 * 400)) + (((int)threadIdx.y) * 50)) + ((int)threadIdx.x)) + 32)] = fetched_local_ptr[4];
    staged_shared_ptr[(((((((int)threadIdx.z) * 1000) + (ax4_0 * 400)) + (((int)threadIdx.y) * 50)) + ((int)threadIdx.x)) + 40)] = fetched_local_ptr[5];
    if (ax4_0 < 2) {
      staged_shared_ptr[(((((((int)threadIdx.z) * 1000) + (ax4_0 * 400)) + (((int)threadIdx.y) * 50)) + ((int)threadIdx.x)) + 200)] = fetched_local_ptr[6];
      staged_shared_ptr[(((((((int)threadIdx.z) * 1000) + (ax4_0 * 400)) + (((int)threadIdx.y) * 50)) + ((int)threadIdx.x)) + 208)] = fetched_local_ptr[7];
      staged_shared_ptr[(((((((int)threadIdx.z) * 1000) + (ax4_0 * 400)) + (((int)threadIdx.y) * 50)) + ((int)threadIdx.x)) + 216)] = fetched_local_ptr[8];
      staged_shared_ptr[(((((((int)threadIdx.z) * 1000) + (ax4_0 * 400)) + (((int)threadIdx.y) * 50)) + ((int)threadIdx.x)) + 224)] = fetched_local_ptr[9];
      staged_shared_ptr[(((((((int)threadIdx.z) * 1000) + (ax4_0 * 400)) + (((int)threadIdx.y) * 50)) + ((int)threadIdx.x)) + 232)] = fetched_local_ptr[10];
      staged_shared_ptr[(((((((int)threadIdx.z) * 1000) + (ax4_0 * 400)) + (((int)threadIdx.y) * 50)) + ((int)threadIdx.x)) + 240)] = fetched_local_ptr[11];
    }
  }
  sum_local_ptr[0] = 0x0p+0f/*0.000000e+00*/;
  sum_local_ptr[2] = 0x0p+0f/*0.000000e+00*/;
  sum_local_ptr[1] = 0x0p+0f/*0.000000e+00*/;
  sum_local_ptr[3] = 0x0p+0f/*0.000000e+00*/;
  __syncthreads();
  sum_local_ptr[0] = (sum_local_ptr[0] + (staged_shared_ptr[(((((int)threadIdx.z) * 1000) + (((int)threadIdx.y) * 200)) + ((int)threadIdx.x))] * w_ptr[(((((int)blockIdx.x) & 1) * 18) + (((int)threadIdx.z) * 9))]));
  sum_local_ptr[2] = (sum_local_ptr[2] + (staged_shared_ptr[((((((int)threadIdx.z) * 1000) + (((int)threadIdx.y) * 200)) + ((int)threadIdx.x)) + 8)] * w_ptr[(((((int)blockIdx.x) & 1) * 18) + (((int)threadIdx.z) * 9))]));
  sum_local_ptr[1] = (sum_local_ptr[1] + (staged_shared_ptr[((((((int)threadIdx.z) * 1000) + (((int)threadIdx.y) * 200)) + ((int)threadIdx.x)) + 100)] * w_ptr[(((((int)blockIdx.x) & 1) * 18) + (((int)threadIdx.z) * 9))]));
  sum_local_ptr[3] = (sum_local_ptr[3] + (staged_shared_ptr[((((((int)threadIdx.z) * 1000) + (((int)threadIdx.y) * 200)) + ((int)threadIdx.x)) + 108)] * w_ptr[(((((int)blockIdx.x) & 1) * 18) + (((int)threadIdx.z) * 9))]));
  sum_local_ptr[0] = (sum_local_ptr[0] + (staged_shared_ptr[((((((int)threadIdx.z) * 1000) + (((int)threadIdx.y) * 200)) + ((int)threadIdx.x)) + 24)] * w_ptr[((((((int)blockIdx.x) & 1) * 18) + (((int)threadIdx.z) * 9)) + 1)]));
  sum_local_ptr[2] = (sum_local_ptr[2] + (staged_shared_ptr[((((((int)threadIdx.z) * 1000) + (((int)threadIdx.y) * 200)) + ((int)threadIdx.x)) + 32)] * w_ptr[((((((int)blockIdx.x) & 1) * 18) + (((int)threadIdx.z) * 9)) + 1)]));
  sum_local_ptr[1] = (sum_local_ptr[1] + (staged_shared_ptr[((((((int)threadIdx.z) * 1000) + (((int)threadIdx.y) * 200)) + ((int)threadIdx.x)) + 124)] * w_ptr[((((((int)blockIdx.x) & 1) * 18) + (((int)threadIdx.z) * 9)) + 1)]));
  sum_local_ptr[3] = (sum_local_ptr[3] + (staged_shared_ptr[((((((int)threadIdx.z) * 1000) + (((int)threadIdx.y) * 200)) + ((int)threadIdx.x)) + 132)] * w_ptr[((((((int)blockIdx.x) & 1) * 18) + (((int)threadIdx.z) * 9)) + 1)]));
  sum_local_ptr[0] = (sum_local_ptr[0] + (staged_shared_ptr[((((((int)threadIdx.z) * 1000) + (((int)threadIdx.y) * 200)) + ((int)threadIdx.x)) + 1)] * w_ptr[((((((int)blockIdx.x) & 1) * 18) + (((int)threadIdx.z) * 9)) + 2)]));
  sum_local_ptr[2] = (sum_local_ptr[2] + (staged_shared_ptr[((((((int)threadIdx.z) * 1000) + (((int)threadIdx.y) * 200)) + ((int)threadIdx.x)) + 9)] * w_ptr[((((((int)blockIdx.x) & 1) * 18) + (((int)threadIdx.z) * 9)) + 2)]));
  sum_local_ptr[1] = (sum_local_ptr[1] + (staged_shared_ptr[((((((int)threadIdx.z) * 1000) + (((int)threadIdx.y) * 200)) + ((int)threadIdx.x)) + 101)] * w_ptr[((((((int)blockIdx.x) & 1) * 18) + (((int)threadIdx.z) * 9)) + 2)]));
  sum_local_ptr[3] = (sum_local_ptr[3] + (staged_shared_ptr[((((((int)threadIdx.z) * 1000) + (((int)threadIdx.y) * 200)) + ((int)threadIdx.x)) + 109)] * w_ptr[((((((int)blockIdx.x) & 1) * 18) + (((int)threadIdx.z) * 9)) + 2)]));
  sum_local_ptr[0] = (sum_local_ptr[0] + (staged_shared_ptr[((((((int)threadIdx.z) * 1000) + (((int)threadIdx.y) * 200)) + ((int)threadIdx.x)) + 50)] * w_ptr[((((((int)blockIdx.x) & 1) * 18) + (((int)threadIdx.z) * 9)) + 3)]));
  sum_local_ptr[2] = (sum_local_ptr[2] + (staged_shared_ptr[((((((int)threadIdx.z) * 1000) + (((int)threadIdx.y) * 200)) + ((int)threadIdx.x)) + 58)] * w_ptr[((((((int)blockIdx.x) & 1) * 18) + (((int)threadIdx.z) * 9)) + 3)]));
  sum_local_ptr[1] = (sum_local_ptr[1] + (staged_shared_ptr[((((((int)threadIdx.z) * 1000) + (((int)threadIdx.y) * 200)) + ((int)threadIdx.x)) + 150)] * w_ptr[((((((int)blockIdx.x) & 1) * 18) + (((int)threadIdx.z) * 9)) + 3)]));
  sum_local_ptr[3] = (sum_local_ptr[3] + (staged_shared_ptr[((((((int)threadIdx.z) * 1000) + (((int)threadIdx.y) * 200)) + ((int)threadIdx.x)) + 158)] * w_ptr[((((((int)blockIdx.x) & 1) * 18) + (((int)threadIdx.z) * 9)) + 3)]));
  sum_local_ptr[0] = (sum_local_ptr[0] + (staged_shared_ptr[((((((int)threadIdx.z) * 1000) + (((int)threadIdx.y) * 200)) + ((int)threadIdx.x)) + 74)] * w_ptr[((((((int)blockIdx.x) & 1) * 18) + (((int)threadIdx.z) * 9)) + 4)]));
  sum_local_ptr[2] = (sum_local_ptr[2] + (staged_shared_ptr[((((((int)threadIdx.z) * 1000) + (((int)threadIdx.y) * 200)) + ((int)threadIdx.x)) + 82)] * w_ptr[((((((int)blockIdx.x) & 1) * 18) + (((int)threadIdx.z) * 9)) + 4)]));
  sum_local_ptr[1] = (sum_local_ptr[1] + (staged_shared_ptr[((((((int)threadIdx.z) * 1000) + (((int)threadIdx.y) * 200)) + ((int)threadIdx.x)) + 174)] * w_ptr[((((((int)blockIdx.x) & 1) * 18) + (((int)threadIdx.z) * 9)) + 4)]));
  sum_local_ptr[3] = (sum_local_ptr[3] + (staged_shared_ptr[((((((int)threadIdx.z) * 1000) + (((int)threadIdx.y) * 200)) + ((int)threadIdx.x)) + 182)] * w_ptr[((((((int)blockIdx.x) & 1) * 18) + (((int)threadIdx.z) * 9)) + 4)]));
  sum_local_ptr[0] = (sum_local_ptr[0] + (staged_shared_ptr[((((((int)threadIdx.z) * 1000) + (((int)threadIdx.y) * 200)) + ((int)threadIdx.x)) + 51)] * w_ptr[((((((int)blockIdx.x) & 1) * 18) + (((int)threadIdx.z) * 9)) + 5)]));
  sum_local_ptr[2] = (sum_local_ptr[2] + (staged_shared_ptr[((((((int)threadIdx.z) * 1000) + (((int)threadIdx.y) * 200)) + ((int)threadIdx.x)) + 59)] * w_ptr[((((((int)blockIdx.x) & 1) * 18) + (((int)threadIdx.z) * 9)) + 5)]));
  sum_local_ptr[1] = (sum_local_ptr[1] + (staged_shared_ptr[((((((int)threadIdx.z) * 1000) + (((int)threadIdx.y) * 200)) + ((int)threadIdx.x)) + 151)] * w_ptr[((((((int)blockIdx.x) & 1) * 18) + (((int)threadIdx.z) * 9)) + 5)]));
  sum_local_ptr[3] = (sum_local_ptr[3] + (staged_shared_ptr[((((((int)threadIdx.z) * 1000) + (((int)threadIdx.y) * 200)) + ((int)threadIdx.x)) + 159)] * w_ptr[((((((int)blockIdx.x) & 1) * 18) + (((int)threadIdx.z) * 9)) + 5)]));
  sum_local_ptr[0] = (sum_local_ptr[0] + (staged_shared_ptr[((((((int)threadIdx.z) * 1000) + (((int)threadIdx.y) * 200)) + ((int)threadIdx.x)) + 100)] * w_ptr[((((((int)blockIdx.x) & 1) * 18) + (((int)threadIdx.z) * 9)) + 6)]));
  sum_local_ptr[2] = (sum_local_ptr[2] + (staged_shared_ptr[((((((int)threadIdx.z) * 1000) + (((int)threadIdx.y) * 200)) + ((int)threadIdx.x)) + 108)] * w_ptr[((((((int)blockIdx.x) & 1) * 18) + (((int)threadIdx.z) * 9)) + 6)]));
  sum_local_ptr[1] = (sum_local_ptr[1] + (staged_shared_ptr[((((((int)threadIdx.z) * 1000) + (((int)threadIdx.y) * 200)) + ((int)threadIdx.x)) + 200)] * w_ptr[((((((int)blockIdx.x) & 1) * 18) + (((int)threadIdx.z) * 9)) + 6)]));
  sum_local_ptr[3] = (sum_local_ptr[3] + (staged_shared_ptr[((((((int)threadIdx.z) * 1000) + (((int)threadIdx.y) * 200)) + ((int)threadIdx.x)) + 208)] * w_ptr[((((((int)blockIdx.x) & 1) * 18) + (((int)threadIdx.z) * 9)) + 6)]));
  sum_local_ptr[0] = (sum_local_ptr[0] + (staged_shared_ptr[((((((int)threadIdx.z) * 1000) + (((int)threadIdx.y) * 200)) + ((int)threadIdx.x)) + 124)] * w_ptr[((((((int)blockIdx.x) & 1) * 18) + (((int)threadIdx.z) * 9)) + 7)]));
  sum_local_ptr[2] = (sum_local_ptr[2] + (staged_shared_ptr[((((((int)threadIdx.z) * 1000) + (((int)threadIdx.y) * 200)) + ((int)threadIdx.x)) + 132)] * w_ptr[((((((int)blockIdx.x) & 1) * 18) + (((int)threadIdx.z) * 9)) + 7)]));
  sum_local_ptr[1] = (sum_local_ptr[1] + (staged_shared_ptr[((((((int)threadIdx.z) * 1000) + (((int)threadIdx.y) * 200)) + ((int)threadIdx.x)) + 224)] * w_ptr[((((((int)blockIdx.x) & 1) * 18) + (((int)threadIdx.z) * 9)) + 7)]));
  sum_local_ptr[3] = (sum_local_ptr[3] + (staged_shared_ptr[((((((int)threadIdx.z) * 1000) + (((int)threadIdx.y) * 200)) + ((int)threadIdx.x)) + 232)] * w_ptr[((((((int)blockIdx.x) & 1) * 18) + (((int)threadIdx.z) * 9)) + 7)]));
  sum_local_ptr[0] = (sum_local_ptr[0] + (staged_shared_ptr[((((((int)threadIdx.z) * 1000) + (((int)threadIdx.y) * 200)) + ((int)threadIdx.x)) + 101)] * w_ptr[((((((int)blockIdx.x) & 1) * 18) + (((int)threadIdx.z) * 9)) + 8)]));
  sum_local_ptr[2] = (sum_local_ptr[2] + (staged_shared_ptr[((((((int)threadIdx.z) * 1000) + (((int)threadIdx.y) * 200)) + ((int)threadIdx.x)) + 109)] * w_ptr[((((((int)blockIdx.x) & 1) * 18) + (((int)threadIdx.z) * 9)) + 8)]));
  sum_local_ptr[1] = (sum_local_ptr[1] + (staged_shared_ptr[((((((int)threadIdx.z) * 1000) + (((int)threadIdx.y) * 200)) + ((int)threadIdx.x)) + 201)] * w_ptr[((((((int)blockIdx.x) & 1) * 18) + (((int)threadIdx.z) * 9)) + 8)]));
  sum_local_ptr[3] = (sum_local_ptr[3] + (staged_shared_ptr[((((((int)threadIdx.z) * 1000) + (((int)threadIdx.y) * 200)) + ((int)threadIdx.x)) + 209)] * w_ptr[((((((int)blockIdx.x) & 1) * 18) + (((int)threadIdx.z) * 9)) + 8)]));
  y_ptr[((((((int)blockIdx.x) * 256) + (((int)threadIdx.z) * 128)) + (((int)threadIdx.y) * 32)) + ((int)threadIdx.x))] = sum_local_ptr[0];
  y_ptr[(((((((int)blockIdx.x) * 256) + (((int)threadIdx.z) * 128)) + (((int)threadIdx.y) * 32)) + ((int)threadIdx.x)) + 8)] = sum_local_ptr[2];
  y_ptr[(((((((int)blockIdx.x) * 256) + (((int)threadIdx.z) * 128)) + (((int)threadIdx.y) * 32)) + ((int)threadIdx.x)) + 16)] = sum_local_ptr[1];
  y_ptr[(((((((int)blockIdx.x) * 256) + (((int)threadIdx.z) * 128)) + (((int)threadIdx.y) * 32)) + ((int)threadIdx.x)) + 24)] = sum_local_ptr[3];
}
