"""PyTorch's word for how the tensors of a layout lie in memory."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from dwconv.problems.workload import Layout

MEMORY_FORMAT: Mapping[Layout, torch.memory_format] = {
    "nchw": torch.contiguous_format,
    "nhwc": torch.channels_last,
}
