"""Products of rows of x and of dy on tensor cores, summed along diagonals: wgrad, NCHW, of wide kernels in 16 bits."""
