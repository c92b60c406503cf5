"""The kernels for every layer that the package brings: found unasked, read when they are wanted, checked."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import torch
from torch.nn import functional as F

import dwconv
from dwconv import settings
from dwconv.call import process_kernels
from dwconv.dispatch import decide, loaded_packs
from dwconv.errors import DwconvWarning, PackError
from dwconv.kernels import base_pack, cache, entry, pack_files
from dwconv.kernels.artifact import Artifact
from dwconv.kernels.manifest import MANIFEST
from dwconv.measure.verify import first_use
from dwconv.packs.write_pack import make_base_pack
from dwconv.problems.target import FORCED_VECTOR_SETS, cpu_target, pack_target
from dwconv.problems.workload import BLOCK_PASSES, EVAL_PASSES, PASSES, Workload
from dwconv.records.database import Database
from dwconv.records.log import TuningLog
from dwconv.schedules.template import Candidate
from dwconv.system import cpu_facts
from dwconv.tuner.race_state import RaceState
from dwconv.untuned import every_layer
from tests import planted_records
from tests.native_needed import compiled_way
from tests.packs.clean import run_clean
from tests.packs.forging import forge, forge_kernels, made_for

SETS = [name for name in FORCED_VECTOR_SETS if cpu_facts.cpu_facts().has(name)]
pytestmark = [
    pytest.mark.skipif(not SETS, reason="this CPU has no set of vectors that packs are made for"),
    pytest.mark.usefixtures("no_packs"),
]
LAYER = planted_records.workload_of(shape=(4, 48, 20, 20))
BLOCK = planted_records.workload_of(shape=(4, 48, 20, 20), block="bn+relu6,bn+relu6")
EVERY_PASS = [*map(LAYER.for_pass, PASSES), *map(BLOCK.for_pass, (*BLOCK_PASSES, *EVAL_PASSES))]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of base packs, with one of 3×3 kernels of stride 1, alone and in a block, for the widest vectors that
    are here."""
    if shutil.which(settings.linker()) is None:
        pytest.skip("packs for a CPU are linked by a C++ compiler")
    folder = tmp_path_factory.mktemp("base")
    kinds, usual = {each.layer_kind for each in EVERY_PASS}, every_layer.is_usual

    def few(workload: Workload) -> bool:
        return workload.layer_kind in kinds and usual(workload)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dwconv.packs.write_pack.BASE", folder)
        patch.setattr("dwconv.packs.write_pack.is_usual", few)
        pack = make_base_pack(SETS[0], taps=[3])
        assert make_base_pack(SETS[0], taps=[3]).manifest.kernels == pack.manifest.kernels, "in the place of the first"
    assert pack.manifest.native is None and pack.folder == folder / SETS[0]
    return folder


