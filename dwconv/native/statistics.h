// Running statistics: how those of a block's norms move towards the statistics of a batch.
//
//   on a CPU                       in loops: the dispatcher takes longer than they do. To the same bits as
//                                  NormCall.learn of call/block_call.py
//   on a GPU, both norms at once   one launch of statistics.cu
//   any others                     PyTorch's ops, together: each launch takes longer than its kernel
#pragma once

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/_foreach_mul.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "kernel.h"

namespace dwconv {

using at::Tensor;

// Of what a norm has its mean and variance in training, as in problems/block.py: of the batch, its running ones, or of
// each image.
enum class Statistics { batch, running, image };

// One norm of a call: its parameters, and how its running statistics move.
struct NormCall {
  Tensor weight, bias;
  Tensor running_mean, running_var, batches;  // undefined if there are none; `batches` also if the block counts none
  double momentum = 0;
};

// The norms of a block, one or two.
using NormCalls = c10::SmallVector<NormCall, 2>;

// A norm for statistics.cu, which has the same.
struct Moving {
  float *mean, *variance;
  const float *of_mean, *of_variance;
  int64_t* batches;
  float momentum, unbiased;
  int64_t channels;
};

// The kernel of statistics.cu on one GPU.
class StatisticsKernel {
 public:
  // `owner` keeps it loaded.
  StatisticsKernel(std::shared_ptr<Driver> driver, int64_t function, pybind11::object owner)
      : driver_(std::move(driver)), function_(function), owner_(std::move(owner)) {}

  void run(c10::Device device, std::array<Moving, 2> norms, unsigned count) const {
    constexpr int64_t kThreads = 128;
    int64_t channels = 0;
    for (unsigned i = 0; i < count; ++i) channels = std::max(channels, norms[i].channels);
    const auto blocks = static_cast<unsigned>((channels + kThreads - 1) / kThreads);
    void* parameters[] = {&norms};
    driver_->queue(device, [&](const auto& launch) { launch(function_, {blocks, count, 1}, {kThreads, 1, 1}, 0, parameters); });
  }

 private:
  std::shared_ptr<Driver> driver_;
  int64_t function_;
  Held owner_;
};

class RunningStatistics {
 public:
  explicit RunningStatistics(const StatisticsKernel* kernel) : kernel_(kernel) {}

  // The mean and the variance of `values` values of each channel.
  void move(const NormCall& norm, const Tensor& mean, const Tensor& variance, double values) {
    const bool has_statistics = norm.running_mean.defined();
    const bool is_simple = has_statistics && is_plain_float(norm.running_mean, mean) && is_plain_float(norm.running_var, variance);
    const double unbiased = values / (values - 1);
    if (is_simple && kernel_ && !mean.is_cpu() && is_count(norm.batches, mean.device())) {
      queue(norm, mean, variance, unbiased);
      return;
    }
    count(norm.batches);
    if (!has_statistics) return;
    if (mean.is_cpu()) {
      const auto& move_one = is_simple ? move_in_loops : move_by_ops;
      move_one(norm.running_mean, mean, norm.momentum, 1.0);
      move_one(norm.running_var, variance, norm.momentum, unbiased);
      return;
    }
    if (momentum_ != norm.momentum || is_waiting(norm)) finish();
    momentum_ = norm.momentum;
    running_.insert(running_.end(), {norm.running_var, norm.running_mean});
    means_.push_back(mean);
    variances_.push_back(variance);
    unbiased_.emplace_back(unbiased);
  }

  void finish() {
    const at::NoGradGuard no_grad;
    if (queued_) kernel_->run(device_, moving_, std::exchange(queued_, 0));
    if (!counts_.empty()) at::_foreach_add_(std::exchange(counts_, {}), 1);
    if (running_.empty()) return;
    std::vector<Tensor> towards;
    for (const Tensor& each : at::_foreach_mul(variances_, unbiased_)) towards.insert(towards.end(), {each, means_[towards.size() / 2]});
    at::_foreach_lerp_(running_, towards, momentum_);
    running_ = means_ = variances_ = {};
    unbiased_ = {};
  }

