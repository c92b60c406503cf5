// Running statistics of one norm or two move towards those of a batch, as torch.lerp moves them. A thread has a channel.

struct Moving {  // as statistics.h has it
  float *mean, *variance;
  const float *of_mean, *of_variance;
  long long* batches;
  float momentum, unbiased;
  long long channels;
};

struct Norms {
  Moving each[2];
};

__device__ void lerp(float& from, float to, float weight) {
  from = weight < 0.5f ? from + weight * (to - from) : to - (to - from) * (1.0f - weight);
}

extern "C" __global__ void move_statistics(const Norms norms) {
  const Moving& norm = norms.each[blockIdx.y];
  const long long channel = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (channel == 0 && norm.batches) ++*norm.batches;
  if (channel >= norm.channels) return;
  lerp(norm.mean[channel], norm.of_mean[channel], norm.momentum);
  lerp(norm.variance[channel], norm.of_variance[channel] * norm.unbiased, norm.momentum);
}
