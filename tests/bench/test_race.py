"""One pass of a layer, raced in this process: on a still clock, with kernels that compute with the reference; and what
a row says it ran."""

from __future__ import annotations

import contextlib
import dataclasses
from collections import Counter
from types import SimpleNamespace

import pytest
import torch

from bench import launched
from bench import race as race_module
from bench.launched import kernels_of, passes_of, why_void
from bench.providers import Provider
from bench.race import Race, Racer
from dwconv.errors import BuildError
from dwconv.kernels.artifact import Launch
from dwconv.kernels.entry import decode, encode
from dwconv.measure.clock.timing import Effort
from dwconv.measure.providers import pytorch_call
from dwconv.measure.requests import MeasureSetup
from dwconv.problems.workload import PASSES
from dwconv.schedules.template import Candidate, templates_for
from tests.bench.gpu_runs import TARGET, StillClock, artifact, faults, load, workload

OWN = ["blocked"] * torch.backends.mkldnn.is_available()
"""oneDNN's own layout, where PyTorch has it."""
OF_THE_CPU = ["nhwc", "nchw", *OWN]


def candidate(pass_="fprop", **changes):
    of = dataclasses.replace(workload(pass_), **changes)
    return Candidate(of, templates_for(of, TARGET)[0].space(of, TARGET).default)


@pytest.fixture
def clock(monkeypatch):
    still = StillClock()
    monkeypatch.setattr(race_module, "clock_of", lambda target: still)
    return still


@pytest.fixture
def raced(monkeypatch, clock):
    faults.clear()
    monkeypatch.setattr(race_module, "build_cached", lambda candidate, target: artifact(candidate))
    racer = Racer(MeasureSetup(target=TARGET, load="tests.bench.gpu_runs:load"))

    def race(*caches, pass_="fprop", **how):
        return racer(Race(**{"candidate": candidate(pass_), "caches": caches or ("warm",), **how}))

    return race


@pytest.fixture
def rivals(monkeypatch):
    """What races beside our kernel; what is slow to make, only compiled."""

    def plant(*planted):
        monkeypatch.setattr(
            race_module, "providers", lambda *of, compiled: (each for each in planted if compiled or not each.slow)
        )

    return plant


def rival(name, **fields):
    return Provider(**{"name": name, "make": lambda inputs: pytorch_call(workload(), *inputs), **fields})


def layouts(taken):
    return [name.rpartition("-")[2] for name in taken.measurements]


@pytest.mark.parametrize("pass_", PASSES)
def test_all_providers_of_a_pass_race_warm_and_cold_and_compute_the_same(raced, pass_):
    answer = raced("warm", "cold", pass_=pass_)
    assert list(answer.times) == ["warm", "cold"] and answer.refused == {}
    for taken in answer.times.values():
        assert layouts(taken) == ["dwconv", *OF_THE_CPU] and taken.rounds_us.keys() == taken.measurements.keys()
        assert len({len(rounds) for rounds in taken.rounds_us.values()}) == 1
        assert all(each.median_us == pytest.approx(10) for each in taken.measurements.values())
    assert decode(encode(answer)) == answer, "it passes between processes"


def test_a_rival_that_is_wrong_or_cannot_be_captured_does_not_race(raced, rivals, clock):
    def off_by_one(inputs):
        call = pytorch_call(workload(), *inputs)
        return lambda: call() + 1

    def broken(inputs):
        raise RuntimeError("no kernel\nfor this")

    clock.uncapturable = (2,)
    rivals(rival("wrong-nhwc", make=off_by_one), rival("right-nhwc"), rival("waits-nhwc"),
           rival("broken-nhwc", make=broken))  # fmt: skip
    answer = raced()
    assert list(answer.times["warm"].measurements) == ["dwconv", "right-nhwc"]
    assert answer.refused.pop("wrong-nhwc").startswith("wrong: value: ")
    assert answer.refused == {
        "waits-nhwc": "it cannot be captured: it waits for the device", "broken-nhwc": "no kernel for this",
    }  # fmt: skip


def test_our_kernel_is_verified_before_and_after(raced, clock, monkeypatch):
    faults[candidate().config.template] = "wrong"
    with pytest.raises(BuildError, match="wrong: value"):
        raced()
    assert not clock.laps, "what is wrong is not timed"
    faults.clear()

    def spoil(calls, **how):
        faults[candidate().config.template] = "wrong"

    monkeypatch.setattr(race_module, "rounds_in_turns", spoil)
    racer = Racer(MeasureSetup(target=TARGET, load="tests.bench.test_race:_Spoilt"))
    with pytest.raises(BuildError, match="wrong: value"):
        racer(Race(candidate=candidate(), caches=("warm",)))


