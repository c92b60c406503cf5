// A libcuda.so.1 that keeps to the rules of the real one, and hands every launch to whoever computes it.
//
// It checks that the driver was initialised, that the thread has a context and the module is of that context, the
// limits on grids and blocks, that shared memory beyond 48 KB was requested, and that nothing is loaded or waited for
// while a graph is captured. After an error that ends a context (CUDA_ERROR_ILLEGAL_ADDRESS) every call fails, as long
// as the process lives.
//
// It has the calls that dwconv makes, and those that TVM's runtime is linked with. See __init__.py.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  SUCCESS = 0, INVALID_VALUE = 1, NOT_INITIALIZED = 3, INVALID_DEVICE = 101, INVALID_IMAGE = 200, INVALID_CONTEXT = 201,
  INVALID_HANDLE = 400, NOT_FOUND = 500, NOT_SUPPORTED = 801, LAUNCH_OUT_OF_RESOURCES = 701,
  CAPTURE_UNSUPPORTED = 900,
};
enum { MAX_DYNAMIC_SHARED_SIZE_BYTES = 8, STATIC_LIMIT = 48 << 10, SHARED_LIMIT = 227 << 10, THREADS_LIMIT = 1024 };

typedef struct {
  unsigned char* image;
  uint64_t bytes;
  void* context;
  int loaded;
} Module;

typedef struct {
  Module* module;
  char name[256];
  int dynamic_shared;
} Function;

typedef struct {
  const unsigned char* image;
  uint64_t image_bytes;
  const char* kernel;
  uint32_t grid[3], block[3];
  uint32_t shared_bytes, shared_allowed;
  uint64_t stream;
  void** arguments;
} Launch;

static int initialised, broken;
static uint64_t launches;
static char primary[64];
static __thread void* current;
static int (*compute)(const Launch*);
static int (*capturing)(void);
static void (*spoil)(void);

// -- for the rest of the stand-in ------------------------------------------------------------------------------------

void standin_compute_with(int (*callback)(const Launch*)) { compute = callback; }
void standin_break(int code) { broken = code; }
int standin_status(void) { return broken; }
uint64_t standin_launches(void) { return launches; }
void standin_captures_with(int (*captures)(void), void (*spoils)(void)) { capturing = captures, spoil = spoils; }

// -- the driver's own ------------------------------------------------------------------------------------------------

#define WORKS if (broken) return broken; if (!initialised) return NOT_INITIALIZED
#define HAS_CONTEXT WORKS; if (!current) return INVALID_CONTEXT
// What waits for the device, or changes what is loaded, spoils a capture in any thread.
#define NOT_WHILE_CAPTURED HAS_CONTEXT; if (capturing && capturing()) { spoil(); return CAPTURE_UNSUPPORTED; }

int cuInit(unsigned flags) { initialised = 1; return flags ? INVALID_VALUE : broken; }
int cuDriverGetVersion(int* version) { *version = 13000; return SUCCESS; }
int cuDeviceGetCount(int* count) { WORKS; *count = 1; return SUCCESS; }
int cuDeviceGet(int* device, int ordinal) { WORKS; *device = ordinal; return ordinal ? INVALID_DEVICE : SUCCESS; }
int cuDeviceGetName(char* name, int length, int device) {
  WORKS;
  snprintf(name, length, "NVIDIA H200");
  return device ? INVALID_DEVICE : SUCCESS;
}

int cuDevicePrimaryCtxRetain(void** context, int device) {
  WORKS;
  *context = primary;
  return device ? INVALID_DEVICE : SUCCESS;
}
int cuDevicePrimaryCtxRelease_v2(int device) { WORKS; return device ? INVALID_DEVICE : SUCCESS; }
int cuCtxSetCurrent(void* context) {
  WORKS;
  if (context && context != primary) return INVALID_CONTEXT;
  current = context;
  return SUCCESS;
}
int cuCtxGetCurrent(void** context) { WORKS; *context = current; return SUCCESS; }
int cuCtxSynchronize(void) { NOT_WHILE_CAPTURED return SUCCESS; }
int cuStreamSynchronize(void* stream) { (void)stream; NOT_WHILE_CAPTURED return SUCCESS; }

static uint64_t field(const unsigned char* at, int bytes) {
  uint64_t value = 0;
  memcpy(&value, at, bytes);
  return value;
}

