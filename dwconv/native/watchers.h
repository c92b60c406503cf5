// Watchers: what observes a call besides eager autograd. `call/watchers.py` checks the same for the calls that Python takes.
#pragma once

#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <pybind11/pybind11.h>
#include <torch/csrc/PyInterpreter.h>

// As in ATen/autocast_mode.h, which includes all ops of PyTorch: the compiler would take a fifth more memory and time.
namespace at::autocast {
TORCH_API bool is_autocast_enabled(at::DeviceType device_type);
TORCH_API at::ScalarType get_autocast_dtype(at::DeviceType device_type);
TORCH_API Tensor cached_cast(at::ScalarType to_type, const Tensor& arg, at::DeviceType device_type);
}  // namespace at::autocast

namespace dwconv {

using c10::DispatchKey;
using c10::DispatchKeySet;

inline bool is_within(DispatchKeySet keys, DispatchKeySet known) { return (keys.raw_repr() & ~known.raw_repr()) == 0; }

// A tensor that is just numbers in memory.
inline bool is_plain(const at::Tensor& tensor) {
  static const DispatchKeySet known =
      DispatchKeySet({DispatchKey::CPU, DispatchKey::CUDA, DispatchKey::ADInplaceOrView}) |
      c10::getAutogradRelatedKeySetFromBackend(c10::BackendComponent::CPUBit) |
      c10::getAutogradRelatedKeySetFromBackend(c10::BackendComponent::CUDABit) |
      c10::getAutocastRelatedKeySetFromBackend(c10::BackendComponent::CPUBit) |
      c10::getAutocastRelatedKeySetFromBackend(c10::BackendComponent::CUDABit);
  return is_within(tensor.key_set(), known) && !tensor._fw_grad(0).defined();
}

// The set of the classes of modes that let calls through.
inline PyObject*& transparent_modes() {
  static PyObject* classes = nullptr;
  return classes;
}

// A mode of functions is active that observes calls. Without the interpreter, unless there is a mode.
inline bool is_seen_by_a_mode() {
  if (!at::impl::torch_function_mode_enabled()) return false;
  const pybind11::gil_scoped_acquire gil;
  for (int64_t i = 0; i < at::impl::PythonTorchFunctionTLS::stack_len(); ++i) {
    PyObject* const mode = at::impl::PythonTorchFunctionTLS::get_stack_at(i)->ptr(getPyInterpreter());
    const int is_transparent = PySet_Contains(transparent_modes(), reinterpret_cast<PyObject*>(Py_TYPE(mode)));
    if (is_transparent < 0) PyErr_Clear();
    if (is_transparent != 1) return true;
  }
  return false;
}

// A mode, a transform or a tracer is active, whether or not autocast is.
inline bool is_watched_beside_autocast() {
  static const DispatchKeySet usual({DispatchKey::BackendSelect, DispatchKey::ADInplaceOrView});
  const auto local = c10::impl::tls_local_dispatch_key_set();
  return !is_within(local.included_, usual) || local.excluded_.has(DispatchKey::AutogradCPU) ||
      local.excluded_.has(DispatchKey::AutogradCUDA) || is_seen_by_a_mode();
}

inline bool is_any_autocast_enabled() {
  return at::autocast::is_autocast_enabled(at::kCPU) || at::autocast::is_autocast_enabled(at::kCUDA);
}

}  // namespace dwconv
