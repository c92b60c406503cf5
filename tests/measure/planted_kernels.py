"""Builders and kernels that go wrong on purpose, each in the way that its config's ``fault`` names.

The kernels compute with PyTorch, on the memory that verification lays out for them.
"""

import ctypes
import os
import time

import torch

from dwconv.build.artifact import Argument, Artifact, Extent
from dwconv.errors import BuildError
from dwconv.measure.providers import laid_out, pytorch_call
from dwconv.schedules.space import Config
from dwconv.schedules.template import Candidate
from dwconv.workload import Workload

UNWRITTEN = 0x7FC0DEAD  # what an output element holds that was not written


def workload(pass_="fprop", **changes):
    problem = {"batch": 2, "channels": 6, "input_size": (9, 7), "kernel": (3, 3), "padding": ((1, 1), (1, 1))}
    return Workload(pass_=pass_, **{**problem, "layout": "nhwc", **changes})


def candidate(fault="none", *, of=None, **knobs):
    of = of or workload()
    return Candidate(of, Config.of(f"cpu.{of.pass_}_nhwc", fault=fault, **knobs))


def build(wanted, target):
    fault = wanted.config.fault
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
    def __init__(self, built):
        self.artifact = built
        self.fault = built.candidate.config.fault
        self.runs = 0

    def __call__(self, *inputs):
        self.runs += 1
        if self.fault == "slow":
            time.sleep(0.005)
        if self.fault == "dies when timed" and self.runs > 3:
            os.abort()
        if self.fault == "changes a user's input":
            inputs[0][0, 0, 0, 0] += 1
        result = self.compute(*inputs)
        return result + 1 if self.fault == "wrong for users" else result

    def run_into(self, inputs, results, workspaces):
        self.runs += 1
        stale = float(workspaces[0].view(-1)[0])
        workspaces[0].fill_(1.0)
        if self.fault == "raises":
            raise RuntimeError("device lost\nsecond line")
        if self.fault == "segfaults":
            ctypes.string_at(0)
        if self.fault == "hangs":
            ctypes.PyDLL(None).sleep(600)
        computed = self.compute(*map(self.outwards, inputs))
        for out, result in zip(results, computed if isinstance(computed, tuple) else (computed,), strict=True):
            out.copy_(self.inwards(result, out.shape))
        self.spoil(inputs, results[-1], workspaces, stale)

    def spoil(self, inputs, out, workspaces, stale):
        values, bits = out.view(-1), out.view(torch.int32).view(-1)
        match self.fault:
            case "wrong value":
                values[5] += 1
            case "wrong at batch 1" if out.shape[0] == 1:
                values[5] += 1
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
        return pytorch_call(of, *laid_out(of, *inputs, layout="nhwc"))()

    def outwards(self, tensor):
        if tensor.dim() == 4:
            return tensor.permute(0, 3, 1, 2)
        return tensor.unsqueeze(1) if tensor.dim() == 3 else tensor

    def inwards(self, tensor, shape):
        return tensor.permute(0, 2, 3, 1) if len(shape) == 4 else tensor.view(shape)
