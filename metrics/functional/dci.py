"""DCI: disentanglement, completeness, informativeness (Eastwood & Williams, 2018)."""

from typing import Any

import numpy as np

from unknot.metrics.functional.aggregation import dci_completeness, dci_disentanglement
from unknot.metrics.functional.checks import Floats, Ints, accuracies, as_split, varying
from unknot.metrics.functional.identifiability import as_value_split
from unknot.metrics.functional.trees import AnyTrees, Backend, fit_trees

SCORES = ("disentanglement", "completeness", "informativeness_train", "informativeness_test")


def dci(
    codes_train: Any,
    factors_train: Any,
    codes_test: Any,
    factors_test: Any,
    backend: Backend = "unknot",
    seed: int = 0,
) -> dict[str, Any]:
    r"""Disentanglement, completeness and informativeness, by boosted trees that predict the factors from the codes.

    .. math:: D = \sum_d \rho_d\,\left(1 - H_F(R_d)\right)

    .. math:: C = \sum_k \rho_k\,\left(1 - H_D(R_k)\right)

    .. math:: I = \frac{1}{F}\sum_{k=1}^{F} P\left(\hat v_k = v_k\right)

    Thesis: section "Measuring Disentanglement".

    Boosted trees predict each factor; R is the matrix of their importances ``[D, F]``. Disentanglement is one minus the
    entropy of each latent's row, completeness that of each factor's column, weighted by importance (see
    :mod:`unknot.metrics.functional.aggregation`). Informativeness is the mean accuracy, as in the thesis and its
    reference, which treat all factors as classes; Eastwood & Williams use a regression error.

    Args:
        codes_train: representation ``[N, D]`` to fit on; 10,000 in the thesis.
        factors_train: integer classes ``[N, F]``. Factors that do not vary here are left out of all means.
        codes_test: further codes ``[M, D]``; 5,000 in the thesis.
        factors_test: their factors ``[M, F]``.
        backend: ``"unknot"`` for the trees of :mod:`unknot.metrics.functional.trees`; ``"sklearn"`` for the reference's
            ``GradientBoostingClassifier``, which finds the same thresholds but is many times slower.
        seed: seed of scikit-learn's trees.

    Returns:
        ``disentanglement``, ``completeness``, ``informativeness_train``, ``informativeness_test``, each in [0, 1], and
        ``importance``, the matrix R (zero columns for factors left out).

    >>> factors = np.random.default_rng(0).integers(0, 4, size=(600, 2))
    >>> scores = dci(factors[:400] * 1.0, factors[:400], factors[400:] * 1.0, factors[400:])
    >>> [round(scores[name], 3) for name in ("disentanglement", "completeness", "informativeness_test")]
    [1.0, 1.0, 1.0]
    """
    codes_train, factors_train, codes_test, factors_test = as_split(
        codes_train, factors_train, codes_test, factors_test, partial=True
    )
    trees = fit_trees(codes_train, factors_train, backend, seed)
    return dci_of_trees(trees, codes_train, factors_train, codes_test, factors_test)


def dci_of_trees(
    trees: AnyTrees, codes_train: Floats, factors_train: Ints, codes_test: Floats, factors_test: Ints
) -> dict[str, Any]:
    """Return the scores of trees fitted on the training samples."""
    varies = varying(factors_train)
    if not varies.any():
        return dict.fromkeys(SCORES, 0.0) | {"importance": trees.importance}
    values = (
        dci_disentanglement(trees.importance[:, varies]),
        dci_completeness(trees.importance[:, varies]),
        *(
            _mean(accuracies(trees.predict(codes), factors)[varies])
            for codes, factors in ((codes_train, factors_train), (codes_test, factors_test))
        ),
    )
    return dict(zip(SCORES, values, strict=True)) | {"importance": trees.importance}


def dci_regression(
    codes_train: Any, factors_train: Any, codes_test: Any, factors_test: Any, seed: int = 0
) -> dict[str, Any]:
    r"""DCI of numeric factors, with boosted regression trees (Eastwood & Williams, 2018).

    .. math:: D = \sum_d \rho_d\,\left(1 - H_F(R_d)\right)

    .. math:: C = \sum_k \rho_k\,\left(1 - H_D(R_k)\right)

    .. math:: \mathrm{error} = \frac{1}{F}\sum_{k=1}^{F} \mathbb{E}\left(v_k - \hat v_k\right)^2

    R holds the importances of scikit-learn's ``GradientBoostingRegressor`` with its defaults, one for each factor.
    Informativeness is the error, lower is better, as in Eastwood & Williams and in the code of Brehmer et al. (2022);
    it depends on the scale of the factors, so standardise them to compare data sets.

    Args:
        codes_train: representation ``[N, D]``.
        factors_train: numbers ``[N, F]``. Factors that do not vary here are left out.
        codes_test: further codes ``[M, D]``.
        factors_test: their factors ``[M, F]``.
        seed: seed of the trees, which break ties between equal splits at random.

    Returns:
        ``disentanglement`` and ``completeness`` in [0, 1], ``error_train``, ``error_test``, and ``importance`` ``[D,
        F]``, with zero columns for factors left out.

    >>> factors = np.random.default_rng(0).normal(size=(300, 2))
    >>> scores = dci_regression(factors[:200], factors[:200], factors[200:], factors[200:])
    >>> round(scores["disentanglement"], 1), bool(scores["error_test"] < 0.1)
    (1.0, True)
    """
    from sklearn.ensemble import GradientBoostingRegressor

    train, known, test, asked = as_value_split(codes_train, factors_train, codes_test, factors_test)
    importance, errors = np.zeros((train.shape[1], known.shape[1])), []
    for f in np.flatnonzero((known != known[0]).any(0)):
        trees = GradientBoostingRegressor(random_state=seed).fit(train, known[:, f])
        importance[:, f] = np.maximum(trees.feature_importances_, 0)  # rounding can leave -1e-18
        errors.append([np.mean((trees.predict(x) - v[:, f]) ** 2) for x, v in ((train, known), (test, asked))])
    error_train, error_test = np.mean(errors, axis=0) if errors else (0.0, 0.0)
    kept = importance[:, (known != known[0]).any(0)]
    return {
        "disentanglement": dci_disentanglement(kept) if errors else 0.0,
        "completeness": dci_completeness(kept) if errors else 0.0,
        "error_train": float(error_train),
        "error_test": float(error_test),
        "importance": importance,
    }


def _mean(values: Floats) -> float:
    """Return the mean over the factors that have labels in the test rows."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else 0.0
