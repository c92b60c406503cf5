// Execution: one run of a graph, by the segments of a schedule, without the interpreter's lock.
//
// Lanes of tasks of one thread are threads of the OpenMP team that the caller has for its wide tasks: there is no second
// team, which would have to sleep at every join. Other lanes are threads of a crew, each with a team of its own.
#pragma once

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/ThreadLocalState.h>
#include <dlfcn.h>

#include "instructions.h"
#include "lanes.h"

namespace dwconv::lanes {

// A part of a schedule, until all its lanes have ended.
struct Segment {
  std::vector<Steps> lanes;
  std::vector<Cores> cores;           // by lane
  std::vector<int> team;              // by lane, the threads of its team that are kept there with it; 0: none
  bool is_narrow;                     // every task has one thread
  std::optional<Ready> ready;         // if lanes take what is ready
};

// What the last run has shown of a task.
struct Seen {
  int lane = -1;
  int64_t start_ns = 0, end_ns = 0;
  double mean_us = 0;  // of many runs, the last ones counting most; 0: none yet
};

struct Runner {
  std::vector<Segment> segments;
  std::vector<int> order;  // of all tasks, as one thread can run them; none: only lane 0 has tasks, and is not watched
  Slowdowns slowdowns;
  int64_t spin_us = 0;
  std::atomic<int> affinity_error{0};
  std::atomic<bool> is_watched{false};  // by one run at a time, which writes what follows
  std::vector<Seen> seen;
  int64_t began_ns = 0;
  uint64_t runs = 0;
};

inline Crew* crew() {
  static auto* const known = new Crew();  // never freed: its threads may outlast the interpreter
  return known;
}

// GNU's entry points, which the OpenMP runtimes have that PyTorch comes with; or null.
struct OpenMP {
  using Parallel = void (*)(void (*)(void*), void*, unsigned, unsigned);
  Parallel parallel = reinterpret_cast<Parallel>(dlsym(RTLD_DEFAULT, "GOMP_parallel"));
  int (*team)() = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "omp_get_num_threads"));
  int (*number)() = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "omp_get_thread_num"));
  std::atomic<bool> is_lost{false};  // in a forked process: the team has stayed in its parent, and would be waited for

  bool is_here() const { return parallel && team && number && !is_lost; }
};

inline OpenMP& openmp() {
  static OpenMP found;
  return found;
}

// The OpenMP team of the calling thread on its cores for a while: at the end all its threads are where that one was.
class PinnedTeam {
 public:
  PinnedTeam(const Cores& cores, int threads) : threads_(threads) {
    if (cores.empty() || threads < 2 || !openmp().is_here() || sched_getaffinity(0, sizeof(before_), &before_)) return;
    cpu_set_t wanted;
    CPU_ZERO(&wanted);
    for (const int core : cores) {
      if (core >= CPU_SETSIZE || !CPU_ISSET(core, &before_)) return;
      CPU_SET(core, &wanted);
    }
    keep_on(wanted);
    is_set_ = true;
  }
  PinnedTeam(const PinnedTeam&) = delete;
  ~PinnedTeam() {
    if (is_set_) keep_on(before_);
  }

  std::atomic<int> error{0};

 private:
  void keep_on(const cpu_set_t& mask) {
    const std::function<void()> member = [&] {
      if (sched_setaffinity(0, sizeof(mask), &mask)) error.store(errno);
    };
    openmp().parallel(
        [](void* given) { (*static_cast<const std::function<void()>*>(given))(); },
        const_cast<void*>(static_cast<const void*>(&member)), static_cast<unsigned>(threads_), 0);
  }

  cpu_set_t before_;
  int threads_;
  bool is_set_ = false;
};

// Whether the calling thread takes denormal numbers for 0.
inline bool flushes() {
  volatile double least = 5e-324;
  return least == 0.0;
}

