"""Workloads as options of the command lines."""

import pytest

from dwconv.__main__ import main
from dwconv.commands import command_line, workload_arguments
from dwconv.errors import InvalidWorkload
from dwconv.problems.as_written import workload_options
from dwconv.problems.workload import Workload


@pytest.mark.parametrize(
    "options",
    [
        "--shape 8,144,56,56 --kernel 3",
        "--shape 8,64,1,1000 --kernel 1,31",
        "--shape 2,8,9,10 --kernel 3,5 --stride 2,1 --dilation 2 --padding valid",
        "--shape 2,8,9,10 --kernel 4 --padding same",
        "--shape 2,8,9,10 --kernel 4 --padding 0,3,1,2 --multiplier 2 --dtype float16 --layout nhwc",
        "--shape 2,8,9,10 --kernel 3 --bias",
        "--shape 2,8,9,10 --kernel 5 --padding 1,2",
        "--shape 8,54,13,40,40 --kernel 3 --stride 1,2,2",
        "--shape 8,24,13,80,80 --kernel 5,1,1 --padding 2,0,0 --bias --layout nhwc",
        "--shape 2,4,5,9,10 --kernel 2,3,4 --padding 1,0,1,1,0,2 --dilation 1,2,1 --multiplier 2",
    ],
)
def test_workloads_read_from_the_options_that_name_them(options):
    workload = _workload(options)
    assert _workload(workload_options(workload)) == workload


def test_default_padding_rounds_down():
    workload = _workload("--shape 2,8,9,10 --kernel 4,5 --dilation 1,2")
    assert workload.padding == ((1, 1), (4, 4))
    assert _workload("--shape 2,8,7,9,10 --kernel 3,4,5 --dilation 1,1,2").padding == ((1, 1), (1, 1), (4, 4))


def _workload(options: str | list[str], pass_: str | None = "fprop") -> Workload:
    parser = command_line.ArgumentParser(prog="test", description="")
    workload_arguments.add_workload_arguments(parser)
    given = parser.parse_args(options.split() if isinstance(options, str) else options)
    return workload_arguments.workload_from(given, pass_)


@pytest.mark.parametrize(
    ("options", "of"),
    [
        ("8,144,28,28 --kernel 3 --stride 2 --output-padding 1", "8,144,56,56 --kernel 3 --stride 2"),
        ("2,4,5,6 --kernel 4 --stride 2,1 --multiplier 3", "2,12,10,7 --kernel 4 --stride 2,1"),
        ("2,4,3,5,6 --kernel 3 --dilation 2 --padding 0", "2,4,7,9,10 --kernel 3 --dilation 2 --padding 0"),
        ("2,4,1,9 --kernel 1,16 --stride 1,8 --padding 0,4", "2,4,1,72 --kernel 1,16 --stride 1,8 --padding 0,4"),
    ],
    ids=["2-D", "multiplier", "3-D", "1-D"],
)
def test_a_transposed_workload_is_that_of_a_convolution(options, of):
    for pass_, other in (("fprop", "dgrad"), ("dgrad", "fprop"), ("wgrad", "wgrad"), (None, "dgrad")):
        transposed = _workload(f"--shape {options} --transposed --layout nhwc", pass_)
        assert transposed == _workload(f"--shape {of} --layout nhwc", other)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--output-padding 1", "output_padding=1 goes with --transposed"),
        ("--transposed --output-padding 1", "output_padding=1 is not from 0 on and below stride=1×1"),
        ("--transposed --stride 2 --output-padding x", "output_padding=x is not whole numbers"),
        ("--transposed --bias", "bias=True: kernels of transposed layers have none"),
        ("--transposed --block bn+relu,bn+relu", "block=.*: kernels of transposed layers have none"),
        ("--transposed --padding 9", "shape=2,8,5,6 makes an output of"),
    ],
)
def test_a_transposed_workload_that_is_none(options, words):
    with pytest.raises(InvalidWorkload, match=words):
        _workload(f"--shape 2,8,5,6 --kernel 3 {options}")


