// PyTorch's device "cuda" on this machine's memory. See __init__.py for how it fits in.
//
//   an operator on tensors of cuda:0 ──► the same tensors as the host sees them ──► PyTorch's own operator for the CPU
//         │                                                                            │
//         ├── takes time on the device's clock                  its results, as the device sees them
//         └── while a graph is captured: written down, to be run again on the same memory
#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include "graph.h"
#include "memory.h"
#include "stream.h"

namespace standin {

using torch::jit::Stack;

// Made up, and the same everywhere.
constexpr double NS_OF_AN_OPERATOR = 400e3, BYTES_PER_NS = 1000;

// These wait for the device, which a stream that is captured cannot do.
bool waits(const std::string& name, const Stack& arguments) {
  static const std::set<std::string> all = {
      "aten::_local_scalar_dense", "aten::equal", "aten::nonzero", "aten::masked_select", "aten::_unique2",
      "aten::is_nonzero", "aten::unique_dim", "aten::unique_consecutive", "aten::bincount"};
  if (all.count(name)) return true;
  if (name == "aten::repeat_interleave") return arguments.back().isNone();  // how long is the result?
  if (name.rfind("aten::index", 0) && name.rfind("aten::_index_put", 0)) return false;
  for (const c10::IValue& each : arguments) {
    if (!each.isOptionalTensorList()) continue;
    for (const auto& index : each.toOptionalTensorVector()) {
      if (index && (index->dtype() == at::kBool || index->dtype() == at::kByte)) return true;  // how many are true?
    }
  }
  return false;
}

// A tensor as the other side sees it: the same memory, the same sizes.
at::Tensor seen(const at::Tensor& tensor, c10::Storage storage, c10::DispatchKey key) {
  auto other = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(key), tensor.dtype());
  auto* self = other.unsafeGetTensorImpl();
  self->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) self->set_wrapped_number(true);
  if (tensor.is_conj()) other._set_conj(true);
  if (tensor.is_neg()) other._set_neg(true);
  return other;
}

// The tensors of one call, on both sides.
class Sides {
 public:
  void to_host(c10::IValue& value) {
    if (value.isTensor()) {
      value = to_host(value.toTensor());
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& each : value.toTensorVector()) list.push_back(to_host(each));
      value = list;
    } else if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const auto& each : value.toOptionalTensorVector()) {
        list.push_back(each ? std::optional<at::Tensor>(to_host(*each)) : std::nullopt);
      }
      value = list;
    } else if (value.isDevice() && value.toDevice().is_cuda()) {
      value = c10::Device(c10::kCPU);
    }
  }

  void to_device(c10::IValue& value) {
    if (value.isTensor()) {
      value = to_device(value.toTensor());
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& each : value.toTensorVector()) list.push_back(to_device(each));
      value = list;
    }
  }

  // Take over the sizes and the memory that the operator gave to its results.
  void take_over() {
    for (const auto& [device, host] : pairs_) {
      auto* self = device.unsafeGetTensorImpl();
      if (!device.storage().nbytes() && host.storage().nbytes()) {
        self->set_storage_keep_dtype(kept(on_the_device(host.storage())));
      }
      if (device.sizes() != host.sizes() || device.strides() != host.strides()) {
        self->set_sizes_and_strides(host.sizes(), host.strides(), host.storage_offset());
      }
    }
  }

  // Tensors that hold a single number may be the host's, as in PyTorch.
  bool has_host_tensors = false;
  double bytes = 0;
  bool changes_nothing = true;  // every result is a view

 private:
  at::Tensor to_host(const at::Tensor& tensor) {
    if (!tensor.defined()) return tensor;
    if (!tensor.is_cuda()) {
      has_host_tensors |= tensor.dim() > 0;
      return tensor;
    }
    bytes += tensor.nbytes();
    for (const auto& [device, host] : pairs_) {
      if (device.is_same(tensor)) return host;
    }
    // The operator may resize a tensor that holds nothing yet.
    c10::Storage storage = tensor.storage().nbytes()
        ? for_the_host(tensor.storage())
        : c10::Storage(c10::Storage::use_byte_size_t(), 0, c10::GetAllocator(c10::kCPU), true);
    at::Tensor host = seen(tensor, std::move(storage), c10::DispatchKey::CPU);
    pairs_.emplace_back(tensor, host);
    return host;
  }

  at::Tensor to_device(const at::Tensor& host) {
    if (!host.defined()) return host;
    for (const auto& [device, other] : pairs_) {
      if (other.is_same(host)) {
        changes_nothing = false;
        return device;
      }
    }
    for (const auto& [device, other] : pairs_) {
      if (other.storage().unsafeGetStorageImpl() == host.storage().unsafeGetStorageImpl()) {
        return seen(host, device.storage(), c10::DispatchKey::CUDA);
      }
    }
    bytes += host.nbytes();
    changes_nothing = false;
    return seen(host, kept(on_the_device(host.storage())), c10::DispatchKey::CUDA);
  }

  std::vector<std::pair<at::Tensor, at::Tensor>> pairs_;
};

