"""Schedule templates for the llvm target: a task tile, then a register tile.

    gather_nhwc/    fprop and dgrad, vectors of channels             shared/    vectors, threads, streamed stores, …
    gather_nchw/    fprop and dgrad, vectors along a row             planes/    what both NCHW families share: edges of
    wgrad_nhwc/     the weight gradient, vectors of channels                    rows, rows staged in scratch memory
    wgrad_nchw/     the weight gradient, vectors along a row

Every family has the same parts:

    templates.py    its tiling in words and pictures; TEMPLATES, which the registry finds
    space.py        the knobs, the rules that make a configuration illegal, where a search starts
    cut.py          how a configuration cuts the problem, in plain integers, for the space and the kernel alike
    kernel.py       the kernel in TVM, with a file for each of its larger parts
"""
