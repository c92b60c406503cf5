"""How much memory there is, with control groups of both versions laid out in files."""

from types import SimpleNamespace

import psutil
import pytest

from dwconv.system import memory

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


def test_without_a_limit_it_is_the_machine_s(groups):
    groups("0::/user", {"user/memory.max": "max\n", "user/memory.current": "5\n", "user/memory.stat": "file 1\n"})
    assert (memory.available_bytes(), memory.total_bytes()) == (32 * GiB, 64 * GiB)


def test_the_tightest_group_around_the_process_counts(groups):
    groups(
        "0::/outer/inner",
        {
            "outer/memory.max": f"{8 * GiB}",
            "outer/memory.current": f"{6 * GiB}",
            "outer/memory.stat": f"anon 7\ninactive_file {GiB}\n",  # cached files make room
            "outer/inner/memory.max": f"{4 * GiB}",
            "outer/inner/memory.current": "0",
            "outer/inner/memory.stat": "",
        },
    )
    assert (memory.available_bytes(), memory.total_bytes()) == (3 * GiB, 4 * GiB)


def test_a_container_sees_its_group_at_the_root(groups):
    groups(
        "4:cpu,memory:/docker/1234",
        {
            "memory/memory.limit_in_bytes": f"{2 * GiB}",
            "memory/memory.usage_in_bytes": f"{3 * GiB}",
            "memory/memory.stat": f"total_inactive_file {GiB // 2}\n",
        },
    )
    assert (memory.available_bytes(), memory.total_bytes()) == (0, 2 * GiB)
