// Kernel: the code of a pass, called with PyTorch tensors.
#pragma once

#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cstdlib>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "code.h"

namespace dwconv {

using Sizes = std::vector<int64_t>;
constexpr int64_t kMostElements = (int64_t{1} << 31) - 1;  // indices inside a kernel are 32-bit

inline at::Tensor empty_strided(
    c10::IntArrayRef sizes, c10::IntArrayRef strides, at::ScalarType dtype, c10::Device device) {
  if (device.is_cpu()) return at::detail::empty_strided_cpu(sizes, strides, dtype);
  return at::empty_strided(sizes, strides, at::TensorOptions(dtype).device(device));
}

// The tensor, if it has memory: that may have been released, as FSDP does between two uses of a weight.
inline const at::Tensor& readable(const at::Tensor& tensor) {
  const size_t end = at::detail::computeStorageNbytes(
      tensor.sizes(), tensor.strides(), tensor.itemsize(), static_cast<size_t>(tensor.storage_offset()));
  TORCH_CHECK(
      end <= tensor.storage().nbytes(), "a tensor of ", tensor.sizes(),
      " has no memory: its storage was freed or made smaller; bring it back before the call, and before its gradient");
  return tensor;
}

// What a graph keeps for its backward pass besides tensors, as a tensor: compiled autograd supports only these. Its
// memory is the pointer that keeps the object.
template <class T>
at::Tensor kept_by_graph(c10::intrusive_ptr<T> object) {
  const auto let_go = [](void* pointer) { delete static_cast<c10::intrusive_ptr<T>*>(pointer); };
  return at::from_blob(new c10::intrusive_ptr<T>(std::move(object)), {1}, let_go, at::kLong);
}

template <class T>
T& kept_by_graph(const c10::IValue& kept) {
  return **static_cast<const c10::intrusive_ptr<T>*>(kept.toTensor().const_data_ptr());
}

// A weight in the type of x, to which autocast lowers it. Autograd records no node for this cast. The op returns a gradient
// in x's type, and autograd casts that to the weight's.
inline at::Tensor lowered(const at::Tensor& weight, const at::Tensor& x) {
  if (weight.scalar_type() == x.scalar_type()) return weight;
  const at::AutoDispatchBelowADInplaceOrView below;
  return empty_strided(weight.sizes(), weight.strides(), x.scalar_type(), x.device()).copy_(readable(weight));
}

constexpr size_t kSaved = 4;  // what a graph keeps by name, at most

// A weight that autocast lowered, for a backward pass that is to be differentiated again: there autograd sees the cast.
class LoweredWeight {
 public:
  static void keep(const at::Tensor& weight, torch::autograd::AutogradContext* context) {
    context->saved_data["weight"] = weight;
    context->saved_data["version"] = static_cast<int64_t>(weight._version());
  }

  // `saved` unless the weight was lowered.
  static at::Tensor of(torch::autograd::AutogradContext* context, const at::Tensor& saved) {
    const auto kept = context->saved_data.find("weight");
    if (kept == context->saved_data.end() || !saved.defined()) return saved;
    const at::Tensor weight = kept->second.toTensor();
    TORCH_CHECK(
        context->saved_data["version"].toInt() == weight._version(),
        "the weight of a depthwise convolution was modified in place after the forward pass, and its backward pass is to "
        "be differentiated again; take a step after that");
    return weight.to(saved.scalar_type());
  }
};

// A tensor that was saved, with the strides of `like`: hooks may have returned other strides, or an unaligned tensor.
inline at::Tensor as_saved(at::Tensor like, const at::Tensor& tensor) {
  TORCH_CHECK(
      tensor.sizes() == like.sizes() && tensor.scalar_type() == like.scalar_type() && tensor.device() == like.device(),
      "a hook of saved tensors brought back one of ", tensor.sizes(), ", ", tensor.scalar_type(), " on ", tensor.device(),
      " where ", like.sizes(), ", ", like.scalar_type(), " on ", like.device(), " was saved");
  return like.copy_(readable(tensor));
}

constexpr int64_t kLine = 128;  // of the devices there are, the longest line of a cache

// A tensor that a kernel reads or writes, in PyTorch's terms. The first size of an image is the batch: any. A slice has
// the strides of a tensor of more channels.
struct Operand {
  bool is_image;
  Sizes sizes;
  Sizes strides;
  at::ScalarType dtype;
  at::MemoryFormat format;
  bool is_slice;

  bool fits(const at::Tensor& tensor, int64_t batch, c10::Device device) const {
    const auto given = tensor.sizes();
    return given.size() == sizes.size() && (!is_image || given[0] == batch) &&
        std::equal(given.begin() + is_image, given.end(), sizes.begin() + is_image) && tensor.device() == device &&
        tensor.scalar_type() == dtype &&
        (is_slice ? has_slice_strides(tensor) : tensor.numel() <= kMostElements && tensor.is_contiguous(format));
  }

  bool has_slice_strides(const at::Tensor& tensor) const {
    for (int64_t axis = 0; axis < tensor.dim(); ++axis)
      if (tensor.size(axis) != 1 && tensor.stride(axis) != strides[axis]) return false;
    return tensor.size(0) * strides[0] <= kMostElements;
  }

  at::Tensor empty(int64_t batch, c10::Device device) const {
    Sizes sized = sizes;
    if (is_image) sized[0] = batch;
    return empty_strided(sized, strides, dtype, device);
  }

