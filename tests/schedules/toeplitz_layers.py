"""Layers that the banded products on tensor cores are tried on."""

from __future__ import annotations

import dataclasses

import pytest

from dwconv.problems.workload import LAYOUTS, DType, Workload
from tests.schedules.cuda_layers import TEMPLATES, fitted, layer

NAMES = [f"cuda.{pass_}_{layout}_toeplitz" for layout in LAYOUTS for pass_ in ("fprop", "dgrad")]

WGRADS = [f"cuda.wgrad_{layout}_toeplitz" for layout in LAYOUTS]

TYPES: list[DType] = ["float16", "bfloat16"]

SHAPES = {
    "9 × 13": layer(5, (9, 13), (5, 5), batch=3),
    "57 columns": layer(2, (30, 57), (7, 7), batch=1),
    "14 × 14, k13": layer(3, (14, 14), (13, 13)),
    "28 × 28, k31": layer(1, (28, 28), (31, 31), batch=1),
    "7 × 7, 17 images": layer(3, (7, 7), (7, 7), batch=17),
    "4 × 9 kernel": layer(4, (15, 26), (4, 9), padding=((2, 1), (3, 6))),
    "kernel beyond the map": layer(2, (5, 6), (7, 8), padding=((5, 3), (2, 6))),
    "no padding": layer(4, (11, 17), (4, 6), padding=((0, 0), (0, 0))),
    "a bias": layer(6, (12, 20), (5, 5), bias=True),
    "a bias, 13 kernel rows": layer(2, (9, 14), (13, 5), bias=True),
    "100 columns": layer(2, (9, 100), (5, 11)),
    "many channels": layer(10, (9, 12), (5, 5), batch=2),
}


def of(name: str, shape: str, dtype: DType) -> Workload:
    wanted, template = SHAPES[shape], TEMPLATES[name]
    if template.layout == "nhwc":  # in whole vectors, one, two or three of them
        wanted = dataclasses.replace(wanted, channels=-(-wanted.channels // 2) * 8)
    workload = fitted(wanted, template, dtype)
    if workload is None:
        pytest.skip("the template does not sum a bias")
    return workload
