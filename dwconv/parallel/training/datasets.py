"""Images to train on, by name: scikit-learn's handwritten digits, a folder of images, or a Dataset of the user's.

    digits                 1797 images in ten classes, which come with scikit-learn
    FOLDER/CLASS/*.png     a folder for each class; or FOLDER/train/CLASS and FOLDER/val/CLASS
    package.module:factory a torch Dataset of (image, class), or a pair of them: to train on, and held out

scikit-learn and Pillow are imported here alone, and only where they are needed.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Subset, TensorDataset

from dwconv.errors import BrokenInstallation, DataFailed, InvalidWorkload, described_error
from dwconv.model.by_name import made_by

DIGITS = "digits"
_SIZE_OF_DIGITS, _SIZE = 32, 224
_HELD_OUT = 10
"""One image of so many, where nothing is held out by the data itself."""
_WAYS = "digits, a folder of images, or package.module:factory"
_SUFFIXES = {".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"}
_HELD_OUT_FOLDERS = ("val", "valid", "test")


class Images(Sized, Protocol):
    """A Dataset that has a length."""

    def __getitem__(self, number: int, /) -> Any:
        """An image and its class."""


@dataclass(frozen=True, kw_only=True)
class Data:
    """What is trained on."""

    name: str
    train: Images
    held_out: Images | None
    """For the accuracy; None if there is none."""


def load_data(text: str, *, size: int | None) -> Data:
    """The data that ``text`` names. ``size``: height and width of images of a folder, and of digits. Raises
    InvalidWorkload, and BrokenInstallation for a package that is missing."""
    if text == DIGITS:
        return _digits(size or _SIZE_OF_DIGITS)
    if (folder := Path(text)).is_dir():
        return _of_folder(folder, size or _SIZE)
    module, _, factory = text.partition(":")
    if not module or not factory:
        raise InvalidWorkload(f"data={text} is unknown, and no folder; write {_WAYS}")
    made = made_by(module, factory, option="data", ways=_WAYS)
    pair = made if isinstance(made, tuple) and len(made) == 2 else (made, None)
    for each in pair:
        if each is not None and not (hasattr(each, "__getitem__") and hasattr(each, "__len__")):
            raise InvalidWorkload(
                f"data={text} made a {type(each).__name__}, which has no length or no items; make a torch Dataset of "
                "(image, class), or a pair of them"
            )
    return Data(name=text, train=pair[0], held_out=pair[1])


def _library(name: str, package: str, *, needed_for: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name == name.partition(".")[0]:
            raise BrokenInstallation(
                f"{package} is not installed, which {needed_for} need; pip install 'dwconv[train]', or give other data"
            ) from None
        raise BrokenInstallation(f"{package} cannot be imported: {described_error(error)}") from None


def _digits(size: int) -> Data:
    """Three channels, as networks for photographs take them."""
    found = _library("sklearn.datasets", "scikit-learn", needed_for="digits").load_digits()
    images = torch.from_numpy(np.asarray(found.images, dtype=np.float32)).unsqueeze(1) / 8 - 1
    images = nn.functional.interpolate(images, size=(size, size), mode="bilinear").repeat(1, 3, 1, 1)
    return _with_some_held_out(DIGITS, TensorDataset(images, torch.from_numpy(found.target).long()))


def _with_some_held_out(name: str, images: Images) -> Data:
    train = [number for number in range(len(images)) if number % _HELD_OUT]
    held_out = [number for number in range(len(images)) if not number % _HELD_OUT]
    return Data(name=name, train=Subset(images, train), held_out=Subset(images, held_out))  # type: ignore[arg-type]


# -- a folder of images ------------------------------------------------------------------------------------------------


def _of_folder(folder: Path, size: int) -> Data:
    _library("PIL.Image", "Pillow", needed_for="images in folders")
    if not (folder / "train").is_dir():
        return _with_some_held_out(str(folder), FolderOfImages(folder, size=size, classes=None))
    train = FolderOfImages(folder / "train", size=size, classes=None)
    found = next((folder / name for name in _HELD_OUT_FOLDERS if (folder / name).is_dir()), None)
    held_out = None if found is None else FolderOfImages(found, size=size, classes=train.classes)
    return Data(name=str(folder), train=train, held_out=held_out)


class FolderOfImages:
    """Images in folders that are named for their classes, which are numbered by name. An image is scaled until its
    shorter side is ``size``, and cropped around its middle: (3, size, size), from -1 to 1."""

    def __init__(self, folder: Path, *, size: int, classes: Sequence[str] | None) -> None:
        """``classes``: None for the folders that there are. Raises InvalidWorkload."""
        there = sorted(each.name for each in folder.iterdir() if each.is_dir())
        self.classes = list(classes or there)
        self._size = size
        if unknown := sorted({*there} - {*self.classes}):
            raise InvalidWorkload(f"data={folder}: the class {unknown[0]} is not among those to train on")
        self._files = [
            (file, number)
            for number, name in enumerate(self.classes)
            for file in sorted((folder / name).glob("*"))
            if file.suffix.lower() in _SUFFIXES
        ]
        if not self._files:
            raise InvalidWorkload(f"data={folder} has no images in folders named for their classes, as CLASS/1.png")

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, number: int) -> tuple[Tensor, int]:
        file, label = self._files[number]
        from PIL import Image, ImageOps

        try:
            with Image.open(file) as image:
                fitted = ImageOps.fit(image.convert("RGB"), (self._size, self._size), Image.Resampling.BILINEAR)
        except (OSError, ValueError, SyntaxError) as error:  # of broken files
            raise DataFailed(f"image {file} cannot be read: {described_error(error)}; take it away") from None
        pixels = np.array(fitted, dtype=np.float32) / 127.5 - 1
        return torch.from_numpy(pixels).permute(2, 0, 1).contiguous(), label
