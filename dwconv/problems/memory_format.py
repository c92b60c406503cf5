"""PyTorch's word for how the tensors of a layout lie in memory."""

from __future__ import annotations

import torch

from dwconv.problems.workload import Layout

_CHANNELS_LAST = {2: torch.channels_last, 3: torch.channels_last_3d}


def memory_format(layout: Layout, *, axes: int) -> torch.memory_format:
    """Of images with so many axes besides batch and channels."""
    return _CHANNELS_LAST[axes] if layout == "nhwc" else torch.contiguous_format
