"""fprop and dgrad, NCHW, CUDA: a thread owns rows of neighbouring columns; they differ in where their source lies."""
