// Runs kernels that were compiled with kernel.h: what they call, the hooks that g++ puts before every access, and what
// Python calls.

#include <dlfcn.h>

#include "fibers.h"

using namespace sim;

// -- an access --------------------------------------------------------------------------------------------------------

namespace {

bool own_data(const void* address) {
  Dl_info of_address, of_runtime;
  return dladdr(address, &of_address) && dladdr((void*)&own_data, &of_runtime) &&
         of_address.dli_fbase == of_runtime.dli_fbase;
}

void access(const void* address, unsigned bytes, bool write, void* code) {
  const char* const at = (const char*)address;
  if (!running || on_stack(at)) return;
  const uint64_t place = (uint64_t)code;
  Region* const region = region_of(at);
  if (!region) {
    if (own_data(at)) return;
    report(OUT_OF_BOUNDS, "unknown memory", 0, place, write ? "write" : "read");
    stop();
  }
  const int64_t offset = at - region->base;
  if (offset < 0 || size_t(offset) + bytes > region->bytes) {
    char text[88];
    snprintf(text, sizeof(text), "%s of %u bytes; there are %zu", write ? "write" : "read", bytes, region->bytes);
    report(OUT_OF_BOUNDS, region->name, offset, place, text);
    stop();
  }
  if (uint64_t(at) % bytes) {
    char text[88];
    snprintf(text, sizeof(text), "%s of %u bytes at no multiple of %u", write ? "write" : "read", bytes, bytes);
    report(MISALIGNED, region->name, offset, place, text);
    stop();
  }
  if (!watched) return;
  if (write && region->role == INPUT) report(INPUT_CHANGED, region->name, offset, place, "write");
  check(*region, offset, bytes, write, place);
  if (counting && region->role == SHARED) requests.add(place, uint64_t(at), bytes);
}

void complete(std::vector<Copy>& group) {
  for (const Copy& copy : group) {
    memset(copy.to, 0, copy.bytes);
    memcpy(copy.to, copy.from, copy.valid_bytes);
    Region& region = *region_of(copy.to);
    const size_t offset = copy.to - region.base;
    for (size_t at = offset / SHARED_CELL; at < (offset + copy.bytes) / SHARED_CELL; ++at) {
      Cell& cell = region.cells[at];
      cell.in_flight = 0;
      cell.written = clock_.now;
      cell.writer = uint16_t(thread);
    }
  }
}

}  // namespace

#define HERE __builtin_return_address(0)
#define HOOKS(bytes)                                                                             \
  extern "C" void __tsan_read##bytes(void* a) { access(a, bytes, false, HERE); }                 \
  extern "C" void __tsan_write##bytes(void* a) { access(a, bytes, true, HERE); }                 \
  extern "C" void __tsan_unaligned_read##bytes(void* a) { access(a, bytes, false, HERE); }       \
  extern "C" void __tsan_unaligned_write##bytes(void* a) { access(a, bytes, true, HERE); }
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)

extern "C" {

// As kernel.h has them: sim_matrices and sim_tile.
struct PartsOfMatrices {
  unsigned part[PARTS];
};
struct PartsOfTile {
  float part[PARTS];
};

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void*, void*) {}
void __tsan_vptr_read(void*) {}

// An array of its own, where g++ knows its length.
void __ubsan_handle_out_of_bounds(void*, void* index) {
  report(OUT_OF_BOUNDS, "a local array", int64_t(index), (uint64_t)HERE, "index");
  if (running) stop();
}

// -- what kernels call ------------------------------------------------------------------------------------------------

unsigned long long sim_argument(int number) { return arguments[number]; }

Index sim_thread_index() { return index_of(thread, block_size); }
Index sim_block_index() { return block_at; }
Index sim_block_size() { return block_size; }
Index sim_grid_size() { return grid; }

void* sim_shared(int number, const char* name, unsigned long bytes) {
  if (number == 0 && !shared[0].bytes) {
    report(OUT_OF_BOUNDS, name, 0, 0, "the launch asks for no dynamic shared memory");
    stop();
  }
  char* const base = number == 0 ? shared[0].base : shared_array(number, name, bytes);
  if (base) return base;
  report(OUT_OF_BOUNDS, name, int64_t(bytes), 0, "more shared memory than can be simulated");
  stop();
}

unsigned sim_shared_offset(const void* address) { return unsigned((const char*)address - shared_arena); }

void sim_enter_iteration(unsigned long long number) {
  Fiber& fiber = fibers[thread];
  fiber.outer[fiber.depth++ % MOST_LOOPS] = iteration;
  iteration = (iteration + number + 1) * 0x9E3779B97F4A7C15u;
}
void sim_leave_iteration() {
  Fiber& fiber = fibers[thread];
  iteration = fiber.outer[--fiber.depth % MOST_LOOPS];
}

void sim_barrier(int line) { wait_as(AT_BARRIER, line); }

