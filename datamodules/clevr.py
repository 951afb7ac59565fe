"""CLEVR: scenes of simple solids, their description as sets of 19 numbers per object, and the original folder."""

import dataclasses
import json
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset
from tqdm.auto import tqdm

from unknot._files import cache_dir, replacing
from unknot.datamodules.arguments import at_least, height_and_width, two_numbers
from unknot.datamodules.download import one_at_a_time
from unknot.datamodules.grid import fingerprint
from unknot.datamodules.raycast import Camera, look_at, project

SIZES = ("small", "large")
MATERIALS = ("rubber", "metal")
SHAPES = ("cube", "sphere", "cylinder")
COLORS = ("gray", "blue", "brown", "yellow", "red", "green", "purple", "cyan")
CLASSES = {"size": SIZES, "material": MATERIALS, "shape": SHAPES, "color": COLORS}
"""Attributes and their classes, in the order in which targets hold them."""

TARGET_SIZE = 3 + sum(map(len, CLASSES.values())) + 1
RADII = (0.35, 0.7)  # of small and large objects; half the side of a cube
FRAME = (320, 480)  # height and width of the original images
CAMERA = (7.4811, -6.5076, 5.3437)
LAMPS = ((6.4467, -2.9052, 4.2584), (-4.6711, -4.0136, 3.0112), (-1.1685, 2.6460, 5.8157))  # key, fill, back
LENS = 35 / 32  # focal length in widths of the sensor


class SetBatch(NamedTuple):
    """Images, the sets of objects in them, and which object each pixel shows.

    Args:
        images: float32 ``[B, 3, H, W]``.
        targets: float32 ``[B, max_objects, 19]``, see :meth:`Scenes.targets`.
        masks: uint8 ``[B, H, W]``: 0 is background, i + 1 the object of row i; ``None`` where there are none.
    """

    images: Tensor
    targets: Tensor
    masks: Tensor | None


@dataclass(frozen=True)
class Scenes:
    """Layouts of B scenes with up to M objects: all that is needed to draw them.

    Args:
        coords: centres of the objects ``[B, M, 3]``; z is up and the ground is z = 0.
        size: class of :data:`SIZES`, int64 ``[B, M]``.
        material: class of :data:`MATERIALS`, int64 ``[B, M]``.
        shape: class of :data:`SHAPES`, int64 ``[B, M]``.
        color: class of :data:`COLORS`, int64 ``[B, M]``.
        rotation: about the vertical, in radians ``[B, M]``. (CLEVR draws it from 0 to 360 and then takes it for
            radians.)
        real: which rows are objects, bool ``[B, M]``; the others are padding.
        camera: positions ``[B, 3]``; it looks at the origin. Left out: CLEVR's, without its jitter.
        lamps: positions of key, fill and back lamp ``[B, 3, 3]``. Left out: CLEVR's, without their jitter.
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
            wanted = {"camera": [b, 3], "lamps": [b, 3, 3]}.get(field.name, [b, m])
            if list(getattr(self, field.name).shape) != wanted:
                raise ValueError(f"{field.name} must have shape {wanted}, got {list(getattr(self, field.name).shape)}.")
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
        """Some of the scenes: a slice, a list or a tensor of numbers or booleans."""
        return Scenes(*(getattr(self, field.name)[index] for field in dataclasses.fields(self)))

    @staticmethod
    def cat(parts: Sequence["Scenes"]) -> "Scenes":
        """The scenes of all parts, which must be padded alike."""
        return Scenes(*(torch.cat([getattr(p, field.name) for p in parts]) for field in dataclasses.fields(Scenes)))

    def view(self, frame: tuple[int, int] = FRAME) -> Camera:
        """The cameras, for an image that shows, perhaps squeezed, a frame of this height and width."""
        return look_at(self.camera, focal=(LENS, LENS * frame[1] / frame[0]))

    def targets(self, max_objects: int | None = None) -> Tensor:
        """The sets to predict, padded with rows of zeros: float32 ``[B, max_objects, 19]``.

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
        rows = torch.cat([(self.coords + 3) / 6, *one_hot, torch.ones_like(self.rotation)[..., None]], dim=-1)
        rows = torch.where(self.real[..., None], rows, 0.0)[:, :max_objects]
        return torch.nn.functional.pad(rows, (0, 0, 0, max_objects - rows.shape[1]))

    @staticmethod
    def from_annotations(
        scenes: Sequence[Mapping[str, Any]], frame: tuple[int, int] = FRAME, origin: str = "scenes"
    ) -> "Scenes":
        """Layouts of scenes as CLEVR's JSON describes them.

        The camera of each scene is found again from the ``pixel_coords`` of its objects. The lamps are not annotated:
        they stay where CLEVR puts them before its jitter.

        Args:
            scenes: with a list of ``objects``, each with ``3d_coords``, ``size``, ``material``, ``shape`` and
                ``color``, and perhaps ``rotation`` and ``pixel_coords``.
            frame: height and width of the images that ``pixel_coords`` refers to.
            origin: what error messages say that the scenes are from.
        """
        b, m = len(scenes), max((len(_objects(scene, i, origin)) for i, scene in enumerate(scenes)), default=0)
        coords, pixels = np.zeros((b, m, 3)), np.full((b, m, 3), np.nan)
        rotation, real = np.zeros((b, m), dtype=np.float32), np.zeros((b, m), dtype=bool)
        classes = {name: np.zeros((b, m), dtype=np.int64) for name in CLASSES}
        for i, scene in enumerate(scenes):
            for j, thing in enumerate(_objects(scene, i, origin)):
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
        """The scenes as CLEVR's JSON describes them, without ``relationships``: what :class:`CLEVR` reads."""
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


