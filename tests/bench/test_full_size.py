"""The networks for a GPU have the layers that are listed of the published ones."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from torch import nn

from bench.full_size import FULL_SIZE
from bench.networks import network_of
from dwconv.problems.layer_files import shipped_networks

LISTED = {
    "RepLKNet-31B": "RepLKNet-31B@224",
    "UniRepLKNet-T-like": "UniRepLKNet-T@224 (training)",
    "X3D-S": "X3D-S 13x160",
    "MedNeXt-S": "MedNeXt-S k3 128^3",
    "Mamba-130M-like": "Mamba-130M (d_inner 1536,L2048,k4)",
}
CONFORMER = {(512, (1, 416), (1, 31), (1, 1), (1, 1)): 18}
"""One block more than the paper's, as NeMo has it; of recordings of its longest."""
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
UP = nn.ConvTranspose3d


def depthwise_of(network):
    """How many layers of each kind a step runs, and how many transposed ones; nothing is computed."""
    found, up = Counter(), 0

    def note(layer, inputs, result):
        def along(sizes):
            return (1, *sizes) if len(sizes) == 1 else tuple(sizes)

        kind = (inputs[0].shape[2:], layer.kernel_size, layer.stride, layer.dilation)
        found[(layer.in_channels, *map(along, kind))] += 1

    with torch.device("meta"):
        model = network.make()
        for layer in model.modules():
            if isinstance(layer, (*CONVOLUTIONS, UP)) and layer.groups == layer.in_channels > 1:
                up += isinstance(layer, UP)
                if isinstance(layer, CONVOLUTIONS):
                    layer.register_forward_hook(note)
        scores = model(torch.empty(2, *network.sample))
    assert scores.dim() == 2 and len(scores) == 2
    return dict(found), up


@pytest.mark.parametrize("network", FULL_SIZE, ids=lambda network: network.name)
def test_a_network_has_the_listed_layers(network):
    found, up = depthwise_of(network)
    if network.name in LISTED:
        layers = [layer for layer in shipped_networks()[LISTED[network.name]] if layer.epilogue == "none"]
        listed = {
            (layer.channels, layer.input_size, layer.kernel, layer.stride, layer.dilation): layer.count
            for layer in layers
        }
    else:
        listed = CONFORMER
    assert found == listed and up == 4 * (network.name == "MedNeXt-S")
    assert network_of(network.name).batch == network.batch >= 2
