"""A board's target: what it says, and what is refused."""

from __future__ import annotations

import pytest

from dwconv.errors import NoDevice, UnknownTarget
from dwconv.kernels.cpu import llvm_target
from dwconv.measure.boards.session import parse_address, target_on
from dwconv.problems.target import check_present, cpu_of_device, parse_target


@pytest.mark.parametrize(
    ("text", "device", "lanes"),
    [
        ("cpu:aarch64", "aarch64-neon-1t", 4),
        ("cpu:neon,threads=4", "neon-neon-4t", 4),
        ("cpu:aarch64,mcpu=cortex-a76,threads=4", "cortex-a76-neon-4t", 4),
        ("cpu:aarch64,name=pi5,mcpu=cortex-a76,threads=4", "pi5-neon-4t", 4),
        ("cpu:avx2,name=atom", "atom-avx2-1t", 8),
    ],
)
def test_a_target_names_a_board(text, device, lanes):
    target = parse_target(text)
    assert (target.device, target.lanes(), target.present) == (device, lanes, False)
    assert parse_target(str(target)).device.rpartition("-")[2] == device.rpartition("-")[2]
    if "name=" in text:
        assert parse_target(str(target)) == target
    assert cpu_of_device(device).threads == target.threads
    with pytest.raises(NoDevice, match=r"a board is not in this machine; .* tuned with --rpc"):
        check_present(target)


def test_kernels_are_for_the_cpu_that_is_named():
    named = llvm_target(parse_target("cpu:aarch64,mcpu=cortex-a76,threads=4"))
    assert (named.attrs["mcpu"], named.attrs["mtriple"]) == ("cortex-a76", "aarch64-unknown-linux-gnu")
    assert llvm_target(parse_target("cpu:neon,threads=4")).attrs["mcpu"] == "generic"


@pytest.mark.parametrize(
    "text",
    [
        "cpu:riscv,threads=4", "cpu:aarch64,", "cpu:aarch64,threads=0", "cpu:aarch64,threads=four",
        "cpu:aarch64,cores=4", "cpu:aarch64,threads=2,threads=4", "cpu:aarch64,name=", "cpu:aarch64,name=Pi 5",
        "cpu:aarch64,mcpu=\x1b[2J",
    ],
)  # fmt: skip
def test_what_is_no_board_is_one_line(text):
    with pytest.raises(UnknownTarget, match="is no board; use cpu:aarch64,mcpu=") as raised:
        parse_target(text)
    assert str(raised.value).isprintable()


def test_the_key_names_a_board_that_has_no_name():
    board = parse_address("10.0.0.2:9190", key="Pi_5")
    assert target_on(board, parse_target("cpu:aarch64,threads=4")).device == "pi_5-neon-4t"
    assert str(target_on(board, parse_target("cpu:aarch64,threads=4"))) == "cpu:neon,threads=4,name=pi_5"
    assert target_on(board, parse_target("cpu:aarch64,threads=4,name=mine")).device == "mine-neon-4t"
    assert str(parse_address("[::1]:9190", key="k")) == "k at ::1:9190"
    with pytest.raises(UnknownTarget, match="with --rpc use a board's"):
        target_on(board, parse_target("cuda:sm_90"))


@pytest.mark.parametrize(
    ("address", "key"),
    [
        ("10.0.0.2", "k"),
        ("10.0.0.2:", "k"),
        (":9190", "k"),
        ("host:99999", "k"),
        ("host:-1", "k"),
        ("host:1", "a b"),
        ("h o:1", "k"),
    ],
)
def test_what_is_no_address_is_one_line(address, key):
    with pytest.raises(UnknownTarget, match=r"rpc=|key="):
        parse_address(address, key=key)
