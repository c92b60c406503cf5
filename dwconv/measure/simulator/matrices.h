// Tensor cores: products of small matrices, spread over the threads of a warp.
//
//            n = lane / 4 ─►                        A, of 16 × depth: part i holds row lane / 4 + 8 · (i % 2),
//           ┌───────┐                                 k = lane % 4 · 2 + 8 · (i / 2), and the k after it
//   k       │   B   │                               B, of depth × 8: part i holds column lane / 4,
//   ▼       └───────┘                                 k = lane % 4 · 2 + 8 · i, and the k after it
//   ┌──────┐┌───────┐  row = lane / 4               C, of 16 × 8: part i holds row lane / 4 + 8 · (i / 2),
//   │  A   ││   C   │  and 8 below                    column lane % 4 · 2 + i % 2
//   └──────┘└───────┘
//
// Source: PTX ISA, 'Matrix Fragments for mma.m16n8k16 with floating point type'.
#pragma once

#include <algorithm>
#include <cmath>

#include "formats.h"
#include "state.h"

namespace sim {

constexpr int PARTS = 4;

// What a thread brings to its warp, and takes away.
struct Matrices {
  bool multiplies = false;           // mma, or else ldmatrix
  int count = 0, transposed = 0;     // of ldmatrix
  int depth = 0, brain = 0;          // of mma
  unsigned a[PARTS], b[PARTS / 2];   // two numbers of 16 bits each
  float c[PARTS];
  unsigned short row[8];             // of ldmatrix: the row that the thread's address names
  unsigned loaded[PARTS];
};

inline double product_of(unsigned short a, unsigned short b, bool brain) {
  return brain ? double(Brain::widen(a)) * Brain::widen(b) : double(Half::widen(a)) * Half::widen(b);
}

inline unsigned short half_of(unsigned part, int k) { return part >> 16 * (k % 2); }

// Products are exact. They and the sum so far are cut off, towards zero, one bit below the last one of the largest of
// them, added exactly, and the sum is cut off once more. This is what was seen of sm_80, the least exact of the
// architectures since. Source: Fasi, Higham, Mikaitis, Pranesh, 'Numerical behavior of NVIDIA tensor cores', 2021.
inline float sum_of(const double* terms, int count) {
  double largest = 0, plain = 0;
  for (int i = 0; i < count; ++i) {
    plain += terms[i];
    largest = std::fmax(largest, std::fabs(terms[i]));
  }
  if (!std::isfinite(plain) || largest == 0) return float(plain);
  const double unit = std::ldexp(1.0, std::ilogb(largest) - 24);
  double units = 0;
  for (int i = 0; i < count; ++i) units += std::trunc(terms[i] / unit);
  const double sum = units * unit;
  const float near = float(sum);
  if (std::isinf(near) || std::fabs(double(near)) <= std::fabs(sum)) return near;
  return number_of(bits_of(near) - 1);
}

// All 32 threads are there.
inline void multiply(Matrices* const (&lanes)[WARP]) {
  const int depth = lanes[0]->depth, brain = lanes[0]->brain;
  float sums[WARP][PARTS];
  for (int lane = 0; lane < WARP; ++lane) {
    for (int part = 0; part < PARTS; ++part) {
      const int row = lane / 4 + part / 2 * 8, column = lane % 4 * 2 + part % 2;
      double terms[16 + 1];
      for (int k = 0; k < depth; ++k) {
        const unsigned a = lanes[row % 8 * 4 + k % 8 / 2]->a[row / 8 + k / 8 * 2];
        const unsigned b = lanes[column * 4 + k % 8 / 2]->b[k / 8];
        terms[k] = product_of(half_of(a, k), half_of(b, k), brain);
      }
      terms[depth] = lanes[lane]->c[part];
      sums[lane][part] = sum_of(terms, depth + 1);
    }
  }
  for (int lane = 0; lane < WARP; ++lane) std::copy(sums[lane], sums[lane] + PARTS, lanes[lane]->c);
}

// ldmatrix: thread 8 · m + r names row r of matrix m. Thread `lane` gets two neighbours of row lane / 4 of each.
inline void load(Matrices* const (&lanes)[WARP]) {
  for (int lane = 0; lane < WARP; ++lane) {
    for (int matrix = 0; matrix < lanes[0]->count; ++matrix) {
      const int row = lane / 4, column = lane % 4 * 2;
      const auto at = [&](int r, int c) -> unsigned { return lanes[matrix * 8 + r]->row[c]; };
      lanes[lane]->loaded[matrix] = lanes[0]->transposed ? at(column, row) | at(column + 1, row) << 16
                                                         : at(row, column) | at(row, column + 1) << 16;
    }
  }
}

}  // namespace sim
