"""Facts of the machine: name, vector sets and caches of the CPU, as different machines give them; and its memory."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from dwconv.system import cpu_facts, memory
from dwconv.system.cpu_facts import KiB, MiB, cpus_in, facts_in, inner_cache_bytes, last_level, name_in

Level = tuple[str, str, str]
"""Type, size and ``shared_cpu_list``."""


@pytest.mark.parametrize(
    ("cpuinfo", "name"),
    [
        ("model name\t: AMD EPYC 9B45\ncpu family\t: 26\nmodel\t\t: 17\n", "AMD EPYC 9B45"),
        ("cpu family\t: 26\nmodel\t\t: 2\nmodel name\t: AMD EPYC\n", "AMD EPYC family 26 model 2"),
        (
            "model name\t: Xeon CPU @ 2.20GHz\ncpu family\t: 6\nmodel\t\t: 79\n",
            "Xeon CPU @ 2.20GHz family 6 model 79",
        ),
        ("CPU implementer\t: 0x41\nCPU part\t: 0xd40\n", "implementer 0x41 part 0xd40"),
        ("model name\t:\nmodel\t\t: 5\n", "model 5"),
    ],
)
def test_a_name_that_many_cpus_share_gets_numbers(cpuinfo: str, name: str) -> None:
    assert name_in(cpuinfo) == name
    assert name_in("")


@pytest.mark.parametrize(
    ("cpuinfo", "widest", "vector_bytes", "others"),
    [
        ("flags\t: fpu sse avx avx2 fma avx512f\n", "avx512", 64, ["avx2", "avx"]),
        ("flags\t: fpu sse avx avx2 fma\n", "avx2", 32, ["avx"]),
        ("flags\t: fpu sse avx avx2\n", "avx", 32, []),
        ("Features\t: fp asimd evtstrm\n", "neon", 16, []),
    ],
)
def test_flags_name_the_vector_set(cpuinfo: str, widest: str, vector_bytes: int, others: list[str]) -> None:
    facts = facts_in(cpuinfo)
    assert (facts.vector_set.name, facts.vector_set.bytes) == (widest, vector_bytes)
    assert facts.has(widest) and [name for name in ("avx512", "avx2", "avx", "neon") if facts.has(name)] == [
        widest, *others,
    ]  # fmt: skip


@pytest.mark.parametrize(("machine", "widest"), [("arm64", "neon"), ("riscv64", "riscv64")])
def test_without_cpuinfo_the_architecture_decides(monkeypatch: pytest.MonkeyPatch, machine: str, widest: str) -> None:
    monkeypatch.setattr(cpu_facts.platform, "machine", lambda: machine)
    facts = facts_in("")
    assert (facts.vector_set.name, facts.vector_set.bytes) == (widest, 16)


def machine_of(monkeypatch: pytest.MonkeyPatch, root: Path, *cpus: Sequence[Level], quota: float = math.inf) -> Path:
    """A machine with these CPUs, each with its levels, in ``root``; this process may use all of them."""
    for number, levels in enumerate(cpus):
        for index, (kind, size, shared) in enumerate(levels):
            folder = root / f"cpu{number}" / "cache" / f"index{index}"
            folder.mkdir(parents=True)
            (folder / "level").write_text(f"{max(1, index)}\n")  # two of the first level: data and instructions
            for name, text in (("type", kind), ("size", size), ("shared_cpu_list", shared)):
                (folder / name).write_text(f"{text}\n")
    monkeypatch.setattr(os, "cpu_count", lambda: len(cpus))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(len(cpus))), raising=False)
    monkeypatch.setattr(cpu_facts, "cpu_quota", lambda: quota)
    return root


def desktop(cpu: int, *, cpus: int, last: str) -> list[Level]:
    """A CPU with caches of its own, and a last level that all share."""
    own = str(cpu)
    return [
        ("Data", "48K", own),
        ("Instruction", "64K", own),
        ("Unified", "1M", own),
        ("Unified", last, f"0-{cpus - 1}"),
    ]


@pytest.mark.parametrize(
    ("cpus", "last", "ours", "quota", "threads", "expected"),
    [
        pytest.param(4, "32M", range(4), math.inf, 1, (32, 0), id="no other core shares it"),
        pytest.param(8, "64M", {2, 3}, math.inf, 2, (16, 48), id="a part"),
        pytest.param(8, "64M", range(8), 2.0, 2, (16, 48), id="the quota of a container"),
        pytest.param(2, "491520K", range(2), math.inf, 2, (32, 448), id="of a whole socket in a virtual machine"),
        pytest.param(4, "32M", {0}, math.inf, 4, (32, 0), id="OpenMP has bound the thread"),
        pytest.param(4, "32M", {0}, math.inf, 1, (8, 24), id="one CPU"),
    ],
)
def test_what_is_ours_of_a_last_level(monkeypatch, tmp_path, cpus, last, ours, quota, threads, expected):
    root = machine_of(monkeypatch, tmp_path, *(desktop(cpu, cpus=cpus, last=last) for cpu in range(cpus)), quota=quota)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(ours), raising=False)
    found = last_level(threads=threads, root=root)
    assert (found.ours_bytes / MiB, found.others_bytes / MiB) == expected
    assert inner_cache_bytes(root=root) == (48 * KiB, 1 * MiB)


def test_threads_spread_over_several_last_levels(monkeypatch, tmp_path):
    def chiplet(cpu: int) -> list[Level]:
        first = cpu // 4 * 4
        return [*desktop(cpu, cpus=8, last="")[:3], ("Unified", "16M", f"{first}-{first + 3}")]

    root = machine_of(monkeypatch, tmp_path, *map(chiplet, range(8)))
    assert [last_level(threads=threads, root=root).ours_bytes for threads in (1, 2, 8)] == [
        16 * MiB, 32 * MiB, 32 * MiB,
    ]  # fmt: skip


def test_cores_that_share_an_inner_level_have_equal_parts_and_their_threads_have_it_whole(monkeypatch, tmp_path):
    """Two hardware threads a core, two cores a second level."""
    levels = [
        ("Data", "32K", f"{cpu // 2 * 2}-{cpu // 2 * 2 + 1}") for cpu in range(4)
    ]  # fmt: skip
    cpus = [
        [level, ("Instruction", "32K", level[2]), ("Unified", "2M", "0-3"), ("Unified", "8M", "0-3")]
        for level in levels
    ]
    root = machine_of(monkeypatch, tmp_path, *cpus)
    assert inner_cache_bytes(root=root) == (32 * KiB, 1 * MiB)


@pytest.mark.parametrize("size", ["", "0K", "much", "-3K"])
def test_what_the_system_does_not_say_is_guessed(monkeypatch, tmp_path, size):
    root = machine_of(monkeypatch, tmp_path, [("Unified", size, "0")])
    assert last_level(threads=3, root=root).ours_bytes == 8 * MiB
    assert last_level(threads=3, root=tmp_path / "absent").ours_bytes == 8 * MiB
    assert inner_cache_bytes(root=root) == inner_cache_bytes(root=tmp_path / "absent") == (32 * KiB, 512 * KiB)


def test_without_a_list_of_cpus_all_share_a_cache(monkeypatch, tmp_path):
    root = machine_of(monkeypatch, tmp_path, *(desktop(cpu, cpus=4, last="8M") for cpu in range(4)))
    for cpu in range(4):
        (root / f"cpu{cpu}" / "cache" / "index3" / "shared_cpu_list").write_text("?\n")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    assert last_level(threads=2, root=root).ours_bytes == 4 * MiB


def test_lists_of_cpus_are_read():
    assert cpus_in("0-3,8,10-11\n") == {0, 1, 2, 3, 8, 10, 11}
    with pytest.raises(ValueError, match="invalid literal"):
        cpus_in("?")


def test_this_machine_is_read():
    last = last_level(threads=2)
    assert last.ours_bytes >= 1 and last.others_bytes >= 0
    assert all(size >= 1 << 12 for size in inner_cache_bytes())


# -- memory ------------------------------------------------------------------------------------------------------------


GiB = 1 << 30


@pytest.fixture
def groups(tmp_path, monkeypatch):
    """Lays out control groups: the line of /proc/self/cgroup, and files by their path."""

    def lay_out(line, files):
        (tmp_path / "self").write_text(f"3:cpuset:/\n{line}\n")
        for name, text in files.items():
            path = tmp_path / "mount" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    monkeypatch.setattr(memory, "_MEMBERSHIP", tmp_path / "self")
    monkeypatch.setattr(memory, "_MOUNT", tmp_path / "mount")
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(total=64 * GiB, available=32 * GiB))
    return lay_out


@pytest.mark.parametrize(
    ("line", "files", "expected"),
    [
        (
            "0::/user",
            {"user/memory.max": "max\n", "user/memory.current": "5\n", "user/memory.stat": "file 1\n"},
            (32, 64),
        ),
        (  # the tightest counts; cached files make room
            "0::/outer/inner",
            {
                "outer/memory.max": f"{8 * GiB}",
                "outer/memory.current": f"{6 * GiB}",
                "outer/memory.stat": f"anon 7\ninactive_file {GiB}\n",
                "outer/inner/memory.max": f"{4 * GiB}",
                "outer/inner/memory.current": "0",
                "outer/inner/memory.stat": "",
            },
            (3, 4),
        ),
        (  # a container, which has its group at the root
            "0::/docker/1234",
            {
                "memory.max": f"{2 * GiB}",
                "memory.current": f"{3 * GiB}",
                "memory.stat": f"inactive_file {GiB // 2}\n",
            },
            (0, 2),
        ),
        (  # of version 1, nested; the root has the number that stands for none
            "9:cpu,memory:/outer/inner",
            {
                "memory/memory.limit_in_bytes": f"{2**63 - 4096}",
                "memory/memory.usage_in_bytes": f"{20 * GiB}",
                "memory/memory.stat": "cache 7\n",
                "memory/outer/memory.limit_in_bytes": f"{6 * GiB}",
                "memory/outer/memory.usage_in_bytes": f"{4 * GiB}",
                "memory/outer/memory.stat": f"inactive_file 5\ntotal_inactive_file {GiB}",
                "memory/outer/inner/memory.limit_in_bytes": f"{8 * GiB}",
                "memory/outer/inner/memory.usage_in_bytes": f"{GiB}",
                "memory/outer/inner/memory.stat": "total_inactive_file 0\n",
            },
            (3, 6),
        ),
        (  # a container of version 1
            "9:memory:/docker/1234",
            {
                "memory/memory.limit_in_bytes": f"{2 * GiB}",
                "memory/memory.usage_in_bytes": f"{GiB}",
                "memory/memory.stat": f"total_inactive_file {GiB // 2}\n",
            },
            (1.5, 2),
        ),
        (  # both, of which version 1 has the memory
            "9:memory:/a:b\n0::/user",
            {
                "user/memory.stat": "file 1\n",
                "memory/a:b/memory.limit_in_bytes": f"{4 * GiB}",
                "memory/a:b/memory.usage_in_bytes": f"{GiB}",
                "memory/a:b/memory.stat": "cache 7\n",
            },
            (3, 4),
        ),
        ("9:cpuset:/a", {"memory/memory.limit_in_bytes": "5"}, (32, 64)),
    ],
    ids=["no limit", "nested", "a container", "version 1", "a container, 1", "both", "another controller"],
)
def test_memory_is_the_machines_or_what_control_groups_leave_of_it(groups, line, files, expected):
    groups(line, files)
    assert (memory.available_bytes() / GiB, memory.total_bytes() / GiB) == expected
