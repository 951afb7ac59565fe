"""DCI: disentanglement, completeness, informativeness (Eastwood & Williams, 2018)."""

from typing import Any

import numpy as np

from unknot.metrics.functional.aggregation import dci_completeness, dci_disentanglement
from unknot.metrics.functional.boosting import Backend, SklearnTrees, Trees, fit_trees
from unknot.metrics.functional.checks import Floats, Ints, as_split, varying

SCORES = ("disentanglement", "completeness", "informativeness_train", "informativeness_test")


def dci(
    codes_train: Any,
    factors_train: Any,
    codes_test: Any,
    factors_test: Any,
    backend: Backend = "unknot",
    seed: int = 0,
) -> dict[str, Any]:
    """How importances of the codes for predicting the factors spread, and how well the prediction goes.

    Boosted trees predict each factor; R is the matrix of their importances ``[D, F]``. Disentanglement is one minus the
    entropy of each code's row, completeness of each factor's column, weighted by importance (see
    :mod:`unknot.metrics.functional.aggregation`). Informativeness is the mean accuracy, as in the thesis and its
    reference, which treat all factors as classes; Eastwood & Williams measure an error.

    Args:
        codes_train: representation ``[N, D]`` to fit on; 10,000 in the thesis.
        factors_train: integer classes ``[N, F]``. Factors that do not vary here are left out of all means.
        codes_test: further codes ``[M, D]``; 5,000 in the thesis.
        factors_test: their factors ``[M, F]``.
        backend: ``"unknot"`` for the trees of :mod:`unknot.metrics.functional.boosting`; ``"sklearn"`` for the
            reference's ``GradientBoostingClassifier``, which finds the same thresholds and takes many times as long.
        seed: of scikit-learn's trees.

    Returns:
        ``disentanglement``, ``completeness``, ``informativeness_train``, ``informativeness_test``, each in [0, 1], and
        ``importance``, the matrix R (zero columns for factors left out).

    >>> factors = np.random.default_rng(0).integers(0, 4, size=(600, 2))
    >>> scores = dci(factors[:400] * 1.0, factors[:400], factors[400:] * 1.0, factors[400:])
    >>> [round(scores[name], 3) for name in ("disentanglement", "completeness", "informativeness_test")]
    [1.0, 1.0, 1.0]
    """
    codes_train, factors_train, codes_test, factors_test = as_split(
        codes_train, factors_train, codes_test, factors_test
    )
    trees = fit_trees(codes_train, factors_train, backend, seed)
    return dci_of_trees(trees, codes_train, factors_train, codes_test, factors_test)


def dci_of_trees(
    trees: Trees | SklearnTrees, codes_train: Floats, factors_train: Ints, codes_test: Floats, factors_test: Ints
) -> dict[str, Any]:
    """The scores, given trees that were fitted on the training samples already."""
    varies = varying(factors_train)
    if not varies.any():
        return dict.fromkeys(SCORES, 0.0) | {"importance": trees.importance}
    values = (
        dci_disentanglement(trees.importance[:, varies]),
        dci_completeness(trees.importance[:, varies]),
        float(np.mean((trees.predict(codes_train) == factors_train)[:, varies])),
        float(np.mean((trees.predict(codes_test) == factors_test)[:, varies])),
    )
    return dict(zip(SCORES, values, strict=True)) | {"importance": trees.importance}
