// dwconv_native: from a call to a kernel and back through autograd, without Python in between.
//
//   convolve(input, weight, bias, stride, padding, dilation, groups, axes)
//       │  the call is new, or watched by more than autocast: None, and Python does it all
//       ▼
//   DwconvConvolution::apply ─► Kernel fprop            saves input and weight
//   DwconvConvolution::backward ─► wgrad, dgrad         or one kernel for both; or watched_backward, if its result is to
//                                                       be differentiated again
//                                                       PyTorch's own op for a pass that has no kernel
//
// In a training step the interpreter has left the caches at each call of a layer: what takes 10 µs in a loop takes 100
// there. A few kilobytes of machine code are affected less.

#include <ATen/ops/sum.h>
#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/custom_function.h>

#include "block.h"
#include "calls.h"
#include "kernel.h"
#include "ops.h"
#include "guarded_forward.h"
#include "watchers.h"

namespace dwconv::lanes {
void add_program(pybind11::module_& module);  // program.cpp
}

namespace dwconv {
namespace {

// -- autograd ---------------------------------------------------------------------------------------------------------

Tensor run_fprop(const TunedCall& call, const Tensor& x, const Tensor& w, const std::optional<Tensor>& bias) {
  if (!call.fprop) return with_strides_of(call.geometry.y(x, w, bias), call.y);
  Tensor y = call.y.empty_like(x);
  if (bias)
    call.fprop->run(call.batch, {x, w, *bias}, {y});
  else
    call.fprop->run(call.batch, {x, w}, {y});
  return y;
}

// dy as the kernels read it.
Tensor dense(const Tensor& dy, const TunedCall& call) {
  if (dy.strides() == c10::IntArrayRef(call.y.strides) && call.is_aligned(dy)) return dy;
  return call.y.empty_like(dy).copy_(readable(dy));
}

// A saved tensor as the kernels read it. dy has its type, and is where it was.
Tensor as_read(const Tensor& tensor, const Sizes& sizes, const Sizes& strides, const TunedCall& call, const Tensor& dy) {
  if (!tensor.defined()) return tensor;
  if (tensor.sizes() == c10::IntArrayRef(sizes) && tensor.strides() == c10::IntArrayRef(strides) &&
      tensor.scalar_type() == dy.scalar_type() && tensor.device() == dy.device() && call.is_aligned(tensor))
    return tensor;
  return as_saved(empty_strided(sizes, strides, dy.scalar_type(), dy.device()), tensor);
}

Tensor bias_gradient(const Tensor& dy, const TunedCall& call) {
  Sizes axes;
  for (int64_t axis = 0; axis < dy.dim(); ++axis)
    if (axis != call.channel_axis) axes.push_back(axis);
  return dy.sum(axes);
}

struct DwconvConvolution : torch::autograd::Function<DwconvConvolution> {
  static Tensor forward(
      AutogradContext* context,
      const Tensor& x,
      const Tensor& w,
      const std::optional<Tensor>& bias,
      const Tensor* kept) {
    const bool needs_dx = context->needs_input_grad(0), needs_dw = context->needs_input_grad(1);
    const Tensor w_read = lowered(w, x);
    context->saved_data.reserve(kSaved);
    if (!w_read.is_same(w)) LoweredWeight::keep(w, context);
    context->save_for_backward({needs_dw ? x : Tensor(), needs_dx ? w_read : Tensor()});
    context->saved_data["call"] = *kept;
    if (bias) context->saved_data["has_bias"] = true;
    const auto bias_read = bias ? std::optional<Tensor>(lowered(*bias, x)) : std::nullopt;
    return run_fprop(kept_by_graph<TunedCall>(*kept), x, w_read, bias_read);
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto& call = kept_by_graph<TunedCall>(context->saved_data["call"]);
    const bool needs_dx = context->needs_input_grad(0), needs_dw = context->needs_input_grad(1);
    const bool needs_db = context->saved_data.count("has_bias") && context->needs_input_grad(2);
    const auto saved = context->get_saved_variables();
    const Tensor &x = saved[0], &w = saved[1], &given = grads[0];
    const auto is_other = [](const Tensor& tensor) { return tensor.defined() && !is_plain(tensor); };
    if (at::GradMode::is_enabled() || is_watched_beside_autocast() || is_other(given) || is_other(x) || is_other(w))
      return watched_backward(call, x, LoweredWeight::of(context, w), given, needs_dx, needs_dw, needs_db);

    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);  // what it lowers is lowered
    const Tensor dy = dense(given, call);
    const Tensor x_read = as_read(x, call.x.sizes, call.x_strides, call, dy);
    const Tensor w_read = as_read(w, call.w.sizes, call.w.strides, call, dy);
    Tensor dx, dw, db;
    if (call.backward && needs_dx && needs_dw) {  // there is no bias
      dx = call.x.empty_like(dy);
      dw = call.w.empty_like(dy);
      call.backward->run(call.batch, {dy, x_read, w_read}, {dx, dw});
      return {dx, dw, Tensor(), Tensor()};
    }
    // Of a tensor without a requested gradient PyTorch reads only shape and layout.
    const auto on_pytorch = [&](bool for_x, bool for_w) {
      const auto found = call.geometry.gradients(
          readable(dy), for_w ? readable(x_read) : call.x.empty_like(dy),
          for_x ? readable(w_read) : dy.new_empty({1}).expand(call.w.sizes), {for_x, for_w, for_w && needs_db});
      if (for_x) dx = with_strides_of(std::get<0>(found), call.x);
      if (for_w) dw = with_strides_of(std::get<1>(found), call.w);
      if (for_w && needs_db) db = std::get<2>(found);
    };
    if (needs_dw && !call.wgrad) {
      on_pytorch(needs_dx && !call.dgrad, true);
    } else if (needs_dw) {
      dw = call.w.empty_like(dy);
      if (call.wgrad->gives_bias_gradient()) {
        db = empty_strided({dy.size(call.channel_axis)}, {1}, dy.scalar_type(), dy.device());
        call.wgrad->run(call.batch, {x_read, dy}, {dw, db});
      } else {
        call.wgrad->run(call.batch, {x_read, dy}, {dw});
      }
    }
    if (needs_db && !db.defined()) db = bias_gradient(dy, call);
    if (needs_dx && !dx.defined()) {  // last: what comes next reads it
      if (call.dgrad) {
        dx = call.x.empty_like(dy);
        call.dgrad->run(call.batch, {dy, w_read}, {dx});
      } else {
        on_pytorch(true, false);
      }
    }
    return {dx, dw, needs_db ? db : Tensor(), Tensor()};
  }

