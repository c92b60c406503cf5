// Ops: what compiled code calls, dwconv::fprop and the others, past Python from the second op of its kind on.
//
//   AutogradCPU, AutogradCUDA   nothing is recorded: below autograd; else what Python registered for Autograd
//   CPU, CUDA                   found by all arguments: the steps of an OpCall; else what Python registered
//       │                       for every backend, which runs it, and may `offer` what runs the next one
//       ▼
//   Step ─► Kernel, or PyTorch's own op
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "calls.h"
#include "kernel.h"
#include "watchers.h"

namespace dwconv {

using Places = std::vector<int64_t>;  // among the tensors that an op is given, or those that it gives; -1: not there
using Tensors = c10::SmallVector<at::Tensor, 8>;

// A part of what an op does.
struct Step {
  Step(Places inputs, Places results) : inputs(std::move(inputs)), results(std::move(results)) {}
  virtual ~Step() = default;
  virtual void run(const Tensors& given, std::vector<at::Tensor>& found) const = 0;

  Places inputs, results;
};

struct KernelStep final : Step {
  KernelStep(std::shared_ptr<Kernel> kernel, Places inputs, Places results)
      : Step(std::move(inputs), std::move(results)), kernel(std::move(kernel)) {}

  void run(const Tensors& given, std::vector<at::Tensor>& found) const override {
    std::vector<at::Tensor> read;
    for (const int64_t place : inputs) read.push_back(given[place]);
    read = kernel->dense(std::move(read));
    const int64_t batch = read[0].size(0);
    std::vector<at::Tensor> gives = kernel->empty_results(batch);
    kernel->run(batch, read, gives);
    for (size_t i = 0; i < results.size(); ++i) found[results[i]] = std::move(gives[i]);
  }

  std::shared_ptr<Kernel> kernel;
};

// Inputs: x, w and the bias. Result: y.
struct PyTorchFprop final : Step {
  PyTorchFprop(Geometry geometry, at::MemoryFormat format, Places inputs, Places results)
      : Step(std::move(inputs), std::move(results)), geometry(std::move(geometry)), format(format) {}

  void run(const Tensors& given, std::vector<at::Tensor>& found) const override {
    std::optional<at::Tensor> bias;
    if (inputs.size() == 3) bias = given[inputs[2]];
    found[results[0]] = geometry.y(given[inputs[0]], given[inputs[1]], bias).contiguous(format);
  }

  Geometry geometry;
  at::MemoryFormat format;
};

// Inputs: dy, x and w. Results: dx, dw and that of the bias.
struct PyTorchGradients final : Step {
  PyTorchGradients(Geometry geometry, Shape x, Shape w, Places inputs, Places results)
      : Step(std::move(inputs), std::move(results)), geometry(std::move(geometry)), x(std::move(x)), w(std::move(w)) {}

  void run(const Tensors& given, std::vector<at::Tensor>& found) const override {
    const at::Tensor& dy = given[inputs[0]];
    const auto put = [&](const at::Tensor& result, int64_t place, const Shape& shape) {
      if (place >= 0) found[place] = with_strides_of(result, shape);
    };
    // Of a tensor without a requested gradient PyTorch reads only shape and layout.
    const auto [dx, dw, db] = geometry.gradients(
        dy, inputs[1] >= 0 ? given[inputs[1]] : x.empty_like(dy),
        inputs[2] >= 0 ? given[inputs[2]] : dy.new_empty({1}).expand(w.sizes),
        {results[0] >= 0, results[1] >= 0, results[2] >= 0});
    put(dx, results[0], x);
    put(dw, results[1], w);
    if (results[2] >= 0) found[results[2]] = db;
  }

  // What two of one layer give, from one call.
  static std::shared_ptr<PyTorchGradients> both(const PyTorchGradients& first, const PyTorchGradients& second) {
    auto found = std::make_shared<PyTorchGradients>(first);
    for (size_t i = 0; i < found->inputs.size(); ++i) {
      found->inputs[i] = std::max(first.inputs[i], second.inputs[i]);
      found->results[i] = std::max(first.results[i], second.results[i]);
    }
    return found;
  }

  Geometry geometry;
  Shape x, w;
};

// What runs an op that is given tensors of these sizes, strides and types.
struct OpCall : torch::CustomClassHolder {
  explicit OpCall(std::vector<std::shared_ptr<Step>> steps) : steps(std::move(steps)) {
    for (const auto& step : this->steps)
      for (const int64_t place : step->results) count = std::max(count, static_cast<size_t>(place + 1));
  }

  std::vector<std::shared_ptr<Step>> steps;
  size_t count = 0;  // of results
  std::atomic<int64_t> calls = 0;
};

// -- known ops ----------------------------------------------------------------------------------------------------------

class KnownOps {
 public:
  c10::intrusive_ptr<OpCall> find(const Key& key) const {
    const std::shared_lock<std::shared_mutex> lock(mutex_);
    const auto found = calls_.find(key);
    return found == calls_.end() ? c10::intrusive_ptr<OpCall>() : found->second;
  }

  void learn(const Key& key, c10::intrusive_ptr<OpCall> call) {
    static constexpr size_t kMost = 10'000;  // of sizes
    if (size() >= kMost) forget();
    const std::unique_lock<std::shared_mutex> lock(mutex_);
    calls_.emplace(key, std::move(call));
  }

  void forget() {
    decltype(calls_) gone;  // outside of the lock: a kernel that goes may wait for the interpreter's
    const std::unique_lock<std::shared_mutex> lock(mutex_);
    gone.swap(calls_);
  }

  size_t size() const {
    const std::shared_lock<std::shared_mutex> lock(mutex_);
    return calls_.size();
  }

