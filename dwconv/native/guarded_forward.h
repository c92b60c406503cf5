// Traced: what a traced forward pass checks and runs in every call, as call/guarded_forward.py has it, in microseconds.
//
//   Guard.holds()            whether modules, modes, hooks and attributes are those that were pinned
//   run_traced(members, x)   z of a block, by `run_as_one`, in evaluation by `run_in_evaluation`
//       │                    x is new or watched, a tensor has other strides than the kernel's: None, and Python does it
//       ▼
//   Members ─► parameters and buffers, read anew in every call
#pragma once

#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/InferenceMode.h>

#include "block.h"
#include "calls.h"

namespace dwconv {

// Names of attributes.
struct Names {
  static PyObject* of(const char* name) { return PyUnicode_InternFromString(name); }

  PyObject *forward = of("forward"), *modules = of("_modules"), *parameters = of("_parameters"), *buffers = of("_buffers"),
           *weight = of("weight"), *bias = of("bias"), *mean = of("running_mean"), *variance = of("running_var"),
           *batches = of("num_batches_tracked"), *momentum = of("momentum");
  std::array<PyObject*, 4> hooks{
      of("_forward_hooks"), of("_forward_pre_hooks"), of("_backward_hooks"), of("_backward_pre_hooks")};
};

inline const Names& names() {
  static const Names found;
  return found;
}

// What a weak reference refers to, and its attributes; nothing once it is freed, like a model without other references.
struct Referred {
  pybind11::object self, own;

  explicit Referred(const pybind11::object& reference)
      : self(pybind11::reinterpret_steal<pybind11::object>(PyObject_CallNoArgs(reference.ptr()))) {
    if (self && !self.is_none()) own = pybind11::reinterpret_steal<pybind11::object>(PyObject_GenericGetDict(self.ptr(), nullptr));
  }

  PyObject* get(PyObject* name) const { return own ? PyDict_GetItem(own.ptr(), name) : nullptr; }
};

// -- guards ------------------------------------------------------------------------------------------------------------

struct Guard {
  using Item = std::pair<pybind11::object, pybind11::object>;  // a name and its value; or a class and its forward pass
  using Held = std::tuple<pybind11::object, pybind11::object, bool>;
  struct Module {
    pybind11::object reference;
    int64_t outer;                   // the module that has it, by its place among these; -1 of the parent of a trace
    pybind11::object name, type;     // there; None: of any
    std::vector<Item> items;         // its attribute is that very object
    Py_ssize_t attributes, children;  // how many; -1: any
    std::vector<Item> absent;        // children that are None
    std::vector<Held> tensors;       // in which dictionary it has a parameter or buffer, its name, whether it is None
  };
  std::vector<Module> modules;
  std::vector<Item> forwards;
  std::vector<pybind11::object> hooks;  // of all modules

  bool holds() const {
    for (const auto& each : hooks)
      if (PyDict_GET_SIZE(each.ptr())) return false;
    c10::SmallVector<PyObject*, 16> inner;  // the modules of each
    for (const Module& each : modules) {
      const Referred module(each.reference);
      PyObject* const children = module.get(names().modules);
      if (!children) return false;
      inner.push_back(children);
      if (each.outer >= 0 && PyDict_GetItem(inner[each.outer], each.name.ptr()) != module.self.ptr()) return false;
      if (!each.type.is_none() && reinterpret_cast<PyObject*>(Py_TYPE(module.self.ptr())) != each.type.ptr()) return false;
      if (each.attributes < 0) continue;
      if (PyDict_GET_SIZE(module.own.ptr()) != each.attributes || PyDict_GET_SIZE(children) != each.children) return false;
      if (!are(each.items, module.own.ptr()) || !are(each.absent, children)) return false;
      for (const auto& [where, tensor, is_none] : each.tensors) {
        PyObject* const held = module.get(where.ptr());
        PyObject* const found = held ? PyDict_GetItem(held, tensor.ptr()) : nullptr;
        if ((!found || found == Py_None) != is_none) return false;
      }
      if (each.outer < 0) continue;
      for (PyObject* const of : names().hooks) {
        PyObject* const found = module.get(of);
        if (!found || PyDict_GET_SIZE(found)) return false;
      }
    }
    for (const Item& each : forwards) {
      const auto found = pybind11::reinterpret_steal<pybind11::object>(PyObject_GetAttr(each.first.ptr(), names().forward));
      if (found.ptr() != each.second.ptr()) {
        PyErr_Clear();
        return false;
      }
    }
    return true;
  }

