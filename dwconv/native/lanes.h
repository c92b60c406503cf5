// Lanes: the tasks of a schedule on several threads. It knows neither PyTorch nor Python.
//
//   lane 0 (the caller)   task ── task ───────────── task
//                            │ done                   ▲ wait: spin for some microseconds, then sleep
//   lane 1                   └─────► task ── task ────┘
//
// Threads come from a `Launch`: the OpenMP team that the caller has anyway, or a `Crew` of this process.
#pragma once

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "ready.h"

namespace dwconv::lanes {

inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield" ::: "memory");
#endif
}

// Wakes those that wait for a condition. What sets the condition, and what reads it, must be sequentially consistent.
class Bell {
 public:
  void ring() {
    if (!sleepers_.load()) return;
    rung_.fetch_add(1);
    syscall(SYS_futex, &rung_, FUTEX_WAKE_PRIVATE, INT32_MAX, nullptr, nullptr, 0);
  }

  // Until `ready`. `spin_us`: for how long in a loop, before the thread sleeps. `tick` is called some times a second.
  template <class Ready, class Tick>
  void wait(const Ready& ready, int64_t spin_us, const Tick& tick) {
    using clock = std::chrono::steady_clock;
    if (spin_us > 0) {
      const auto until = clock::now() + std::chrono::microseconds(spin_us);
      for (int turn = 1; turn % 8 || clock::now() < until; ++turn) {
        for (int i = 0; i < 16; ++i) {
          if (ready()) return;
          relax();
        }
        if (turn % 8 == 0) sched_yield();  // what it waits for may have been placed on this core
      }
    }
    for (bool is_ready = ready(); !is_ready;) {
      sleepers_.fetch_add(1);
      const uint32_t seen = rung_.load();
      is_ready = ready();
      if (!is_ready) {
        const timespec limit{0, 50'000'000};
        syscall(SYS_futex, &rung_, FUTEX_WAIT_PRIVATE, seen, &limit, nullptr, 0);
      }
      sleepers_.fetch_sub(1);
      if (!is_ready && !(is_ready = ready())) tick();
    }
  }

 private:
  std::atomic<uint32_t> rung_{0};
  std::atomic<int> sleepers_{0};
};

// -- the cores that a thread runs on -----------------------------------------------------------------------------------

using Cores = std::vector<int>;  // numbers of the system; none: any

// The calling thread on `cores` for a while, if its mask has all of them. 0, or why it could not be set.
class Pinned {
 public:
  explicit Pinned(const Cores& cores) {
    if (cores.empty()) return;
    cpu_set_t wanted;
    CPU_ZERO(&wanted);
    if (sched_getaffinity(0, sizeof(before_), &before_)) {
      error = errno;
      return;
    }
    for (const int core : cores) {
      if (core >= CPU_SETSIZE || !CPU_ISSET(core, &before_)) return;
      CPU_SET(core, &wanted);
    }
    if (CPU_EQUAL(&wanted, &before_)) return;
    is_set_ = !sched_setaffinity(0, sizeof(wanted), &wanted);
    if (!is_set_) error = errno;
  }
  Pinned(const Pinned&) = delete;
  ~Pinned() {
    if (is_set_) sched_setaffinity(0, sizeof(before_), &before_);
  }

  int error = 0;

 private:
  cpu_set_t before_;
  bool is_set_ = false;
};

// -- threads -----------------------------------------------------------------------------------------------------------

using Lane = std::function<void(int)>;

// Threads of this process, which stay. One run at a time has them. They sleep in between.
class Crew {
 public:
  // False if another run has them.
  bool lend() { return !is_lent_.exchange(true); }
  void take_back() { is_lent_.store(false); }

  // lane(1) … lane(count - 1) begin, on threads of their own. `lane` must not throw, and must stay until `wait` returns.
  void start(int count, const Lane& lane) {
    while (static_cast<int>(members_.size()) < count - 1) members_.push_back(std::make_unique<Member>());
    for (int i = 1; i < count; ++i) members_[i - 1]->start(i, lane);
    count_ = count;
  }

  // Until all that were started have ended.
  template <class Tick>
  void wait(int64_t spin_us, const Tick& tick) {
    for (int i = 1; i < count_; ++i) members_[i - 1]->wait(spin_us, tick);
  }

