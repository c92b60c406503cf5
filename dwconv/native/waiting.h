// Waiting: the calls of a block, one after the other, followed to its end without Python.
//
//   learn_block(place, x, …)       the calls that Python followed to the end of a block, in order
//   begin_block(place, x)          what stands for x, if blocks of such an x were learnt
//   follow_block(function, …)      what stands for a call's result; z, by `run_as_one`, at the end of the block; in
//       │                          evaluation by `run_in_evaluation`
//       │  a call that was not learnt, a tensor that has changed, somebody who watches: None, and Python follows
//       ▼
//   Holder ─► Part ─► Part ─► …    what a waiting tensor stands for: with functions in place, more and more
//               │                  `part` of a Holder: the same as call/awaited_block.py has it, if somebody looks
//               ▼
//              Step                which calls may come next, and what comes of them
//
//   wait(waiting, holder, tensors) a place in autograd's graph for a waiting tensor
#pragma once

#include <c10/core/InferenceMode.h>

#include <bit>
#include <memory>
#include <string>
#include <unordered_map>

#include "block.h"
#include "calls.h"

namespace dwconv {

// -- what a call says of itself ----------------------------------------------------------------------------------------

using Tensors = std::vector<Tensor>;

// As `describe` of calls.h, also of floating-point numbers, lists, and tensors, which are added to `tensors`. False for
// tensors that are not just numbers in memory.
inline bool describe(PyObject* value, Key& key, Tensors& tensors) {
  if (PyFloat_CheckExact(value)) {
    key.insert(key.end(), {-4, std::bit_cast<int64_t>(PyFloat_AS_DOUBLE(value))});
    return true;
  }
  if (PyBool_Check(value)) {
    key.insert(key.end(), {-5, value == Py_True});
    return true;
  }
  if (PyList_CheckExact(value)) {
    key.insert(key.end(), {-7, PyList_GET_SIZE(value)});
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(value); ++i)
      if (!describe(PyList_GET_ITEM(value, i), key, tensors)) return false;
    return true;
  }
  if (!THPVariable_CheckExact(value)) return describe(value, key);
  const Tensor& tensor = THPVariable_Unpack(value);
  if (!is_plain(tensor) || (tensor.is_inference() && at::GradMode::is_enabled())) return false;
  key.push_back(-6);
  describe(tensor, key);
  tensors.push_back(tensor);
  return true;
}

// Whether what is done is recorded for a backward pass, or what it gives can never be. Of a block all is done in one.
struct Recording {
  bool is_on, is_inference;

  static Recording now() { return {at::GradMode::is_enabled(), c10::InferenceMode::is_enabled()}; }
  bool operator==(const Recording&) const = default;
};

// To which type autocast lowers, on the device of x.
inline void describe_autocast(c10::DeviceType device, Key& key) {
  const bool is_any = is_any_autocast_enabled(), is_here = is_any && at::autocast::is_autocast_enabled(device);
  key.push_back(is_here ? static_cast<int64_t>(at::autocast::get_autocast_dtype(device)) : -1 - is_any);
}

// A call of a function of PyTorch's or of ours, but for its first argument.
inline bool describe_call(
    PyObject* function, PyObject* arguments, PyObject* keywords, c10::DeviceType device, Key& key, Tensors& tensors) {
  key.clear();
  key.push_back(reinterpret_cast<int64_t>(function));
  describe_autocast(device, key);
  for (Py_ssize_t i = 1; i < PyTuple_GET_SIZE(arguments); ++i)
    if (!describe(PyTuple_GET_ITEM(arguments, i), key, tensors)) return false;
  if (!keywords || keywords == Py_None) return true;
  PyObject *name, *value;
  for (Py_ssize_t at = 0; PyDict_Next(keywords, &at, &name, &value);)
    if (!describe(name, key, tensors) || !describe(value, key, tensors)) return false;
  return true;
}

// -- what was learnt ---------------------------------------------------------------------------------------------------

struct Step;

// What a call leads to.
struct Next {
  std::string name;               // of the part, as Python has it
  pybind11::object function;      // its address is in the key
  pybind11::object norm;          // a NormCall or LayerNormCall without tensors, or None
  std::vector<size_t> given;      // which of the call's tensors are the part's: what it reads, then statistics that learn
  size_t read = 0;                // how many it reads, which must not change
  double momentum = 0;            // of running statistics
  bool is_in_place = false;
  std::shared_ptr<Step> step;
};

struct Step {
  static constexpr size_t kMost = 16;  // of calls that may come next: a momentum may change in every step

  pybind11::object make;  // () -> a tensor that stands for its result; None at the end of the block
  std::unordered_map<Key, std::shared_ptr<const Next>, HashOfKey> next;
};

