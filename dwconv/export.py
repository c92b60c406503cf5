"""``python -m dwconv.export``: write tuned kernels as a pack, compiled, to run without tuning log, TVM and compiler."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dwconv.commands.command_line import ArgumentParser, integers, known_records, named_path, note, run
from dwconv.commands.tune_arguments import (
    add_passes,
    add_what_to_tune,
    asks_for_both_gradients,
    model_input,
    workloads_from,
)
from dwconv.commands.workload_arguments import with_arithmetic
from dwconv.errors import LogError
from dwconv.problems.target import FORCED_VECTOR_SETS
from dwconv.system.remote_files import shown
from dwconv.system.versions import check_can_build

if TYPE_CHECKING:
    from dwconv.packs.write_pack import MadePack
    from dwconv.problems.target import Target
    from dwconv.problems.workload import Workload
    from dwconv.records.database import Database


def main(argv: list[str] | None = None) -> int:
    """Returns the exit code: 0, 2 for bad input."""
    return run(_export, argv)


def parser_of_export() -> ArgumentParser:
    """The parser of the command."""
    parser = ArgumentParser(
        prog="python -m dwconv.export",
        description="Write the tuned kernels of a layer, a network, a model or a whole log as a pack: compiled, with "
        "the records that chose them. dwconv.load_pack runs them without tuning log, TVM, NVRTC and compiler.",
        epilog="A pack is code that is run: load only packs from people you trust. Without --shape, --network and "
        "--model, all records of the device in the logs are exported. A pack for a CPU takes a C++ compiler here, "
        "to link it.",
    )
    add_what_to_tune(parser)
    add_passes(parser)
    output = parser.add_argument_group("pack")
    output.add_argument(
        "--log",
        type=named_path,
        nargs="+",
        metavar="PATH",
        help="logs, or folders of logs; default your own",
    )
    output.add_argument(
        "--generic",
        action="store_true",
        help="kernels for every layer instead, of any batch, size and number of channels, for all CPUs with the "
        "vectors of --target cpu:avx2, cpu:avx512 or cpu:neon, or for all GPUs of --target cuda:sm_90 or another "
        "architecture; with --dtype, of the usual kernel sizes or --kernel",
    )
    out = "the pack; it must not exist"
    output.add_argument("-o", "--out", type=named_path, required=True, metavar="DIR", help=out)
    output.add_argument("--put", metavar="URL", help="also put the pack there, among others")
    return parser


def _export(argv: list[str] | None) -> int:
    parser = parser_of_export()
    args = parser.parse_args(argv)
    if args.fast_math:
        parser.error("--fast-math: packs hold kernels with IEEE arithmetic only; leave it out")
    check_can_build()
    from dwconv.packs.remote import put_pack
    from dwconv.packs.write_pack import make_pack
    from dwconv.problems.target import parse_target

    if args.generic:
        made = _generic(parser, args)
    else:
        target = with_arithmetic(args, parse_target(args.target))
        known = known_records(args.log or [])
        workloads = _workloads(parser, args, target, known)
        note(f"compiling for {target.device}: kernels of {len(workloads)} passes at most")
        made = make_pack(workloads, target, folder=args.out, known=known)
    _print(made)
    if args.put is not None:
        print(f"put: {shown(put_pack(args.out, made.manifest, args.put))}")
    return 0


def _generic(parser: ArgumentParser, args: argparse.Namespace) -> MadePack:
    """The pack for every layer. Raises what making it raises."""
    from dwconv.packs.write_pack import make_pack_for_every_layer
    from dwconv.problems.target import CudaTarget, parse_target, target_of_vector_set
    from dwconv.untuned.every_layer import candidates

    name = next((each for each in FORCED_VECTOR_SETS if args.target == f"cpu:{each}"), None)
    target = target_of_vector_set(name) if name else parse_target(args.target)
    if name is None and not (isinstance(target, CudaTarget) and not target.present):
        sets = ", ".join(f"cpu:{each}" for each in FORCED_VECTOR_SETS)
        parser.error(
            f"target={args.target}: a pack for every layer is for CPUs with a set of vectors, or for an architecture "
            f"of GPUs; use {sets} or cuda:sm_90"
        )
    for option in ("shape", "network", "model", "log"):
        if getattr(args, option) is not None:
            parser.error(f"--{option} goes without --generic, whose kernels run layers of any size")
    taps = integers("kernel", args.kernel) if args.kernel is not None else ()
    wanted = candidates(target, dtype=args.dtype, taps=taps)
    if not wanted:
        parser.error(f"kernel={args.kernel}: no pack for every layer has it; leave it out")
    note(f"compiling for {target.device}: {len(wanted)} kernels")
    return make_pack_for_every_layer(wanted, target, folder=args.out)


def _workloads(parser: ArgumentParser, args: argparse.Namespace, target: Target, known: Database) -> Sequence[Workload]:
    """What to export. Raises InvalidWorkload for a model or a network that is unknown, LogError for an empty log."""
    counts: Mapping[Workload, int] | None = None
    if input_shape := model_input(parser, args):
        from dwconv.commands.tune_model import counts_of

        counts = counts_of(args, target, input_shape)
    elif args.network is not None or args.shape is not None or args.log is None:
        counts = workloads_from(parser, args)
    if counts is not None:
        from dwconv.tuner.step_time import with_both_gradients

        return list(with_both_gradients(counts, target) if asks_for_both_gradients(args) else counts)
    records = [record for record in known if record.device == target.device]
    if not records:
        logs = ", ".join(map(str, args.log))
        devices = sorted({record.device for record in known})
        has = f"they are of {', '.join(devices)}" if devices else "there are no records at all"
        raise LogError(f"log={logs} has no records of {target.device}: {has}; tune first, or name another --target")
    return list(dict.fromkeys(record.workload for record in records))


def _print(made: MadePack) -> None:
    manifest = made.manifest
    if made.without_records:
        from dwconv.problems.as_written import tune_command

        note(
            f"{len(made.without_records)} of the passes have no deciding record, and run as untuned; the first: "
            f"{tune_command(made.without_records[0])}"
        )
    if made.of_pytorch:
        note(f"{made.of_pytorch} of the passes run on PyTorch's op, which is faster there")
    if made.without_native:
        note(f"calls of this pack go through Python: {made.without_native}")
    if manifest.made_for.every_layer:
        note("none of these kernels was measured; dwconv.convert with an example races them")
    elif not manifest.made_for.measured:
        note("none of these kernels was measured; dwconv.load_pack(…, unmeasured=True) runs them anyway")
    print(made)
    print(f"needs: {manifest.needs}")
    print(f"sha256: {manifest.sha256}")
    print("a pack is code that will run: load packs only from people you trust")


if __name__ == "__main__":
    sys.exit(main())
