"""Rows staged in shared memory, one kernel row after the other: fprop and dgrad, NCHW, of wide kernels."""
