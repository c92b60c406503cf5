"""A process that is forked at any moment, as data loaders are: its calls end, and are right."""

from __future__ import annotations

import os
import sys

import pytest

from tests import forked
from tests.planted_records import plant, workload_of

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
WORKLOAD = workload_of()
# OpenMP does not survive a fork with more threads than one, in PyTorch's ops as in ours: data loaders take one.
HEAD = """
import os, signal, sys, threading, time, warnings
import torch, dwconv
from dwconv.system import forks
from dwconv.kernels.kernel import Kernel
from dwconv.call import call_plan, process_kernels

torch.set_num_threads(1)
layer = torch.nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False)
x = torch.randn(2, 8, 9, 7).to(memory_format=torch.channels_last)
right = layer(x).detach()
model = dwconv.convert(torch.nn.Sequential(layer))


def step():
    model.zero_grad()
    y = model(x)
    y.sum().backward()
    return y.detach()


def is_right():
    return torch.allclose(step(), right, atol=1e-5)


def forked(act):
    child = os.fork()
    if child == 0:
        signal.alarm(600)
        os._exit(act())
    return child


def status(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def kernels():
    (found,) = call_plan.plans()
    return [found.kernels[pass_] for pass_ in ("fprop", "wgrad")]
"""


def run(program: str) -> None:
    command = [sys.executable, "-c", HEAD + program]
    done = forked.run(command, env={**os.environ, "DWCONV_NATIVE": "0"}, text=True, timeout=1200)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_fork_while_a_thread_builds_waits_for_that(logs, tmp_path, monkeypatch):
    """In the middle of the import of TVM, and of LLVM's work, a child could neither wait for them nor begin anew."""
    plant(logs / "log.jsonl", [WORKLOAD], baseline_us=1e6)
    monkeypatch.setenv("DWCONV_CACHE", str(tmp_path / "cache"))  # the kernels are built, not found
    run("""
assert "tvm" not in sys.modules
forks.MOST_WAIT_S = 600.0  # on a busy machine a build takes long
thread = threading.Thread(target=step)
thread.start()
children = []
while thread.is_alive() and len(children) < 3:
    if process_kernels.lock.locked():
        children.append(forked(lambda: 0 if is_right() and all(kernels()) else 1))
    time.sleep(0.001)
thread.join()
assert children and [status(child) for child in children] == [0] * len(children)
assert is_right() and all(kernels())
""")


def test_where_a_thread_does_not_get_on_the_child_builds_nothing_and_goes_on(logs):
    plant(logs / "log.jsonl", [WORKLOAD], baseline_us=1e6)
    run("""
forks.MOST_WAIT_S = 0.2
inside, go = threading.Event(), threading.Event()
load = Kernel.load

def hang(artifact):
    inside.set()
    go.wait()
    return load(artifact)

def of_the_child():
    Kernel.load = None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fine = is_right() and is_right() and kernels() == [None, None]
        other = x[..., :-1].contiguous(memory_format=torch.channels_last)  # a plan that the parent has not made
        fine = fine and torch.allclose(model(other), layer(other))
    said = [str(each.message) for each in caught]
    reason = "runs? on PyTorch's own op: this process was forked while another thread was building a kernel"
    import re
    return 0 if fine and len(said) == 1 and re.search(reason, said[0]) else print(said) or 1

Kernel.load = hang
thread = threading.Thread(target=step)
thread.start()
assert inside.wait(600)
children = [forked(of_the_child) for _ in range(2)]
assert [status(child) for child in children] == [0, 0]
go.set()
thread.join()
assert is_right() and all(kernels())
assert status(forked(lambda: 0 if is_right() and all(kernels()) else 1)) == 0
""")
