"""Runs a plan on the ranks of a job, on torch.distributed.pipelining."""
