// Tensors and shared memory, and which thread wrote and read each element when. That shows accesses out of bounds,
// races and reads of uninitialised memory. Then requests of warps to shared memory: the accesses of the lanes, combined as
// the GPU does, and their cost.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <map>

#include "state.h"

namespace sim {

enum Role : int32_t { INPUT, RESULT, SHARED };

// The last write and the last reads of an element. Zero: never.
struct Cell {
  uint32_t written, read;  // when, on the clock
  uint16_t writer, reader;
  uint16_t other_reader;    // of the same phase
  uint8_t in_flight;        // cp.async has not been waited for
  uint8_t read_by_another;  // block of the launch with this number
};

struct Region {
  char name[40] = "";
  char* base = nullptr;
  size_t bytes = 0;
  unsigned cell_bytes = 4;
  Role role = INPUT;
  Cell* cells = nullptr;
};

// Regions lie so far apart that an index that is wrong, even by millions, hits none of the others.
constexpr int MOST_TENSORS = 24, TENSOR_SHIFT = 34;
constexpr int MOST_SHARED = 32, SHARED_SHIFT = 20;
constexpr unsigned SHARED_CELL = 2;

inline Region tensors[MOST_TENSORS], shared[MOST_SHARED];
inline int tensor_count = 0;
inline char* tensor_arena = nullptr;
inline char* shared_arena = nullptr;
inline uint8_t launch_number = 0;

inline char* reserve(size_t bytes, int protection) {
  void* address = mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return address == MAP_FAILED ? nullptr : (char*)address;
}

inline Cell* make_cells(size_t bytes, unsigned cell_bytes) {
  return (Cell*)reserve((bytes / cell_bytes + 1) * sizeof(Cell), PROT_READ | PROT_WRITE);
}

inline bool open_memory() {
  tensor_arena = reserve(size_t(MOST_TENSORS) << TENSOR_SHIFT, PROT_NONE);
  shared_arena = reserve(size_t(MOST_SHARED) << SHARED_SHIFT, PROT_READ | PROT_WRITE);
  return tensor_arena && shared_arena;
}

inline void close_memory() {
  for (Region& region : tensors)
    if (region.cells) munmap(region.cells, (region.bytes / region.cell_bytes + 1) * sizeof(Cell));
  for (Region& region : shared)
    if (region.cells) munmap(region.cells, ((size_t(1) << SHARED_SHIFT) / SHARED_CELL + 1) * sizeof(Cell));
  for (Region& region : tensors) region = Region();
  for (Region& region : shared) region = Region();
  tensor_count = 0;
  munmap(tensor_arena, size_t(MOST_TENSORS) << TENSOR_SHIFT);
  munmap(shared_arena, size_t(MOST_SHARED) << SHARED_SHIFT);
}

inline char* add_tensor(const char* name, size_t bytes, unsigned cell_bytes, Role role) {
  if (tensor_count == MOST_TENSORS || bytes >= size_t(1) << TENSOR_SHIFT) return nullptr;
  // Half a slot in: memory before a tensor is as empty as memory behind.
  const size_t middle = bytes < size_t(1) << (TENSOR_SHIFT - 1) ? size_t(1) << (TENSOR_SHIFT - 1) : 0;
  Region& region = tensors[tensor_count];
  region.base = tensor_arena + (size_t(tensor_count++) << TENSOR_SHIFT) + middle;
  if (mprotect(region.base, bytes + !bytes, PROT_READ | PROT_WRITE)) return nullptr;
  snprintf(region.name, sizeof(region.name), "%s", name);
  region.bytes = bytes;
  region.cell_bytes = cell_bytes;
  region.role = role;
  region.cells = role == INPUT ? nullptr : make_cells(bytes, cell_bytes);
  return region.base;
}

// The array with this number in the kernel that runs; the same for all threads.
inline char* shared_array(int number, const char* name, size_t bytes) {
  if (number >= MOST_SHARED || bytes > size_t(1) << (SHARED_SHIFT - 1)) return nullptr;
  Region& region = shared[number];
  if (!region.bytes) {
    snprintf(region.name, sizeof(region.name), "%s", name);
    // In the middle of its slot as well; a multiple of 128, so that banks are counted from the start of the array.
    region.base = shared_arena + (size_t(number) << SHARED_SHIFT) + (size_t(1) << (SHARED_SHIFT - 2));
    region.bytes = bytes;
    region.cell_bytes = SHARED_CELL;
    region.role = SHARED;
    if (!region.cells) region.cells = make_cells(size_t(1) << SHARED_SHIFT, SHARED_CELL);
    memset(region.base, 0xFF, bytes);  // NaN in every type
  }
  return region.base;
}

inline void forget_shared() {
  for (Region& region : shared) region.bytes = 0;
}

inline void poison_shared() {
  for (Region& region : shared)
    if (region.bytes) memset(region.base, 0xFF, region.bytes);
}

// The region an address is meant for, in bounds or not; null if it is no memory of the kernel.
inline Region* region_of(const char* address) {
  const size_t in_shared = address - shared_arena, in_tensors = address - tensor_arena;
  if (in_shared < size_t(MOST_SHARED) << SHARED_SHIFT) return &shared[in_shared >> SHARED_SHIFT];
  if (in_tensors < size_t(MOST_TENSORS) << TENSOR_SHIFT) return &tensors[in_tensors >> TENSOR_SHIFT];
  return nullptr;
}

// -- races ------------------------------------------------------------------------------------------------------------

// Is an access that another thread made then certain to be over now?
inline bool over(uint32_t when, unsigned who) {
  if (when < clock_.launch_start) return true;
  if (when < clock_.block_start) return false;  // by another block
  return when < clock_.now || int(who) == thread;
}

inline void say_race(const Region& region, size_t offset, uint64_t place, const char* what, unsigned who,
                     uint32_t when) {
  char text[88];
  const bool elsewhere = when < clock_.block_start;
  snprintf(text, sizeof(text), elsewhere ? "%s of another block, thread %u" : "%s of thread %u, no barrier between",
           what, who);
  report(RACE, region.name, int64_t(offset), place, text);
}

inline void check_write(Region& region, Cell& cell, size_t offset, uint64_t place) {
  if (cell.in_flight) report(IN_FLIGHT, region.name, offset, place, "written before its cp.async was waited for");
  if (cell.written && !over(cell.written, cell.writer))
    say_race(region, offset, place, "written, after a write", cell.writer, cell.written);
  else if (cell.read && !over(cell.read, cell.reader))
    say_race(region, offset, place, "written, after a read", cell.reader, cell.read);
  else if (cell.read == clock_.now && !over(cell.read, cell.other_reader))
    say_race(region, offset, place, "written, after a read", cell.other_reader, cell.read);
  else if (cell.read_by_another == launch_number && region.role != SHARED)
    say_race(region, offset, place, "written, after a read", cell.other_reader, 0);
  cell.written = clock_.now;
  cell.writer = uint16_t(thread);
  cell.in_flight = 0;
}

inline void check_read(Region& region, Cell& cell, size_t offset, uint64_t place) {
  if (cell.in_flight) report(IN_FLIGHT, region.name, offset, place, "read before its cp.async was waited for");
  if (!cell.written) {
    if (region.role == SHARED || !sampled) report(UNINITIALISED, region.name, offset, place, "read, never written");
  } else if (!over(cell.written, cell.writer)) {
    say_race(region, offset, place, "read, after a write", cell.writer, cell.written);
  }
  if (cell.read >= clock_.launch_start && cell.read < clock_.block_start) cell.read_by_another = launch_number;
  if (cell.read != clock_.now)
    cell.other_reader = uint16_t(thread);
  else if (int(cell.reader) != thread)
    cell.other_reader = cell.reader;
  cell.read = clock_.now;
  cell.reader = uint16_t(thread);
}

// Every element of an access; `offset` is in bytes from the region's start.
inline void check(Region& region, size_t offset, unsigned bytes, bool write, uint64_t place) {
  if (!region.cells) return;
  for (size_t at = offset / region.cell_bytes; at <= (offset + bytes - 1) / region.cell_bytes; ++at) {
    Cell& cell = region.cells[at];
    if (region.role == SHARED && cell.written < clock_.block_start && cell.read < clock_.block_start)
      cell = Cell();  // of a block before
    if (write)
      check_write(region, cell, at * region.cell_bytes, place);
    else
      check_read(region, cell, at * region.cell_bytes, place);
  }
}

// One instruction of one warp, on shared memory: its place, iteration and bytes, and a number in case one lane comes by
// again.
using Key = std::array<uint64_t, 4>;

struct Request {
  Key key;
  uint32_t lanes;
  uint64_t address[WARP];
};

class Requests {
 public:
  void add(uint64_t place, uint64_t address, unsigned bytes) {
    const int lane = thread % WARP;
    if (lane != lane_) next_ = 0;
    lane_ = lane;
    for (uint64_t occurrence = 0;; ++occurrence) {
      Request& request = find({place, iteration, bytes, occurrence});
      if (request.lanes >> lane & 1) continue;
      request.lanes |= 1u << lane;
      request.address[lane] = address;
      return;
    }
  }

