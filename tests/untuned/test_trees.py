"""Trees as plain data predict what xgboost predicts."""

from __future__ import annotations

import json
import math
import random

import numpy as np
import pytest

from dwconv.untuned.trees import Growth, Split, Trees, as_lists, from_lists, grow


def made_up(count: int) -> tuple[list[list[float]], list[float]]:
    rng = random.Random(3)
    rows = [[rng.uniform(-4, 4), rng.choice([0.0, 1.0]), rng.choice([-1.0, 1.0, math.nan])] for _ in range(count)]
    return rows, [3 * row[1] + math.sin(row[0]) + (row[2] != -1.0) for row in rows]


def test_trees_learn_what_they_are_shown():
    rows, labels = made_up(300)
    trees = grow(rows, labels, growth=Growth(trees=60, depth=4, rate=0.2))
    errors = [abs(trees.predict(row) - label) for row, label in zip(rows, labels, strict=True)]
    assert sum(errors) / len(errors) < 0.15
    assert trees == grow(rows, labels, growth=Growth(trees=60, depth=4, rate=0.2))


def test_they_predict_what_xgboost_predicts():
    import xgboost

    rows, labels = made_up(120)
    ours = grow(rows, labels, growth=Growth(trees=20, depth=3, rate=0.3))
    base = float(np.mean(labels))
    parameters = {
        "base_score": 0.0, "tree_method": "exact", "max_depth": 3, "eta": 0.3, "min_child_weight": 3, "seed": 0,
    }  # fmt: skip
    data = xgboost.DMatrix(np.array(rows, dtype=np.float32), label=np.array(labels) - base)
    theirs = xgboost.train(parameters, data, num_boost_round=20).predict(data) + base
    assert [ours.predict(row) for row in rows] == pytest.approx(theirs.tolist(), abs=0.01)


def test_many_rows_at_once_are_the_same():
    rows, labels = made_up(90)
    trees = grow(rows, labels, growth=Growth(trees=10, depth=4))
    at_once = trees.predict_all(np.array(rows, dtype=np.float32))
    assert at_once.tolist() == pytest.approx([trees.predict(row) for row in rows], abs=1e-5)


def test_what_is_missing_goes_its_own_way():
    split = Split(feature=0, below=1.0, children=(10.0, 20.0), missing=1)
    trees = Trees(base=1.0, trees=(split,))
    assert [trees.predict([value]) for value in (0.5, 1.0, math.nan)] == [11.0, 21.0, 21.0]


def test_a_tree_survives_json():
    rows, labels = made_up(60)
    (tree,) = grow(rows, labels, growth=Growth(trees=1, depth=5)).trees
    assert from_lists(json.loads(json.dumps(as_lists(tree)))) == tree
