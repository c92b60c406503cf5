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

// Within a phase between two barriers, the lanes of a warp have an order of their own.
struct WarpClock {
  uint32_t now = 0;
  uint32_t synced = 0;  // the last __syncwarp; what came after it is ordered only because the lanes run in step
};

inline Clock clock_;
inline std::vector<WarpClock> warp_clocks;
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

// In order of what explains most. Known to report.py.
enum Kind : int32_t { OUT_OF_BOUNDS, MISALIGNED, DIVERGENCE, RACE, IN_FLIGHT, UNINITIALISED, INPUT_CHANGED };

struct Fault {
  int32_t kind, thread, line;  // line: of a barrier, where there is no place
  int32_t unused;
  int64_t block, offset, count;
  uint64_t place;  // address of the code
  char region[40];
  char detail[88];
};

struct Counts {
  int64_t shared_requests, shared_wavefronts, shared_ideal;
  int64_t load_requests, load_sectors, load_ideal;
  int64_t store_requests, store_sectors, store_ideal;
  int64_t blocks, threads, barriers, accesses, in_step;
};

struct Found {
  Counts counts;
  int32_t faults, stopped;
  Fault fault[24];
};

inline Found found;

// The first of its kind at a place is kept, the others are counted.
inline void report(Kind kind, const char* region, int64_t offset, uint64_t place, const char* detail, int line = 0) {
  for (int i = 0; i < found.faults; ++i) {
    Fault& known = found.fault[i];
    if (known.kind == kind && known.place == place && known.line == line && !strcmp(known.region, region)) {
      ++known.count;
      return;
    }
  }
  int slot = found.faults;
  if (slot == int(sizeof(found.fault) / sizeof(Fault))) {  // make room, if this explains more than another does
    while (slot && found.fault[slot - 1].kind <= kind) --slot;
    if (!slot--) return;
  } else {
    ++found.faults;
  }
  Fault& fault = found.fault[slot];
  fault = {kind, thread, line, 0, block_number, offset, 1, place, {}, {}};
  snprintf(fault.region, sizeof(fault.region), "%s", region);
  snprintf(fault.detail, sizeof(fault.detail), "%s", detail);
}

[[noreturn]] void stop();  // nothing that comes now can be trusted, or would return

}  // namespace sim