// Blocks that begin with such an x at one place.
struct Start {
  pybind11::object place;  // its address is in the key
  c10::DeviceType device;
  Recording recording;
  c10::intrusive_ptr<TunedBlock> block;
  pybind11::object remember;  // (part before, name, norm, call, tensors, versions, learns, value) -> the part as Python has it
  std::shared_ptr<Step> step;
};

using Starts = std::unordered_map<Key, std::shared_ptr<const Start>, HashOfKey>;
constexpr size_t kMostStarts = 10'000;

inline Starts& starts() {
  static auto* known = new Starts();  // never freed: nothing of it may be touched once the interpreter is gone
  return *known;
}

// -- what waits --------------------------------------------------------------------------------------------------------

// How often a tensor was changed; of tensors of `torch.inference_mode` nobody counts that.
inline uint32_t version_of(const Tensor& tensor) { return tensor.is_inference() ? 0 : tensor._version(); }

// x, or a call that led on from the part before.
struct Part {
  std::shared_ptr<const Start> start;
  std::shared_ptr<Part> before;      // none: it is x
  std::shared_ptr<const Next> next;  // the call, none of x
  Tensors given;
  std::vector<uint32_t> versions;  // of what it reads
  bool learns = true;              // the running statistics of a norm do not know of it yet
  Tensor value;                    // at the end of the block
  pybind11::object others, keywords;  // of the call, without the tensor that waits: it would never be let go
  pybind11::object python;         // from when somebody looked: from then on it says what is so

  Step& step() const { return next ? *next->step : *start->step; }
  bool trains() const { return start->block->trains(); }
  bool has_changed() const {
    for (size_t i = 0; i < versions.size(); ++i)
      if (version_of(given[i]) != versions[i]) return true;
    return false;
  }

  const pybind11::object& looked_at() {
    if (python) return python;
    const pybind11::object none = pybind11::none();
    const pybind11::object call =
        next ? pybind11::make_tuple(next->function, others, keywords, next->is_in_place) : none;
    python = start->remember(
        before ? before->looked_at() : none, next ? next->name : "x", next ? next->norm : none, call,
        pybind11::tuple(pybind11::cast(given)), versions, learns, value.defined() ? pybind11::cast(value) : none);
    return python;
  }
};

// All of what Python holds here is let go with the interpreter's lock: `Kept` keeps a Holder in autograd's graph.
struct Holder {
  std::shared_ptr<Part> part;  // none from when Python set another
  pybind11::object python;

  pybind11::object looked_at() { return part ? part->looked_at() : python; }
  void set(pybind11::object other) {
    part.reset();
    python = std::move(other);
  }
};

// A Python object, kept by a node of the graph.
struct Kept : torch::CustomClassHolder {
  explicit Kept(pybind11::object object) : held(std::move(object)) {}
  Held held;
};

struct DwconvWait : torch::autograd::Function<DwconvWait> {
  static constexpr size_t kTensors = 7;  // x, a weight and a bias of the convolution, and of two norms

  static Tensor forward(
      AutogradContext* context,
      const Optional&,
      const Optional&,
      const Optional&,
      const Optional&,
      const Optional&,
      const Optional&,
      const Optional&,
      const Tensor* waiting,
      PyObject* holder) {
    context->saved_data["holder"] =
        kept_by_graph(c10::make_intrusive<Kept>(pybind11::reinterpret_borrow<pybind11::object>(holder)));
    return *waiting;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    variable_list found(kTensors + 2);
    const pybind11::gil_scoped_acquire gil;
    const pybind11::object part = kept_by_graph<Kept>(context->saved_data["holder"]).held.get().attr("part");
    const pybind11::tuple given = part.attr("gradients")(gradients[0]);
    for (size_t i = 0; i < given.size(); ++i)
      if (!given[i].is_none()) found[i] = given[i].cast<Tensor>();
    return found;
  }
};

using OfWait = std::array<Optional, DwconvWait::kTensors>;

inline Tensor placed_in_graph(const Tensor& waiting, PyObject* holder, const OfWait& of) {
  return DwconvWait::apply(of[0], of[1], of[2], of[3], of[4], of[5], of[6], &waiting, holder);
}

// What a part and those before it read, from x on.
inline OfWait read_by(const Part& part) {
  std::array<const Part*, 8> chain{};  // x and seven calls are the longest block
  size_t length = 0, at = 0;
  for (const Part* each = &part; each; each = each->before.get()) chain[length++] = each;
  OfWait of;
  while (length > 0) {
    const Part& each = *chain[--length];
    for (size_t i = 0; i < each.versions.size(); ++i) of[at++] = each.given[i];
  }
  return of;
}

