// Block: norms, activations and the convolution between them, as one op forward and one backward.
//
//   run_as_one(block, x, w, bias, norms)        in training
//       │  a tensor does not have the kernel's strides: nothing, and Python does it
//       ▼
//   DwconvBlock::apply ─► Kernel forward           saves what the kernel of the backward pass reads
//       │                                          running statistics are updated
//   DwconvBlock::backward ─► Kernel backward       or watched_backward, if its result is to be differentiated again
#pragma once

#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <optional>
#include <vector>

#include "statistics.h"
#include "watchers.h"

namespace dwconv {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Optional = std::optional<Tensor>;

struct TunedBlock : torch::CustomClassHolder {
  TunedBlock(
      std::shared_ptr<Kernel> forward,
      std::shared_ptr<Kernel> backward,
      bool has_z,
      int64_t kept,
      bool has_layer_norm,
      std::vector<Statistics> norms,
      std::shared_ptr<StatisticsKernel> statistics,
      pybind11::object watched_backward)
      : forward(std::move(forward)),
        backward(std::move(backward)),
        has_z(has_z),
        kept(kept),
        has_layer_norm(has_layer_norm),
        norms(std::move(norms)),
        statistics(std::move(statistics)),
        watched_backward(std::move(watched_backward)) {}

  std::shared_ptr<Kernel> forward, backward;  // in evaluation `inference`, and none
  bool has_z;             // its first result is z, of a second norm; without one y
  int64_t kept;           // which of its results the backward pass reads: 1 is y, beside z; -1: none
  bool has_layer_norm;    // it has no statistics, and of the norm's parameters the backward pass reads γ alone
  std::vector<Statistics> norms;  // of each that is no LayerNorm
  std::shared_ptr<StatisticsKernel> statistics;  // on a GPU; none where it could not be compiled
  Held watched_backward;  // (dz, x, [y], w, norms) -> [dx, dw, gradients of norms], on differentiable ops
  std::atomic<int64_t> forwards = 0, backwards = 0;

  bool trains() const { return backward != nullptr; }
  Statistics statistics_of(size_t norm) const { return norm < norms.size() ? norms[norm] : Statistics::batch; }
  bool keeps_z() const { return has_z && kept == 0; }
  bool reads_image() const { return kept >= 0; }
  size_t first_statistic() const { return kept == 1 ? 2 : 1; }  // among the results
};

// A block, and what graphs keep of it: made once.
struct KnownBlock {
  explicit KnownBlock(c10::intrusive_ptr<TunedBlock> of) : block(std::move(of)), kept(kept_by_graph(block)) {}

  c10::intrusive_ptr<TunedBlock> block;
  Tensor kept;
};

// Arguments of the forward pass besides tensors that may have gradients, and its results besides z.
struct BlockCall {
  const KnownBlock& known;
  std::vector<Tensor> inputs, results;
};

// How often z was changed: it belongs to the caller, and what is kept is an alias.
struct VersionOfZ : c10::intrusive_ptr_target {
  explicit VersionOfZ(const Tensor& z) : counter(z.unsafeGetTensorImpl()->version_counter()), kept(counter.current_version()) {}

  const c10::VariableVersion counter;
  const uint32_t kept;

  bool is_another() const { return counter.current_version() != kept; }
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
    const TunedBlock& block = *call.known.block;
    context->saved_data.reserve(kSaved);
    call.results = block.forward->empty_results_together(batch);
    block.forward->run(batch, call.inputs, call.results);
    variable_list kept{x};
    if (block.keeps_z()) {
      kept.push_back(call.results[0].variable_data());
      context->saved_data["version_of_z"] = kept_by_graph(c10::make_intrusive<VersionOfZ>(call.results[0]));
    } else if (block.reads_image()) {
      kept.push_back(call.results[block.kept]);
    }
    kept.push_back(call.inputs[1]);
    if (!call.inputs[1].is_same(w)) LoweredWeight::keep(w, context);
    if (block.has_layer_norm) kept.insert(kept.end(), call.inputs.begin() + 2, call.inputs.end());
    auto given = call.inputs.begin() + 2, found = call.results.begin() + block.first_statistic();
    const auto keep_two = [&kept](auto& from) {
      kept.insert(kept.end(), from, from + 2);
      from += 2;
    };
    for (const Statistics statistics : block.norms) {
      keep_two(given);  // γ, β
      if (statistics != Statistics::image) keep_two(statistics == Statistics::running ? given : found);
    }
    context->save_for_backward(std::move(kept));
    context->set_materialize_grads(false);
    context->saved_data["block"] = call.known.kept;
    return call.results[0];
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    variable_list found(kInputs);
    if (!gradients[0].defined()) return found;
    auto& block = kept_by_graph<TunedBlock>(context->saved_data["block"]);
    variable_list given = context->get_saved_variables();
    given.insert(given.begin(), gradients[0]);
    variable_list results;
    if (at::GradMode::is_enabled() || is_watched_beside_autocast() ||
        !std::all_of(given.begin(), given.end(), is_plain)) {
      Tensor& w = given[2 + block.reads_image()];  // after dz, x and y
      w = LoweredWeight::of(context, w);
      results = watched_backward(block, given);
    } else {
      block.backwards += 1;
      if (block.has_layer_norm) {  // of what comes after the weight γ alone
        const Tensor gamma = given[given.size() - 2];
        given.resize(kImagesAndWeight);
        given.push_back(gamma);
      }
      if (block.keeps_z() && kept_by_graph<VersionOfZ>(context->saved_data["version_of_z"]).is_another())
        given[2] = z_once_more(block, given);
      given = block.backward->dense(given);
      results = block.backward->empty_results_together(given[0].size(0));
      block.backward->run(given[0].size(0), given, results);
    }
    std::move(results.begin(), results.end(), found.begin());
    return found;
  }

