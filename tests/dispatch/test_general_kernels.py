"""Records with configurations that only the kernel for every layer can have: they run as that, if it can be built."""

from __future__ import annotations

import dataclasses

import pytest

from dwconv.dispatch import legality, loaded_packs
from dwconv.dispatch.decide import decide_on
from dwconv.errors import InvalidConfig
from dwconv.kernels import load_cpu
from dwconv.kernels.load_cpu import can_load_libraries
from dwconv.problems.target import cpu_target, parse_target
from dwconv.problems.workload import PASSES, Workload
from dwconv.records.database import Database
from dwconv.schedules.space import Config
from dwconv.schedules.template import Candidate, fitting
from dwconv.system import versions
from dwconv.untuned import every_layer
from tests.planted_gain import default_of
from tests.planted_records import record_of, workload_of

pytestmark = [
    pytest.mark.usefixtures("no_packs"),
    pytest.mark.skipif(not can_load_libraries(), reason="no library can be loaded here"),
]
TARGET = cpu_target()
LAYERS = {
    "2-D": workload_of(shape=(8, 48, 20, 20)),
    "dilated": dataclasses.replace(workload_of(shape=(8, 48, 20, 20), padding=2), dilation=(2, 2)),
    "bias": workload_of(shape=(8, 48, 20, 20), bias=True),
    "strided": workload_of(shape=(8, 48, 21, 21), stride=2),
    "16 bits": workload_of(shape=(8, 48, 20, 20), dtype="bfloat16"),
    "a block": workload_of(shape=(8, 48, 20, 20), block="bn+relu6,bn+relu6"),
}


def of_general(workload: Workload) -> Candidate:
    """The first of any size whose configuration is not legal for the layer alone."""
    every = [Candidate(workload.with_any_size(), each.config) for each in every_layer.for_layer(workload, TARGET)]
    return next(each for each in every if not is_in_its_space(each))


def is_in_its_space(candidate: Candidate) -> bool:
    workload, config = candidate.workload, candidate.config
    try:
        fitting(config.template, workload, TARGET).space(workload, TARGET).check(config.to_dict())
    except InvalidConfig:
        return False
    return True


@pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
def test_the_kernel_for_every_layer_is_built_in_its_place(layer):
    candidate = of_general(layer)
    legality.check(candidate, TARGET, broken={})
    general = legality.built_for(candidate, TARGET)
    assert general.workload.any_channels and general.config == candidate.config
    assert general == every_layer.general_of(candidate, TARGET)


@pytest.mark.parametrize("pass_", PASSES)
def test_what_is_legal_for_the_layer_is_built_for_it_unless_several_share_it(pass_):
    workload = workload_of(shape=(8, 48, 20, 20), pass_=pass_).with_any_size()
    own = Candidate(workload, default_of(workload, TARGET))
    assert legality.built_for(own, TARGET) == own
    assert legality.built_for(own, TARGET, is_shared=True) == (every_layer.general_of(own, TARGET) or own)


def test_such_a_record_runs_at_its_size_and_at_others():
    candidate = of_general(LAYERS["2-D"])
    record = dataclasses.replace(record_of(candidate.workload, config=candidate.config), confirmed=True, raced=True)
    known = Database.of([record])
    for workload in (LAYERS["2-D"], LAYERS["2-D"].with_input_size((31, 17))):
        found = decide_on(TARGET, workload, known=known, predicts=False)
        assert (found.provider, found.config, found.workload) == ("dwconv", candidate.config, candidate.workload)


def test_one_that_no_kernel_has_is_refused_and_the_nearest_adopted():
    candidate = of_general(LAYERS["2-D"])
    changed = Config.of(candidate.config.template, **{**dict(candidate.config.values), "block_c": 191})
    unknown = Candidate(candidate.workload, changed)
    with pytest.raises(InvalidConfig, match="block_c"):
        legality.check(unknown, TARGET, broken={})
    assert legality.built_for(unknown, TARGET) == unknown
    known = Database.of([dataclasses.replace(record_of(unknown.workload, config=changed), confirmed=True)])
    found = decide_on(TARGET, LAYERS["2-D"], known=known, predicts=False)
    assert is_in_its_space(Candidate(found.workload, found.config)) and "not valid here" in found.reason


def test_one_that_is_broken_is_refused():
    candidate = of_general(LAYERS["2-D"])
    with pytest.raises(InvalidConfig, match="it was wrong"):
        legality.check(candidate, TARGET, broken={candidate: "it was wrong"})


@pytest.mark.parametrize("lacks", ["TVM", "libraries", "the device"])
def test_where_it_cannot_be_built_or_loaded_there_is_none(monkeypatch, lacks):
    candidate, target = of_general(LAYERS["2-D"]), TARGET
    if lacks == "TVM":
        monkeypatch.setattr(versions, "can_build", lambda: False)
    elif lacks == "libraries":
        monkeypatch.setattr(load_cpu, "can_load_libraries", lambda: False)
    else:
        target = parse_target("cpu:neon" if TARGET.vector_bytes > 16 else "cpu:avx512")
    assert loaded_packs.general_of(candidate, target) is None
    with pytest.raises(InvalidConfig):
        legality.check(candidate, target, broken={})
