"""Schedule templates for CUDA, a folder per family.

    family                      how (* in 3-D, too)
    fprop_dgrad_nchw            block tile, virtual threads, threads, register tile
    fprop_dgrad_nchw_strip *    strips of rows, straight through registers: small kernels
    fprop_dgrad_nchw_wide       rows in shared memory, one kernel row at a time: wide kernels
    fprop_dgrad_nchw_plane      whole planes in shared memory: small maps
    fprop_dgrad_nhwc *          strips of pixels, vectors of channels
    fprop_dgrad_toeplitz        bands of weights on tensor cores, both layouts: wide kernels in 16 bits
    wgrad *                     tiles of pixels, sums in registers, both layouts
    wgrad_nchw_plane            whole planes in shared memory: small maps; also both gradients at once
    wgrad_toeplitz              products summed along diagonals on tensor cores, both layouts: wide kernels in 16 bits
    block_nhwc                  norms and activations around the convolution

What they share: ``gpu`` (the hardware, and what work costs it), ``emit`` (parts of kernels).
"""