 private:
  // The same on ops, which are differentiable themselves.
  static variable_list watched_backward(
      const TunedCall& call, const Tensor& x, const Tensor& w, const Tensor& dy, bool needs_dx, bool needs_dw, bool needs_db) {
    pybind11::gil_scoped_acquire gil;
    const auto or_none = [](const Tensor& tensor) {
      return tensor.defined() ? pybind11::cast(tensor) : pybind11::none().cast<pybind11::object>();
    };
    const pybind11::tuple found =
        call.watched_backward.get()(or_none(x), or_none(w), dy, pybind11::make_tuple(needs_dx, needs_dw, needs_db));
    variable_list gradients;
    for (const auto& each : found) gradients.push_back(each.is_none() ? Tensor() : each.cast<Tensor>());
    gradients.push_back(Tensor());
    return gradients;
  }
};

}  // namespace

Tensor TunedCall::run(const Tensor& x, const Tensor& w, const std::optional<Tensor>& bias, const Tensor& kept) {
  return kept.defined() ? DwconvConvolution::apply(x, w, bias, &kept) : run_fprop(*this, x, w, bias);
}

namespace {

// -- calls ------------------------------------------------------------------------------------------------------------

Calls& calls() {
  static auto* known = new Calls();  // never freed: nothing of it may be touched once the interpreter is gone
  return *known;
}

constexpr Py_ssize_t kArguments = 8;

// As every kernel of the device can read it.
bool is_aligned(const Tensor& tensor) {
  return reinterpret_cast<uintptr_t>(tensor.data_ptr()) % (tensor.is_cpu() ? tensor.element_size() : 16) == 0;
}

bool is_exact(PyObject* object) { return THPVariable_CheckExact(object); }

// x, the weight and the bias of a call.
struct Given {
  Tensor x, w;
  std::optional<Tensor> bias;
};

// False for what is no tensor of PyTorch's own class.
bool read_given(PyObject* const* given, Py_ssize_t count, Given& tensors) {
  if (count != kArguments || !is_exact(given[0]) || !is_exact(given[1])) return false;
  if (given[2] != Py_None && !is_exact(given[2])) return false;
  tensors = {THPVariable_Unpack(given[0]), THPVariable_Unpack(given[1]), std::nullopt};
  if (given[2] != Py_None) tensors.bias = THPVariable_Unpack(given[2]);
  return true;
}

// To the type to which autocast lowers convolutions; `dtype` is that type. False if it does not lower all of them. What
// has gaps is cast at once, since that closes them; the rest by `cast`, once the call is found.
bool lower(Given& given, at::ScalarType& dtype) {
  const auto device = given.x.device().type();
  if (!is_plain(given.x) || !at::autocast::is_autocast_enabled(device)) return false;
  dtype = at::autocast::get_autocast_dtype(device);
  const auto lower_one = [&](Tensor& tensor) {
    if (!is_plain(tensor) || tensor.device().type() != device) return false;
    if (!tensor.is_floating_point() || tensor.scalar_type() == at::kDouble) return false;
    if (!tensor.is_non_overlapping_and_dense()) tensor = tensor.to(dtype);
    return true;
  };
  return lower_one(given.x) && lower_one(given.w) && (!given.bias || lower_one(*given.bias));
}

// A cast as in PyTorch's op: a weight once, for all calls until autocast ends. One that was cast without gradients is
// cast again where they are requested.
Tensor cast(const Tensor& tensor, at::ScalarType dtype) {
  Tensor found = at::autocast::cached_cast(dtype, tensor, tensor.device().type());
  const bool is_cut_off = tensor.requires_grad() && at::GradMode::is_enabled() && !found.requires_grad();
  return is_cut_off ? tensor.to(dtype) : found;
}

// False for a call that Python has to check. `lowered`: the type of all tensors, once they are cast.
bool describe_call(const Given& tensors, std::optional<at::ScalarType> lowered, PyObject* const* given, Key& key) {
  const auto describe_tensor = [&](const Tensor& tensor) {
    const bool is_cast = lowered && tensor.scalar_type() != *lowered;
    if (!is_plain(tensor) || !(is_cast || is_aligned(tensor))) return false;
    describe(tensor, lowered.value_or(tensor.scalar_type()), key);
    return true;
  };
  key.clear();
  key.push_back(!tensors.bias);
  if (!describe_tensor(tensors.x) || !describe_tensor(tensors.w)) return false;
  if (tensors.bias && !describe_tensor(*tensors.bias)) return false;
  for (int i = 3; i < kArguments; ++i)
    if (!describe(given[i], key)) return false;
  key.push_back(at::get_num_threads());
  return true;
}

PyObject* convolve(PyObject*, PyObject* const* given, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  static thread_local Key key;
  Given tensors;
  std::optional<at::ScalarType> type;  // to which autocast lowers all
  if (is_any_autocast_enabled()) type.emplace();
  if (is_watched_beside_autocast() || !read_given(given, count, tensors) ||
      (type && !lower(tensors, *type)) || !describe_call(tensors, type, given, key)) {
    PyErr_Clear();
    Py_RETURN_NONE;
  }
  const auto found = calls().find(key);
  if (found == calls().end()) Py_RETURN_NONE;
  const c10::intrusive_ptr<Call> call = found->second;
  auto& [x, w, bias] = tensors;
  const bool is_differentiated = at::GradMode::is_enabled() &&
      (x.requires_grad() || w.requires_grad() || (bias && bias->requires_grad()));
  if ((is_differentiated && !call->trains()) || call->is_spent()) Py_RETURN_NONE;
  const Tensor& weight = THPVariable_Unpack(given[1]);  // as the layer has it, not lowered
  call->count(weight, is_differentiated && x.requires_grad(), is_differentiated && w.requires_grad());
  const Tensor kept = is_differentiated ? call->kept() : Tensor();
  Tensor y;
  {
    pybind11::gil_scoped_release no_gil;
    if (type) {
      x = cast(x, *type);
      if (!kept.defined()) {  // else the op does it
        w = cast(w, *type);
        if (bias) bias = cast(*bias, *type);
      }
    }
    y = call->run(x, w, bias, kept);
  }
  return THPVariable_Wrap(std::move(y));
  END_HANDLE_TH_ERRORS
}

// learn(call, arguments of convolve…): from now on the call runs them.
PyObject* learn(PyObject*, PyObject* const* given, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  Key key;
  Given tensors;
  if (count > 0 && read_given(given + 1, count - 1, tensors) && describe_call(tensors, std::nullopt, given + 1, key)) {
    auto& known = calls()[key];
    if (known) known->let_go();
    known = pybind11::handle(given[0]).cast<c10::intrusive_ptr<Call>>();
  }
  PyErr_Clear();
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}

// [(weight, calls, how many request the gradient of x, and of w)], of the weights that are still there.
pybind11::list counted(const Call& call) {
  pybind11::list found;
  for (const Tally& tally : call.tallies())
    if (auto weight = tally.weight.lock())
      found.append(pybind11::make_tuple(Tensor(std::move(weight)), tally.calls, tally.for_x, tally.for_w));
  return found;
}

// run(kernel, inputs…): the result or a tuple of two; None if the inputs do not have the strides that the kernel reads.
PyObject* run(PyObject*, PyObject* const* given, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  const auto& kernel = pybind11::handle(given[0]).cast<const Kernel&>();
  std::vector<Tensor> inputs;
  for (Py_ssize_t i = 1; i < count; ++i) {
    if (!is_exact(given[i]) || !is_plain(THPVariable_Unpack(given[i]))) Py_RETURN_NONE;
    inputs.push_back(THPVariable_Unpack(given[i]));
  }
  if (!kernel.reads(inputs)) Py_RETURN_NONE;
  const int64_t batch = inputs[0].size(0);
  std::vector<Tensor> results;
  {
    pybind11::gil_scoped_release no_gil;
    results = kernel.empty_results(batch);
    kernel.run(batch, inputs, results);
  }
  if (results.size() == 1) return THPVariable_Wrap(std::move(results[0]));
  PyObject* both = PyTuple_New(static_cast<Py_ssize_t>(results.size()));
  if (!both) throw python_error();
  for (size_t i = 0; i < results.size(); ++i) PyTuple_SET_ITEM(both, i, THPVariable_Wrap(std::move(results[i])));
  return both;
  END_HANDLE_TH_ERRORS
}

PyMethodDef kHot[] = {  // called in every step: without pybind11's check of the arguments
    {"convolve", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(convolve)), METH_FASTCALL, nullptr},
    {"learn", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(learn)), METH_FASTCALL, nullptr},
    {"run", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(run)), METH_FASTCALL, nullptr},
    {"run_traced", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(run_traced)), METH_FASTCALL, nullptr},
    {"holds", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(holds)), METH_FASTCALL, nullptr},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace
}  // namespace dwconv

