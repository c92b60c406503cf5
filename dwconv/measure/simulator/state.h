// State that all parts of the runtime share: the running thread, the clock, and the findings.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

namespace sim {

constexpr int WARP = 32;

// -- thread and time -----------------------------------------------------------------------------------------------------

struct Index {
  unsigned x, y, z;
};

struct Clock {
  uint32_t now = 1;           // goes on at every barrier, and is never set back
  uint32_t block_start = 1;   // when the block that runs began
  uint32_t launch_start = 1;  // when its launch began
};

inline Clock clock_;
inline Index grid, block_size, block_at;
inline long block_number = 0;
inline int thread = 0;    // the one that runs
inline bool running = false;
inline bool watched = true;
inline bool sampled = false;  // only some blocks run: what another block should have written may be missing
inline uint64_t iteration = 0;  // which iterations of the loops around the running thread is in

inline Index index_of(long number, Index size) {
  return {unsigned(number % size.x), unsigned(number / size.x % size.y), unsigned(number / size.x / size.y)};
}

// -- what was found ---------------------------------------------------------------------------------------------------

// In order of what explains most, as machine.py has them.
enum Kind : int32_t { OUT_OF_BOUNDS, MISALIGNED, DIVERGENCE, RACE, IN_FLIGHT, UNINITIALISED, INPUT_CHANGED };
constexpr int KINDS = INPUT_CHANGED + 1, MOST_PLACES = 3;

struct Fault {
  int32_t kind, thread;
  int64_t block, offset, line;  // line: of a barrier, where there is no place
  uint64_t place;  // address of the code
  char region[40];
  char detail[88];
};

struct Counts {
  int64_t requests, wavefronts, ideal;  // of shared memory
  int64_t blocks;
};

struct Found {
  Counts counts;
  int64_t faults;
  Fault fault[KINDS * MOST_PLACES];
};

inline Found found;

// The first of a kind at a place is kept, at a few places.
inline void report(Kind kind, const char* region, int64_t offset, uint64_t place, const char* detail, int line = 0) {
  int places = 0;
  for (int i = 0; i < found.faults; ++i) {
    const Fault& known = found.fault[i];
    if (known.kind != kind) continue;
    if (known.place == place && known.line == line && !strcmp(known.region, region)) return;
    ++places;
  }
  if (places == MOST_PLACES) return;
  Fault& fault = found.fault[found.faults++];
  fault = {kind, thread, block_number, offset, line, place, {}, {}};
  snprintf(fault.region, sizeof(fault.region), "%s", region);
  snprintf(fault.detail, sizeof(fault.detail), "%s", detail);
}

[[noreturn]] void stop();  // nothing that comes now can be trusted, or would return

}  // namespace sim
