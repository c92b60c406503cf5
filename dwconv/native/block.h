// Block: norms, activations and the convolution between them, as one op forward and one backward.
//
//   run_as_one(block, x, w, bias, norms)        in training
//       │  a tensor does not lie as the kernel reads it: nothing, and Python does it
//       ▼
//   DwconvBlock::apply ─► Kernel forward           saves what the kernel of the backward pass reads
//       │                                          running statistics learn of the batch
//   DwconvBlock::backward ─► Kernel backward       or watched_backward, if its result is to be differentiated again
#pragma once

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/_foreach_mul.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <optional>
#include <vector>

#include "kernel.h"
#include "watchers.h"

namespace dwconv {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Optional = std::optional<Tensor>;

struct TunedBlock : torch::CustomClassHolder {
  TunedBlock(
      std::shared_ptr<Kernel> forward,
      std::shared_ptr<Kernel> backward,
      bool has_z,
      bool has_layer_norm,
      pybind11::object watched_backward)
      : forward(std::move(forward)),
        backward(std::move(backward)),
        has_z(has_z),
        has_layer_norm(has_layer_norm),
        watched_backward(std::move(watched_backward)) {}

  std::shared_ptr<Kernel> forward, backward;  // in evaluation `inference`, and none
  bool has_z;             // its results are z, y, and statistics; without a second norm y is what it gives
  bool has_layer_norm;    // it has no statistics, and of what its norm learnt the backward pass reads γ alone
  Held watched_backward;  // (dz, x, [y], w, norms) -> [dx, dw, gradients of norms], on differentiable ops
  std::atomic<int64_t> forwards = 0, backwards = 0;

  bool trains() const { return backward != nullptr; }
};

// One norm of a call: what it learnt in training, and how its running statistics move.
struct NormCall {
  Tensor weight, bias;
  Tensor running_mean, running_var, batches;  // undefined if there are none; `batches` also if the block counts none
  double momentum = 0;
};

// The norms of a block, one or two.
using NormCalls = c10::SmallVector<NormCall, 2>;

// What norms have learnt after a call: the mean and the variance of each, of so many values of a channel.
class Learning {
 public:
  void add(const NormCall& norm, const Tensor& mean, const Tensor& variance, double values) {
    if (is_number(norm.batches, at::kLong) && norm.batches.numel() == 1) {
      *norm.batches.mutable_data_ptr<int64_t>() += 1;
      norm.batches.unsafeGetTensorImpl()->bump_version();
    } else if (norm.batches.defined()) {
      if (!counts_.empty() && counts_[0].is_alias_of(norm.batches)) finish();
      counts_.push_back(norm.batches);
    }
    if (!norm.running_mean.defined()) return;
    const double unbiased = values / (values - 1);
    if (moves(norm.running_mean, mean) && moves(norm.running_var, variance)) {
      move(norm, norm.running_mean, mean, 1.0);
      move(norm, norm.running_var, variance, unbiased);
      return;
    }
    const auto shares = [&norm](const Tensor& each) { return each.is_alias_of(norm.running_mean) || each.is_alias_of(norm.running_var); };
    if (momentum_ != norm.momentum || std::any_of(running_.begin(), running_.end(), shares)) finish();
    momentum_ = norm.momentum;
    running_.insert(running_.end(), {norm.running_var, norm.running_mean});
    means_.push_back(mean);
    variances_.push_back(variance);
    unbiased_.emplace_back(unbiased);
  }

  // All at once: on a GPU each launch takes longer than they do.
  void finish() {
    const at::NoGradGuard no_grad;
    if (!counts_.empty()) at::_foreach_add_(counts_, 1);
    if (!running_.empty()) {
      std::vector<Tensor> towards;
      for (const Tensor& each : at::_foreach_mul(variances_, unbiased_)) towards.insert(towards.end(), {each, means_[towards.size() / 2]});
      at::_foreach_lerp_(running_, towards, momentum_);
    }
    *this = {};
  }

 private:
  std::vector<Tensor> counts_, running_, means_, variances_;
  std::vector<at::Scalar> unbiased_;
  double momentum_ = 0;

  // Plain numbers of a CPU: the dispatcher takes longer than they do.
  static bool is_number(const Tensor& each, at::ScalarType type) {
    return each.defined() && each.is_cpu() && each.scalar_type() == type && each.is_contiguous() && !each.is_inference();
  }

  static bool moves(const Tensor& running, const Tensor& batch) {
    return is_number(running, at::kFloat) && is_number(batch, at::kFloat) && running.numel() == batch.numel();
  }

