"""Strips of rows, straight from global memory through registers: fprop and dgrad, NCHW, of small kernels."""
