"""Layouts of scenes of simple solids, their sets of 19 numbers per object, and the base class of scene data sets."""

import dataclasses
import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from unknot.clevr_objects import CLASSES, REACH
from unknot.datamodules.factors import Licensed
from unknot.datamodules.scenes.raycast import Camera, look_at, project

FRAME = (320, 480)  # height and width of the original images
CAMERA = (7.4811, -6.5076, 5.3437)
LAMPS = ((6.4467, -2.9052, 4.2584), (-4.6711, -4.0136, 3.0112), (-1.1685, 2.6460, 5.8157))  # key, fill and back lamp
RADII = (0.35, 0.7)  # radius of small and large objects; half the side of a cube
LENS = 35 / 32  # focal length in sensor widths


class Property(NamedTuple):
    """Property of objects: its columns in a row of targets.

    Args:
        name: name of the property.
        start: first column.
        stop: column after the last one.
        kind: ``"class"`` for one-hot classes, ``"number"`` for one or several numbers.
    """

    name: str
    start: int
    stop: int
    kind: Literal["class", "number"]


CLEVR_PROPERTIES = (
    Property("coords", 0, 3, "number"),
    Property("size", 3, 5, "class"),
    Property("material", 5, 7, "class"),
    Property("shape", 7, 10, "class"),
    Property("color", 10, 18, "class"),
)


class SetBatch(NamedTuple):
    """Batch of images, the sets of objects in them, and the object that each pixel shows.

    Args:
        images: float32 ``[B, 3, H, W]``.
        targets: float32 ``[B, max_objects, P]``, a row of properties for each object, of which the last one is 1 for a
            real object and 0 for padding; for CLEVR P is 19, see :meth:`Scenes.targets`.
        masks: uint8 ``[B, H, W]``: 0 is background, i + 1 the object of row i; ``None`` without masks.
    """

    images: Tensor
    targets: Tensor
    masks: Tensor | None