class _Spoilt:
    """A kernel that looks up its fault at each call."""

    def __init__(self, built):
        self.artifact = built

    def __call__(self, *inputs):
        return load(self.artifact)(*inputs)

    def run_into(self, *of):
        load(self.artifact).run_into(*of)


def test_a_control_is_the_same_kernel_twice(raced):
    assert list(raced(control=True).times["warm"].measurements) == ["dwconv", "dwconv again"]


def test_cold_calls_are_on_copies_that_fill_the_cache_twice_and_hold_their_results(raced, clock, rivals):
    rivals(rival("one-nhwc"))
    raced("cold")
    for turn in clock.ready_for:
        copies = turn._calls
        assert len(copies) == len(clock.ready_for[0]._calls)
        for _ in range(turn.turns):
            turn()
        results = turn._held
        assert sum(result.nbytes for result in results) >= 2 * TARGET.cache_bytes
        assert len({result.data_ptr() for result in results}) == len(results)
    ours = clock.ready_for[0]._calls
    read_bytes = sum(tensor.nbytes for tensor in ours[0].args)
    assert len(ours) * read_bytes >= 2 * TARGET.cache_bytes > (len(ours) - 1) * read_bytes
    assert len({call.args[0].data_ptr() for call in ours}) == len(ours) >= 2


def test_what_compiles_is_not_timed_cold_and_is_not_held_against_the_next_workload(raced, rivals, monkeypatch):
    """torch.compile compiles one piece of code for a few shapes, and then no more."""
    resets, made = [], []
    monkeypatch.setattr(torch._dynamo, "reset", lambda: resets.append(1))
    slow = rival("inductor-nhwc", make=lambda inputs: made.append(1) or pytorch_call(workload(), *inputs), slow=True)
    rivals(slow)
    answer = raced("warm", "cold", compiled=True)
    assert "inductor-nhwc" in answer.times["warm"].measurements and answer.refused == {} and len(made) == 1
    assert list(answer.times["cold"].measurements) == ["dwconv"]
    assert "one set of tensors" in raced("cold", compiled=True).refused["inductor-nhwc"]
    raced()
    assert len(resets) == 2


def test_settings_are_around_making_and_capturing_not_around_what_is_timed(raced, clock, rivals, monkeypatch):
    inside = []
    seen = {"made": [], "captured": [], "timed": []}

    @contextlib.contextmanager
    def settings():
        inside.append(1)
        yield
        inside.pop()

    def made(inputs):
        seen["made"].append(len(inside))
        call = pytorch_call(workload(), *inputs)
        return lambda: (seen["timed"].append(len(inside)) if clock.laps else None) or call()

    monkeypatch.setattr(clock, "ready", lambda call: seen["captured"].append(len(inside)) or call)
    rivals(rival("other-nhwc", make=made, settings=settings))
    assert "other-nhwc" in raced("warm", "cold").times["warm"].measurements
    assert set(seen["made"]) == {1} and seen["captured"][2:4] == [1, 1] and set(seen["timed"]) == {0}


def test_a_provider_that_comes_too_late_does_not_race(raced):
    answer = raced(making_s=0.0, effort=Effort(round_s=0.0, rounds=15, budget_s=0.0))
    assert layouts(answer.times["warm"]) == ["dwconv", "nhwc"]
    assert list(answer.refused.values()) == ["no time"] * (1 + len(OWN))


def test_kernels_of_one_type_are_timed_on_the_same_tensors(raced, rivals, monkeypatch):
    """Tensors of its own would have left the caches while the others ran."""
    made = []
    monkeypatch.setattr(race_module, "inputs_in_turn", lambda workload, *of, **how: made.append(workload) or [of[0]])
    rivals()
    beside = {"dwconv float32": candidate(), "dwconv any size": candidate(dtype="bfloat16")}
    answer = raced(candidate=candidate(dtype="bfloat16"), beside=beside)
    assert list(answer.times["warm"].measurements) == ["dwconv", *beside]
    assert [each.dtype for each in made] == ["bfloat16", "float32"]
    assert torch.get_num_threads() == TARGET.threads


