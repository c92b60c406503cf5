"""Strips of pixels with channels innermost: fprop and dgrad, NHWC."""
