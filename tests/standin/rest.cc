// The device at rest: nothing is computed, so that a clock sees what the host does for a call. See rest.py.
//
//   an operator on cuda:0 ──► its results, of the right sizes and strides, with any numbers in them
//   a convolution         ──► PyTorch's own code as far as cuDNN, which is not here: its results, at once
//   memory                ──► from lists of what was given back, as PyTorch's allocator for CUDA has them
//
// So PyTorch's operators take less here than on a GPU, by cuDNN, the set-up of each kernel, and launches.
#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/ConvUtils.h>
#include <ATen/ops/convolution_backward_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/convolution_compositeexplicitautograd_dispatch.h>
#include <torch/library.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace standin {
namespace {

using torch::jit::Stack;

// -- memory -----------------------------------------------------------------------------------------------------------

constexpr size_t kUnit = 512;  // of PyTorch's allocator; before each allocation one for its size
std::atomic<uint64_t> allocations{0}, kernels{0};  // the latter of PyTorch, at least one an operator

struct Lists {
  std::mutex mutex;
  std::unordered_map<size_t, std::vector<void*>> free;
};

Lists& lists() {
  static Lists& lists = *new Lists;  // outlives every tensor
  return lists;
}

void give_back(void* start) {
  Lists& all = lists();
  const std::lock_guard<std::mutex> guard(all.mutex);
  all.free[*reinterpret_cast<size_t*>(static_cast<char*>(start) - kUnit)].push_back(start);
}

struct Allocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    const c10::Device gpu(c10::DeviceType::CUDA, 0);
    if (!bytes) return {nullptr, gpu};
    ++allocations;
    const size_t size = (bytes + kUnit - 1) / kUnit * kUnit;
    void* start = nullptr;
    {
      Lists& all = lists();
      const std::lock_guard<std::mutex> guard(all.mutex);
      auto& some = all.free[size];
      if (!some.empty()) {
        start = some.back();
        some.pop_back();
      }
    }
    if (!start) {
      void* block = nullptr;
      TORCH_CHECK(!posix_memalign(&block, kUnit, kUnit + size), "no memory for ", bytes, " bytes");
      *static_cast<size_t*>(block) = size;
      start = static_cast<char*>(block) + kUnit;
    }
    return {start, start, &give_back, gpu};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }
};

Allocator& allocator() {
  static Allocator allocator;
  return allocator;
}

constexpr c10::DispatchKeySet kCuda(c10::DispatchKey::CUDA);

at::Tensor empty(c10::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                 std::optional<at::Device>, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(size, &allocator(), kCuda, dtype.value_or(at::kFloat), format);
}

at::Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(size, stride, &allocator(), kCuda, dtype.value_or(at::kFloat));
}

at::Tensor empty_as(const at::Tensor& like) {
  return at::detail::empty_strided_generic(like.sizes(), like.strides(), &allocator(), kCuda, like.scalar_type());
}

at::Tensor empty_floats(int64_t count) {
  return at::detail::empty_generic({count}, &allocator(), kCuda, at::kFloat, std::nullopt);
}

// -- operators --------------------------------------------------------------------------------------------------------

// One whose only result is like its first tensor, or is that tensor.
void like_first(const c10::OperatorHandle& op, Stack* stack) {
  const c10::FunctionSchema& schema = op.schema();
  const size_t count = schema.arguments().size();
  ++kernels;
  at::Tensor first = (*stack)[stack->size() - count].toTensor();
  if (!schema.returns()[0].alias_info()) first = empty_as(first);
  torch::jit::drop(*stack, count);
  stack->emplace_back(std::move(first));
}

at::Tensor cudnn_convolution(const at::Tensor& x, const at::Tensor& w, at::IntArrayRef padding, at::IntArrayRef stride,
                             at::IntArrayRef dilation, int64_t, bool, bool, bool) {
  ++kernels;
  const auto sizes = at::native::conv_output_size(x.sizes(), w.sizes(), padding, stride, dilation);
  return at::detail::empty_generic(sizes, &allocator(), kCuda, x.scalar_type(), x.suggest_memory_format());
}

