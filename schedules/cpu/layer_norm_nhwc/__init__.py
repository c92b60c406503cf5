"""The block of a depthwise convolution and the LayerNorm after it, NHWC, on the CPU."""
