"""Builders and kernels that go wrong on purpose, each in the way that its config's ``fault`` names.

The kernels compute with the reference, on the memory that verification lays out for them: so they are right on any
CPU, for NaN and infinities too, and on any number of threads.
"""

import ctypes
import errno
import os
import signal
import sys
import time

import torch

from dwconv.errors import BuildError, DeviceLost
from dwconv.kernels.artifact import Argument, Artifact, Extent
from dwconv.problems.reference import reference
from dwconv.problems.target import CpuTarget
from dwconv.problems.workload import Workload
from dwconv.schedules.space import Config
from dwconv.schedules.template import Candidate
from tests.measure.planted_handlers import SOCKET, Faulty, first_time

TARGET = CpuTarget(device="test-cpu", threads=1, vector_bytes=32)
UNWRITTEN = 0x7FC0DEAD  # what an output element holds that was not written


def workload(pass_="fprop", **changes):
    problem = {"batch": 2, "channels": 6, "input_size": (9, 7), "kernel": (3, 3), "padding": ((1, 1), (1, 1))}
    return Workload(pass_=pass_, **{**problem, "layout": "nhwc", **changes})


def candidate(fault="none", *, of=None, **knobs):
    of = of or workload()
    return Candidate(of, Config.of(f"cpu.{of.pass_}_nhwc", fault=fault, **knobs))


def build(wanted, target):
    fault = wanted.config.fault
    if fault == "no space" or (fault == "no space once" and first_time(wanted.config.mark)):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    if fault == "another's artifact":
        return artifact(candidate("none", order=1))
    if fault == "no schedule":
        raise BuildError("cpu.fprop_nhwc: tiles do not fit")
    if fault == "compiler hangs":
        time.sleep(600)
    if fault == "compiler dies":
        os.write(2, b"LLVM ERROR: out of registers\n")
        os.abort()
    return artifact(wanted)


def artifact(wanted):
    of = wanted.workload
    shapes = {
        "x": (Extent(), *of.input_size, of.channels),
        "y": (Extent(), *of.output_size, of.out_channels),
        "w": of.weight_shape,
        "bias": (of.out_channels,),
    }
    shapes |= {f"d{name}": shape for name, shape in shapes.items()}
    arguments = [Argument(name, of.dtype, shapes[name]) for name in (*of.inputs, *of.results)]
    arguments.append(Argument("workspace", "float32", (Extent(), 64)))
    if wanted.config.fault == "allocates too much":
        arguments.append(Argument("workspace_1", "float32", (1 << 20, 1 << 20)))
    return Artifact(candidate=wanted, kind="cpu", source="", arguments=tuple(arguments), resources={"spill_bytes": 8})


def load(built):
    if built.candidate.config.fault == "does not load":
        raise BuildError("LLVM cannot load it\nsecond line")
    return PlantedKernel(built)