def _objects(scene: Mapping[str, Any], number: int, origin: str) -> list[Mapping[str, Any]]:
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
    """Positions of the cameras that see points ``[B, M, 3]`` at (column, row, depth) ``[B, M, 3]``: ``[B, 3]``.

    Least squares by Gauss-Newton, from CLEVR's camera without jitter and never further from it than 1 on each axis,
    which is twice the jitter. Points with a NaN do not count; a scene without any keeps that camera.
    """
    seen = torch.isfinite(pixel_coords).all(-1, keepdim=True)
    coords, pixel_coords = coords.double(), torch.where(seen, pixel_coords.double(), 0.0)
    # Columns and rows are rounded to whole pixels, depth is not. The last rows hold the camera where points do not.
    weight = torch.tensor([1.0, 1.0, 100.0], dtype=torch.float64) * seen
    start = torch.tensor(CAMERA, dtype=torch.float64)
    focal = (LENS, LENS * frame[1] / frame[0])

    def residual(position: Tensor) -> Tensor:
        found = project(look_at(position, focal=focal), coords, frame)
        return torch.cat([((found - pixel_coords) * weight).flatten(1), 1e-3 * (position - start)], dim=1)

    position = start.expand(len(coords), 3)
    for _ in range(6):
        rows = residual(position)
        steps = 1e-6 * torch.eye(3, dtype=torch.float64)
        jacobian = torch.stack([(residual(position + step) - rows) / 1e-6 for step in steps], dim=-1)
        update, _ = torch.linalg.solve_ex(jacobian.mT @ jacobian, jacobian.mT @ rows[..., None])
        position = (position - update[..., 0].nan_to_num(0.0)).clamp(start - 1, start + 1)
    return position.float()


class SceneDataset(Dataset[SetBatch]):
    """Images with sets of objects.

    Subclasses have ``image_size`` (height, width), ``max_objects`` and ``value_range``. They either implement
    ``__len__`` and :meth:`batch`, or are ``endless`` and implement :meth:`draw`.
    """

    name: ClassVar[str]
    licence: ClassVar[str] = "unknown"
    image_size: tuple[int, int]
    max_objects: int
    value_range: tuple[float, float]
    endless: bool = False

    def draw(self, n: int, generator: torch.Generator | None = None) -> SetBatch:
        """``n`` new examples, of a data set that is ``endless``."""
        raise NotImplementedError

    def prepare(self) -> None:
        """Do the slow work once, on disk, so that every later start is quick."""

    def batch(self, indices: Sequence[int]) -> SetBatch:
        """The examples of these numbers."""
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError

    def __getitem__(self, index: int) -> SetBatch:
        images, targets, masks = self.batch([range(len(self))[index]])
        return SetBatch(images[0], targets[0], None if masks is None else masks[0])

    def _floats(self, images: Tensor) -> Tensor:
        """uint8 images to floats in ``value_range``."""
        low, high = self.value_range
        return images * ((high - low) / 255) + low


