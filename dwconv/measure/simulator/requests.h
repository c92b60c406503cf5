// Memory requests of warps: the accesses of the lanes, combined as the GPU does, and their cost.
#pragma once

#include <algorithm>

#include "memory.h"

namespace sim {

// One instruction of one warp.
struct Request {
  uint64_t place, iteration;
  uint32_t occurrence;  // in case one lane comes by again
  uint32_t lanes;
  uint8_t bytes;
  bool write, is_shared;
  uint64_t address[WARP];
};

class Requests {
 public:
  void add(uint64_t place, uint64_t address, unsigned bytes, bool write, bool is_shared) {
    const int lane = thread % WARP;
    if (lane != lane_) {
      lane_ = lane;
      next_ = 0;
    }
    for (uint32_t occurrence = 0;; ++occurrence) {
      Request& request = find(place, occurrence, bytes, write, is_shared);
      if (request.lanes >> lane & 1) continue;
      request.lanes |= 1u << lane;
      request.address[lane] = address;
      return;
    }
  }

  void count(Counts& counts) {
    for (const Request& request : requests_) {
      if (request.is_shared)
        count_shared(request, counts);
      else
        count_global(request, counts);
    }
    requests_.clear();
    std::fill(table_.begin(), table_.end(), 0);
    lane_ = -1;
    next_ = 0;
  }

 private:
  // Lanes mostly do the same in the same order: look first behind the last request found.
  Request& find(uint64_t place, uint32_t occurrence, unsigned bytes, bool write, bool is_shared) {
    const auto fits = [&](const Request& r) {
      return r.place == place && r.iteration == iteration && r.occurrence == occurrence && r.is_shared == is_shared &&
             r.write == write && r.bytes == bytes;
    };
    if (next_ < requests_.size() && fits(requests_[next_])) return requests_[next_++];
    if (requests_.size() * 2 >= table_.size()) grow();
    size_t slot = start(place, iteration, occurrence);
    for (; table_[slot]; slot = (slot + 1) % table_.size()) {
      if (!fits(requests_[table_[slot] - 1])) continue;
      next_ = table_[slot];
      return requests_[next_ - 1];
    }
    requests_.push_back({place, iteration, occurrence, 0, uint8_t(bytes), write, is_shared, {}});
    table_[slot] = uint32_t(requests_.size());
    next_ = requests_.size();
    return requests_.back();
  }

  size_t start(uint64_t place, uint64_t at, uint32_t occurrence) const {
    const uint64_t mixed = (place * 0x9E3779B97F4A7C15u) ^ (at * 0xC2B2AE3D27D4EB4Fu) ^ occurrence * 0x165667B19E3779F9u;
    return (mixed ^ mixed >> 29) % table_.size();
  }

  void grow() {
    table_.assign(std::max<size_t>(1024, table_.size() * 4), 0);
    for (size_t i = 0; i < requests_.size(); ++i) {
      size_t slot = start(requests_[i].place, requests_[i].iteration, requests_[i].occurrence);
      while (table_[slot]) slot = (slot + 1) % table_.size();
      table_[slot] = uint32_t(i + 1);
    }
  }

  // Shared memory gives each of 32 banks' 4-byte words in a turn: a wavefront. Lanes take part in groups that ask for
  // 128 bytes; within a group, each bank takes as many turns as there are different words of it wanted.
  static void count_shared(const Request& request, Counts& counts) {
    const int in_group = WARP / std::max(1, request.bytes / 4);
    ++counts.shared_requests;
    for (int first = 0; first < WARP; first += in_group) {
      uint64_t words[WARP];
      int count = 0, turns[32] = {}, most = 0;
      for (int lane = first; lane < first + in_group; ++lane) {
        if (!(request.lanes >> lane & 1)) continue;
        for (unsigned byte = 0; byte < request.bytes; byte += 4) words[count++] = (request.address[lane] + byte) / 4;
      }
      if (!count) continue;
      std::sort(words, words + count);
      count = int(std::unique(words, words + count) - words);
      for (int i = 0; i < count; ++i) most = std::max(most, ++turns[words[i] % 32]);
      counts.shared_wavefronts += most;
      ++counts.shared_ideal;
    }
  }

  // Global memory is read and written in sectors of 32 bytes.
  static void count_global(const Request& request, Counts& counts) {
    uint64_t sectors[2 * WARP], starts[WARP];
    int count = 0, lanes = 0;
    for (int lane = 0; lane < WARP; ++lane) {
      if (!(request.lanes >> lane & 1)) continue;
      starts[lanes++] = request.address[lane];
      sectors[count++] = request.address[lane] / 32;
      sectors[count++] = (request.address[lane] + request.bytes - 1) / 32;
    }
    std::sort(sectors, sectors + count);
    std::sort(starts, starts + lanes);
    const int64_t touched = std::unique(sectors, sectors + count) - sectors;
    const int64_t wanted = (std::unique(starts, starts + lanes) - starts) * request.bytes;
    (request.write ? counts.store_requests : counts.load_requests) += 1;
    (request.write ? counts.store_sectors : counts.load_sectors) += touched;
    (request.write ? counts.store_ideal : counts.load_ideal) += (wanted + 31) / 32;
  }

  std::vector<Request> requests_;
  std::vector<uint32_t> table_ = std::vector<uint32_t>(1024);  // positions in requests_, from 1
  int lane_ = -1;
  size_t next_ = 0;
};

inline Requests requests;
inline bool counting = false;

}  // namespace sim
