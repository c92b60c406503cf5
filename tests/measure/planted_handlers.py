"""Handlers for isolated processes that do what good ones must not."""

import ctypes
import errno
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil

from dwconv.measure.processes import worker

SOCKET = 2
"""Which of a worker's arguments is its end of the socket to the parent."""


def first_time(mark):
    """True once, whatever process calls it: ``mark`` is a file that is made then."""
    try:
        Path(mark).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def wait_for(path):
    while not Path(path).exists():
        time.sleep(0.01)


class Faulty:
    """Does the deed that each request names."""

    def __init__(self, setup):
        if setup == "refuse":
            raise RuntimeError("no such device")
        if setup == "die":
            sys.stderr.write("cannot map memory\n")
            os._exit(3)
        if setup.startswith("killed twice: ") and any(first_time(f"{setup[14:]}/{time}") for time in (1, 2)):
            os.kill(os.getpid(), signal.SIGKILL)
        self.setup = setup

    def __call__(self, deed):
        """``deed``, or ``deed mark``: only the first time."""
        name, _, mark = deed.partition(" ")
        return getattr(self, name)() if not mark or first_time(mark) else self.answer()

    def answer(self):
        return {"setup": self.setup, "pid": os.getpid()}

    def name_vectors(self):
        import torch

        return [torch.backends.cpu.get_cpu_capability(), os.environ["ONEDNN_MAX_CPU_ISA"]]

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

    def take_a_while(self):
        """Until the file that the setup names is there."""
        wait_for(self.setup)
        return "a while"

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

    def no_space(self):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def no_space_for_the_compiler(self):
        os.write(2, b"LLVM ERROR: IO failure on output stream: No space left on device\n")
        os.abort()

    def no_space_in_other_words(self):
        try:
            self.no_space()
        except OSError as error:
            raise ValueError("cannot compile") from error

    def fill_own_folder(self):
        (Path(os.environ["TMPDIR"]) / "large").write_bytes(b"x" * (256 << 10))
        return "filled"

    def no_memory(self):
        raise MemoryError

    def be_killed(self):
        os.kill(os.getpid(), signal.SIGKILL)

    def allocate(self):
        held = []
        while len(held) < 64:  # 4 GiB, should nothing stop it
            held.append(b"x" * (64 << 20))
        return "allocated"

    def allocate_in_a_child(self):
        subprocess.run(
            [sys.executable, "-c", "from tests.measure import planted_handlers as p; p.Faulty('').allocate()"],
            env=dict(os.environ, PYTHONPATH=str(Path(__file__).parents[2])),
            check=True,
        )

    def print_without_end(self):
        while True:
            os.write(1, b"\n noise" * 100_000)

    def send_noise(self):
        os.write(int(sys.argv[SOCKET]), b"noise" * 20)
        return "noisy"

    def say_it_twice(self):
        self.change_next_message(times=2)
        return "twice"

    def say_nothing(self):
        self.change_next_message(times=0)

    def change_next_message(self, *, times):
        usual = worker.send

        def send(*given):
            worker.send = usual
            for _ in range(times):
                usual(*given)

        worker.send = send

    def environment(self):
        return {
            "threads": os.environ["OMP_NUM_THREADS"],
            "malloc": os.environ["MALLOC_MMAP_MAX_"],
            "tunables": os.environ["GLIBC_TUNABLES"],
            "parent": psutil.Process().ppid(),
            "looks for garbage": gc.isenabled() and gc.get_freeze_count() > 0,  # but not among what was imported
        }

    def places_of_results(self):
        """In how many places large tensors lie that are made and freed, one after the other; of each size."""
        import torch

        sizes = (1_000_000, 1_000_004, 3_612_672, 999_983, 2_000_016)
        makers = (torch.empty, torch.zeros(8).new_empty, lambda size: torch.ones(1).expand(size).clone())
        taken = [[make(size).data_ptr() for _ in range(60)] for size in sizes for make in makers]
        return [len(set(places[20:])) for places in taken]


class Sleeper:
    """Sleeps for as many seconds as the request says, or until the file that it names is there, and answers; negative:
    dies."""

    def __init__(self, setup):
        pass

    def __call__(self, until):
        if isinstance(until, str):
            wait_for(until)
        elif until < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        else:
            time.sleep(until)
        return (until, os.getpid())
