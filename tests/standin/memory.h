// Memory of the device: this machine's own, but every byte of it is known. Only bytes of an allocation have an address.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Storage.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <mutex>
#include <utility>

namespace standin {

inline c10::Device gpu() { return {c10::DeviceType::CUDA, 0}; }

class Memory {
 public:
  // Raises OutOfMemoryError, as PyTorch's own allocator does.
  void take(const void* start, size_t bytes) {
    std::lock_guard<std::mutex> guard(mutex_);
    TORCH_CHECK_WITH(OutOfMemoryError, !std::exchange(refuses_, false) && used_ + bytes <= total_, "CUDA out of memory. Tried to allocate ", bytes,
                     " bytes. GPU 0 has a total capacity of ", total_, " bytes of which ", total_ - used_, " are free.");
    live_[reinterpret_cast<uintptr_t>(start)] = bytes;
    used_ += bytes;
    peak_ = std::max(peak_, used_);
  }

  void give_back(const void* start) {
    std::lock_guard<std::mutex> guard(mutex_);
    auto found = live_.find(reinterpret_cast<uintptr_t>(start));
    if (found == live_.end()) return;
    used_ -= found->second;
    live_.erase(found);
  }

  // Bytes from an address to the end of the allocation that it is in; 0 if it is in none.
  size_t from(uintptr_t address) {
    std::lock_guard<std::mutex> guard(mutex_);
    auto next = live_.upper_bound(address);
    if (next == live_.begin()) return 0;
    auto [start, bytes] = *std::prev(next);
    return address < start + bytes ? start + bytes - address : 0;
  }

  size_t free_bytes() {
    std::lock_guard<std::mutex> guard(mutex_);
    return total_ - used_;
  }

  // The most that was used at once since the last reset.
  size_t peak() {
    std::lock_guard<std::mutex> guard(mutex_);
    return peak_;
  }

  void reset_peak() {
    std::lock_guard<std::mutex> guard(mutex_);
    peak_ = used_;
  }

  // The next allocation fails.
  void refuse() { refuses_ = true; }

  void set_total(size_t bytes) { total_ = bytes; }
  size_t total() const { return total_; }

 private:
  std::mutex mutex_;
  std::map<uintptr_t, size_t> live_;
  bool refuses_ = false;
  size_t used_ = 0, peak_ = 0, total_ = size_t{1} << 36;
};

inline Memory& memory() {
  static Memory& memory = *new Memory;  // outlives every tensor
  return memory;
}

struct Allocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    if (!bytes) return {nullptr, gpu()};
    void* start = nullptr;
    TORCH_CHECK_WITH(OutOfMemoryError, !posix_memalign(&start, 512, bytes), "CUDA out of memory: ", bytes, " bytes");
    try {
      memory().take(start, bytes);
    } catch (...) {
      free(start);
      throw;
    }
    return {start, start, &give_back, gpu()};
  }

  static void give_back(void* start) {
    memory().give_back(start);
    free(start);
  }

  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }

  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }
};

inline Allocator& allocator() {
  static Allocator allocator;
  return allocator;
}

// The memory of ``storage`` on the other side. It lives as long as either of them.
struct Shared {
  c10::Storage storage;
  void* registered = nullptr;

  ~Shared() {
    if (registered) memory().give_back(registered);
  }

  static void end(void* self) { delete static_cast<Shared*>(self); }
};

inline c10::Storage on_the_host(const c10::Storage& storage) {
  void* start = storage.mutable_data();
  return {c10::Storage::use_byte_size_t(), storage.nbytes(),
          c10::DataPtr(start, new Shared{storage}, &Shared::end, c10::Device(c10::kCPU)), nullptr, false};
}

// The memory of ``storage``, seen by the host. Something else keeps it alive.
inline c10::Storage borrowed_by_the_host(const c10::Storage& storage) {
  return {c10::Storage::use_byte_size_t(), storage.nbytes(), c10::DataPtr(storage.mutable_data(), c10::Device(c10::kCPU)),
          nullptr, false};
}

inline c10::Storage on_the_device(const c10::Storage& storage) {
  void* start = storage.mutable_data();
  if (start) memory().take(start, storage.nbytes());
  return {c10::Storage::use_byte_size_t(), storage.nbytes(),
          c10::DataPtr(start, new Shared{storage, start}, &Shared::end, gpu()), &allocator(), true};
}

}  // namespace standin
