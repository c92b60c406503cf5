"""fprop and dgrad on the CPU, NHWC: vectors of channels."""
