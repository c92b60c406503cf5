// Traced: what a traced forward pass looks at and runs in every call, as call/traced.py has it, in microseconds.
//
//   Guard.holds()            whether modules, modes, hooks and attributes are those that were pinned
//   run_traced(members, x)   z of a block, by `run_as_one`, in evaluation by `run_in_evaluation`
//       │                    x is new, a tensor does not lie as the kernel reads it, a watcher: None, and Python does it
//       ▼
//   Members ─► parameters and buffers, read anew in every call
#pragma once

#include <c10/core/InferenceMode.h>

#include "block.h"
#include "calls.h"

namespace dwconv {

// -- guards ------------------------------------------------------------------------------------------------------------

// What was pinned. It holds dictionaries and classes, no module: a model that nobody uses any more goes.
struct Guard {
  struct Module {
    pybind11::object modules, name, own, type;  // of modules[name]: its attributes and its class
  };
  struct Item {
    pybind11::object own, name, value;  // own[name] is value
  };
  struct Length {
    pybind11::object several;
    Py_ssize_t length;
  };
  struct Forward {
    pybind11::object type, forward;
  };

  std::vector<Module> modules;
  std::vector<Item> items;
  std::vector<Length> lengths;
  std::vector<Forward> forwards;

  bool holds() const {
    static PyObject* const forward = PyUnicode_InternFromString("forward");
    for (const Item& each : items)
      if (PyDict_GetItem(each.own.ptr(), each.name.ptr()) != each.value.ptr()) return false;
    for (const Length& each : lengths)
      if (PyDict_GET_SIZE(each.several.ptr()) != each.length) return false;
    for (const Module& each : modules) {
      PyObject* const module = PyDict_GetItem(each.modules.ptr(), each.name.ptr());
      if (!module || reinterpret_cast<PyObject*>(Py_TYPE(module)) != each.type.ptr()) return false;
      const auto own = pybind11::reinterpret_steal<pybind11::object>(PyObject_GenericGetDict(module, nullptr));
      if (own.ptr() != each.own.ptr()) return false;
    }
    for (const Forward& each : forwards) {
      const auto found = pybind11::reinterpret_steal<pybind11::object>(PyObject_GetAttr(each.type.ptr(), forward));
      if (found.ptr() != each.forward.ptr()) {
        PyErr_Clear();
        return false;
      }
    }
    return true;
  }
};

// -- blocks ------------------------------------------------------------------------------------------------------------

// Of blocks that were learnt before, C++ knows nothing once this has grown.
inline int64_t& generation() {
  static int64_t current = 0;
  return current;
}

// To which type autocast lowers, on the device of x.
inline void describe_autocast(c10::DeviceType device, Key& key) {
  const bool is_any = is_any_autocast_enabled(), is_here = is_any && at::autocast::is_autocast_enabled(device);
  key.push_back(is_here ? static_cast<int64_t>(at::autocast::get_autocast_dtype(device)) : -1 - is_any);
}

struct Members {
  struct NormMember {
    pybind11::dict parameters, buffers, own;
    bool counts;  // whether the block counts batches for it
  };

  pybind11::dict conv;  // its parameters
  std::vector<NormMember> norms;
  bool is_layer_norm, trains;
  std::unordered_map<Key, c10::intrusive_ptr<TunedBlock>, HashOfKey> known;

  // A tensor by its name; undefined for None. False for one that is not just numbers in memory.
  static bool read(const pybind11::dict& from, const char* name, Tensor& tensor) {
    PyObject* const found = PyDict_GetItemString(from.ptr(), name);
    if (!found || found == Py_None) return true;
    if (!THPVariable_Check(found) || !is_plain(THPVariable_Unpack(found))) return false;
    if (!THPVariable_CheckExact(found)) return false;
    tensor = THPVariable_Unpack(found);
    return true;
  }

  // False if a call of such an x cannot be one that is known.
  bool describe_call(const Tensor& x, const Tensor& w, const Tensor& bias, Key& key) const {
    if (trains != at::GradMode::is_enabled() || (trains && x.is_inference())) return false;
    key.clear();
    key.push_back(generation());
    key.push_back(at::get_num_threads());
    describe_autocast(x.device().type(), key);
    describe(x, key);
    describe(w, key);
    key.push_back(bias.defined());
    if (bias.defined()) describe(bias, key);
    return true;
  }