// Threads that load no row of their own take part, too. A row is a vector of 16 bytes: those of a matrix make one turn
// of shared memory if no two are in one bank.
PartsOfMatrices sim_load_matrices(int count, int transposed, unsigned address) {
  Fiber& fiber = fibers[thread];
  Matrices& own = fiber.matrices;
  own.count = count;
  own.transposed = transposed;
  if (thread % WARP < 8 * count) {
    const char* const row = shared_arena + address;
    access(row, sizeof(own.row), false, HERE);
    memcpy(own.row, row, sizeof(own.row));
  }
  own.multiplies = false;
  fiber.place = (uint64_t)HERE;
  wait_as(AT_MATRICES);
  PartsOfMatrices taken;
  memcpy(taken.part, fiber.matrices.loaded, sizeof(taken.part));
  return taken;
}

PartsOfTile sim_multiply(int depth, int brain, PartsOfMatrices a, PartsOfMatrices b, PartsOfTile c) {
  Fiber& fiber = fibers[thread];
  Matrices& own = fiber.matrices;
  own.depth = depth;
  own.brain = brain;
  memcpy(own.a, a.part, sizeof(own.a));
  memcpy(own.b, b.part, sizeof(own.b));
  memcpy(own.c, c.part, sizeof(own.c));
  own.multiplies = true;
  fiber.place = (uint64_t)HERE;
  wait_as(AT_MATRICES);
  memcpy(c.part, fiber.matrices.c, sizeof(c.part));
  return c;
}

void sim_copy_async(unsigned to, const void* from, unsigned bytes, unsigned valid_bytes, int issued) {
  char* const target = shared_arena + to;
  Fiber& fiber = fibers[thread];
  if (!issued) return;
  if (fiber.groups.empty()) fiber.groups.emplace_back();
  if (valid_bytes) access(from, valid_bytes, false, HERE);
  access(target, bytes, true, HERE);
  memset(target, 0xFF, bytes);
  Region& region = *region_of(target);
  const size_t offset = target - region.base;
  for (size_t at = offset / SHARED_CELL; at < (offset + bytes) / SHARED_CELL; ++at) region.cells[at].in_flight = 1;
  fiber.groups.back().push_back({target, (const char*)from, bytes, valid_bytes});
}

void sim_commit_group() {
  Fiber& fiber = fibers[thread];
  if (fiber.groups.empty()) fiber.groups.emplace_back();
  fiber.groups.emplace_back();
}

void sim_wait_group(unsigned most_left) {
  std::vector<std::vector<Copy>>& groups = fibers[thread].groups;
  while (groups.size() > most_left + 1) {
    complete(groups.front());
    groups.erase(groups.begin());
  }
}

// -- what Python calls ------------------------------------------------------------------------------------------------

int sim_open() {
  found = Found();
  clock_ = Clock();
  launch_number = 0;
  sampled = false;
  fibers.assign(MOST_THREADS, Fiber());
  return open_memory() && open_stacks() ? 0 : 1;
}

void sim_close() {
  close_memory();
  close_stacks();
}

void* sim_tensor(const char* name, unsigned long bytes, unsigned cell_bytes, int role) {
  return add_tensor(name, bytes, cell_bytes, Role(role));
}

// Launch: run all blocks (most_run 0) or some of them, spread over the grid, and count the requests of some. Accesses
// that are not watched are kept in bounds, no more. 1 if it had to stop.
int sim_launch(void (*function)(), const unsigned long long* values, const int* sizes,
               unsigned long dynamic_bytes, long most_run, long most_counted, int watch) {
  grid = {unsigned(sizes[0]), unsigned(sizes[1]), unsigned(sizes[2])};
  block_size = {unsigned(sizes[3]), unsigned(sizes[4]), unsigned(sizes[5])};
  kernel = function;
  arguments = values;
  const long blocks = long(grid.x) * grid.y * grid.z;
  const long run = most_run && most_run < blocks ? most_run : blocks;
  const long counts = !watch ? 0 : std::min(run, most_counted);
  sampled |= run < blocks;
  watched = watch;
  ++clock_.now;
  clock_.launch_start = clock_.now;
  ++launch_number;
  forget_shared();
  if (dynamic_bytes) shared_array(0, "dynamic shared memory", dynamic_bytes);
  stopped = false;
  running = true;
  for (long i = 0, counted = 0; i < run && !stopped; ++i) {
    counting = counted < counts && i == (counts == 1 ? 0 : counted * (run - 1) / (counts - 1));
    counted += counting;
    found.counts.blocks += counting;
    run_block(run == 1 ? 0 : long((__int128)i * (blocks - 1) / (run - 1)));
  }
  running = false;
  return stopped;
}

const Found* sim_found() { return &found; }

// The address at which this object was loaded; places in the code are relative to it.
void* sim_base() {
  Dl_info info;
  return dladdr((void*)&own_data, &info) ? info.dli_fbase : nullptr;
}
}
