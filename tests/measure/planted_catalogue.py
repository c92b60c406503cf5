"""Kernels that are wrong now and then: a catalogue of when, and of how.

Each is right but for its fault, whether it runs bare or as a user calls it: a call copies what is not dense, as a built
kernel does, and runs the same code.
"""

import threading
from dataclasses import dataclass, field

import torch

from tests.measure.planted_kernels import UNWRITTEN, PlantedKernel, artifact, candidate, workload

TINY, LARGEST = torch.finfo(torch.float32).tiny, torch.finfo(torch.float32).max


@dataclass(kw_only=True)
class Run:
    """One run of a kernel; tensors in the kernel's own layout."""

    number: int
    inputs: list
    results: list
    threads: int = field(default_factory=torch.get_num_threads)
    elsewhere: bool = field(default_factory=lambda: threading.current_thread() is not threading.main_thread())
    called_with: tuple = ()
    """The user's tensors, if it was called."""

    @property
    def batch(self):
        return len(self.inputs[0])

    def start(self, position):
        """Bytes after a cache line at which the tensor starts: inputs, then results."""
        return [*self.inputs, *self.results][position].data_ptr() % 64


# -- when one element is off by one ----------------------------------------------------------------------------------

BATCHES = {f"at batch {n}": (lambda run, n=n: run.batch == n) for n in (1, 2, 3, 4, 5, 6, 7, 8, 9, 17, 33, 1017)} | {
    "from batch 5 on": lambda run: run.batch >= 5,
    "from batch 9 on": lambda run: run.batch >= 9,
    "from batch 16 on": lambda run: run.batch >= 16,
    "at odd batches from 9 on": lambda run: run.batch >= 9 and run.batch % 2 == 1,
    "at odd batches from 32 on": lambda run: run.batch >= 32 and run.batch % 2 == 1,
    "one image more than a multiple of 4": lambda run: run.batch > 4 and run.batch % 4 == 1,
    "two images more than a multiple of 4": lambda run: run.batch > 4 and run.batch % 4 == 2,
    "at even batches that 4 does not divide": lambda run: run.batch > 2 and run.batch % 4 == 2,
    "at multiples of 8": lambda run: run.batch % 8 == 0,
}
THREADS = {f"on {n} threads": (lambda run, n=n: run.threads == n) for n in (1, 2, 3, 4, 5, 8, 16, 17)} | {
    "on more than 3 threads": lambda run: run.threads > 3,
    "on more than 4 threads": lambda run: run.threads > 4,
    "on more than 8 threads": lambda run: run.threads > 8,
    "on more than 8 threads and images": lambda run: run.threads > 8 and run.batch > 8,
    "on more threads than images": lambda run: run.threads > run.batch,
    "on fewer threads than images, 3 at least": lambda run: 3 <= run.threads < run.batch,
}
STARTS = {
    f"{name} starts {n} after a cache line": (lambda run, at=at, n=n: run.start(at) == n)
    for at, name in enumerate(("x", "w", "y"))
    for n in (0, 4, 8, 16, 32, 48)
} | {
    "all start at a multiple of 16 but of no more": lambda run: all(run.start(at) % 32 == 16 for at in range(3)),
    "x starts at a multiple of 8, y does not": lambda run: run.start(0) % 8 == 0 and run.start(2) % 8 != 0,
    "y starts at a multiple of 16, x does not": lambda run: run.start(2) % 16 == 0 and run.start(0) % 16 != 0,
    "x and y start alike": lambda run: run.start(0) == run.start(2),
    "w starts at a multiple of 16, from batch 5 on": lambda run: run.start(1) % 16 == 0 and run.batch >= 5,
}
CALLS = {
    "called from another thread": lambda run: run.elsewhere,
    "called with a strided weight": lambda run: any(not t.is_contiguous() for t in run.called_with[1:2]),
    "called with an expanded weight": lambda run: any(0 in t.stride() for t in run.called_with[1:2]),
    "called with an expanded input": lambda run: any(0 in t.stride() for t in run.called_with[:1]),
    "called with a channels-last weight": lambda run: any(
        t.stride()[1:] == (1, t.shape[3], 1) for t in run.called_with[1:2]
    ),
    "called with the other layout": lambda run: any(
        t.is_contiguous() and not t.is_contiguous(memory_format=torch.channels_last) for t in run.called_with[:1]
    ),
    "called with an input with gaps": lambda run: any(
        t.stride()[-1] not in (0, 1, t.shape[1]) for t in run.called_with[:1]
    ),
}
RUNS = {f"in every {n}th run": (lambda run, n=n: run.number % n == 0) for n in (2, 3, 10, 25, 1000)} | {
    "in the first run": lambda run: run.number == 1,
    "from the 20th run on": lambda run: run.number >= 20,
}
WHEN = BATCHES | THREADS | STARTS | CALLS | RUNS