@dataclass(frozen=True)
class Scenes:
    """Layouts of B scenes with up to M objects: all data needed to render them.

    Args:
        coords: centres of the objects ``[B, M, 3]``; z is up and the ground is z = 0.
        size: class, int64 ``[B, M]``: small or large.
        material: class, int64 ``[B, M]``: rubber or metal.
        shape: class, int64 ``[B, M]``: cube, sphere or cylinder.
        color: class, int64 ``[B, M]``: gray, blue, brown, yellow, red, green, purple or cyan.
        rotation: rotation about the vertical, in radians ``[B, M]``. (CLEVR draws it from 0 to 360 and then treats it
            as radians.)
        real: whether a row is an object or padding, bool ``[B, M]``.
        camera: positions ``[B, 3]`` of cameras that look at the origin; by default CLEVR's without jitter.
        lamps: positions of key, fill and back lamp ``[B, 3, 3]``; by default CLEVR's without jitter.
    """

    coords: Tensor
    size: Tensor
    material: Tensor
    shape: Tensor
    color: Tensor
    rotation: Tensor
    real: Tensor
    camera: Tensor = None  # type: ignore[assignment]
    lamps: Tensor = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        if self.coords.ndim != 3 or self.coords.shape[-1] != 3:
            raise ValueError(f"coords must have shape [B, M, 3], got {list(self.coords.shape)}.")
        b, m, _ = self.coords.shape
        if self.camera is None:
            object.__setattr__(self, "camera", torch.tensor(CAMERA).expand(b, 3))
        if self.lamps is None:
            object.__setattr__(self, "lamps", torch.tensor(LAMPS).expand(b, 3, 3))
        for field in dataclasses.fields(self)[1:]:
            expected = {"camera": [b, 3], "lamps": [b, 3, 3]}.get(field.name, [b, m])
            shape = getattr(self, field.name).shape
            if list(shape) != expected:
                raise ValueError(f"{field.name} must have shape {expected}, got {list(shape)}.")
        for field in dataclasses.fields(self):
            kind = torch.int64 if field.name in CLASSES else torch.bool if field.name == "real" else torch.float32
            object.__setattr__(self, field.name, getattr(self, field.name).to(kind))
        for name, classes in CLASSES.items():
            values = getattr(self, name)[self.real]
            if values.numel() and not (values.min() >= 0 and values.max() < len(classes)):
                raise ValueError(f"{name} must be a class from 0 to {len(classes) - 1} ({', '.join(classes)}).")
        if not torch.isfinite(self.coords[self.real]).all():
            raise ValueError("coords of objects must be finite numbers.")

    def __len__(self) -> int:
        return len(self.coords)

    def __getitem__(self, index: Any) -> "Scenes":
        """Return some of the scenes: a slice, a list or a tensor of indices or booleans."""
        return Scenes(*(getattr(self, field.name)[index] for field in dataclasses.fields(self)))

    @staticmethod
    def cat(parts: Sequence["Scenes"]) -> "Scenes":
        """Concatenate scenes, which must have the same padding."""
        return Scenes(*(torch.cat([getattr(p, field.name) for p in parts]) for field in dataclasses.fields(Scenes)))

    def view(self, frame: tuple[int, int] = FRAME) -> Camera:
        """Return the cameras for an image that shows a frame of this height and width, possibly resized."""
        return look_at(self.camera, focal=(LENS, LENS * frame[1] / frame[0]))

    def targets(self, max_objects: int | None = None) -> Tensor:
        """Return the sets to predict, padded with rows of zeros: float32 ``[B, max_objects, 19]``.

        A row is (x + 3, y + 3, z + 3) / 6 | size 2 | material 2 | shape 3 | color 8 | 1 for a real object: slices 0:3,
        3:5, 5:7, 7:10, 10:18 and 18, classes one-hot in the order of :data:`CLASSES`.
        """
        width = self.real.shape[1]
        max_objects = width if max_objects is None else max_objects
        if max_objects < width and self.real[:, max_objects:].any():
            raise ValueError(f"Some scenes have more than {max_objects} objects; raise max_objects or leave them out.")
        one_hot = [
            torch.nn.functional.one_hot(torch.where(self.real, getattr(self, name), 0), len(classes))
            for name, classes in CLASSES.items()
        ]
        rows = torch.cat(
            [(self.coords + REACH) / (2 * REACH), *one_hot, torch.ones_like(self.rotation)[..., None]], dim=-1
        )
        rows = torch.where(self.real[..., None], rows, 0.0)[:, :max_objects]
        return torch.nn.functional.pad(rows, (0, 0, 0, max_objects - rows.shape[1]))

    @staticmethod
    def from_annotations(
        scenes: Sequence[Mapping[str, Any]], frame: tuple[int, int] = FRAME, origin: str = "scenes"
    ) -> "Scenes":
        """Read layouts from scenes in CLEVR's JSON format.

        The camera of each scene is estimated from the ``pixel_coords`` of its objects. The lamps are not annotated:
        they have CLEVR's positions without jitter.

        Args:
            scenes: dictionaries with a list of ``objects``, each with ``3d_coords``, ``size``, ``material``, ``shape``
                and ``color``, and optionally ``rotation`` and ``pixel_coords``.
            frame: height and width of the images that ``pixel_coords`` refers to.
            origin: source of the scenes, for error messages.
        """
        b, m = len(scenes), max((len(objects_of(scene, i, origin)) for i, scene in enumerate(scenes)), default=0)
        coords, pixels = np.zeros((b, m, 3)), np.full((b, m, 3), np.nan)
        rotation, real = np.zeros((b, m), dtype=np.float32), np.zeros((b, m), dtype=bool)
        classes = {name: np.zeros((b, m), dtype=np.int64) for name in CLASSES}
        for i, scene in enumerate(scenes):
            for j, thing in enumerate(objects_of(scene, i, origin)):
                where = f"{origin}: scene {_name(scene, i)}, object {j}"
                try:
                    coords[i, j] = _numbers(thing["3d_coords"], 3)
                    rotation[i, j] = _numbers([thing.get("rotation", 0.0)], 1)[0]
                    if "pixel_coords" in thing:
                        pixels[i, j] = _numbers(thing["pixel_coords"], 3)
                    for name, allowed in CLASSES.items():
                        if thing[name] not in allowed:
                            raise ValueError(f"{name} {thing[name]!r} is not one of {', '.join(allowed)}")
                        classes[name][i, j] = allowed.index(thing[name])
                except KeyError as error:
                    raise ValueError(f"{where}: {error.args[0]!r} is missing.") from None
                except (TypeError, ValueError, AttributeError) as error:
                    raise ValueError(f"{where}: {error}.") from None
                real[i, j] = True
        return Scenes(
            torch.from_numpy(coords.astype(np.float32)),
            **{name: torch.from_numpy(values) for name, values in classes.items()},
            rotation=torch.from_numpy(rotation),
            real=torch.from_numpy(real),
            camera=fit_camera(torch.from_numpy(coords), torch.from_numpy(pixels), frame),
        )

    def annotations(self, frame: tuple[int, int] = FRAME, split: str = "train") -> list[dict[str, Any]]:
        """Return the scenes in CLEVR's JSON format, without ``relationships``, as :class:`CLEVR` reads it."""
        pixels = project(self.view(frame), self.coords, frame)
        return [
            {
                "split": split,
                "image_index": i,
                "image_filename": f"CLEVR_{split}_{i:06d}.png",
                "objects": [
                    {name: allowed[int(getattr(self, name)[i, j])] for name, allowed in CLASSES.items()}
                    | {
                        "3d_coords": self.coords[i, j].tolist(),
                        "rotation": float(self.rotation[i, j]),
                        "pixel_coords": [*pixels[i, j, :2].round().int().tolist(), float(pixels[i, j, 2])],
                    }
                    for j in self.real[i].nonzero()[:, 0].tolist()
                ],
            }
            for i in range(len(self))
        ]


def _name(scene: Mapping[str, Any], number: int) -> str:
    return str(scene.get("image_filename", number))


