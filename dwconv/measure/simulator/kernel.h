// Makes generated CUDA C++ compile with g++ and run in runtime.cc. No system headers: compiling them takes longer than
// most kernels.
//
// Every access to memory calls a hook of the runtime: g++ puts the calls in, as it would for its own race detector
// (-fsanitize=thread). One access on the GPU must be one access here, so vectors are copied whole. It puts none where a
// function returns a vector straight into memory, so all functions are inlined.
#pragma once

#include "formats.h"

#define __global__
#define __device__ __attribute__((always_inline))
#define __host__
#define __forceinline__ SIM_INLINE
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __CUDACC_RTC__
#define __CUDA_ARCH__ 900
#define __CUDACC_VER_MAJOR__ 13
#define __CUDACC_VER_MINOR__ 0

// -- what the runtime does --------------------------------------------------------------------------------------------

struct sim_index {
  unsigned x, y, z;
};
struct sim_matrices {  // a thread's part of up to four 8 × 8 matrices of 16 bits
  unsigned part[4];
};
struct sim_tile {  // a thread's part of 16 × 8 sums
  float part[4];
};

extern "C" {
unsigned long long sim_argument(int number);
sim_index sim_thread_index();
sim_index sim_block_index();
sim_index sim_block_size();
sim_index sim_grid_size();
void* sim_shared(int number, const char* name, unsigned long bytes);
unsigned sim_shared_offset(const void* address);
void sim_enter_iteration(unsigned long long number);
void sim_leave_iteration();
void sim_barrier(int line);
sim_matrices sim_load_matrices(int count, int transposed, unsigned address);
sim_tile sim_multiply(int depth, int brain, sim_matrices a, sim_matrices b, sim_tile c);
void sim_copy_async(unsigned to, const void* from, unsigned bytes, unsigned valid_bytes, int issued);
void sim_commit_group();
void sim_wait_group(unsigned most_left);
}

#define __syncthreads() sim_barrier(__LINE__)
#define __cvta_generic_to_shared(address) sim_shared_offset(address)

namespace sim {

// In the body of a loop: lanes of a warp are in step in the same iterations of the loops around.
struct Iteration {
  explicit Iteration(unsigned long long number) { sim_enter_iteration(number); }
  ~Iteration() { sim_leave_iteration(); }
};

// -- vectors ----------------------------------------------------------------------------------------------------------

typedef unsigned short bits16 __attribute__((may_alias));
typedef unsigned bits32 __attribute__((may_alias));
typedef unsigned long long bits64 __attribute__((may_alias));
typedef unsigned long long bits128 __attribute__((may_alias, vector_size(16), aligned(8)));

// One access up to 16 bytes, the widest there is; 32 bytes are two.
template <unsigned bytes>
__attribute__((always_inline)) inline void copy(void* to, const void* from) {
  static_assert(bytes == 2 || bytes == 4 || bytes == 8 || bytes % 16 == 0, "no vector has this size");
  if (bytes == 2) *(bits16*)to = *(const bits16*)from;
  if (bytes == 4) *(bits32*)to = *(const bits32*)from;
  if (bytes == 8) *(bits64*)to = *(const bits64*)from;
  if (bytes >= 16) *(bits128*)to = *(const bits128*)from;
  if (bytes >= 32) ((bits128*)to)[1] = ((const bits128*)from)[1];
}

}  // namespace sim

#define SIM_COPIED_WHOLE(Name)                                                                              \
  Name() = default;                                                                                         \
  __attribute__((always_inline)) Name(const Name& other) { sim::copy<sizeof(Name)>(this, &other); }         \
  __attribute__((always_inline)) Name& operator=(const Name& other) {                                       \
    sim::copy<sizeof(Name)>(this, &other);                                                                  \
    return *this;                                                                                           \
  }
#define SIM_VECTOR_1(Name, T)                         \
  struct Name {                                       \
    T x;                                              \
  };                                                  \
  inline Name make_##Name(T x) { return Name{x}; }
#define SIM_VECTOR_2(Name, T)                              \
  struct alignas(2 * sizeof(T)) Name {                     \
    T x, y;                                                \
    SIM_COPIED_WHOLE(Name)                                 \
    Name(T x, T y) : x(x), y(y) {}                         \
  };                                                       \
  inline Name make_##Name(T x, T y) { return Name(x, y); }
#define SIM_VECTOR_4(Name, T)                                                  \
  struct alignas(4 * sizeof(T) < 16 ? 4 * sizeof(T) : 16) Name {               \
    T x, y, z, w;                                                              \
    SIM_COPIED_WHOLE(Name)                                                     \
    Name(T x, T y, T z, T w) : x(x), y(y), z(z), w(w) {}                       \
  };                                                                           \
  inline Name make_##Name(T x, T y, T z, T w) { return Name(x, y, z, w); }
#define SIM_VECTORS(name, T) SIM_VECTOR_1(name##1, T) SIM_VECTOR_2(name##2, T) SIM_VECTOR_4(name##4, T)

