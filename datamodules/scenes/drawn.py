"""Rendered scenes: new ones for every batch, or a fixed number in a cached file."""

import hashlib
import json
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from unknot.arguments import height_and_width, two_numbers, whole
from unknot.datamodules.grid import Records, with_progress
from unknot.datamodules.scenes.layout import SceneDataset, SetBatch
from unknot.files import cache_dir
from unknot.randomness import derive_seed

CHUNK_SCENES = 256
_FIELDS = ("image", "mask", "target")


class DrawnScenes(SceneDataset):
    """Base class of data sets of rendered scenes, whose common arguments it defines.

    Subclasses implement :meth:`sample`, set ``file_name`` and ``object_size``, the length of a row of targets, and
    return from :meth:`drawing_options` all else that the images depend on.

    Args:
        image_size: (height, width), or one number for both.
        max_objects: maximum number of objects, and rows of a target.
        min_objects: minimum number of objects.
        num_scenes: render this many scenes once, into a cached file; ``None`` renders new ones for every batch.
        seed: seed of the scenes in the file. (Endless scenes use the generator passed to :meth:`draw`.)
        value_range: values of black and white.
    """

    license = "drawn here"
    file_name: str
    object_size: int
    fewest_objects: int = 1

    def __init__(
        self,
        image_size: int | tuple[int, int],
        max_objects: int,
        min_objects: int,
        num_scenes: int | None = None,
        seed: int = 0,
        value_range: tuple[float, float] = (0.0, 1.0),
    ) -> None:
        self.image_size = height_and_width(image_size)
        self.min_objects = whole("min_objects", min_objects, least=self.fewest_objects)
        self.max_objects = whole("max_objects", max_objects, least=max(1, self.min_objects))
        self.num_scenes = None if num_scenes is None else whole("num_scenes", num_scenes)
        self.seed = whole("seed", seed, least=None)
        self.value_range = two_numbers(value_range)
        self._records: Records | None = None

    @abstractmethod
    def sample(self, n: int, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Sample ``n`` scenes: images uint8 ``[n, 3, H, W]``, targets ``[n, M, P]`` and masks uint8 ``[n, H, W]``."""

    @abstractmethod
    def drawing_options(self) -> list[Any]:
        """Return all options except the size that the images depend on, with a version of the rendering."""

    @property
    def endless(self) -> bool:
        """True if new scenes are rendered for every batch: without ``num_scenes``."""
        return self.num_scenes is None

    def draw(self, n: int, generator: torch.Generator | None = None) -> SetBatch:
        """Return ``n`` new examples."""
        images, targets, masks = self.sample(n, generator)
        return SetBatch(self._floats(images), targets, masks)

    def batch(self, indices: Sequence[int]) -> SetBatch:
        """Return the examples of the file with these indices."""
        self.prepare()
        assert self._records is not None
        records = self._records[[range(len(self))[int(index)] for index in indices]]
        image, mask, target = (torch.from_numpy(np.ascontiguousarray(records[name])) for name in _FIELDS)
        return SetBatch(self._floats(image), target, mask)

    def prepare(self) -> None:
        """Render the scenes of the file, unless they are cached."""
        if self.num_scenes is not None and self._records is None:
            height, width = self.image_size
            shapes = ((3, height, width), (height, width), (self.max_objects, self.object_size))
            dtype = np.dtype([*zip(_FIELDS, ("u1", "u1", "<f4"), shapes, strict=True)])
            key = hashlib.sha256(json.dumps(self.drawing_options()).encode()).hexdigest()[:16]
            self._records = Records(
                cache_dir() / f"{self.file_name}-{height}x{width}-{self.num_scenes}-{key}.npy",
                dtype,
                self.num_scenes,
                lambda: with_progress(self._chunks(dtype), len(self), "drawing scenes"),
            )

    def __len__(self) -> int:
        if self.num_scenes is None:
            raise TypeError(
                f"Endless {type(self).__name__} have no length and no indices: use draw(), or set num_scenes."
            )
        return self.num_scenes

    def _chunks(self, dtype: np.dtype[Any]) -> Iterator[npt.NDArray[np.void]]:
        """Yield the scenes of the file. The first scenes do not depend on the number of scenes."""
        assert self.num_scenes is not None
        for number, start in enumerate(range(0, self.num_scenes, CHUNK_SCENES)):
            generator = torch.Generator().manual_seed(derive_seed(self.seed, number))
            chunk = np.empty(CHUNK_SCENES, dtype)
            chunk["image"], chunk["target"], chunk["mask"] = (
                part.numpy() for part in self.sample(CHUNK_SCENES, generator)
            )
            yield chunk[: self.num_scenes - start]


def target_rows(columns: Sequence[Tensor], real: Tensor) -> Tensor:
    """Rows of targets ``[B, M, P]`` from columns ``[B, M, p]``; padding is 0, the last number of an object 1."""
    return torch.cat([column.float() for column in (*columns, real[..., None])], dim=-1) * real[..., None]
