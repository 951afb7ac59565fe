"""CLEVR from its original folder."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unknot.arguments import height_and_width, two_numbers, whole
from unknot.datamodules.grid import Records, fingerprint, with_progress
from unknot.datamodules.own.decode import load_image, naming
from unknot.datamodules.scenes.layout import (
    CLEVR_PROPERTIES,
    SceneDataset,
    Scenes,
    SetBatch,
    check_crop,
    cropped,
    objects_of,
)
from unknot.files import cache_dir

DISCOVERY_CROP = (29, 221, 64, 256)
"""Crop of the reference's object discovery (top, bottom, left, right) for images of 240 x 320."""


class CLEVR(SceneDataset):
    """CLEVR from its original folder: ``images/<split>/*.png`` and ``scenes/CLEVR_<split>_scenes.json``.

    The whole frame is resized to ``image_size``, as in the reference implementation of Slot Attention for set
    prediction, unless ``crop`` selects a part.

    Args:
        root: the folder ``CLEVR_v1.0`` of the published archive.
        split: ``"train"`` or ``"val"``; ``"test"`` was published without scenes.
        max_objects: maximum number of objects, and number of rows of every target: 10 is all of CLEVR, 6 is CLEVR6.
        image_size: (height, width) of the images, or one number for both.
        value_range: values of black and white; (-1, 1) in the reference.
        antialias: average pixels when shrinking. ``False`` reproduces the reference.
        crop: (top, bottom, left, right) in pixels, of images and masks, before they are resized.
            :data:`DISCOVERY_CROP`, (29, 221, 64, 256), is the crop of the reference's object discovery for CLEVR with
            masks, whose images have 240 x 320 pixels. Targets keep the objects outside of it.
        masks: also read ``masks/<split>/``, PNG files named like the images with values 0 for background and i + 1 for
            object i of the scene. ``None`` reads them if the folder exists. (The published archive has none;
            ``draw_scenes(dataset.scenes)`` renders them from the layouts.)
        skip_missing: leave out scenes without an image and images without a scene; otherwise they are an error.
        cached: decode and resize all images once, into a memory-mapped file in the cache.

    >>> dataset = CLEVR("CLEVR_v1.0", split="val", max_objects=6, image_size=64)  # doctest: +SKIP
    >>> images, targets, masks = dataset.batch([0, 1, 2])  # doctest: +SKIP
    """

    name = "clevr"
    properties = CLEVR_PROPERTIES
    license = "CC BY 4.0"
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
        crop: tuple[int, int, int, int] | None = None,
    ) -> None:
        self.root, self.split = Path(root), split
        self.max_objects = whole("max_objects", max_objects)
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
            if name in there and len(objects_of(scene, number, str(listing))) <= self.max_objects
        ]
        if not kept:
            raise ValueError(f"{listing}: no scene with at most {self.max_objects} objects and an image in {folder}.")
        self.paths = [folder / str(scene["image_filename"]) for scene in kept]
        with naming(self.paths[0]):
            first = load_image(self.paths[0])
        self.frame = (first.height, first.width)
        self.crop = check_crop(crop, self.frame)
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
        """Return the examples with these indices."""
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
        """If ``cached``, decode and resize all images, unless they are cached."""
        if self.cached and self._records is None:
            height, width = self.image_size
            dtype = np.dtype(
                [("image", "u1", (3, height, width)), ("mask", "u1", (height, width) if self.masks else (0, 0))]
            )
            key = fingerprint([*self.paths, *self.mask_paths], self.antialias, *([self.crop] if self.crop else []))
            rows = (np.array([tuple(part.numpy() for part in self._read(i))], dtype) for i in range(len(self)))
            self._records = Records(
                cache_dir() / f"clevr-{self.split}-{height}x{width}-{key}.npy",
                dtype,
                len(self),
                lambda: with_progress(rows, len(self), f"converting CLEVR {self.split}"),
            )

    def _read(self, number: int) -> tuple[Tensor, Tensor]:
        """Return one image, uint8 ``[3, H, W]``, and its mask ``[H, W]``, or an empty tensor without masks."""
        with naming(self.paths[number]):
            pixels = torch.from_numpy(np.array(load_image(self.paths[number])))
        image = torch.nn.functional.interpolate(
            cropped(pixels.permute(2, 0, 1)[None], self.crop).float(),
            self.image_size,
            mode="bilinear",
            antialias=self.antialias,
        )[0]
        image = image.round().clamp(0, 255).to(torch.uint8)
        if not self.masks:
            return image, torch.empty(0, 0, dtype=torch.uint8)
        path = self.mask_paths[number]
        with naming(path):
            ids = torch.from_numpy(np.array(load_image(path, mode=None)))
        objects = int(self.scenes.real[number].sum())
        if ids.ndim != 2 or ids.dtype not in (torch.uint8, torch.bool) or int(ids.max()) > objects:
            raise ValueError(
                f"{path}: not a mask of this scene; expected one 8-bit channel with values from 0 to {objects}."
            )
        ids = cropped(ids[None, None], self.crop).to(torch.uint8)
        return image, torch.nn.functional.interpolate(ids, self.image_size, mode="nearest-exact")[0, 0]


def read_annotations(path: Path) -> list[dict[str, Any]]:
    """Read the scenes of a CLEVR file ``scenes/*.json``."""
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