class PlantedKernel:
    process_is_poisoned = False

    def __init__(self, built):
        self.artifact = built
        self.fault = built.candidate.config.fault
        self.runs = 0  # calls by users among them
        self.calls = 0
        self.first_batch = None
        self.same_calls = 0  # in a row, with the same tensors: as in rounds that are timed
        self.last_address = 0
        self.threads = torch.get_num_threads()

    def __call__(self, *inputs):
        self.runs += 1
        self.calls += 1
        batch = inputs[0].shape[0]
        self.first_batch = self.first_batch or batch
        self.same_calls = self.same_calls + 1 if inputs[0].data_ptr() == self.last_address else 0
        self.last_address = inputs[0].data_ptr()
        if self.fault == "slow":
            time.sleep(0.005)
        if self.fault == "dies when timed" and self.runs > 3:
            os.abort()
        if self.fault == "changes a user's input":
            inputs[0][0, 0, 0, 0] += 1
        result = self.compute(*inputs)
        strides = inputs[0].stride()
        is_wrong = {
            "wrong for users": True,
            "wrong for tensors with gaps": 0 not in strides and min(strides) > 1,
            "wrong for users off a cache line": inputs[0].data_ptr() % 64 != 0,
            "wrong for users at another batch": batch != self.first_batch,
            "wrong for users on one more thread": torch.get_num_threads() > self.threads,
            "wrong from the 3rd call on": self.calls >= 3,
            "wrong every 10th run": self.runs % 10 == 0,
        }
        if is_wrong.get(self.fault) or self.process_is_poisoned:
            (result[0] if isinstance(result, tuple) else result)[0, 0, 0, 0] += 1
        return result

    def run_into(self, inputs, results, workspaces):
        self.runs += 1
        stale = float(workspaces[0].view(-1)[0])
        workspaces[0].fill_(1.0)
        if self.fault == "raises":
            raise RuntimeError("device lost\nsecond line")
        if self.fault == "loses the device":
            raise DeviceLost("CUDA error: an illegal memory access was encountered")
        if self.fault == "is killed once" and first_time(self.artifact.candidate.config.mark):
            os.kill(os.getpid(), signal.SIGKILL)
        if self.fault == "finds no memory once" and first_time(self.artifact.candidate.config.mark):
            raise MemoryError("it needs 0.1 GiB for its tensors, 0.0 GiB are free")
        if self.fault == "allocates without end":
            Faulty("").allocate()
        if self.fault == "writes to the socket":
            os.write(int(sys.argv[SOCKET]), b"noise" * 20)
        if self.fault == "answers twice":
            Faulty("").say_it_twice()
        if self.fault == "segfaults" or self.fault == f"segfaults at batch {inputs[0].shape[0]}":
            ctypes.string_at(0)
        if self.fault == "hangs":
            ctypes.PyDLL(None).sleep(600)
        computed = self.compute(*map(self.outwards, inputs))
        for out, result in zip(results, computed if isinstance(computed, tuple) else (computed,), strict=True):
            out.copy_(self.inwards(result, out.shape))
        self.spoil(inputs, results[-1], workspaces, stale)

    def spoil(self, inputs, out, workspaces, stale):
        values, batch = out.view(-1), inputs[0].shape[0]
        bits = values.view(torch.int16 if values.itemsize == 2 else torch.int32)
        if "flushes denormals from then on" in self.fault:
            torch.set_flush_denormal(True)
        if self.fault == "makes all wrong from then on":
            PlantedKernel.process_is_poisoned = True
        values[5] += self.process_is_poisoned
        match self.fault:
            case "wrong value" | "wrong, and flushes denormals from then on":
                values[5] += 1
            case fault if fault == f"wrong at batch {batch}":
                values[5] += 1
            case "wrong every 10th run" if self.runs % 10 == 0:
                values[5] += 1
            case "wrong when timed for long" if self.same_calls >= 5:
                values[5] += 1
            case "wrong off a cache line" if inputs[0].data_ptr() % 64 or out.data_ptr() % 64:
                values[5] += 1
            case "wrong on one thread" if torch.get_num_threads() == 1:
                values[5] += 1
            case "wrong on one more thread" if torch.get_num_threads() > self.threads:
                values[5] += 1
            case "spreads NaN":
                values[1:][values[:-1].isnan()] = torch.nan
            case "loses small values":
                values[values.abs() < 1e-6] = 0.0
            case "gives NaN":
                values[5] = torch.nan
            case "leaves a hole":
                bits[5] = UNWRITTEN
            case "leaves the last image":
                bits[-out[-1].numel() :] = UNWRITTEN
            case "reads stale scratch":
                values[0] += 0.0 * stale
            case "writes before":
                ctypes.memset(values.data_ptr() - 4, 0, 4)
            case "writes after in a later run" if self.runs == 2:
                ctypes.memset(values.data_ptr() + 4 * values.numel(), 0, 4)
            case "writes after":
                ctypes.memset(values.data_ptr() + 4 * values.numel(), 0, 4)
            case "writes past a workspace":
                ctypes.memset(workspaces[0].data_ptr() + 4 * workspaces[0].numel(), 0, 4)
            case "writes before an input":
                ctypes.memset(inputs[0].data_ptr() - 4, 0, 4)
            case "changes an input":
                inputs[1].view(-1)[3] = 0
            case "sums in any order":  # right within rounding, and never the same twice
                values[0] *= 1 + self.runs * 2**-23

    def compute(self, *inputs):
        of = self.artifact.candidate.workload.with_batch(inputs[0].shape[0])
        results = tuple(result.to(inputs[0].dtype) for result in reference(of, *inputs))
        return results if len(results) > 1 else results[0]

    def outwards(self, tensor):
        if tensor.dim() == 4:
            return tensor.permute(0, 3, 1, 2)
        return tensor.unsqueeze(1) if tensor.dim() == 3 else tensor

    def inwards(self, tensor, shape):
        return tensor.permute(0, 2, 3, 1) if len(shape) == 4 else tensor.view(shape)
