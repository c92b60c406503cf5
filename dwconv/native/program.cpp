// Program: a graph of PyTorch's operators from Python, run by a schedule.
//
//   Program(graph as instructions.py has it)      Runner(schedule as compiled_graph.py has it)
//   program.run(runner, inputs)                   the results; meanwhile the interpreter's lock is free
#include <torch/csrc/autograd/python_variable.h>

#include "execution.h"

// As in torch/csrc/jit/python/pybind_utils.h, which includes the compiler of TorchScript.
namespace torch::jit {
TORCH_PYTHON_API c10::IValue toIValue(
    pybind11::handle object, const c10::TypePtr& type, std::optional<int32_t> count = std::nullopt);
TORCH_PYTHON_API pybind11::object toPyObject(c10::IValue value);
struct TORCH_PYTHON_API ToIValueAllowNumbersAsTensors {
  bool old_;
  ToIValueAllowNumbersAsTensors(bool enable);
  ~ToIValueAllowNumbersAsTensors();
};
}  // namespace torch::jit

namespace dwconv::lanes {

namespace py = pybind11;

namespace {

// A value as operators take it; nothing for any other.
std::optional<IValue> value_of(PyObject* object) {
  if (THPVariable_Check(object)) return IValue(THPVariable_Unpack(object));
  if (object == Py_None) return IValue();
  if (PyBool_Check(object)) return IValue(object == Py_True);
  if (PyLong_CheckExact(object)) return IValue(static_cast<int64_t>(PyLong_AsLongLong(object)));
  if (PyFloat_CheckExact(object)) return IValue(PyFloat_AS_DOUBLE(object));
  return std::nullopt;
}

Source source_of(const py::handle& given) {
  if (given.is_none()) return {-1, false};
  const auto pair = given.cast<std::pair<int, bool>>();
  return {pair.first, pair.second};
}

// (0, constant), (1, (slot, takes)), (2, [(slot, takes) or None…]) or (3, None): what the schema has.
Argument argument_of(const py::tuple& given, const c10::Argument& schema) {
  Argument made;
  const int kind = given[0].cast<int>();
  const py::object what = given[1];
  made.is_optional = schema.type()->kind() == c10::TypeKind::OptionalType;
  if (kind == 3) {
    made.is_constant = true;
    TORCH_CHECK(schema.default_value(), "argument ", schema.name(), " is missing");
    made.constant = *schema.default_value();
  } else if (kind == 0) {
    made.is_constant = true;
    const torch::jit::ToIValueAllowNumbersAsTensors numbers(true);
    made.constant = torch::jit::toIValue(what, schema.real_type(), schema.N());
  } else if (kind == 1) {
    made.sources = {source_of(what)};
  } else {
    made.is_list = true;
    c10::TypePtr type = schema.type();
    if (made.is_optional) type = type->expectRef<c10::OptionalType>().getElementType();
    made.is_optional = type->expectRef<c10::ListType>().getElementType()->kind() == c10::TypeKind::OptionalType;
    for (const auto& each : what) made.sources.push_back(source_of(each));
  }
  return made;
}

// `tasks`: of each instruction (name, overload, arguments, gives, is_unpacked, is_below_autograd, finishes).
Graph graph_of(
    int inputs, int slots, const py::list& tasks, std::vector<int> readers, std::vector<int> results,
    std::vector<at::Tensor> constants) {
  Graph made{inputs, slots, {}, std::move(readers), std::move(results), std::move(constants)};
  for (const auto& task : tasks) {
    auto& instructions = made.tasks.emplace_back();
    for (const auto& each : task) {
      const auto given = each.cast<py::tuple>();
      const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(
          given[0].cast<std::string>().c_str(), given[1].cast<std::string>().c_str());
      const auto& schema = op.schema().arguments();
      const auto listed = given[2].cast<py::list>();
      TORCH_CHECK(listed.size() == schema.size(), op.schema().name(), " takes ", schema.size(), " arguments");
      std::vector<Argument> arguments;
      for (size_t i = 0; i < schema.size(); ++i)
        arguments.push_back(argument_of(py::object(listed[i]).cast<py::tuple>(), schema[i]));
      instructions.push_back(
          {op, std::move(arguments), given[3].cast<std::vector<int>>(), given[4].cast<bool>(), given[5].cast<bool>(),
           given[6].cast<std::vector<int>>()});
    }
  }
  return made;
}

// The results, and `inputs` is empty; or None if an input is no value that operators of PyTorch take.
py::object run(const Graph& graph, Runner& runner, const py::list& inputs) {
  TORCH_CHECK(PyList_GET_SIZE(inputs.ptr()) == graph.inputs, "the graph takes ", graph.inputs, " inputs");
  std::vector<IValue> slots(graph.slots);
  for (int i = 0; i < graph.inputs; ++i) {
    auto value = value_of(PyList_GET_ITEM(inputs.ptr(), i));
    if (!value) return py::none();
    slots[i] = std::move(*value);
  }
  if (PyList_SetSlice(inputs.ptr(), 0, PyList_GET_SIZE(inputs.ptr()), nullptr)) throw py::error_already_set();
  std::vector<IValue> found;
  {
    const py::gil_scoped_release no_gil;
    const at::AutoGradMode no_grad(false);
    found = Execution(graph, std::move(slots), runner).run();
  }
  py::list results(found.size());
  for (size_t i = 0; i < found.size(); ++i) {
    PyObject* const result = found[i].isTensor() ? THPVariable_Wrap(std::move(found[i]).toTensor())
                                                 : torch::jit::toPyObject(std::move(found[i])).release().ptr();
    if (!result) throw py::error_already_set();
    PyList_SET_ITEM(results.ptr(), i, result);
  }
  return std::move(results);
}

// By task (lane, start, end, mean): in the last run on lanes, in microseconds since it began; and over many runs.
py::list seen(const Runner& runner) {
  py::list found;
  for (const Seen& each : runner.seen)
    found.append(py::make_tuple(
        each.lane, static_cast<double>(each.start_ns - runner.began_ns) / 1e3,
        static_cast<double>(each.end_ns - runner.began_ns) / 1e3, each.mean_us));
  return found;
}

}  // namespace

void add_program(py::module_& module) {
  py::class_<Step>(module, "LaneStep").def(py::init<int, int, std::vector<int>, bool>());
  py::class_<Ready::Stored>(module, "Stored").def(py::init<int64_t, std::vector<int>>());
  py::class_<Ready>(module, "Ready")
      .def(py::init<
           std::vector<int>, std::vector<std::vector<int>>, std::vector<int>, std::vector<int>, std::vector<int>,
           std::vector<double>, std::vector<int64_t>, std::vector<Ready::Stored>, int64_t, int64_t, std::vector<double>,
           std::vector<int>, int>());
  py::class_<Segment>(module, "Segment")
      .def(py::init<std::vector<Steps>, std::vector<Cores>, std::vector<int>, bool, std::optional<Ready>>());
  py::class_<Runner, std::shared_ptr<Runner>>(module, "Runner")
      .def(py::init([](std::vector<Segment> segments, std::vector<int> order, Slowdowns slowdowns, int64_t spin_us) {
        auto made = std::make_shared<Runner>();
        made->segments = std::move(segments);
        made->order = std::move(order);
        made->slowdowns = std::move(slowdowns);
        made->spin_us = spin_us;
        return made;
      }))
      .def("seen", seen)
      .def_property_readonly("affinity_error", [](const Runner& runner) { return runner.affinity_error.load(); });
  py::class_<Graph, std::shared_ptr<Graph>>(module, "Program")
      .def(py::init([](int inputs, int slots, const py::list& tasks, std::vector<int> readers, std::vector<int> results,
                       std::vector<at::Tensor> constants) {
        return std::make_shared<Graph>(
            graph_of(inputs, slots, tasks, std::move(readers), std::move(results), std::move(constants)));
      }))
      .def("run", torch::wrap_pybind_function(run));
  module.def("end_lanes", [] { crew()->end(); }, py::call_guard<py::gil_scoped_release>());
  module.def("forget_lanes", [] { crew()->forget(); });
  module.def("lose_team", [] { openmp().is_lost = true; });
}

}  // namespace dwconv::lanes