  // End the threads; the next run starts others.
  void end() {
    while (!lend()) std::this_thread::yield();
    members_.clear();
    take_back();
  }

  // In a process that was forked the threads have stayed in its parent.
  void forget() {
    for (auto& each : members_) static_cast<void>(each.release());
    members_.clear();
    take_back();
  }

 private:
  class Member {
   public:
    Member() : thread_([this] { work(); }) {}
    ~Member() {
      lane_ = nullptr;
      asked_.fetch_add(1);
      bell_.ring();
      thread_.join();
    }

    void start(int number, const Lane& lane) {
      number_ = number;
      lane_ = &lane;
      asked_.fetch_add(1);
      bell_.ring();
    }

    template <class Tick>
    void wait(int64_t spin_us, const Tick& tick) {
      done_bell_.wait([this] { return done_.load() == asked_.load(); }, spin_us, tick);
    }

   private:
    void work() {
      for (uint32_t seen = 0;; ++seen) {
        bell_.wait([&] { return asked_.load() != seen; }, spin_us_, [] {});
        if (!lane_) return;
        (*lane_)(number_);
        done_.fetch_add(1);
        done_bell_.ring();
      }
    }

    static constexpr int64_t spin_us_ = 50;  // after its lane has ended: the backward pass may follow
    std::atomic<uint32_t> asked_{0}, done_{0};
    Bell bell_, done_bell_;
    int number_ = 0;
    const Lane* lane_ = nullptr;
    std::thread thread_;  // last: it uses the others
  };

  std::atomic<bool> is_lent_{false};
  std::vector<std::unique_ptr<Member>> members_;
  int count_ = 0;
};

// -- a run -------------------------------------------------------------------------------------------------------------

struct Step {
  int task;
  int threads;
  std::vector<int> waits;  // tasks of other lanes
  bool signals;            // whether another lane waits for it
};

using Steps = std::vector<Step>;

// What all lanes of a run see.
class Shared {
 public:
  Shared(size_t tasks, int64_t spin_us) : done_(tasks), spin_us_(spin_us) {}

  bool has_failed() const { return failed_.load(); }

  // The first error ends the run: the other lanes stop before their next task.
  void fail(std::exception_ptr error) {
    {
      const std::lock_guard<std::mutex> guard(lock_);
      if (!error_) error_ = std::move(error);
    }
    failed_.store(true);
    bell_.ring();
  }

  std::exception_ptr error() {
    const std::lock_guard<std::mutex> guard(lock_);
    return error_;
  }

  // The steps of one lane. `run` and `tick` may throw.
  template <class Run, class Tick>
  void run(const Steps& steps, const Run& run, const Tick& tick) noexcept {
    try {
      for (const Step& step : steps) {
        for (const int needed : step.waits)
          bell_.wait([&] { return done_[needed].load() || failed_.load(); }, spin_us_, tick);
        if (failed_.load()) return;
        run(step);
        if (step.signals) {
          done_[step.task].store(1);
          bell_.ring();
        }
      }
    } catch (...) {
      fail(std::current_exception());
    }
  }

  // What is ready, until everything has begun. `run` takes a task, by its place.
  template <class Run, class Tick>
  void run_ready(Queue& queue, int lane, const Run& run, const Tick& tick) noexcept {
    try {
      for (int ended = Queue::kNone; !failed_.load();) {
        const uint32_t seen = queue.version();
        const int place = queue.next(lane, ended);
        if (ended >= 0 || place == Queue::kAll) bell_.ring();
        if (place == Queue::kAll) return;
        ended = Queue::kNone;
        if (place >= 0) {
          run(place);
          ended = place;
        } else {
          bell_.wait([&] { return queue.version() != seen || failed_.load(); }, spin_us_, tick);
        }
      }
    } catch (...) {
      fail(std::current_exception());
    }
  }

 private:
  std::vector<std::atomic<uint32_t>> done_;
  std::atomic<bool> failed_{false};
  Bell bell_;
  int64_t spin_us_;
  std::mutex lock_;
  std::exception_ptr error_;
};

}  // namespace dwconv::lanes