# -- how results are wrong -------------------------------------------------------------------------------------------


def images_taken(order):
    """Image k of the result is the one that ``order(k, batch)`` says."""

    def spoil(run, kernel):
        out = run.results[0]
        out.copy_(out[[order(k, run.batch) for k in range(run.batch)]])

    return spoil


def images_summed(order):
    """A sum over images in which image k counts as that one."""

    def spoil(run, kernel):
        chosen = [order(k, run.batch) for k in range(run.batch)]
        kernel.fill(run, [tensor[chosen] for tensor in run.inputs])

    return spoil


def changed(change):
    """``change`` is made in each result."""

    def spoil(run, kernel):
        for out in run.results:
            change(out)

    return spoil


def summed(change):
    """The products of each tap, with what belongs to them, are changed before they are added up."""

    def spoil(run, kernel):
        of = kernel.workload
        (x, w) = (kernel.outwards(tensor).double() for tensor in run.inputs[:2])
        size = {"kernel_size": of.kernel, "padding": [pad[0] for pad in of.padding]}
        of_taps = (len(x), of.channels, -1, torch.Size(of.output_size).numel())
        reads, inside = (
            torch.nn.functional.unfold(t.float(), **size).view(of_taps).double() for t in (x, torch.ones_like(x))
        )
        others = w.reshape(1, of.channels, -1, 1) if of.pass_ == "fprop" else w.flatten(2).unsqueeze(2)
        reads, others = reads.broadcast_to(torch.broadcast_shapes(reads.shape, others.shape)), others.expand_as(reads)
        products = change(reads * others, reads, others).double().where(inside.expand_as(reads) > 0, 0.0)
        total = products.sum(2).unflatten(-1, of.output_size) if of.pass_ == "fprop" else products.sum((0, 3))
        run.results[0].copy_(kernel.inwards(total, run.results[0].shape))

    return spoil


def kept_weight(run, kernel):
    if kernel.kept is None:
        kernel.kept = run.inputs[1].clone()
    kernel.fill(run, [run.inputs[0], kernel.kept, *run.inputs[2:]])


def kept_result(run, kernel):
    """It adds to the last channel what is left of the call before."""
    before, kernel.kept = kernel.kept, run.results[-1].view(-1)[-1].clone()
    if before is not None and before.isfinite() and run.number % 2 == 0:
        run.results[-1].view(-1)[-1] += 0 * before + 1


def flush(out):
    out[out.abs() < TINY] = 0.0


def leaves_unwritten(images, *, at):
    def spoil(run, kernel):
        if at(run.batch):
            run.results[0].view(torch.int32)[-images:] = UNWRITTEN

    return spoil


def leaves_mode(run, kernel):
    torch.set_flush_denormal(True)


def reads_outside(side):
    """A neighbour of the input is added, as it is."""

    def spoil(run, kernel):
        x = run.inputs[0]
        offset = x.storage_offset() + (x.numel() if side > 0 else -1)
        if 0 <= offset < x.untyped_storage().nbytes() // 4:
            run.results[0].view(-1)[-1] += x.as_strided((), (), offset)

    return spoil


