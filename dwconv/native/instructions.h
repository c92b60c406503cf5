// Instructions: a graph that was cut into tasks, as boxed calls of PyTorch's operators, and the values of one run.
//
//   inputs ─► slots ─► Instruction: schema, arguments (constants, slots) ─► slots ─► results
//
// No interpreter is needed: an operator that is written in Python takes its lock itself. A value is freed by its last
// reader.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <atomic>
#include <utility>
#include <vector>

namespace dwconv::lanes {

using c10::IValue;

// Where an argument comes from.
struct Source {
  int slot;    // -1: nothing, which is None
  bool takes;  // whether nothing reads the slot later
};

struct Argument {
  IValue constant;
  std::vector<Source> sources;
  bool is_constant = false, is_list = false, is_optional = false;
};

struct Instruction {
  c10::OperatorHandle op;
  std::vector<Argument> arguments;
  std::vector<int> gives;     // by result, its slot; -1: not read
  bool is_unpacked;           // the result is a list, and these are its tensors
  bool is_below_autograd;     // the operator is PyTorch's own: autograd would only pass it on
  std::vector<int> finishes;  // slots that other tasks read, too: this task has read them
};

// A graph. Slots: of the inputs, then those of `constants`, tensors of the graph itself, then of what tasks compute.
struct Graph {
  int inputs, slots;
  std::vector<std::vector<Instruction>> tasks;
  std::vector<int> readers;  // by slot, how many tasks read it, if several do and it is no result; else 0
  std::vector<int> results;  // slots
  std::vector<at::Tensor> constants;
};

class Values {
 public:
  // `slots`: with the inputs.
  Values(const Graph& graph, std::vector<IValue> slots)
      : graph_(graph), slots_(std::move(slots)), unread_(graph.readers.size()) {
    for (size_t i = 0; i < graph.constants.size(); ++i) slots_[graph.inputs + i] = graph.constants[i];
    for (size_t i = 0; i < unread_.size(); ++i) unread_[i].store(graph.readers[i], std::memory_order_relaxed);
  }

  // Run the instructions of a task; `before` is called before each, and may throw.
  template <class Before>
  void run(int task, const Before& before) {
    std::vector<IValue> stack;  // its own: an operator may run another graph
    stack.reserve(16);
    for (const Instruction& each : graph_.tasks[task]) {
      before();
      for (const Argument& argument : each.arguments) push(argument, stack);
      call(each, stack);
      take(each, stack);
      for (const int slot : each.finishes)
        if (unread_[slot].fetch_sub(1, std::memory_order_acq_rel) == 1) slots_[slot] = IValue();
    }
  }

  std::vector<IValue> results() const {
    std::vector<IValue> found;
    for (const int slot : graph_.results) found.push_back(slots_[slot]);
    return found;
  }

 private:
  static void call(const Instruction& instruction, std::vector<IValue>& stack) {
    try {
      if (instruction.is_below_autograd) {
        const c10::impl::ExcludeDispatchKeyGuard below(c10::autograd_dispatch_keyset);
        instruction.op.callBoxed(stack);
      } else {
        instruction.op.callBoxed(stack);
      }
    } catch (python_error& error) {
      if (!error.type) {  // it is still with the interpreter, in this thread
        const pybind11::gil_scoped_acquire gil;
        error.persist();
      }
      throw;
    }
  }

  IValue read(const Source& source) {
    if (source.slot < 0) return IValue();
    return source.takes ? std::move(slots_[source.slot]) : slots_[source.slot];
  }

  void push(const Argument& argument, std::vector<IValue>& stack) {
    if (argument.is_constant) {
      stack.push_back(argument.constant);
    } else if (!argument.is_list) {
      stack.push_back(read(argument.sources[0]));
      if (argument.is_optional && stack.back().isTensor() && !stack.back().toTensor().defined()) stack.back() = IValue();
    } else if (argument.is_optional) {
      c10::List<std::optional<at::Tensor>> list;
      for (const Source& each : argument.sources) {
        IValue value = read(each);
        list.push_back(value.isTensor() ? std::optional<at::Tensor>(std::move(value).toTensor()) : std::nullopt);
      }
      stack.emplace_back(std::move(list));
    } else {
      c10::List<at::Tensor> list;
      for (const Source& each : argument.sources) list.push_back(read(each).toTensor());
      stack.emplace_back(std::move(list));
    }
  }

  void take(const Instruction& instruction, std::vector<IValue>& stack) {
    const auto& gives = instruction.gives;
    if (instruction.is_unpacked) {
      const auto list = std::move(stack[0]).toTensorList();
      for (size_t i = 0; i < gives.size(); ++i)
        if (gives[i] >= 0) slots_[gives[i]] = list.get(i);
    } else {
      for (size_t i = 0; i < gives.size(); ++i)
        if (gives[i] >= 0) slots_[gives[i]] = std::move(stack[i]);
    }
    stack.clear();  // what is not read is freed at once
  }

  const Graph& graph_;
  std::vector<IValue> slots_;
  std::vector<std::atomic<int>> unread_;
};

}  // namespace dwconv::lanes
