"""``python -m dwconv.export``: what it writes, what it says, and bad input in one line."""

from __future__ import annotations

import hashlib

import pytest
import torch

from dwconv import export, settings
from dwconv.errors import BuildError
from dwconv.kernels.manifest import MANIFEST, decode
from dwconv.packs import write_pack
from dwconv.packs.pack_choice import choose
from dwconv.packs.read_pack import load_pack
from dwconv.packs.write_pack import make_pack
from dwconv.problems.target import cpu_target, parse_target
from dwconv.problems.workload import BLOCK_PASSES, PASSES
from dwconv.records.database import Database
from dwconv.records.log import TuningLog
from dwconv.schedules.space import Config
from dwconv.schedules.template import templates_for
from tests import planted_records
from tests.packs.conftest import BLOCK, LAYER, SMALL
from tests.packs.forging import kernels_in

SHAPE = ("--shape", "2,8,4,6,5", "--kernel", "3", "--layout", "nhwc")


def run(*options: object) -> int | str | None:
    """The exit code of the command."""
    try:
        return export.main([*map(str, options)])
    except SystemExit as exit:  # argparse ends this way
        return exit.code


def error_of(capsys: pytest.CaptureFixture[str], *options: object) -> str:
    """The one line that answers bad input; notes may stand before it."""
    assert run(*options) == 2
    out, err = capsys.readouterr()
    assert out == ""
    *notes, line = err.splitlines()
    assert line.startswith("error: ") and all(note.startswith("note: ") for note in notes)
    return line


# -- what it writes --------------------------------------------------------------------------------------------------


def test_the_command_says_what_it_made_what_it_needs_and_how_large_it_is(made, planted_log, capsys, tmp_path, no_packs):
    folder = tmp_path / "pack"
    assert run(*SHAPE, "--log", planted_log, "-o", folder, "--passes", "dgrad") == 0
    out, err = capsys.readouterr()
    manifest = decode((folder / MANIFEST).read_bytes())
    pack, needs, digest, warning = out.splitlines()
    assert pack == f"{folder}: 1 kernel, {manifest.bytes / 1e6:.1f} MB"
    assert needs == f"needs: {manifest.needs}" and cpu_target().device in needs and "PyTorch" in needs
    assert digest == f"sha256: {manifest.sha256}"
    assert "only from people you trust" in warning
    assert err.startswith(f"note: compiling for {cpu_target().device}: ")
    load_pack(folder, sha256=manifest.sha256)


def test_the_manifest_lists_every_file_with_its_size(made):
    files = {str(path.relative_to(made.folder)): path for path in made.folder.rglob("*") if path.is_file()}
    del files[MANIFEST]
    listed = {file.path: file for file in made.manifest.files}
    assert listed.keys() == files.keys()
    for name, path in files.items():
        content = path.read_bytes()
        assert (listed[name].bytes, listed[name].sha256) == (len(content), hashlib.sha256(content).hexdigest())
    assert made.manifest.bytes == sum(path.stat().st_size for path in files.values())
    assert made.manifest.versions.keys() == {"dwconv", "torch", "tvm", "linker", "sources"}


def test_a_whole_log_without_naming_a_layer(made, planted_log, tmp_path):
    assert run("--log", planted_log, "-o", tmp_path / "pack") == 0
    keys = {kernel.candidate.workload.key for kernel in kernels_in(tmp_path / "pack").values()}
    known = [(layer, pass_) for layer in (LAYER, SMALL) for pass_ in PASSES]
    known += [(BLOCK, pass_) for pass_ in BLOCK_PASSES]
    assert keys == {layer.for_pass(pass_).key for layer, pass_ in known}


def test_a_model_s_layers(made, tmp_path, monkeypatch, capsys):
    """Those that it runs; here, one of three layers is tuned."""
    layer = planted_records.workload_of(shape=(2, 8, 6, 6), layout="nchw")
    planted_records.plant(tmp_path / "log.jsonl", [layer], template_layout="nchw")
    options = ("--model", "tests.models:TinyNet", "--input", "2,3,6,6")
    assert run(*options, "--log", tmp_path / "log.jsonl", "-o", tmp_path / "pack") == 0
    assert {kernel.candidate.workload.batchless_key for kernel in kernels_in(tmp_path / "pack").values()} == {
        layer.for_pass(pass_).batchless_key for pass_ in PASSES
    }
    err = capsys.readouterr().err
    assert "6 of the passes have no deciding record" in err and "python -m dwconv.tune --shape" in err


def test_where_pytorch_is_faster_its_record_goes_along_without_a_kernel(made, tmp_path, no_packs, monkeypatch):
    """That takes no compiler."""
    monkeypatch.setenv("CXX", "no-such-compiler")
    log = tmp_path / "log.jsonl"
    planted_records.plant(log, [SMALL], baseline_us=1.0)
    workloads = [SMALL.for_pass(pass_) for pass_ in PASSES]
    slower = make_pack(workloads, cpu_target(), folder=tmp_path / "pack", known=Database.load([log]))
    assert (slower.of_pytorch, slower.manifest.kernels, "linker" in slower.manifest.versions) == (3, [], False)
    load_pack(tmp_path / "pack")
    from dwconv.dispatch.decide import decide

    decision = decide(SMALL, "cpu")
    assert decision.provider == "pytorch" and "is faster" in decision.reason and not decision.command