 private:
  const StatisticsKernel* kernel_;
  std::array<Moving, 2> moving_;
  unsigned queued_ = 0;
  c10::Device device_ = c10::kCPU;
  std::vector<Tensor> counts_, running_, means_, variances_;
  std::vector<at::Scalar> unbiased_;
  double momentum_ = 0;

  static bool is_plain_float(const Tensor& running, const Tensor& batch) {
    return running.defined() && running.scalar_type() == at::kFloat && batch.scalar_type() == at::kFloat &&
        running.device() == batch.device() && running.numel() == batch.numel() && running.is_contiguous() && !running.is_inference();
  }

  // True also of none.
  static bool is_count(const Tensor& batches, c10::Device device) {
    return !batches.defined() ||
        (batches.scalar_type() == at::kLong && batches.numel() == 1 && batches.device() == device && !batches.is_inference());
  }

  // True if statistics of the norm are to be moved with another's.
  bool is_waiting(const NormCall& norm) const {
    return std::any_of(running_.begin(), running_.end(), [&norm](const Tensor& each) {
      return each.is_alias_of(norm.running_mean) || each.is_alias_of(norm.running_var);
    });
  }

  template <class Number>
  static Number* changed(const Tensor& tensor) {
    Number* const data = readable(tensor).mutable_data_ptr<Number>();
    tensor.unsafeGetTensorImpl()->bump_version();
    return data;
  }

  void queue(const NormCall& norm, const Tensor& mean, const Tensor& variance, double unbiased) {
    device_ = mean.device();
    const Moving moving{
        changed<float>(norm.running_mean), changed<float>(norm.running_var), mean.const_data_ptr<float>(),
        variance.const_data_ptr<float>(), norm.batches.defined() ? changed<int64_t>(norm.batches) : nullptr,
        static_cast<float>(norm.momentum), static_cast<float>(unbiased), mean.numel()};
    // Blocks run in any order: norms that share memory take turns.
    const auto is_of_first = [this](const void* memory) {
      return memory && (memory == moving_[0].mean || memory == moving_[0].variance || memory == moving_[0].batches);
    };
    const bool shares = queued_ && (is_of_first(moving.mean) || is_of_first(moving.variance) || is_of_first(moving.batches));
    if (shares || queued_ == moving_.size()) kernel_->run(device_, moving_, std::exchange(queued_, 0));
    moving_[queued_++] = moving;
  }

  void count(const Tensor& batches) {
    if (!batches.defined()) return;
    if (batches.is_cpu() && is_count(batches, c10::kCPU)) {
      ++*changed<int64_t>(batches);
      return;
    }
    if (!counts_.empty() && counts_[0].is_alias_of(batches)) finish();
    counts_.push_back(batches);
  }

  // In double, as PyTorch's norm does, and rounded once. Products are rounded on their own, as those of PyTorch's ops in
  // Python: a compiler may not contract them with the sum.
#ifndef __clang__
  __attribute__((optimize("fp-contract=off")))
#endif
  static void move_in_loops(const Tensor& running, const Tensor& batch, double momentum, double scale) {
#ifdef __clang__
#pragma clang fp contract(off)
#endif
    float* const to = changed<float>(running);
    const float* const from = batch.const_data_ptr<float>();
    for (int64_t i = 0; i < running.numel(); ++i) {
      const double moved = from[i] * scale * momentum, kept = to[i] * (1 - momentum);
      to[i] = static_cast<float>(moved + kept);
    }
  }

  // Statistics that lie otherwise.
  static void move_by_ops(const Tensor& running, const Tensor& batch, double momentum, double scale) {
    const at::NoGradGuard no_grad;
    const Tensor moved = batch.to(at::kDouble).mul_(scale).mul_(momentum);
    running.copy_(moved.add(running.to(at::kDouble).mul_(1 - momentum)));
  }
};

}  // namespace dwconv
