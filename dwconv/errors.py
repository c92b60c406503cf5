"""Every error that dwconv raises. A command prints its one line and exits with ``exit_code``."""

from __future__ import annotations

import contextlib
import sys
import warnings
from enum import Enum


class DwconvError(Exception):
    """Base class of all errors: the message is one line that names the object, the value and the way out."""

    exit_code = 2


class InvalidWorkload(DwconvError, ValueError):
    """Shapes, stride, padding, dtype or layout that do not make a depthwise convolution."""


class InvalidCall(InvalidWorkload, RuntimeError):
    """A call with tensors or numbers that make no depthwise convolution; PyTorch's own op raises RuntimeError, too."""


class InvalidArgument(InvalidWorkload, TypeError):
    """An argument of another type than it can have; PyTorch's own op raises TypeError, too."""


class InvalidChoice(DwconvError, ValueError):
    """An argument, such as a target or a limit of a search, with a value that is unknown or makes no sense."""


class InvalidConfig(DwconvError, ValueError):
    """A configuration that is not in the space of its template, or breaks one of its rules."""


class NoDevice(DwconvError):
    """The requested device is not in this machine, or no cluster answers that has one."""


class NoTemplate(DwconvError):
    """No schedule template fits the workload on the target; the message is the reason."""


class InvalidSetting(DwconvError, ValueError):
    """An environment variable with a value that it cannot have."""


class Untuned(DwconvError):
    """A call that was never measured on this device, where ``DWCONV_UNTUNED`` is ``error``."""


class LogError(DwconvError):
    """A tuning log that cannot be read or written."""


class CannotBeCut(DwconvError):
    """A model that cannot be cut into layers that run one after the other, or a graph that cannot be cut into tasks;
    the message names the operator."""


class OutOfTime(DwconvError):
    """The seconds that measuring may take are over."""


class NoPlan(DwconvError, ValueError):
    """Devices, microbatches or memory that no plan of a pipeline fits; or a plan that cannot be run."""


class RemoteError(DwconvError):
    """What is at a URL cannot be reached, read or written, or not in time; the message is the reason."""


class PackError(DwconvError):
    """A kernel pack that cannot be made, or that must not be loaded here."""


class BrokenInstallation(DwconvError):
    """A package that dwconv needs is missing, or is a version known to be broken."""


class NotKept(DwconvError):
    """A file that cannot be kept in the cache; the message names the folder, the reason and the way out."""


class BuildError(DwconvError):
    """A candidate that could not be scheduled, lowered or compiled."""


class Shortage(str, Enum):
    """A resource that a machine can run short of; a shortage is no fault of the candidate that was running."""

    MEMORY = "memory"
    GPU_MEMORY = "memory of the GPU"
    DISK = "disk space"
    FILES = "open files"
    PROCESSES = "processes"
    CORES = "processor time"


class RankLost(DwconvError):
    """Communication between the ranks of a job failed: another rank has ended, or does not answer."""


class NodeLost(DwconvError):
    """A node of a cluster that has ended, does not answer, or cannot measure; the message is the reason."""


class StageFailed(DwconvError, RuntimeError):
    """The code of a model raised in a step of a pipeline; the message names the stage, and the error that is its
    cause."""


class DataFailed(DwconvError):
    """Data that one rank could not load, take or write: a broken image, a class that the model does not have, a
    checkpoint."""


class CannotBeCaptured(DwconvError):
    """A call that a CUDA graph cannot hold; the message is the reason."""


class DeviceLost(DwconvError):
    """A kernel's error that ended the CUDA context of this process; the message is CUDA's own."""


class EnvironmentFailure(DwconvError):
    """The machine stayed short of something; the message names it and the way out."""


class WorkerError(DwconvError):
    """A request to a worker process ended without an answer.

    ``shortage``: what the machine was short of, if that is the likely cause. ``is_nonsense``: the process sent
    something other than an answer, as code that an earlier request left running may do."""

    def __init__(self, message: str, *, shortage: Shortage | None = None, is_nonsense: bool = False) -> None:
        super().__init__(message)
        self.shortage = shortage
        self.is_nonsense = is_nonsense

    @property
    def may_be_the_machine(self) -> bool:
        """True if the request may not be the cause."""
        return self.shortage is not None or self.is_nonsense


class WorkerDied(WorkerError):
    """A worker process ended, or was ended, before it answered."""


class WorkerCannotStart(WorkerDied):
    """A worker process does not get as far as its first request."""


class WorkerTimeout(WorkerDied):
    """A worker process was ended because its answer took too long."""


class RequestFailed(WorkerError):
    """A worker process could not run a request, returned the reason, and goes on."""


UnknownTarget, NoCluster = InvalidChoice, NoDevice
"""Names that these had."""


class DwconvWarning(UserWarning):
    """A layer runs, but not as fast as it could: the message names the layer, the reason and the way out."""


_MOST_OF_A_MESSAGE = 300


def described_error(error: BaseException) -> str:
    """The type and the message of an error in code of the user's, in one line."""
    return one_line(f"{type(error).__name__}: {error}", most=_MOST_OF_A_MESSAGE)


def warn(message: str) -> None:
    """Give a DwconvWarning for the line that called into PyTorch or dwconv."""
    level, frame = 2, sys._getframe(1)
    passed = ("dwconv", "torch", "contextlib")
    while frame.f_back and str(frame.f_globals.get("__name__")).partition(".")[0] in passed:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, DwconvWarning, stacklevel=level)


def say(line: str) -> None:
    """Print a line on stderr; nowhere if that is closed or takes no more. ``print`` would write to stdout if there is
    no stderr, and results are there."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            print(line, file=sys.stderr, flush=True)


def one_line(text: str, *, most: int | None = None) -> str:
    """``text`` as one line that is safe to print on a terminal: runs of white space become one blank, unprintable
    characters ``?``; cut off after ``most`` characters."""
    line = " ".join(text[:most].split())
    return line if line.isprintable() else "".join(char if char.isprintable() else "?" for char in line)
