"""Decoding of image files and arrays to pixels, with cropping and resizing."""

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
import torch
from PIL import Image, ImageColor, ImageOps
from torch import Tensor

from unknot.arguments import height_and_width
from unknot.datamodules.grid import Bytes

EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
Crop = Literal["fit", "none"] | tuple[int, int]


def load_image(
    path: Path | IO[bytes], mode: str | None = "RGB", background: str = "white", draft: tuple[int, int] | None = None
) -> Image.Image:
    """Load one image file: upright, with 8 bits per channel and transparent parts over ``background``.

    Args:
        path: path of the file, or the open file.
        mode: Pillow's mode, ``"RGB"`` or ``"L"``; ``None`` keeps channels and transparency.
        background: a colour, by name or as ``#rrggbb``.
        draft: size that is sufficient: JPEGs decode faster at reduced size.
    """
    with Image.open(path) as image:
        if draft is not None:
            image.draft(None, draft)
        upright = ImageOps.exif_transpose(image)
        upright.load()
    return upright if mode is None else convert(upright, mode, background)


def convert(image: Image.Image, mode: str, background: str = "white") -> Image.Image:
    """Convert an image to another mode; transparent parts show ``background``, 16 bits are scaled to 8."""
    if image.mode[0] == "I":  # Pillow clips instead of scaling
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if "A" in image.getbands() or "transparency" in image.info:
        over = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", over.size, background), over)
    return image.convert(mode)


def fit_image(image: Image.Image, size: tuple[int, int], crop: Crop) -> Bytes:
    """Crop and resize a grey or RGB image: uint8 ``[C, H, W]``."""
    height, width = size
    across, down = image.size
    if crop == "fit":
        scale = min(across / width, down / height)
        part = (height * scale, width * scale)
    else:
        part = (down, across) if crop == "none" else crop
    left, top = (across - part[1]) / 2, (down - part[0]) / 2
    if min(left, top) < 0:
        raise ValueError(f"{across} x {down} pixels, too small to crop {part[1]} x {part[0]}")
    box = (left, top, left + part[1], top + part[0])
    pixels = np.asarray(image.resize((width, height), box=box))
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


def read_image(
    file: Path | bytes | Image.Image, size: tuple[int, int], crop: Crop, grayscale: bool, background: str
) -> Bytes:
    """Read a path, the bytes of a file or a Pillow image as uint8 ``[C, H, W]``, upright, cropped and resized."""
    mode = "L" if grayscale else "RGB"
    if isinstance(file, Image.Image):
        return fit_image(convert(file, mode, background), size, crop)
    if not isinstance(file, Path | bytes):
        raise ValueError("no image here" if file is None else f"a {type(file).__name__} and not an image file")
    draft = (2 * max(size),) * 2 if isinstance(crop, str) else None
    return fit_image(
        load_image(io.BytesIO(file) if isinstance(file, bytes) else file, mode, background, draft), size, crop
    )


def fit_tensor(images: Tensor, size: tuple[int, int], crop: Crop) -> Tensor:
    """Crop and resize images ``[N, C, H, W]``."""
    from torchvision.transforms.v2 import functional as transforms  # slow to import

    height, width = images.shape[2:]
    if (height, width) == size and isinstance(crop, str):
        return images
    if crop == "fit":
        scale = min(height / size[0], width / size[1])
        part = [round(size[0] * scale), round(size[1] * scale)]
    else:
        part = [height, width] if crop == "none" else list(crop)
    if part[0] > height or part[1] > width:
        raise ValueError(f"Images of {height} x {width} are too small to crop {part[0]} x {part[1]}.")
    resized = transforms.resize(transforms.center_crop(images, part), list(size), antialias=True)
    return resized if resized.dtype == torch.uint8 else resized.clamp(0, 1)


def as_frames(images: object, name: str) -> Tensor:
    """Convert images to ``[N, C, H, W]``, uint8 or float32 in [0, 1]."""
    expected = "expected [N, C, H, W] or [N, H, W, C] with 1 to 4 channels, uint8 or floats in [0, 1]"
    try:
        tensor = torch.as_tensor(np.ascontiguousarray(images) if isinstance(images, np.ndarray) else images)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(
            f"{name} is of type {type(images).__name__}; {expected}; or a folder, files, "
            "parquet, webdataset shards, a data set or a DataFrame."
        ) from None
    shape = list(tensor.shape)
    if tensor.ndim == 4 and shape[1] not in (1, 3) and shape[3] in (1, 3, 4):
        tensor = tensor.permute(0, 3, 1, 2).contiguous()
    fits = tensor.ndim == 4 and 1 <= tensor.shape[1] <= 4 and tensor.numel()
    if not fits or not (tensor.dtype == torch.uint8 or tensor.is_floating_point()):
        raise ValueError(f"{name} is {tensor.dtype} of shape {shape}; {expected}.")
    if tensor.dtype == torch.uint8:
        return tensor
    low, high = torch.aminmax(tensor)
    if not (low >= 0 and high <= 1):
        raise ValueError(f"{name} has values from {low:.4g} to {high:.4g}; {expected}: divide by 255?")
    return tensor.float()


def to_gray(images: Tensor) -> Tensor:
    """Convert RGB images to grey ``[N, 1, H, W]``; further channels are ignored."""
    from torchvision.transforms.v2 import functional as transforms  # slow to import

    return images if images.shape[1] == 1 else transforms.rgb_to_grayscale(images[:, :3])


def image_files(folder: Path, below: bool = False) -> list[Path]:
    """Return the images of a folder, optionally with all subfolders, in natural order; hidden files are ignored."""
    entries = folder.rglob("*") if below else folder.iterdir()
    paths = [path.relative_to(folder) for path in entries if path.suffix.lower() in EXTENSIONS]
    shown = (path for path in paths if not any(part.startswith(".") for part in path.parts))
    return [folder / path for path in sorted(shown, key=lambda path: [natural_order(part) for part in path.parts])]


def natural_order(name: str) -> list[tuple[int, str]]:
    """Return a sort key that puts frame2 before frame10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]


def check_crop(crop: Any) -> Crop:
    """Check a crop: ``"fit"``, ``"none"`` or (height, width)."""
    if crop == "fit" or crop == "none":
        return "fit" if crop == "fit" else "none"
    return height_and_width(crop, "crop", also="'fit', 'none' or ")


def check_background(color: str) -> str:
    """Check that Pillow knows a colour."""
    try:
        ImageColor.getrgb(color)
    except (ValueError, AttributeError, TypeError):
        raise ValueError(f"background must be a colour such as 'white' or '#336699', got {color!r}.") from None
    return color


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Convert any error of Pillow's decoders into a message that names the file."""
    try:
        yield
    except Exception as error:  # decoders raise many kinds of errors
        raise ValueError(f"{path}: not a readable image ({error}). Repair it, copy it again, or remove it.") from None
