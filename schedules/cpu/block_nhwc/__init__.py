"""BatchNorm, activation, convolution, BatchNorm, activation as one, in NHWC."""
