// The threads of a block as fibers: each runs until it waits for others. Warps run one after the other up to each
// barrier; within a warp, lanes take turns at matrix instructions.
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
  AT_MATRICES,  // at a matrix instruction
  AT_BARRIER,
  ENDED
};

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
  int line = 0;  // of the barrier at which it waits
  uint64_t iteration = 0, outer[MOST_LOOPS] = {};
  int depth = 0;
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

// Matrix instructions are of a whole warp: every lane is at the same one. False if not.
inline bool exchange(int first, int lanes) {
  Matrices* matrices[WARP];
  int one = first;
  while (fibers[one].state != AT_MATRICES) ++one;
  const Fiber& its = fibers[one];
  for (int lane = 0; lane < WARP; ++lane) {
    const Fiber& fiber = fibers[first + lane % lanes];
    if (lane >= lanes || fiber.state != AT_MATRICES || fiber.place != its.place || fiber.iteration != its.iteration) {
      thread = one;
      report(DIVERGENCE, "warp", 0, its.place, "a matrix instruction that not all lanes of the warp come to");
      return false;
    }
    matrices[lane] = &fibers[first + lane].matrices;
  }
  its.matrices.multiplies ? multiply(matrices) : load(matrices);
  for (int lane = 0; lane < WARP; ++lane) fibers[first + lane].state = READY;
  return true;
}

// Until all its lanes are at a barrier or have ended.
inline void run_warp(int first, int lanes) {
  for (;;) {
    bool waiting = false;
    for (int lane = 0; lane < lanes; ++lane) {
      if (fibers[first + lane].state == READY) {
        resume(first + lane);
        if (stopped) return;
      }
      waiting |= fibers[first + lane].state == AT_MATRICES;
    }
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
    ++clock_.now;
    for (int i = 0; i < threads; ++i) fibers[i].state = READY;
  } while (true);
  if (stopped)
    for (Fiber& fiber : fibers) fiber.started = false;  // they stand in the middle of a kernel
}

}  // namespace sim
