"""The weight gradient on the CPU, NCHW: vectors of neighbouring columns."""