HOW = {
    "image 3 is a copy of image 0": images_taken(lambda k, batch: 0 if k == 3 else k),
    "image 4 is a copy of image 0": images_taken(lambda k, batch: 0 if k == 4 else k),
    "image 6 is a copy of image 3": images_taken(lambda k, batch: 3 if k == 6 else k),
    "image 32 is a copy of image 0": images_taken(lambda k, batch: 0 if k == 32 else k),
    "images from 4 on are copies of image 0": images_taken(lambda k, batch: 0 if k >= 4 else k),
    **{f"images repeat every {n}": images_taken(lambda k, batch, n=n: k % n) for n in (1, 2, 3, 4, 6, 8, 9, 16)},
    "images come in reverse": images_taken(lambda k, batch: batch - 1 - k),
    "images 3 and 6 are swapped": images_taken(lambda k, batch: {3: 6, 6: 3}.get(k, k) if batch > 6 else k),
    "the last image is a copy of the one before": images_taken(lambda k, batch: max(0, min(k, batch - 2))),
    "the last image is a copy of image 0": images_taken(lambda k, batch: k if k + 1 < batch else 0),
    "the last image is unwritten at odd batches from 9 on": leaves_unwritten(1, at=lambda n: n > 8 and n % 2 == 1),
    "the last image is unwritten at batch 33": leaves_unwritten(1, at=lambda n: n == 33),
    "the last channel": changed(lambda out: out[..., -1].add_(1)),
    "the last row": changed(lambda out: out[:, -1].add_(1)),
    "the last column": changed(lambda out: out[:, :, -1].add_(1)),
    "the last element": changed(lambda out: out.view(-1)[-1:].add_(1)),
    "0 · ∞ dropped at zero weights": summed(lambda p, x, w: p.where((w != 0) | ~x.isinf(), 0.0)),
    "0 · NaN dropped at zero weights": summed(lambda p, x, w: p.where((w != 0) | ~x.isnan(), 0.0)),
    "0 · ∞ dropped at zeros of the input": summed(lambda p, x, w: p.where((x != 0) | ~w.isinf(), 0.0)),
    "0 · NaN dropped at zeros of the input": summed(lambda p, x, w: p.where((x != 0) | ~w.isnan(), 0.0)),
    "∞ · w is NaN": summed(lambda p, x, w: p.where(~x.isinf(), torch.nan)),
    "NaN lost": changed(lambda out: out.nan_to_num_(0.0, torch.inf, -torch.inf)),
    "infinity saturates": changed(lambda out: out.clamp_(-LARGEST, LARGEST)),
    "-infinity becomes infinity": changed(lambda out: out.copy_(out.where(out != -torch.inf, torch.inf))),
    "-0 lost": changed(lambda out: out.add_(0.0)),
    "denormals flushed": changed(flush),
    "denormals of the input flushed": summed(lambda p, x, w: p.where(x.abs() >= TINY, 0.0)),
    "denormal results are tiny": changed(lambda out: out.copy_(out.where((out == 0) | (out.abs() >= TINY), TINY))),
    "overflow from 1e25 on": changed(lambda out: out.mul_(torch.where(out.abs() > 1e25, torch.inf, 1.0))),
    "overflow of squares": summed(lambda p, x, w: (p * x.float() * x.float()).where(x.abs() > 1e19, p)),
    "never negative": changed(lambda out: out.clamp_(min=0.0)),
    "products in bfloat16": summed(lambda p, x, w: p.bfloat16().double()),
    "products of 10 bits": summed(lambda p, x, w: (p.float().view(torch.int32) & -(1 << 13)).view(torch.float32)),
    "inputs in float16": summed(lambda p, x, w: (x.half() * w.half()).double()),
    "result in float16": changed(lambda out: out.copy_(out.half())),
    "the weight of the first run": kept_weight,
    "a remainder of the run before": kept_result,
    "the result is added to what was there": (lambda run, kernel: run.results[0].add_(kernel.before[0] * 0)),
    "an element is not written": (
        lambda run, kernel: run.results[0].view(-1)[3:4].copy_(kernel.before[0].view(-1)[3:4])
    ),
    "reads after the input": reads_outside(1),
    "reads before the input": reads_outside(-1),
    "changes the input": (lambda run, kernel: run.inputs[0].view(-1)[:1].add_(1)),
    "changes the weight at batch 5": (lambda run, kernel: run.inputs[1].view(-1)[:1].add_(run.batch == 5)),
    "flushes denormals from then on": leaves_mode,
}
OF_WGRAD = {
    "counts image 0 instead of image 3": images_summed(lambda k, batch: 0 if k == 3 else k),
    "counts image 0 instead of image 4": images_summed(lambda k, batch: 0 if k == 4 else k),
    **{f"sums images that repeat every {n}": images_summed(lambda k, batch, n=n: k % n) for n in (3, 4, 8)},
    "counts the last image twice": images_summed(lambda k, batch: min(k + 1, batch - 1) if k + 2 == batch else k),
    "leaves out 0 · ∞ at zeros of dy": summed(lambda p, x, dy: p.where((dy != 0) | x.isfinite(), 0.0)),
    "leaves out 0 · ∞ at zeros of x": summed(lambda p, x, dy: p.where((x != 0) | dy.isfinite(), 0.0)),
    "products of dw in bfloat16": summed(lambda p, x, dy: p.bfloat16().double()),
    "dbias is off": (lambda run, kernel: run.results[1][-1:].add_(1)),
    "dbias is off at batch 5": (lambda run, kernel: run.results[1][-1:].add_(run.batch == 5)),
    "dbias is off on 5 threads": (lambda run, kernel: run.results[1][-1:].add_(run.threads == 5)),
    "dbias is off from batch 16 on": (lambda run, kernel: run.results[1][-1:].add_(run.batch >= 16)),
    "dy starts 8 after a cache line": (lambda run, kernel: run.results[0].view(-1)[:1].add_(run.start(1) == 8)),
    "dw starts 16 after a cache line": (lambda run, kernel: run.results[0].view(-1)[:1].add_(run.start(2) == 16)),
    "dbias starts 32 after a cache line": (lambda run, kernel: run.results[1].view(-1)[:1].add_(run.start(3) == 32)),
}


