"""Drawings of predicted sets, of attention and of decompositions."""

from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from torch import Tensor

from unknot.clevr_objects import CLASSES, PARTS, REAL, RGB
from unknot.zoo.object_discovery import SlotAutoEncoder
from unknot.zoo.pictures import _save
from unknot.zoo.set_prediction import SetPredictor

MARKERS = {"cube": "s", "sphere": "o", "cylinder": "^"}
HUES = {name: tuple(channel / 255 for channel in rgb) for name, rgb in RGB.items()}


def describe_object(row: Tensor) -> dict[str, str]:
    """Translate the 19 numbers of an object into its attributes.

    >>> describe_object(torch.eye(19)[[3, 6, 8, 14]].sum(0))
    {'size': 'small', 'material': 'metal', 'shape': 'sphere', 'color': 'red'}
    """
    return {name: classes[int(row[PARTS[name]].argmax())] for name, classes in CLASSES.items()}


@torch.no_grad()
def draw_sets(model: SetPredictor, images: Tensor, targets: Tensor, path: str | Path) -> Path:
    """Write a PNG with images ``[B, C, H, W]`` above and floor plans of their scenes below.

    A plan shows the true objects as large, pale markers, and predicted objects with a confidence above one half as
    small markers with a black outline. Markers show shape, color and position; metal objects have a white dot.
    """
    sets = model(images.to(model.device)).cpu()
    figure = Figure(figsize=(2.2 * len(images), 4.9), layout="constrained")
    axes = figure.subplots(2, len(images), squeeze=False)
    for image, true, predicted, above, below in zip(images.cpu(), targets.cpu(), sets, *axes, strict=True):
        _show(above, image)
        for row in true[true[:, REAL] == 1]:
            _mark(below, row, area=170, alpha=0.4, linewidths=0)
        for row in predicted[predicted[:, REAL] > 0.5]:
            _mark(below, row, area=40, alpha=1.0, linewidths=0.8)
        below.set(xlim=(-4.5, 4.5), ylim=(-4.5, 4.5), aspect="equal", xticks=[], yticks=[])
        below.set_title(
            f"{int(true[:, REAL].sum())} objects, {int((predicted[:, REAL] > 0.5).sum())} predicted", fontsize=8
        )
    handles = [
        Line2D([], [], marker=marker, color="gray", linestyle="", markersize=6, label=shape)
        for shape, marker in MARKERS.items()
    ]
    handles.append(Line2D([], [], marker="o", color="gray", alpha=0.35, linestyle="", markersize=13, label="true"))
    handles.append(
        Line2D([], [], marker="o", color="gray", markeredgecolor="black", linestyle="", markersize=6, label="predicted")
    )
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), fontsize=8, frameon=False)
    figure.suptitle("Scenes from above, true and predicted (white dot: metal)", fontsize=10)
    return _save(figure, path)


def _mark(axis: Any, row: Tensor, area: float, alpha: float, linewidths: float) -> None:
    words = describe_object(row)
    x, y = (6 * row[:2] - 3).tolist()
    # Turned so that the camera, at (7.5, -6.5), looks from below.
    x, y = 0.6563 * x + 0.7545 * y, -0.7545 * x + 0.6563 * y
    area *= 1.6 if words["size"] == "large" else 0.8
    style = {"marker": MARKERS[words["shape"]], "color": HUES[words["color"]], "alpha": alpha}
    axis.scatter([x], [y], s=area, edgecolors="black", linewidths=linewidths, **style)
    if words["material"] == "metal" and linewidths:
        axis.scatter([x], [y], s=area / 12, c="white", linewidths=0)


@torch.no_grad()
def draw_attention(model: SetPredictor, images: Tensor, path: str | Path, num_iterations: int | None = None) -> Path:
    """Write a PNG with a row for each image ``[B, C, H, W]``: the image, and the attention map of each slot.

    Slots are ordered by the confidence that they hold an object, shown above each map.
    """
    predicted = model.predict_sets(images.to(model.device), num_iterations=num_iterations)
    if predicted.attention is None:
        raise ValueError(f"{type(model).__name__} has no attention to draw.")
    maps = torch.nn.functional.interpolate(predicted.attention.float(), images.shape[2:], mode="bilinear").cpu()
    order = predicted.sets[..., REAL].argsort(dim=1, descending=True).cpu()
    rows, columns = maps.shape[0], maps.shape[1] + 1
    figure = Figure(figsize=(columns * 0.95, rows * 1.2 + 0.4), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for row, image, slots, attention, sets in zip(axes, images.cpu(), order, maps, predicted.sets.cpu(), strict=True):
        _show(row[0], image)
        for axis, slot in zip(row[1:], slots.tolist(), strict=True):
            axis.imshow(image.mean(0).numpy(), cmap="gray", vmin=0, vmax=1)
            axis.imshow(attention[slot].numpy(), cmap="inferno", vmin=0, vmax=1, alpha=0.75)
            axis.set_title(f"{sets[slot, REAL]:.2f}", fontsize=7)
            axis.set_axis_off()
    figure.suptitle("Attention of each slot, and its confidence that there is an object", fontsize=10)
    return _save(figure, path)


@torch.no_grad()
def draw_decomposition(model: SlotAutoEncoder, images: Tensor, path: str | Path) -> Path:
    """Write a PNG with a row for each image: the image, its reconstruction, and the image of each slot."""
    reconstruction, parts, masks = (part.cpu() for part in model.decompose(images.to(model.device)))
    masked = masks[:, :, None] * parts + (1 - masks[:, :, None])  # on white
    rows, columns = len(images), parts.shape[1] + 2
    figure = Figure(figsize=(columns * 0.95, rows * 1.05 + 0.4), layout="constrained")
    for row, *shown in zip(figure.subplots(rows, columns, squeeze=False), images, reconstruction, masked, strict=True):
        for axis, picture in zip(row, [shown[0], shown[1], *shown[2]], strict=True):
            _show(axis, picture)
    figure.suptitle("Image, reconstruction, and the part of each slot", fontsize=10)
    return _save(figure, path)


def _show(axis: Any, image: Tensor) -> None:
    pixels = image.detach().clamp(0, 1).cpu().numpy()
    axis.imshow(pixels.transpose(1, 2, 0) if len(pixels) == 3 else pixels.mean(0), cmap="gray", vmin=0, vmax=1)
    axis.set_axis_off()
