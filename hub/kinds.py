"""What is known about a model of the zoo by its class, and whether its data set is at hand."""

from functools import lru_cache
from typing import Any

from unknot.datamodules import DATASETS, GroundTruthDataset
from unknot.zoo import MODELS, VAE


def describe_model(name: str | None) -> dict[str, Any]:
    """Family of a model of the zoo, and what can be done with it live: move latents, see slots, sets or matrices.

    >>> describe_model("BetaVAE"), describe_model("no such model")
    ({'family': 'vae', 'kind': 'latents'}, {})
    """
    cls = MODELS.get(name or "")
    return {} if cls is None else {"family": family_of(cls), "kind": kind_of(cls)}


def kind_of(cls: type[Any]) -> str | None:
    """``"latents"`` of VAEs, ``"slots"`` of what takes images apart, ``"sets"`` and ``"matrices"`` of their solvers."""
    if issubclass(cls, VAE):
        return "latents"
    if getattr(cls, "batch", None) == "matrices":
        return "matrices"
    return "slots" if hasattr(cls, "decompose") else "sets" if hasattr(cls, "predict_sets") else None


def family_of(cls: type[Any]) -> str:
    """The family of a model, as it says itself; else the file that it lives in.

    >>> from unknot.zoo import BetaTCVAE
    >>> family_of(BetaTCVAE)
    'total-correlation'
    """
    told = getattr(cls, "family", None)
    name = told if isinstance(told, str) and told else cls.__module__.rpartition(".")[2]
    return "own" if name == "__main__" else name.replace("_", "-")


_make = lru_cache(maxsize=16)(lambda name: DATASETS[name]())


def data_of(name: str | None, image_shape: tuple[int, int, int]) -> GroundTruthDataset | None:
    """The data set of this name, if it can be had without a download and its images fit."""
    if name not in DATASETS:
        return None
    dataset: GroundTruthDataset = _make(name)
    is_at_hand = dataset.is_prepared() or not getattr(dataset, "download_size", 0)  # the latter are drawn in seconds
    return dataset if is_at_hand and tuple(dataset.image_shape) == tuple(image_shape) else None
