"""Kernels that are built where there is no GPU, and taken where there is one; builders are planted here."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from types import SimpleNamespace

import pytest

from bench.__main__ import main
from bench.cases import odd_workloads
from bench.gpu import cuda, first_run, prepare, prepared
from bench.gpu.plan import GpuPlan, as_if_made_here, found_in
from bench.gpu.prepared import FILE, KeptFirst, PreparedFolder, PreparedKernels
from bench.gpu.verify import candidates_on
from bench.models import Network
from dwconv import export, settings
from dwconv.errors import BrokenInstallation, InvalidConfig, PackError, RequestFailed
from dwconv.kernels import cache
from dwconv.kernels.entry import encode
from dwconv.measure import comparisons
from dwconv.packs import write_pack
from dwconv.problems.block import Block
from dwconv.problems.target import compiled_for_gpu, parse_target
from dwconv.problems.workload import LAYOUTS, PASSES
from dwconv.records.database import Database
from dwconv.records.log import TuningLog
from dwconv.schedules.template import Candidate, fitting, template
from dwconv.system import versions
from dwconv.tuner.expected_gain import MOST_STARTS
from dwconv.tuner.race import race
from dwconv.untuned import every_layer
from tests.bench.gpu_runs import artifact, workload
from tests.planted_records import record_of

SM_90 = parse_target("cuda:sm_90")
HERE = dataclasses.replace(
    SM_90, device="nvidia-made-up", present=True, limits=dataclasses.replace(SM_90.limits, cache_bytes=60 << 20)
)
"""A GPU of that architecture."""
MOST = 1 << 20


def candidate(number: int = 0, *, pass_: str = "fprop") -> Candidate:
    space = template("cuda.fprop_nhwc").space(workload(), SM_90)
    return Candidate(workload(), [space.default, *space.neighbours(space.default)][number])


def entries(count: int, *, first: int = 0, target=SM_90) -> dict[str, bytes]:
    """Of kernels as they are in the cache."""
    wanted = [candidate(number) for number in range(first, first + count)]
    return {cache.name_of(each, target): encode(gpu_artifact(each)) for each in wanted}


def gpu_artifact(of: Candidate):
    return dataclasses.replace(artifact(of), kind="cuda", cubin=b"machine code", build_s=2.0)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DWCONV_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def folder(tmp_path):
    """Two parts with three kernels."""
    made = PreparedFolder(tmp_path / "made", SM_90)
    assert made.add(entries(2), most_bytes=MOST) and made.add(entries(1, first=2), most_bytes=MOST)
    return tmp_path / "made"


class Builders:
    """Builds at once what is planted, and remembers it; the ``unbuildable`` fails."""

    def __init__(self, *given: object, unbuildable: object = None, **options: object) -> None:
        self.built: list[Candidate] = []
        self.started = False
        self.unbuildable = unbuildable

    def start(self) -> None:
        self.started = True

    def map(self, bodies, *, timeout_s):
        coming = iter(bodies)
        yield from self.stream(lambda: next(coming, None), timeout_s=timeout_s)

    def stream(self, next_body, *, timeout_s, beside=None):
        while (body := next_body()) is not None:
            self.built.append(body)
            failed = body == self.unbuildable
            yield len(self.built) - 1, RequestFailed("BuildError: no way") if failed else gpu_artifact(body)

    def kill(self) -> None: ...


# -- taken -------------------------------------------------------------------------------------------------------------


def test_a_gpu_of_that_architecture_finds_what_was_built_for_it(folder, capsys):
    assert cache.kept_linked(candidate(), HERE) is None
    taken = PreparedKernels.taken(folder, HERE)
    assert capsys.readouterr().out == f"[prepared] 3 kernels of {folder}\n"
    assert taken.names == set(entries(3))
    for number in range(3):
        assert cache.build_cached(candidate(number), HERE) == gpu_artifact(candidate(number))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"arch": "sm_80"}, "is for architecture sm_90, here is sm_80"),
        ({"sms": 114}, "is for sms 132, here is 114"),
        ({"shared_bytes_per_block": 48 << 10}, "is for shared_bytes_per_block 232448, here is 49152"),
        ({"fast_math": True}, "is for fast_math False, here is True"),
    ],
)
def test_another_gpu_takes_nothing_and_says_so_in_a_line(folder, capsys, change, told):
    taken = PreparedKernels.taken(folder, dataclasses.replace(HERE, **change))
    assert not taken.names and not (settings.cache_folder() / "kernels").exists()
    assert capsys.readouterr().out == f"[prepared] {folder} {told}: kernels are compiled here\n"


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("_nvrtc_version", lambda: [13, 99], "NVRTC"),
        ("_versions", lambda: {"tvm": "0.99", "source": cache.source()}, "TVM"),
        ("_versions", lambda: {**VERSIONS, "source": "0123456789abcdef0"}, "sources of kernels"),
    ],
)
def test_with_other_versions_nothing_is_taken(folder, capsys, monkeypatch, name, value, told):
    monkeypatch.setattr(cache, name, value)
    assert not PreparedKernels.taken(folder, HERE).names
    out = capsys.readouterr().out
    assert out.count("\n") == 1 and f" is for {told} " in out and out.endswith(": kernels are compiled here\n")


VERSIONS = cache._versions()


def torn(path):
    path.write_bytes(path.read_bytes()[:-5])


def changed(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "told"),
    [(torn, "is damaged"), (changed, "is damaged"), (lambda path: path.unlink(), "cannot be read: No such file")],
)
def test_a_damaged_part_costs_its_own_kernels(folder, capsys, damage, told):
    damage(folder / "0000.xz")
    taken = PreparedKernels.taken(folder, HERE)
    first, second = capsys.readouterr().out.splitlines()
    assert f"{folder / '0000.xz'} {told}" in first and first.endswith(": its 2 kernels are compiled here")
    assert second == f"[prepared] 1 kernels of {folder}" and len(taken.names) == 1


@pytest.mark.parametrize(
    "damage",
    [
        torn,
        lambda path: path.write_text(path.read_text().replace('"0000.xz"', '"../0000.xz"')),
        lambda path: path.write_text(path.read_text().replace('"format":1', '"format":2')),
        lambda path: path.write_bytes(b"\xff"),
        lambda path: path.unlink(),
    ],
)
def test_without_a_whole_list_of_its_parts_a_folder_gives_nothing(folder, capsys, damage):
    damage(folder / FILE)
    assert not PreparedKernels.taken(folder, HERE).names
    out = capsys.readouterr().out
    assert out.count("\n") == 1 and str(folder / FILE) in out and out.endswith(": kernels are compiled here\n")


def test_a_kernel_under_the_name_of_another_is_not_run(tmp_path):
    right, wrong = entries(2).items()
    made = PreparedFolder(tmp_path / "made", SM_90)
    assert made.add({right[0]: wrong[1]}, most_bytes=MOST)
    PreparedKernels.taken(tmp_path / "made", HERE)
    assert cache.kept_linked(candidate(), HERE) is None


def test_builders_start_with_the_first_kernel_that_is_not_there(folder):
    taken, builders = PreparedKernels.taken(folder, HERE), Builders()
    workers = type("Workers", (), {"builders": builders, "target": HERE, "kept": None})()
    first = taken.first(workers).builders
    first.start()
    found = dict(first.map([candidate(2), candidate(0)], timeout_s=1))
    assert [found[at].candidate for at in (0, 1)] == [candidate(2), candidate(0)]
    assert workers.kept(candidate(1)) == gpu_artifact(candidate(1)) and workers.kept(candidate(3)) is None
    assert not builders.built and not builders.started
    found = dict(first.map([candidate(3), candidate(0), candidate(4)], timeout_s=1))
    assert [found[at].candidate for at in range(3)] == [candidate(3), candidate(0), candidate(4)]
    assert builders.built == [candidate(3), candidate(4)]
    assert taken.of_stage() == f"4 kernels came from {folder}, 0 were compiled"
    (settings.cache_folder() / "cubins").mkdir()
    (settings.cache_folder() / "cubins" / "one.cubin").touch()
    assert taken.of_stage() == f"0 kernels came from {folder}, 1 were compiled"


def test_what_the_cache_had_before_does_not_count_as_the_folders(folder):
    cache.take_entries(entries(1, first=3))
    taken = PreparedKernels.taken(folder, HERE)
    first = KeptFirst(Builders(), HERE, note=taken._note)
    assert first.kept(candidate(3)) is not None
    assert taken.of_stage().startswith("0 kernels")


# -- prepared ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def building(tmp_path, monkeypatch):
    """Prepares planted stages with planted builders, which it gives."""

    def build(*stages, unbuildable=None, most_bytes=MOST, seconds=60.0, **of_stages):
        builders = Builders(unbuildable=unbuildable)
        monkeypatch.setattr(prepare, "Pool", lambda *given, **options: builders)
        monkeypatch.setattr(prepare, "_A_PART", 2)
        for name, found in of_stages.items():
            stage = dataclasses.replace(cuda.STAGES[name], candidates=lambda plan, found=found: iter(found))
            monkeypatch.setitem(cuda.STAGES, name, stage)
        made = PreparedFolder(tmp_path / "made", SM_90)
        prepare.prepare(stages, PLAN, made, seconds=seconds, most_bytes=most_bytes, jobs=1)
        return builders.built, made

    return build


PLAN = GpuPlan(target=SM_90, known=Database.of([]), workloads=[], odd=[])
WANTED = [candidate(number) for number in range(5)]


def test_each_kernel_is_built_once_for_the_first_stage_that_needs_it(building, capsys):
    built, made = building("smoke", "race", smoke=WANTED[:3], race=[*WANTED[1:], WANTED[4]])
    assert built == WANTED and made.names == set(entries(5)) and len(made.parts) == 3
    *_, head, smoke, race = capsys.readouterr().out.splitlines()
    assert head.startswith(f"{made.folder}: 5 kernels, 0.0 MiB, ") and head.endswith("; builds took 10 s in all")
    assert (smoke.split(), race.split()) == (["smoke", "3", "ready"], ["race", "2", "ready"])


def test_a_second_run_goes_on_where_the_first_one_ended(building, capsys):
    assert building("smoke", smoke=WANTED, seconds=0)[0] == []
    assert "time is up: run it again to go on" in capsys.readouterr().out
    assert building("smoke", smoke=WANTED[:2])[0] == WANTED[:2]
    built, made = building("smoke", smoke=WANTED)
    assert built == WANTED[2:] and made.names == set(entries(5))
    out = capsys.readouterr().out
    assert out.rstrip().endswith("5 ready") and "time is up" not in out


def test_what_does_not_fit_is_left_out_the_last_stages_first(building, tmp_path, capsys):
    one = PreparedFolder(tmp_path / "one", SM_90)
    assert one.add(entries(2), most_bytes=MOST)
    _, made = building("smoke", "race", smoke=WANTED[:2], race=WANTED[2:], most_bytes=one.size_bytes + 300)
    assert made.names == set(entries(2)) and made.size_bytes <= one.size_bytes + 300
    assert sum(file.stat().st_size for file in made.folder.iterdir()) == made.size_bytes
    assert capsys.readouterr().out.splitlines()[-1].split() == ["race", "3", "beyond", "the", "size"]


def test_a_kernel_that_cannot_be_built_costs_itself(building, capsys):
    _, made = building("smoke", smoke=WANTED, unbuildable=WANTED[1])
    assert made.names == set(entries(5)) - {cache.name_of(WANTED[1], SM_90)}
    out = capsys.readouterr().out
    assert f"[prepare] cuda.fprop_nhwc {WANTED[1].workload.key}: BuildError: no way" in out
    assert out.splitlines()[-1].split(maxsplit=1)[1] == "4 ready, 1 cannot be built"


def test_what_was_built_before_a_run_was_ended_is_kept(building, monkeypatch, tmp_path):
    def ended(self, next_body, *, timeout_s, beside=None):
        yield 0, gpu_artifact(next_body())
        raise KeyboardInterrupt

    monkeypatch.setattr(Builders, "stream", ended)
    with pytest.raises(KeyboardInterrupt):
        building("smoke", smoke=WANTED)
    assert PreparedFolder(tmp_path / "made", SM_90).names == set(entries(1))


# -- what will be built ------------------------------------------------------------------------------------------------


def test_a_configuration_that_is_legal_on_a_gpu_is_legal_for_what_it_is_compiled_for():
    """Names, bandwidths and caches change which configurations are chosen, never what they compile to."""
    for each in candidates_on(odd_workloads()[::7], HERE):
        chosen = fitting(each.config.template, each.workload, HERE)
        chosen.space(each.workload, compiled_for_gpu(HERE)).check(each.config.to_dict())
    with pytest.raises(InvalidConfig):
        fitting("cuda.fprop_nhwc", workload(), HERE).space(workload(), HERE).check({"tile_h": 10**6})


class Heats:
    """For ``Comparisons``: measures nothing, and notes what a race would have built."""

    def __init__(self):
        self.built = []

    def __call__(self, workers, *, is_worth):
        return self

    def run(self, next_comparison):
        while (candidates := next_comparison()) is not None:
            self.built += candidates
            yield []


def test_a_race_builds_what_was_planned_for_it_first(tmp_path, monkeypatch):
    heats = Heats()
    monkeypatch.setattr(comparisons, "Comparisons", heats)
    layers = [workload(pass_, layout=layout) for layout in LAYOUTS for pass_ in PASSES]
    nothing = SimpleNamespace(start=lambda: None)
    workers = SimpleNamespace(builders=nothing, measurer=nothing)
    log, known = TuningLog(tmp_path / "log.jsonl"), Database.of([record_of(layers[0], config=WANTED[0].config)])
    race(dict.fromkeys(layers, 1), HERE, log=log, seconds=600, known=known, workers=workers)
    of_run = GpuPlan(target=HERE, known=known, workloads=layers, odd=[])
    planned = list(of_run.raced(layers))
    assert planned[: len(heats.built)] == heats.built and {each.workload for each in heats.built} == {*layers}
    assert len(set(planned)) >= len(set(heats.built)), "and what it may build once more is known"
    assert set(of_run.starts(layers[1], most=MOST_STARTS)) <= set(planned)
    nothing_runs = dataclasses.replace(workload(), pass_="forward", block=Block.parse("none,ln"))
    assert of_run.starts(nothing_runs) == [] == list(of_run.raced([nothing_runs]))


def test_the_pack_of_a_first_run_has_nothing_to_build(tmp_path, monkeypatch):
    """It is made of the same candidates, for the same architecture."""
    asked = []

    def candidates(target, *, dtype, taps):
        asked.append((target, dtype, tuple(taps)))
        return WANTED[:2]

    def made(wanted, target, *, folder):
        asked.append((target, *wanted))
        raise PackError("enough")

    monkeypatch.setattr(every_layer, "candidates", candidates)
    monkeypatch.setattr(first_run, "candidates", candidates)
    monkeypatch.setattr(write_pack, "make_pack_for_every_layer", made)
    assert export.main(first_run.pack_command("sm_90", tmp_path / "pack")[2:]) == 2
    assert first_run.first_run_candidates(dataclasses.replace(PLAN, target=HERE)) == WANTED[:2]
    of_pack, built, of_stage = asked
    assert of_pack == of_stage and built == (SM_90, *WANTED[:2])


def test_what_was_measured_with_the_versions_of_the_gpus_machine_counts_here():
    layer, torch = workload(), "2.11.0"
    record = dataclasses.replace(
        record_of(layer, config=candidate().config, device=HERE.device),
        versions={**versions.installed(), "torch": torch, "template": "1"},
    )
    other = dataclasses.replace(record, versions={**record.versions, "torch": "2.9.0"})
    here, still_other = as_if_made_here([record, other], torch=torch)
    assert here.versions["torch"] == versions.installed()["torch"] and still_other == other


def test_a_network_that_cannot_be_made_is_left_out_with_a_line(capsys):
    def find(network):
        if network.name == "timm:one":
            raise BrokenInstallation("timm is not installed; pip install timm")
        return network.name

    networks = [Network(name=name, make=lambda: None) for name in ("timm:one", "two")]
    assert list(found_in(networks, find, stage="train")) == ["two"]
    assert capsys.readouterr().out == "[train] timm:one is left out: timm is not installed; pip install timm\n"


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["speed"], "stage speed is unknown; use smoke, host"),
        (["--target", "cpu"], "target=cpu is no architecture of GPUs to compile for; use cuda:sm_90"),
        (["--target", "cuda:sm_1"], "target=cuda:sm_1 is unknown"),
        (["--device", "nvidia-unheard-of"], "device=nvidia-unheard-of has no results of bench cuda that ship"),
        (["--mib", "0"], "0 is not a whole number of at least 1"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(tmp_path, capsys, options, named):
    command = ["cuda", "prepare", "--target", "cuda:sm_90", *options, "--out", str(tmp_path / "made")]
    try:
        status = main(command)
    except SystemExit as exit_:
        status = exit_.code
    out, err = capsys.readouterr()
    assert status == 2 and out == "" and err.count("\n") == 1 and named in err
    assert not (tmp_path / "made").exists()


def test_a_folder_for_another_gpu_is_not_added_to(folder, capsys):
    assert main(["cuda", "prepare", "--target", "cuda:sm_80", "--out", str(folder), "smoke"]) == 2
    told = "is for architecture sm_90, here is sm_80; name another folder with --out"
    assert told in capsys.readouterr().err


def test_the_command_prepares_for_a_device_that_records_ship_for(tmp_path, monkeypatch):
    seen = {}

    def noted(stages, plan, folder, **how):
        seen.update(stages=stages, plan=plan, **how)

    monkeypatch.setattr(prepare, "prepare", noted)
    out = tmp_path / "made"
    options = ["--device", "nvidia-h200", "--first", "3", "--seconds", "9", "--mib", "2", "--jobs", "1"]
    assert main(["cuda", "prepare", "race", "smoke", "--target", "cuda:sm_90", "--out", str(out), *options]) == 0
    target = seen["plan"].target
    assert seen["stages"] == ["smoke", "race"] and len(seen["plan"].workloads) == 3
    assert (target.device, target.cache_bytes, seen["most_bytes"], seen["seconds"]) == (
        "nvidia-h200",
        60 << 20,
        2 << 20,
        9,
    )
    known = Counter(record.versions["torch"] == versions.installed()["torch"] for record in seen["plan"].known)
    assert known[True] > 0, "records of the device count as made with the versions here"
    assert json.loads((out / FILE).read_text())["found_by"]["architecture"] == "sm_90"
    assert prepared.found_by(target) == prepared.found_by(SM_90)
