"""Every environment variable and default of dwconv, in one place."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal, TypeVar, get_args

import platformdirs

from dwconv.errors import InvalidSetting, one_line

# Defaults of the tuner: enough trials to get near the best configuration of a layer in about a minute.
TRIALS = 64
PATIENCE = 48
SECONDS = 20.0
SEED = 0

# A race in ``dwconv.convert`` begins no further workload after this time, the start of its processes included.
RACE_SECONDS = 60.0

# Time limits of one candidate. LLVM and TVM need 0.1 to 2 s; a longer build is not worth waiting for.
BUILD_TIMEOUT_S = 20.0
RUN_TIMEOUT_S = 10.0
WORKER_START_TIMEOUT_S = 120.0

# A candidate that failed because the machine was short of memory, disk space or the like is tried again after these.
RETRY_PAUSES_S = (1.0, 5.0)

# A copy of the shared records is as new as this when a process first needs records, or, if they could not be read, when
# that was tried. A server has this long at most to answer a read; writing may take longer, and is done this often while
# tuning.
SHARED_AGE_S = 900.0
SHARED_RETRY_S = 300.0
SHARED_READ_TIMEOUT_S = 5.0
SHARED_WRITE_TIMEOUT_S = 20.0
SHARED_EVERY_S = 120.0
# What a URL names, a pack or logs to merge, has to arrive within this time.
FETCH_TIMEOUT_S = 300.0

# glibc gives big buffers back to the system after every call; the page faults that follow cost more than
# a depthwise convolution. And a freed result seldom makes room for the next one, which is aligned: what is left beside
# it is kept apart for small objects, so that results go to two or more places in turn, and together do not fit into a
# cache that holds one; to how many is chance. Both sides of every comparison run under these settings.
ALLOCATOR_ENVIRONMENT = {
    "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0",
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": "8589934592",
    "MALLOC_TOP_PAD_": "268435456",
}

# PyTorch's profiler writes a line to stderr at every start and stop, unless its log level is above all of its own.
PROFILER_ENVIRONMENT = {"KINETO_LOG_LEVEL": "6"}


# Ray reports its use to its makers, unless this is set before it starts.
RAY_ENVIRONMENT = {"RAY_USAGE_STATS_ENABLED": "0"}


@contextmanager
def quiet_profiler() -> Iterator[None]:
    """PyTorch's profiler reads its log level when it first runs: here it is one that writes nothing, unless the user
    has set one."""
    added = {name: value for name, value in PROFILER_ENVIRONMENT.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


@contextmanager
def quiet_logger(name: str) -> Iterator[None]:
    """Inside, this logger of PyTorch's prints only critical messages: dwconv reports what matters of the others."""
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


# What limits PyTorch and the libraries below it to these vectors, if set before they are loaded.
_PYTORCH_VECTOR_SETS = {
    "avx512": {
        "ATEN_CPU_CAPABILITY": "avx512",
        "ONEDNN_MAX_CPU_ISA": "AVX512_CORE",
        "MKL_ENABLE_INSTRUCTIONS": "AVX512",
    },
    "avx2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"},
}


def worker_environment(*, threads: int, vector_set: str | None = None, gpu: int = 0) -> dict[str, str]:
    """The environment of a worker process: this one's, with honest allocation and a fixed number of threads. With
    ``vector_set`` PyTorch uses no wider vectors, as its kernels beside ours should not. Its first GPU is this process's
    number ``gpu``."""
    seen = [each for each in os.environ.get("CUDA_VISIBLE_DEVICES", "").replace(" ", "").split(",") if each]
    return {
        **os.environ,
        **({"CUDA_VISIBLE_DEVICES": seen[gpu] if gpu < len(seen) else str(gpu)} if gpu else {}),
        **ALLOCATOR_ENVIRONMENT,
        **_PYTORCH_VECTOR_SETS.get(vector_set or "", {}),
        "OMP_NUM_THREADS": str(threads),
        "TVM_NUM_THREADS": str(threads),
    }


