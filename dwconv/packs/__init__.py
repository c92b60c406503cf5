"""Kernel packs: compiled kernels in a folder, which run without tuning log, TVM, NVRTC and compiler.

    choose ─► make ─► pack/manifest.json     what is in it, what it is for, and the SHA-256 of every file
                      pack/records.jsonl     the records that chose the kernels
                      pack/kernels/….kernel  how a kernel is called, and its code: of a CPU a library, of a GPU a cubin
                      pack/native/….so       the C++ of calls, for one PyTorch and one Python
                        │
                      remote                 the same at a URL, pinned by a digest
                        │
    load ◄──────────────┘                    refuses it, or adds it to ``dwconv.dispatch.loaded_packs``

A pack is code. The digests prove that it is complete; they do not prove its origin.
"""
