"""Images with masks and object properties from an HDF5 file."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from unknot.arguments import height_and_width, two_numbers
from unknot.datamodules.scenes.layout import Property, SceneDataset, SetBatch, check_crop, cropped

IMAGES, MASKS = ("image", "images"), ("mask", "masks", "segmentation")
LABELS = ("visibility", "num_actual_objects")  # arrays that are not object properties


class HDF5Scenes(SceneDataset):
    """Images, masks and object properties from an HDF5 file, one row for each image.

    Reads the files of the multi-object data sets (CLEVR with masks, Multi-dSprites, Tetrominoes, Objects Room,
    ShapeStacks, CLEVRTex) as published by the object-centric-library and object-discovery-pytorch, and any other file
    with this layout:

    * images ``[N, H, W, 3]``, uint8, or floats from 0 to 1;
    * masks ``[N, H, W]`` or ``[N, H, W, 1]`` of object indices, or ``[N, K, H, W]`` or ``[N, K, H, W, 1]`` with one
      mask for each object;
    * any other array ``[N, K]`` or ``[N, K, P]`` is a property of objects, indexed by object;
    * an optional ``visibility`` ``[N, K]`` marks the rows that are objects.

    Background objects come first. Targets have a row for each other object: the requested properties, classes one-hot,
    and 1 for a real object. An object whose mask is empty is real if ``visibility`` says so.

    Every process opens the file itself, at the first batch.

    Args:
        path: path of the file.
        image_size: (height, width), or one number for both; by default as in the file. Images are averaged, masks take
            the nearest pixel.
        background: number of background objects in masks: 1 for CLEVR, 4 for Objects Room.
        properties: contents of targets: names of arrays, with the number of classes, ``{"shape": 3, "x": None}``. By
            default all numeric arrays, integers as classes.
        crop: (top, bottom, left, right) in pixels, before resizing.
        max_objects: leave out images with more objects.
        value_range: values of black and white.

    >>> data = HDF5Scenes("clevr_10-full.hdf5", image_size=64, max_objects=6)  # doctest: +SKIP
    >>> images, targets, masks = data.batch([0, 1, 2])  # doctest: +SKIP
    """

    name = "hdf5_scenes"

    def __init__(
        self,
        path: str | Path,
        image_size: int | tuple[int, int] | None = None,
        background: int = 1,
        properties: Mapping[str, int | None] | None = None,
        crop: tuple[int, int, int, int] | None = None,
        max_objects: int | None = None,
        value_range: tuple[float, float] = (0.0, 1.0),
    ) -> None:
        self.path, self.background = Path(path), background
        self.value_range = two_numbers(value_range)
        self._file: Any = None
        with self._reading() as file:
            arrays = {name: file[name] for name in file if hasattr(file[name], "shape") and len(file[name].shape) > 1}
            self._images, self._masks = _named(arrays, IMAGES), _named(arrays, MASKS)
            if self._images is None:
                raise ValueError(f"{path}: no array `image` [N, H, W, 3]; it holds {', '.join(file) or 'nothing'}.")
            count, height, width, *channels = arrays[self._images].shape
            if channels != [3]:
                raise ValueError(
                    f"{path}: `{self._images}` has shape {list(arrays[self._images].shape)}, expected [N, H, W, 3]."
                )
            self.crop = check_crop(crop, (height, width))
            if self.crop is not None:
                height, width = self.crop[1] - self.crop[0], self.crop[3] - self.crop[2]
            self.image_size = (height, width) if image_size is None else height_and_width(image_size)
            self._chosen = _choose(arrays, count, properties, {self._images, self._masks}, self.path)
            rows = [array.shape[1] for name, array in arrays.items() if name in {*self._chosen, "visibility"}]
            self._rows = max([background, *rows])
            if self._masks is not None and arrays[self._masks].ndim > 3 + (arrays[self._masks].shape[-1] == 1):
                self._rows = max(self._rows, arrays[self._masks].shape[1])
            self.max_objects = self._rows - background if max_objects is None else max_objects
            visible = _array(file, "visibility", count)
        start, listed = 0, []
        for name, (classes, width) in self._chosen.items():
            listed.append(Property(name, start, start + width, "number" if classes is None else "class"))
            start += width
        self.properties = tuple(listed)
        numbers = np.arange(count)
        if visible is not None and max_objects is not None:
            numbers = np.flatnonzero((visible[:, background:] > 0).sum(1) <= max_objects)
        self._numbers = numbers
        if not len(numbers):
            raise ValueError(f"{path}: no image with at most {max_objects} objects. Raise max_objects.")

    def __len__(self) -> int:
        return len(self._numbers)

    def batch(self, indices: Sequence[int]) -> SetBatch:
        """Return the examples with these indices."""
        numbers = self._numbers[[range(len(self))[int(index)] for index in indices]]
        order, back = np.unique(numbers, return_inverse=True)  # h5py needs increasing indices
        with self._reading(keep=True) as file:
            images = self._resized(torch.from_numpy(file[self._images][order])[back])
            masks = None if self._masks is None else self._read_masks(torch.from_numpy(file[self._masks][order])[back])
            visible = None if "visibility" not in file else torch.from_numpy(file["visibility"][order])[back]
            columns = [
                self._column(torch.from_numpy(file[name][order])[back], classes)
                for name, (classes, _) in self._chosen.items()
            ]
        if visible is not None:
            real = visible.flatten(1)[:, self.background :] > 0
        elif masks is not None:
            real = torch.stack([(masks == i + 1).flatten(1).any(1) for i in range(self.max_objects)], dim=1)
        else:
            real = torch.ones(len(numbers), self.max_objects, dtype=torch.bool)
        real = F.pad(real, (0, max(0, self.max_objects - real.shape[1])))[:, : self.max_objects, None]
        targets = torch.cat([*columns, torch.ones(len(numbers), self.max_objects, 1)], dim=2) * real
        return SetBatch(images, targets, masks)

    def _column(self, values: Tensor, classes: int | None) -> Tensor:
        """Return a property ``[N, max_objects, P]`` of the foreground objects."""
        values = values.view(len(values), values.shape[1], -1)[:, self.background :]
        values = F.pad(values, (0, 0, 0, max(0, self.max_objects - values.shape[1])))[:, : self.max_objects]
        if classes is None:
            return values.float()
        return F.one_hot(values[..., 0].long().clamp(0, classes - 1), classes).float()

    def _resized(self, images: Tensor) -> Tensor:
        scale = 255.0 if images.dtype == torch.uint8 else 1.0
        images = cropped(images.permute(0, 3, 1, 2), self.crop).float() / scale
        if tuple(images.shape[2:]) != self.image_size:
            images = F.interpolate(images, self.image_size, mode="bilinear", antialias=True).clamp(0, 1)
        low, high = self.value_range
        return low + (high - low) * images

    def _read_masks(self, masks: Tensor) -> Tensor:
        """Return object indices uint8 ``[N, H, W]``, 0 for all background."""
        if masks.shape[-1] == 1:
            masks = masks[..., 0]
        if masks.ndim == 4:  # one mask for each object
            masks = masks.float().argmax(1)
        masks = cropped((masks.long() - (self.background - 1)).clamp(min=0)[:, None], self.crop)
        return F.interpolate(masks.float(), self.image_size, mode="nearest-exact")[:, 0].to(torch.uint8)

    @contextmanager
    def _reading(self, keep: bool = False) -> Iterator[Any]:
        """Open the file."""
        import h5py  # slow to import

        if not self.path.is_file():
            raise FileNotFoundError(f"{self.path}: no such file. Give the path of an HDF5 file with images and masks.")
        try:
            file = self._file or h5py.File(self.path, "r")
        except OSError as error:
            raise ValueError(f"{self.path}: not a whole HDF5 file ({error}). Copy or download it again.") from None
        if keep:
            self._file = file
        try:
            yield file
        finally:
            if not keep:
                file.close()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_file": None}  # worker processes open the file themselves


def _named(arrays: Mapping[str, Any], names: Sequence[str]) -> str | None:
    return next((name for name in names if name in arrays), None)


def _array(file: Any, name: str, count: int) -> npt.NDArray[Any] | None:
    return file[name][:].reshape(count, -1) if name in file else None


def _choose(
    arrays: Mapping[str, Any],
    count: int,
    properties: Mapping[str, int | None] | None,
    taken: set[str | None],
    path: Path,
) -> dict[str, tuple[int | None, int]]:
    """Return the number of classes of each property, None for numbers, and its number of columns."""
    if properties is None:
        offered = [
            name
            for name, array in arrays.items()
            if name not in taken and name not in LABELS and array.ndim <= 3 and len(array) == count
        ]
        properties = {name: int(arrays[name][:].max()) + 1 if _is_class(arrays[name]) else None for name in offered}
    chosen: dict[str, tuple[int | None, int]] = {}
    for name, classes in properties.items():
        if name not in arrays:
            raise ValueError(f"{path}: no array {name!r}; properties of objects are {', '.join(arrays)}.")
        width = int(np.prod(arrays[name].shape[2:], dtype=np.int64))
        chosen[name] = (classes, width if classes is None else classes)
    return chosen


def _is_class(array: Any) -> bool:
    """Return whether an array contains one integer for each object."""
    return np.issubdtype(array.dtype, np.integer) and int(np.prod(array.shape[2:], dtype=np.int64)) == 1
