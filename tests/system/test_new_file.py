"""A file is there with all its content, or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

import dwconv
from dwconv.errors import DwconvError
from dwconv.records.log import TuningLog
from dwconv.system.new_file import UNFINISHED, check_folder, check_replaceable, replace_file


def test_new_content_takes_the_place_of_the_old_at_once(tmp_path: Path) -> None:
    path = tmp_path / "it"
    path.write_bytes(b"before")

    def content() -> Iterator[bytes]:
        yield b"after"
        assert path.read_bytes() == b"before" and len(list(tmp_path.glob(f".it.*{UNFINISHED}"))) == 1
        yield b"wards"

    replace_file(path, content(), durable=False)
    assert path.read_bytes() == b"afterwards" and list(tmp_path.iterdir()) == [path]


def test_what_cannot_be_finished_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "it"
    path.write_bytes(b"before")

    def content() -> Iterator[bytes]:
        yield b"half"
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        replace_file(path, content(), durable=False)
    assert path.read_bytes() == b"before" and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("there", [True, False])
def test_to_check_whether_it_can_be_replaced_changes_nothing(tmp_path: Path, there: bool) -> None:
    path = tmp_path / "it"
    if there:
        path.write_bytes(b"before")
    check_replaceable(path)
    assert [each.read_bytes() for each in tmp_path.iterdir()] == [b"before"] * there


@pytest.mark.parametrize("act", [check_replaceable, partial(replace_file, content=[b"new"], durable=False)])
def test_what_is_no_file_is_not_replaced(tmp_path: Path, act: Callable[[Path], None]) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, why in (
        (tmp_path, "Is a directory"),
        (Path(), "Is a directory"),
        (Path("/"), "Is a directory"),
        (tmp_path / "pipe", "it is not a file"),
        (tmp_path / "absent" / "it", "No such file"),
    ):
        with pytest.raises(OSError, match=why):
            act(path)
    assert [each.name for each in tmp_path.iterdir()] == ["pipe"]


@pytest.mark.parametrize("name", [".", "folder", "absent", "folder/absent/absent"])
def test_to_check_whether_a_folder_takes_files_changes_nothing(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    check_folder(tmp_path / name)
    assert [each.name for each in tmp_path.rglob("*")] == ["folder"]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("file", "file is not a folder"),
        ("file/below", "file is not a folder"),
        ("file/below/it", "file is not a folder"),
        ("link/below", "link is a link that leads nowhere"),
        ("x" * 300, "too long"),
        ("/proc", "."),  # it takes no file, as a folder of another user
    ],
)
def test_the_error_names_a_path_that_can_be_no_folder(tmp_path: Path, name: str, why: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("nowhere")
    with pytest.raises(OSError, match=why):
        check_folder(tmp_path / name)
    assert {each.name for each in tmp_path.iterdir()} == {"file", "link"}


@pytest.mark.parametrize("name", ["a\0b", "\ud800", "x" * 300])
def test_what_no_file_can_be_called_is_one_line(logs, tmp_path, name):
    path = str(tmp_path / name)
    model = nn.Sequential(nn.Conv2d(8, 8, 3, groups=8))
    x = torch.randn(1, 8, 5, 5)
    layers, report = dwconv.layers(model, x), dwconv.report(dwconv.convert(model), x)
    for act in (
        lambda: dwconv.tune(nn.Identity(), None, log=path),
        lambda: TuningLog(path).check_writable(),
        lambda: dwconv.load_pack(path),
        lambda: layers.save(path),
        lambda: report.to_html(path),
    ):
        with pytest.raises(DwconvError, match=r"in its name|too long") as raised:
            act()
        assert "\n" not in str(raised.value)
    assert [each.name for each in tmp_path.iterdir()] == ["logs"]
