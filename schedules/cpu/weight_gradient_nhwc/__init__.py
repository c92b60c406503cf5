"""The weight gradient on the CPU, NHWC: vectors of channels."""