std::tuple<at::Tensor, at::Tensor> cudnn_gradients(
    const at::Tensor& x, const at::Tensor&, const at::Tensor& w, at::IntArrayRef, at::IntArrayRef, at::IntArrayRef,
    int64_t, bool, bool, bool, std::array<bool, 2> wanted) {
  kernels += wanted[0] + wanted[1];
  return {wanted[0] ? empty_as(x) : at::Tensor(), wanted[1] ? empty_as(w) : at::Tensor()};
}

using MaybeTensor = std::optional<at::Tensor>;

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> cudnn_batch_norm(
    const at::Tensor& x, const at::Tensor&, const MaybeTensor&, const MaybeTensor&, const MaybeTensor&, bool, double,
    double) {
  ++kernels;
  return {empty_as(x), empty_floats(x.size(1)), empty_floats(x.size(1)), empty_floats(1)};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> cudnn_batch_norm_gradients(
    const at::Tensor& x, const at::Tensor&, const at::Tensor&, const MaybeTensor&, const MaybeTensor&,
    const MaybeTensor&, const MaybeTensor&, double, const at::Tensor&) {
  ++kernels;
  return {empty_as(x), empty_floats(x.size(1)), empty_floats(x.size(1))};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> batch_norm(
    const at::Tensor& x, const MaybeTensor&, const MaybeTensor&, const MaybeTensor&, const MaybeTensor&, bool, double,
    double) {
  ++kernels;
  return {empty_as(x), empty_floats(x.size(1)), empty_floats(x.size(1))};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> batch_norm_gradients(
    const at::Tensor&, const at::Tensor& x, const MaybeTensor&, const MaybeTensor&, const MaybeTensor&,
    const MaybeTensor&, const MaybeTensor&, bool, double, std::array<bool, 3>) {
  ++kernels;
  return {empty_as(x), empty_floats(x.size(1)), empty_floats(x.size(1))};
}

std::unique_ptr<torch::Library> resting;

void replace_operators(std::unique_ptr<torch::Library>& library) {
  struct Silent final : c10::WarningHandler {
    void process(const c10::Warning&) override {}
  } silent;
  const c10::WarningUtils::WarningHandlerGuard guard(&silent);
  library = std::make_unique<torch::Library>(torch::Library::IMPL, "aten", c10::DispatchKey::CUDA, __FILE__, __LINE__);
  library->impl("empty.memory_format", &empty);
  library->impl("empty_strided", &empty_strided);
  library->impl("convolution", &at::compositeexplicitautograd::convolution);
  library->impl("convolution_backward", &at::compositeexplicitautograd::convolution_backward);
  library->impl("cudnn_convolution", &cudnn_convolution);
  library->impl("cudnn_batch_norm", &cudnn_batch_norm);
  library->impl("cudnn_batch_norm_backward", &cudnn_batch_norm_gradients);
  library->impl("native_batch_norm", &batch_norm);
  library->impl("native_batch_norm_backward", &batch_norm_gradients);
  for (const char* name : {"copy_", "add_.Tensor", "hardtanh", "hardtanh_", "hardtanh_backward", "relu", "relu_",
                           "threshold_backward", "silu", "silu_", "silu_backward", "mul.Tensor", "lerp_.Scalar"}) {
    library->impl(name, torch::CppFunction::makeFromBoxedFunction<&like_first>());
  }
}

}  // namespace
}  // namespace standin

// -- for Python, through ctypes -----------------------------------------------------------------------------------------

extern "C" {

void standin_begin_rest() {
  at::native::cudnn_convolution_backward_stub.set_cuda_dispatch_ptr(&standin::cudnn_gradients);
  standin::replace_operators(standin::resting);
}

void standin_end_rest() { standin::resting.reset(); }

uint64_t standin_allocations() { return standin::allocations; }
uint64_t standin_kernels_of_pytorch() { return standin::kernels; }
}
