"""Data-parallel training: batches ahead of the step, and gradients that are sent while others are computed."""
