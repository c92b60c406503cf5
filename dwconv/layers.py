"""The depthwise layers of a network, listed in a JSON file: what ``tune --network`` tunes.

    {"MobileNetV1@224": [{"C": 32, "I": [112, 112], "K": [3, 3], "S": [1, 1], "P": [1, 1], "n": 1}, …], …}

``C`` channels, ``I`` input size, ``K`` kernel, ``S`` stride, ``P`` padding, ``n`` how often the layer occurs.
A 1-D layer has one number in each, and its padding may be two: before and after.
"""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dwconv.errors import InvalidWorkload
from dwconv.workload import DType, Layout, Padding, Pass, Workload


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One depthwise layer of a network, without the batch size."""

    channels: int
    input_size: tuple[int, int]
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: Padding
    count: int
    """How often it occurs in the network."""

    def workload(self, pass_: Pass, *, batch: int, dtype: DType, layout: Layout, bias: bool) -> Workload:
        problem = Workload(
            pass_="fprop",
            batch=batch,
            channels=self.channels,
            input_size=self.input_size,
            kernel=self.kernel,
            stride=self.stride,
            padding=self.padding,
            dtype=dtype,
            layout=layout,
            bias=bias,
        )
        return problem.for_pass(pass_)


def shipped_layers() -> Path:
    """The networks that dwconv lists itself."""
    return Path(__file__).with_name("networks.json")


def read_layers(path: Path, *, network: str) -> list[Layer]:
    """The layers of ``network``. Raises InvalidWorkload, naming close networks for an unknown one."""
    try:
        networks = json.loads(path.read_text())
    except OSError as error:
        raise InvalidWorkload(f"layers={path}: {error.strerror or error}") from error
    except ValueError as error:  # not UTF-8, or not JSON
        raise InvalidWorkload(f"layers={path} is not JSON: {error}") from error
    if not isinstance(networks, dict) or not networks:
        raise InvalidWorkload(f'layers={path} is not {{"network": [{{"C": …, "I": […], "K": […]}}, …]}}')
    if network not in networks:
        close = _close(network, list(networks))
        where = "dwconv's own list" if path == shipped_layers() else path
        raise InvalidWorkload(f"network={network} is not in {where}; it has {', '.join(close)}")
    layers = networks[network]
    if not isinstance(layers, list) or not layers:
        raise InvalidWorkload(f"network={network} in {path} lists no layers")
    return [_layer(fields, name=f"{network}[{i}]") for i, fields in enumerate(layers)]


def _layer(fields: Any, *, name: str) -> Layer:
    try:
        sizes = {key: [int(size) for size in fields[key]] for key in ("I", "K", "S", "P")}
        channels, count = int(fields["C"]), int(fields.get("n", 1))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidWorkload(f"layer {name} is not {{C, I, K, S, P}} of whole numbers: {error!r}") from error
    axes = len(sizes["I"])
    if axes not in (1, 2) or len(sizes["K"]) != axes or len(sizes["S"]) != axes:
        raise InvalidWorkload(f"layer {name} is {axes}-D; only 1-D and 2-D layers can be tuned")
    padding = sizes["P"]
    if axes == 1:
        before, after = padding if len(padding) == 2 else (padding[0], padding[0])
        along_h, along_w = (0, 0), (before, after)
    elif len(padding) == 2:
        along_h, along_w = (padding[0], padding[0]), (padding[1], padding[1])
    else:
        raise InvalidWorkload(f"layer {name}: P={padding} is not two numbers (height, width)")
    return Layer(
        channels=channels,
        input_size=_at_end(sizes["I"]),
        kernel=_at_end(sizes["K"]),
        stride=_at_end(sizes["S"]),
        padding=(along_h, along_w),
        count=count,
    )


def _at_end(sizes: list[int]) -> tuple[int, int]:
    """(height, width); a 1-D layer has height 1."""
    return (1, sizes[0]) if len(sizes) == 1 else (sizes[0], sizes[1])


def _close(wanted: str, names: list[str]) -> list[str]:
    """The names nearest to ``wanted``; all of them if none is near."""
    folded = {name.casefold(): name for name in names}
    near = [name for low, name in folded.items() if wanted.casefold() in low]
    near += [folded[low] for low in difflib.get_close_matches(wanted.casefold(), list(folded), n=4, cutoff=0.5)]
    return list(dict.fromkeys(near)) or names
