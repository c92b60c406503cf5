// Calls: what `convolve` can run, found by all arguments of a call.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/ops/conv1d.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/conv3d.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <c10/core/UndefinedTensorImpl.h>
#include <c10/util/hash.h>
#include <torch/csrc/autograd/python_variable.h>

#include <array>
#include <limits>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "kernel.h"

namespace dwconv {

// Sizes and strides of a result, with the axes that the user's tensors have.
struct Shape {
  Sizes sizes, strides;

  at::Tensor empty_like(const at::Tensor& other) const {
    return empty_strided(sizes, strides, other.scalar_type(), other.device());
  }
};

// The result of PyTorch's op, with the strides that a kernel's would have.
inline at::Tensor with_strides_of(const at::Tensor& result, const Shape& shape) {
  if (result.strides() == c10::IntArrayRef(shape.strides)) return result;
  return shape.empty_like(result).copy_(result);
}

// How often calls came with one weight: those of one layer. `for_x` and `for_w` of them request the gradient of the
// input, and of the weight. The weak pointer does not keep the numbers of the weight, but its address.
struct Tally {
  c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> weight;
  int64_t calls = 0, for_x = 0, for_w = 0;
};

// One layer at one batch size: all that Python decided at its first call.
struct Call : torch::CustomClassHolder {
  // Counting, and reading what was counted, need the interpreter's lock.
  void count(const at::Tensor& w, bool for_x, bool for_w) {
    Tally& tally = tally_of(w);
    tally.calls += 1;
    tally.for_x += for_x;
    tally.for_w += for_w;
  }

  const std::vector<Tally>& tallies() const { return tallies_; }

  // Calls that it takes until Python has to check again; none if it takes all.
  std::optional<int64_t> left;
  bool is_spent() { return left && --*left < 0; }

  // False if it has no gradients.
  virtual bool trains() const = 0;
  // `kept` by the graph that records it, where one does: what `kept()` gives.
  virtual at::Tensor run(
      const at::Tensor& x, const at::Tensor& w, const std::optional<at::Tensor>& bias, const at::Tensor& kept) = 0;
  // A thread that reads or releases it holds the interpreter's lock. It keeps the call until then.
  virtual at::Tensor kept() { return {}; }
  virtual void let_go() {}

 private:
  // Layers come in the same order in every step: the next one is nearly always the right one.
  Tally& tally_of(const at::Tensor& w) {
    const size_t count = tallies_.size();
    for (size_t i = 1; i <= count; ++i) {
      const size_t place = (latest_ + i) % count;
      if (tallies_[place].weight._unsafe_get_target() == w.unsafeGetTensorImpl()) return tallies_[latest_ = place];
    }
    std::erase_if(tallies_, [](const Tally& tally) { return tally.weight.expired(); });
    tallies_.push_back({c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>(w.getIntrusivePtr())});
    return tallies_[latest_ = tallies_.size() - 1];
  }

  std::vector<Tally> tallies_;
  size_t latest_ = 0;
};

// Nothing is tuned, or nothing is faster: PyTorch's own op.
struct PyTorchCall final : Call {
  PyTorchCall(int64_t axes, Sizes stride, Sizes padding, Sizes dilation, int64_t groups)
      : axes(axes),
        stride(std::move(stride)),
        padding(std::move(padding)),
        dilation(std::move(dilation)),
        groups(groups) {}

  int64_t axes;
  Sizes stride, padding, dilation;
  int64_t groups;

  bool trains() const override { return true; }
  at::Tensor run(
      const at::Tensor& x, const at::Tensor& w, const std::optional<at::Tensor>& bias, const at::Tensor&) override {
    return axes == 1   ? at::conv1d(x, w, bias, stride, padding, dilation, groups)
           : axes == 2 ? at::conv2d(x, w, bias, stride, padding, dilation, groups)
                       : at::conv3d(x, w, bias, stride, padding, dilation, groups);
  }
};

// Where PyTorch's own op runs a pass: how it convolves.
struct Geometry {
  Sizes stride, padding, dilation;
  int64_t groups;

  at::Tensor y(const at::Tensor& x, const at::Tensor& w, const std::optional<at::Tensor>& bias) const {
    return at::convolution(x, w, bias, stride, padding, dilation, false, Sizes(stride.size(), 0), groups);
  }

