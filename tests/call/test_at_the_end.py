"""Calls in a process whose main thread has ended: a kernel is checked, or PyTorch's op runs, and none is lost."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from dwconv.system import versions
from tests.planted_records import plant, workload_of

AT_THE_END = """
import threading, time, atexit, warnings
import torch, dwconv

warnings.simplefilter("error", dwconv.errors.DwconvWarning)
w = torch.randn(8, 1, 3, 3)

def convolve():
    for batch in (2, 2):
        x = torch.randn(batch, 8, 9, 7).to(memory_format=torch.channels_last)
        y = dwconv.conv2d(x, w, padding=1)
        assert torch.allclose(y, torch.nn.functional.conv2d(x, w, padding=1, groups=8), atol=1e-4)
    from dwconv.call import process_kernels
    from dwconv.call.call_plan import plans
    (plan,) = plans()
    broken = process_kernels.state.broken
    print(plan.decisions["fprop"].provider, len(broken), dict.get(plan.kernels, "fprop") is not None)

def later():
    threading.main_thread().join()
    convolve()

{begin}
"""


@pytest.mark.parametrize(
    ("begin", "runs"),
    [("threading.Thread(target=later).start()", {True}), ("atexit.register(convolve)", {True, False})],
    ids=["a thread that goes on", "at exit"],
)
def test_a_first_call_after_the_main_thread_has_ended_loses_no_kernel(logs, tmp_path, begin, runs):
    """At exit a thread can be started up to Python 3.11; later ones run PyTorch's op."""
    plant(logs / "log.jsonl", [workload_of()])
    for path in logs.glob("*.jsonl"):  # of another machine: it is to be checked
        path.write_text(path.read_text().replace(versions.installed()["tvm"], "0.0.1"))
    program = AT_THE_END.replace("{begin}", begin)
    settings = {"DWCONV_CACHE": str(tmp_path / "cache"), "DWCONV_UNTUNED": "wait", "DWCONV_NATIVE": "0"}
    environment = {**os.environ, **settings}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() in [["dwconv", "0", str(each)] for each in runs], done.stdout + done.stderr
