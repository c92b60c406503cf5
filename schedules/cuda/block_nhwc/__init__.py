"""The passes of a block, NHWC, CUDA."""
