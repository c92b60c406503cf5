"""Concurrency tuned at run time: independent operators of a step run side by side, each with the threads that suit it.

``torch.compile(model, backend="dwconv_concurrent")``. Nothing in the rest of dwconv imports this package.
"""
