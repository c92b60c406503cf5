"""The line: a TuningRecord as one JSON object, and back.

Every line is checked while it is read: it holds integers, numbers and names, all of them bounded, and no text that
controls a terminal when it is printed. To check a line takes less time than to make its record, and a record takes more
memory than its line: ``held`` keeps lines until their records are used.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Annotated, Any, Literal

import msgspec

from dwconv.errors import InvalidWorkload, LogError, one_line
from dwconv.problems.block import Block
from dwconv.problems.workload import DType, Epilogue, Layout, Pass, Workload
from dwconv.records.record import AtSize, Measurement, Status, TuningRecord, Verdict
from dwconv.schedules.space import Config

FORMAT = 1
"""Version of the format. A reader sets aside lines of other versions."""
LEAST_BYTES = 100
"""A shorter line is no record."""
_MOST_NAMED = 100
"""Knobs, providers, resources or versions of one record."""
_NAME_CHARACTERS = 200
_TEXT_CHARACTERS = 1000
_REASON_CHARACTERS = 200


def encode(record: TuningRecord) -> bytes:
    """``record`` as one line of JSON, without the line break. Raises LogError if it could not be read again."""
    fields = {"format": FORMAT, **{each.name: getattr(record, each.name) for each in dataclasses.fields(record)}}
    fields |= {"workload": record.workload.to_dict(), "config": record.config.to_dict()}
    fields["measurement"] = _as(MeasurementLine | None, record.measurement)
    fields["providers"] = _as(dict[str, MeasurementLine], record.providers)
    if not record.settled:
        del fields["settled"]
    if fields.pop("others"):
        fields["others"] = _as(tuple[AtSizeLine, ...], record.others)
    fields["detail"] = one_line(fields.pop("detail"), most=_TEXT_CHARACTERS)  # a compiler may quote what is no text
    line = msgspec.json.encode(fields)
    decode(line)
    return line


def _as(kind: Any, value: object) -> Any:
    """``value``, as another type with the same fields."""
    try:
        return msgspec.convert(value, kind, from_attributes=True)
    except msgspec.ValidationError as error:
        raise LogError(f"not a tuning record: {error}") from None


def decode(line: bytes) -> TuningRecord:
    """The record in one line. Raises LogError, saying what is wrong, if there is none."""
    return checked(line).to_record()


def checked(line: bytes) -> RecordLine:
    """The content of one line, from which a record can be made. Raises LogError with the fault if none can be."""
    try:
        read = read_checked(line)
        read.check()
    except _REFUSALS as error:
        raise LogError(_why_refused(line, error)) from None
    return read


def _why_refused(line: bytes, error: Exception) -> str:
    try:
        version = _version_decoder.decode(line).format
        if version != FORMAT:
            return f"format {version} is not known to this version of dwconv, which reads {FORMAT}"
    except _REFUSALS as unread:
        error = unread
    return one_line(f"not a tuning record: {error}", most=_REASON_CHARACTERS)


_REFUSALS = (msgspec.MsgspecError, InvalidWorkload, UnicodeDecodeError, RecursionError)


# -- the line ------------------------------------------------------------------------------------------------------

_Count = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]
_Value = Annotated[int, msgspec.Meta(gt=-(2**62), lt=2**62)]
_Microseconds = Annotated[float, msgspec.Meta(ge=0, lt=1e18)]
_Size = Annotated[int, msgspec.Meta(ge=1, lt=2**31)]
_OF_AXES = msgspec.Meta(min_length=2, max_length=3)
_Sizes = Annotated[tuple[_Size, ...], _OF_AXES]
_Pad = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
_FEW = msgspec.Meta(max_length=_MOST_NAMED)


class WorkloadLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"pass_": "pass"}):
    """Unknown fields are refused: a workload with an unknown property is another workload."""

    pass_: Pass
    batch: _Size
    channels: _Size
    input_size: _Sizes
    kernel: _Sizes
    multiplier: _Size
    stride: _Sizes
    padding: Annotated[tuple[tuple[_Pad, _Pad], ...], _OF_AXES]
    dilation: _Sizes
    dtype: DType
    layout: Layout
    bias: bool = False
    epilogue: Epilogue = "none"
    block: str | None = None
    any_size: bool = False
    also_at: Annotated[tuple[_Sizes, ...], _FEW] = ()

    @functools.lru_cache(maxsize=1024)  # noqa: B019  # neighbouring lines are of one workload, and share it
    def to_workload(self) -> Workload:
        fields = msgspec.structs.asdict(self)
        return Workload(**{**fields, "block": None if self.block is None else Block.parse(self.block)})


class MeasurementLine(msgspec.Struct, rename={"computed": "predicted"}):  # the name that logs have had from the first
    median_us: Annotated[float, msgspec.Meta(gt=0, lt=1e18)]
    spread_us: _Microseconds
    rounds: _Count
    computed: bool = False
    contention: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0


class AtSizeLine(msgspec.Struct):
    input_size: _Sizes
    measurement: MeasurementLine
    providers: Annotated[dict[str, MeasurementLine], _FEW] = {}


class VerdictLine(msgspec.Struct):
    right: bool
    max_error: float | None
    allowed_error: float | None
    reason: str = ""

    def to_verdict(self) -> Verdict:
        return Verdict(
            right=self.right,
            max_error=math.inf if self.max_error is None else self.max_error,  # JSON has no infinity
            allowed_error=math.inf if self.allowed_error is None else self.allowed_error,
            reason=one_line(self.reason, most=_TEXT_CHARACTERS),
        )


class RecordLine(msgspec.Struct):
    """Other fields are ignored: later versions may have more of a measurement."""

    format: Literal[1]
    workload: WorkloadLine
    config: Annotated[dict[str, _Value | str], _FEW]
    device: str
    status: Status
    measurement: MeasurementLine | None = None
    confirmed: bool = False
    raced: bool = False
    settled: bool = False
    verdict: VerdictLine | None = None
    providers: Annotated[dict[str, MeasurementLine], _FEW] = {}
    resources: Annotated[dict[str, _Value], _FEW] = {}
    detail: str = ""
    versions: Annotated[dict[str, str], _FEW] = {}
    created: str = ""
    others: Annotated[tuple[AtSizeLine, ...], _FEW] = ()

    def check(self) -> None:
        """Raises ValidationError or InvalidWorkload if no record can be made."""
        if not isinstance(self.config.get("template"), str):
            raise msgspec.ValidationError("config names no template")
        names = self._names()
        if max(map(len, names)) > _NAME_CHARACTERS or not "".join(names).isprintable():
            raise msgspec.ValidationError("a name is too long, or has characters that do not print")
        self.workload.to_workload()
        if self.others and tuple(each.input_size for each in self.others) != self.workload.also_at:
            raise msgspec.ValidationError("others are not of the sizes of also_at")

    def to_record(self) -> TuningRecord:
        knobs = dict(self.config)
        template = str(knobs.pop("template"))
        return TuningRecord(
            workload=self.workload.to_workload(),
            config=Config(template, tuple(knobs.items())),
            device=self.device,
            status=self.status,
            measurement=_as(Measurement | None, self.measurement),
            confirmed=self.confirmed,
            raced=self.raced,
            settled=self.settled,
            verdict=self.verdict.to_verdict() if self.verdict else None,
            providers=_as(dict[str, Measurement], self.providers),
            others=_as(tuple[AtSize, ...], self.others),
            resources=self.resources,
            detail=one_line(self.detail, most=_TEXT_CHARACTERS),
            versions=self.versions,
            created=self.created,
        )

    def _names(self) -> list[str]:
        """Strings that are identifiers rather than text, and that may be printed."""
        chosen = (value for value in self.config.values() if isinstance(value, str))
        others = (name for each in self.others for name in each.providers)
        listed = (*self.providers, *others, *self.resources, *self.versions, *self.versions.values())
        return [self.device, self.created, *self.config, *chosen, *listed]


class _VersionLine(msgspec.Struct):
    format: int


_version_decoder = msgspec.json.Decoder(_VersionLine)
read_checked = msgspec.json.Decoder(RecordLine).decode
"""The content of a line that was checked before."""
