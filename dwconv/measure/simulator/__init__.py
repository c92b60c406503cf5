"""The simulator: runs the CUDA C++ of an artifact on the CPU, and finds what a GPU might forgive today.

    source ──► translate ──► g++, a hook before every access ──► machine: a fiber a thread ──► report
                             kernel.h                            runtime.cc, fibers.h          faults, counts
                                                                 memory.h    who touched what when
                                                                 requests.h  what a warp asks for

It finds races between barriers, in shared and in global memory and between blocks; accesses out of bounds or not
aligned; reads of memory that nobody wrote; barriers that some threads leave out; asynchronous copies that are used
before they were waited for. It counts turns of shared memory and sectors of global memory. It knows nothing of time.
"""
