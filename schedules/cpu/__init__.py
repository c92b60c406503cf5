"""Schedule templates for the llvm target: a task tile, then a register tile.

The families:

    gather_nhwc/             fprop and dgrad, vectors of channels
    gather_nchw/             fprop and dgrad, vectors of neighbouring columns
    weight_gradient_nhwc/    wgrad, vectors of channels
    weight_gradient_nchw/    wgrad, vectors of neighbouring columns

Beside them:

    template.py              fprop and dgrad of a family, from one description
    shared/                  what several spaces need to know, in plain integers: registers, threads, limits
    emit/                    what several kernels are written with: vectors, loops, streamed stores, rows of planes
"""