  // As `lerp_` rounds.
  static void move(const NormCall& norm, const Tensor& running, const Tensor& batch, double scale) {
    float* const to = running.mutable_data_ptr<float>();
    const float* const from = batch.const_data_ptr<float>();
    const auto weight = static_cast<float>(norm.momentum), factor = static_cast<float>(scale);
    for (int64_t i = 0; i < running.numel(); ++i) {
      const float end = scale == 1.0 ? from[i] : from[i] * factor, apart = end - to[i];
      to[i] = weight < 0.5f ? to[i] + weight * apart : end - apart * (1 - weight);
    }
    running.unsafeGetTensorImpl()->bump_version();
  }
};

// What the forward pass is given beside tensors that may have gradients, and what it gives beside z.
struct BlockCall {
  c10::intrusive_ptr<TunedBlock> block;
  std::vector<Tensor> inputs, results;
};

struct DwconvBlock : torch::autograd::Function<DwconvBlock> {
  static Tensor forward(
      AutogradContext* context,
      const Tensor& x,
      const Tensor& w,
      const Optional&,
      const Optional&,
      const Optional&,
      const Optional&,
      BlockCall& call) {
    const int64_t batch = x.size(0);
    const TunedBlock& block = *call.block;
    call.results = block.forward->empty_results(batch);
    block.forward->run(batch, call.inputs, call.results);
    variable_list kept{x};
    if (block.has_z) kept.push_back(call.results[1]);
    kept.push_back(w);
    if (block.has_layer_norm) kept.insert(kept.end(), call.inputs.begin() + 2, call.inputs.end());
    for (size_t norm = 0; !block.has_layer_norm && 2 * norm + 2 < call.inputs.size(); ++norm) {
      for (size_t i = 2 + 2 * norm; i < 4 + 2 * norm; ++i) kept.push_back(call.inputs[i]);
      const size_t mean = 1 + block.has_z + 2 * norm;
      for (size_t i = mean; i < mean + 2; ++i) kept.push_back(call.results[i]);
    }
    context->save_for_backward(std::move(kept));
    context->set_materialize_grads(false);
    context->saved_data["block"] = kept_by_graph(call.block);
    return call.results[0];
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    variable_list found(kInputs);
    if (!gradients[0].defined()) return found;
    auto& block = kept_by_graph<TunedBlock>(context->saved_data["block"]);
    variable_list given = context->get_saved_variables();
    given.insert(given.begin(), gradients[0]);
    variable_list results;
    if (at::GradMode::is_enabled() || somebody_watches_beside_autocast() ||
        !std::all_of(given.begin(), given.end(), is_plain)) {
      results = watched_backward(block, given);
    } else {
      block.backwards += 1;
      if (block.has_layer_norm) {  // of what comes after the weight γ alone
        const Tensor gamma = given[given.size() - 2];
        given.resize(kImagesAndWeight);
        given.push_back(gamma);
      }
      given = block.backward->dense(given);
      results = block.backward->empty_results(given[0].size(0));
      block.backward->run(given[0].size(0), given, results);
    }
    std::move(results.begin(), results.end(), found.begin());
    return found;
  }

 private:
  static constexpr size_t kInputs = 7, kImagesAndWeight = 4;  // dz, x, y, w

  static variable_list watched_backward(const TunedBlock& block, const variable_list& given) {
    const pybind11::gil_scoped_acquire gil;
    return block.watched_backward.get()(given).cast<variable_list>();
  }
};

// -- calls ------------------------------------------------------------------------------------------------------------

// z; undefined if a tensor does not lie as the kernel reads it. Only beside a LayerNorm there may be a bias. Nothing of
// Python is touched.
inline Tensor run_as_one(
    const c10::intrusive_ptr<TunedBlock>& block, const Tensor& x, const Tensor& w, const Optional& bias, const NormCalls& norms) {
  BlockCall call{block, {x, w}, {}};
  if (bias) call.inputs.push_back(*bias);
  for (const NormCall& norm : norms) call.inputs.insert(call.inputs.end(), {norm.weight, norm.bias});
  std::array<Optional, 4> learnt;
  std::copy(call.inputs.begin() + 2, call.inputs.end(), learnt.begin());
  if (!block->forward->reads(call.inputs)) return {};
  block->forwards += 1;
  Tensor z = DwconvBlock::apply(x, w, learnt[0], learnt[1], learnt[2], learnt[3], call);
  if (block->has_layer_norm) return z;
  Learning learning;
  for (size_t i = 0; i < norms.size(); ++i) {
    // The first norm is that of x, if a block has two, or no second one.
    const bool is_of_x = norms.size() == 2 ? i == 0 : !block->has_z;
    const Tensor& of = is_of_x ? x : call.results[0];
    const size_t mean = 1 + block->has_z + 2 * i;
    learning.add(norms[i], call.results[mean], call.results[mean + 1], static_cast<double>(of.numel() / of.size(1)));
  }
  learning.finish();
  return z;
}

// The same in evaluation: norms have the statistics that they have learnt, and a bias comes off the mean of the last.
inline Tensor run_in_evaluation(
    TunedBlock& block, const Tensor& x, const Tensor& w, const Optional& bias, const NormCalls& norms) {
  std::vector<Tensor> inputs{x, w};
  for (const NormCall& norm : norms)
    inputs.insert(inputs.end(), {norm.weight, norm.bias, norm.running_mean, norm.running_var});
  if (bias) inputs[inputs.size() - 2] = inputs[inputs.size() - 2] - *bias;
  if (!block.forward->reads(inputs)) return {};
  block.forwards += 1;
  const std::vector<Tensor> results = block.forward->empty_results(x.size(0));
  block.forward->run(x.size(0), inputs, results);
  return results[0];
}

}  // namespace dwconv
