"""Replicas: a model on every rank, whose gradients become their mean while others are still computed.

On top of DistributedDataParallel, not of its composable successor ``replicate``. In PyTorch 2.13 that is in a private
module, ``torch.distributed._composable``, and wraps a DistributedDataParallel that it makes at the first call, out of
reach. The class itself has public buckets, hooks and ``no_sync``, and is familiar to users.
"""

from __future__ import annotations

from typing import Any, Literal
from weakref import WeakKeyDictionary

import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from dwconv.discovery.step import ExampleStep, check_model
from dwconv.errors import InvalidArgument, InvalidChoice, InvalidWorkload
from dwconv.parallel.data.choose_way import DEFAULT, Contest, Loss, choose
from dwconv.parallel.data.sending import wrapped
from dwconv.parallel.data.ways import Communication, CommunicationReport
from dwconv.parallel.data.ways_to_try import Compression, gradient_bytes
from dwconv.parallel.joining import check_joined, check_same, described
from dwconv.system import given

SECONDS = 60.0
_reports: WeakKeyDictionary[nn.Module, CommunicationReport] = WeakKeyDictionary()


def data_parallel(
    model: nn.Module,
    example_inputs: Any = None,
    *,
    communication: Communication | None = None,
    compress: bool | Literal["bfloat16", "powersgd"] = False,
    loss: Loss | None = None,
    seconds: float = SECONDS,
    **options: Any,
) -> DistributedDataParallel:
    """``model`` in a DistributedDataParallel, its gradients sent the way that was measured to be the fastest here.
    ``communication(…)`` of the result is the way, with the reason. Every rank has to call it.

    ``example_inputs``: as for ``dwconv.convert``, what a step of one rank gets: a tensor, a tuple of positional
    arguments, or a dict of keyword arguments. Steps on it are timed for ``seconds``, about; afterwards parameters,
    buffers, gradients and random numbers are what they were. ``loss``: from what the model returns, if the mean of its
    outputs does not do. ``communication``: this way, and nothing is measured. Without either it is
    DistributedDataParallel's default.

    ``compress``: what changes the results may be chosen, where it is faster. True or ``bfloat16``: gradients sent, and
    summed, as bfloat16. ``powersgd``: these, or PyTorch's PowerSGD, which sends matrices of low rank.
    ``options`` are DistributedDataParallel's, such as ``process_group`` or ``find_unused_parameters``.

    Raises InvalidChoice and InvalidWorkload."""
    check_model(model)
    seconds = given.number("seconds", seconds, way_out="give seconds above 0")
    compression = _compression(model, compress)
    if communication is not None and not isinstance(communication, Communication):
        raise InvalidArgument(
            f"communication={given.shown(communication)} is no way to communicate; give a Communication(bucket_mb=25)"
        )
    if communication is not None and communication.powersgd_rank is not None:
        _check_factors(model)
    if loss is not None and not callable(loss):
        raise InvalidArgument(f"loss={given.shown(loss)} cannot be called; give a function of what the model returns")
    group = _group(model, options)
    if not seconds > 0:
        raise InvalidChoice(f"seconds={seconds:g} leaves no time to measure; without an example nothing is measured")
    report = _unmeasured(model, group, communication=communication, has_example=example_inputs is not None)
    if report is None:
        example = ExampleStep.of(model, example_inputs, trains=True)
        contest = Contest(
            model=model,
            example=example,
            loss=loss,
            group=group,
            options=options,
            compression=compression,
            seconds=seconds,
        )
        report = choose(contest)
    found = wrapped(model, report.chosen, **options)
    _reports[found] = report
    return found


def _compression(model: nn.Module, compress: bool | Literal["bfloat16", "powersgd"]) -> Compression:
    """What ``compress`` permits. PyTorch's PowerSGD takes no parameter without dimensions."""
    if isinstance(compress, str):
        if compress not in ("bfloat16", "powersgd"):
            raise InvalidChoice(f"compress={given.shown(compress)} is unknown; use True, bfloat16 or powersgd")
        if compress == "powersgd":
            _check_factors(model)
        return compress
    return "bfloat16" if given.flag("compress", compress) else ""


def _check_factors(model: nn.Module) -> None:
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and not parameter.dim():
            raise InvalidWorkload(
                f"{name} is a single number, which PyTorch's PowerSGD does not take; give it a shape of (1,), or "
                "compress as bfloat16"
            )


def communication(model: nn.Module) -> CommunicationReport:
    """How ``model``, which ``data_parallel`` gave, communicates, and why. Raises InvalidWorkload for another model."""
    check_model(model)
    if model not in _reports:
        raise InvalidWorkload(
            f"{type(model).__name__} does not come from dwconv.parallel.data_parallel; pass the model that it returned"
        )
    return _reports[model]


def _group(model: nn.Module, options: dict[str, Any]) -> dist.ProcessGroup:
    """The ranks that share the model, once all arguments are in order, and the model the same on all of them."""
    check_joined()
    if isinstance(model, DistributedDataParallel):
        raise InvalidWorkload("the model is in a DistributedDataParallel already; give its .module")
    if "bucket_cap_mb" in options:
        megabytes = options["bucket_cap_mb"]
        raise InvalidChoice(
            f"bucket_cap_mb={megabytes} would be overridden; use communication=Communication(bucket_mb={megabytes})"
        )
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise InvalidWorkload(
            f"no parameter of {type(model).__name__} is trained, so no gradient is sent; unfreeze one"
        )
    mesh = options.get("device_mesh")
    found = mesh.get_group() if mesh is not None else options.get("process_group") or dist.group.WORLD
    assert isinstance(found, dist.ProcessGroup)
    check_same(described(model), group=found)
    return found


def _unmeasured(
    model: nn.Module, group: dist.ProcessGroup, *, communication: Communication | None, has_example: bool
) -> CommunicationReport | None:
    """The choice that needs no measurement; None if it needs one."""
    world = dist.get_world_size(group)
    if communication is not None:
        chosen, reason = communication, "as requested"
    elif not has_example:
        chosen, reason = DEFAULT, "nothing was measured: there was no example"
    elif world == 1:
        chosen, reason = DEFAULT, "nothing was measured: there is one rank"
    else:
        return None
    return CommunicationReport(
        chosen=chosen,
        reason=reason,
        world=world,
        gradient_bytes=gradient_bytes(model),
    )