  // Of x, w and the bias, those in `wanted`. Of the others PyTorch reads only shape and layout.
  std::tuple<at::Tensor, at::Tensor, at::Tensor> gradients(
      const at::Tensor& dy, const at::Tensor& x, const at::Tensor& w, std::array<bool, 3> wanted) const {
    const Sizes none(stride.size(), 0);
    return at::convolution_backward(
        dy, x, w, Sizes{w.size(0)}, stride, padding, dilation, false, none, groups, wanted);
  }
};

// Some pass has a tuned kernel; those that have none run on PyTorch's own op.
struct TunedCall final : Call {
  TunedCall(
      bool trains,
      int64_t batch,
      Shape y,
      Shape x,
      Shape w,
      Sizes x_strides,
      int64_t channel_axis,
      std::shared_ptr<Kernel> fprop,
      std::shared_ptr<Kernel> dgrad,
      std::shared_ptr<Kernel> wgrad,
      std::shared_ptr<Kernel> backward,
      Geometry geometry,
      pybind11::object watched_backward)
      : trains_(trains),
        batch(batch),
        y(std::move(y)),
        x(std::move(x)),
        w(std::move(w)),
        x_strides(std::move(x_strides)),
        channel_axis(channel_axis),
        fprop(std::move(fprop)),
        dgrad(std::move(dgrad)),
        wgrad(std::move(wgrad)),
        backward(std::move(backward)),
        geometry(std::move(geometry)),
        watched_backward(std::move(watched_backward)) {}

  // As all kernels of a call read it.
  bool is_aligned(const at::Tensor& tensor) const {
    return (fprop ? fprop : dgrad ? dgrad : wgrad ? wgrad : backward)->is_aligned(tensor);
  }

  bool trains_;
  int64_t batch;
  Shape y, x, w;    // of the results y, dx and dw
  Sizes x_strides;  // of the input, which may be a slice
  int64_t channel_axis;
  std::shared_ptr<Kernel> fprop, dgrad, wgrad, backward;  // not all are missing; the last: both gradients
  Geometry geometry;
  Held watched_backward;  // (x, w, dy, needs dx, dw, db) -> (dx, dw, db), on differentiable ops

  bool trains() const override { return trains_; }
  at::Tensor run(
      const at::Tensor& x, const at::Tensor& w, const std::optional<at::Tensor>& bias, const at::Tensor& kept) override;
  at::Tensor kept() override {
    if (!kept_.defined()) kept_ = kept_by_graph(c10::intrusive_ptr<TunedCall>::reclaim_copy(this));
    return kept_;
  }
  void let_go() override { kept_.reset(); }

 private:
  at::Tensor kept_;  // of itself, made once
};

// Numbers that identify a call.
using Key = std::vector<int64_t>;

struct HashOfKey {
  size_t operator()(const Key& key) const {
    size_t hash = key.size();
    for (int64_t number : key) hash = c10::hash_combine(hash, static_cast<size_t>(number));
    return hash;
  }
};

using Calls = std::unordered_map<Key, c10::intrusive_ptr<Call>, HashOfKey>;

inline void describe(const at::Tensor& tensor, at::ScalarType dtype, Key& key) {
  key.push_back(tensor.dim());
  key.push_back(static_cast<int64_t>(dtype));
  key.push_back(static_cast<int64_t>(tensor.device().type()));
  key.push_back(tensor.device().index());
  key.insert(key.end(), tensor.sizes().begin(), tensor.sizes().end());
  key.insert(key.end(), tensor.strides().begin(), tensor.strides().end());
}

inline void describe(const at::Tensor& tensor, Key& key) { describe(tensor, tensor.scalar_type(), key); }

// False for anything but a number, a tuple of numbers or of such tuples, or a string.
inline bool describe(PyObject* value, Key& key) {
  if (PyLong_CheckExact(value)) {
    key.push_back(-1);
    key.push_back(PyLong_AsLongLong(value));
  } else if (PyTuple_CheckExact(value)) {
    const Py_ssize_t count = PyTuple_GET_SIZE(value);
    key.push_back(count);
    for (Py_ssize_t i = 0; i < count; ++i) {
      PyObject* item = PyTuple_GET_ITEM(value, i);
      if (PyTuple_CheckExact(item)) {  // the padding of two sides
        key.push_back(std::numeric_limits<int64_t>::min());
        if (!describe(item, key)) return false;
      } else if (PyLong_CheckExact(item)) {
        key.push_back(PyLong_AsLongLong(item));
      } else {
        return false;
      }
    }
  } else if (PyUnicode_CheckExact(value)) {
    key.push_back(-2);
    key.push_back(PyObject_Hash(value));
  } else if (value == Py_None) {
    key.push_back(-3);
  } else {
    return false;
  }
  return !PyErr_Occurred();
}

}  // namespace dwconv