def objects_of(scene: Mapping[str, Any], number: int, origin: str) -> list[Mapping[str, Any]]:
    """Return the objects of a scene in CLEVR's JSON format, or raise an error if they are missing."""
    objects = scene.get("objects") if isinstance(scene, Mapping) else None
    if not isinstance(objects, list):
        raise ValueError(f"{origin}: scene {number} has no list of objects.")
    return objects


def _numbers(values: Any, count: int) -> list[float]:
    numbers = [float(value) for value in values]
    if len(numbers) != count or not all(map(math.isfinite, numbers)):
        raise ValueError(f"expected {count} finite numbers, got {values!r}")
    return numbers


def fit_camera(coords: Tensor, pixel_coords: Tensor, frame: tuple[int, int] = FRAME) -> Tensor:
    """Estimate the positions ``[B, 3]`` of cameras that see points ``[B, M, 3]`` at (column, row, depth) ``[B, M, 3]``.

    Least squares by Gauss-Newton, starting at CLEVR's camera without jitter and staying within 1 of it on each axis,
    twice the jitter. Points with NaN are ignored; a scene without points keeps that camera.
    """
    seen = torch.isfinite(pixel_coords).all(-1, keepdim=True)
    coords, pixel_coords = coords.double(), torch.where(seen, pixel_coords.double(), 0.0)
    # Columns and rows are rounded to whole pixels, depth is not. The last rows constrain the camera if points do not.
    weight = torch.tensor([1.0, 1.0, 100.0], dtype=torch.float64) * seen
    start = torch.tensor(CAMERA, dtype=torch.float64)
    focal = (LENS, LENS * frame[1] / frame[0])

    def residual(position: Tensor) -> Tensor:
        projected = project(look_at(position, focal=focal), coords, frame)
        return torch.cat([((projected - pixel_coords) * weight).flatten(1), 1e-3 * (position - start)], dim=1)

    position = start.expand(len(coords), 3)
    for _ in range(6):
        rows = residual(position)
        steps = 1e-6 * torch.eye(3, dtype=torch.float64)
        jacobian = torch.stack([(residual(position + step) - rows) / 1e-6 for step in steps], dim=-1)
        update, _ = torch.linalg.solve_ex(jacobian.mT @ jacobian, jacobian.mT @ rows[..., None])
        position = (position - update[..., 0].nan_to_num(0.0)).clamp(start - 1, start + 1)
    return position.float()


Crop = tuple[int, int, int, int]
"""Top, bottom, left and right, in pixels."""


def check_crop(crop: Any, frame: tuple[int, int]) -> Crop | None:
    """Return a crop within images of this (height, width), or ``None`` for none."""
    if crop is None:
        return None
    try:
        top, bottom, left, right = map(operator.index, crop)
        if not (0 <= top < bottom <= frame[0] and 0 <= left < right <= frame[1]):
            raise ValueError
    except (TypeError, ValueError):
        raise ValueError(
            f"crop must be four whole numbers (top, bottom, left, right) within images of {frame[0]} x {frame[1]}, "
            f"got {crop!r}."
        ) from None
    return top, bottom, left, right


def cropped(images: Tensor, crop: Crop | None) -> Tensor:
    """Part of images ``[..., H, W]`` that a crop shows."""
    return images if crop is None else images[..., crop[0] : crop[1], crop[2] : crop[3]]


class SceneDataset(Licensed, Dataset[SetBatch]):
    """Data set of images with sets of objects.

    Subclasses define ``image_size`` (height, width), ``max_objects``, ``value_range`` and ``properties``, the columns
    of targets. They implement ``__len__`` and :meth:`batch` or, if ``endless``, :meth:`draw`.
    """

    name: str
    image_size: tuple[int, int]
    max_objects: int
    value_range: tuple[float, float] = (0.0, 1.0)
    properties: tuple[Property, ...] = ()

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(channels, height, width) of the images."""
        return (3, *self.image_size)

    @property
    def endless(self) -> bool:
        """True if new examples are drawn for every batch, False for a fixed number of examples."""
        return False

    def draw(self, n: int, generator: torch.Generator | None = None) -> SetBatch:
        """Return ``n`` new examples of a data set that is ``endless``."""
        raise NotImplementedError

    def prepare(self) -> None:
        """Do slow preparation once, on disk, so that later starts are fast."""

    def batch(self, indices: Sequence[int]) -> SetBatch:
        """Return the examples with these indices."""
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError

    def __repr__(self) -> str:
        count = "endless images" if self.endless else f"{len(self):,} images"
        shape = " x ".join(map(str, self.image_shape))
        return f"{type(self).__name__}({count} of {shape}; up to {self.max_objects} objects)"

    def __getitem__(self, index: int) -> SetBatch:
        images, targets, masks = self.batch([range(len(self))[index]])
        return SetBatch(images[0], targets[0], None if masks is None else masks[0])

    def _floats(self, images: Tensor) -> Tensor:
        """Convert uint8 images to floats in ``value_range``."""
        low, high = self.value_range
        return images * ((high - low) / 255) + low
