"""Every error that dwconv raises. A command prints its one line and exits with ``exit_code``."""

from __future__ import annotations


class DwconvError(Exception):
    """Base of all: the message is one line that names the object, the value and the way out."""

    exit_code = 2


class InvalidWorkload(DwconvError, ValueError):
    """A shape, stride, padding, dtype or layout that is no depthwise convolution."""


class InvalidConfig(DwconvError, ValueError):
    """A configuration that is not in the space of its template, or breaks one of its rules."""


class UnknownTarget(DwconvError, ValueError):
    """A target that is not spelt ``auto``, ``cpu``, ``cuda`` or ``cuda:sm_NN``."""


class NoDevice(DwconvError):
    """The device that was asked for is not in this machine."""


class NoTemplate(DwconvError):
    """No schedule template fits the workload on the target; the message says why not."""


class LogError(DwconvError):
    """A tuning log that cannot be read or written."""


class BrokenInstallation(DwconvError):
    """A package that dwconv needs is missing, or is a version known to be broken."""


class BuildError(DwconvError):
    """A candidate that could not be scheduled, lowered or compiled."""


class WorkerDied(DwconvError):
    """A worker process ended, or was ended, before it answered."""


class WorkerTimeout(WorkerDied):
    """A worker process was ended because its answer took too long."""


class RequestFailed(DwconvError):
    """A worker process could not do what it was asked to, said why, and lives on."""


class DwconvWarning(UserWarning):
    """A layer runs, but not as fast as it could: the message names the layer, the reason and the way out."""
