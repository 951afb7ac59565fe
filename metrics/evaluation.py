"""``evaluate``: draw from a data set, represent, score."""

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
        model_or_function: a model with ``represent(images) -> codes``, or such a function.
        dataset: where factors and images are drawn from, i.i.d.; or its name, such as ``"dsprites"``; or your own
            images with labels, an ``ImageDataModule``: scores are then fitted on images that train and tested on those
            that it holds out, each once at most, and ``"all"`` leaves out what needs images of all combinations.
        metrics: names from ``METRICS`` and of groups: ``"default"``, ``"all"``, ``"disentanglement"``,
            ``"downstream"``, ``"unsupervised"``. Groups leave out what the model or the data do not allow; a score that
            is named and cannot be computed has its reason in ``.reasons``. Interventional scores encode about two
            million images, or every image of the data set once where images are a function of the factors.
        num_train: samples to fit or to score on; 10,000 in the thesis.
        num_test: further samples for scores that predict; 5,000 in the thesis.
        seed: of the draws. The same seed gives the same scores, whichever metrics are asked for together.
        repeats: draw so many times, with seeds ``seed``, ``seed + 1``, ...; a score is then the mean over the draws
            and ``.std`` holds their standard deviation.
        backend: ``"unknot"``, exact boosted trees; ``"sklearn"``, the reference's, and its downstream logistic
            regressions; or ``"hist"``, scikit-learn's trees over 256 bins where a score asks for predictions alone
            (downstream accuracy, unfairness, covariate shift): quicker from some thousand samples on.
        pictures: a folder for pictures of the factor-code matrices of the first draw.

    Returns:
        Numbers by name, with ``.std``, ``.details`` and ``.protocol``: see :class:`unknot.metrics.Scores`. Each metric
        gives one of its own name, and further ones that begin with it.

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
    if not isinstance(dataset, GroundTruthDataset | ImageDataModule):  # a view of a data set is one itself
        dataset = getattr(dataset, "dataset", dataset)  # of a FactorDataModule and those like it
    if not isinstance(dataset, GroundTruthDataset | ImageDataModule):
        raise ValueError(
            "evaluate needs a data set with known factors, such as DSprites(), or images with labels, such as "
            f"ImageDataModule(folder, labels='factors.csv'), got {dataset!r:.60}."
        )
    if isinstance(dataset, GroundTruthDataset):
        check_dataset(dataset)
    return dataset
