"""Handlers for isolated processes that do what good ones must not."""

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil


class Faulty:
    """Does the deed that each request names."""

    def __init__(self, setup):
        if setup == "refuse":
            raise RuntimeError("no such device")
        if setup == "die":
            sys.stderr.write("cannot map memory\n")
            os._exit(3)
        self.setup = setup

    def __call__(self, deed):
        return getattr(self, deed)()

    def answer(self):
        return {"setup": self.setup, "pid": os.getpid()}

    def print_noise(self):
        os.write(1, b"\x00\xff" * 70_000)  # more than a pipe holds
        os.write(2, b"warning: noise\n")
        print("noise", flush=True)
        return "quiet"

    def fail(self):
        raise ValueError("\n  first line\nsecond line")

    def answer_unsendable(self):
        return threading.Lock()

    def segfault(self):
        os.write(2, b"about to fall\n")
        ctypes.string_at(0)

    def exit(self):
        sys.exit(5)

    def hang(self):
        time.sleep(600)

    def hang_natively(self):
        """With Python's global lock held: no other thread of the process runs again."""
        ctypes.PyDLL(None).sleep(600)

    def die_when_idle(self):
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGKILL)).start()
        return os.getpid()

    def hang_with_children(self):
        for session in (False, True):
            child = subprocess.Popen(["sleep", "600"], start_new_session=session)
            with Path(self.setup).open("a") as file:
                file.write(f"{child.pid}\n")
        time.sleep(600)

    def be_hard_to_interrupt(self):
        return (signal.getsignal(signal.SIGINT) == signal.SIG_IGN, os.getsid(0) == os.getpid())

    def environment(self):
        return {
            "threads": os.environ["OMP_NUM_THREADS"],
            "malloc": os.environ["MALLOC_MMAP_MAX_"],
            "parent": psutil.Process().ppid(),
        }


class Sleeper:
    """Sleeps for as many seconds as asked, and says so; negative: dies."""

    def __init__(self, setup):
        pass

    def __call__(self, seconds):
        if seconds < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(seconds)
        return (seconds, os.getpid())
