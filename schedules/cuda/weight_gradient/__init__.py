"""The weight gradient by pixels, straight from global memory: wgrad, NCHW and NHWC."""
