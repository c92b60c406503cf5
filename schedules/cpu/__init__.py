"""Schedule templates for the llvm target: a task tile, then a register tile.

The families:

    gather_nhwc/             fprop and dgrad, vectors of channels
    gather_nchw/             fprop and dgrad, vectors of neighbouring columns
    weight_gradient_nhwc/    wgrad, vectors of channels
    weight_gradient_nchw/    wgrad, vectors of neighbouring columns
    block_nhwc/              a block with BatchNorms
    layer_norm_nhwc/         a convolution and its LayerNorm

Beside them:

    shared/                  what several spaces and estimates need to know, in plain integers
    emit/                    what several kernels are written with
"""
