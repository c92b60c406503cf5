// Ready: the tasks of a segment whose lanes decide at run time which of them comes next.
//
//   lane 0   a ──── c ── e        a lane that has ended its task takes the ready one of the longest way to the end that
//   lane 1   b ── d ────────      gains something beside what the others run, and for which there are cores and memory
//
// A task that waits for cores is not overtaken by one that would make it wait longer.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

namespace dwconv::lanes {

// By kind of a task, and kind of a neighbour: how many times as long the task takes.
using Slowdowns = std::vector<std::vector<double>>;

// The tasks of a segment whose lanes take what is ready. Tasks are named by their place here.
struct Ready {
  struct Stored {
    int64_t bytes;
    std::vector<int> read_by;  // the last one to end frees it
  };
  std::vector<int> tasks;
  std::vector<std::vector<int>> readers;
  std::vector<int> needs;      // how many of the segment
  std::vector<int> kinds;
  std::vector<int> threads;
  std::vector<double> us;      // what they take
  std::vector<int64_t> makes;  // bytes of their results
  std::vector<Stored> stored;
  int64_t held = 0, limit = 0;  // bytes at the beginning, and at most
  std::vector<double> way_us;  // to the end, along the longest chain of tasks
  std::vector<int> widths;     // by lane, the threads that it has
  int cores = 1;               // of all lanes: they may have more threads than that
};

// What of it can run next. All lanes of a run share it.
class Queue {
 public:
  static constexpr int kNone = -1, kAll = -2;
  using Clock = std::chrono::steady_clock;

  Queue(const Ready& all, const Slowdowns& slowdowns)
      : all_(all), slowdowns_(slowdowns), missing_(all.needs), running_(all.widths.size(), kNone),
        began_(all.widths.size()), left_(all.tasks.size()), held_(all.held), free_(all.cores) {
    for (size_t place = 0; place < all.tasks.size(); ++place)
      if (!missing_[place]) ready_.push_back(static_cast<int>(place));
    for (const auto& each : all.stored) unread_.push_back(each.read_by.size());
    frees_.resize(all.tasks.size());
    for (size_t i = 0; i < all.stored.size(); ++i)
      for (const int reader : all.stored[i].read_by) frees_[reader].push_back(i);
  }

  // Changes whenever a task has ended.
  uint32_t version() const { return version_.load(); }

  // The next task of a lane that has ended the task `ended`, or none: kNone if nothing is ready, kAll if all have begun.
  int next(int lane, int ended, Clock::time_point now = Clock::now()) {
    const std::lock_guard<std::mutex> guard(lock_);
    if (ended >= 0) end(lane, ended);
    if (!left_) return kAll;
    const int chosen = choose(lane, now);
    if (chosen == kNone) return kNone;
    ready_.erase(std::find(ready_.begin(), ready_.end(), chosen));
    running_[lane] = chosen;
    began_[lane] = now;
    free_ -= all_.threads[chosen];
    held_ += all_.makes[chosen];
    --left_;
    return chosen;
  }

 private:
  void end(int lane, int ended) {
    running_[lane] = kNone;
    free_ += all_.threads[ended];
    for (const int reader : all_.readers[ended])
      if (!--missing_[reader]) ready_.push_back(reader);
    for (const size_t i : frees_[ended])
      if (!--unread_[i]) held_ -= all_.stored[i].bytes;
    version_.fetch_add(1);
  }

  // What the lane begins now: the first task that it can. Those that come before it are left to other lanes, or wait for
  // cores; then it must have ended when these are free.
  int choose(int lane, Clock::time_point now) {
    const bool is_idle = std::all_of(running_.begin(), running_.end(), [](int each) { return each == kNone; });
    passed_.clear();
    bool waits = false;
    double until_us = 0;
    int left_to_others = 0;
    for (int best; (best = first(is_idle && passed_.empty())) != kNone; passed_.push_back(best)) {
      const int threads = all_.threads[best];
      const bool are_free = threads + left_to_others <= free_ || (is_idle && passed_.empty());
      if (are_free && threads <= all_.widths[lane]) {
        if (!waits || all_.us[best] <= until_us) return best;
      } else if (waits) {
        continue;
      } else if (are_free && other_can(lane, threads)) {
        left_to_others += threads;
      } else {
        waits = true;
        until_us = begins_in_us(threads + left_to_others, threads, now);
      }
    }
    return kNone;
  }

  // Of those that were not passed over the one of the longest way that gains something beside what runs; else of those
  // that lose nothing. Nothing starts that would hold too much memory, unless nothing else runs, or slow its neighbours
  // more than it gains.
  int first(bool has_memory) const {
    int best = kNone;
    double best_gain = 0;
    for (const int place : ready_) {
      if (std::find(passed_.begin(), passed_.end(), place) != passed_.end()) continue;
      if (!has_memory && held_ + all_.makes[place] > all_.limit) continue;
      double gain = 2;
      for (const int other : running_)
        if (other != kNone) gain = std::min(gain, together(all_.kinds[place], all_.kinds[other]));
      if (gain < kLosesNothing) continue;
      const bool gains = gain >= kGains, best_gains = best_gain >= kGains;
      if (best == kNone || gains > best_gains || (gains == best_gains && all_.way_us[place] > all_.way_us[best])) {
        best = place;
        best_gain = gain;
      }
    }
    return best;
  }

  bool other_can(int lane, int threads) const {
    for (size_t other = 0; other < running_.size(); ++other)
      if (static_cast<int>(other) != lane && running_[other] == kNone && all_.widths[other] >= threads) return true;
    return false;
  }

  // In how many microseconds so many cores are free, and a lane that has the threads, if nothing else begins.
  double begins_in_us(int cores, int threads, Clock::time_point now) const {
    std::vector<std::pair<double, size_t>> ends;
    bool has_lane = false;
    for (size_t lane = 0; lane < running_.size(); ++lane) {
      if (running_[lane] == kNone) {
        has_lane = has_lane || all_.widths[lane] >= threads;
      } else {
        const double taken_us = std::chrono::duration<double, std::micro>(now - began_[lane]).count();
        ends.emplace_back(std::max(0.0, all_.us[running_[lane]] - taken_us), lane);
      }
    }
    std::sort(ends.begin(), ends.end());
    int free = free_;
    double at_us = 0;
    for (const auto& [end_us, lane] : ends) {
      if (has_lane && free >= cores) break;
      free += all_.threads[running_[lane]];
      has_lane = has_lane || all_.widths[lane] >= threads;
      at_us = end_us;
    }
    return at_us;
  }

  // How many tasks' work two lanes do in the time of one.
  double together(int kind, int other) const {
    return 1 / slowdowns_[kind][other] + 1 / slowdowns_[other][kind];
  }

  static constexpr double kGains = 1.1, kLosesNothing = 0.95;
  const Ready& all_;
  const Slowdowns& slowdowns_;
  std::mutex lock_;
  std::vector<int> missing_, ready_, running_, passed_;
  std::vector<Clock::time_point> began_;
  std::vector<size_t> unread_;
  std::vector<std::vector<size_t>> frees_;
  size_t left_;
  int64_t held_;
  int free_;
  std::atomic<uint32_t> version_{0};
};

}  // namespace dwconv::lanes