  void count(Counts& counts) {
    for (const Request& request : requests_) count_one(request, counts);
    requests_.clear();
    positions_.clear();
    lane_ = -1;
  }

 private:
  // Lanes mostly do the same in the same order: look first behind the last request found.
  Request& find(const Key& key) {
    if (next_ < requests_.size() && requests_[next_].key == key) return requests_[next_++];
    const auto [at, is_new] = positions_.try_emplace(key, requests_.size());
    if (is_new) requests_.push_back({key, 0, {}});
    next_ = at->second + 1;
    return requests_[at->second];
  }

  // Shared memory gives each of 32 banks' 4-byte words in a turn: a wavefront. Lanes take part in groups that request
  // 128 bytes; within a group, each bank takes as many turns as there are different words of it wanted.
  static void count_one(const Request& request, Counts& counts) {
    const unsigned bytes = unsigned(request.key[2]);
    const int in_group = WARP / std::max(1, int(bytes) / 4);
    ++counts.requests;
    for (int first = 0; first < WARP; first += in_group) {
      uint64_t words[WARP];
      int count = 0, turns[32] = {}, most = 0;
      for (int lane = first; lane < first + in_group; ++lane) {
        if (!(request.lanes >> lane & 1)) continue;
        for (unsigned byte = 0; byte < bytes; byte += 4) words[count++] = (request.address[lane] + byte) / 4;
      }
      if (!count) continue;
      std::sort(words, words + count);
      count = int(std::unique(words, words + count) - words);
      for (int i = 0; i < count; ++i) most = std::max(most, ++turns[words[i] % 32]);
      counts.wavefronts += most;
      ++counts.ideal;
    }
  }

  std::vector<Request> requests_;
  std::map<Key, size_t> positions_;  // in requests_
  int lane_ = -1;
  size_t next_ = 0;
};

inline Requests requests;
inline bool counting = false;

}  // namespace sim
