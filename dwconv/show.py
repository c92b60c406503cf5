"""``python -m dwconv.show``: a candidate's configuration, tiling, TIR, source, machine code, launches,
computed cost, or its records.

Nothing is run: the CUDA source and its launches print on a machine without a GPU.
"""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from dwconv.commands.command_line import ArgumentParser, known_records, named_path, note, run
from dwconv.commands.workload_arguments import add_workload_arguments, with_arithmetic, workload_from
from dwconv.errors import InvalidConfig
from dwconv.problems.workload import ALL_PASSES, BLOCK_PASSES, EVAL_PASSES, PASSES

if TYPE_CHECKING:
    from dwconv.kernels.artifact import Argument, Artifact, Scalar
    from dwconv.problems.target import Target
    from dwconv.problems.workload import Workload
    from dwconv.schedules.template import Candidate

WHAT = {
    "config": "the knobs, with the values each may take",
    "tiling": "how the configuration cuts the convolution: block tiles, threads, virtual threads, halo, banks",
    "tir": "the scheduled TVM program",
    "source": "the CUDA C++ of a GPU candidate, the LLVM IR of a CPU one",
    "asm": "the machine code of a CPU candidate",
    "launches": "the CUDA kernels in the order they run, with grid, block, registers and arguments",
    "sass": "the machine code of a GPU candidate",
    "cost": "what a GPU candidate would cost: instructions against the budget, traffic, microseconds a resource",
    "log": "every record of the workload on the device",
}


def main(argv: list[str] | None = None) -> int:
    """Returns the exit code: 2 for bad input."""
    return run(_show, argv)


def _show(argv: list[str] | None) -> int:
    arguments = parser_of_show().parse_args(argv)
    workload = workload_from(arguments, arguments.pass_)

    from dwconv.problems.target import parse_target

    target = with_arithmetic(arguments, parse_target(arguments.target))
    if arguments.what == "log":
        text, fields = _log(workload, target, log=arguments.log)
    else:
        candidate = _candidate(workload, target, wanted=arguments.config, log=arguments.log)
        text, fields = _ANSWERS[arguments.what](candidate, target)
        fields["config"] = candidate.config.to_dict()
    print(json.dumps(fields, indent=2) if arguments.json else text)
    return 0


def parser_of_show() -> argparse.ArgumentParser:
    """The parser of the command."""
    parser = ArgumentParser(
        prog="python -m dwconv.show",
        description="Print a candidate: one configuration of one pass of a depthwise convolution.",
        epilog="--what takes one of these names:\n" + "\n".join(map(_meaning, WHAT)),
        keep_lines=True,
    )
    add_workload_arguments(parser)
    usual = (
        f"{', '.join(PASSES)}, or backward, both gradients in one kernel; of a block "
        f"{', '.join((*BLOCK_PASSES, *EVAL_PASSES))}; by default the first"
    )
    parser.add_argument("--pass", dest="pass_", choices=ALL_PASSES, metavar="PASS", help=usual)
    parser.add_argument(
        "--what", choices=WHAT, default="config", metavar="NAME", help="one name, listed below; default config"
    )
    parser.add_argument(
        "--config",
        metavar="best|default|JSON",
        help="the best recorded configuration, the template's default, or knobs as JSON, the rest as in the default; "
        "without it: the best if there is one, else the default",
    )
    parser.add_argument("--log", type=named_path, metavar="PATH", help="records to read, instead of the usual places")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    return parser


def _meaning(name: str) -> str:
    return textwrap.fill(f"  {name:10}{WHAT[name]}", width=79, subsequent_indent=" " * 12)


_Answer = tuple[str, dict[str, Any]]
"""As text, for people, and as JSON fields, for programs."""


# -- which candidate ---------------------------------------------------------------------------------------------


def _candidate(workload: Workload, target: Target, *, wanted: str | None, log: Path | None) -> Candidate:
    from dwconv.schedules.template import Candidate, template, templates_for

    if wanted is not None and wanted.lstrip().startswith("{"):
        fields = _knobs(wanted)
        chosen = template(fields["template"]) if "template" in fields else templates_for(workload, target)[0]
        space = chosen.space(workload, target)
        return Candidate(workload, space.check({**space.default.to_dict(), **fields}))
    if wanted not in (None, "best", "default"):
        raise InvalidConfig(f"--config {wanted} is unknown; use best, default or JSON such as '{{\"tile_h\": 4}}'")
    default = templates_for(workload, target)[0].space(workload, target).default
    if wanted != "default":
        from dwconv.dispatch.knowledge import best_here

        record = best_here(workload, target, known=known_records([log] if log else []))
        if record is not None:
            return Candidate(workload, record.config)
        missing = f"{workload.key} has no record on {target.device}"
        if wanted == "best":
            raise InvalidConfig(f"--config best: {missing}; use --config default, or tune it")
        note(f"{missing}; this is the default configuration")
    return Candidate(workload, default)


def _knobs(text: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, int | str])
    except msgspec.ValidationError as error:
        raise InvalidConfig(f"--config {text}: a knob is a whole number or a name: {error}") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidConfig(f"--config {text} is not JSON: {error}") from None


# -- what is printed -------------------------------------------------------------------------------------------------


