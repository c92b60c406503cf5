// Kernel: machine code of a pass, called with PyTorch tensors.
#pragma once

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>
#include <torch/csrc/utils/pybind.h>

#include <cstdlib>
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace dwconv {

using Sizes = std::vector<int64_t>;
constexpr int64_t kMostElements = (int64_t{1} << 31) - 1;  // indices inside a kernel are 32-bit

// A tensor that a kernel reads or writes, as PyTorch sees it. The first size of an image is the batch: any.
struct Operand {
  bool is_image;
  Sizes sizes;
  Sizes strides;
  at::ScalarType dtype;
  at::MemoryFormat lies;

  bool fits(const at::Tensor& tensor, int64_t batch) const {
    const auto given = tensor.sizes();
    return given.size() == sizes.size() && (!is_image || given[0] == batch) &&
        std::equal(given.begin() + is_image, given.end(), sizes.begin() + is_image) && tensor.is_cpu() &&
        tensor.scalar_type() == dtype && tensor.numel() <= kMostElements && tensor.is_contiguous(lies);
  }

  at::Tensor empty(int64_t batch) const {
    Sizes sized = sizes;
    if (is_image) sized[0] = batch;
    return at::detail::empty_strided_cpu(sized, strides, dtype);
  }
};

// Scratch memory of a kernel: each size is a number, or follows the batch: ceil(batch * times / over).
struct Workspace {
  struct Size {
    int64_t times;
    int64_t over;  // 0: the size is `times`
  };
  int64_t item_bytes;
  std::vector<Size> sizes;

  int64_t bytes(int64_t batch) const {
    int64_t product = item_bytes;
    for (const auto& size : sizes) product *= size.over ? (batch * size.times + size.over - 1) / size.over : size.times;
    return product;
  }
};

// Memory for the workspaces of all kernels that a thread runs, one after the other; it stays in its caches.
class Scratch {
 public:
  static constexpr int64_t kLine = 64;

  char* of(int64_t bytes) {
    if (bytes > bytes_) {
      memory_.reset(static_cast<char*>(std::aligned_alloc(kLine, bytes)));
      if (!memory_) throw std::bad_alloc();
      bytes_ = bytes;
    }
    return memory_.get();
  }

 private:
  struct Free {
    void operator()(char* memory) const { std::free(memory); }
  };
  std::unique_ptr<char, Free> memory_;
  int64_t bytes_ = 0;
};

// A Python object that may be let go by any thread, with the interpreter's lock or without.
class Held {
 public:
  explicit Held(pybind11::object object) : object_(std::move(object)) {}
  Held(Held&&) = default;
  ~Held() {
    if (!object_) return;
    if (!Py_IsInitialized()) {
      object_.release();  // the interpreter is gone, and so is the object
      return;
    }
    pybind11::gil_scoped_acquire gil;
    object_ = pybind11::object();
  }
  const pybind11::object& get() const { return object_; }

 private:
  pybind11::object object_;
};

class Kernel {
 public:
  using Entry = int32_t (*)(int64_t batch, void* const* addresses);

  // `owner` keeps the machine code at `entry` in memory. `name` is what a profile shows.
  Kernel(
      std::string name,
      int64_t entry,
      pybind11::object owner,
      std::vector<Operand> inputs,
      std::vector<Operand> results,
      std::vector<Workspace> workspaces)
      : name_(std::move(name)),
        entry_(reinterpret_cast<Entry>(entry)),
        owner_(std::move(owner)),
        inputs_(std::move(inputs)),
        results_(std::move(results)),
        workspaces_(std::move(workspaces)) {}

  // True if the inputs lie as the kernel reads them.
  bool reads(const std::vector<at::Tensor>& inputs) const {
    if (inputs.size() != inputs_.size() || inputs[0].dim() == 0) return false;
    const int64_t batch = inputs[0].size(0);
    for (size_t i = 0; i < inputs.size(); ++i)
      if (!inputs_[i].fits(inputs[i], batch) || !is_aligned(inputs[i])) return false;
    return true;
  }

  std::vector<at::Tensor> empty_results(int64_t batch) const {
    std::vector<at::Tensor> results;
    for (const auto& result : results_) results.push_back(result.empty(batch));
    return results;
  }

  // The inputs and the results lie as the kernel wants them; nothing of this is looked at.
  void run(int64_t batch, at::ArrayRef<at::Tensor> inputs, at::ArrayRef<at::Tensor> results) const {
    RECORD_FUNCTION(name_.c_str(), c10::ArrayRef<const c10::IValue>{});
    c10::SmallVector<void*, 8> addresses;
    for (const auto& input : inputs) addresses.push_back(input.data_ptr());
    for (const auto& result : results) addresses.push_back(result.data_ptr());
    int64_t bytes = 0;
    for (const auto& workspace : workspaces_) {
      addresses.push_back(reinterpret_cast<void*>(bytes));
      bytes += (workspace.bytes(batch) + Scratch::kLine - 1) / Scratch::kLine * Scratch::kLine;
    }
    if (bytes) {
      static thread_local Scratch scratch;
      char* start = scratch.of(bytes);
      for (size_t i = addresses.size() - workspaces_.size(); i < addresses.size(); ++i)
        addresses[i] = start + reinterpret_cast<intptr_t>(addresses[i]);
    }
    TORCH_CHECK(entry_(batch, addresses.data()) == 0, name_, " failed");
  }

  static bool is_aligned(const at::Tensor& tensor) {
    return reinterpret_cast<uintptr_t>(tensor.data_ptr()) % tensor.element_size() == 0;
  }

  bool gives_bias_gradient() const { return results_.size() == 2; }

 private:
  std::string name_;
  Entry entry_;
  Held owner_;
  std::vector<Operand> inputs_, results_;
  std::vector<Workspace> workspaces_;
};

}  // namespace dwconv
