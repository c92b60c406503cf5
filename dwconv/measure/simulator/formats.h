// 16-bit numbers and floats as bits, the same for kernels and for the runtime.
#pragma once

// Never a function of its own: the linker would give the runtime the one of the kernel, with its hooks.
#define SIM_INLINE inline __attribute__((always_inline))

namespace sim {

SIM_INLINE unsigned bits_of(float number) {
  unsigned bits;
  __builtin_memcpy(&bits, &number, 4);
  return bits;
}
SIM_INLINE float number_of(unsigned bits) {
  float number;
  __builtin_memcpy(&number, &bits, 4);
  return number;
}

struct Half {
  SIM_INLINE static float widen(unsigned short bits) {
    const unsigned sign = (bits & 0x8000u) << 16, rest = bits & 0x7fffu;
    if (rest >= 0x7c00u) return number_of(sign | 0x7f800000u | (rest << 13));
    return number_of(sign | bits_of(number_of(rest << 13) * 0x1p112f));  // subnormals come out normal
  }
  SIM_INLINE static unsigned short round(float number) {
    const unsigned bits = bits_of(number), sign = bits >> 16 & 0x8000u, rest = bits & 0x7fffffffu;
    if (rest > 0x7f800000u) return sign | 0x7e00u;
    if (rest >= 0x477ff000u) return sign | 0x7c00u;  // rounds past the largest, 65504
    if (rest < 0x38800000u)                          // a subnormal: adding 0.5 leaves its bits at the right place
      return sign | (bits_of(number_of(rest) + 0.5f) - bits_of(0.5f));
    return sign | ((rest - 0x38000000u + 0xfffu + (rest >> 13 & 1u)) >> 13);
  }
};

struct Brain {
  SIM_INLINE static float widen(unsigned short bits) { return number_of((unsigned)bits << 16); }
  SIM_INLINE static unsigned short round(float number) {
    const unsigned bits = bits_of(number);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fffu;
    return (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
  }
};

}  // namespace sim
