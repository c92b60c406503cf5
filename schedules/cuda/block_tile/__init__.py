"""The two-level partition with virtual threads, by TVM's schedule primitives: fprop and dgrad, NCHW."""
