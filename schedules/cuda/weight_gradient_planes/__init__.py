"""The weight gradient by whole planes in shared memory: wgrad, NCHW, of small maps."""
