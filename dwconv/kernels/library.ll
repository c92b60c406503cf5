
; The symbols of TVM's runtime that a kernel needs, so that its machine code runs without TVM. This text makes a module
; of its own, with the text that runs parallel regions on OpenMP's threads before it; both are linked to one shared
; library.
;
; A kernel has weak pointers, all null, to functions that launch its parallel regions and give it scratch memory: these
; take their place.

@__TVMBackendParallelLaunch = global ptr @dwconv.launch, align 8
@__TVMBackendAllocWorkspace = global ptr @dwconv.allocate, align 8
@__TVMBackendFreeWorkspace = global ptr @dwconv.free, align 8

declare ptr @aligned_alloc(i64, i64)
declare void @free(ptr)

; The same thread gives the memory back before the call ends, so the allocator has it at hand for the next one.

define internal ptr @dwconv.allocate(i32 %device, i32 %number, i64 %bytes, i32 %code, i32 %bits) {
  %more = add i64 %bytes, 63
  %whole = and i64 %more, -64  ; what aligned_alloc takes
  %memory = call ptr @aligned_alloc(i64 64, i64 %whole)
  ret ptr %memory
}

define internal i32 @dwconv.free(i32 %device, i32 %number, ptr %memory) {
  call void @free(ptr %memory)
  ret i32 0
}

; A kernel that checks its tensors, as those of earlier versions do, calls these where they are wrong, and then returns a
; status other than 0. The loader describes the tensors, so it cannot happen, and the status is enough.

define void @TVMFFIErrorSetRaisedFromCStrParts(ptr %kind, ptr %parts, i32 %count) {
  ret void
}

define void @TVMFFIErrorSetRaisedFromCStr(ptr %kind, ptr %message) {
  ret void
}
