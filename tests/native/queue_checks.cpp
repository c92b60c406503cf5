// The queue of ready tasks, read by one thread for several lanes: which task each of them begins.
#include "../../dwconv/native/ready.h"

#include <cstdio>
#include <cstdlib>

using namespace dwconv::lanes;

namespace {

const Slowdowns kNoSlowdowns{{1.0, 1.0}, {1.0, 1.0}};
const Queue::Clock::time_point kBegin{};

Queue::Clock::time_point at(double us) {
  return kBegin + std::chrono::duration_cast<Queue::Clock::duration>(std::chrono::duration<double, std::micro>(us));
}

// Tasks that are all ready, the longest way first.
Ready tasks(std::vector<int> threads, std::vector<double> us, std::vector<int> widths, int cores) {
  Ready made;
  const size_t count = threads.size();
  for (size_t i = 0; i < count; ++i) {
    made.tasks.push_back(static_cast<int>(i));
    made.way_us.push_back(static_cast<double>(count - i));
  }
  made.readers.resize(count);
  made.needs.resize(count);
  made.kinds.resize(count);
  made.makes.resize(count);
  made.threads = std::move(threads);
  made.us = std::move(us);
  made.widths = std::move(widths);
  made.cores = cores;
  made.limit = 1000;
  return made;
}

void check(const char* what, int found, int expected) {
  if (found == expected) return;
  std::printf("%s: %d, not %d\n", what, found, expected);
  std::exit(1);
}

void lanes_of_several_threads_share_the_cores() {
  const Ready all = tasks({2, 2, 1}, {10, 10, 10}, {2, 2}, 4);
  Queue queue(all, kNoSlowdowns);
  check("the longest way", queue.next(0, Queue::kNone, at(0)), 0);
  check("beside it the next", queue.next(1, Queue::kNone, at(0)), 1);
  check("then the last", queue.next(0, 0, at(10)), 2);
  check("nothing is left", queue.next(1, 1, at(10)), Queue::kAll);
}

void a_lane_takes_no_more_threads_than_it_has() {
  const Ready all = tasks({2, 1}, {10, 10}, {1, 2}, 3);
  Queue queue(all, kNoSlowdowns);
  check("the wide one is left to the wide lane", queue.next(0, Queue::kNone, at(0)), 1);
  check("which takes it", queue.next(1, Queue::kNone, at(0)), 0);
}

void no_more_threads_run_than_there_are_cores() {
  const Ready all = tasks({2, 2}, {10, 10}, {2, 2}, 3);
  Queue queue(all, kNoSlowdowns);
  check("one", queue.next(0, Queue::kNone, at(0)), 0);
  check("the other waits", queue.next(1, Queue::kNone, at(0)), Queue::kNone);
  check("until the first has ended", queue.next(0, 0, at(10)), 1);
}

// Task 0 runs for 10 µs on 2 of 3 cores; then task 1 needs all of them.
void what_waits_for_cores_is_overtaken_by_what_ends_before_they_are_free() {
  const Ready all = tasks({2, 3, 1, 1}, {10, 10, 9, 5}, {2, 3}, 3);
  Queue queue(all, kNoSlowdowns);
  check("the first", queue.next(0, Queue::kNone, at(0)), 0);
  check("9 of the 8 µs that are left are too many", queue.next(1, Queue::kNone, at(2)), 3);
  check("no more cores", queue.next(1, 3, at(7)), Queue::kNone);
  check("the narrow lane leaves it to the wide one", queue.next(0, 0, at(10)), Queue::kNone);
  check("which takes it", queue.next(1, Queue::kNone, at(10)), 1);
  check("and then the last", queue.next(0, Queue::kNone, at(11)), Queue::kNone);
  check("runs", queue.next(1, 1, at(20)), 2);
}

// Where nothing runs the first task begins whatever it takes, on the lane that has the threads.
void nothing_waits_for_ever() {
  Ready all = tasks({2, 1}, {10, 10}, {1, 2}, 2);
  all.makes = {2000, 1500};
  Queue queue(all, kNoSlowdowns);
  check("too narrow, and no memory for the other", queue.next(0, Queue::kNone, at(0)), Queue::kNone);
  check("the wide lane", queue.next(1, Queue::kNone, at(0)), 0);
  check("no cores", queue.next(0, Queue::kNone, at(0)), Queue::kNone);
  check("later", queue.next(1, 0, at(10)), 1);
}

void what_moves_memory_beside_the_same_waits() {
  Ready all = tasks({2, 2, 2}, {10, 10, 10}, {2, 2}, 4);
  all.kinds = {1, 1, 0};
  const Slowdowns slowdowns{{1.0, 1.0}, {1.0, 3.0}};
  Queue queue(all, slowdowns);
  check("moves memory", queue.next(0, Queue::kNone, at(0)), 0);
  check("computes", queue.next(1, Queue::kNone, at(0)), 2);
  check("moves memory, too", queue.next(1, 2, at(5)), Queue::kNone);
  check("alone", queue.next(0, 0, at(10)), 1);
}

}  // namespace

int main() {
  lanes_of_several_threads_share_the_cores();
  a_lane_takes_no_more_threads_than_it_has();
  no_more_threads_run_than_there_are_cores();
  what_waits_for_cores_is_overtaken_by_what_ends_before_they_are_free();
  nothing_waits_for_ever();
  what_moves_memory_beside_the_same_waits();
  std::puts("right");
  return 0;
}