inline int64_t now_ns(clockid_t clock = CLOCK_MONOTONIC) {
  timespec now;
  clock_gettime(clock, &now);
  return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

// Throws what a signal raises, such as Ctrl-C, which is looked for some times a second.
class Signals {
 public:
  void check() {
    if (!is_main_) return;
    const int64_t now = now_ns(CLOCK_MONOTONIC_COARSE);
    if (now - checked_ns_ < 50'000'000) return;
    checked_ns_ = now;
    look();
  }

  void look() const {
    if (!is_main_) return;
    const pybind11::gil_scoped_acquire gil;
    if (!PyErr_CheckSignals()) return;
    python_error error;
    error.persist();
    throw error;
  }

 private:
  bool is_main_ = syscall(SYS_gettid) == getpid();
  int64_t checked_ns_ = now_ns(CLOCK_MONOTONIC_COARSE);
};

template <class Call>
struct Finally {
  explicit Finally(Call call) : call(std::move(call)) {}
  Finally(const Finally&) = delete;
  ~Finally() { call(); }
  Call call;
};

class Execution {
 public:
  Execution(const Graph& graph, std::vector<IValue> slots, Runner& runner)
      : values_(graph, std::move(slots)), runner_(runner), tasks_(graph.tasks.size()) {}

  std::vector<IValue> run() {
    const bool has_lanes = std::any_of(
        runner_.segments.begin(), runner_.segments.end(), [](const Segment& each) { return each.lanes.size() > 1; });
    is_seen_ = !runner_.order.empty() && !runner_.is_watched.exchange(true);
    const Finally unwatch([&] {
      if (is_seen_) runner_.is_watched.store(false);
    });
    if (is_seen_) {
      runner_.seen.resize(tasks_);
      runner_.began_ns = now_ns();
    }
    if (!has_lanes) {
      run_segments();
    } else if (!at::in_parallel_region() && crew()->lend()) {
      const Finally give_back([] { crew()->take_back(); });
      run_segments();
    } else {  // another run has the threads, or this one is inside it
      for (const int task : runner_.order) run_task(task, 0, &signals_);
    }
    if (is_seen_) learn();
    return values_.results();
  }

 private:
  void run_segments() {
    const int usual = current_ = at::get_num_threads();
    const Finally put_back([&] {
      if (changed_.load() || at::get_num_threads() != usual) at::set_num_threads(usual);
    });
    for (const Segment& segment : runner_.segments) {
      if (segment.lanes.size() > 1) {
        side_by_side(segment);
        continue;
      }
      const PinnedTeam team(segment.cores[0], segment.team[0]);
      if (const int error = team.error.load()) runner_.affinity_error.store(error);
      for (const Step& step : segment.lanes[0]) {
        set_threads(step.threads, current_);
        run_task(step.task, 0, &signals_);
      }
    }
  }

  void set_threads(int wanted, int& current) {
    if (wanted == current || wanted <= 0) return;
    current = wanted;
    changed_.store(true, std::memory_order_relaxed);
    at::set_num_threads(wanted);  // threads that start later inherit the number that was set last
  }

  void run_task(int task, int lane, Signals* signals) {
    const int64_t start_ns = is_seen_ ? now_ns() : 0;
    values_.run(task, [signals] {
      if (signals) signals->check();
    });
    if (is_seen_) {
      Seen& seen = runner_.seen[task];
      seen.lane = lane;
      seen.start_ns = start_ns;
      seen.end_ns = now_ns();
    }
  }

  // Times as they were seen, and with them the longest ways to the end.
  void learn() {
    for (Seen& each : runner_.seen) {
      const double took_us = static_cast<double>(each.end_ns - each.start_ns) / 1e3;
      each.mean_us = each.mean_us > 0 ? kOld * each.mean_us + (1 - kOld) * took_us : took_us;
    }
    if (++runner_.runs % kLearnEvery) return;
    for (Segment& segment : runner_.segments) {
      if (!segment.ready) continue;
      Ready& ready = *segment.ready;
      for (size_t place = ready.tasks.size(); place-- > 0;) {  // readers come later
        double after_us = 0;
        for (const int reader : ready.readers[place]) after_us = std::max(after_us, ready.way_us[reader]);
        ready.us[place] = runner_.seen[ready.tasks[place]].mean_us;
        ready.way_us[place] = ready.us[place] + after_us;
      }
    }
  }

  // What all lanes of a segment use.
  struct Beside {
    const Segment& segment;
    Shared shared;
    std::optional<Queue> queue;
    at::ThreadLocalState state;  // of the caller: grad mode, autocast, inference mode, profilers
    bool flushes = lanes::flushes();
    std::atomic<int> ended{0};
    Bell end;
  };

  void side_by_side(const Segment& segment) {
    const int count = static_cast<int>(segment.lanes.size());
    Beside beside{segment, Shared(tasks_, runner_.spin_us)};
    if (segment.ready) beside.queue.emplace(*segment.ready, runner_.slowdowns);
    if (!segment.is_narrow || !openmp().is_here() || !on_team(beside, count)) on_crew(beside, count);
    if (auto error = beside.shared.error()) std::rethrow_exception(error);
  }

  // False if the team has too few threads, such as by OMP_THREAD_LIMIT: then nothing has run.
  bool on_team(Beside& beside, int count) {
    set_threads(1, current_);  // the team inherits it
    std::atomic<bool> is_short{false};
    const std::function<void()> member = [&] {
      const int number = openmp().number();
      if (openmp().team() < count) {
        is_short.store(true);
      } else if (number == 0) {
        here(beside);
        wait(beside, [&] {
          beside.end.wait(
              [&] { return beside.ended.load() == count - 1; }, runner_.spin_us, [this] { signals_.look(); });
        });
      } else {
        there(beside, number);
        beside.ended.fetch_add(1);
        beside.end.ring();
      }
    };
    openmp().parallel(
        [](void* given) { (*static_cast<const std::function<void()>*>(given))(); },
        const_cast<void*>(static_cast<const void*>(&member)), static_cast<unsigned>(count), 0);
    return !is_short.load();
  }

  void on_crew(Beside& beside, int count) {
    const Lane lane = [&](int number) { there(beside, number); };
    crew()->start(count, lane);
    here(beside);
    wait(beside, [&] { crew()->wait(runner_.spin_us, [&] { signals_.look(); }); });
  }

  // Until the other lanes have ended, Ctrl-C or not: they use the values of this run.
  template <class Until>
  void wait(Beside& beside, const Until& until) {
    while (true) {
      try {
        until();
        return;
      } catch (...) {
        beside.shared.fail(std::current_exception());
      }
    }
  }

  void here(Beside& beside) {
    lane(beside, 0, current_, &signals_, [this] { signals_.look(); });
  }

  void there(Beside& beside, int number) {
    const at::ThreadLocalStateGuard guard(beside.state);
    const bool mine = lanes::flushes();
    if (mine != beside.flushes) at::globalContext().setFlushDenormal(beside.flushes);
    int threads = at::get_num_threads();
    try {
      const torch::PyWarningHandler warnings;  // gives the interpreter what operators warn of
      lane(beside, number, threads, nullptr, [] {});
    } catch (python_error& error) {  // a filter makes a warning an error
      const pybind11::gil_scoped_acquire gil;
      error.persist();
      beside.shared.fail(std::current_exception());
    }
    if (mine != beside.flushes) at::globalContext().setFlushDenormal(mine);
  }

  template <class Tick>
  void lane(Beside& beside, int number, int& threads, Signals* signals, const Tick& tick) {
    const Segment& segment = beside.segment;
    const PinnedTeam team(segment.cores[number], segment.team[number]);
    const Pinned pinned(segment.cores[number]);
    if (const int error = pinned.error ? pinned.error : team.error.load()) runner_.affinity_error.store(error);
    if (beside.queue) {
      beside.shared.run_ready(
          *beside.queue, number,
          [&](int place) {
            set_threads(segment.ready->threads[place], threads);
            run_task(segment.ready->tasks[place], number, signals);
          },
          tick);
    } else {
      beside.shared.run(
          segment.lanes[number],
          [&](const Step& step) {
            set_threads(step.threads, threads);
            run_task(step.task, number, signals);
          },
          tick);
    }
  }

  static constexpr double kOld = 0.8;
  static constexpr uint64_t kLearnEvery = 8;
  Values values_;
  Runner& runner_;
  size_t tasks_;
  Signals signals_;
  bool is_seen_ = false;
  int current_ = 0;
  std::atomic<bool> changed_{false};
};

}  // namespace dwconv::lanes
