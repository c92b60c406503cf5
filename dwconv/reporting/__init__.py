"""``report``: what ran in each depthwise layer of a model, how often, how long, and what tuning can still gain.

report        the layers of a model, in its order
  ├─ ran          which sizes each layer ran, and how often: as counted, or in a step on an example
  ├─ road         which way calls take: through C++, through Python and why, to PyTorch's op
  ├─ rows         what runs them and how long that takes, by the tuning log; and the expected gain
  └─ result       the report, with sums: as a table for a terminal, as HTML (page); both in the same words
       └─ frame, drawing    what pages look like, and are drawn with; benchmarks use them, too
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import nn

from dwconv.discovery.step import check_model, unwrapped
from dwconv.errors import InvalidWorkload
from dwconv.model.conversion import ConvertedLayer, kept_by, without_wrappers
from dwconv.model.converted_classes import is_functional
from dwconv.model.swaps import with_groups
from dwconv.nn import LAYERS
from dwconv.reporting import road
from dwconv.reporting.ran import in_an_example, so_far, step_on_gpu
from dwconv.reporting.result import Report
from dwconv.reporting.rows import rows_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dwconv.reporting.ran import Ran


def report(model: nn.Module, example_inputs: Any = None) -> Report:
    """List, layer by layer, what runs the depthwise convolutions of a converted ``model``, how often they were called,
    how long a call takes, and what tuning can still gain. Prints as a table; a notebook shows it as HTML, and
    ``to_html`` writes a page.

    Calls are counted since decisions were last made anew (by ``dwconv.reset``, by ``convert`` with an example, or by
    ``tune``), in this process, and not timed: times are the medians of the tuning log. With ``example_inputs`` (as for
    ``convert``) the model takes a step on them, which changes nothing in it, and the report is of such a step; on a GPU
    it takes a few, and the time of the host, op by op, is shown beside that of the kernels.

    Raises InvalidArgument for what is no model, InvalidWorkload for a model without layers of dwconv, and the model's
    own error if it fails on the example.
    """
    check_model(model)
    layers = [name for name, module in model.named_modules() if isinstance(module, LAYERS)]
    left = _left(model)
    if not layers and not any(is_functional(type(module)) for module in model.modules()):
        raise InvalidWorkload(_without_layers(model, left))
    ran: Sequence[Ran] = so_far(model) if example_inputs is None else in_an_example(model, example_inputs)
    rows = rows_of(ran)
    return Report(
        model=type(unwrapped(model)).__name__,
        converted=len(layers),
        rows=rows,
        idle=_idle(layers, ran),
        left=left,
        is_compiled=any(hasattr(each, "_orig_mod") or each._compiled_call_impl for each in model.modules()),
        of_an_example=example_inputs is not None,
        kept=kept_by(model),
        road=road.of_calls([each.provider for row in rows for each in row.passes]),
        calls_by_road=road.calls_so_far(),
        on_gpu=None if example_inputs is None else step_on_gpu(model, example_inputs),
    )


def _left(model: nn.Module) -> tuple[ConvertedLayer, ...]:
    return tuple(
        ConvertedLayer(without_wrappers(name), reason or "not converted; dwconv.convert(model) swaps it")
        for name, module, reason in with_groups(model)
        if not isinstance(module, LAYERS)
    )


def _without_layers(model: nn.Module, left: Sequence[ConvertedLayer]) -> str:
    name = type(unwrapped(model)).__name__
    if any(layer.text.startswith("not converted") for layer in left):
        return f"no layer of {name} is dwconv's yet; call dwconv.convert(model) first"
    reasons = "; ".join(dict.fromkeys(layer.text for layer in left))
    return f"{name} has no depthwise layer that dwconv could run" + (f": {reasons}" if reasons else "")


def _idle(layers: Sequence[str], ran: Sequence[Ran]) -> tuple[str, ...]:
    seen = {name for each in ran for name in each.names}
    return tuple(name for name in map(without_wrappers, layers) if name not in seen)