 private:
  static bool are(const std::vector<Item>& items, PyObject* own) {
    return std::all_of(items.begin(), items.end(), [own](const Item& each) {
      return PyDict_GetItem(own, each.first.ptr()) == each.second.ptr();
    });
  }
};

// -- blocks ------------------------------------------------------------------------------------------------------------

// Once this has grown, C++ has none of the blocks recorded before.
inline int64_t& generation() {
  static int64_t current = 0;
  return current;
}

// To which type autocast lowers, on the device of x.
inline void describe_autocast(c10::DeviceType device, Key& key) {
  const bool is_any = is_any_autocast_enabled(), is_here = is_any && at::autocast::is_autocast_enabled(device);
  key.push_back(is_here ? static_cast<int64_t>(at::autocast::get_autocast_dtype(device)) : -1 - is_any);
}

// False for what is not just numbers in memory.
inline bool read_tensor(PyObject* given, Tensor& tensor) {
  if (!THPVariable_CheckExact(given) || !is_plain(THPVariable_Unpack(given))) return false;
  tensor = THPVariable_Unpack(given);
  return true;
}

struct Members {
  // A reference, whether the block counts batches for it, and its statistics.
  using Norm = std::tuple<pybind11::object, bool, Statistics>;

  pybind11::object conv;  // a reference
  std::vector<Norm> norms;
  bool is_layer_norm;
  std::unordered_map<Key, KnownBlock, HashOfKey> known;

  // A tensor by its name; undefined for None. False for one that is not just numbers in memory.
  static bool read(PyObject* from, PyObject* name, Tensor& tensor) {
    PyObject* const found = from ? PyDict_GetItem(from, name) : nullptr;
    return !found || found == Py_None || read_tensor(found, tensor);
  }

  // False if a call of such an x cannot be a recorded one.
  bool describe_call(const Tensor& x, const Tensor& w, const Tensor& bias, Key& key) const {
    const bool trains = at::GradMode::is_enabled();
    if (trains && x.is_inference()) return false;
    key.clear();
    key.push_back(generation());
    key.push_back(trains);
    key.push_back(at::get_num_threads());
    describe_autocast(x.device().type(), key);
    describe(x, key);
    describe(w, key);
    key.push_back(bias.defined());
    if (bias.defined()) describe(bias, key);
    return true;
  }

  bool read_convolution(Tensor& w, Tensor& bias) const {
    const Referred module(conv);
    PyObject* const parameters = module.get(names().parameters);
    return read(parameters, names().weight, w) && w.defined() && read(parameters, names().bias, bias);
  }

