"""Whole planes in shared memory: fprop and dgrad, NCHW, of small maps."""
