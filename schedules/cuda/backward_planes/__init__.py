"""Both gradients in one kernel, by whole planes in shared memory: NCHW."""
