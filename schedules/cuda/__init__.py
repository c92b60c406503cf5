"""Schedule templates for CUDA, a folder per family.

    passes          layout       family                    how (* in 3-D, too)
    fprop, dgrad    NCHW         block_tile                block tile, virtual threads, threads, register tile
                                 gather_nchw *             strips of rows, straight through registers: small kernels
                                                           rows in shared memory, one kernel row at a time: wide kernels
                                                           whole planes in shared memory: small maps
                    NHWC         channels_last *           strips of pixels, vectors of channels
    wgrad           NCHW, NHWC   weight_gradient *         tiles of pixels, sums in registers
                    NCHW         image_planes              whole planes in shared memory: small maps
    both gradients  NCHW         image_planes              whole planes in shared memory: x, dy and w are read once
    fprop, dgrad    NCHW, NHWC   toeplitz_rows             bands of weights on tensor cores: wide kernels in 16 bits
    wgrad           NCHW, NHWC   toeplitz_gradient         products summed along diagonals, on tensor cores: the same
    of a block      NHWC         block_nhwc                norms and activations around the convolution

What they share: ``gpu`` (the hardware, and what work costs it), ``emit`` (parts of kernels).
"""
