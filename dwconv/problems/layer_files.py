"""The depthwise layers of networks, listed in a JSON file: what ``tune --network`` and ``tune --layers`` tune.

    {"MobileNetV1@224": [{"C": 32, "I": [112, 112], "K": [3, 3], "S": [1, 1], "P": [1, 1], "n": 1}, …], …}

A layer must have ``C`` channels, ``I`` input size, ``K`` kernel, ``S`` stride and ``P`` padding. It may have ``D``
dilation, ``M`` multiplier, ``N`` batch, ``dtype``, ``layout``, ``bias``, ``passes``, ``epilogue``, ``n``, how often it
occurs, ``sizes``, further input sizes for which one kernel of any size is tuned, and ``block``, the norms and
activations fused with it: then its passes are those of the block. A 1-D layer has one number in each list, a 3-D one
three. Padding may be given per side: before and after in 1-D; top, bottom, left, right in 2-D; front and back before
these in 3-D. With ``causal`` a 1-D layer has none after the end.
"""

from __future__ import annotations

import difflib
import errno
import json
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dwconv.errors import InvalidWorkload
from dwconv.problems.block import Block
from dwconv.problems.workload import (
    AXES,
    BLOCK_PASSES,
    DTYPES,
    EPILOGUES,
    EVAL_PASSES,
    LAYOUTS,
    PASSES,
    SIDES,
    DType,
    Epilogue,
    Layout,
    Padding,
    Pass,
    Sizes,
    Workload,
)
from dwconv.system.new_file import check_name, check_replaceable, replace_file

