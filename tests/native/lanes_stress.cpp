// Lanes under ThreadSanitizer: random graphs of tasks that write and read plain memory, by random schedules. A missing
// wait, or a signal that comes too early, is a data race. With -DPLANTED no lane waits: it must be reported.
#include "../../dwconv/native/lanes.h"

#include <cstdio>
#include <cstdlib>
#include <random>
#include <stdexcept>

using namespace dwconv::lanes;

namespace {

constexpr int kTasks = 60, kRuns = 20, kGraphs = 25;

struct Graph {
  std::vector<std::vector<int>> needs;
  std::vector<Steps> lanes;
};

Graph drawn(std::mt19937& draw, int lanes) {
  Graph graph{std::vector<std::vector<int>>(kTasks), std::vector<Steps>(lanes)};
  std::vector<int> lane_of(kTasks);
  std::vector<bool> signals(kTasks, false);
  for (int task = 0; task < kTasks; ++task) {
    lane_of[task] = static_cast<int>(draw() % lanes);
    for (int i = static_cast<int>(draw() % 4); task && i > 0; --i) graph.needs[task].push_back(static_cast<int>(draw() % task));
    for (const int needed : graph.needs[task])
      if (lane_of[needed] != lane_of[task]) signals[needed] = true;
  }
  for (int task = 0; task < kTasks; ++task) {
    Step step{task, 1, {}, static_cast<bool>(signals[task])};
#ifndef PLANTED
    for (const int needed : graph.needs[task])
      if (lane_of[needed] != lane_of[task]) step.waits.push_back(needed);
#endif
    graph.lanes[lane_of[task]].push_back(step);
  }
  return graph;
}

// Lanes that take what is ready. Every third task moves memory. Lanes have one, two, one, … threads, and
// tasks no more than the lane that they were drawn for; together lanes may have more threads than there are cores.
Ready ready(const Graph& graph) {
  Ready made{.readers = std::vector<std::vector<int>>(kTasks), .needs = std::vector<int>(kTasks), .limit = 30};
  made.threads.resize(kTasks);
  for (size_t lane = 0; lane < graph.lanes.size(); ++lane) {
    made.widths.push_back(1 + static_cast<int>(lane % 2));
    for (const Step& step : graph.lanes[lane]) made.threads[step.task] = 1 + step.task % made.widths.back();
  }
  made.cores = 2 + kTasks % static_cast<int>(graph.lanes.size());
  for (int task = 0; task < kTasks; ++task) {
    made.tasks.push_back(task);
    made.us.push_back(task % 7);
    made.kinds.push_back(task % 3 == 0);
    made.makes.push_back(1);
    made.way_us.push_back(kTasks - task);
#ifndef PLANTED
    for (const int needed : graph.needs[task]) {
      made.readers[needed].push_back(task);
      ++made.needs[task];
    }
#endif
  }
  for (int task = 0; task < kTasks; ++task)
    if (!made.readers[task].empty()) made.stored.push_back({1, made.readers[task]});
  return made;
}

// What the tasks compute: each from what it needs. `fails`: the task that does; -1: none.
void run(Crew& crew, const Graph& graph, bool decides, int fails, std::vector<long>& values) {
  static const Slowdowns slowdowns{{1.0, 1.2}, {1.2, 2.2}};
  Shared shared(kTasks, fails % 2 ? 0 : 20);
  const Ready all = ready(graph);
  Queue queue(all, slowdowns);
  const auto compute = [&](int task) {
    if (task == fails) throw std::runtime_error("planned");
    long found = task;
    for (const int needed : graph.needs[task]) found += 3 * values[needed];
    values[task] = found;
  };
  const Lane lane = [&](int number) {
    if (decides)
      shared.run_ready(queue, number, compute, [] {});
    else
      shared.run(graph.lanes[number], [&](const Step& step) { compute(step.task); }, [] {});
  };
  crew.start(static_cast<int>(graph.lanes.size()), lane);
  lane(0);
  crew.wait(20, [] {});
  const bool has_failed = static_cast<bool>(shared.error());
  if (has_failed != (fails >= 0)) {
    std::puts("an error was lost, or made up");
    std::exit(2);
  }
}

}  // namespace

int main() {
  std::mt19937 draw(7);
  Crew crew;
  for (int number = 0; number < kGraphs; ++number) {
    const Graph graph = drawn(draw, 2 + number % 3);
    std::vector<long> expected(kTasks);
    for (int task = 0; task < kTasks; ++task) {
      expected[task] = task;
      for (const int needed : graph.needs[task]) expected[task] += 3 * expected[needed];
    }
    for (int i = 0; i < kRuns; ++i) {
      if (!crew.lend()) return 3;
      std::vector<long> values(kTasks);
      const bool breaks = i % 5 == 4;
      run(crew, graph, i % 2, breaks ? static_cast<int>(draw() % kTasks) : -1, values);
      if (!breaks && values != expected) {
        std::puts("wrong values");
        return 1;
      }
      crew.take_back();
    }
    if (number % 10 == 9) crew.end();
  }
  std::puts("right");
  return 0;
}