def test_other_kernels_of_ours_launch_ours_and_are_not_void_and_a_rival_is(raced, rivals, monkeypatch):
    launch = Launch(kernel="main_kernel", arguments=(), grid=(1, 1, 1), block=(1, 1, 1), shared_bytes=0)
    monkeypatch.setattr(
        race_module, "build_cached", lambda of, target: dataclasses.replace(artifact(of), launches=(launch,))
    )
    monkeypatch.setattr(race_module, "kernels_of", lambda call, *, device: Counter(main_kernel=1))
    rivals(rival("inductor-nhwc"))
    answer = raced(beside={"dwconv any size": candidate()})
    assert list(answer.times["warm"].measurements) == ["dwconv", "dwconv any size"]
    assert answer.refused == {"inductor-nhwc": "it launched dwconv's main_kernel"}
    assert list(raced(control=True).times["warm"].measurements) == ["dwconv", "dwconv again"]


# -- what a row says it ran, against what the profiler saw -------------------------------------------------------------


OURS = SimpleNamespace(launches=[SimpleNamespace(kernel="main_kernel"), SimpleNamespace(kernel="main_kernel_1")])
ATEN, CUDNN = "void at::native::conv_depthwise2d_forward_kernel<3>", "sm90_xmma_fprop_implicit_gemm"


@pytest.mark.parametrize(
    ("provider", "seen", "why"),
    [
        ("dwconv", {"main_kernel": 4, "main_kernel_1": 4}, ""),
        ("dwconv", {"main_kernel": 4, "main_kernel_1": 4, ATEN: 4}, ""),  # a copy, say: its time counts
        ("dwconv", {"main_kernel": 4}, "main_kernel_1 4× should have been launched, main_kernel 4× was"),
        ("dwconv", {"main_kernel": 1, "main_kernel_1": 1}, "launched, main_kernel 1×, main_kernel_1 1×"),
        ("aten-nhwc", {ATEN: 4}, ""),
        ("aten-nhwc", {CUDNN: 4}, f"no kernel of PyTorch's own was launched: {CUDNN} 4×"),
        ("cudnn-nhwc", {CUDNN: 4, ATEN: 8}, ""),
        ("cudnn-nchw", {ATEN: 4}, "no kernel of cuDNN was launched: void at::native"),
        ("inductor-nhwc", {}, "no kernel was launched"),
        ("inductor-nhwc", {"triton_poi": 4, "main_kernel": 4}, "it launched dwconv's main_kernel"),
    ],
)
def test_a_row_is_void_without_the_kernels_of_its_name(provider: str, seen: dict[str, int], why: str) -> None:
    told = why_void(provider, Counter(seen), ours=OURS, calls=4, is_ours=provider == "dwconv")  # type: ignore[arg-type]
    assert why in told and bool(told) == bool(why)


def test_where_kernels_cannot_be_seen_nothing_is_void(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU; and where the profiler's library is missing, or must not look."""
    assert kernels_of(lambda: None, device="cpu") is None
    assert why_void("dwconv", None, ours=OURS, calls=4, is_ours=True) == ""  # type: ignore[arg-type]
    seen: list[Counter[str]] = [Counter(), Counter()]
    monkeypatch.setattr(launched, "_kernels", lambda call: seen.pop(0))
    assert kernels_of(lambda: None, device="cuda") is None and not seen
    seen += [Counter(), Counter(fill=1)]
    assert kernels_of(lambda: None, device="cuda") == Counter()


def event(name: str, *inside: SimpleNamespace, kernels: tuple[str, ...] = ()) -> SimpleNamespace:
    return SimpleNamespace(name=name, cpu_children=inside, kernels=[SimpleNamespace(name=kernel) for kernel in kernels])


@pytest.mark.parametrize(
    ("seen", "on_gpu", "on_cpu"),
    [
        (event("dwconv::fprop", kernels=("main_kernel",)), 1, 1),
        (event("dwconv::fprop", event("aten::empty", kernels=("main_kernel",))), 1, 1),
        (event("dwconv::fprop"), 0, 1),  # no kernel came of it
        (event("dwconv::fprop", kernels=("void at::native::convolution",)), 0, 1),
        (event("dwconv::fprop", event("aten::convolution", kernels=("main_kernel",))), 0, 0),
    ],
)
def test_a_pass_is_one_of_ours_if_its_kernel_was_launched(
    monkeypatch: pytest.MonkeyPatch, seen: SimpleNamespace, on_gpu: int, on_cpu: int
) -> None:
    class Profile:
        def __init__(self, **how: object) -> None: ...

        def __enter__(self) -> Profile:
            return self

        def __exit__(self, *raised: object) -> None: ...

        def events(self) -> list[SimpleNamespace]:
            return [seen]

    monkeypatch.setattr(launched, "profile", Profile)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    assert passes_of(lambda: None, on_gpu=True)["fprop"] == on_gpu
    assert passes_of(lambda: None, on_gpu=False)["fprop"] == on_cpu
