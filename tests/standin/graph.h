// The device's clock, its health, and what is captured in a CUDA graph.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>

#include <atomic>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "stream.h"

namespace standin {

using torch::jit::Stack;

// What the device ran: for the profiler an event inside of the operator that runs it, with its name and nanoseconds.
inline void note(const std::string& name, double ns) { RECORD_USER_SCOPE("standin " + name + " " + std::to_string(ns)); }

// An operator that was called while a graph was captured; run again, it writes where it wrote before.
struct Step {
  c10::OperatorHandle op;
  Stack arguments, results;
  double ns;

  void run() const {
    note(op.schema().name(), ns);
    Stack stack = arguments;
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
    for (size_t i = 0; i < results.size(); ++i) write(stack[stack.size() - results.size() + i], results[i]);
  }

 private:
  static void write(const c10::IValue& from, const c10::IValue& to) {
    if (from.isTensor()) {
      write(from.toTensor(), to.toTensor());
    } else if (from.isTensorList()) {
      const auto some = from.toTensorVector(), others = to.toTensorVector();
      for (size_t i = 0; i < some.size(); ++i) write(some[i], others[i]);
    }
  }

  static void write(const at::Tensor& from, const at::Tensor& to) {
    if (from.defined() && !from.is_same(to)) to.copy_(from);
  }
};

struct Graph {
  std::vector<Step> steps;
  std::vector<c10::Storage> kept;  // what was allocated while it was captured stays where it is
  std::set<const void*> pool;      // where that is, results of operators included
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> outside;  // what else it reads and writes, which may be freed
  std::vector<std::pair<at::Tensor, at::Tensor>> before;  // memory that operators wrote to, and what was in it
  double ns = 0;                   // what a replay takes

  // Undo everything that ran.
  void undo() {
    for (auto each = before.rbegin(); each != before.rend(); ++each) each->first.copy_(each->second);
    before.clear();
  }
};

struct Device {
  std::atomic<double> ns{0};
  int (*status)() = nullptr;  // of the driver: not 0 once an error has broken the process
  std::unique_ptr<Graph> captured;
  c10::StreamId stream = 0;
  double began_ns = 0;
  bool capture_failed = false;
  std::set<std::string> computed_at_rest;  // operators that rest.cc has no form of
};

inline Device& device() {
  static Device& device = *new Device;
  return device;
}

inline bool capturing() { return device().captured != nullptr; }

inline void spend(double ns) { device().ns = device().ns + ns; }

[[noreturn]] inline void fail(int code, const std::string& message) {
  throw c10::AcceleratorError({__func__, __FILE__, 0}, code, "CUDA error: " + message);
}

inline void check_device() {
  const int code = device().status ? device().status() : 0;
  if (code) fail(code, "an illegal memory access was encountered (" + std::to_string(code) + ")");
}

// A call that is not allowed on a stream being captured ends the capture.
inline void check_capture(const std::string& name, bool waits) {
  if (waits) {
    device().capture_failed = true;
    fail(900, "operation not permitted when stream is capturing (" + name + ")");
  }
  if (current_stream != device().stream) {
    device().capture_failed = true;
    fail(906, "operation would make the legacy stream depend on a capturing blocking stream (" + name + ")");
  }
}

inline void write_down(const c10::OperatorHandle& op, Stack arguments, Stack results, double ns) {
  device().captured->steps.push_back({op, std::move(arguments), std::move(results), ns});
}

inline void keep_from_change(const at::Tensor& tensor) {
  if (tensor.defined()) device().captured->before.emplace_back(tensor, tensor.clone());
}

inline void keep_from_change(const c10::IValue& value) {
  if (value.isTensor()) return keep_from_change(value.toTensor());
  if (!value.isTensorList()) return;
  for (const at::Tensor& each : value.toTensorVector()) keep_from_change(each);
}

inline c10::Storage kept(c10::Storage storage) {
  if (capturing()) {
    device().captured->kept.push_back(storage);
    device().captured->pool.insert(storage.data());
  }
  return storage;
}

inline at::Tensor kept(at::Tensor tensor) {
  kept(tensor.storage());
  return tensor;
}

// As the host sees it. A graph keeps no memory that was there before its capture.
inline c10::Storage for_the_host(const c10::Storage& storage) {
  if (!capturing() || device().captured->pool.count(storage.data())) return on_the_host(storage);
  device().captured->outside.push_back(storage.getWeakStorageImpl());
  return borrowed_by_the_host(storage);
}

}  // namespace standin

// -- for Python, through ctypes --------------------------------------------------------------------------------------

extern "C" {
using namespace standin;

void standin_open(int (*status)(), uint64_t total_bytes) {
  device().status = status;
  memory().set_total(total_bytes);
  c10::SetAllocator(c10::DeviceType::CUDA, &allocator());
}

double standin_clock_ns() { return device().ns; }
void standin_spend(double ns) { spend(ns); }
uint64_t standin_free_bytes() { return memory().free_bytes(); }
uint64_t standin_peak_bytes() { return memory().peak(); }
void standin_reset_peak() { memory().reset_peak(); }
uint64_t standin_bytes_from(uint64_t address) { return memory().from(address); }
void standin_refuse_memory() { memory().refuse(); }

void standin_note(const char* name, double ns) { note(name, ns); }

int64_t standin_stream() { return current_stream; }
void standin_set_stream(int64_t stream) { current_stream = stream; }

// From its begin to its end: whether it rests, and which operators were computed all the same.
void standin_rest(int begins) {
  if (begins) device().computed_at_rest.clear();
  rests = begins;
}
const char* standin_computed_at_rest() {
  static std::string names;
  names.clear();
  for (const std::string& each : device().computed_at_rest) names += (names.empty() ? "" : ", ") + each;
  return names.c_str();
}

void standin_begin_capture() {
  device().captured = std::make_unique<Graph>();
  device().stream = current_stream;
  device().began_ns = device().ns;
  device().capture_failed = false;
}

// 1 while a graph is captured; 2 if it is on this thread's current stream.
int standin_capturing() { return capturing() + (capturing() && current_stream == device().stream); }
uint64_t standin_captured_steps() { return capturing() ? device().captured->steps.size() : 0; }
void standin_spoil_capture() { device().capture_failed = true; }

// Null if something spoiled it.
void* standin_end_capture() {
  device().captured->ns = device().ns - device().began_ns;
  device().ns = device().began_ns;
  std::unique_ptr<Graph> graph = std::move(device().captured);
  c10::InferenceMode no_autograd;
  graph->undo();
  return device().capture_failed ? nullptr : graph.release();
}

// 1 if memory was freed that it reads or writes.
int standin_lost(void* graph) {
  for (const auto& each : static_cast<Graph*>(graph)->outside) {
    if (each.expired()) return 1;
  }
  return 0;
}

double standin_graph_ns(void* graph) { return static_cast<Graph*>(graph)->ns; }
void standin_forget(void* graph) { delete static_cast<Graph*>(graph); }

void standin_replay(void* graph, uint64_t from, uint64_t to) {
  c10::InferenceMode no_autograd;
  const auto& steps = static_cast<Graph*>(graph)->steps;
  for (uint64_t i = from; i < to; ++i) steps[i].run();
}
}