def quiet_ray() -> None:
    """Keep a Ray that this process starts from reporting its use, unless the user has set that."""
    for name, value in RAY_ENVIRONMENT.items():
        os.environ.setdefault(name, value)


def forget_threads_of_ray() -> None:
    """In a worker of Ray, which sets ``OMP_NUM_THREADS`` to the CPUs that it was given: PyTorch is to use as many
    threads as it does without Ray, since a device's name counts them. What the user has set stays."""
    started_with = Path("/proc/self/environ")
    with suppress(OSError):
        if any(each.startswith(b"OMP_NUM_THREADS=") for each in started_with.read_bytes().split(b"\0")):
            return
    os.environ.pop("OMP_NUM_THREADS", None)


def tuning_log_paths() -> list[Path]:
    """Files and folders to read tuning records from, in order of precedence: ``DWCONV_TUNING_LOGS`` (path-separated) if
    set, else the user's own folder, ``./tuning_logs`` and the one that ships with the package."""
    listed = os.environ.get("DWCONV_TUNING_LOGS")
    if listed is not None:
        return [Path(entry) for entry in listed.split(os.pathsep) if entry]
    return [own_log_folder(), Path("tuning_logs"), shipped_log_folder()]


def shared_records() -> str | None:
    """Where a team keeps the records of all of its machines: ``DWCONV_SHARED_RECORDS``, a URL of fsspec or a folder;
    None if it is not set."""
    return os.environ.get("DWCONV_SHARED_RECORDS") or None


def lock_path() -> Path | None:
    """``DWCONV_LOCK``: the file of ``dwconv.lock`` that fixes what runs; None if it is not set."""
    value = os.environ.get("DWCONV_LOCK")
    return Path(value).absolute() if value else None


def written_log_path() -> Path:
    """The file or folder that ``tune`` writes to without ``--log``: the first one that is read, so that new records are
    found."""
    return next(iter(tuning_log_paths()), own_log_folder())


def own_log_folder() -> Path:
    """The folder of the user's own logs, whatever the working directory and however dwconv is installed."""
    return _own_folder(platformdirs.user_data_dir) / "tuning_logs"


def concurrency_log_folder() -> Path:
    """The folder of the user's own logs of schedules: ``DWCONV_CONCURRENCY_LOGS`` if set, else beside those of
    tuning."""
    named = os.environ.get("DWCONV_CONCURRENCY_LOGS")
    return Path(named) if named else _own_folder(platformdirs.user_data_dir) / "concurrency_logs"


def shipped_log_folder() -> Path:
    """The folder of the records that ship with the package."""
    import dwconv.tuning_logs

    return Path(dwconv.tuning_logs.__path__[0])


def cache_folder() -> Path:
    """The folder for measured device limits and compiled code: the user's cache, or a folder of this user's own inside
    ``DWCONV_CACHE``, which several users may share."""
    named = os.environ.get("DWCONV_CACHE")
    return Path(named, _user_name()) if named else _own_folder(platformdirs.user_cache_dir)


def cache_key_path() -> Path:
    """The file with the key that signs this user's files in the cache. Not in ``DWCONV_CACHE``, which others may
    see."""
    return _own_folder(platformdirs.user_state_dir) / "cache-key"


def _own_folder(of_kind: Callable[[str], str]) -> Path:
    """The user's own folder of a kind. Without a home it is one that cannot exist: nothing is kept there, and code that
    would keep something reports it."""
    try:
        folder = of_kind("dwconv")
    except RuntimeError:  # no HOME, and a user unknown to the system
        folder = "~"
    return Path(os.devnull, "no-home", "dwconv") if folder.startswith("~") else Path(folder)


def _user_name() -> str:
    return f"user-{os.geteuid()}" if hasattr(os, "geteuid") else "user"