  void learn(const Tensor& x, c10::intrusive_ptr<TunedBlock> block) {
    static constexpr size_t kMost = 64;  // of sizes
    Tensor w, bias;
    Key key;
    if (!read_convolution(w, bias) || !describe_call(x, w, bias, key)) return;
    if (known.size() >= kMost) known.clear();
    known.insert_or_assign(key, KnownBlock(std::move(block)));
  }
};

// False where Python has to check: a tensor that is none, or a momentum that is no number. `w`: of the convolution.
inline bool read_norm(const Members::Norm& member, bool is_layer_norm, bool trains, const Tensor& w, NormCall& norm) {
  const auto& [reference, counts, statistics] = member;
  const Referred module(reference);
  PyObject *const parameters = module.get(names().parameters), *const buffers = module.get(names().buffers);
  const bool is_frozen = statistics == Statistics::running, is_of_images = statistics == Statistics::image;
  const auto read = [&](PyObject* name, Tensor& tensor) {  // a frozen norm may have no parameters, but buffers
    return Members::read(parameters, name, tensor) && (tensor.defined() || Members::read(buffers, name, tensor));
  };
  if (!read(names().weight, norm.weight) || !read(names().bias, norm.bias)) return false;
  const bool has_affine = norm.weight.defined() && norm.bias.defined();
  if (!has_affine && (!(is_frozen || is_of_images) || norm.weight.defined() || norm.bias.defined())) return false;
  if (is_layer_norm) return true;
  if (is_of_images) {
    if (!has_affine) {
      norm.weight = at::ones({w.size(0)}, w.options().dtype(at::kFloat));
      norm.bias = at::zeros({w.size(0)}, w.options().dtype(at::kFloat));
    }
    return trains;
  }
  if (!Members::read(buffers, names().mean, norm.running_mean) || !Members::read(buffers, names().variance, norm.running_var))
    return false;
  if (norm.running_mean.defined() != norm.running_var.defined()) return false;
  if (!has_affine && norm.running_mean.defined()) {
    norm.weight = at::ones_like(norm.running_mean);
    norm.bias = at::zeros_like(norm.running_mean);
  }
  if (!trains || is_frozen) return norm.running_mean.defined();
  PyObject* const momentum = module.get(names().momentum);
  if (!momentum || !PyFloat_CheckExact(momentum)) return false;
  norm.momentum = PyFloat_AS_DOUBLE(momentum);
  return !counts || Members::read(buffers, names().batches, norm.batches);
}

// run_traced(members, x): z, or None, and Python does it.
inline PyObject* run_traced(PyObject*, PyObject* const* given, Py_ssize_t) {
  HANDLE_TH_ERRORS
  auto& members = pybind11::handle(given[0]).cast<Members&>();
  Tensor x, w, bias;
  if (members.known.empty() || is_watched_beside_autocast() || !read_tensor(given[1], x)) Py_RETURN_NONE;
  Key key;
  if (!members.read_convolution(w, bias) || !members.describe_call(x, w, bias, key)) Py_RETURN_NONE;
  const auto found = members.known.find(key);
  if (found == members.known.end()) Py_RETURN_NONE;
  const KnownBlock block = found->second;
  const bool trains = block.block->trains();
  NormCalls norms(members.norms.size());
  for (size_t i = 0; i < norms.size(); ++i)
    if (!read_norm(members.norms[i], members.is_layer_norm, trains, w, norms[i])) Py_RETURN_NONE;
  const bool is_bias_taken = bias.defined() && (members.is_layer_norm || !trains);
  if (bias.defined() && !is_bias_taken) Py_RETURN_NONE;  // a norm takes it away again, but for NaN: Python does it
  Tensor z;
  {
    const pybind11::gil_scoped_release no_gil;
    const Optional taken = bias.defined() ? Optional(bias) : std::nullopt;
    z = trains ? run_as_one(block, x, w, taken, norms) : run_in_evaluation(*block.block, x, w, taken, norms);
    if (z.defined() && members.is_layer_norm) z = z.transpose_(1, 2).transpose_(2, 3);  // the channels last
  }
  if (!z.defined()) Py_RETURN_NONE;
  return THPVariable_Wrap(std::move(z));
  END_HANDLE_TH_ERRORS
}

// holds(guard): whether all is as it was pinned.
inline PyObject* holds(PyObject*, PyObject* const* given, Py_ssize_t) {
  HANDLE_TH_ERRORS
  return PyBool_FromLong(pybind11::handle(given[0]).cast<const Guard&>().holds());
  END_HANDLE_TH_ERRORS
}

}  // namespace dwconv