 private:
  static constexpr size_t kInputs = 7, kImagesAndWeight = 4;  // dz, x, y, w

  // From what the backward pass is given: dz, x, z, w, and of each norm, a BatchNorm, γ, β, mean and variance.
  static Tensor z_once_more(const TunedBlock& block, const variable_list& given) {
    variable_list inputs{given[1], given[3]};
    for (size_t norm = 0; norm < block.norms.size(); ++norm) {
      const auto first = given.begin() + 4 + 4 * norm;
      inputs.insert(inputs.end(), first, first + (block.norms[norm] == Statistics::running ? 4 : 2));
    }
    inputs = block.forward->dense(inputs);
    const variable_list results = block.forward->empty_results_together(inputs[0].size(0));
    block.forward->run(inputs[0].size(0), inputs, results);
    return results[0];
  }

  static variable_list watched_backward(const TunedBlock& block, const variable_list& given) {
    const pybind11::gil_scoped_acquire gil;
    return block.watched_backward.get()(given).cast<variable_list>();
  }
};

// -- calls ------------------------------------------------------------------------------------------------------------

// z; undefined if a tensor does not have the strides that the kernel reads. Only beside a LayerNorm there may be a
// bias. Python is not used.
inline Tensor run_as_one(
    const KnownBlock& known, const Tensor& x, const Tensor& w, const Optional& bias, const NormCalls& norms) {
  const c10::intrusive_ptr<TunedBlock>& block = known.block;
  BlockCall call{known, {x, lowered(w, x)}, {}};
  if (bias) call.inputs.push_back(*bias);
  std::array<Optional, 4> learnt;
  auto next = std::copy(call.inputs.begin() + 2, call.inputs.end(), learnt.begin());
  for (size_t i = 0; i < norms.size(); ++i) {
    const NormCall& norm = norms[i];
    call.inputs.insert(call.inputs.end(), {norm.weight, norm.bias});
    *next++ = norm.weight;
    *next++ = norm.bias;
    if (block->statistics_of(i) == Statistics::running)
      call.inputs.insert(call.inputs.end(), {norm.running_mean, norm.running_var});
  }
  if (bias) call.inputs[2] = lowered(*bias, x);
  if (!block->forward->reads(call.inputs)) return {};
  block->forwards += 1;
  Tensor z = DwconvBlock::apply(x, w, learnt[0], learnt[1], learnt[2], learnt[3], call);
  if (block->has_layer_norm) return z;
  RunningStatistics running(block->statistics.get());
  size_t mean = block->first_statistic();
  for (size_t i = 0; i < norms.size(); ++i) {
    if (block->statistics_of(i) != Statistics::batch) continue;
    // The first norm is that of x, if a block has two, or no second one.
    const bool is_of_x = norms.size() == 2 ? i == 0 : !block->has_z;
    const Tensor& of = is_of_x ? x : call.results[0];
    running.move(norms[i], call.results[mean], call.results[mean + 1], static_cast<double>(of.numel() / of.size(1)));
    mean += 2;
  }
  running.finish();
  return z;
}

// A block in evaluation: all norms use their running statistics, and a bias comes off the mean of the last.
inline Tensor run_in_evaluation(
    TunedBlock& block, const Tensor& x, const Tensor& w, const Optional& bias, const NormCalls& norms) {
  std::vector<Tensor> inputs{x, lowered(w, x)};
  for (const NormCall& norm : norms)
    inputs.insert(inputs.end(), {norm.weight, norm.bias, norm.running_mean, norm.running_var});
  if (bias) inputs[inputs.size() - 2] = inputs[inputs.size() - 2].sub(*bias);
  if (!block.forward->reads(inputs)) return {};
  block.forwards += 1;
  const std::vector<Tensor> results = block.forward->empty_results(x.size(0));
  block.forward->run(x.size(0), inputs, results);
  return results[0];
}

}  // namespace dwconv
