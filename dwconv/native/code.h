// Code: what a kernel runs as, on a batch and the addresses of its tensors: machine code of this CPU, or launches.
#pragma once

#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/utils/pybind.h>

#include <array>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

namespace dwconv {

// A number, or what follows the batch: ceil(batch * times / over).
struct Size {
  int64_t times;
  int64_t over;  // 0: the number is `times`

  int64_t at(int64_t batch) const { return over ? (batch * times + over - 1) / over : times; }
};

// A Python object that any thread may release, with the interpreter's lock or without.
class Held {
 public:
  explicit Held(pybind11::object object) : object_(std::move(object)) {}
  Held(Held&&) = default;
  ~Held() {
    if (!object_) return;
    if (!Py_IsInitialized()) {
      object_.release();  // the interpreter is gone, and so is the object
      return;
    }
    pybind11::gil_scoped_acquire gil;
    object_ = pybind11::object();
  }
  const pybind11::object& get() const { return object_; }

 private:
  pybind11::object object_;
};

struct Code {
  virtual ~Code() = default;
  // Where every tensor must start; 0: at a multiple of its elements' size.
  virtual uintptr_t alignment() const = 0;
  virtual void run(int64_t batch, c10::Device device, c10::ArrayRef<void*> addresses) const = 0;
};

class MachineCode final : public Code {
 public:
  using Entry = int32_t (*)(int64_t batch, void* const* addresses);

  // `owner` keeps what is at `entry` in memory. `sizes`: what a kernel of any size takes behind the addresses.
  MachineCode(int64_t entry, pybind11::object owner, std::vector<int64_t> sizes)
      : entry_(reinterpret_cast<Entry>(entry)), owner_(std::move(owner)), sizes_(std::move(sizes)) {}

  uintptr_t alignment() const override { return 0; }
  void run(int64_t batch, c10::Device, c10::ArrayRef<void*> addresses) const override {
    c10::SmallVector<void*, 16> given(addresses.begin(), addresses.end());
    for (const int64_t size : sizes_) given.push_back(reinterpret_cast<void*>(size));
    TORCH_CHECK(entry_(batch, given.data()) == 0, "the kernel failed");
  }

 private:
  Entry entry_;
  Held owner_;
  std::vector<int64_t> sizes_;
};

// One kernel of a GPU.
struct Launch {
  struct Argument {
    int64_t position;  // of an address; -1 for `size`
    Size size;
  };
  int64_t function;
  std::array<Size, 3> grid;
  std::array<unsigned, 3> block;
  unsigned shared_bytes;
  std::vector<Argument> arguments;
};

// The driver of one GPU. Nothing of CUDA is needed to compile this: Python finds the driver's functions, loads kernels,
// and has the driver's handle of a stream.
class Driver {
 public:
  using GetContext = int (*)(void** context);
  using SetContext = int (*)(void* context);
  using LaunchKernel = int (*)(
      void* function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned shared_bytes, void* stream,
      void** parameters, void** extra);
  using Dimensions = std::array<unsigned, 3>;

  // `raw_stream()` is the driver's handle of the current stream.
  Driver(int64_t get_context, int64_t set_context, int64_t launch_kernel, int64_t context, pybind11::object raw_stream)
      : get_context_(reinterpret_cast<GetContext>(get_context)),
        set_context_(reinterpret_cast<SetContext>(set_context)),
        launch_kernel_(reinterpret_cast<LaunchKernel>(launch_kernel)),
        context_(reinterpret_cast<void*>(context)),
        raw_stream_(std::move(raw_stream)) {}

  // `work(launch)` queues its launches, in order, on PyTorch's current stream:
  // launch(function, grid, block, shared_bytes, parameters).
  template <class Work>
  void queue(c10::Device device, const Work& work) const {
    const c10::OptionalDeviceGuard guard(device);
    void* const stream = current_stream(device);
    void* before = nullptr;  // the thread's context: another library's, or none yet in a thread of autograd
    int status = get_context_(&before);
    const bool is_other = before != context_;
    if (status == 0 && is_other) status = set_context_(context_);
    work([&](int64_t function, const Dimensions& grid, const Dimensions& block, unsigned shared_bytes, void** parameters) {
      if (status == 0)
        status = launch_kernel_(
            reinterpret_cast<void*>(function), grid[0], grid[1], grid[2], block[0], block[1], block[2], shared_bytes, stream,
            parameters, nullptr);
    });
    if (is_other) set_context_(before);
    TORCH_CHECK(status == 0, "the CUDA driver refused a launch: error ", status);
  }

 private:
  void* current_stream(c10::Device device) const {
    const c10::Stream stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      const auto known = streams_.find(stream.id());
      if (known != streams_.end()) return known->second;
    }
    void* raw;
    {
      const pybind11::gil_scoped_acquire gil;  // never with the mutex: that could deadlock
      raw = reinterpret_cast<void*>(raw_stream_.get()().cast<int64_t>());
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    streams_.emplace(stream.id(), raw);
    return raw;
  }

  GetContext get_context_;
  SetContext set_context_;
  LaunchKernel launch_kernel_;
  void* context_;
  Held raw_stream_;
  mutable std::mutex mutex_;
  mutable std::unordered_map<c10::StreamId, void*> streams_;
};

// Kernels of a GPU, launched in order.
class Launches final : public Code {
 public:
  // `owner` keeps the kernels loaded.
  Launches(std::shared_ptr<Driver> driver, std::vector<Launch> launches, pybind11::object owner)
      : driver_(std::move(driver)), launches_(std::move(launches)), owner_(std::move(owner)) {}

  uintptr_t alignment() const override { return 16; }

  void run(int64_t batch, c10::Device device, c10::ArrayRef<void*> addresses) const override {
    if (batch == 0) return;
    driver_->queue(device, [&](const auto& queue) {
      for (const auto& launch : launches_) {
        c10::SmallVector<int64_t, 4> sizes;
        sizes.reserve(launch.arguments.size());
        c10::SmallVector<void*, 12> parameters;
        for (const auto& argument : launch.arguments) {
          if (argument.position < 0) {
            sizes.push_back(argument.size.at(batch));  // the lower half of it, where the kernel takes 32 bits
            parameters.push_back(&sizes.back());
          } else {
            parameters.push_back(const_cast<void**>(addresses.data() + argument.position));
          }
        }
        const auto grid = [&](int axis) { return static_cast<unsigned>(launch.grid[axis].at(batch)); };
        queue(launch.function, {grid(0), grid(1), grid(2)}, launch.block, launch.shared_bytes, parameters.data());
      }
    });
  }

 private:
  std::shared_ptr<Driver> driver_;
  std::vector<Launch> launches_;
  Held owner_;
};

}  // namespace dwconv