  bool read_convolution(Tensor& w, Tensor& bias) const {
    return read(conv, "weight", w) && w.defined() && read(conv, "bias", bias);
  }

  void learn(const Tensor& x, c10::intrusive_ptr<TunedBlock> block) {
    static constexpr size_t kMost = 64;  // of sizes
    Tensor w, bias;
    Key key;
    if (!read_convolution(w, bias) || !describe_call(x, w, bias, key)) return;
    if (known.size() >= kMost) known.clear();
    known[key] = std::move(block);
  }
};

// False where Python has to look: a tensor that is none, or a momentum that is no number.
inline bool read_member(const Members::NormMember& member, bool is_layer_norm, bool trains, NormCall& norm, Tensor& batches) {
  if (!Members::read(member.parameters, "weight", norm.weight) || !Members::read(member.parameters, "bias", norm.bias))
    return false;
  if (!norm.weight.defined() || !norm.bias.defined()) return false;
  if (is_layer_norm) return true;
  if (!Members::read(member.buffers, "running_mean", norm.running_mean) ||
      !Members::read(member.buffers, "running_var", norm.running_var))
    return false;
  if (norm.running_mean.defined() != norm.running_var.defined()) return false;
  if (!trains) return norm.running_mean.defined();
  PyObject* const momentum = PyDict_GetItemString(member.own.ptr(), "momentum");
  if (!momentum || !PyFloat_CheckExact(momentum)) return false;
  norm.momentum = PyFloat_AS_DOUBLE(momentum);
  return !member.counts || Members::read(member.buffers, "num_batches_tracked", batches);
}

// One more batch.
inline void count(const Tensor& batches) {
  if (!batches.defined()) return;
  if (batches.is_cpu() && batches.scalar_type() == at::kLong && batches.numel() == 1 && !batches.is_inference()) {
    *batches.mutable_data_ptr<int64_t>() += 1;
    batches.unsafeGetTensorImpl()->bump_version();
  } else {
    Tensor(batches).add_(1);
  }
}

// run_traced(members, x): z, or None, and Python does it.
inline PyObject* run_traced(PyObject*, PyObject* const* given, Py_ssize_t) {
  HANDLE_TH_ERRORS
  auto& members = pybind11::handle(given[0]).cast<Members&>();
  Tensor x, w, bias;
  if (members.known.empty() || somebody_watches_beside_autocast() || !read_tensor(given[1], x)) Py_RETURN_NONE;
  Key key;
  if (!members.read_convolution(w, bias) || !members.describe_call(x, w, bias, key)) Py_RETURN_NONE;
  const auto found = members.known.find(key);
  if (found == members.known.end()) Py_RETURN_NONE;
  const c10::intrusive_ptr<TunedBlock> block = found->second;
  NormCalls norms(members.norms.size());
  std::array<Tensor, 2> batches;
  for (size_t i = 0; i < norms.size(); ++i)
    if (!read_member(members.norms[i], members.is_layer_norm, members.trains, norms[i], batches[i])) Py_RETURN_NONE;
  const bool is_bias_taken = bias.defined() && (members.is_layer_norm || !members.trains);
  if (bias.defined() && !is_bias_taken) Py_RETURN_NONE;  // a norm takes it away again, but for NaN: Python knows how
  Tensor z;
  {
    const pybind11::gil_scoped_release no_gil;
    if (w.scalar_type() != x.scalar_type()) w = w.to(x.scalar_type());
    const Optional taken = bias.defined() ? Optional(bias.to(x.scalar_type())) : std::nullopt;
    z = members.trains ? run_as_one(block, x, w, taken, norms)
                       : run_in_evaluation(*block, x, w, bias.defined() ? Optional(bias) : std::nullopt, norms);
    if (z.defined()) {
      for (const Tensor& each : batches) count(each);
      if (members.is_layer_norm) z = z.transpose_(1, 2).transpose_(2, 3);  // the channels last
    }
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
