"""Unsupervised Disentanglement Ranking (Duan et al., 2020): good models are similar to each other."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from scipy.stats import rankdata

from unknot.metrics.functional.checks import Floats, as_codes


def udr(
    codes: Sequence[Any],
    kl: Sequence[Any] | None = None,
    method: Literal["lasso", "spearman"] = "lasso",
    threshold: float = 0.01,
) -> Floats:
    r"""Score M models trained with the same settings by how well their latents match one to one. No labels are needed.

    .. math::
        \mathrm{UDR}_i = \mathrm{median}_{j\neq i}\; \frac{1}{2}\left(\mathrm{mean}_a \frac{\max_b R_{ab}^2}{\sum_b
        R_{ab}} + \mathrm{mean}_b \frac{\max_a R_{ab}^2}{\sum_a R_{ab}}\right)

    For two models, a similarity matrix R ``[D, D]`` of their informative latents is aggregated to ½ (mean_a max_b R_ab²
    / Σ_b R_ab + mean_b max_a R_ab² / Σ_a R_ab), as in the reference (the paper pools both sums instead of averaging two
    means). A model's score is the median over the similarities from all other models, again as in the reference (the
    paper does not state the direction). This score is not part of the thesis.

    Args:
        codes: representations of the same N images by each model, each ``[N, D]``.
        kl: mean KL divergence from the prior of each latent of each model, each ``[D]``; latents with no more than
            ``threshold`` are not informative. Without it, all latents that vary are informative.
        method: ``"lasso"``, absolute weights (α 0.1) that predict one model's latents from the other's, or
            ``"spearman"``, absolute rank correlations.
        threshold: threshold of the KL, in nats.

    >>> rng = np.random.default_rng(0)
    >>> truth = rng.normal(size=(1000, 3))
    >>> udr([truth, -truth[:, [2, 0, 1]], truth @ np.linalg.qr(rng.normal(size=(3, 3)))[0]]).round(1).tolist()
    [0.7, 0.7, 0.5]
    """
    arrays = [as_codes(array) for array in codes]
    if len(arrays) < 2:
        raise ValueError(f"udr compares models: it needs at least 2, got {len(arrays)}.")
    if len({len(array) for array in arrays}) != 1:
        raise ValueError(f"udr needs codes of the same images, got {[len(array) for array in arrays]} rows.")
    if method not in ("lasso", "spearman"):
        raise ValueError(f"method must be 'lasso' or 'spearman', got {method!r}.")
    if kl is not None and [np.shape(values) for values in kl] != [array.shape[1:] for array in arrays]:
        raise ValueError("kl must hold one number for each code of each model.")
    if kl is None:
        masks = [array.min(0) < array.max(0) for array in arrays]
    else:
        masks = [np.asarray(values) > threshold for values in kl]
    informative = [_standardized(array[:, mask]) for array, mask in zip(arrays, masks, strict=True)]
    similarity = _lasso if method == "lasso" else _spearman
    scores = np.full((len(arrays), len(arrays)), np.nan)
    for i, first in enumerate(informative):
        for j, second in enumerate(informative):
            if i != j:
                scores[i, j] = _one_to_one(similarity(first, second)) if first.size and second.size else 0.0
    return np.nanmedian(scores, axis=0)


def _standardized(codes: Floats) -> Floats:
    scale = codes.std(0)
    return (codes - codes.mean(0)) / np.where(scale > 0, scale, 1)


def _lasso(first: Floats, second: Floats) -> Floats:
    from sklearn.linear_model import Lasso

    return np.abs(np.atleast_2d(Lasso(alpha=0.1).fit(first, second).coef_)).T


def _spearman(first: Floats, second: Floats) -> Floats:
    ranks = [_standardized(rankdata(codes, axis=0)) for codes in (first, second)]
    return np.abs(ranks[0].T @ ranks[1]) / len(first)


def _one_to_one(similarity: Floats) -> float:
    scores = []
    for axis in (0, 1):
        total = similarity.sum(axis)
        peak = similarity.max(axis) ** 2
        scores.append(np.divide(peak, total, out=np.zeros_like(total), where=total > 0).mean())
    return float(np.mean(scores))