class CLEVR(SceneDataset):
    """CLEVR from its original folder: ``images/<split>/*.png`` and ``scenes/CLEVR_<split>_scenes.json``.

    The whole frame is squeezed to ``image_size``, as the reference implementation of Slot Attention does for set
    prediction.

    Args:
        root: the folder, ``CLEVR_v1.0`` in the published archive.
        split: ``"train"`` or ``"val"``; ``"test"`` was published without scenes.
        max_objects: leaves out scenes with more, and is the number of rows of every target: 10 is all of CLEVR, 6 is
            CLEVR6.
        image_size: (height, width) of the images, or one number for both.
        value_range: what black and white become; (-1, 1) in the reference.
        antialias: average over the pixels that shrink into one. The reference does not.
        masks: read ``masks/<split>/`` too, PNG files named as the images whose values are 0 for background and i + 1
            for object i of the scene. ``None`` reads them if the folder exists. (The published archive has none;
            ``draw_scenes(dataset.scenes)`` draws them from the layouts.)
        skip_missing: leave out scenes without an image and images without a scene, which are an error otherwise.
        cached: decode and resize all images once, into a memory-mapped file in the cache.

    >>> dataset = CLEVR("CLEVR_v1.0", split="val", max_objects=6, image_size=64)  # doctest: +SKIP
    >>> images, targets, masks = dataset.batch([0, 1, 2])  # doctest: +SKIP
    """

    name = "clevr"
    licence = "CC BY 4.0"
    url = "https://dl.fbaipublicfiles.com/clevr/CLEVR_v1.0.zip"

    def __init__(
        self,
        root: str | Path,
        split: str = "train",
        max_objects: int = 10,
        image_size: int | tuple[int, int] = 128,
        value_range: tuple[float, float] = (0.0, 1.0),
        antialias: bool = True,
        masks: bool | None = None,
        skip_missing: bool = False,
        cached: bool = False,
    ) -> None:
        self.root, self.split = Path(root), split
        self.max_objects = at_least(1, "max_objects", max_objects)
        self.image_size = height_and_width(image_size)
        self.value_range = two_numbers(value_range)
        self.antialias, self.cached = antialias, cached
        self._records: Records | None = None

        folder, listing = self.root / "images" / split, self.root / "scenes" / f"CLEVR_{split}_scenes.json"
        scenes = read_annotations(listing)
        if not folder.is_dir():
            raise FileNotFoundError(f"{folder}: no such folder; `root` must hold images/{split}/ of {self.url}.")
        names = [str(scene.get("image_filename")) for scene in scenes]
        there = {path.name for path in folder.iterdir() if path.suffix == ".png" and not path.name.startswith(".")}
        if not skip_missing:
            what = "or give skip_missing=True to leave it out."
            if absent := sorted(set(names) - there):
                more = f" (and {len(absent) - 1} more)" if absent[1:] else ""
                raise FileNotFoundError(f"{folder / absent[0]}: listed in {listing} but absent{more}; add it, {what}")
            if extra := sorted(there - set(names)):
                more = f" (and {len(extra) - 1} more)" if extra[1:] else ""
                raise ValueError(
                    f"{folder / extra[0]}: no scene in {listing} describes this image{more}; remove it, {what}"
                )
        kept = [
            scene
            for number, (scene, name) in enumerate(zip(scenes, names, strict=True))
            if name in there and len(_objects(scene, number, str(listing))) <= self.max_objects
        ]
        if not kept:
            raise ValueError(f"{listing}: no scene with at most {self.max_objects} objects and an image in {folder}.")
        self.paths = [folder / str(scene["image_filename"]) for scene in kept]
        self.frame = read_image(self.paths[0], lambda image: (image.height, image.width))
        self.scenes = Scenes.from_annotations(kept, self.frame, origin=str(listing))
        """Layouts of all scenes, in the order of the images."""
        self._targets = self.scenes.targets(self.max_objects)
        mask_folder = self.root / "masks" / split
        self.masks = mask_folder.is_dir() if masks is None else masks
        self.mask_paths = [mask_folder / path.name for path in self.paths] if self.masks else []
        if absent_masks := [path for path in self.mask_paths if not path.is_file()]:
            raise FileNotFoundError(f"{absent_masks[0]}: no such mask; add it, or give masks=False to go without.")

    def __len__(self) -> int:
        return len(self.paths)

    def batch(self, indices: Sequence[int]) -> SetBatch:
        """The examples of these numbers."""
        numbers = [range(len(self))[int(index)] for index in indices]
        if self.cached:
            self.prepare()
            assert self._records is not None
            records = self._records[numbers]
            images, masks = torch.from_numpy(records["image"]), torch.from_numpy(records["mask"])
        else:
            read = [self._read(number) for number in numbers]
            images, masks = (torch.stack(parts) for parts in zip(*read, strict=True))
        return SetBatch(self._floats(images), self._targets[numbers], masks if self.masks else None)

    def prepare(self) -> None:
        """With ``cached``: decode and resize all images, unless that was done before."""
        if self.cached and self._records is None:
            height, width = self.image_size
            dtype = np.dtype(
                [("image", "u1", (3, height, width)), ("mask", "u1", (height, width) if self.masks else (0, 0))]
            )
            key = fingerprint([*self.paths, *self.mask_paths], self.antialias)
            self._records = open_records(
                cache_dir() / f"clevr-{self.split}-{height}x{width}-{key}.npy",
                dtype,
                len(self),
                lambda: (np.array([tuple(t.numpy() for t in self._read(i))], dtype) for i in range(len(self))),
                desc=f"converting CLEVR {self.split}",
            )

    def _read(self, number: int) -> tuple[Tensor, Tensor]:
        """One image, uint8 ``[3, H, W]``, and its mask ``[H, W]``, or an empty tensor for none."""
        pixels = read_image(self.paths[number], lambda image: np.array(image.convert("RGB")))
        image = torch.nn.functional.interpolate(
            torch.from_numpy(pixels).permute(2, 0, 1)[None].float(),
            self.image_size,
            mode="bilinear",
            antialias=self.antialias,
        )[0]
        image = image.round().clamp(0, 255).to(torch.uint8)
        if not self.masks:
            return image, torch.empty(0, 0, dtype=torch.uint8)
        path = self.mask_paths[number]
        ids = torch.from_numpy(read_image(path, np.array))
        objects = int(self.scenes.real[number].sum())
        if ids.ndim != 2 or ids.dtype not in (torch.uint8, torch.bool) or int(ids.max()) > objects:
            raise ValueError(
                f"{path}: not a mask of this scene; expected one 8-bit channel with values from 0 to {objects}."
            )
        mask = torch.nn.functional.interpolate(ids[None, None].to(torch.uint8), self.image_size, mode="nearest-exact")
        return image, mask[0, 0]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_records": None}  # worker processes map the file again instead of copying it


