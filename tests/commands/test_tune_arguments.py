"""The command line of ``python -m dwconv.tune``: bad input, and the layers of networks."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from dwconv.commands.tune_arguments import asks_for_both_gradients, at_any_size, parser_of_tune, workloads_from
from dwconv.problems import target
from dwconv.problems.layer_files import read_layers, write_layers
from dwconv.system import cpu_facts
from tests import fake_tuning as fake
from tests.tune_command import SHAPE, error_of, plant, run

LAYERS = {
    "Net@32": [
        {"C": 8, "I": [32, 32], "K": [3, 5], "S": [2, 1], "P": [1, 2], "n": 3},
        {"C": 8, "I": [32, 32], "K": [3, 5], "S": [2, 1], "P": [1, 2], "n": 1},
        {"C": 16, "I": [16, 16], "K": [3, 3], "S": [1, 1], "P": [1, 1], "n": 1},
    ],
    "Conv1d": [{"C": 4, "I": [100], "K": [4], "S": [1], "P": [3, 0], "n": 1}],
    "Conv3d": [{"C": 4, "I": [8, 8, 8], "K": [3, 3, 3], "S": [1, 1, 1], "P": [1, 1, 1], "n": 1}],
}

PLAIN = {"C": 8, "I": [9, 9], "K": [3, 3], "S": [1, 1], "P": [1, 1]}


@pytest.fixture
def fakes(monkeypatch, tmp_path):
    return plant(monkeypatch, tmp_path)


@pytest.fixture
def layers(tmp_path):
    path = tmp_path / "layers.json"
    path.write_text(json.dumps(LAYERS))
    return path


# -- bad input ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--shape", "1,2,3", "--kernel", "3"], "shape=1,2,3 has 3 sizes"),
        (["--shape", "1,2,x,3", "--kernel", "3"], "shape=1,2,x,3 is not whole numbers"),
        (["--shape", "0,8,8,8", "--kernel", "3"], "batch=0"),
        (["--shape", "1,8,8,8", "--kernel", "9", "--padding", "0"], "kernel=9×9"),
        (["--shape", "1,8,8,8", "--kernel", "3,3,3"], "kernel=3,3,3 has 3 sizes"),
        (["--shape", "1,8,8,8", "--kernel", "3", "--stride", "0"], "stride=0"),
        (["--shape", "1,8,8,8", "--kernel", "3", "--stride", "2", "--padding", "same"], "padding=same needs stride 1"),
        (["--shape", "1,8,8,8", "--kernel", "3", "--padding", "full"], "padding=full is not"),
        (["--shape", "1,8,8,8", "--kernel", "3", "--padding=-1"], "padding=-1"),
        (["--shape", "1,8,8,8", "--kernel", "3", "--dtype", "int7"], "dtype=int7 is unknown"),
        (["--shape", "1,8,8,8", "--kernel", "3", "--layout", "hwcn"], "layout=hwcn is unknown"),
        (["--shape", "1,8,8,8", "--kernel", "3", "--target", "rocm"], "target=rocm is not supported"),
        (["--shape", "1,8,8,8", "--kernel", "3", "--passes", "fprop,bprop"], "pass=bprop is unknown"),
        (["--shape", "1,8,8,8", "--kernel", "3", "--trials", "0"], "--trials: 0 is not a whole number"),
        (["--shape", "1,8,8,8", "--kernel", "3", "--seconds", "nan"], "--seconds: nan is not a number above 0"),
        (["--shape", "1,8,8,8", "--kernel", "3", "--search", "luck"], "invalid choice: 'luck'"),
        (["--shape", "1,8,8,8", "--kern", "3"], "--kern"),
        (["--shape", "1,8,8,8", "--kernel", "3", "--refresh", "--trials", "5"], "no others; leave out --trials"),
        (["--shape", "1,8,8,8", "--kernel", "3", "--refresh", "--no-resume"], "no others; leave out --no-resume"),
        (["--shape", "1,8,8,8", "--kernel", "3", "--refresh", "--runner", "predict"], "--runner predict computes"),
        (
            ["--shape", "1,8,8,8", "--kernel", "3", "--refresh", "--target", "cuda:sm_90"],
            "--refresh measures, and cuda",
        ),
        (["--shape", "1,8,8,8", "--kernel", "3", "--target", "cpu", "--search", "analytic"], "use --target cuda:sm_90"),
        (["--shape", "1,8,8,8", "--kernel", "3", "--target", "cpu", "--fast-math"], "--fast-math is for CUDA"),
        (["--shape", "1,8,8,8"], "give --shape N,C,H,W and --kernel K, or --network"),
        (["--shape", "1,8,8,8", "--kernel", "3", "--batch", "8"], "--batch goes with --network"),
        (["--shape", "1,8,8,8", "--layers", "layers.json"], "give --shape or --layers, not both"),
        (["--network", "MobileNetV2@224"], "--network needs --batch"),
        (["--network", "MobileNetV2", "--batch", "8"], "not in dwconv's own list; it has MobileNetV2@224"),
        (["--shape", "1,8,8,8,8,8", "--kernel", "3"], "has 6 sizes, not 4 (N,C,H,W) or 5 (N,C,D,H,W)"),
        (["--shape", "1,8,8,8,8", "--kernel", "3,3"], "kernel=3,3 has 2 sizes; give one, or 3 (depth,height,width)"),
        (["--shape", "1,8,8,8,8", "--kernel", "3", "--padding", "1,2"], "is not P, PD,PH,PW, FRONT,BACK,TOP,BOTTOM"),
        (["--shape", "1,8,8,8", "--kernel", "3", "--sizes", "9,x"], "sizes=9,x: x is not a size of 2 axes"),
        (["--shape", "1,8,8,8", "--kernel", "3", "--sizes", "9x9x9"], "9x9x9 is not a size of 2 axes; give it as 256"),
        (["--shape", "1,8,8,8", "--kernel", "3", "--sizes", "0"], "0 is not a size of 2 axes"),
        (["--shape", "1,8,8,8", "--kernel", "7", "--padding", "0", "--sizes", "3"], "kernel=7×7"),
        (["--network", "MobileNetV2@224", "--batch", "8", "--sizes", "9"], "--sizes goes with --shape or --model"),
        (
            ["--shape", "1,8,8,8", "--kernel", "3", "--passes", "backward", "--sizes", "9"],
            "kernel of both gradients is",
        ),
        (["--shape", "1,8,8,8", "--kernel", "3", "--infer"], "--infer goes with --model"),
        (["--shape", "1,8,8,8", "--model", "tests.models:TinyNet"], "give --shape or --model, not both"),
        (["--model", "tests.models:TinyNet"], "--model needs --input"),
        (["--shape", "1,8,8,8", "--kernel", "3", "--blocks"], "--blocks goes with --model"),
        (["--model", "tests.models:TinyNet", "--input", "2,x"], "input=2,x is not whole numbers"),
        (["--model", "tests.models:TinyNet", "--input", "2,0"], "input=2,0 has a size below 1"),
        (["--model", "tests.models:TinyNet", "--input", "2,3", "--channels-last"], "--channels-last needs 4"),
        (
            ["--model", "tests.models:TinyNet", "--input", "2,3,9,9", "--bias"],
            "--bias goes with --shape; the model has it",
        ),
        (["--model", "tests.models:TinyNet", "--input", "2,3,9,9", "--dtype", "int7"], "dtype=int7 is unknown"),
        (["--model", "tests.models:TinyNet", "--input", "2,3,9,9", "--infer", "--train"], "not allowed with argument"),
        (["--layers", "layers.json", "--network", "Net@32", "--batch", "8", "--stride", "2"], "--stride goes with"),
        (["--layers", "absent.json", "--network", "Net@32", "--batch", "8"], "layers=absent.json: No such file"),
        (["--shape", "1,8,8,8", "--kernel", "3", "--ray", "--runner", "predict"], "leave out --runner predict"),
        (["--shape", "1,8,8,8", "--kernel", "3", "--ray", "--target", "cuda:sm_90"], "use auto, cpu, cuda, cpu:avx512"),
        (["--shape", "1,8,8,8", "--kernel", "3", "--ray", "--fast-math"], "with --ray it goes with --target cuda"),
    ],
)
def test_bad_input_is_one_clear_line(capsys, options, words):
    assert words in error_of(capsys, *options)


@pytest.mark.parametrize(
    ("passes", "asks"),
    [
        ([], True),
        (["--passes", "wgrad,dgrad"], True),
        (["--passes", "fprop,wgrad"], False),
        (["--passes", "backward"], False),
    ],
)
def test_a_kernel_of_both_gradients_goes_with_the_two(passes, asks):
    assert asks_for_both_gradients(parser_of_tune().parse_args([*SHAPE, *passes])) == asks


def test_a_block_is_tuned_for_training_unless_evaluation_is_requested(tmp_path):
    def passes_of(*options):
        parser = parser_of_tune()
        return [workload.pass_ for workload in workloads_from(parser, parser.parse_args(list(map(str, options))))]

    block = (*SHAPE, "--block", "bn+relu6,bn+relu6")
    assert passes_of(*block) == ["forward", "backward"]
    assert passes_of(*block, "--passes", "inference") == ["inference"]
    assert passes_of(*SHAPE) == ["fprop", "dgrad", "wgrad"]
    assert passes_of(*SHAPE, "--passes", "wgrad,backward") == ["wgrad", "backward"]
    assert passes_of(*block, "--passes", "forward,backward,inference") == ["forward", "backward", "inference"]
    path = tmp_path / "layers.json"
    path.write_text(json.dumps({"Net": [{**PLAIN, "N": 2, "block": "bn+relu,bn", "layout": "nhwc"}]}))
    assert passes_of("--layers", path) == ["forward", "backward"]
    path.write_text(json.dumps({"Net": [{**PLAIN, "N": 2, "block": "bn+relu,bn", "passes": ["inference"]}]}))
    assert passes_of("--layers", path) == ["inference"]


def test_a_log_that_is_a_folder_or_not_writable_is_one_clear_line(capsys, fakes, tmp_path):
    assert "is a folder" in error_of(capsys, *SHAPE, "--log", tmp_path)
    (tmp_path / "file").touch()
    assert "cannot be written" in error_of(capsys, *SHAPE, "--log", tmp_path / "file" / "log.jsonl")
    assert not fakes


def test_a_cluster_without_ray_names_what_to_install(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    assert "run: pip install 'dwconv[ray]'" in error_of(capsys, *SHAPE, "--ray")


def test_cuda_without_a_gpu_names_what_works_without_one(capsys, monkeypatch):
    monkeypatch.setattr(target, "_gpu_is_here", lambda: False)
    assert "cuda:sm_90" in error_of(capsys, "--shape", "1,8,8,8", "--kernel", "3", "--target", "cuda")


@pytest.mark.parametrize("vector_set", ["avx512", "avx2", "neon"])
def test_vectors_that_are_not_here_are_one_clear_line(capsys, monkeypatch, vector_set):
    facts = cpu_facts.facts_in("flags: sse\n")
    monkeypatch.setattr(cpu_facts, "cpu_facts", lambda: facts)
    options = ["--shape", "1,8,8,8", "--kernel", "3", "--target", f"cpu:{vector_set}"]
    assert f"this CPU has no {vector_set}; kernels can be compiled for it, not run" in error_of(capsys, *options)


def test_no_template_for_any_pass_is_one_clear_line(capsys, fakes):
    assert "no wgrad template for cpu yet" in error_of(capsys, *SHAPE, "--passes", "wgrad")


def test_bad_input_and_help_are_answered_at_once():
    slow = "import sys; from dwconv.tune import main\ntry: main()\nexcept SystemExit: pass\n"
    slow += "assert not {'torch', 'tvm', 'xgboost'} & set(sys.modules)"
    for options in (
        ["--help"],
        ["--shape", "1,2,3", "--kernel", "3"],
        ["--shape", "1,8,8,8", "--kernel", "3", "--target", "x"],
    ):
        subprocess.run([sys.executable, "-c", slow, *options], check=True, capture_output=True, timeout=300)


# -- layers of a network -----------------------------------------------------------------------------------------


def test_unknown_networks_are_answered_with_close_names(capsys, layers):
    error = error_of(capsys, "--layers", layers, "--network", "net", "--batch", "8")
    assert "network=net is not in" in error and error.rstrip().endswith("it has Net@32")


@pytest.mark.parametrize("text", ["[", "[]", '{"Net": []}', '{"Net": [{"C": 3}]}', '{"Net": [3]}', '{"Net": 3}'])
def test_a_layers_file_of_another_kind_is_one_clear_line(capsys, tmp_path, text):
    path = tmp_path / "layers.json"
    path.write_text(text)
    error_of(capsys, "--layers", path, "--network", "Net", "--batch", "8")


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"dilation": [2, 2]}, "layer Net[0]: Object contains unknown field `dilation`"),
        ({"S": None}, "layer Net[0]: Expected `array`, got `null` - at `$.S`"),
        ({"n": True}, "Expected `int`, got `bool` - at `$.n`"),
        ({"P": [1, 1, 1]}, "P=[1, 1, 1] is not 2 numbers (height, width) or 4 (top, bottom, left, right)"),
        ({"D": [2]}, "D=[2] does not have 2 sizes"),
        ({"dtype": "int7"}, "Invalid enum value 'int7' - at `$.dtype`"),
        ({"passes": ["fprop", "forward"]}, "passes=fprop,forward is not a list of fprop, dgrad, wgrad"),
        ({"passes": []}, "passes= is not a list of fprop, dgrad, wgrad"),
        ({"causal": True}, "causal=true is for 1-D layers"),
        ({"I": [99], "K": [4], "S": [1], "P": [3, 3], "causal": True}, "give P as [before, 0]"),
        ({"I": [99], "K": [4], "S": [1], "P": [3, 0, 0]}, "P=[3, 0, 0] is not 1 numbers (width) or 2 (left, right)"),
        ({}, "a layer names no batch size N; give --batch N"),
    ],
)
def test_a_field_that_is_unknown_or_wrong_is_named(capsys, tmp_path, changed, words):
    path = tmp_path / "layers.json"
    path.write_text(json.dumps({"Net": [{**PLAIN, **changed}]}))
    assert words in error_of(capsys, "--layers", path)


def test_a_missing_field_is_named(capsys, tmp_path):
    path = tmp_path / "layers.json"
    path.write_text(json.dumps({"Net": [{key: value for key, value in PLAIN.items() if key != "P"}]}))
    assert "layer Net[0]: Object missing required field `P`" in error_of(capsys, "--layers", path)


def test_a_layer_may_say_all_of_itself(capsys, fakes, tmp_path):
    whole = {"D": [2, 1], "M": 2, "N": 3, "dtype": "float16", "layout": "nhwc", "bias": True, "P": [2, 1, 0, 3]}
    path = tmp_path / "layers.json"
    path.write_text(json.dumps({"Net": [{**PLAIN, **whole, "passes": ["fprop"]}], "Other": [PLAIN]}))
    options = ["--batch", "5", "--target", "cpu", "--trials", "1", "--passes", "fprop", "--json"]
    assert run("--layers", path, *options) == 0
    assert {result["workload"] for result in json.loads(capsys.readouterr().out)["results"]} == {
        "fprop-n3-c8-9x9-k3x3-s1x1-p2.1x0.3-d2x1-m2-float16-nhwc-bias",
        "fprop-n5-c8-9x9-k3x3-s1x1-p1x1-d1x1-m1-float32-nchw",
    }


def test_what_no_layer_runs_is_one_clear_line(capsys, tmp_path):
    path = tmp_path / "layers.json"
    path.write_text(json.dumps({"Net": [{**PLAIN, "N": 2, "passes": ["fprop"]}]}))
    assert "passes=wgrad: no layer of" in error_of(capsys, "--layers", path, "--passes", "wgrad")


@pytest.mark.parametrize(("given", "padding"), [([3, 0], (3, 0)), ([3], (3, 0)), ([2, 0], (2, 0))])
def test_a_causal_layer_pads_before_alone(tmp_path, given, padding):
    path = tmp_path / "layers.json"
    path.write_text(json.dumps({"Net": [{"C": 4, "I": [64], "K": [4], "S": [1], "P": given, "causal": True}]}))
    (layer,) = read_layers(path, network="Net")
    assert layer.padding == ((0, 0), padding)


def test_layers_of_other_dimensions(capsys, layers):
    layers.write_text(layers.read_text(), encoding="utf-8-sig")  # with the mark of some editors
    (volume,) = read_layers(layers, network="Conv3d")
    workload = volume.workload("fprop", batch=2, dtype="float32", layout="nchw", bias=False)
    assert workload.input_shape == (2, 4, 8, 8, 8) and workload.kernel == (3, 3, 3)
    (layer,) = read_layers(layers, network="Conv1d")
    workload = layer.workload("fprop", batch=2, dtype="float32", layout="nchw", bias=False)
    assert workload.input_shape == (2, 4, 1, 100) and workload.output_shape == (2, 4, 1, 100)


def test_every_layer_is_tuned_once(capsys, fakes, layers):
    options = ["--layers", layers, "--network", "Net@32", "--batch", "2", "--target", "cpu", "--trials", "2", "--json"]
    assert run(*options, "--passes", "fprop,dgrad") == 0
    results = json.loads(capsys.readouterr().out)["results"]
    assert [result["workload"] for result in results] == [
        f"{pass_}-n2-{layer}-d1x1-m1-float32-nchw"
        for layer in ("c8-32x32-k3x5-s2x1-p1x2", "c16-16x16-k3x3-s1x1-p1x1")
        for pass_ in ("fprop", "dgrad")
    ]


def test_several_networks_are_one_list_of_most_to_win_first(capsys, fakes, tmp_path):
    path = tmp_path / "layers.json"
    small = {"C": 8, "I": [9, 9], "K": [3, 3], "S": [1, 1], "P": [1, 1], "n": 1}
    path.write_text(json.dumps({"A": [small], "B": [{**small, "C": 16}, {**small, "n": 4}]}))
    options = ["--layers", path, "--network", "A", "--network", "B", "--batch", "2", "--target", "cpu", "--trials", "2"]
    assert run(*options, "--passes", "fprop", "--json") == 0
    results = json.loads(capsys.readouterr().out)["results"]
    assert [result["workload_fields"]["channels"] for result in results] == [8, 16]  # 8 channels five times


def test_minutes_are_for_all_and_a_second_run_leaves_out_what_is_done(capsys, fakes, layers):
    options = ["--layers", layers, "--network", "Net@32", "--batch", "2", "--target", "cpu", "--passes", "fprop,dgrad"]
    options += ["--trials", "2", "--minutes", "1", "--json"]
    assert run(*options) == 0
    out, err = capsys.readouterr()
    assert len(json.loads(out)["results"]) == 4 and "left" not in err
    assert run(*options) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["results"] == [] and len(fakes) == 4
    assert "4 of 4 passes were searched before, by tuning_logs/fake-cpu-2t.jsonl, and are left out" in err
    assert run(*options[:-1]) == 0, "the table too"


def test_when_the_minutes_are_over_it_says_what_is_left(capsys, fakes, layers):
    options = ["--layers", layers, "--network", "Net@32", "--batch", "2", "--target", "cpu", "--passes", "fprop,dgrad"]
    assert run(*options, "--trials", "2", "--minutes", "0.01", "--json") == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["results"] == []
    assert err.endswith("time is up, 4 passes are left: run the same command to continue\n")


# -- several sizes -----------------------------------------------------------------------------------------------


def workloads_of(*options):
    parser = parser_of_tune()
    return workloads_from(parser, parser.parse_args([*map(str, options)]))


@pytest.mark.parametrize(
    ("shape", "kernel", "sizes", "also_at"),
    [
        ("1,8,9,9", "3", "12,9,14x20", ((12, 12), (14, 20))),
        ("1,8,1,90", "1,31", "50,400", ((1, 50), (1, 400))),
        ("1,8,4,9,9", "3", "8,4x12x10", ((8, 8, 8), (4, 12, 10))),
    ],
    ids=["images", "rows", "volumes"],
)
def test_sizes_make_one_workload_of_any_size(shape, kernel, sizes, also_at):
    counts = workloads_of("--shape", shape, "--kernel", kernel, "--sizes", sizes)
    assert {each.pass_ for each in counts} == {"fprop", "dgrad", "wgrad"}
    assert all(each.any_size and each.also_at == also_at for each in counts)
    assert all(",".join(map(str, each.input_shape)) == shape for each in counts)


def test_layers_of_a_model_at_several_sizes_are_one_each():
    def at(size, channels, count):
        workload = replace(fake.WORKLOAD, channels=channels, input_size=(size, size))
        return {workload: count, workload.for_pass("dgrad"): count}

    counts = at_any_size([at(28, 96, 2) | at(14, 192, 3), at(32, 96, 2) | at(16, 192, 3) | at(8, 96, 1)])
    found = {(each.pass_, each.channels): (each.input_size, each.also_at, count) for each, count in counts.items()}
    assert found == {
        (pass_, channels): facts
        for pass_ in ("fprop", "dgrad")
        for channels, facts in {96: ((28, 28), ((32, 32), (8, 8)), 3), 192: ((14, 14), ((16, 16),), 3)}.items()
    }


def test_a_file_of_layers_lists_sizes(tmp_path, capsys):
    path = tmp_path / "layers.json"
    path.write_text(json.dumps({"Net": [PLAIN | {"sizes": [[12, 14], [9, 9]]}, PLAIN | {"C": 9}]}))
    one, other = read_layers(path, network="Net")
    general = one.workload("dgrad", batch=2, dtype="float32", layout="nhwc", bias=False)
    assert (general.any_size, general.also_at) == (True, ((12, 14),))
    assert not other.workload("dgrad", batch=2, dtype="float32", layout="nhwc", bias=False).any_size
    write_layers(path, {"Net": [one, other]})
    assert read_layers(path, network="Net") == [one, other]
    for wrong, words in (([12], "at `$.sizes[0]`"), ([[12]], "does not have 2 sizes"), ("12", "Expected `array`")):
        path.write_text(json.dumps({"Net": [PLAIN | {"sizes": wrong}]}))
        assert words in error_of(capsys, "--layers", path, "--batch", 2)
    path.write_text(json.dumps({"Net": [PLAIN | {"sizes": [[12, 12]], "block": "none,ln"}]}))
    (block,) = read_layers(path, network="Net")
    assert block.workload("backward", batch=2, dtype="float32", layout="nhwc", bias=False).also_at == ((12, 12),)
