"""Trees: boosted regression trees as plain data, so that a prediction takes neither a library nor time. xgboost grows
them, where the portfolio is made."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import msgspec

_ROUNDING = 4
"""Digits that are kept: what is learnt is far less exact."""


class Split(msgspec.Struct, frozen=True, array_like=True):
    """Rows whose ``feature`` is below ``below`` go to the first node, others to the second."""

    feature: int
    below: float
    missing: int
    """Where NaN goes: 0 or 1."""
    first: float | Split
    """A leaf's value, or a split."""
    second: float | Split


class Trees(msgspec.Struct, frozen=True, kw_only=True):
    """The sum of several trees and a constant."""

    base: float
    trees: tuple[float | Split, ...]

    def predict(self, row: Sequence[float]) -> float:
        return self.base + sum(_leaf(tree, row) for tree in self.trees)


def grow(rows: Sequence[Sequence[float]], labels: Sequence[float]) -> Trees:
    """Trees that predict ``labels`` from ``rows``, the same every time. Imports xgboost."""
    import numpy as np
    import xgboost

    base = float(np.mean(labels))
    data = xgboost.DMatrix(np.array(rows, dtype=np.float32), label=np.array(labels) - base)
    parameters: dict[str, Any] = {
        "objective": "reg:squarederror", "base_score": 0.0, "tree_method": "exact", "max_depth": 4, "eta": 0.1,
        "min_child_weight": 3, "lambda": 1.0, "nthread": 1, "seed": 0, "verbosity": 0,
    }  # fmt: skip
    booster = xgboost.train(parameters, data, num_boost_round=100)
    return Trees(base=base, trees=tuple(_node(json.loads(tree)) for tree in booster.get_dump(dump_format="json")))


def _leaf(node: float | Split, row: Sequence[float]) -> float:
    while isinstance(node, Split):
        value = row[node.feature]
        is_second = node.missing if math.isnan(value) else value >= node.below
        node = node.second if is_second else node.first
    return node


def _node(dumped: dict[str, Any]) -> float | Split:
    """A node of xgboost's own JSON."""
    if "leaf" in dumped:
        return round(float(dumped["leaf"]), _ROUNDING)
    children = {child["nodeid"]: child for child in dumped["children"]}
    return Split(
        feature=int(dumped["split"].removeprefix("f")),
        below=round(float(dumped["split_condition"]), _ROUNDING),
        missing=int(dumped["missing"] == dumped["no"]),
        first=_node(children[dumped["yes"]]),
        second=_node(children[dumped["no"]]),
    )