def _config(candidate: Candidate, target: Target) -> _Answer:
    space = candidate.template.space(candidate.workload, target)
    chosen = candidate.config.to_dict()
    width = max(len(knob.name) for knob in space.knobs)
    lines = [f"{candidate.workload.key} on {target}", f"template {space.template}"]
    for knob in space.knobs:
        values = " ".join(f"[{value}]" if value == chosen[knob.name] else str(value) for value in knob.values)
        lines.append(f"  {knob.name:{width}}  {values}")
    fields = {"workload": candidate.workload.to_dict(), "knobs": {knob.name: list(knob.values) for knob in space.knobs}}
    return "\n".join(lines), fields


def _tiling(candidate: Candidate, target: Target) -> _Answer:
    from dwconv.schedules.template import tiling

    picture = tiling(candidate)
    knobs = textwrap.fill(f"{candidate.config.template} {candidate.config}", width=100, subsequent_indent="  ")
    return "\n".join([f"{candidate.workload.key} on {target}", knobs, "", picture]), {
        "workload": candidate.workload.to_dict(),
        "tiling": picture,
    }


def _tir(candidate: Candidate, target: Target) -> _Answer:
    script = candidate.schedule(target).mod.script()
    return script, {"tir": script}


def _source(candidate: Candidate, target: Target) -> _Answer:
    source = _built(candidate, target).source
    return source, {"source": source}


def _asm(candidate: Candidate, target: Target) -> _Answer:
    from dwconv.kernels.cpu_build import assembly

    text = assembly(_built(candidate, target, only="cpu", instead="--what sass"))
    return text, {"asm": text}


def _launches(candidate: Candidate, target: Target) -> _Answer:
    from dwconv.kernels.artifact import at_batch
    from dwconv.tuner.cost_report import resource_words

    artifact, batch = _built(candidate, target, only="cuda"), candidate.workload.batch
    lines, launches = [], []
    for launch in artifact.launches:
        grid, block = [at_batch(size, batch) for size in launch.grid], list(launch.block)
        arguments = [_argument(argument, batch) for argument in launch.arguments]
        resources = artifact.kernel_resources.get(launch.kernel, {})
        lines.append(f"{launch.kernel} grid={grid} block={block} dynamic shared={launch.shared_bytes} bytes")
        lines.append(f"  {resource_words(resources)}")
        for argument in arguments:
            what = argument["value"] if "value" in argument else f"{argument['dtype']}{argument['shape']}"
            lines.append(f"  {argument['name']}: {what}")
        sizes = {"grid": grid, "block": block, "shared_bytes": launch.shared_bytes}
        launches.append({"kernel": launch.kernel, **sizes, "resources": resources, "args": arguments})
    return "\n".join(lines), {"source": artifact.source, "launches": launches}


def _sass(candidate: Candidate, target: Target) -> _Answer:
    from dwconv.kernels.sass import disassemble

    artifact = _built(candidate, target, only="cuda")
    codes = disassemble(artifact.cubin)
    texts = {launch.kernel: codes[launch.kernel] for launch in artifact.launches}
    return "\n".join(texts.values()), {"sass": texts}


def _cost(candidate: Candidate, target: Target) -> _Answer:
    from dwconv.problems.target import CudaTarget
    from dwconv.tuner.cost_report import cost_data, cost_lines
    from dwconv.tuner.gpu_cost import computed_cost

    artifact = _built(candidate, target, only="cuda")
    assert isinstance(target, CudaTarget)
    cost = computed_cost(artifact, candidate.workload, target)
    heading = [f"{candidate.workload.key} on {target}", f"{candidate.config.template} {candidate.config}"]
    text = "\n".join([*heading, *cost_lines(cost), "computed, not measured"])
    return text, {"workload": candidate.workload.to_dict(), "cost": cost_data(cost)}


def _argument(argument: Argument | Scalar, batch: int) -> dict[str, Any]:
    from dwconv.kernels.artifact import Scalar, at_batch

    if isinstance(argument, Scalar):
        return {"name": argument.name, "value": at_batch(argument.value, batch)}
    return {"name": argument.name, "dtype": argument.dtype, "shape": list(argument.shape_at(batch))}


def _built(candidate: Candidate, target: Target, *, only: str = "", instead: str = "--what source") -> Artifact:
    """Raises InvalidConfig for a target that is not of the ``only`` kind with such an answer."""
    from dwconv.kernels import build

    if only and target.kind != only:
        raise InvalidConfig(f"{candidate.config.template} is a template for {target.kind}, not {only}; use {instead}")
    return build(candidate, target)


def _log(workload: Workload, target: Target, *, log: Path | None) -> _Answer:
    from dwconv.records.line import encode

    found = known_records([log] if log else []).records(workload, target.device)
    records = [record for record in found if record.fast_math == target.fast_math]
    lines = [f"{len(records)} records of {workload.key} on {target.device}"]
    for record in sorted(records, key=lambda r: r.measurement.median_us if r.measurement else float("inf")):
        if record.measurement is None:
            lines.append(f"  {record.status.value:>13}  {record.config}  {record.detail}")
            continue
        how = "computed" if record.measurement.computed else f"± {record.measurement.spread_us:.1f} µs"
        faster = f"  {record.speedup:.2f}× {record.baseline[0]}" if record.speedup and record.baseline else ""
        lines.append(f"  {record.measurement.median_us:10.1f} µs {how}{faster}  {record.config}")
    return "\n".join(lines), {"records": [json.loads(encode(record)) for record in records]}


_ANSWERS = {
    "config": _config, "tiling": _tiling, "tir": _tir, "source": _source, "asm": _asm, "launches": _launches,
    "sass": _sass, "cost": _cost,
}  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