@pytest.mark.parametrize(
    ("type_", "texts"),
    [
        (int, ["", "1.5", "9" * 5000, "a\nb", "\x1b[31m"]),
        (command_line.whole, ["", "0", "-1", "1.5", "1_0", "١", " 1", "+1", "a\nb", "9" * 23, "9" * 5000]),
        (command_line.whole_from_0, ["", "-1", "1.5", "1_0", "١", "9" * 23]),
        (command_line.above_0, ["", "0", "-1", "nan", "inf", "1_0", "١", " 1", "1e", "9" * 23, "1e999", "a\nb"]),
        (command_line.from_0, ["", "-1", "nan", "inf", "1_0", "soon"]),
        (command_line.named_path, ["", " "]),
        (command_line.path_or_url, ["", " "]),
        (command_line.writable_file, ["", " "]),
        (command_line.writable_folder, [""]),
    ],
)
def test_an_unusual_number_is_one_line(capsys, type_, texts):
    parser = command_line.ArgumentParser(prog="test", description="")
    parser.add_argument_group("group").add_argument("--option", type=type_)
    for text in texts:
        with pytest.raises(SystemExit) as ended:
            parser.parse_args([f"--option={text}"])
        err = capsys.readouterr().err
        assert ended.value.code == 2
        assert err.startswith("error: ") and err.endswith("\n") and err[:-1].isprintable() and len(err) < 2500, text
    if type_ not in _NUMBERS:
        return
    number = _NUMBERS[type_]
    assert parser.parse_args([f"--option={number}"]).option == float(number)


_NUMBERS = {
    int: "-12",
    command_line.whole: "1",
    command_line.whole_from_0: "0",
    command_line.above_0: "1e-3",
    command_line.from_0: "0",
}


@pytest.mark.parametrize(
    "text", ["2,8,9,1_0", "2,8,9,", "2,8,9,١", "2,8,9," + "9" * 23, "2,8,9,1e1", "2,8,9,0x9", "", "nan"]
)
def test_sizes_are_plain_digits(text):
    with pytest.raises(InvalidWorkload, match=r"shape=.* is not whole numbers separated by commas"):
        _workload(["--shape", text, "--kernel", "3"])


def test_sizes_may_have_blanks_between_them():
    assert _workload(["--shape", "2, 8, 9, 10", "--kernel", "3"]) == _workload("--shape 2,8,9,10 --kernel 3")


COMMANDS = {
    "show": ["--shape", "2,8,9,10", "--kernel", "3", "--what", "log", "--log", ""],
    "merge": ["", "--out", "out.jsonl"],
    "export": ["--shape", "2,8,9,10", "--kernel", "3", "--out", ""],
    "portfolio": [""],
    "tune": ["--shape", "2,8,9,10", "--kernel", "3", "--log", ""],
}


@pytest.mark.parametrize(("name", "options"), COMMANDS.items(), ids=COMMANDS)
def test_an_empty_name_is_not_the_current_folder(name, options, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main([name, *options])
    assert ended.value.code == 2 and "'' names no file or folder; give a name" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_no_further_sizes_are_none(capsys):
    assert main(["tune", "--shape", "2,8,9,10", "--kernel", "3", "--sizes", ""]) == 2
    assert "is not a size of 2 axes" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--shape 2,8,9,10 --kernel 2147483648", "w of 8×1×2147483648×2147483648 has more elements"),
        ("--shape 2,8,9,10 --kernel 3 --padding 1000000007", "y of 2×8×2000000021×2000000022 has more elements"),
        ("--shape 1,1,1,9 --kernel 1,1000000007 --padding 0,1000000007", "kernel=1×1000000007 is too large"),
    ],
)
def test_sizes_that_no_kernel_has(options, words):
    with pytest.raises(InvalidWorkload, match=words):
        _workload(options)


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["tunee"], "command=tunee is unknown; did you mean tune?; use one of tune, "),
        (["Show"], "command=Show is unknown; did you mean show?; use one of"),
        (["xyzzy"], "command=xyzzy is unknown; use one of tune, "),
        (["tune", "--shap", "2,8,9,10", "--kernel", "3"], "--shap 2,8,9,10; did you mean --shape? (see"),
        (["show", "--shape=2,8,9,10", "--kernel=3", "--pas=fprop"], "--pas=fprop; did you mean --pass? (see"),
        (["tune", "--shape", "2,8,9,10"], "error: --shape needs --kernel K (see"),
        (["tune", "--kernel", "3"], "error: --kernel needs --shape N,C,H,W (see"),
    ],
)
def test_a_typo_is_answered_with_what_is_near(words, answer, capsys):
    try:
        code = main(words)
    except SystemExit as ended:
        code = ended.code
    assert code == 2 and answer in capsys.readouterr().err