def test_a_kernel_of_few_threads_brings_the_one_of_all_for_larger_batches(tmp_path):
    target = cpu_target(threads=4)
    (template,) = (each for each in templates_for(SMALL, target) if each.layout == "nhwc")
    default = template.space(SMALL, target).default
    config = Config.of(default.template, **{**dict(default.values), "threads": 1})
    log = TuningLog(tmp_path / "log.jsonl")
    log.append(planted_records.record_of(SMALL, config=config, device=target.device, baseline_us=1000.0))
    choice = choose(SMALL, target, Database.load([log.path]))
    assert choice is not None
    assert [candidate.config.threads for candidate in choice.candidates] == [1, 4]


def test_a_pack_for_a_gpu_that_is_not_here(tmp_path, capsys):
    """From computed costs: cubins, and no word of theirs having been measured."""
    pytest.importorskip("cuda.bindings.nvrtc")
    target = parse_target("cuda:sm_90")
    workload = planted_records.workload_of(shape=(2, 8, 12, 12), layout="nchw").for_pass("fprop")
    config = templates_for(workload, target)[0].space(workload, target).default
    record = planted_records.record_of(workload, config=config, device="sm_90", computed=True, baseline_us=None)
    TuningLog(tmp_path / "log.jsonl").append(record)
    assert run("--target", target, "--log", tmp_path / "log.jsonl", "-o", tmp_path / "pack") == 0
    assert "none of these kernels was measured" in capsys.readouterr().err
    manifest = decode((tmp_path / "pack" / MANIFEST).read_bytes())
    (kernel,) = kernels_in(tmp_path / "pack").values()
    assert kernel.cubin.startswith(b"\x7fELF") and not kernel.source
    assert (manifest.made_for.arch, manifest.made_for.measured) == ("sm_90", False)
    layer = ("--shape", "2,8,12,12", "--kernel", 3)
    assert run("--target", target, "--log", tmp_path / "log.jsonl", *layer, "-o", tmp_path / "of_a_layer") == 0
    assert "note: 2 of the passes have no deciding record" in capsys.readouterr().err, "none lacks both in one kernel"


# -- bad input -------------------------------------------------------------------------------------------------------


def test_an_unknown_model_or_network(capsys, tmp_path, planted_log):
    out = ("-o", tmp_path / "pack", "--log", planted_log)
    assert "there is no module no_such_module" in error_of(
        capsys, "--model", "no_such_module:Net", "--input", "1,3,8,8", *out
    )
    assert "network=NoNet is not in" in error_of(capsys, "--network", "NoNet", "--batch", "1", *out)
    assert "give --shape N,C,H,W" in error_of(capsys, "-o", tmp_path / "pack")
    assert not (tmp_path / "pack").exists()


def test_an_empty_log_or_none(capsys, tmp_path):
    (tmp_path / "empty.jsonl").touch()
    out = ("-o", tmp_path / "pack")
    assert "there are no records at all" in error_of(capsys, "--log", tmp_path / "empty.jsonl", *out)
    assert "missing.jsonl does not exist" in error_of(capsys, "--log", tmp_path / "missing.jsonl", *out)
    line = error_of(capsys, *SHAPE, "--log", tmp_path / "empty.jsonl", *out)
    assert f"none of 3 passes has a record of {cpu_target().device}" in line and "python -m dwconv.tune" in line


def test_a_target_without_records(capsys, tmp_path, planted_log):
    out = ("-o", tmp_path / "pack", "--log", planted_log, "--target", "cuda:sm_90")
    line = error_of(capsys, *out)
    assert f"has no records of sm_90: they are of {cpu_target().device}" in line
    assert "none of 3 passes has a record of sm_90" in error_of(capsys, *SHAPE, *out)


def test_a_folder_that_is_there_stays_as_it_is(capsys, tmp_path, planted_log):
    assert f"out={tmp_path} exists already" in error_of(capsys, *SHAPE, "--log", planted_log, "-o", tmp_path)
    (tmp_path / "file").write_text("mine")
    line = error_of(capsys, *SHAPE, "--log", planted_log, "-o", tmp_path / "file" / "pack")
    assert "cannot be written: Not a directory" in line
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_without_a_compiler_nothing_is_left_behind(capsys, tmp_path, planted_log, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setattr(write_pack, "build_cached", None)  # it is said before kernels are built, which takes minutes
    line = error_of(capsys, *SHAPE, "--log", planted_log, "-o", tmp_path / "pack")
    assert f"linked by a C++ compiler, and there is no {settings.linker()}" in line
    assert list(tmp_path.iterdir()) == []


class _Unsteady:
    """A kernel that gives other numbers each time."""

    workload = SMALL

    @classmethod
    def load(cls, artifact: object) -> _Unsteady:
        return cls()

    def __call__(self, *inputs: torch.Tensor) -> torch.Tensor:
        return torch.rand(3)


def test_a_kernel_that_gives_other_bits_once_linked_ends_it_and_nothing_is_left_behind(
    made, planted_log, tmp_path, monkeypatch
):
    monkeypatch.setattr(write_pack, "Kernel", _Unsteady)
    with pytest.raises(BuildError, match="the linked kernel computes something else than the one that was tuned"):
        make_pack([SMALL], cpu_target(), folder=tmp_path / "pack", known=Database.load([planted_log]))
    assert list(tmp_path.iterdir()) == []


def test_relaxed_arithmetic_is_refused(capsys, tmp_path):
    assert "--fast-math: packs hold kernels with IEEE" in error_of(
        capsys, *SHAPE, "--fast-math", "-o", tmp_path / "pack"
    )
