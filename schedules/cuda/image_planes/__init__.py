"""Sums over images by whole planes in shared memory, NCHW: wgrad of small maps, and both gradients in one kernel."""
