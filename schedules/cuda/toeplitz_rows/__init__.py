"""Rows of maps times banded matrices of weights, on tensor cores: fprop and dgrad, NCHW, of wide kernels in 16 bits."""