SIM_VECTOR_2(char2, signed char)
SIM_VECTOR_4(char4, signed char)
SIM_VECTOR_2(uchar2, unsigned char)
SIM_VECTOR_4(uchar4, unsigned char)
SIM_VECTORS(short, short)
SIM_VECTORS(ushort, unsigned short)
SIM_VECTORS(int, int)
SIM_VECTORS(uint, unsigned)
SIM_VECTORS(longlong, long long)
SIM_VECTORS(ulonglong, unsigned long long)
SIM_VECTORS(float, float)
SIM_VECTORS(double, double)

// -- 16-bit numbers ---------------------------------------------------------------------------------------------------

namespace sim {

// Arithmetic in float, rounded once: the same bits as the GPU's own.
template <class Format>
struct Small {
  unsigned short bits;
  Small() = default;
  Small(float number) : bits(Format::round(number)) {}
  Small(double number) : Small((float)number) {}
  Small(int number) : Small((float)number) {}
  Small(unsigned number) : Small((float)number) {}
  operator float() const { return Format::widen(bits); }
  Small operator-() const { return Small(-(float)*this); }
  friend Small operator+(Small a, Small b) { return Small((float)a + (float)b); }
  friend Small operator-(Small a, Small b) { return Small((float)a - (float)b); }
  friend Small operator*(Small a, Small b) { return Small((float)a * (float)b); }
  friend Small operator/(Small a, Small b) { return Small((float)a / (float)b); }
  Small& operator+=(Small other) { return *this = *this + other; }
  Small& operator*=(Small other) { return *this = *this * other; }
};

template <class Format>
struct alignas(4) SmallPair {
  Small<Format> x, y;
  SIM_COPIED_WHOLE(SmallPair)
  SmallPair(Small<Format> x, Small<Format> y) : x(x), y(y) {}
};

}  // namespace sim

typedef sim::Small<sim::Half> __half;
typedef sim::SmallPair<sim::Half> __half2;
typedef sim::Small<sim::Brain> __nv_bfloat16;
typedef sim::SmallPair<sim::Brain> __nv_bfloat162;
typedef __half half;
typedef __half2 half2;
typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;

inline half __float2half(float a) { return half(a); }
inline half __float2half_rn(float a) { return half(a); }
inline float __half2float(half a) { return a; }
inline unsigned short __half_as_ushort(half a) { return a.bits; }
inline unsigned short __bfloat16_as_ushort(nv_bfloat16 a) { return a.bits; }
inline half __ushort_as_half(unsigned short bits) {
  half a;
  a.bits = bits;
  return a;
}
inline nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) {
  nv_bfloat16 a;
  a.bits = bits;
  return a;
}
inline half2 make_half2(half x, half y) { return half2(x, y); }
inline half2 __halves2half2(half x, half y) { return half2(x, y); }
inline half2 __float22half2_rn(float2 a) { return half2(a.x, a.y); }
inline half2 __floats2half2_rn(float x, float y) { return half2(x, y); }
inline float2 __half22float2(half2 a) { return float2(a.x, a.y); }
inline nv_bfloat16 __float2bfloat16(float a) { return nv_bfloat16(a); }
inline nv_bfloat16 __float2bfloat16_rn(float a) { return nv_bfloat16(a); }
inline float __bfloat162float(nv_bfloat16 a) { return a; }
inline nv_bfloat162 __halves2bfloat162(nv_bfloat16 x, nv_bfloat16 y) { return nv_bfloat162(x, y); }
inline nv_bfloat162 __float22bfloat162_rn(float2 a) { return nv_bfloat162(a.x, a.y); }
inline nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return nv_bfloat162(x, y); }
inline float2 __bfloat1622float2(nv_bfloat162 a) { return float2(a.x, a.y); }

// -- the rest ---------------------------------------------------------------------------------------------------------

template <class T>
inline T __ldg(const T* address) { return *address; }
inline int __float_as_int(float a) { return (int)sim::bits_of(a); }
inline float __int_as_float(int a) { return sim::number_of((unsigned)a); }
inline unsigned __float_as_uint(float a) { return sim::bits_of(a); }
inline float __uint_as_float(unsigned a) { return sim::number_of(a); }
inline float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline float fmaf(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline float fmaxf(float a, float b) { return a > b ? a : b; }
inline float fminf(float a, float b) { return a < b ? a : b; }
inline int max(int a, int b) { return a > b ? a : b; }
inline int min(int a, int b) { return a < b ? a : b; }
inline float max(float a, float b) { return a > b ? a : b; }
inline float min(float a, float b) { return a < b ? a : b; }
inline float __fdividef(float a, float b) { return a / b; }
inline float rsqrtf(float a) { return 1.0f / __builtin_sqrtf(a); }
extern "C" float expf(float);

namespace sim {

// A launch passes eight bytes an argument: a pointer, or a number in the lower ones.
template <unsigned long... at>
struct Places {};

template <class... Parameters, unsigned long... at>
inline void call(void (*kernel)(Parameters...), Places<at...>) {
  kernel((Parameters)sim_argument(at)...);
}
template <class... Parameters>
inline void call(void (*kernel)(Parameters...)) {
  call(kernel, Places<__integer_pack(sizeof...(Parameters))...>());
}

}  // namespace sim