void run_on_the_host(const c10::OperatorHandle& op, Stack* stack) {
  check_device();
  const std::string& name = op.schema().name();
  if (rests) device().computed_at_rest.insert(name);
  const size_t count = op.schema().arguments().size();
  Sides sides;
  for (size_t i = stack->size() - count; i < stack->size(); ++i) sides.to_host((*stack)[i]);
  Stack arguments;
  if (capturing()) {
    arguments.assign(stack->end() - count, stack->end());
    check_capture(name, waits(name, arguments) || (name == "aten::copy_" && sides.has_host_tensors));
    for (size_t i = 0; i < count; ++i) {
      const auto* alias = op.schema().arguments()[i].alias_info();
      if (alias && alias->isWrite()) keep_from_change(arguments[i]);
    }
  }
  // The rule of a GPU: tensors of host and device may meet only in copies, or as indices.
  TORCH_CHECK(!sides.has_host_tensors || name == "aten::copy_" || name.rfind("aten::index", 0) == 0,
              "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu! (", name,
              ")");
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  sides.take_over();
  const size_t results = op.schema().returns().size();
  const Stack on_host(stack->end() - results, stack->end());
  for (size_t i = stack->size() - results; i < stack->size(); ++i) sides.to_device((*stack)[i]);
  const bool is_a_view = results && sides.changes_nothing && (*stack)[stack->size() - 1].isTensor();
  if (is_a_view) return;
  const double ns = NS_OF_AN_OPERATOR + sides.bytes / BYTES_PER_NS;
  spend(ns);
  if (capturing()) {
    write_down(op, std::move(arguments), on_host, ns);
  } else {
    note(name, ns);
  }
}

at::Tensor empty(c10::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                 std::optional<at::Device>, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  check_device();
  return kept(at::Tensor(at::detail::empty_generic(
      size, &allocator(), c10::DispatchKeySet(c10::DispatchKey::CUDA), dtype.value_or(at::kFloat), format)));
}

at::Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>) {
  check_device();
  return kept(at::Tensor(at::detail::empty_strided_generic(
      size, stride, &allocator(), c10::DispatchKeySet(c10::DispatchKey::CUDA), dtype.value_or(at::kFloat))));
}

// A copy of a tensor, for copy.deepcopy.
at::Tensor& set_storage(at::Tensor& self, at::Storage source, int64_t offset, c10::IntArrayRef size,
                        c10::IntArrayRef stride) {
  auto* own = self.unsafeGetTensorImpl();
  own->set_storage_keep_dtype(std::move(source));
  own->set_sizes_and_strides(size, stride, offset);
  return self;
}

}  // namespace standin

TORCH_LIBRARY_IMPL(_, CUDA, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&standin::run_on_the_host>()); }

TORCH_LIBRARY_IMPL(aten, CUDA, m) {
  m.impl("empty.memory_format", &standin::empty);
  m.impl("empty_strided", &standin::empty_strided);
  m.impl("set_.source_Storage_storage_offset", &standin::set_storage);
  // PyTorch would look at the device itself, for kernels that only its CUDA library has.
  for (const char* name : {"copy_", "convolution", "convolution_backward"}) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&standin::run_on_the_host>());
  }
}
