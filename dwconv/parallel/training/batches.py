"""Batches: in each epoch the images in an order that all ranks draw alike, of which a rank loads its share alone.

    order of the epoch    7 2 9 4 | 1 8 0 5 | …        by DistributedSampler, from the seed and the number of the epoch
    batch 0 of rank 1         9 4                      what ``share`` leaves of 7 2 9 4

However many ranks there are, and whatever their form, a batch has the same images. So training goes on where it was cut
off, at a batch in the middle of an epoch, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, DistributedSampler, default_collate

from dwconv.errors import DataFailed, DwconvError, InvalidWorkload, described_error
from dwconv.parallel.data.prefetching import Prefetched, prefetch
from dwconv.parallel.training.datasets import Images

Share = Callable[[Tensor], Tensor]
"""A rank's part of a whole batch."""


class Batches:
    """Batches of one rank. Begin an epoch with ``of_epoch``."""

    def __init__(
        self, images: Images, *, size: int, share: Share, device: torch.device, seed: int, workers: int = 0,
        channels_last: bool = False,
    ) -> None:  # fmt: skip
        """``size``: images of a whole batch. ``workers``: processes that load. Raises InvalidWorkload if the images are
        fewer than a batch."""
        if len(images) < size:
            raise InvalidWorkload(
                f"data has {len(images)} images, fewer than the batch of {size}; make --batch smaller"
            )
        self._order: DistributedSampler[Any] = DistributedSampler(
            images, num_replicas=1, rank=0, shuffle=True, seed=seed  # type: ignore[arg-type]
        )  # fmt: skip
        self.size, self._share = size, share
        self.steps = len(images) // size
        """Of an epoch; what is left over takes part in another epoch."""
        self._first = 0
        self._device, self._workers = device, workers
        self._collate = _Collated(torch.channels_last if channels_last else torch.contiguous_format)
        self._batches = self._prefetched(images, batch_sampler=self)

    def of_epoch(self, number: int, *, first: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """The batches of an epoch, from batch ``first`` on."""
        self._order.set_epoch(number)
        self._first = first
        yield from _loaded(self._batches)

    def like(self, images: Images) -> Iterator[tuple[Tensor, Tensor]]:
        """Other images, all of them, loaded in the same way."""
        yield from _loaded(self._prefetched(images, batch_size=self.size))

    def _prefetched(self, images: Images, **how: Any) -> Prefetched[Any]:
        loader: DataLoader[Any] = DataLoader(_Items(images), num_workers=self._workers, collate_fn=self._collate, **how)
        return prefetch(loader, self._device)

    def __iter__(self) -> Iterator[list[int]]:
        order = torch.tensor(list(self._order))
        for step in range(self._first, self.steps):
            yield self._share(order[step * self.size : (step + 1) * self.size]).tolist()

    def __len__(self) -> int:
        return self.steps - self._first

    def report(self) -> str:
        """How long steps waited for data."""
        return str(self._batches.report())


def _loaded(batches: Iterable[tuple[Tensor, Tensor]]) -> Iterator[tuple[Tensor, Tensor]]:
    """A process that loads reports an error with its traceback in the message; here it is the line alone."""
    try:
        yield from batches
    except DataFailed as error:
        raise DataFailed(str(error).rpartition(f"{DataFailed.__name__}: ")[2].strip()) from None


class _Items(Dataset[Any]):
    """Images whose errors are one line."""

    def __init__(self, images: Images) -> None:
        self._images = images

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, number: int) -> Any:
        try:
            return self._images[number]
        except DwconvError:
            raise
        except Exception as error:
            raise DataFailed(f"item {number} of the data cannot be loaded: {described_error(error)}") from error


class _Collated:
    """Images and classes of a batch, as tensors."""

    def __init__(self, form: torch.memory_format) -> None:
        self._form = form

    def __call__(self, items: list[Any]) -> tuple[Tensor, Tensor]:
        batch = default_collate(items)
        if not isinstance(batch, list | tuple) or len(batch) != 2 or not isinstance(batch[0], Tensor):
            raise DataFailed("an item of the data is no pair of an image, as a tensor, and its class")
        images, classes = batch
        if not isinstance(classes, Tensor) or classes.dim() != 1 or classes.is_floating_point():
            raise DataFailed("the class of an image is no whole number")
        form = self._form if images.dim() == 4 else torch.contiguous_format
        return images.contiguous(memory_format=form), classes.long()