// What stands for a part that is not the end of the block; in training with a place in autograd's graph.
inline pybind11::object waiting_for(std::shared_ptr<Part> part) {
  const bool trains = part->trains();
  const OfWait of = trains ? read_by(*part) : OfWait();
  const pybind11::object made = part->step().make();
  const pybind11::object holder = pybind11::cast(std::make_shared<Holder>(Holder{std::move(part), {}}));
  static PyObject* const name = PyUnicode_InternFromString("_holder");
  if (PyObject_SetAttr(made.ptr(), name, holder.ptr()) < 0) throw pybind11::error_already_set();
  if (!trains) return made;
  Tensor waiting = placed_in_graph(THPVariable_Unpack(made.ptr()), holder.ptr(), of);
  return pybind11::reinterpret_steal<pybind11::object>(THPVariable_Wrap(std::move(waiting)));
}

// z of the block whose last call a part is; undefined where Python has to do it.
inline Tensor finished(const Part& last) {
  const Start& start = *last.start;
  const Part* x = &last;
  Tensor w;
  Optional bias;
  NormCalls norms;
  for (const Part* each = &last; each->before; each = each->before.get()) {
    if (each->has_changed()) return {};
    const Tensors& given = each->given;
    if (each->next->name == "conv") {
      w = given[0];
      if (given.size() > 1) bias = given[1];
    } else if (!given.empty()) {
      const bool has_statistics = given.size() > 2 && (each->learns || !each->trains());
      norms.push_back(
          {given[0], given[1], has_statistics ? given[2] : Tensor(), has_statistics ? given[3] : Tensor(),
           each->next->momentum});
    }
    x = each->before.get();
  }
  if (x->has_changed()) return {};
  std::reverse(norms.begin(), norms.end());
  const pybind11::gil_scoped_release no_gil;
  w = w.to(x->given[0].scalar_type());
  if (!start.block->trains()) return run_in_evaluation(*start.block, x->given[0], w, bias, norms);
  Tensor z = run_as_one(start.block, x->given[0], w, bias, norms);
  if (z.defined() && start.block->has_layer_norm) z.transpose_(1, 2).transpose_(2, 3);  // no view, as PyTorch's is none
  return z;
}

// -- what Python calls -------------------------------------------------------------------------------------------------

inline bool describe_start(PyObject* place, const Tensor& x, Key& key) {
  const Recording recording = Recording::now();
  if (!is_plain(x) || (recording.is_on && x.is_inference()) || somebody_watches_beside_autocast()) return false;
  key.clear();
  key.insert(key.end(), {recording.is_on, recording.is_inference});
  key.push_back(reinterpret_cast<int64_t>(place));
  key.push_back(at::get_num_threads());
  describe_autocast(x.device().type(), key);
  describe(x, key);
  return true;
}

inline std::shared_ptr<Part> part_of(
    std::shared_ptr<const Start> start, std::shared_ptr<Part> before, std::shared_ptr<const Next> next, Tensors given) {
  auto part = std::make_shared<Part>();
  const size_t read = next ? next->read : 1;
  for (size_t i = 0; i < read; ++i) part->versions.push_back(version_of(given[i]));
  part->start = std::move(start);
  part->before = std::move(before);
  part->next = std::move(next);
  part->given = std::move(given);
  return part;
}

// begin_block(place, x)
inline PyObject* begin_block(PyObject*, PyObject* const* given, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  static thread_local Key key;
  if (count != 2 || !THPVariable_CheckExact(given[1])) Py_RETURN_NONE;
  const Tensor& x = THPVariable_Unpack(given[1]);
  if (starts().empty() || !describe_start(given[0], x, key)) Py_RETURN_NONE;
  const auto found = starts().find(key);
  if (found == starts().end()) Py_RETURN_NONE;
  return waiting_for(part_of(found->second, nullptr, nullptr, {x})).release().ptr();
  END_HANDLE_TH_ERRORS
}

// The holder of what the first argument of a call is, if that waits for a block.
inline Holder* holder_of(PyObject* arguments) {
  if (!PyTuple_CheckExact(arguments) || PyTuple_GET_SIZE(arguments) == 0) return nullptr;
  static PyObject* const name = PyUnicode_InternFromString("_holder");
  PyObject* const first = PyTuple_GET_ITEM(arguments, 0);
  if (!THPVariable_Check(first)) return nullptr;
  const auto held = pybind11::reinterpret_steal<pybind11::object>(PyObject_GetAttr(first, name));
  if (!held) PyErr_Clear();
  if (!held || !pybind11::isinstance<Holder>(held)) return nullptr;
  return &held.cast<Holder&>();  // the tensor keeps it
}

