"""The Python examples of README and docs run as they stand, and the figures are those of the results. ``test_docs``
checks links and commands."""

from __future__ import annotations

import ast
import builtins
import dataclasses
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

import pytest
import torch

from bench import parallel
from bench.parallel_rank import CONVENTIONAL, DATA_PARALLELISM
from bench.results import counts
from bench.train import APART
from dwconv.problems.workload import PASSES, Workload
from dwconv.records.log import TuningLog
from dwconv.tuner.results_table import Outcome, table_lines
from dwconv.tuner.search.search_result import Budget, TuningResult
from tests import forked
from tests.native_needed import compiled_way
from tests.pages import ROOT, table_row, text_of


def _output_of_the_examples(page: str, folder: Path) -> str:
    """What the Python examples of a page print, run one after the other in one process."""
    # with OMP_DYNAMIC, PyTorch's own gradients are wrong on a busy machine
    command = [sys.executable, "-W", "ignore", "-c", "\n".join(_examples(page))]
    known = os.environ | {"OMP_DYNAMIC": "false", forked.BRIEF: "1"}
    done = forked.run(command, cwd=folder, env=known, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


PRINTED = {
    "README.md": ("1 depthwise layer converted", "fprop", "dgrad", "wgrad"),
    "docs/dispatch.md": ("fprop", "dgrad", "wgrad"),
    "docs/blocks.md": ("block bn+relu6,bn+relu6 from 1 runs",),
    "docs/pipelines.md": ("data parallelism", "2 stages", "4 tensors"),  # it trains, too, on the only rank
    "docs/parallel.md": ("1 rank, ", "chosen: buckets of 1", "16 batches, 2 loaded ahead"),
}
"""Pages whose examples follow each other, and parts of what they print."""


@pytest.mark.parametrize("page", PRINTED)
def test_the_examples_of_a_page_run_one_after_the_other(page, tmp_path):
    compiled_way()  # a process that ends before it is compiled would leave another one behind
    printed = _output_of_the_examples(page, tmp_path)
    assert [said for said in PRINTED[page] if said not in printed] == [], printed


def test_the_table_of_make_tune_is_that_of_the_shipped_records(monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    log = TuningLog(ROOT / "tuning_logs" / "amd-epyc-family-26-model-2-avx512-2t.jsonl")
    layer = Workload(pass_="fprop", batch=8, channels=144, input_size=(56, 56), kernel=(3, 3), padding=((1, 1), (1, 1)))
    outcomes = []
    for workload in map(dataclasses.replace(layer, layout="nhwc").for_pass, PASSES):
        found = [record for record in log.load().records if record.workload == workload]
        best = min((record for record in found if record.confirmed), key=lambda record: record.time_us)
        result = TuningResult(workload=workload, device=best.device, budget=Budget(), best=best, trials=len(found))
        outcomes.append(Outcome(workload=workload, result=result))
    assert "\n".join(table_lines(outcomes)) in (ROOT / "README.md").read_text()


PAGES = ["README.md", *sorted(str(page.relative_to(ROOT)) for page in (ROOT / "docs").glob("*.md"))]


def _examples(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


def test_every_example_names_what_it_uses():
    """A reader copies nothing else."""
    unknown = []
    for page in PAGES:
        for example in _examples(page):
            nodes = list(ast.walk(ast.parse(example)))
            imported = [
                alias for node in nodes if isinstance(node, ast.Import | ast.ImportFrom) for alias in node.names
            ]
            known = {*dir(builtins), *(alias.asname or alias.name.partition(".")[0] for alias in imported)}
            known |= {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
            known |= {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
            known |= {node.arg for node in nodes if isinstance(node, ast.arg)}
            unknown += [f"{page}: {node.id}" for node in nodes if isinstance(node, ast.Name) and node.id not in known]
    assert sum(len(_examples(page)) for page in PAGES) > 15 and not unknown


@pytest.mark.parametrize(
    "page", [page for page in PAGES if _examples(page) and page not in (*PRINTED, "docs/packs.md")]
)
def test_every_other_example_runs_in_an_empty_folder_with_an_empty_home(page, tmp_path):
    """Those of a page in one process, and none knows another's names; but for the cache with the C++ of calls. Those of
    packs need one."""
    compiled_way()  # a process that ends before it is compiled would leave another one behind
    own = {name: value for name, value in os.environ.items() if not name.startswith(("DWCONV", "XDG"))}
    programs = [each for each in _examples(page) if '"cuda"' not in each or torch.cuda.is_available()]
    home, folders = tmp_path / "home", [tmp_path / f"folder {number}" for number, _ in enumerate(programs)]
    for folder in (home, *folders):
        folder.mkdir()
    program = f"import os\nfor folder, program in {list(zip(map(str, folders), programs, strict=True))!r}:\n"
    program += "    os.chdir(folder)\n    exec(program, {'__name__': '__main__'})\n"
    known = {"HOME": str(home), "OMP_DYNAMIC": "false", forked.BRIEF: "1"}
    known |= {name: os.environ[name] for name in ("DWCONV_CACHE", forked.FOLDER)}
    known["XDG_STATE_HOME"] = os.environ["XDG_STATE_HOME"]  # with the key of the cache
    done = forked.run([sys.executable, "-c", program], env=own | known, text=True, timeout=600)
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr


def _results(benchmark: str, *, vectors: str = "") -> dict[str, Any]:
    """Where two devices have some, those with such ``vectors``."""
    pattern = f"{benchmark}-*{vectors}-2t.json" if vectors else f"{benchmark}-*.json"
    (path,) = (ROOT / "bench" / "results").rglob(pattern)
    found: dict[str, Any] = json.loads(path.read_text())
    return found


DEVICES = {
    "Zen 5": "family-26-model-2-avx512",
    "Zen 4": "family-25-model-17-avx512",
    "Zen 3": "family-25-model-1-avx2",
}
"""What tables call a device, and the end of its name."""


def _device_and_type(told: str) -> tuple[str, str]:
    """Of ``Zen 5, bfloat16``: what is measured there, and what the names of its files say of the type."""
    device = told.removesuffix(", bfloat16")
    return device, "" if device == told else "bfloat16-"


Row = tuple[str, str, list[str]]
"""A page, the first cell of a row of one of its tables, and the others."""


def _of_passes(rows: list[dict[str, Any]], ratio: str, *, small: int = 3) -> list[list[float]]:
    """Of fprop, dgrad, wgrad of small kernels and of large ones."""
    kinds = [("fprop", True), ("fprop", False), ("dgrad", True), ("dgrad", False), ("wgrad", True), ("wgrad", False)]
    found = [
        [row[ratio] for row in rows if row["pass"] == pass_ and (row["kernel"] <= small) == is_small]
        for pass_, is_small in kinds
    ]
    return [found[0] + found[1], found[2] + found[3], found[4], found[5]]


def rows_of_layers() -> Iterator[Row]:
    for first, benchmark, ratio in (
        ("channels_last, over PyTorch's better layout", "cpu-nhwc", "ratio"),
        ("contiguous, over PyTorch's contiguous", "cpu-nchw", "ratio_same_layout"),
        ("dilated, large and decomposed kernels, over PyTorch's better layout", "cpu-dilated-nhwc", "ratio"),
    ):
        rows = _results(benchmark)["rows"]
        wanted = [*map(geometric_mean, _of_passes(rows, ratio)), min(row[ratio] for row in rows)]
        for page in ("README.md", "docs/benchmarks.md"):
            yield page, first, [f"{figure:.3g}" for figure in wanted]


def rows_of_transposed_layers() -> Iterator[Row]:
    rows = _results("cpu-transposed-nhwc")["rows"]
    assert len(rows) == 12
    for layer in dict.fromkeys(row["layer"] for row in rows):
        ratios = {row["pass"]: row["ratio"] for row in rows if row["layer"] == layer}
        yield "docs/benchmarks.md", layer, [f"{ratios[pass_]:.2f}" for pass_ in PASSES]


def rows_of_16_bits() -> Iterator[Row]:
    for first, benchmark in (
        ("bfloat16, channels_last", "cpu-bfloat16-nhwc"),
        ("bfloat16, contiguous", "cpu-bfloat16-nchw"),
        ("float16, channels_last", "cpu-float16-nhwc"),
    ):
        rows = _results(benchmark)["rows"]
        wanted = [*map(geometric_mean, _of_passes(rows, "ratio")), min(row["ratio"] for row in rows)]
        over_float32 = [
            geometric_mean(row["ratio_float32"] for row in rows if row["pass"] == pass_ and "ratio_float32" in row)
            for pass_ in PASSES
        ]
        cells = [*(f"{figure:.3g}" for figure in wanted), *(f"{figure:.2f}" for figure in over_float32)]
        yield "docs/benchmarks.md", first, cells


def rows_of_any_size() -> Iterator[Row]:
    rows = _results("any-size-nhwc")["rows"]
    assert len(rows) == 36 and not any("failed" in row for row in rows)
    for first, key in (
        ("any size, over the tuned kernel (least)", "any_size"),
        ("any size, over PyTorch's better layout", "any_size_ratio"),
        ("a pack's, over the tuned kernel (least)", "any_channels"),
        ("a pack's, over PyTorch's better layout", "any_channels_ratio"),
    ):
        least = first.endswith("(least)")
        yield (
            "docs/predictions.md",
            first,
            [
                f"{geometric_mean(each):.2f} ({min(each):.2f})" if least else f"{geometric_mean(each):.3g}"
                for each in _of_passes(rows, key)
            ],
        )


def rows_of_rows_and_volumes() -> Iterator[Row]:
    for first, benchmark in (
        ("1-D, (B, L, C)", "cpu-1d-nhwc"),
        ("1-D, (B, C, L)", "cpu-1d-nchw"),
        ("1-D, (B, L, C), bfloat16", "cpu-1d-bfloat16-nhwc"),
        ("3-D, channels_last_3d", "cpu-3d-nhwc"),
        ("3-D, contiguous", "cpu-3d-nchw"),
    ):
        for device in ("Zen 5", "Zen 3") if benchmark != "cpu-3d-nchw" else ("Zen 5",):
            rows = _results(benchmark, vectors=DEVICES[device])["rows"]
            rows = [row for row in rows if "epilogue" not in row and "failed" not in row]
            means = [geometric_mean(row["ratio"] for row in rows if row["pass"] == pass_) for pass_ in PASSES]
            wanted = [f"{figure:.3g}" for figure in (*means, min(row["ratio"] for row in rows))]
            yield "docs/benchmarks.md", f"{first}, {device}", wanted


def rows_under_torch_compile() -> Iterator[Row]:
    for network in ("Mamba-like", "MedNeXt-S-like", "X3D-S-like"):
        (row,) = _with_memory_kept(_results(f"train-{network.lower()}-compile-nhwc"))
        compiled = row["compiled"]
        medians = (row["ratio"], compiled["plain + inductor"], compiled["converted + inductor"], row["inductor"])
        yield "docs/benchmarks.md", f"{network}, compiled", [f"{each['median']:.2f}" for each in medians]


def _with_memory_kept(results: dict[str, Any]) -> list[dict[str, Any]]:
    return [row for row in results["rows"] if row["allocator"] == "memory kept"]


BLOCKS = {
    "Zen 5": ("MobileNetV2", "MobileNetV3-L", "EfficientNet-B0"),
    "Zen 3": ("MobileNetV2",),
    "Zen 4": ("MobileNetV2", "MobileNetV3-L", "EfficientNet-B0", "ConvNeXt-T"),
    "Zen 4, bfloat16": ("MobileNetV2", "MobileNetV3-L", "EfficientNet-B0"),
}
STEPS = {
    "Zen 5": ("MobileNetV2", "MobileNetV3-Large", "EfficientNet-B0"),
    "Zen 3": ("MobileNetV2",),
    "Zen 4": ("MobileNetV2", "MobileNetV3-Large", "EfficientNet-B0", "ConvNeXt-like", "RepLKNet-like"),
    "Zen 4, bfloat16": ("MobileNetV2", "MobileNetV3-Large", "EfficientNet-B0"),
}


def rows_of_blocks() -> Iterator[Row]:
    for device, networks in BLOCKS.items():
        of, dtype = _device_and_type(device)
        for network in networks:
            rows = _results(f"blocks-{dtype}amd", vectors=DEVICES[of])["rows"]
            rows = [row for row in rows if row["network"].startswith(network)]
            eager, others = ([row[over] for row in rows] for over in ("over_eager", "over_best_other"))
            kept = geometric_mean(row["kept_bytes"]["as one"] / row["kept_bytes"]["plain"] for row in rows)
            figures = (geometric_mean(eager), min(eager), geometric_mean(others), min(others), kept)
            wanted = [str(len(rows)), *(f"{each:.2f}" for each in figures)]
            yield "docs/benchmarks.md", f"blocks of {network}, {device}", wanted


def rows_of_steps_with_blocks() -> Iterator[Row]:
    for device, networks in STEPS.items():
        of, dtype = _device_and_type(device)
        for network in networks:
            results = _results(f"train-{network.lower()}-compile-blocks-{dtype}nhwc", vectors=DEVICES[of])
            (step,) = _with_memory_kept(results)
            eager, compiled = step["blocks"], step["compiled_blocks"]
            ratios = [eager["plain"], eager["converted"], compiled["plain"], compiled["converted + inductor"]]
            kept = step["kept_bytes"]["blocks"] / step["kept_bytes"]["plain"]
            wanted = [f"{each['median']:.2f}" for each in ratios]
            yield "docs/benchmarks.md", f"step of {network}, {device}", [*wanted, f"{kept:.2f}"]
            if device == "Zen 5":
                yield "README.md", f"of {network}", wanted[::2]


def headlines_of_blocks_and_steps() -> Iterator[Row]:
    for device in BLOCKS:
        of, dtype = _device_and_type(device)
        blocks = [row["over_eager"] for row in _results(f"blocks-{dtype}amd", vectors=DEVICES[of])["rows"]]
        files = (ROOT / "bench" / "results").glob(f"train-*-compile-blocks-{dtype}nhwc-*{DEVICES[of]}-2t.json")
        rows = [row for path in files for row in _with_memory_kept(json.loads(path.read_text()))]
        steps = [[row[how]["plain"]["median"] for row in rows] for how in ("blocks", "compiled_blocks")]
        means, least = ([f"{of_all(each):.2f}" for each in (blocks, *steps)] for of_all in (geometric_mean, min))
        wanted = [str(len(blocks)), means[0], least[0], str(len(rows)), means[1], least[1], means[2], least[2]]
        yield "docs/benchmarks.md", f"on {device}", wanted


LAYOUTS = {"nhwc": "channels_last", "1d-nhwc": "(B, L, C)", "3d-nhwc": "channels_last_3d", "1d-nchw": "(B, C, L)"}
"""What tables call a layout; the others are contiguous."""
CPU_RESULTS = re.compile(r"cpu-(?:(dilated|transposed)-)?(?:(\d)d-)?(?:(b?float16)-)?(nhwc|nchw)-.*-(family-.*)-2t")


def test_all_passes_that_lost_are_among_the_losses():
    lost = {}
    for path in (ROOT / "bench" / "results").glob("cpu-*.json"):
        named = CPU_RESULTS.fullmatch(path.stem)
        assert named is not None, path
        kind, dims, dtype, layout, of = named.groups()
        layout = LAYOUTS.get(f"{dims}d-{layout}" if dims else layout, "contiguous")
        (device,) = (name for name, end in DEVICES.items() if end == of)
        words = [f"{dims}-D", layout, dtype] if dims else [kind, dtype, layout]
        rows = [row for row in json.loads(path.read_text())["rows"] if "epilogue" not in row and "failed" not in row]
        slower = [row["ratio"] for row in rows if row["ratio"] < 1]
        if slower:
            told = f"{device}: {', '.join(word for word in words if word)}"
            lost[told] = (f"{len(slower)} of {len(rows)}", f"{min(slower):.2f}")
    page = (ROOT / "docs/benchmarks.md").read_text()
    table = page.partition("| slower than PyTorch's op |")[2].partition("\n\n")[0]
    assert {name: (*of,) for name, *of in re.findall(r"^\| (Zen.*) \| (.*) \| (.*) \|$", table, re.M)} == lost


def rows_of_models_in_processes_of_their_own() -> Iterator[Row]:
    for network in ("MobileNetV2", "MobileNetV3-Large", "EfficientNet-B0"):
        results = _results(f"train-{network.lower()}-blocks-nhwc", vectors=DEVICES["Zen 4"])
        (alone,) = (row for row in results["rows"] if row["allocator"] == APART)
        (together,) = _with_memory_kept(results)
        ratios = [_with_its_interval(row["blocks"]["plain"]) for row in (alone, together)]
        wanted = [*(f"{alone['median_ms'][name]:.0f}" for name in ("plain", "blocks")), *ratios]
        yield "docs/benchmarks.md", f"step of {network}, alone", wanted


def rows_of_what_is_learnt_with_blocks() -> Iterator[Row]:
    found = [json.loads(path.read_text()) for path in (ROOT / "bench" / "results").glob("losses-*.json")]
    assert len(found) == 3
    for result in found:
        rows = result["rows"]
        gradients = [each for row in rows for each in row["gradients"].values()]
        chance, blocks = ([apart for row in rows for apart in row[key]] for key in ("chance", "blocks"))
        farther = sum(median(row["blocks"]) > median(row["chance"]) for row in rows)
        yield "docs/benchmarks.md", result["network"].partition(":")[2], [
            f"{rows[0]['as_one_a_step']:.0f}", f"{median(chance):.2g}", f"{median(blocks):.2g}",
            f"{farther} of {len(rows)}", f"{median(each['plain'] for each in gradients):.1e}",
            f"{median(each['blocks'] for each in gradients):.2f}",
        ]  # fmt: skip


H200 = json.loads((ROOT / "bench/results/cuda-nvidia-h200.json").read_text())
"""What ``bench cuda`` measured on a GPU."""


def _passes_of_the_gpu(of: str) -> list[dict[str, Any]]:
    """Those of a row of the table of means: a type with its layout, apart from both gradients in one kernel."""
    dtype = of.partition(",")[0] if of.startswith("float") else "float16"
    return [
        row
        for row in H200["rows"]
        if f"-{dtype}-" in row["workload"]
        and row["workload"].startswith("backward") == of.endswith("both gradients")
        and (not of.startswith("the same") or int(re.findall(r"-k(\d+)x", row["workload"])[0]) <= 7)
    ]


def means_of_the_gpu() -> Iterator[Row]:
    for of in (
        "float16, channels_last", "the same, kernels of up to 7 columns", "float16, both gradients",
        "float32, contiguous", "float32, both gradients",
    ):  # fmt: skip
        rows = _passes_of_the_gpu(of)
        warm, cold = ([row[caches]["ratio"] for row in rows] for caches in ("warm", "cold"))
        own = [row["warm"]["ratio_own_layout"] for row in rows]
        means = [f"{geometric_mean(warm):.2f} ({geometric_mean(cold):.2f})", f"{min(warm):.2f} ({min(cold):.2f})"]
        yield "docs/cuda.md", of, [str(len(rows)), *means, f"{geometric_mean(own):.2f}", f"{min(own):.2f}"]
        if of in ("float16, channels_last", "float32, contiguous"):
            for page in ("README.md", "docs/benchmarks.md"):
                yield page, f"{len(rows)} passes in {of}", [each.partition(" ")[0] for each in means]


def test_the_page_lists_each_pass_of_the_gpu_and_how_many_are_slower():
    page = (ROOT / "docs/cuda.md").read_text()
    for row in H200["rows"]:
        ratios = [row[caches]["ratio"] for caches in ("warm", "cold")]
        assert f"{row['dwconv_us']:.1f}, {ratios[0]:.2f} ({ratios[1]:.2f})" in page, row["workload"]
    (slower,) = (row for row in H200["rows"] if min(row[caches]["ratio"] for caches in ("warm", "cold")) < 1)
    warm, count = slower["warm"], len(H200["rows"])
    assert slower["workload"].startswith("fprop-n64-c96-112x112-k3x3-s2x2") and warm["best_other"] == "cudnn-nhwc"
    told = f"contiguous float32, is {warm['ratio']:.2f} times as fast"
    assert f"**One pass of {count} is slower" in page and told in text_of("docs/cuda.md")
    assert f"{warm['ratio_own_layout']:.2f} times as fast as all others" in text_of("docs/cuda.md")
    assert f"all {H200['verified']['right']:,} candidates of `verify` were right" in page
    assert set(H200["verified"]) == {"right"}


def _with_its_interval(ratio: dict[str, Any]) -> str:
    low, high = ratio["interval"]
    return f"{ratio['median']:.2f} ({low:.2f} to {high:.2f})"


def _readme_rows(network: str) -> list[list[str]]:
    found = re.findall(rf"^\| of {re.escape(network)}, converted \| (.*) \|$", (ROOT / "README.md").read_text(), re.M)
    return [row.split(" | ") for row in found]


def steps_on_the_gpu() -> Iterator[Row]:
    """Where no block runs as one, as many bytes are kept with blocks as without. Rows that name their batch have cells
    of their own."""
    for key, step in H200["steps"].items():
        if not counts(step):
            continue
        if "batch" in step:
            yield "docs/cuda.md", key.replace("timm:", ""), _cells_of_steps(step)
            continue
        kept = step["kept_bytes"]
        has_blocks = kept.get("blocks", kept["plain"]) != kept["plain"]
        models = ["plain", "converted", *(["blocks"] if has_blocks else [])]
        of_blocks = (step["blocks"]["plain"], step["graphed_blocks"]["plain + graphs"]) if has_blocks else ()
        eager_blocks, graphed_blocks = map(_with_its_interval, of_blocks) if has_blocks else ("", "")
        alone = [step["profile_ms"][name]["step"] - step["profile_ms"][name]["between the ops"] for name in models]
        ours = sum(count for name, count in step["layers"].items() if name.endswith(" dwconv"))
        told = key.replace("timm:convnext_tiny", "ConvNeXt-T").replace("timm:efficientnet_b0", "EfficientNet-B0")
        network, _, _ = told.partition(" ")
        yield "docs/cuda.md", told.replace(" ", ", "), [
            f"{step['median_ms']['plain']:.1f}", _with_its_interval(step["ratio"]), eager_blocks,
            f"{step['median_ms']['plain + graphs']:.1f}", _with_its_interval(step["graphs"]), graphed_blocks,
            ", ".join(f"{ms:.1f}" for ms in alone), f"{ours} of {sum(step['layers'].values())}",
        ]  # fmt: skip
        if key.endswith(" float16"):
            as_one = [f"{each['median']:.2f}" for each in of_blocks] or ["", ""]
            one_by_one = [f"{step[each]['median']:.2f}" for each in ("ratio", "graphs")]
            cells = [cell for pair in zip(one_by_one, as_one, strict=True) for cell in pair]
            yield "docs/cuda.md", f"steps of {network}", cells
        if key.endswith(" float16") and (rows := _readme_rows(network)):
            assert rows == [[f"{step[each]['median']:.2f}" for each in ("ratio", "graphs")]]
            if has_blocks:
                yield "README.md", f"of {network}, with fused blocks", [f"{each['median']:.2f}" for each in of_blocks]


def _cells_of_steps(step: dict[str, Any]) -> list[str]:
    """Of each kind, op by op, graphed or compiled: plain samples a second, times as fast converted and with blocks, and
    the GiB of each; then the passes by dwconv."""
    rates, peaks, ms = (step[each] for each in ("samples_per_s", "peak_bytes", "median_ms"))
    cells = []
    for way in [" + inductor"] if step["compiled"] else ["", " + graphs"]:
        plain, *ours = (f"{name}{way}" for name in ("plain", "converted", "blocks"))
        cells.append(f"{rates[plain]:,.0f}" if plain in ms else "")
        cells += [f"{ms[plain] / ms[each]:.2f}" if {plain, each} <= ms.keys() else "" for each in ours]
        cells.append(", ".join(f"{peaks[each] / 2**30:.1f}" for each in (plain, *ours) if each in ms))
    ours = sum(count for name, count in step["layers"].items() if name.endswith(" dwconv"))
    return [*cells, f"{ours} of {sum(step['layers'].values())}"]


def test_cells_of_steps_are_of_each_way_to_run():
    ms = {"plain": 20.0, "converted": 16.0, "plain + graphs": 10.0, "converted + graphs": 8.0, "blocks + graphs": 5.0}
    step = {"median_ms": ms, "samples_per_s": {name: 256e3 / each for name, each in ms.items()}, "compiled": False,
            "peak_bytes": dict.fromkeys(ms, 3 << 29), "layers": {"fprop dwconv": 2, "wgrad pytorch": 1}}  # fmt: skip
    graphs = ["25,600", "1.25", "2.00", "1.5, 1.5, 1.5"]
    assert _cells_of_steps(step) == ["12,800", "1.25", "", "1.5, 1.5", *graphs, "2 of 3"]
    assert _cells_of_steps({**step, "compiled": True}) == ["", "", "", "", "2 of 3"], "none of them ran"


def blocks_on_the_gpu() -> Iterator[Row]:
    blocks = H200["blocks"]
    yield "docs/cuda.md", "as one, µs", [f"{row['median_us']['as one']:.0f}" for row in blocks]
    yield "docs/cuda.md", "over the best other", [f"{row['over_best_other']:.2f}" for row in blocks]
    yield "docs/cuda.md", "GB/s", [f"{row['gb_per_s']:,.0f}" for row in blocks]


def searches_that_were_replayed() -> Iterator[Row]:
    replayed = _results("replay-nhwc")
    for row in replayed["rows"]:
        ratios = [f"{row[f'ratio_{trials}']:.3f}" for trials in (8, 16, 32, 64)]
        near = [f"{near['median']:g} ({near['worst']})" for near in (row["near_8"], row["near_32"])]
        yield "docs/benchmarks.md", row["strategy"], [*ratios, *near]
    for row in replayed["until"]:
        step, worst, slowest = (
            f"{row[name] - 1:.1%}".replace("%", " %") for name in ("step_slower", "step_slower_worst", "pass_slower")
        )
        cells = [f"{row['trials']:g}", f"{row['whole_trials']:g}", f"{step} ({worst})", slowest]
        yield "docs/benchmarks.md", f"{row['strategy']}, `--until {row['until']:.0%}`", cells


def rows_of_steps_op_by_op() -> Iterator[Row]:
    for device, cores in (
        ("amd-epyc-family-26-model-2-avx512-2t", ""),
        ("intel-xeon-processor-family-6-model-207-avx512-16t", ", 16 cores"),
    ):
        for row in json.loads((ROOT / f"bench/results/concurrency-{device}.json").read_text())["rows"]:
            took = row["median_ms"]
            manual = min((ms for name, ms in took.items() if name.startswith("manual")), default=None)
            names = ["eager", "S1", "S2", "S3", "S4", "S1+S3", "hill climbing", "regression", "backend"]
            found = {name: took.get(row["same_as"].get(name, name)) for name in names}
            ratios = {
                name: f"{took['recommended'] / ms:.2f}" if ms else "" for name, ms in {"": manual, **found}.items()
            }
            ratios["backend"] = f"{row['backend'].partition(':')[0]}, {ratios['backend']}"
            yield "docs/benchmarks.md", f"{row['network']}{cores}", [f"{took['recommended']:.1f}", *ratios.values()]


def rows_of_sending_gradients() -> Iterator[Row]:
    bfloat16 = {"collective": "all-reduce", "bucket_mb": None, "compressed": True, "powersgd_rank": None}
    for results in sorted((ROOT / "bench/results").glob("communication-*-ranks-amd-epyc-family-26-*.json")):
        for row in json.loads(results.read_text())["rows"]:
            (compressed,) = (each for each in row["rows"] if each["communication"] == bfloat16)
            exposed = [row["control_exposed_ms"], row["default_exposed_ms"], compressed["exposed_us"] / 1e3]
            cells = [f"{ms:,.1f}" for ms in (row["local_ms"], *exposed, row["chosen_exposed_ms"])]
            yield (
                "docs/benchmarks.md",
                f"{row['network']}, {row['world']} ranks, {row['rate']} Gbit/s",
                [*cells, f"{row['hidden']:.0%}".replace("%", " %")],
            )


def rows_of_pipelines_on_links() -> Iterator[Row]:
    """Those of two ranks have the same forms; of more ranks there are as many forms as there were plans."""
    of_2 = ["gpipe", "1f1b", "interleaved", "zero-bubble"]
    for case in _cases_over_links():
        for rate, rows in case.rows.items():
            took = {row["name"]: row["median_ms"] for row in rows}
            taken = parallel.taken_by_plan(rows)
            cells = [f"{took[name]:,.0f}" for name in (CONVENTIONAL, DATA_PARALLELISM)]
            pipelines = [row["name"] for row in rows if not row["way"]]
            if case.world == 2:
                cells += [f"{took[name]:,.0f}" for name in of_2]
            else:
                cells.append("; ".join(f"{name}: {took[name]:,.0f}" for name in pipelines))
            cells += [taken["name"], f"{taken['times_as_fast_as_conventional']:.2f}"]
            yield "docs/benchmarks.md", f"{_named(case)}, {rate} Gbit/s", cells


def rows_of_when_a_pipeline_pays() -> Iterator[Row]:
    for case in _cases_over_links():
        ratios = [case.times(rate, "median_ms") if rate in case.rows else None for rate in ("0.1", "1", "10")]
        times = ["–" if each is None else f"{each:.{2 - (each >= 0.995) - (each >= 9.95)}f}" for each in ratios]
        even = [f"{case.break_even(time)} Gbit/s" for time in ("median_ms", "predicted_ms")]
        yield (
            "docs/pipelines.md",
            f"{case.network}, {case.images.partition(' ')[0]}, {case.world} ranks",
            [*times, *even],
        )


def _cases_over_links() -> list[parallel.OverLinks]:
    results = ROOT / "bench/results/parallel-amd-epyc-family-26-model-2-avx512-2t.json"
    rows = json.loads(results.read_text())["rows"]
    return parallel.cases_over_links([row for row in rows if "failed" not in row])


def _named(case: parallel.OverLinks) -> str:
    images = case.images.partition(" ")[0]
    return f"{case.network}, {images}" + (f", {case.world} ranks" if case.world > 2 else "")


def rows_of_the_first_minute() -> Iterator[Row]:
    """Of the results that there are."""
    for path in (ROOT / "bench" / "results").glob("first-minute-*-2t.json"):
        for row in json.loads(path.read_text())["rows"]:
            lost_s = {mark: ours - row["plain_sums_s"][mark] for mark, ours in row["sums_s"].items()}
            cells = [f"{lost_s[mark]:+.1f}" if mark in lost_s else "–" for mark in ("10", "100", "300", "1000")]
            then = f"{row['plain_step_s'] / row['late_step_s']:.2f}"
            cells = [f"{row['plain_step_s'] * 1e3:.1f}", *cells, then]
            yield "docs/benchmarks.md", f"{row['model']}, {row['case']}", cells


@pytest.mark.parametrize(
    "rows",
    [
        rows_of_layers, rows_of_transposed_layers, rows_of_16_bits, rows_of_any_size, rows_of_rows_and_volumes,
        rows_under_torch_compile, rows_of_blocks, rows_of_steps_with_blocks, headlines_of_blocks_and_steps,
        rows_of_models_in_processes_of_their_own, rows_of_what_is_learnt_with_blocks, means_of_the_gpu,
        steps_on_the_gpu, blocks_on_the_gpu, rows_of_steps_op_by_op, rows_of_sending_gradients,
        rows_of_pipelines_on_links, rows_of_when_a_pipeline_pays, searches_that_were_replayed, rows_of_the_first_minute,
    ],
)  # fmt: skip
def test_the_figures_of_tables_are_those_of_the_results(rows: Callable[[], Iterator[Row]], request):
    """With ``--update-golden`` writes them there."""
    wrong = []
    for page, first, wanted in rows():
        found = table_row(page, first)
        if found != wanted and request.config.getoption("--update-golden"):
            text = (ROOT / page).read_text()
            (row,) = re.findall(rf"^\| {re.escape(first)} \|.*\|$", text, re.MULTILINE)
            line = " ".join(["|", first, *(f"| {cell}".rstrip() for cell in wanted), "|"])
            (ROOT / page).write_text(text.replace(row, line))
        elif found != wanted:
            wrong.append(f"{page}, row {first}: {found}, not {wanted}")
    assert not wrong, "rewrite them with --update-golden"


def test_what_layers_take_of_the_host_of_a_gpu_is_what_was_measured():
    page = (ROOT / "docs/cuda.md").read_text()
    by_layer = [H200["host"][road]["us"] for road in ("C++", "Python")]
    for us in by_layer:
        for of_models in us.values():
            plain, ours = ([of_models[name][way] for way in ("forward", "backward")] for name in of_models)
            told = " | ".join(" + ".join(f"{us:.1f}" for us in found) for found in (plain, ours))
            assert f"| {told} | {sum(ours) / sum(plain):.2f} |" in page


def test_the_figures_of_untuned_layers_are_those_of_the_results():
    rows = _results("untuned")["rows"]
    sure, won = ([row for row in rows if row["runs"][name] == "dwconv"] for name in ("predicted", "race"))
    for first, name, kept in (
        ("predicted, all", "predicted_us", rows),
        ("predicted, sure to be faster than PyTorch's op", "predicted_us", sure),
        ("raced, of up to three", "race_us", rows),
        ("raced, and faster than PyTorch's op", "race_us", won),
    ):
        share, passes, least = table_row("docs/benchmarks.md", first)
        assert share == f"{geometric_mean(row['search_us'] / row[name] for row in kept):.3f}"
        assert int(passes) == len(kept)
        assert least in ("", f"{min(row['pytorch_us'] / row[name] for row in kept):.2f}")


def test_the_figures_of_awkward_sizes_are_those_of_the_results():
    results = _results("cliffs-nhwc")
    ratios = [row["ratio"] for row in results["rows"]]
    reached = sum(ratio >= results["goal"] for ratio in ratios)
    said = f"{reached} of {len(ratios)} passes reach {results['goal']} of the even size; the least, {min(ratios):.2f},"
    assert said in text_of("docs/benchmarks.md")


@pytest.mark.parametrize("benchmark", ["cpu-nhwc", "cpu-nchw", "train-nhwc"])
def test_the_versions_are_those_of_the_results(benchmark):
    versions = _results(benchmark)["versions"]
    for page in ("README.md", "docs/benchmarks.md"):
        text = text_of(page)
        for name, library in (("PyTorch", "torch"), ("TVM", "tvm"), ("Python", "python")):
            number = re.match(r"\d+\.\d+\.\d+", versions[library])
            assert number is not None and f"{name} {number[0]}" in text


def test_the_models_that_are_named_are_those_of_the_results():
    results = json.loads((ROOT / "bench/results/coverage.json").read_text())
    rows = results["rows"]
    assert len(rows) >= 40 and not results["failed"] and all(row["equal"] and not row["missed"] for row in rows)
    assert all(row["depthwise"] == row["converted"] == row["run"] for row in rows)
    page = text_of("docs/support.md")
    layers = sum(row["run"] for row in rows)
    assert f"In {len(rows)} models all {layers} depthwise layers were converted and ran" in page
    assert all(f"{name} {results['versions'][name]}" in page for name in ("timm", "torchvision", "transformers"))
