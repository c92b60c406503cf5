"""fprop and dgrad on the CPU, NCHW: vectors of neighbouring columns."""