def read_annotations(path: Path) -> list[dict[str, Any]]:
    """The scenes of one of CLEVR's ``scenes/*.json``."""
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{path}: no such file; without scenes there are no targets (the test split was published without)."
        ) from None
    except ValueError as error:
        raise ValueError(f"{path}: not whole JSON ({error}); copy or download it again.") from None
    scenes = content.get("scenes") if isinstance(content, dict) else None
    if not isinstance(scenes, list) or not all(isinstance(scene, dict) for scene in scenes):
        raise ValueError(f"{path}: not a file of CLEVR scenes; expected an object with a list 'scenes'.")
    for number, scene in enumerate(scenes):
        if not isinstance(scene.get("image_filename"), str):
            raise ValueError(f"{path}: scene {number} has no image_filename.")
    return scenes


def read_image(path: Path, get: Callable[[Image.Image], Any]) -> Any:
    """What ``get`` makes of the image, or an error with the name of the file."""
    try:
        with Image.open(path) as image:
            return get(image)
    except Exception as error:  # Pillow's decoders raise all kinds
        raise ValueError(f"{path}: not a readable image ({error}); copy or download it again.") from None


# Records of a fixed size in a memory-mapped .npy file.

Records = npt.NDArray[np.void]


def open_records(
    path: Path, dtype: np.dtype[Any], count: int, chunks: Callable[[], Iterable[Records]], desc: str
) -> Records:
    """Map a file of ``count`` records; make it from ``chunks()`` first where it is missing or not whole."""
    records = _map_records(path, dtype, count)
    if records is not None:
        return records
    with one_at_a_time(path):
        if (records := _map_records(path, dtype, count)) is not None:  # by the process that was waited for
            return records
        with replacing(path) as beside, beside.open("wb") as file:
            np.lib.format.write_array_header_1_0(
                file, {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": (count,)}
            )
            with tqdm(desc=desc, total=count, unit="image", disable=None, leave=False) as progress:
                for chunk in chunks():
                    file.write(chunk.tobytes())
                    progress.update(len(chunk))
            file.flush()
            os.fsync(file.fileno())
    records = _map_records(path, dtype, count)
    if records is None:
        raise OSError(f"{path} cannot be read back after writing it; is the disk full or failing?")
    return records


def _map_records(path: Path, dtype: np.dtype[Any], count: int) -> Records | None:
    try:
        records = np.lib.format.open_memmap(path, mode="r")
    except (OSError, ValueError):  # missing; or cut off, or something else altogether
        return None
    return records if records.shape == (count,) and records.dtype == dtype else None
