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

import dataclasses
import difflib
import errno
import json
import stat
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec

from dwconv.errors import InvalidWorkload
from dwconv.problems.block import Block
from dwconv.problems.workload import (
    AXES,
    BLOCK_PASSES,
    EVAL_PASSES,
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

LIST = "list"
"""In the place of a network's name: the names of all."""
_MOST_NEAR = 4
_MOST_BYTES = 2**26
_Size = Annotated[int, msgspec.Meta(ge=1)]
_Sizes = Annotated[tuple[_Size, ...], msgspec.Meta(min_length=1, max_length=3)]
_Networks = Annotated[dict[str, Any], msgspec.Meta(min_length=1)]
_encode = msgspec.json.Encoder().encode


_NAMES = {
    **{"channels": "C", "input_size": "I", "kernel": "K", "stride": "S", "padding": "P"},
    **{"dilation": "D", "multiplier": "M", "batch": "N", "count": "n"},
}


class _Line(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, rename=_NAMES):
    """A layer as a file has it."""

    channels: _Size
    input_size: _Sizes
    kernel: _Sizes
    stride: _Sizes
    padding: Annotated[tuple[Annotated[int, msgspec.Meta(ge=0)], ...], msgspec.Meta(min_length=1, max_length=6)]
    dilation: _Sizes | None = None
    multiplier: _Size = 1
    batch: _Size | None = None
    dtype: DType | None = None
    layout: Layout | None = None
    bias: bool | None = None
    passes: tuple[Pass, ...] | None = None
    epilogue: Epilogue = "none"
    block: str | None = None
    causal: bool = False
    sizes: tuple[_Sizes, ...] = ()
    count: _Size = 1


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One depthwise layer of a network. What is None is chosen when it is tuned."""

    channels: int
    input_size: Sizes
    kernel: Sizes
    stride: Sizes
    padding: Padding
    count: int
    dilation: Sizes
    multiplier: int = 1
    batch: int | None = None
    dtype: DType | None = None
    layout: Layout | None = None
    bias: bool | None = None
    passes: tuple[Pass, ...] = PASSES
    epilogue: Epilogue = "none"
    block: Block | None = None
    """What trains around it as one with it: then the passes are those of the block."""
    sizes: tuple[Sizes, ...] = ()
    """Further sizes for which one kernel of any size is tuned; without any, kernels are built for ``input_size``."""

    @classmethod
    def of(cls, workload: Workload, *, count: int, passes: Sequence[Pass]) -> Layer:
        """The layer whose forward pass is ``workload``, with nothing left open."""
        own = {each.name for each in dataclasses.fields(cls)}
        of_layer = {name: value for name, value in vars(workload).items() if name in own}
        return cls(**of_layer, count=count, passes=tuple(passes))

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
    return Path(__file__).with_name("networks.json")


def shipped_networks() -> dict[str, list[Layer]]:
    """The layers of the networks that dwconv lists itself."""
    networks = _networks(shipped_layers())
    return {network: [_layer(fields, name=network) for fields in layers] for network, layers in networks.items()}


def read_layers(path: Path, *, network: str) -> list[Layer]:
    """The layers of ``network``. Raises InvalidWorkload, naming near ones for an unknown one."""
    networks = _networks(path)
    if network not in networks:
        where = "dwconv's own list" if path == shipped_layers() else path
        near = _near(network, networks)
        did_you_mean = f"did you mean {', '.join(near)}? " if near else ""
        raise InvalidWorkload(
            f"network={network} is not in {where}; {did_you_mean}"
            f"--network {LIST} prints the names of all {len(networks)}"
        )
    layers = networks[network]
    if not isinstance(layers, list) or not layers:
        raise InvalidWorkload(f"network={network} in {path} lists no layers")
    return [_layer(fields, name=f"{network}[{i}]") for i, fields in enumerate(layers)]


def _near(network: str, names: Iterable[str]) -> list[str]:
    """The names that are close to a wrong one, or have it in them."""
    known = {name.casefold(): name for name in names}
    wrong = network.strip().casefold()
    near = [name for name in known if wrong and wrong in name]
    near += difflib.get_close_matches(wrong, known, n=_MOST_NEAR, cutoff=0.5)
    return [known[name] for name in dict.fromkeys(near)][:_MOST_NEAR]


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
        networks = msgspec.json.decode(path.read_bytes().removeprefix(BOM_UTF8), type=_Networks)
    except OSError as error:
        raise InvalidWorkload(f"layers={path}: {error.strerror or error}") from None
    except msgspec.ValidationError:
        raise InvalidWorkload(f'layers={path} is not {{"network": [{{"C": …, "I": […], "K": […]}}, …]}}') from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidWorkload(f"layers={path} is not JSON: {error}") from None
    return networks


def _layer(fields: Any, *, name: str) -> Layer:
    try:
        line = msgspec.convert(fields, _Line)
        axes = len(line.input_size)
        usual = BLOCK_PASSES if line.block else PASSES
        known = (*BLOCK_PASSES, *EVAL_PASSES) if line.block else PASSES
        passes = usual if line.passes is None else tuple(pass_ for pass_ in known if pass_ in line.passes)
        if not passes or not {*(line.passes or ())} <= {*known}:
            raise InvalidWorkload(f"passes={','.join(line.passes or ())} is not a list of {', '.join(known)}")
        fields = msgspec.structs.asdict(line) | {"padding": _padding(line, axes), "passes": passes}
        fields["dilation"] = line.dilation or (1,) * axes
        for name in ("input_size", "kernel", "stride", "dilation"):
            fields[name] = _along(name, fields[name], axes)
        sizes = dict.fromkeys(_along("sizes", each, axes) for each in line.sizes)
        fields["sizes"] = tuple(each for each in sizes if each != fields["input_size"])
        fields["block"] = None if line.block is None else Block.parse(line.block)
        del fields["causal"]
        return Layer(**fields)
    except (msgspec.ValidationError, InvalidWorkload) as error:
        raise InvalidWorkload(f"layer {name}: {error}") from None


def _along(name: str, sizes: Sizes, axes: int) -> Sizes:
    """(height, width) or (depth, height, width); a 1-D layer has height 1."""
    if len(sizes) != axes:
        raise InvalidWorkload(f"{_NAMES.get(name, name)}={list(sizes)} does not have {axes} sizes")
    return (1, *sizes) if axes == 1 else sizes


def _padding(line: _Line, axes: int) -> Padding:
    sides = line.padding
    if line.causal and (axes > 1 or (len(sides) == 2 and sides[1])):
        raise InvalidWorkload("causal=true is for 1-D layers, which pad before alone; give P as [before, 0]")
    if len(sides) == axes:
        sides = tuple(side for size in sides for side in (size, 0 if line.causal else size))
    if len(sides) != 2 * axes:
        words = f"{axes} numbers ({', '.join(AXES[-axes:])}) or {2 * axes} ({', '.join(SIDES[-2 * axes :])})"
        raise InvalidWorkload(f"P={list(line.padding)} is not {words}")
    pairs = tuple(zip(sides[::2], sides[1::2], strict=True))
    return ((0, 0), *pairs) if axes == 1 else pairs


# -- write -------------------------------------------------------------------------------------------------------------


def write_layers(path: Path, networks: Mapping[str, Sequence[Layer]]) -> None:
    """Write a file that ``read_layers`` reads, a line for each layer. Raises InvalidWorkload if it cannot."""
    listed = (
        f"{json.dumps(network)}: [\n" + ",\n".join(_encode(_line_of(layer)).decode() for layer in layers) + "\n]"
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


def _line_of(layer: Layer) -> _Line:
    """What is as usual is left out: no dilation, no multiplier, all passes."""
    fields = dict(vars(layer))
    sizes = {name: fields[name] for name in ("input_size", "kernel", "stride", "dilation")}
    sides = tuple(side for pair in layer.padding for side in pair)
    is_1d = len(layer.kernel) == 2 and not any(sides[:2]) and all(height == 1 for height, *_ in sizes.values())
    if is_1d:
        sides = sides[2:]
        fields |= {name: each[1:] for name, each in sizes.items()}
        fields["sizes"] = tuple(each[1:] for each in layer.sizes)
    elif sides[::2] == sides[1::2]:
        sides = sides[::2]
    usual = BLOCK_PASSES if layer.block else PASSES
    fields |= {"padding": sides, "block": str(layer.block) if layer.block else None}
    fields["passes"] = None if layer.passes == usual else layer.passes
    fields["dilation"] = None if all(step == 1 for step in layer.dilation) else fields["dilation"]
    return _Line(**fields)
