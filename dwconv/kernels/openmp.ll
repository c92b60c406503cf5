
; Runs TVM's parallel regions on the OpenMP threads of this process, which are PyTorch's: as many as PyTorch uses at
; the time of the call, or fewer if the configuration has fewer. TVM's own pool would be a second set of threads on the
; same cores: each side's idle threads spin and slow the other.
;
; OpenMP may grant fewer threads than requested (OMP_DYNAMIC, OMP_THREAD_LIMIT, OMP_MAX_ACTIVE_LEVELS): the granted
; threads share the tasks.
;
; This text is appended to the LLVM IR of a kernel, and after it the loader defines
;
;   @dwconv.most_threads = internal constant i32 …
;
; Calling use_openmp once points the kernel at @dwconv.launch.

%dwconv.region = type { ptr, ptr, i32 }  ; task, its closure, how many tasks
%dwconv.group = type { ptr, i32 }        ; TVMParallelGroupEnv: sync handle, how many tasks

declare void @GOMP_parallel(ptr, ptr, i32, i32)
declare i32 @omp_get_thread_num()
declare i32 @omp_get_num_threads()
declare i32 @omp_get_max_threads()
declare i32 @omp_in_parallel()

define internal void @dwconv.run(ptr %region, i32 %number) {
  %group = alloca %dwconv.group, align 8
  %task_at = getelementptr %dwconv.region, ptr %region, i32 0, i32 0
  %closure_at = getelementptr %dwconv.region, ptr %region, i32 0, i32 1
  %tasks_at = getelementptr %dwconv.region, ptr %region, i32 0, i32 2
  %task = load ptr, ptr %task_at, align 8
  %closure = load ptr, ptr %closure_at, align 8
  %tasks = load i32, ptr %tasks_at, align 4
  %group_tasks_at = getelementptr %dwconv.group, ptr %group, i32 0, i32 1
  store ptr null, ptr %group, align 8
  store i32 %tasks, ptr %group_tasks_at, align 4
  %status = call i32 %task(i32 %number, ptr %group, ptr %closure)  ; always 0: our tasks check nothing
  ret void
}

define internal void @dwconv.thread(ptr %region) {
  %tasks_at = getelementptr %dwconv.region, ptr %region, i32 0, i32 2
  %tasks = load i32, ptr %tasks_at, align 4
  %thread = call i32 @omp_get_thread_num()
  %threads = call i32 @omp_get_num_threads()
  br label %next

next:
  %number = phi i32 [ %thread, %0 ], [ %following, %task ]
  %is_left = icmp slt i32 %number, %tasks
  br i1 %is_left, label %task, label %done

task:
  call void @dwconv.run(ptr %region, i32 %number)
  %following = add i32 %number, %threads
  br label %next

done:
  ret void
}

define internal i32 @dwconv.launch(ptr %task, ptr %closure, i32 %unused) {
  %region = alloca %dwconv.region, align 8
  %closure_at = getelementptr %dwconv.region, ptr %region, i32 0, i32 1
  %tasks_at = getelementptr %dwconv.region, ptr %region, i32 0, i32 2
  %nested = call i32 @omp_in_parallel()
  %is_nested = icmp ne i32 %nested, 0
  %threads = call i32 @omp_get_max_threads()
  %most = load i32, ptr @dwconv.most_threads, align 4
  %is_more = icmp sgt i32 %threads, %most
  %allowed = select i1 %is_more, i32 %most, i32 %threads
  %tasks = select i1 %is_nested, i32 1, i32 %allowed
  store ptr %task, ptr %region, align 8
  store ptr %closure, ptr %closure_at, align 8
  store i32 %tasks, ptr %tasks_at, align 4
  %is_alone = icmp eq i32 %tasks, 1
  br i1 %is_alone, label %alone, label %together

alone:                                            ; no thread is woken, no team made
  call void @dwconv.run(ptr %region, i32 0)
  ret i32 0

together:
  call void @GOMP_parallel(ptr @dwconv.thread, ptr %region, i32 %tasks, i32 0)
  ret i32 0
}

define dllexport i32 @__tvm_ffi_use_openmp(ptr %self, ptr %arguments, i32 %count, ptr %result) {
  store ptr @dwconv.launch, ptr @__TVMBackendParallelLaunch
  ret i32 0
}
