"""Schedule templates for the llvm target: a task tile, then a register tile.

The families:

    fprop_dgrad_nhwc/        vectors of channels
    fprop_dgrad_nchw/        vectors of neighbouring columns
    wgrad_nhwc/              vectors of channels
    wgrad_nchw/              vectors of neighbouring columns
    block_nhwc/              a block with BatchNorms
    layer_norm_nhwc/         a convolution and its LayerNorm

Beside them:

    shared/                  what several spaces and estimates need to know, in plain integers
    emit/                    what several kernels are written with
"""