@pytest.fixture
def base(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy in the place of what the package brings, which a test may damage; nothing else was built here."""
    folder = Path(shutil.copytree(made, tmp_path / "base"))
    compiled_way()  # or it would be compiled once more, for that cache
    monkeypatch.setattr(base_pack, "BASE", folder)
    monkeypatch.setenv("DWCONV_CACHE", str(tmp_path / "cache"))
    base_pack.forget()
    loaded_packs.forget()
    dwconv.reset()
    yield folder / SETS[0]
    base_pack.forget()
    loaded_packs.forget()
    dwconv.reset()


@pytest.fixture
def nothing_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(*arguments: object, **more: object) -> None:
        raise AssertionError("a kernel that the package brings was built")

    monkeypatch.setattr(cache, "build", build)


def race_of(*workloads: Workload) -> RaceState:
    state = RaceState(dict.fromkeys(workloads, 1), cpu_target(), known=Database.of([]), seconds=60.0)
    state.order()
    return state


def without_base(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setattr(base_pack, "BASE", folder)
    base_pack.forget()
    loaded_packs.forget()


@pytest.mark.usefixtures("nothing_is_built")
@pytest.mark.parametrize("workload", EVERY_PASS, ids=lambda workload: workload.pass_)
def test_a_race_times_them_and_builds_none(base, workload, monkeypatch, tmp_path):
    race = race_of(workload)
    assert race.next_for_every_layer() is None
    wanted = every_layer.for_layer(workload, pack_target(cpu_target()))
    raced = race.next_comparison()
    assert [each.config for each in raced] == [each.config for each in wanted] and raced[0].workload.any_size
    assert loaded_packs.artifact_of(raced[0], cpu_target()).candidate == raced[0]
    without_base(monkeypatch, tmp_path / "nowhere")
    assert race_of(workload).next_for_every_layer() == wanted[0], "a checkout builds the same ones"


@pytest.mark.usefixtures("nothing_is_built")
@pytest.mark.parametrize("size", [(20, 20), (13, 31)])
@pytest.mark.parametrize("any_size", [True, False])
def test_what_a_record_found_faster_runs_without_a_build(base, logs, any_size, size):
    for pass_ in PASSES:
        workload = LAYER.for_pass(pass_)
        config = every_layer.for_layer(workload, cpu_target())[0].config
        record = planted_records.record_of(dataclasses.replace(workload, any_size=any_size), config=config)
        TuningLog(logs / "log.jsonl").append(dataclasses.replace(record, confirmed=True, raced=True))
    dwconv.reset()
    torch.manual_seed(0)
    x = torch.randn(3, 48, *size).to(memory_format=torch.channels_last).requires_grad_()
    w = torch.randn(48, 1, 3, 3, requires_grad=True)
    found = [torch.autograd.grad(f(x, w, padding=1, groups=48).sin().sum(), (x, w)) for f in (dwconv.conv2d, F.conv2d)]
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-3)
    explained = dwconv.explain(x, w, padding=1)
    assert [each.provider for each in explained.passes] == ["dwconv"] * 3, explained


@pytest.mark.parametrize(
    ("kernel", "is_in"),
    [
        ((3, 3), True), ((11, 11), True), ((13, 13), False), ((1, 4), True), ((1, 31), True), ((1, 13), False),
        ((3, 3, 3), True), ((5, 5, 5), False),
    ],
)  # fmt: skip
def test_the_package_brings_what_is_usual(kernel, is_in):
    sides = tuple((taps // 2, taps // 2) for taps in kernel)
    assert every_layer.is_usual(every_layer.any_layer(kernel=kernel, stride=(1,) * len(kernel), padding=sides)) == is_in


def test_one_that_is_too_large_for_a_wheel_is_not_left_there(made, tmp_path, monkeypatch):
    monkeypatch.setattr("dwconv.packs.write_pack.BASE", tmp_path)
    monkeypatch.setattr("dwconv.packs.write_pack.is_usual", lambda workload: workload == one.workload)
    monkeypatch.setattr("dwconv.packs.write_pack._MOST_BASE_BYTES", 1000)
    one = every_layer.for_layer(LAYER.for_pass("dgrad"), cpu_target())[0]
    with pytest.raises(
        PackError, match=r"avx\d+: \d kernels?, 0\.\d MB are more than the .* one in the package may have"
    ):
        make_base_pack(SETS[0], taps=[3])
    assert not (tmp_path / SETS[0]).exists()


@pytest.mark.usefixtures("nothing_is_built")
def test_a_race_builds_nothing_that_a_loaded_pack_has(base, monkeypatch, tmp_path):
    folder = base.rename(tmp_path / "pack")
    without_base(monkeypatch, tmp_path / "nowhere")
    dwconv.load_pack(folder)
    for workload in EVERY_PASS:
        race = race_of(workload)
        assert race.next_for_every_layer() is None and race.next_comparison()


def test_without_a_record_pytorchs_op_runs(base, logs):
    assert decide.decide_on(cpu_target(), LAYER, predicts=False).provider == "pytorch"
    assert loaded_packs.unmeasured(LAYER, cpu_target()) is None


def test_records_with_a_configuration_for_this_very_machine_have_a_kernel_too(base):
    """Whatever was chosen for its threads and caches."""
    target = dataclasses.replace(cpu_target(), threads=3)
    for pass_ in PASSES:
        workload = LAYER.for_pass(pass_)
        for general in every_layer.all_for_layer(workload, target):
            candidate = Candidate(workload.with_any_size(), general.config)
            assert every_layer.general_of(candidate, target).config == general.config
    own = every_layer.all_for_layer(LAYER.for_pass("wgrad"), target)
    assert len(own) > len(every_layer.for_layer(LAYER.for_pass("wgrad"), target)), "tasks follow the threads"


def test_files_are_read_when_their_layer_comes_and_once(base, monkeypatch):
    read: list[str] = []
    usual = pack_files.content_of

    def content_of(path: Path, *, most_bytes: int) -> bytes:
        read.append(path.name)
        return usual(path, most_bytes=most_bytes)

    monkeypatch.setattr(pack_files, "content_of", content_of)
    target = cpu_target()
    other = planted_records.workload_of(shape=(4, 48, 20, 20), kernel=(5, 5), padding=2)
    assert loaded_packs.configs_for(other, target) == [] and read == [MANIFEST]
    configs = loaded_packs.configs_for(LAYER, target)
    assert len(read) == 1 + len(configs) and all(name.startswith("fprop") for name in read[1:])
    loaded_packs.forget()
    assert loaded_packs.configs_for(LAYER, target) == configs and len(read) == 1 + len(configs)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ("changed", "was changed after the pack was made"),
        ("cut off", "is cut off"),
        ("gone", "cannot be read"),
        ("no kernel", "is cut off"),
    ],
)
def test_a_damaged_kernel_is_left_out_and_named_once(base, damage, words):
    target, first = cpu_target(), every_layer.for_layer(LAYER, cpu_target())[0]
    file = base / pack_files.path_of(first)
    if damage == "changed":  # what still is a kernel, of other code
        forge_kernels(base, lambda artifacts: {path: entry.encode(one) for path, one in artifacts.items()})
    content = file.read_bytes()
    if damage == "gone":
        file.unlink()
    else:
        code = content.index(b"ELF") + 1000 if damage == "changed" else 0
        changed = content[:code] + bytes([content[code] ^ 1]) + content[code + 1 :]
        file.write_bytes({"changed": changed, "cut off": content[:-9], "no kernel": b"?"}[damage])
    with pytest.warns(DwconvWarning, match=f"{file.name}.*{words}.*; install dwconv again"):
        assert first.config not in loaded_packs.configs_for(LAYER, target)
    loaded_packs.forget()
    assert first.config not in loaded_packs.configs_for(LAYER, target), "without another word"
    assert loaded_packs.configs_for(LAYER.for_pass("dgrad"), target), "the others run"


def test_a_damaged_manifest_is_named_once(base):
    (base / MANIFEST).write_text("{}")
    with pytest.warns(DwconvWarning, match="the kernels of the package in .* are left out: its manifest is damaged"):
        assert loaded_packs.configs_for(LAYER, cpu_target()) == []
    assert loaded_packs.configs_for(LAYER, cpu_target()) == []


@pytest.mark.parametrize("name", ["dwconv", "sources"])
def test_those_of_other_sources_are_not_used(base, name):
    forge(base, lambda made: msgspec.structs.replace(made, versions={**made.versions, name: "0"}))
    if name == "dwconv":
        with pytest.warns(DwconvWarning, match="it was made by dwconv 0"):
            assert loaded_packs.configs_for(LAYER, cpu_target()) == []
    assert loaded_packs.configs_for(LAYER, cpu_target()) == [], "a checkout that has changed since"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"instructions": ["avx9000"]}, "its machine code may need avx9000, which this CPU does not have"),
        ({"arch": "riscv64"}, "it is for Linux on riscv64, this is"),
    ],
)
def test_those_for_another_cpu_are_refused_in_one_line(base, fields, words):
    forge(base, made_for(**fields))
    with pytest.warns(DwconvWarning) as said:
        assert loaded_packs.configs_for(LAYER, cpu_target()) == []
    loaded_packs.forget()
    assert loaded_packs.configs_for(LAYER, cpu_target()) == []
    (line,) = (str(each.message) for each in said)
    assert words in line and "\n" not in line
    with pytest.raises(PackError, match=words) as raised:
        dwconv.load_pack(base)
    assert "\n" not in str(raised.value)


def test_a_wrong_kernel_is_found_at_first_use(base, monkeypatch):
    """Digests say that a file is whole, not that it is right."""
    first = every_layer.for_layer(LAYER, cpu_target())[0]
    usual = base_pack.artifact_in

    def wrong(content: bytes, file):
        found = usual(content, file)
        path = base / pack_files.path_of(every_layer.for_layer(LAYER.for_pass("dgrad"), cpu_target())[0])
        other = usual(path.read_bytes(), file)
        return dataclasses.replace(found, library=other.library)

    monkeypatch.setattr(base_pack, "artifact_in", wrong)
    candidate = Candidate(LAYER.with_any_size(), first.config)
    kernel = process_kernels.load(candidate, cpu_target(), torch.device("cpu"))
    assert "wrong results" in process_kernels.fault_in(kernel, cpu_target(), torch.device("cpu"))


def test_a_verdict_is_kept_by_the_digest_of_the_kernel(base, monkeypatch):
    """A later process does not check it again, unless a file of the same name has other code."""
    target, device, checked = cpu_target(), torch.device("cpu"), []
    candidate = Candidate(LAYER.with_any_size(), every_layer.for_layer(LAYER, target)[0].config)
    usual = first_use.fault_at_first_use
    monkeypatch.setattr(
        first_use, "fault_at_first_use", lambda *given, **more: checked.append(1) or usual(*given, **more)
    )

    def fault_in_a_new_process() -> str:
        process_kernels.forget()
        base_pack.forget()
        loaded_packs.forget()
        kernel = process_kernels.load(candidate, target, device)
        return process_kernels.fault_in(kernel, target, device)

    assert process_kernels.lacks(candidate, target, threads=torch.get_num_threads()) is not None, "a check"
    assert [fault_in_a_new_process() for _ in range(2)] == ["", ""] and len(checked) == 1
    assert process_kernels.lacks(candidate, target, threads=torch.get_num_threads()) is None

    def as_dgrad(artifacts: dict[str, Artifact]) -> dict[str, object]:
        found = {one.candidate: (path, one) for path, one in artifacts.items()}
        path, fprop = found[every_layer.for_layer(LAYER, target)[0]]
        _, dgrad = found[every_layer.for_layer(LAYER.for_pass("dgrad"), target)[0]]
        return {path: dataclasses.replace(fprop, library=dgrad.library)}

    forge_kernels(base, as_dgrad)
    assert "wrong results" in fault_in_a_new_process() and len(checked) == 2


PROCESS = """
import importlib.util, json, pathlib, sys, torch
assert importlib.util.find_spec("tvm") is None
torch.set_num_threads(int(sys.argv[2]))
import dwconv
from dwconv.kernels import base_pack
base_pack.BASE = pathlib.Path(sys.argv[1])
from torch import nn
norms = [nn.BatchNorm2d(48) for _ in range(2)]
layer = nn.Conv2d(48, 48, 3, padding=1, groups=48, bias=False)
model = nn.Sequential(nn.Conv2d(8, 48, 1, bias=False), norms[0], nn.ReLU6(), layer, norms[1], nn.ReLU6())
x = torch.randn(4, 8, 20, 20).to(memory_format=torch.channels_last)
model = dwconv.convert(model.to(memory_format=torch.channels_last), x, seconds=float(sys.argv[3]), blocks=True)
(race,) = dwconv.summary(model).races
assert not race.problem, race.problem
model(x).sum().backward()
from dwconv.call.call_plan import plans
runs = [pass_ for plan in plans() for pass_, kernel in plan.kernels.items() if kernel]
ended = {name: [each.pass_ for each in getattr(race, name)] for name in ("won", "lost", "inconclusive", "known")}
print(json.dumps(ended | {"raced": race.raced, "runs": runs}))
"""


@pytest.mark.slow
def test_without_tvm_convert_races_them_and_the_next_process_runs_what_won(base, tmp_path):
    """Without ``load_pack``."""
    given = [str(base.parent), str(torch.get_num_threads())]
    program = (
        f"import subprocess, sys\nfor seconds in '600', '0':\n    command = [sys.executable, '-S', '-c', {PROCESS!r}]\n"
    )
    done = run_clean(tmp_path, program + f"    subprocess.run([*command, *{given}, seconds], check=True)\n")
    assert done.returncode == 0, done.stderr
    first, then = map(json.loads, done.stdout.splitlines())
    passes = {*PASSES, *BLOCK_PASSES}
    assert {*first["won"], *first["lost"], *first["inconclusive"]} == passes and first["raced"] == len(passes)
    assert then["raced"] == 0 and {*then["known"]} == passes - {*first["inconclusive"]}
    for each in first, then:
        assert {*each["runs"]} <= {*first["won"]}
        assert each["runs"] or not {*first["won"]} & {*PASSES}, "what won runs, in a block or alone"