_REQUIRED = ("C", "I", "K", "S", "P")
_MOST_BYTES = 2**26
_KEYS = (*_REQUIRED, "D", "M", "N", "dtype", "layout", "bias", "passes", "epilogue", "block", "causal", "sizes", "n")


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One depthwise layer of a network. What is None is chosen when it is tuned."""

    channels: int
    input_size: Sizes
    kernel: Sizes
    stride: Sizes
    padding: Padding
    count: int
    """How often it occurs in the network."""
    dilation: Sizes
    multiplier: int = 1
    batch: int | None = None
    dtype: DType | None = None
    layout: Layout | None = None
    bias: bool | None = None
    passes: tuple[Pass, ...] = PASSES
    """Those that a step runs."""
    epilogue: Epilogue = "none"
    """Of fprop."""
    block: Block | None = None
    """What trains around it as one with it: then the passes are those of the block."""
    sizes: tuple[Sizes, ...] = ()
    """Further sizes for which one kernel of any size is tuned; without any, kernels are built for ``input_size``."""

    @classmethod
    def of(cls, workload: Workload, *, count: int, passes: Sequence[Pass]) -> Layer:
        """The layer whose forward pass is ``workload``, with nothing left open."""
        return cls(
            channels=workload.channels,
            input_size=workload.input_size,
            kernel=workload.kernel,
            stride=workload.stride,
            padding=workload.padding,
            count=count,
            dilation=workload.dilation,
            multiplier=workload.multiplier,
            batch=workload.batch,
            dtype=workload.dtype,
            layout=workload.layout,
            bias=workload.bias,
            passes=tuple(passes),
            epilogue=workload.epilogue,
            block=workload.block,
        )

    def workload(self, pass_: Pass, *, batch: int | None, dtype: DType, layout: Layout, bias: bool) -> Workload:
        """The pass as it is tuned; ``batch``, ``dtype``, ``layout`` and ``bias`` are for layers that name none."""
        if (own := self.batch or batch) is None:
            raise InvalidWorkload("a layer names no batch size N; give --batch N")
        problem = Workload(
            pass_="forward" if self.block else "fprop",
            batch=own,
            channels=self.channels,
            input_size=self.input_size,
            kernel=self.kernel,
            multiplier=self.multiplier,
            stride=self.stride,
            padding=self.padding,
            dilation=self.dilation,
            dtype=self.dtype or dtype,
            layout=self.layout or layout,
            bias=self.bias if self.bias is not None else bias and (not self.block or self.block.layer_norm is not None),
            epilogue=self.epilogue,
            block=self.block,
            any_size=bool(self.sizes),
            also_at=self.sizes,
        )
        return problem.for_pass(pass_)


# -- read --------------------------------------------------------------------------------------------------------------


def shipped_layers() -> Path:
    """The networks that dwconv lists itself."""
    return Path(__file__).with_name("networks.json")


def shipped_networks() -> dict[str, list[Layer]]:
    """The layers of the networks that dwconv lists itself."""
    networks = json.loads(shipped_layers().read_text())
    return {network: [_layer(fields, name=network) for fields in layers] for network, layers in networks.items()}


def read_layers(path: Path, *, network: str) -> list[Layer]:
    """The layers of ``network``. Raises InvalidWorkload, naming close networks for an unknown one."""
    networks = _networks(path)
    if network not in networks:
        close = _close(network, list(networks))
        where = "dwconv's own list" if path == shipped_layers() else path
        raise InvalidWorkload(f"network={network} is not in {where}; it has {', '.join(close)}")
    layers = networks[network]
    if not isinstance(layers, list) or not layers:
        raise InvalidWorkload(f"network={network} in {path} lists no layers")
    return [_layer(fields, name=f"{network}[{i}]") for i, fields in enumerate(layers)]


def networks_in(path: Path) -> list[str]:
    """The names of the networks in a file. Raises InvalidWorkload."""
    return list(_networks(path))


def _networks(path: Path) -> dict[str, Any]:
    try:
        check_name(path)
        facts = path.stat()
        if not stat.S_ISREG(facts.st_mode) and not path.is_dir():
            raise OSError(errno.EINVAL, "is not a file")  # a device or a pipe may never end
        if facts.st_size > _MOST_BYTES:
            raise OSError(errno.EFBIG, f"is larger than {_MOST_BYTES // 2**20} MiB")
        networks = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InvalidWorkload(f"layers={path}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:  # not UTF-8, or not JSON
        raise InvalidWorkload(f"layers={path} is not JSON: {error}") from None
    if not isinstance(networks, dict) or not networks:
        raise InvalidWorkload(f'layers={path} is not {{"network": [{{"C": …, "I": […], "K": […]}}, …]}}')
    return networks


def _layer(fields: Any, *, name: str) -> Layer:
    if not isinstance(fields, dict):
        raise InvalidWorkload(f"layer {name} is not {{{', '.join(_REQUIRED)}}}: {json.dumps(fields)}")
    if unknown := [key for key in fields if key not in _KEYS]:
        raise InvalidWorkload(f"layer {name} has the unknown key {unknown[0]!r}; known are {', '.join(_KEYS)}")
    if missing := [key for key in _REQUIRED if key not in fields]:
        raise InvalidWorkload(f"layer {name} has no {missing[0]}; it needs {', '.join(_REQUIRED)}")
    layer = _Fields(fields, name)
    axes = len(layer.sizes("I"))
    if axes not in (1, 2, 3):
        raise InvalidWorkload(f"layer {name} is {axes}-D; only 1-D, 2-D and 3-D layers can be tuned")
    return Layer(
        channels=layer.whole("C"),
        input_size=layer.along("I", axes),
        kernel=layer.along("K", axes),
        stride=layer.along("S", axes),
        padding=layer.padding(axes),
        count=layer.whole("n") if "n" in fields else 1,
        dilation=layer.along("D", axes) if "D" in fields else (1,) * max(2, axes),
        multiplier=layer.whole("M") if "M" in fields else 1,
        batch=layer.whole("N") if "N" in fields else None,
        dtype=layer.word("dtype", DTYPES),
        layout=layer.word("layout", LAYOUTS),
        bias=layer.truth("bias"),
        passes=layer.passes(),
        epilogue=layer.word("epilogue", EPILOGUES) or "none",
        block=layer.block(),
        sizes=layer.further_sizes(axes),
    )


class _Fields:
    """The fields of one layer in a file; each is read as what it must be. Raises InvalidWorkload."""

    def __init__(self, fields: Mapping[str, Any], layer: str) -> None:
        self._fields, self._layer = fields, layer

    def whole(self, key: str) -> int:
        value: object = self._fields[key]
        if type(value) is not int or value < 1:
            raise self._wrong(key, "is not a whole number of at least 1")
        return value

    def sizes(self, key: str) -> list[int]:
        value: object = self._fields[key]
        if not isinstance(value, list) or not value or any(type(size) is not int or size < 0 for size in value):
            raise self._wrong(key, "is not a list of whole numbers")
        return value

    def further_sizes(self, axes: int) -> tuple[Sizes, ...]:
        given: object = self._fields.get("sizes", [])
        if not isinstance(given, list):
            raise self._wrong("sizes", "is not a list of input sizes, each as I")
        found = dict.fromkeys(_Fields({"I": each}, self._layer).along("I", axes) for each in given)
        return tuple(size for size in found if size != self.along("I", axes))

    def along(self, key: str, axes: int) -> Sizes:
        """(height, width) or (depth, height, width); a 1-D layer has height 1."""
        sizes = self.sizes(key)
        if len(sizes) != axes:
            raise self._wrong(key, f"does not have {axes} sizes")
        return (1, *sizes) if axes == 1 else tuple(sizes)

    def padding(self, axes: int) -> Padding:
        sizes = self.sizes("P")
        causal = self.truth("causal")
        if causal and axes > 1:
            raise self._wrong("causal", f"is for 1-D layers; give P as {', '.join(SIDES[-2 * axes :])}")
        if axes > 1 and len(sizes) == 2 * axes:
            return tuple(zip(sizes[::2], sizes[1::2], strict=True))
        if axes > 1 and len(sizes) == axes:
            return tuple((size, size) for size in sizes)
        if axes > 1:
            sides = ", ".join(SIDES[-2 * axes :])
            raise self._wrong("P", f"is not {axes} numbers ({', '.join(AXES[-axes:])}) or {2 * axes} ({sides})")
        if len(sizes) > 2:
            raise self._wrong("P", "is not one number or two (before, after)")
        before, after = sizes[0], sizes[1] if len(sizes) == 2 else 0 if causal else sizes[0]
        if causal and after:
            raise self._wrong("P", "pads after the end, which a causal layer does not; give [before, 0]")
        return (0, 0), (before, after)

    def truth(self, key: str) -> bool | None:
        value: object = self._fields.get(key)
        if value is not None and type(value) is not bool:
            raise self._wrong(key, "is not true or false")
        return value

    def word(self, key: str, known: tuple[Any, ...]) -> Any:
        value: object = self._fields.get(key)
        if value is not None and value not in known:
            raise self._wrong(key, f"is unknown; use one of {', '.join(known)}")
        return value

    def block(self) -> Block | None:
        value: object = self._fields.get("block")
        if value is None:
            return None
        if not isinstance(value, str):
            raise self._wrong("block", "is not text, such as bn+relu6,bn+relu6")
        try:
            return Block.parse(value)
        except InvalidWorkload as error:
            raise self._wrong("block", f"is not a block: {error}") from None

    def passes(self) -> tuple[Pass, ...]:
        usual, known = PASSES, PASSES
        if "block" in self._fields:
            usual, known = BLOCK_PASSES, (*BLOCK_PASSES, *EVAL_PASSES)
        given: object = self._fields.get("passes", list(usual))
        if not isinstance(given, list) or not given or any(each not in known for each in given):
            raise self._wrong("passes", f"is not a list of {', '.join(known)}")
        return tuple(pass_ for pass_ in known if pass_ in given)

    def _wrong(self, key: str, problem: str) -> InvalidWorkload:
        return InvalidWorkload(f"layer {self._layer}: {key}={json.dumps(self._fields.get(key))} {problem}")


def _close(wanted: str, names: list[str]) -> list[str]:
    """The names nearest to ``wanted``; all of them if none is near."""
    folded = {name.casefold(): name for name in names}
    near = [name for low, name in folded.items() if wanted.casefold() in low]
    near += [folded[low] for low in difflib.get_close_matches(wanted.casefold(), list(folded), n=4, cutoff=0.5)]
    return list(dict.fromkeys(near)) or names


# -- write -------------------------------------------------------------------------------------------------------------


def write_layers(path: Path, networks: Mapping[str, Sequence[Layer]]) -> None:
    """Write a file that ``read_layers`` reads, a line for each layer. Raises InvalidWorkload if it cannot."""
    listed = (
        f"{json.dumps(network)}: [\n" + ",\n".join(json.dumps(_as_data(layer)) for layer in layers) + "\n]"
        for network, layers in networks.items()
    )
    with _named(path):
        replace_file(path, [f"{{{', '.join(listed)}}}\n".encode()], durable=False)


def check_can_write(path: Path) -> None:
    """Raises InvalidWorkload where ``write_layers`` would."""
    with _named(path):
        check_replaceable(path)


@contextmanager
def _named(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InvalidWorkload(f"layers={path} cannot be written: {error.strerror}; name another file") from None


def _as_data(layer: Layer) -> dict[str, Any]:
    """What is as usual is left out: no dilation, no multiplier, all passes."""
    sizes = {"I": layer.input_size, "K": layer.kernel, "S": layer.stride, "D": layer.dilation}
    sides = [side for pair in layer.padding for side in pair]
    is_1d = len(layer.kernel) == 2 and not any(sides[:2]) and all(height == 1 for height, *_ in sizes.values())
    padding = sides[2:] if is_1d else sides[::2] if sides[::2] == sides[1::2] else sides
    fields: dict[str, Any] = {"C": layer.channels}
    fields |= {key: list(each[1:] if is_1d else each) for key, each in sizes.items()}
    fields |= {"P": padding, "M": layer.multiplier, "N": layer.batch, "dtype": layer.dtype, "layout": layer.layout}
    fields |= {"bias": layer.bias, "passes": list(layer.passes), "epilogue": layer.epilogue, "n": layer.count}
    fields |= {"block": str(layer.block) if layer.block else None}
    fields |= {"sizes": [list(each[1:] if is_1d else each) for each in layer.sizes] or None}
    passes = list(BLOCK_PASSES if layer.block else PASSES)
    usual = {"D": [1] * len(fields["D"]), "M": 1, "passes": passes, "epilogue": "none"}
    return {key: value for key, value in fields.items() if value is not None and usual.get(key) != value}
