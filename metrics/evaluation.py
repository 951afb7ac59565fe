"""``evaluate``: draw samples from a data set, encode them and compute scores."""

from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from unknot.arguments import whole
from unknot.datamodules import GroundTruthDataset, ImageDataModule, find_dataset
from unknot.datamodules.factors import check_dataset
from unknot.metrics.draws import Draws, is_finite
from unknot.metrics.functional.trees import Backend
from unknot.metrics.scores import Scores
from unknot.metrics.selection import collected, compute, possible, select

__all__ = ["Draws", "evaluate"]


def evaluate(
    model_or_function: Any,
    dataset: "GroundTruthDataset | ImageDataModule | str",
    metrics: str | Iterable[str] = "default",
    num_train: int = 10_000,
    num_test: int = 5_000,
    seed: int = 0,
    repeats: int = 1,
    backend: Backend = "unknot",
    pictures: str | Path | None = None,
) -> Scores:
    """Score a representation on a data set with known factors.

    Args:
        model_or_function: a model with ``represent(images) -> codes``, or a function.
        dataset: data set to draw factors and images from, or its name, such as ``"dsprites"``; or your own images with
            labels, an ``ImageDataModule``: scores are then fitted on its training images and tested on those that it
            holds out, each used at most once, and ``"all"`` skips scores that need images of all combinations.
        metrics: names of scores in ``METRICS`` or of groups: ``"default"``, ``"all"``, ``"disentanglement"``,
            ``"downstream"``, ``"unsupervised"``. Groups skip scores that the model or the data do not allow; if a score
            that is named cannot be computed, ``.reasons`` says why. Interventional scores encode about two million
            images, or every image of the data set once if images are a function of the factors.
        num_train: samples to fit or score on; 10,000 in the thesis.
        num_test: further samples for scores that predict; 5,000 in the thesis.
        seed: seed of the samples. The same seed gives the same scores, whichever metrics are computed together.
        repeats: number of repetitions, with seeds ``seed``, ``seed + 1``, ...; a score is then the mean over them and
            ``.std`` holds their standard deviation.
        backend: ``"unknot"``, exact boosted trees; ``"sklearn"``, the reference's trees and its downstream logistic
            regressions; or ``"hist"``, scikit-learn's trees over 256 bins for scores that only need predictions
            (downstream accuracy, unfairness, covariate shift): faster from some thousand samples on.
        pictures: folder for plots of the factor-code matrices of the first repetition.

    Returns:
        Scores by name, with ``.std``, ``.details`` and ``.protocol``: see :class:`unknot.metrics.Scores`. Each metric
        returns one of its own name, and may return further ones whose names begin with it.

    >>> import torch
    >>> from unknot.datamodules import DSprites
    >>> from unknot.metrics import evaluate
    >>> def centre_of_mass(images):
    ...     grid, mass = torch.arange(64.0), images.sum((1, 2, 3)).clamp(min=1)
    ...     return torch.stack([images.sum((1, 2)) @ grid / mass, images.sum((1, 3)) @ grid / mass], dim=1)
    >>> scores = evaluate(centre_of_mass, DSprites(), metrics=["mig"], num_train=1000)
    >>> round(scores["mig"], 2)
    0.25
    """
    source = _source(dataset)
    repeats, seed = whole("repeats", repeats), whole("seed", seed, least=None)
    restricted = "these images do not show all combinations of factors" if is_finite(source) else None
    if hasattr(getattr(source, "factor_space", None), "distribution"):
        restricted = "the factors of this data set are drawn by weights"
    names, reasons = possible(select(metrics), model_or_function, restricted)
    drawn = []
    with tqdm(total=repeats * len(names), desc="evaluating", disable=None, leave=False) as bar:
        for repeat in range(repeats):
            draws = Draws(model_or_function, source, num_train, num_test, seed + repeat, backend)
            drawn.append(compute(names, draws, reasons, bar))
            if pictures is not None and repeat == 0:
                from unknot.metrics.plots import draw_matrices

                draw_matrices(draws.matrices, Path(pictures) / "factor_code.png", draws.factor_names)
    protocol = {
        "dataset": draws.dataset.name,
        "num_train": draws.num_train,
        "num_test": draws.num_test,
        "seed": seed,
        "repeats": repeats,
        "backend": backend,
        "unknot": version("unknot"),
    }
    return collected(drawn, protocol | draws.notes, reasons)


def _source(dataset: Any) -> Any:
    """Return the data set to draw from: the one given, the one of that name, or the one behind a DataModule."""
    if isinstance(dataset, str):
        return find_dataset(dataset)
    if not isinstance(dataset, GroundTruthDataset | ImageDataModule):  # a view of a data set is a data set
        dataset = getattr(dataset, "dataset", dataset)  # for FactorDataModule and similar classes
    if not isinstance(dataset, GroundTruthDataset | ImageDataModule):
        raise ValueError(
            "evaluate needs a data set with known factors, such as DSprites(), or images with labels, such as "
            f"ImageDataModule(folder, labels='factors.csv'), got {dataset!r:.60}."
        )
    if isinstance(dataset, GroundTruthDataset):
        check_dataset(dataset)
    return dataset