// The size of an ELF image: sections may lie behind their table.
static uint64_t image_bytes(const unsigned char* image) {
  uint64_t table = field(image + 40, 8), size = field(image + 58, 2), count = field(image + 60, 2);
  uint64_t end = table + size * count;
  for (uint64_t i = 0; i < count; ++i) {
    const unsigned char* section = image + table + i * size;
    uint64_t after = field(section + 24, 8) + field(section + 32, 8);
    int has_no_bytes = field(section + 4, 4) == 8;
    if (!has_no_bytes && after > end) end = after;
  }
  return end;
}

// Copied, as the driver does: the caller may free it.
int cuModuleLoadData(void** module, const void* image) {
  NOT_WHILE_CAPTURED
  if (memcmp(image, "\x7f" "ELF", 4)) return INVALID_IMAGE;
  Module* loaded = calloc(1, sizeof *loaded);
  loaded->bytes = image_bytes(image);
  loaded->image = malloc(loaded->bytes);
  memcpy(loaded->image, image, loaded->bytes);
  loaded->context = current;
  loaded->loaded = 1;
  *module = loaded;
  return SUCCESS;
}
int cuModuleUnload(void* module) {
  NOT_WHILE_CAPTURED
  if (!module || !((Module*)module)->loaded) return INVALID_HANDLE;
  ((Module*)module)->loaded = 0;
  return SUCCESS;
}
int cuModuleGetFunction(void** function, void* module, const char* name) {
  HAS_CONTEXT;
  if (!module || !((Module*)module)->loaded) return INVALID_HANDLE;
  Module* loaded = module;
  char section[300];
  snprintf(section, sizeof section, ".text.%s", name);
  if (!memmem(loaded->image, loaded->bytes, section, strlen(section) + 1)) return NOT_FOUND;
  Function* found = calloc(1, sizeof *found);
  found->module = loaded;
  found->dynamic_shared = STATIC_LIMIT;
  snprintf(found->name, sizeof found->name, "%s", name);
  *function = found;
  return SUCCESS;
}
int cuFuncSetAttribute(void* function, int attribute, int value) {
  HAS_CONTEXT;
  if (!function) return INVALID_HANDLE;
  if (attribute != MAX_DYNAMIC_SHARED_SIZE_BYTES) return SUCCESS;
  if (value < 0 || value > SHARED_LIMIT) return INVALID_VALUE;
  ((Function*)function)->dynamic_shared = value;
  return SUCCESS;
}

int cuLaunchKernel(void* kernel, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                   unsigned block_z, unsigned shared_bytes, void* stream, void** arguments, void** extra) {
  HAS_CONTEXT;
  Function* function = kernel;
  if (!function || !function->module->loaded) return INVALID_HANDLE;
  if (function->module->context != current) return INVALID_CONTEXT;
  if (extra || !arguments) return INVALID_VALUE;
  if (!grid_x || !grid_y || !grid_z || grid_x > INT32_MAX || grid_y > 65535 || grid_z > 65535) return INVALID_VALUE;
  if (!block_x || !block_y || !block_z || block_x > THREADS_LIMIT || block_y > THREADS_LIMIT || block_z > 64 ||
      block_x * block_y * block_z > THREADS_LIMIT) return INVALID_VALUE;
  if ((int)shared_bytes > function->dynamic_shared) return INVALID_VALUE;
  Launch launch = {function->module->image, function->module->bytes, function->name, {grid_x, grid_y, grid_z},
                   {block_x, block_y, block_z}, shared_bytes, function->dynamic_shared, (uint64_t)stream, arguments};
  __atomic_add_fetch(&launches, 1, __ATOMIC_RELAXED);
  return compute ? compute(&launch) : SUCCESS;
}

int cuLaunchKernelEx(void* config, void* function, void** arguments, void** extra) {
  (void)config, (void)function, (void)arguments, (void)extra;
  return NOT_SUPPORTED;
}
int cuTensorMapEncodeTiled(void) { return NOT_SUPPORTED; }
int cuGetExportTable(const void** table, const void* id) { (void)id; *table = 0; return NOT_FOUND; }
int cuGetErrorName(int code, const char** name) { *name = code ? "an error of the stand-in" : "CUDA_SUCCESS"; return 0; }
int cuGetErrorString(int code, const char** text) { return cuGetErrorName(code, text); }

int cuGetProcAddress_v2(const char* name, void** call, int version, uint64_t flags, int* status) {
  (void)version, (void)flags;
  Dl_info here;
  char newer[256];
  dladdr((void*)&cuInit, &here);
  void* self = dlopen(here.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  snprintf(newer, sizeof newer, "%s_v2", name);
  *call = dlsym(self, name);
  if (!*call) *call = dlsym(self, newer);
  if (status) *status = *call ? 0 : 1;
  return SUCCESS;
}