Untuned = Literal["predict", "wait", "pytorch", "error"]
Nan = Literal["spread", "exact"]
Choice = TypeVar("Choice", bound=str)
_MOST_SHOWN = 100
"""Characters of a bad value to quote."""


def untuned() -> Untuned:
    """``DWCONV_UNTUNED``: what happens to calls never measured on this device. ``predict``, the default: dwconv's
    kernel runs where it is sure to be faster, once it was built in the background. ``wait``: the first call builds it.
    ``pytorch``: PyTorch's op runs. ``error``: they fail. Raises InvalidSetting for another value."""
    return _one_of("DWCONV_UNTUNED", get_args(Untuned))


def predicts() -> bool:
    """True if predicted kernels may run. Raises InvalidSetting."""
    return untuned() in ("predict", "wait")


def nan() -> Nan:
    """``DWCONV_NAN``: which kernels may run. ``spread``, the default: any that were measured to be fastest, among them
    those on tensor cores, which make NaN of results beside those that a NaN or an infinity contributes to. ``exact``:
    only those that do not. Raises InvalidSetting for another value."""
    return _one_of("DWCONV_NAN", get_args(Nan))


def _one_of(name: str, choices: tuple[Choice, ...]) -> Choice:
    """The first is the default."""
    value = os.environ.get(name) or choices[0]
    for choice in choices:
        if value == choice:
            return choice
    raise InvalidSetting(f"{name}={one_line(value, most=_MOST_SHOWN)} is unknown; use one of {', '.join(choices)}")


def cpu_vector_set() -> str | None:
    """The vector set that kernels for this CPU are compiled for: ``DWCONV_CPU``, such as ``avx2``; None for the widest
    that it has."""
    return os.environ.get("DWCONV_CPU") or None


def cpp_compiler() -> str | None:
    """The C++ compiler with which calls bypass Python: ``CXX`` if set, else ``c++``; None if ``DWCONV_NATIVE`` is 0."""
    return None if os.environ.get("DWCONV_NATIVE") == "0" else linker()


def openmp_binds_threads() -> bool:
    """True if the user has OpenMP place its threads: by ``OMP_PROC_BIND``, or as one runtime calls it."""
    binds = (os.environ.get("OMP_PROC_BIND") or "false").strip().lower() != "false"
    return binds or any(os.environ.get(name) for name in ("GOMP_CPU_AFFINITY", "KMP_AFFINITY"))


def linker() -> str:
    """The compiler that links the kernels of a pack, whatever ``DWCONV_NATIVE`` is: ``CXX`` if set, else ``c++``."""
    return os.environ.get("CXX") or "c++"


def program(name: str) -> str | None:
    """The path of a program that is run here, such as a compiler; None if there is none. A folder of ``PATH`` that is
    named relative to the working directory, as by an empty entry, does not count: other users may write there."""
    if os.sep in name:  # the user's own words
        return shutil.which(str(Path(name).absolute()))
    return shutil.which(name, path=os.pathsep.join(each for each in os.get_exec_path() if Path(each).is_absolute()))


def rank_is_given() -> bool:
    """True in a process that ``torchrun`` started, or that has its place in a job in the same way: by ``RANK``."""
    return bool(os.environ.get("RANK"))


def local_rank() -> int:
    """The place of this process among those of its job on this machine: ``LOCAL_RANK``, which ``torchrun`` sets; or 0.
    Raises InvalidSetting."""
    value = os.environ.get("LOCAL_RANK") or "0"
    if not (value.isascii() and value.isdigit()):
        raise InvalidSetting(f"LOCAL_RANK={one_line(value, most=_MOST_SHOWN)} is not a number; torchrun sets it")
    return int(value)


def restarts() -> int:
    """How often torchrun has restarted the ranks of the job."""
    try:
        return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    except ValueError:
        return 0


def is_first_rank() -> bool:
    """True in the one process of a job that prints: ``RANK`` is 0, or not set."""
    return (os.environ.get("RANK") or "0") == "0"
