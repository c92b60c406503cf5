"""The simulator: runs the CUDA C++ of an artifact on the CPU, and finds faults that a GPU might not show today.

    source ──► translate ──► g++, a hook before every access ──► machine: a fiber a thread ──► report
                             kernel.h                            runtime.cc, fibers.h          faults, counts
                                                                 memory.h    which lane touched what when,
                                                                             what a warp accesses
                                                                 matrices.h  tensor cores

It finds races between barriers, in shared and in global memory and between blocks; accesses that are out of bounds or
misaligned; reads of uninitialised memory; barriers that some threads do not reach; asynchronous copies that are used
before they were waited for; matrix instructions that not all lanes of a warp come to. It counts wavefronts of shared
memory. It does not model time.
"""
