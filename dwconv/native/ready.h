// Ready: the tasks of a segment whose lanes decide at run time which of them comes next.
//
//   lane 0   a ──── c ── e        a lane that has ended its task takes the ready one of the longest way to the end that
//   lane 1   b ── d ────────      gains something beside what the others run, and for which there is memory
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
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
  std::vector<int64_t> makes;  // bytes of their results
  std::vector<Stored> stored;
  int64_t held = 0, limit = 0;  // bytes at the beginning, and at most
  std::vector<double> way_us;  // to the end, along the longest chain of tasks
};

// What of it can run next. All lanes of a run share it.
class Queue {
 public:
  static constexpr int kNone = -1, kAll = -2;

  Queue(const Ready& all, const Slowdowns& slowdowns, int lanes)
      : all_(all), slowdowns_(slowdowns), missing_(all.needs), running_(lanes, kNone), left_(all.tasks.size()), held_(all.held) {
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
  int next(int lane, int ended) {
    const std::lock_guard<std::mutex> guard(lock_);
    if (ended >= 0) end(lane, ended);
    if (!left_) return kAll;
    const int chosen = choose();
    if (chosen == kNone) return kNone;
    ready_.erase(std::find(ready_.begin(), ready_.end(), chosen));
    running_[lane] = chosen;
    held_ += all_.makes[chosen];
    --left_;
    return chosen;
  }

 private:
  void end(int lane, int ended) {
    running_[lane] = kNone;
    for (const int reader : all_.readers[ended])
      if (!--missing_[reader]) ready_.push_back(reader);
    for (const size_t i : frees_[ended])
      if (!--unread_[i]) held_ -= all_.stored[i].bytes;
    version_.fetch_add(1);
  }

  // The longest way first, of those that gain something beside what runs; else of those that lose nothing. Nothing starts
  // that would hold too much memory, or slow its neighbours more than it gains, unless nothing else runs.
  int choose() const {
    int best = kNone;
    double best_gain = 0;
    bool is_idle = true;
    for (const int each : running_) is_idle = is_idle && each == kNone;
    for (const int place : ready_) {
      if (!is_idle && held_ + all_.makes[place] > all_.limit) continue;
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

  // How many tasks' work two lanes do in the time of one.
  double together(int kind, int other) const {
    return 1 / slowdowns_[kind][other] + 1 / slowdowns_[other][kind];
  }

  static constexpr double kGains = 1.1, kLosesNothing = 0.95;
  const Ready& all_;
  const Slowdowns& slowdowns_;
  std::mutex lock_;
  std::vector<int> missing_, ready_, running_;
  std::vector<size_t> unread_;
  std::vector<std::vector<size_t>> frees_;
  size_t left_;
  int64_t held_;
  std::atomic<uint32_t> version_{0};
};

}  // namespace dwconv::lanes
