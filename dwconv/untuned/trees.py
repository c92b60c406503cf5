"""Trees: boosted regression trees as plain data, so that a prediction takes neither a library nor time.

xgboost grows them, where the portfolio is made. A tree is a node; a node is a leaf's value, or a split.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_ROUNDING = 4
"""Digits that are kept: what is learnt is far less exact."""


@dataclass(frozen=True, kw_only=True)
class Growth:
    """How trees are grown."""

    trees: int = 120
    depth: int = 4
    rate: float = 0.1


@dataclass(frozen=True, kw_only=True)
class Split:
    """Rows whose ``feature`` is below ``below`` go to the first child, others to the second; NaN to ``missing``."""

    feature: int
    below: float
    children: tuple[Node, Node]
    missing: int
    """0 or 1."""


Node = Split | float


@dataclass(frozen=True, kw_only=True)
class Trees:
    """The sum of several trees and a constant."""

    base: float
    trees: tuple[Node, ...]

    def predict(self, row: Sequence[float]) -> float:
        return self.base + sum(_leaf(tree, row) for tree in self.trees)

    def predict_all(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """The same for many rows at once."""
        import numpy as np

        total = np.full(len(rows), self.base, dtype=np.float32)
        for tree in self.trees:
            _add(tree, rows, np.arange(len(rows)), total)
        return total


def grow(rows: Sequence[Sequence[float]], labels: Sequence[float], *, growth: Growth) -> Trees:
    """Trees that predict ``labels`` from ``rows``, the same every time. Imports xgboost."""
    import numpy as np
    import xgboost

    base = float(np.mean(labels))
    data = xgboost.DMatrix(np.array(rows, dtype=np.float32), label=np.array(labels) - base)
    parameters: dict[str, Any] = {
        "objective": "reg:squarederror", "base_score": 0.0, "tree_method": "exact", "max_depth": growth.depth,
        "eta": growth.rate, "min_child_weight": 3, "lambda": 1.0, "nthread": 1, "seed": 0, "verbosity": 0,
    }  # fmt: skip
    booster = xgboost.train(parameters, data, num_boost_round=growth.trees)
    return Trees(base=base, trees=tuple(_node(json.loads(tree)) for tree in booster.get_dump(dump_format="json")))


def as_lists(node: Node) -> Any:
    """A node in what JSON has: a leaf's value, or [feature, below, missing, first child, second child]."""
    if not isinstance(node, Split):
        return node
    return [node.feature, node.below, node.missing, *map(as_lists, node.children)]


def from_lists(listed: Any) -> Node:
    """The node that ``as_lists`` wrote."""
    if not isinstance(listed, list):
        return float(listed)
    feature, below, missing, first, second = listed
    children = (from_lists(first), from_lists(second))
    return Split(feature=int(feature), below=float(below), missing=int(missing), children=children)


def _leaf(node: Node, row: Sequence[float]) -> float:
    while isinstance(node, Split):
        value = row[node.feature]
        node = node.children[node.missing if math.isnan(value) else int(value >= node.below)]
    return node


def _add(node: Node, rows: NDArray[np.float32], at: NDArray[np.intp], total: NDArray[np.float32]) -> None:
    """Add the leaf of each of the rows ``at`` to its ``total``."""
    import numpy as np

    if not isinstance(node, Split):
        total[at] += node
    elif len(at):
        values = rows[at, node.feature]
        second = np.where(np.isnan(values), bool(node.missing), values >= node.below)
        _add(node.children[0], rows, at[~second], total)
        _add(node.children[1], rows, at[second], total)


def _node(dumped: dict[str, Any]) -> Node:
    """A node of xgboost's own JSON."""
    if "leaf" in dumped:
        return round(float(dumped["leaf"]), _ROUNDING)
    children = {child["nodeid"]: child for child in dumped["children"]}
    return Split(
        feature=int(dumped["split"].removeprefix("f")),
        below=round(float(dumped["split_condition"]), _ROUNDING),
        children=(_node(children[dumped["yes"]]), _node(children[dumped["no"]])),
        missing=int(dumped["missing"] == dumped["no"]),
    )
