"""Schedule templates for CUDA: block tile, virtual threads, threads, register tile."""