  // What it takes, without a batch, in whole lines.
  int64_t line_bytes() const {
    const size_t bytes = at::detail::computeStorageNbytes(sizes, strides, c10::elementSize(dtype), 0);
    return (static_cast<int64_t>(bytes) + kLine - 1) / kLine * kLine;
  }

  // It, without a batch, in `memory` from byte `start` on.
  at::Tensor within(const at::Tensor& memory, int64_t start) const {
    auto tensor = at::detail::make_tensor<c10::TensorImpl>(
        c10::Storage(memory.storage()), memory.key_set(), caffe2::TypeMeta::fromScalarType(dtype));
    tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, start / static_cast<int64_t>(c10::elementSize(dtype)));
    return tensor;
  }
};

// Scratch memory of a kernel.
struct Workspace {
  int64_t item_bytes;
  std::vector<Size> sizes;

  int64_t bytes(int64_t batch) const {
    int64_t product = item_bytes;
    for (const auto& size : sizes) product *= size.at(batch);
    return product;
  }
};

// Memory for the workspaces of all CPU kernels that a thread runs, one after the other; it stays in its caches.
class Scratch {
 public:
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

class Kernel {
 public:
  // `like` is on the device of all its tensors. `name` is what a profile shows.
  Kernel(
      std::string name,
      std::shared_ptr<Code> code,
      const at::Tensor& like,
      std::vector<Operand> inputs,
      std::vector<Operand> results,
      std::vector<Workspace> workspaces)
      : name_(std::move(name)),
        code_(std::move(code)),
        device_(like.device()),
        inputs_(std::move(inputs)),
        results_(std::move(results)),
        workspaces_(std::move(workspaces)) {}

  // True if the inputs have the strides that the kernel reads.
  bool reads(const std::vector<at::Tensor>& inputs) const {
    if (inputs.size() != inputs_.size() || inputs[0].dim() == 0) return false;
    const int64_t batch = inputs[0].size(0);
    for (size_t i = 0; i < inputs.size(); ++i)
      if (!inputs_[i].fits(inputs[i], batch, device_) || !is_aligned(inputs[i])) return false;
    return true;
  }

  // The inputs as the kernel reads them, copied if need be.
  std::vector<at::Tensor> dense(std::vector<at::Tensor> inputs) const {
    const int64_t batch = inputs[0].size(0);
    for (size_t i = 0; i < inputs.size(); ++i)
      if (!inputs_[i].fits(inputs[i], batch, device_) || !is_aligned(inputs[i]))
        inputs[i] = as_saved(inputs_[i].empty(batch, device_), inputs[i]);
    return inputs;
  }

  std::vector<at::Tensor> empty_results(int64_t batch) const {
    std::vector<at::Tensor> results;
    for (const auto& result : results_) results.push_back(result.empty(batch, device_));
    return results;
  }

  // The same, but results without a batch share one allocation. On a GPU one takes the host as long as a launch.
  std::vector<at::Tensor> empty_results_together(int64_t batch) const {
    int64_t bytes = 0;
    for (const auto& result : results_) bytes += result.is_image ? 0 : result.line_bytes();
    const at::Tensor memory = bytes ? empty_strided({bytes}, {1}, at::kByte, device_) : at::Tensor();
    int64_t start = 0;
    std::vector<at::Tensor> results;
    for (const auto& result : results_) {
      results.push_back(result.is_image ? result.empty(batch, device_) : result.within(memory, start));
      start += result.is_image ? 0 : result.line_bytes();
    }
    return results;
  }

  // The inputs and the results must have the strides that the kernel reads; this is not checked.
  void run(int64_t batch, at::ArrayRef<at::Tensor> inputs, at::ArrayRef<at::Tensor> results) const {
    RECORD_FUNCTION(name_.c_str(), c10::ArrayRef<const c10::IValue>{});
    c10::SmallVector<void*, 8> addresses;
    for (const auto& input : inputs) addresses.push_back(readable(input).data_ptr());
    for (const auto& result : results) addresses.push_back(result.data_ptr());
    int64_t bytes = 0;
    for (const auto& workspace : workspaces_) {
      addresses.push_back(reinterpret_cast<void*>(bytes));
      bytes += (workspace.bytes(batch) + kLine - 1) / kLine * kLine;
    }
    at::Tensor kept;  // until the launches are queued: the stream then keeps the order
    if (bytes) {
      char* start;
      if (device_.is_cpu()) {
        static thread_local Scratch scratch;
        start = scratch.of(bytes);
      } else {
        kept = empty_strided({bytes}, {1}, at::kByte, device_);
        start = static_cast<char*>(kept.data_ptr());
      }
      for (size_t i = addresses.size() - workspaces_.size(); i < addresses.size(); ++i)
        addresses[i] = start + reinterpret_cast<intptr_t>(addresses[i]);
    }
    code_->run(batch, device_, addresses);
  }

  bool is_aligned(const at::Tensor& tensor) const {
    const uintptr_t alignment = code_->alignment();
    return reinterpret_cast<uintptr_t>(tensor.data_ptr()) % (alignment ? alignment : tensor.element_size()) == 0;
  }

  bool gives_bias_gradient() const { return results_.size() == 2; }

 private:
  std::string name_;
  std::shared_ptr<Code> code_;
  c10::Device device_;
  std::vector<Operand> inputs_, results_;
  std::vector<Workspace> workspaces_;
};

}  // namespace dwconv
