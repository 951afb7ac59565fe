"""Preview of a data set: samples, and the effect of each factor."""

from collections.abc import Iterator
from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import Tensor
from torchvision.utils import make_grid

from unknot.datamodules.factors import GroundTruthDataset
from unknot.datamodules.scenes.layout import SceneDataset
from unknot.files import replacing

COLUMNS = 12
SAMPLES = 3 * COLUMNS


def draw_gallery(dataset: GroundTruthDataset | SceneDataset, path: str | Path, seed: int = 0) -> Path:
    """Write a PNG with random images above, and below a row for each factor that shows one image as it changes.

    A factor with more values than fit in a row is shown at equal steps from its first to its last value. For scenes
    with sets of objects, which have no factors, there are only random images.

    Args:
        dataset: data set to show; prepared if necessary.
        path: path of the PNG.
        seed: seed of the random images.
    """
    dataset.prepare()
    generator = torch.Generator().manual_seed(seed)
    if isinstance(dataset, GroundTruthDataset):
        rows = [(f"{SAMPLES} of\n{len(dataset):,}", _samples(dataset, generator)), *_traversals(dataset, generator)]
        title = "random images, and one image as each factor changes"
    else:
        rows = [("", _scenes(dataset, generator))]
        title = "random images"

    heights = [len(images) / COLUMNS if number == 0 else 1 for number, (_, images) in enumerate(rows)]
    figure = Figure(figsize=(COLUMNS * 0.75 + 1.5, sum(heights) * 0.78 + 0.4), layout="constrained")
    axes = figure.subplots(len(rows), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axis, (label, images) in zip(axes, rows, strict=True):
        blank = images.new_ones(-len(images) % COLUMNS, *images.shape[1:])
        grid = make_grid(torch.cat([images, blank]), nrow=COLUMNS, padding=2, pad_value=1)
        axis.imshow(grid.permute(1, 2, 0).clamp(0, 1).numpy())
        axis.set_ylabel(label, rotation=0, ha="right", va="center", fontsize=9)
        axis.set_xticks([])
        axis.set_yticks([])
        axis.spines[:].set_visible(False)
    figure.suptitle(f"{dataset.name}: {title}", fontsize=10)
    path = Path(path)
    with replacing(path) as beside:
        figure.savefig(beside, format="png", dpi=100)
    return path


def _samples(dataset: GroundTruthDataset, generator: torch.Generator) -> Tensor:
    return dataset.observe(dataset.factor_space.sample(SAMPLES, generator), generator)


def _traversals(dataset: GroundTruthDataset, generator: torch.Generator) -> Iterator[tuple[str, Tensor]]:
    space = dataset.factor_space
    start = space.sample(1, generator)
    for column, (name, size) in enumerate(zip(space.names, space.sizes, strict=True)):
        values = torch.linspace(0, size - 1, min(size, COLUMNS)).round().long()
        factors = start.repeat(len(values), 1)
        factors[:, column] = values
        yield f"{name.replace('_', ' ')}\n{size} values", dataset.observe(factors, generator)


def _scenes(dataset: SceneDataset, generator: torch.Generator) -> Tensor:
    if dataset.endless:
        images = dataset.draw(SAMPLES, generator).images
    else:
        images = dataset.batch(torch.randperm(len(dataset), generator=generator)[:SAMPLES].tolist()).images
    low, high = dataset.value_range
    return (images - low) / (high - low)
