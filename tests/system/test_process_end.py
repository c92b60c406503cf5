"""A process ends in time, whatever hangs."""

from __future__ import annotations

import sys

import pytest

from tests import forked

AT_EXIT = "import atexit, time; atexit.register(time.sleep, 3600)"
WITH_THE_LOCK = "import ctypes; ctypes.PyDLL(None).pause()"
of_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has such timers")


@pytest.mark.parametrize(
    ("before", "hangs"),
    [
        pytest.param("", AT_EXIT, marks=of_linux),
        pytest.param("", WITH_THE_LOCK, marks=of_linux),
        ("process_end._end_by_timer = lambda *_: False", AT_EXIT),  # then a thread does it
    ],
)
def test_a_process_that_hangs_ends_with_the_code(before, hangs):
    script = f"from dwconv.system import process_end; {before or None}; process_end.end_within(0.05, 7); {hangs}"
    ended = forked.run([sys.executable, "-c", script], timeout=600)
    assert (ended.returncode, ended.stderr) == (7, b"")


def test_a_process_that_ends_before_has_its_own_code():
    script = "import sys; from dwconv.system.process_end import end_within; end_within(3600, 7); sys.exit(3)"
    assert forked.run([sys.executable, "-c", script], timeout=600).returncode == 3