PYBIND11_MODULE(dwconv_native, module) {
  namespace py = pybind11;
  using namespace dwconv;
  py::class_<Operand>(module, "Operand").def(py::init<bool, Sizes, Sizes, at::ScalarType, at::MemoryFormat, bool>());
  py::class_<Size>(module, "Size").def(py::init<int64_t, int64_t>());
  py::class_<Workspace>(module, "Workspace").def(py::init<int64_t, std::vector<Size>>());
  py::class_<Code, std::shared_ptr<Code>>(module, "Code");
  py::class_<MachineCode, Code, std::shared_ptr<MachineCode>>(module, "MachineCode")
      .def(py::init<int64_t, py::object, std::vector<int64_t>>());
  py::class_<Launch::Argument>(module, "LaunchArgument").def(py::init<int64_t, Size>());
  py::class_<Launch>(module, "Launch")
      .def(py::init<
           int64_t, std::array<Size, 3>, std::array<unsigned, 3>, unsigned, std::vector<Launch::Argument>>());
  py::class_<Driver, std::shared_ptr<Driver>>(module, "Driver")
      .def(py::init<int64_t, int64_t, int64_t, int64_t, py::object>());
  py::class_<Launches, Code, std::shared_ptr<Launches>>(module, "Launches")
      .def(py::init<std::shared_ptr<Driver>, std::vector<Launch>, py::object>());
  py::class_<StatisticsKernel, std::shared_ptr<StatisticsKernel>>(module, "StatisticsKernel")
      .def(py::init<std::shared_ptr<Driver>, int64_t, py::object>());
  py::class_<Kernel, std::shared_ptr<Kernel>>(module, "Kernel")
      .def(py::init<
           std::string, std::shared_ptr<Code>, at::Tensor, std::vector<Operand>, std::vector<Operand>,
           std::vector<Workspace>>());
  py::class_<Shape>(module, "Shape").def(py::init<Sizes, Sizes>());
  py::class_<Call, c10::intrusive_ptr<Call>>(module, "Call")
      .def("counted", counted)
      .def_readwrite("left", &Call::left);
  py::class_<PyTorchCall, Call, c10::intrusive_ptr<PyTorchCall>>(module, "PyTorchCall")
      .def(py::init<int64_t, Sizes, Sizes, Sizes, int64_t>());
  py::class_<Geometry>(module, "Geometry").def(py::init<Sizes, Sizes, Sizes, int64_t>());
  py::class_<TunedCall, Call, c10::intrusive_ptr<TunedCall>>(module, "TunedCall")
      .def(py::init<
           bool, int64_t, Shape, Shape, Shape, Sizes, int64_t, std::shared_ptr<Kernel>, std::shared_ptr<Kernel>,
           std::shared_ptr<Kernel>, std::shared_ptr<Kernel>, Geometry, py::object>());
  py::enum_<Statistics>(module, "Statistics")
      .value("batch", Statistics::batch)
      .value("running", Statistics::running)
      .value("image", Statistics::image);
  py::class_<TunedBlock, c10::intrusive_ptr<TunedBlock>>(module, "TunedBlock")
      .def(py::init<
           std::shared_ptr<Kernel>, std::shared_ptr<Kernel>, bool, int64_t, bool, std::vector<Statistics>,
           std::shared_ptr<StatisticsKernel>, py::object>())
      .def_property_readonly("trains", &TunedBlock::trains)
      .def_property_readonly("forwards", [](const TunedBlock& block) { return block.forwards.load(); })
      .def_property_readonly("backwards", [](const TunedBlock& block) { return block.backwards.load(); });
  py::class_<Guard::Module>(module, "GuardModule")
      .def(py::init<
           py::object, int64_t, py::object, py::object, std::vector<Guard::Item>, Py_ssize_t, Py_ssize_t,
           std::vector<Guard::Item>, std::vector<Guard::Held>>());
  py::class_<Guard>(module, "Guard")
      .def(py::init<std::vector<Guard::Module>, std::vector<Guard::Item>, std::vector<py::object>>());
  py::class_<Members>(module, "Members")
      .def(py::init([](py::object conv, std::vector<Members::Norm> norms, bool is_layer_norm) {
        return Members{std::move(conv), std::move(norms), is_layer_norm, {}};
      }))
      .def("learn", &Members::learn);
  py::class_<Step, std::shared_ptr<Step>>(module, "Step");
  py::class_<KernelStep, Step, std::shared_ptr<KernelStep>>(module, "KernelStep")
      .def(py::init<std::shared_ptr<Kernel>, Places, Places>());
  py::class_<PyTorchFprop, Step, std::shared_ptr<PyTorchFprop>>(module, "PyTorchFprop")
      .def(py::init<Geometry, at::MemoryFormat, Places, Places>());
  py::class_<PyTorchGradients, Step, std::shared_ptr<PyTorchGradients>>(module, "PyTorchGradients")
      .def(py::init<Geometry, Shape, Shape, Places, Places>())
      .def_static("both", &PyTorchGradients::both);
  py::class_<OpCall, c10::intrusive_ptr<OpCall>>(module, "OpCall")
      .def(py::init<std::vector<std::shared_ptr<Step>>>())
      .def_property_readonly("calls", [](const OpCall& call) { return call.calls.load(); });
  module.def("let_through", [](py::set classes) { transparent_modes() = classes.release().ptr(); });
  module.def("take_ops", take_ops);
  module.def("is_offer_open", [] { return open_offer() != nullptr; });
  module.def("offer", offer);
  module.def("forget", [] {
    known_ops().forget();
    for (const auto& [key, call] : calls()) call->let_go();
    calls().clear();
    ++generation();
  });
  lanes::add_program(module);
  if (PyModule_AddFunctions(module.ptr(), kHot) < 0) throw py::error_already_set();
}
