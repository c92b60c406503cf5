"""Workloads as options of the command lines."""

import subprocess
import sys
from pathlib import Path

import pytest

from dwconv.commands import command_line
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


def _workload(options: str) -> Workload:
    parser = command_line.ArgumentParser(prog="test", description="")
    command_line.add_workload_arguments(parser)
    return command_line.workload_from(parser.parse_args(options.split()), "fprop")


@pytest.mark.parametrize(
    ("type_", "texts"),
    [
        (int, ["", "\u0668", "\u00b2", "+3", "1_0", "0x10", "1.5", "9" * 19, "9" * 5000, "a\nb", "\x1b[31m", " 3"]),
        (float, ["", "inf", "nan", "1e999", "\u0668", "1_0", "+3", "a\nb", "0x1p3", ".", "9" * 5000]),
        (Path, ["", "a\0b", "\ud800"]),
        (command_line.whole, ["0", "-1", "\u0668", "a\nb"]),
        (command_line.above_0, ["0", "1_0"]),
        (command_line.from_0, ["-1", "+1"]),
    ],
)
def test_an_unusual_number_or_name_is_one_line(capsys, type_, texts):
    parser = command_line.ArgumentParser(prog="test", description="")
    parser.add_argument_group("group").add_argument("--option", type=type_)
    for text in texts:
        with pytest.raises(SystemExit) as ended:
            parser.parse_args([f"--option={text}"])
        err = capsys.readouterr().err
        assert ended.value.code == 2
        assert err.startswith("error: ") and err.endswith("\n") and err[:-1].isprintable() and len(err) < 2500, text


def test_numbers_and_names_as_they_are_written():
    parser = command_line.ArgumentParser(prog="test", description="")
    for name, type_ in (("--whole", int), ("--number", float), ("--path", Path)):
        parser.add_argument(name, type=type_)
    for whole, number in (("3", "1.5"), ("-12", "1e-3"), ("0", "-2."), ("9" * 18, ".5E+2")):
        args = parser.parse_args([f"--whole={whole}", f"--number={number}", "--path=a\udcffb"])
        assert (args.whole, args.number, args.path) == (int(whole), float(number), Path("a\udcffb"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--shape 2,8,9,10 --kernel 2147483648", "w of 8×1×2147483648×2147483648 has more elements"),
        ("--shape 2,8,9,10 --kernel 3 --padding 1000000007", "y of 2×8×2000000021×2000000022 has more elements"),
        ("--shape 1,1,1,9 --kernel 1,1000000007 --padding 0,1000000007", "kernel=1×1000000007 is too large"),
        ("--shape 2,8,9,１０ --kernel 3", "is not whole numbers"),
        ("--shape 2,8,9,1_0 --kernel 3", "is not whole numbers"),
    ],
)
def test_sizes_that_no_kernel_has(options, words):
    with pytest.raises(InvalidWorkload, match=words):
        _workload(options)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has it")
@pytest.mark.parametrize("text", ["few", "much" * 10_000])
def test_a_full_disk_behind_stdout_is_one_line(text):
    command = f"lambda argv: print({text!r}) or 0"
    program = f"import sys; from dwconv.commands.command_line import run; sys.exit(run({command}, []))"
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([sys.executable, "-c", program], stdout=full, stderr=subprocess.PIPE, text=True)
    said = "error: stdout cannot be written: No space left on device; print to another file\n"
    assert (done.returncode, done.stderr) == (2, said)
