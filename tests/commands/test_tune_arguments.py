"""The command line of ``python -m dwconv.tune``: bad input, and the layers of networks."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from dwconv.__main__ import main
from dwconv.commands.tune_arguments import at_any_size, parser_of_tune, workloads_from
from dwconv.errors import InvalidWorkload
from dwconv.problems import target
from dwconv.problems.layer_files import networks_in, read_layers, shipped_layers, write_layers
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


SMALL, TINY = ("--shape", "1,8,8,8", "--kernel", "3"), ("--model", "tests.models:TinyNet")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--shape", "1,2,3", "--kernel", "3"], "shape=1,2,3 has 3 sizes"),
        (["--shape", "1,8,8,8,8,8", "--kernel", "3"], "has 6 sizes, not 4 (N,C,H,W) or 5 (N,C,D,H,W)"),
        (["--shape", "1,2,x,3", "--kernel", "3"], "shape=1,2,x,3 is not whole numbers"),
        (["--shape", "0,8,8,8", "--kernel", "3"], "batch=0"),
        (["--shape", "1,8,8,8", "--kernel", "3,3,3"], "kernel=(3, 3, 3) is not one integer or 2 (height, width)"),
        (["--shape", "1,8,8,8"], "--shape needs --kernel K"),
        ([], "give --shape N,C,H,W and --kernel K, or --network"),
        (["--shape", "1,8,8,8", "--kern", "3"], "--kern"),
        ([*SMALL, "--stride", "2", "--padding", "same"], "padding=same needs stride 1"),
        ([*SMALL, "--padding", "full"], "padding=full is not whole numbers"),
        ([*SMALL, "--padding=-1"], "padding=-1"),
        ([*SMALL, "--dtype", "int7"], "dtype=int7 is unknown"),
        ([*SMALL, "--target", "rocm"], "target=rocm is not supported"),
        ([*SMALL, "--passes", "fprop,bprop"], "pass=bprop is unknown"),
        ([*SMALL, "--trials", "0"], "--trials: 0 is not a whole number"),
        ([*SMALL, "--seconds", "nan"], "--seconds: nan is not a number above 0"),
        ([*SMALL, "--until", "many%"], "--until: many is not a number above 0"),
        ([*SMALL, "--until", "101%"], "until=1.01 is not a share of the device's limit"),
        ([*SMALL, "--search", "luck"], "invalid choice: 'luck'"),
        ([*SMALL, "--target", "cpu", "--search", "analytic"], "use --target cuda:sm_90"),
        (
            [*SMALL, "--target", "cuda:sm_90", "--search", "exhaustive"],
            "at most 500000; set --trials, or use --search analytic",
        ),
        ([*SMALL, "--target", "cpu", "--fast-math"], "--fast-math is for CUDA"),
        ([*SMALL, "--batch", "8"], "--batch goes with --network"),
        ([*SMALL, "--sizes", "9,x"], "sizes=9,x: x is not a size of 2 axes"),
        ([*SMALL, "--sizes", "9x9x9"], "9x9x9 is not a size of 2 axes; give it as 256"),
        ([*SMALL, "--passes", "backward", "--sizes", "9"], "kernel of both gradients is"),
        ([*SMALL, "--infer"], "--infer goes with --model"),
        ([*SMALL, "--ray", "--search", "analytic"], "leave out --search analytic"),
        ([*SMALL, "--ray", "--target", "cuda:sm_90"], "use auto, cpu, cuda, cpu:avx512"),
        ([*SMALL, "--ray", "--fast-math"], "with --ray it goes with --target cuda"),
        (["--shape", "1,8,8,8", "--layers", "layers.json"], "give --shape or --layers, not both"),
        (["--network", "MobileNetV2@224"], "--network needs --batch"),
        (["--network", "MobileNetV2", "--batch", "8"], "not in dwconv's own list; did you mean MobileNetV2@224, "),
        (["--network", "MobileNetV2@224", "--batch", "8", "--sizes", "9"], "--sizes goes with --shape or --model"),
        (["--layers", "layers.json", "--network", "Net@32", "--batch", "8", "--stride", "2"], "--stride goes with"),
        (["--layers", "absent.json", "--network", "Net@32", "--batch", "8"], "layers=absent.json: No such file"),
        (["--shape", "1,8,8,8", *TINY], "give --shape or --model, not both"),
        ([*TINY], "--model needs --input"),
        ([*TINY, "--input", "2,0"], "input=2,0 has a size below 1"),
        ([*TINY, "--input", "2,3", "--channels-last"], "--channels-last needs 4"),
        ([*TINY, "--input", "2,3,9,9", "--bias"], "--bias goes with --shape; the model has it"),
        ([*TINY, "--input", "2,3,9,9", "--dtype", "int7"], "dtype=int7 is unknown"),
    ],
)
def test_bad_input_is_one_clear_line(capsys, options, words):
    assert words in error_of(capsys, *options)


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


def test_what_is_missing_here_is_one_clear_line(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    assert "run: pip install 'dwconv[ray]'" in error_of(capsys, *SHAPE, "--ray")
    monkeypatch.setattr(target, "_gpu_is_here", lambda: False)
    assert "cuda:sm_90" in error_of(capsys, *SMALL, "--target", "cuda")
    monkeypatch.setattr(cpu_facts, "cpu_facts", lambda: cpu_facts.facts_in("flags: sse\n"))
    for vectors in ("avx512", "avx2", "neon"):
        said = f"this CPU has no {vectors}; kernels can be compiled for it, not run"
        assert said in error_of(capsys, *SMALL, "--target", f"cpu:{vectors}")


def test_no_template_for_any_pass_is_one_clear_line(capsys, fakes):
    assert "no wgrad template for cpu yet" in error_of(capsys, *SHAPE, "--passes", "wgrad")


def test_bad_input_and_help_are_answered_at_once():
    slow = "import sys; from dwconv.tune import main\n"
    slow += "for options in ['--help'], ['--shape', '1,2,3', '--kernel', '3'], sys.argv[1:]:\n"
    slow += "    try: main(options)\n    except SystemExit: pass\n"
    slow += "assert not {'torch', 'tvm', 'xgboost'} & set(sys.modules)"
    command = [sys.executable, "-c", slow, *SMALL, "--target", "x"]
    subprocess.run(command, check=True, capture_output=True, timeout=1200)


# -- layers of a network -----------------------------------------------------------------------------------------


def test_unknown_networks_are_answered_with_those_of_the_file(capsys, layers):
    error = error_of(capsys, "--layers", layers, "--network", "net", "--batch", "8")
    assert "network=net is not in" in error and "did you mean Net@32? --network list" in error
    network = ("--layers", layers, "--network", "Net@32", "--batch", "8")
    assert "passes=backward: no layer of" in error_of(capsys, *network, "--passes", "backward", "--target", "cpu")


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
        ({"P": ...}, "layer Net[0]: Object missing required field `P`"),
        ({}, "a layer names no batch size N; give --batch N"),
    ],
)
def test_a_field_that_is_unknown_or_wrong_is_named(capsys, tmp_path, changed, words):
    path = tmp_path / "layers.json"
    layer = {name: value for name, value in {**PLAIN, **changed}.items() if value is not ...}
    path.write_text(json.dumps({"Net": [layer]}))
    assert words in error_of(capsys, "--layers", path)


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
    capsys.readouterr()
    assert run(*options, "--minutes", "0.01", "--log", layers.with_name("other.jsonl")) == 0
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


def test_sizes_of_a_transposed_layer_are_its_own():
    options = "--shape 1,8,5,5 --kernel 4 --stride 2 --transposed --sizes 7 --passes fprop,wgrad"
    counts = workloads_of(*options.split())
    assert {each.pass_ for each in counts} == {"dgrad", "wgrad"}
    assert {(each.input_size, each.also_at) for each in counts} == {((10, 10), ((14, 14),))}
    with pytest.raises(InvalidWorkload, match="pass=backward: a transposed convolution has fprop, dgrad, wgrad"):
        workloads_of("--shape", "1,8,5,5", "--kernel", "3", "--transposed", "--passes", "backward")


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


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("MobileNetV2", "did you mean MobileNetV2@224, MobileNetV2 blocks@192"),
        ("mobilnetv2@224", "did you mean MobileNetV2@224, "),
        ("efficientnet_b0", "did you mean EfficientNet-B0"),
        ("ResNet", "is not in dwconv's own list; "),
        ("", "is not in dwconv's own list; --network list"),
        ("xyzzy", "is not in dwconv's own list; --network list"),
    ],
)
def test_an_unknown_network_names_the_near_ones(name, near, capsys):
    assert main(["tune", "--network", name, "--batch", "8"]) == 2
    err = capsys.readouterr().err
    assert near in err and "--network list prints the names of all" in err and len(err) < 300


def test_the_names_of_all_networks(capsys, tmp_path):
    with pytest.raises(SystemExit) as ended:
        main(["tune", "--network", "list"])
    assert ended.value.code == 0 and capsys.readouterr().out.splitlines() == networks_in(shipped_layers())
    (tmp_path / "mine.json").write_text('{"Mine": [{"C": 8, "I": [9, 9], "K": [3, 3], "S": [1, 1], "P": [1, 1]}]}')
    with pytest.raises(SystemExit):
        main(["export", "--layers", str(tmp_path / "mine.json"), "--network", "list", "--out", str(tmp_path / "pack")])
    assert capsys.readouterr().out == "Mine\n"