class CatalogueKernel(PlantedKernel):
    def __init__(self, built):
        super().__init__(built)
        self.workload = built.candidate.workload
        self.kept, self.before = None, []

    def __call__(self, *inputs):
        dense = [self.as_it_reads(t) for t in inputs]
        named = self.artifact.results
        results = [torch.empty(each.shape_at(len(inputs[0])), dtype=inputs[0].dtype) for each in named]
        self.perform(dense, results, called_with=inputs)
        of = self.workload.with_batch(len(inputs[0]))
        given = tuple(
            out.permute(0, 3, 1, 2) if out.dim() == 4 else out.view(of.shape_of(each.name))
            for out, each in zip(results, named, strict=True)
        )
        return given if len(given) > 1 else given[0]

    def as_it_reads(self, tensor):
        if tensor.dim() < 4 or tensor.shape[1] == 1:
            return tensor.contiguous().view(self.workload.weight_shape if tensor.dim() == 4 else tensor.shape)
        return tensor.permute(0, 2, 3, 1).contiguous()

    def run_into(self, inputs, results, workspaces):
        self.perform(inputs, results)

    def perform(self, inputs, results, *, called_with=()):
        self.runs += 1
        run = Run(number=self.runs, inputs=list(inputs), results=list(results), called_with=called_with)
        self.before = [out.clone() for out in results]
        self.fill(run, inputs)
        if self.fault in WHEN:
            run.results[-1].view(-1)[5] += WHEN[self.fault](run)
        elif self.fault != "none":
            {**HOW, **OF_WGRAD}[self.fault](run, self)

    def fill(self, run, inputs):
        computed = self.compute(*map(self.outwards, inputs))
        for out, result in zip(run.results, computed if isinstance(computed, tuple) else (computed,), strict=True):
            out.copy_(self.inwards(result, out.shape))


def planted(fault):
    of = workload(channels=16)
    of = workload("wgrad", channels=16, bias=True) if fault in OF_WGRAD else of
    return CatalogueKernel(artifact(candidate(fault, of=of)))