 private:
  mutable std::shared_mutex mutex_;
  std::unordered_map<Key, c10::intrusive_ptr<OpCall>, HashOfKey> calls_;
};

inline KnownOps& known_ops() {
  static auto* known = new KnownOps();  // never freed: nothing of it may be touched once the interpreter is gone
  return *known;
}

// Where Python, while it runs an op of this thread, places what runs the next one.
inline c10::intrusive_ptr<OpCall>*& open_offer() {
  static thread_local c10::intrusive_ptr<OpCall>* place = nullptr;
  return place;
}

inline void offer(c10::intrusive_ptr<OpCall> call) {
  if (open_offer()) *open_offer() = std::move(call);
}

// -- ops --------------------------------------------------------------------------------------------------------------

using torch::jit::Stack;

// The tensors of an op, and with them the key. False for what only Python can run.
inline bool describe_op(const c10::OperatorHandle& op, const Stack& stack, Tensors& given, Key& key) {
  const auto describe_tensor = [&](const at::Tensor& tensor) {
    if (!tensor.defined() || !is_plain(tensor)) return false;
    describe(tensor, key);
    given.push_back(tensor);
    return true;
  };
  const size_t count = op.schema().arguments().size();
  key.clear();
  key.push_back(reinterpret_cast<int64_t>(&op.schema()));
  key.push_back(at::get_num_threads());
  for (size_t i = stack.size() - count; i < stack.size(); ++i) {
    const c10::IValue& each = stack[i];
    if (each.isTensor()) {
      if (!describe_tensor(each.toTensor())) return false;
    } else if (each.isNone()) {
      key.push_back(-3);
    } else if (each.isString()) {
      key.push_back(static_cast<int64_t>(std::hash<std::string_view>()(each.toStringView())));
    } else if (each.isIntList()) {
      const auto numbers = each.toListRef();
      key.push_back(static_cast<int64_t>(numbers.size()));
      for (const c10::IValue& number : numbers) key.push_back(number.toInt());
    } else if (each.isTensorList()) {
      const auto tensors = each.toListRef();
      key.push_back(static_cast<int64_t>(tensors.size()));
      for (const c10::IValue& tensor : tensors)
        if (!describe_tensor(tensor.toTensor())) return false;
    } else {
      return false;
    }
  }
  return given.size() > 0;
}

inline void run_op(const c10::OperatorHandle& op, Stack* stack) {
  static thread_local Key key;
  Tensors given;
  const bool is_usual = describe_op(op, *stack, given, key);
  const auto call = is_usual ? known_ops().find(key) : c10::intrusive_ptr<OpCall>();
  if (!call) {
    const Key of_this = is_usual ? key : Key();  // what Python does may be made of other ops
    c10::intrusive_ptr<OpCall> offered;
    struct Opened {
      c10::intrusive_ptr<OpCall>* before;
      explicit Opened(c10::intrusive_ptr<OpCall>* place) : before(std::exchange(open_offer(), place)) {}
      ~Opened() { open_offer() = before; }
    };
    {
      const Opened opened(is_usual ? &offered : nullptr);
      op.callBoxedForDispatchKey(DispatchKey::CompositeExplicitAutograd, *stack);
    }
    if (offered) known_ops().learn(of_this, std::move(offered));
    return;
  }
  call->calls += 1;
  std::vector<at::Tensor> found(call->count);
  for (const auto& step : call->steps) step->run(given, found);
  torch::jit::drop(*stack, op.schema().arguments().size());
  if (op.schema().returns()[0].type()->kind() == c10::TypeKind::ListType)
    stack->emplace_back(std::move(found));
  else
    for (at::Tensor& each : found) stack->emplace_back(std::move(each));
}

// Whether autograd has to record an op that is given these.
inline bool is_recorded(const c10::OperatorHandle& op, const Stack& stack) {
  if (!at::GradMode::is_enabled()) return false;
  const auto is_of_autograd = [](const at::Tensor& tensor) {
    return tensor.defined() && (tensor.requires_grad() || !is_plain(tensor));
  };
  for (size_t i = stack.size() - op.schema().arguments().size(); i < stack.size(); ++i) {
    if (stack[i].isTensor() && is_of_autograd(stack[i].toTensor())) return true;
    if (stack[i].isTensorList())
      for (const c10::IValue& each : stack[i].toListRef())
        if (is_of_autograd(each.toTensor())) return true;
  }
  return false;
}

inline void run_autograd(const c10::OperatorHandle& op, Stack* stack) {
  if (is_recorded(op, *stack)) {
    op.callBoxedForDispatchKey(DispatchKey::Autograd, *stack);
    return;
  }
  const at::AutoDispatchBelowAutograd below;
  op.callBoxed(*stack);
}

// Take the ops of these names, once Python has registered them; one that another copy of this module has taken stays.
inline void take_ops(const std::vector<std::string>& names) {
  static auto* taken = new std::vector<torch::Library>();  // for as long as the process lives
  for (const auto& [key, is_autograd] :
       {std::pair(DispatchKey::CPU, false), std::pair(DispatchKey::CUDA, false),
        std::pair(DispatchKey::AutogradCPU, true), std::pair(DispatchKey::AutogradCUDA, true)}) {
    taken->emplace_back(torch::Library::IMPL, "dwconv", key, __FILE__, __LINE__);
    for (const std::string& name : names) {
      const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(("dwconv::" + name).c_str(), "");
      if (op.hasKernelForDispatchKey(key)) continue;
      taken->back().impl(
          name.c_str(), is_autograd ? torch::CppFunction::makeFromBoxedFunction<&run_autograd>()
                                    : torch::CppFunction::makeFromBoxedFunction<&run_op>());
    }
  }
}

}  // namespace dwconv
