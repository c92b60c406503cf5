"""Make a portfolio from tuning records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from dwconv.problems.layer_files import Layer
from dwconv.problems.workload import Sizes, Workload
from dwconv.records.record import TuningRecord
from dwconv.untuned.evidence import evidence
from dwconv.untuned.learn import learn
from dwconv.untuned.portfolio_choice import choose
from dwconv.untuned.portfolio_file import Portfolio

_LayerSizes = tuple[int, Sizes, Sizes, Sizes]


def make_portfolio(records: Iterable[TuningRecord], networks: Mapping[str, Sequence[Layer]]) -> Portfolio:
    """``networks`` are the layers of well-known networks: a prediction is judged on one that it was not made from. What
    is a layer of none of them counts as a network of its own. Takes a minute or two."""
    measured = evidence(records)
    names: dict[_LayerSizes, str] = {}
    for network, layers in networks.items():
        for layer in layers:
            names.setdefault((layer.channels, layer.input_size, layer.kernel, layer.stride), network)

    def network_of(workload: Workload) -> str:
        sizes = (workload.channels, workload.input_size, workload.kernel, workload.stride)
        return names.get(sizes, workload.for_pass("dgrad").batchless_key)

    return Portfolio(
        devices=tuple(sorted({one.target.device for one in measured})),
        workloads=len({one.workload.key for one in measured}),
        configs=choose(measured),
        gain=learn(measured, network=network_of),
    )
