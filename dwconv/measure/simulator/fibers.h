// The threads of a block as fibers: each runs until it waits for others. Warps run one after the other up to each
// barrier; within a warp, lanes take turns where they exchange something.
#pragma once

#include <setjmp.h>
#include <ucontext.h>

#include "matrices.h"
#include "memory.h"

namespace sim {

constexpr int MOST_THREADS = 1024, MOST_LOOPS = 64;
constexpr size_t STACK_BYTES = 512 << 10;

enum State {
  READY,
  IN_STEP,     // at a volatile access: goes on when the other lanes have reached theirs
  AT_WARP,     // at a __syncwarp, a shuffle or a matrix instruction
  AT_BARRIER,
  ENDED
};

enum Exchange : int { SHUFFLE, SHUFFLE_UP, SHUFFLE_DOWN, SHUFFLE_XOR, BARRIER_OF_WARP, LOAD_MATRICES, MULTIPLY };

struct Copy {
  char* to;
  const char* from;
  unsigned bytes, valid_bytes;
};

struct Fiber {
  ucontext_t start;
  jmp_buf at;
  bool started = false;
  State state = READY;
  int line = 0;  // of the barrier or shuffle at which it waits
  uint64_t iteration = 0, outer[MOST_LOOPS] = {};
  int depth = 0;
  int exchange = 0, lane = 0, width = 0;
  unsigned mask = 0, value = 0;
  uint64_t place = 0;  // of the matrix instruction at which it waits
  Matrices matrices;
  std::vector<std::vector<Copy>> groups;  // groups of cp.async, the oldest first; the last is not committed yet
};

inline std::vector<Fiber> fibers;
inline char* stacks = nullptr;
inline ucontext_t main_context;
inline jmp_buf main_at;
inline bool stopped = false;
inline void (*kernel)() = nullptr;
inline const unsigned long long* arguments = nullptr;

inline bool open_stacks() {
  stacks = reserve(MOST_THREADS * STACK_BYTES, PROT_READ | PROT_WRITE);
  return stacks != nullptr;
}
inline void close_stacks() { munmap(stacks, MOST_THREADS * STACK_BYTES); }
inline bool on_stack(const char* address) { return size_t(address - stacks) < MOST_THREADS * STACK_BYTES; }

// -- going from one to another ----------------------------------------------------------------------------------------

// In a fiber: let others run.
inline void wait_as(State state, int line = 0) {
  Fiber& fiber = fibers[thread];
  fiber.state = state;
  fiber.line = line;
  fiber.iteration = iteration;
  if (!_setjmp(fiber.at)) _longjmp(main_at, 1);
}

[[noreturn]] inline void stop() {
  stopped = true;
  wait_as(ENDED);
  __builtin_unreachable();
}

inline void run_fiber() {
  for (;;) {  // a kernel at a time
    kernel();
    wait_as(ENDED);
  }
}

inline void resume(int number) {
  Fiber& fiber = fibers[number];
  thread = number;
  iteration = fiber.iteration;
  fiber.state = READY;
  if (_setjmp(main_at)) return;
  if (fiber.started) _longjmp(fiber.at, 1);
  fiber.started = true;
  getcontext(&fiber.start);
  fiber.start.uc_stack.ss_sp = stacks + size_t(number) * STACK_BYTES;
  fiber.start.uc_stack.ss_size = STACK_BYTES;
  fiber.start.uc_link = nullptr;
  makecontext(&fiber.start, run_fiber, 0);
  setcontext(&fiber.start);
}

// -- a warp -----------------------------------------------------------------------------------------------------------

inline int source_lane(const Fiber& fiber, int lane) {
  const int first = lane / fiber.width * fiber.width, place = lane - first;
  int from = place;
  if (fiber.exchange == SHUFFLE) from = fiber.lane & (fiber.width - 1);
  if (fiber.exchange == SHUFFLE_UP) from = place - fiber.lane;
  if (fiber.exchange == SHUFFLE_DOWN) from = place + fiber.lane;
  if (fiber.exchange == SHUFFLE_XOR) from = place ^ fiber.lane;
  return first + (from < 0 || from >= fiber.width ? place : from);
}

// Matrix instructions are of a whole warp: every lane is at the same one. False if not.
inline bool exchange_matrices(int first, int lanes, int one) {
  Matrices* matrices[WARP];
  const Fiber& its = fibers[first + one];
  for (int lane = 0; lane < WARP; ++lane) {
    const Fiber& fiber = fibers[first + lane % lanes];
    if (lane >= lanes || fiber.state != AT_WARP || fiber.exchange != its.exchange || fiber.place != its.place ||
        fiber.iteration != its.iteration) {
      thread = first + one;
      report(DIVERGENCE, "warp", 0, its.place, "a matrix instruction that not all lanes of the warp come to");
      return false;
    }
    matrices[lane] = &fibers[first + lane].matrices;
  }
  its.exchange == MULTIPLY ? multiply(matrices) : load(matrices);
  for (int lane = 0; lane < WARP; ++lane) fibers[first + lane].state = READY;
  return true;
}

// All lanes that can run wait: exchange what they brought. False if some wait for others that will not come.
inline bool exchange(int first, int lanes) {
  unsigned waiting = 0;
  int one = -1;
  for (int lane = 0; lane < lanes; ++lane) {
    if (fibers[first + lane].state != AT_WARP) continue;
    waiting |= 1u << lane;
    one = lane;
  }
  for (int lane = 0; lane < lanes; ++lane) {
    const Fiber& fiber = fibers[first + lane];
    if (fiber.state == AT_WARP && fiber.exchange >= LOAD_MATRICES) {
      ++warp_clocks[first / WARP].now;
      return exchange_matrices(first, lanes, lane);
    }
  }
  const unsigned all = lanes == WARP ? ~0u : (1u << lanes) - 1;
  unsigned values[WARP];
  for (int lane = 0; lane < lanes; ++lane) {
    if (!(waiting >> lane & 1)) continue;
    const Fiber& fiber = fibers[first + lane];
    thread = first + lane;
    if (fiber.line != fibers[first + one].line || fiber.mask != fibers[first + one].mask ||
        (fiber.mask & all) != waiting) {
      report(DIVERGENCE, "warp", 0, 0, "lanes wait in __syncwarp or a shuffle for others that do not come", fiber.line);
      return false;
    }
    values[lane] = fiber.value;
    if (fiber.exchange == BARRIER_OF_WARP) continue;
    const int from = source_lane(fiber, lane);
    if (!(waiting >> from & 1)) {
      report(UNINITIALISED, "shuffle", 0, 0, "takes the value of a lane that takes no part", fiber.line);
      continue;
    }
    values[lane] = fibers[first + from].value;
  }
  for (int lane = 0; lane < lanes; ++lane) {
    if (!(waiting >> lane & 1)) continue;
    Fiber& fiber = fibers[first + lane];
    fiber.value = values[lane];
    fiber.state = READY;
    if (fiber.exchange == BARRIER_OF_WARP) warp_clocks[first / WARP].synced = warp_clocks[first / WARP].now + 1;
  }
  ++warp_clocks[first / WARP].now;
  return true;
}

// Until all its lanes are at a barrier or have ended.
inline void run_warp(int first, int lanes) {
  for (;;) {
    bool ran = false, in_step = false, waiting = false;
    for (int lane = 0; lane < lanes; ++lane) {
      const Fiber& fiber = fibers[first + lane];
      if (fiber.state == READY || fiber.state == IN_STEP) {
        ran = true;
        resume(first + lane);
        if (stopped) return;
      }
      in_step |= fiber.state == IN_STEP;
      waiting |= fiber.state == AT_WARP;
    }
    if (in_step) ++warp_clocks[first / WARP].now;
    if (ran) continue;
    if (!waiting) return;
    if (!exchange(first, lanes)) {
      stopped = true;
      return;
    }
  }
}

// -- a block ----------------------------------------------------------------------------------------------------------

// All threads wait at a barrier or have ended. False if the block cannot go on.
inline bool meet(int threads) {
  int ended = 0, arrived = -1;
  for (int i = 0; i < threads; ++i) {
    if (fibers[i].state == ENDED)
      ++ended;
    else
      arrived = i;
  }
  if (ended == threads) return false;
  if (ended) {
    thread = arrived;
    report(DIVERGENCE, "barrier", 0, 0, "some threads wait at it that others never reach", fibers[arrived].line);
    stopped = true;
    return false;
  }
  for (int i = 0; i < threads; ++i) {
    if (fibers[i].line == fibers[0].line && fibers[i].iteration == fibers[0].iteration) continue;
    thread = i;
    report(DIVERGENCE, "barrier", 0, 0, "some threads wait at another barrier", fibers[i].line);
    stopped = true;
    return false;
  }
  return true;
}

inline void run_block(long number) {
  const int threads = int(block_size.x * block_size.y * block_size.z);
  block_number = number;
  block_at = index_of(number, grid);
  ++clock_.now;
  clock_.block_start = clock_.now;
  poison_shared();
  for (int i = 0; i < threads; ++i) {
    Fiber& fiber = fibers[i];
    fiber.state = READY;
    fiber.iteration = 0;
    fiber.depth = 0;
    fiber.groups.clear();
  }
  do {
    for (int first = 0; first < threads && !stopped; first += WARP) {
      run_warp(first, std::min(WARP, threads - first));
      if (counting) requests.count(found.counts);
    }
    if (stopped || !meet(threads)) break;
    ++found.counts.barriers;
    ++clock_.now;
    for (int i = 0; i < threads; ++i) fibers[i].state = READY;
  } while (true);
  if (stopped)
    for (Fiber& fiber : fibers) fiber.started = false;  // they stand in the middle of a kernel
}

}  // namespace sim
