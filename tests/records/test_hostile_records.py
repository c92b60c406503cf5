"""Whatever a log holds, a call gives PyTorch's result: no exception, no memory that is not its own."""

from __future__ import annotations

import dataclasses
import sys
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
import pytest
import torch
import torch.nn.functional as F

import dwconv
from dwconv.errors import DwconvWarning
from dwconv.problems.block import Block
from dwconv.problems.target import cpu_target
from dwconv.problems.workload import LAYOUTS, PASSES, Layout, Pass, Workload
from dwconv.records.log import encode
from dwconv.records.record import TuningRecord
from dwconv.schedules.space import Config, Value
from dwconv.schedules.template import all_templates
from tests import forked
from tests.planted_records import record_of, workload_of

pytestmark = pytest.mark.usefixtures("threads_as_asked")
MEMORY_FORMAT = {"nchw": torch.contiguous_format, "nhwc": torch.channels_last}


def tensors(workload: Workload) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    x = torch.randn(workload.input_shape).to(memory_format=MEMORY_FORMAT[workload.layout])
    return x.requires_grad_(), torch.randn(workload.out_channels, 1, *workload.kernel, requires_grad=True)


def step(convolve, x: torch.Tensor, w: torch.Tensor, **more: int) -> list[torch.Tensor]:
    y = convolve(x, w, padding=1, **more)
    return [y.detach(), *torch.autograd.grad(y.sin().sum(), (x, w))]


def check_calls(workload: Workload, convolve=dwconv.conv2d) -> list[str]:
    """A training step, once through Python and once as it was learnt, is PyTorch's. What was said of it."""
    x, w = tensors(workload)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = [step(convolve, x, w) for _ in range(2)]
    for ours in found:
        torch.testing.assert_close(ours, step(F.conv2d, x, w, groups=workload.channels), rtol=1e-4, atol=1e-4)
    return [str(warning.message) for warning in caught if warning.category is DwconvWarning]


def plant_lines(logs: Path, lines: Iterable[bytes]) -> None:
    (logs / "log.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))
    dwconv.reset()


def promising(workload: Workload, config: Config) -> TuningRecord:
    """Nothing is faster, if it is to be believed."""
    return record_of(workload, config=config, baseline_us=1e6)


# -- templates for something else ------------------------------------------------------------------------------------


def foreign_configs(workload: Workload) -> Iterator[Config]:
    """A configuration of every CPU template for another pass, legal in its space."""
    for template in all_templates().values():
        if template.device == "cpu" and template.pass_ != workload.pass_:
            block = Block.parse("bn+relu,bn+relu") if template.pass_ not in PASSES else None
            other = dataclasses.replace(workload, pass_=template.pass_, block=block)
            yield template.space(other, cpu_target()).default


def check_foreign(logs: Path, workload: Workload, config: Config) -> None:
    plant_lines(logs, [encode(promising(workload, config))])
    (message,) = check_calls(workload)
    assert f"template={config.template} does not run {workload.key} on cpu: it is for " in message, message


def run_other_passes(logs: Path) -> None:
    for layout in LAYOUTS:
        for pass_ in PASSES:
            workload = workload_of(pass_=pass_, layout=layout)
            for config in foreign_configs(workload):
                check_foreign(logs, workload, config)
    print("survived")


def test_a_template_of_another_pass_is_never_run(logs: Path) -> None:
    """In a process of its own: it would write where it must not."""
    module = "from tests.records import test_hostile_records as it"
    program = f"import pathlib; {module}; it.run_other_passes(pathlib.Path({str(logs)!r}))"
    ran = forked.run([sys.executable, "-c", program], cwd=Path(__file__).parents[2], text=True)
    assert (ran.returncode, ran.stdout) == (0, "survived\n"), ran.stderr[-3000:]


def test_a_template_of_another_device_is_never_run(logs: Path) -> None:
    check_foreign(logs, workload_of(layout="nchw"), Config.of("cuda.fprop_nchw"))
    foreign = [(workload_of(pass_=pass_), Config.of(f"cuda.{pass_}_nhwc")) for pass_ in PASSES]
    plant_lines(logs, [encode(promising(*each)) for each in foreign])
    check_calls(workload_of(), torch.compile(dwconv.conv2d, backend="aot_eager", fullgraph=True))


# -- knobs -----------------------------------------------------------------------------------------------------------


def default_of(workload: Workload) -> Config:
    template = all_templates()[f"cpu.{workload.pass_}_{workload.layout}"]
    return template.space(workload, cpu_target()).default


def with_every(config: Config, value: Value) -> dict[str, Value]:
    return dict.fromkeys(dict(config.values), value)


DAMAGES = {
    "words": lambda config: with_every(config, "word"),
    "numbers as words": lambda config: {name: str(value) for name, value in config.values},
    "an unknown knob": lambda config: {**dict(config.values), "new_knob": 1},
    "a knob with the name of a parameter": lambda config: {**dict(config.values), "cls": 1, "self": 2, "values": 3},
    "nothing": lambda config: {},
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("pass_", PASSES)
def test_damaged_knobs_are_refused(logs: Path, pass_: Pass, layout: Layout) -> None:
    workload = workload_of(pass_=pass_, layout=layout)
    default = default_of(workload)
    for what, damage in DAMAGES.items():
        line = {**as_data(promising(workload, default)), "config": {"template": default.template, **damage(default)}}
        plant_lines(logs, [msgspec.json.encode(line)])
        (message,) = check_calls(workload)
        if what != "nothing":
            assert "no tuned configuration is valid any more" in message, (what, message)


def as_data(record: TuningRecord) -> dict:
    return msgspec.json.decode(encode(record))