// follow_block(function, arguments, keywords)
inline PyObject* follow_block(PyObject*, PyObject* const* call, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  static thread_local Key key;
  Holder* const holder = count == 3 ? holder_of(call[1]) : nullptr;
  if (!holder || !holder->part || somebody_watches_beside_autocast()) Py_RETURN_NONE;
  const std::shared_ptr<Part> part = holder->part;
  if (part->start->recording != Recording::now()) Py_RETURN_NONE;
  for (const Part* each = part.get(); each; each = each->before.get())
    if (each->python || each->value.defined()) Py_RETURN_NONE;
  Tensors tensors, given;
  if (!describe_call(call[0], call[1], call[2], part->start->device, key, tensors)) {
    PyErr_Clear();
    Py_RETURN_NONE;
  }
  const auto& known = part->step().next;
  const auto found = known.find(key);
  if (found == known.end()) Py_RETURN_NONE;
  const std::shared_ptr<const Next> next = found->second;
  for (size_t i : next->given) given.push_back(tensors[i]);
  const auto following = part_of(part->start, part, next, std::move(given));
  following->others = pybind11::reinterpret_steal<pybind11::object>(PyTuple_GetSlice(call[1], 1, PY_SSIZE_T_MAX));
  following->keywords = pybind11::reinterpret_borrow<pybind11::object>(call[2]);
  if (!next->step->make.is_none()) {
    if (!next->is_in_place) return waiting_for(following).release().ptr();
    holder->part = following;
    PyObject* const same = PyTuple_GET_ITEM(call[1], 0);
    Py_INCREF(same);
    return same;
  }
  Tensor z = finished(*following);
  if (!z.defined()) Py_RETURN_NONE;
  for (Part* each = following.get(); each; each = each->before.get()) each->learns = false;
  following->value = z;
  if (next->is_in_place) holder->part = following;
  return THPVariable_Wrap(std::move(z));
  END_HANDLE_TH_ERRORS
}

// Which of a call's tensors are a part's; empty if that cannot be told, as where two are the same.
inline std::vector<size_t> places_of(const Tensors& given, const Tensors& tensors) {
  std::vector<size_t> places;
  for (const Tensor& each : given) {
    const auto is_it = [&](const Tensor& other) { return other.is_same(each); };
    if (std::count_if(tensors.begin(), tensors.end(), is_it) != 1) return {};
    places.push_back(std::find_if(tensors.begin(), tensors.end(), is_it) - tensors.begin());
  }
  return places;
}

// A call that Python followed: what it was, what stands for its result (None: z), and the part it led to.
struct Followed {
  pybind11::object function;
  pybind11::tuple arguments;
  pybind11::object keywords, make;
  bool is_in_place;
  std::string name;
  pybind11::object norm;
  double momentum;
  Tensors given;
  size_t read;
};

// learn_block(place, x, block, make, remember, calls): from now on, all this is followed here. `make`: of x.
inline void learn_block(
    pybind11::object place,
    const Tensor& x,
    c10::intrusive_ptr<TunedBlock> block,
    pybind11::object make,
    pybind11::object remember,
    const std::vector<Followed>& calls) {
  Key key;
  if (!describe_start(place.ptr(), x, key)) return;
  if (starts().size() >= kMostStarts) starts().clear();
  auto& start = starts()[key];
  if (!start) {
    auto step = std::make_shared<Step>(Step{std::move(make), {}});
    start = std::make_shared<const Start>(
        Start{std::move(place), x.device().type(), Recording::now(), std::move(block), std::move(remember), std::move(step)});
  }
  std::shared_ptr<Step> step = start->step;
  for (const Followed& call : calls) {
    Tensors tensors;
    if (!describe_call(call.function.ptr(), call.arguments.ptr(), call.keywords.ptr(), x.device().type(), key, tensors)) {
      PyErr_Clear();
      return;
    }
    auto places = places_of(call.given, tensors);
    if (places.size() != call.given.size()) return;
    auto found = step->next.find(key);
    if (found == step->next.end()) {
      if (step->next.size() >= Step::kMost) return;
      auto next = std::make_shared<const Next>(Next{
          call.name, call.function, call.norm, std::move(places), call.read, call.momentum, call.is_in_place,
          std::make_shared<Step>(Step{call.make, {}})});
      found = step->next.emplace(key, std::move(next)).first;
    }
    step = found->second->step;
  }
}

// wait(waiting, holder, tensors): `waiting`, whose gradient `holder.part.gradients` takes to those of the tensors.
inline PyObject* wait(PyObject*, PyObject* const* given, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  TORCH_CHECK(
      count == 3 && THPVariable_Check(given[0]) && PyTuple_CheckExact(given[2]) &&
          PyTuple_GET_SIZE(given[2]) <= static_cast<Py_ssize_t>(DwconvWait::kTensors),
      "wait takes a tensor, what holds it, and a tuple of tensors");
  OfWait of;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(given[2]); ++i) of[i] = THPVariable_Unpack(PyTuple_GET_ITEM(given[2], i));
  return THPVariable_Wrap(placed_in_graph(THPVariable_Unpack(given[0]), given[1], of));
  END_HANDLE_TH_ERRORS
}

}  // namespace dwconv
