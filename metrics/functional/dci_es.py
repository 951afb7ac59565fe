"""DCI-ES (Eastwood et al., 2023): DCI with explicitness, the capacity that a probe needs, and size."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from unknot.arguments import whole
from unknot.metrics.functional.aggregation import dci_completeness, dci_disentanglement
from unknot.metrics.functional.checks import Floats, as_split, varying

DEPTHS = (1, 2, 3, 4, 8, 10, 12, 14, 16, 18, 20, 32)
TREES = 100


def dci_es(
    codes_train: Any,
    factors_train: Any,
    codes_test: Any,
    factors_test: Any,
    depths: Sequence[int] = DEPTHS,
    seed: int = 0,
) -> dict[str, Any]:
    r"""Disentanglement, completeness, informativeness, explicitness and size, with random forests of growing depth.

    .. math:: E = \frac{1}{F}\sum_{k=1}^{F} E_k

    .. math:: E_k = 1 - \frac{2\, \mathrm{AULCC}_k}{(\kappa_{\max} - \kappa_{\min})\,\ell_0}

    .. math:: S = \frac{F}{D}

    AULCC is the area under the curve of loss against capacity (:func:`capacity_explicitness`). Capacity κ is the
    largest depth of a forest of 100 trees, on a linear axis, loss is one minus the test accuracy, ℓ₀ = 1 - 1/classes.
    Disentanglement and completeness are those of the importances of each factor's best forest, the
    deepest if several are equally good.

    **Read explicitness together with informativeness**: a flat curve has E = 1, however high the loss. E depends on the
    depths, which the result includes. The authors also use MLPs and random Fourier features, with the logarithm of the
    number of parameters as capacity; :func:`capacity_explicitness` takes such curves.

    Args:
        codes_train: representation ``[N, D]``.
        factors_train: integer classes ``[N, F]``. Factors that do not vary here are left out.
        codes_test: further codes ``[M, D]``.
        factors_test: their factors ``[M, F]``.
        depths: capacities, increasing.
        seed: seed of the forests.

    Returns:
        ``disentanglement``, ``completeness``, ``informativeness_test`` (mean accuracy of the best forests),
        ``explicitness``, ``size``; and ``depths`` and ``losses`` ``[F, depths]``, NaN for factors left out.

    >>> factors = np.random.default_rng(0).integers(0, 3, size=(300, 2))
    >>> scores = dci_es(factors[:200] * 1.0, factors[:200], factors[200:] * 1.0, factors[200:], depths=(1, 2, 4))
    >>> [round(scores[name], 1) for name in ("disentanglement", "informativeness_test", "size")]
    [0.9, 1.0, 1.0]
    """
    from sklearn.ensemble import RandomForestClassifier

    codes_train, factors_train, codes_test, factors_test = as_split(
        codes_train, factors_train, codes_test, factors_test
    )
    depths = tuple(whole("Each of depths", depth) for depth in depths)
    if len(depths) < 2 or list(depths) != sorted(set(depths)):
        raise ValueError(f"depths must be at least two increasing whole numbers, got {depths}.")
    seed = whole("seed", seed, least=0)
    kept = np.flatnonzero(varying(factors_train))
    losses = np.full((factors_train.shape[1], len(depths)), np.nan)
    importances, explicitness = np.zeros((codes_train.shape[1], len(kept))), []
    for column, f in enumerate(kept):
        forests = [
            RandomForestClassifier(TREES, max_depth=depth, random_state=seed).fit(codes_train, factors_train[:, f])
            for depth in depths
        ]
        losses[f] = [1 - np.mean(forest.predict(codes_test) == factors_test[:, f]) for forest in forests]
        best = np.flatnonzero(losses[f] == losses[f].min())[-1]  # the deepest: importances of shallow trees are noisy
        importances[:, column] = forests[best].feature_importances_
        baseline = 1 - 1 / len(np.unique(factors_train[:, f]))
        explicitness.append(capacity_explicitness(depths, losses[f], baseline))
    return {
        "disentanglement": dci_disentanglement(importances) if len(kept) else 0.0,
        "completeness": dci_completeness(importances) if len(kept) else 0.0,
        "informativeness_test": float(np.mean(1 - losses[kept].min(1))) if len(kept) else 0.0,
        "explicitness": float(np.mean(explicitness)) if len(kept) else 0.0,
        "size": len(kept) / codes_train.shape[1],
        "depths": depths,
        "losses": losses,
    }


def capacity_explicitness(capacities: Sequence[float], losses: Any, baseline: float, end: float | None = None) -> float:
    r"""Explicitness of a curve of losses against the capacity of probes (Eastwood et al., 2023).

    .. math::
        E = 1 - \frac{2}{(\kappa_n - \kappa_1)\,\ell_0} \sum_{i=1}^{n-1} \frac{\ell_i + \ell_{i+1} -
        2\,\ell_{\min}}{2}\,(\kappa_{i+1} - \kappa_i)

    on the curve's running minimum. A flat curve has E = 1 whatever its loss.

    Args:
        capacities: κ, increasing: depths of trees, or logarithms of numbers of parameters.
        losses: ℓ at each, for example one minus the accuracy, or 1 - R².
        baseline: ℓ₀, the loss without a representation: 1 - 1/classes, or 1 for 1 - R².
        end: κ_max, if curves of other probes extend further; the curve is continued at its minimum.

    >>> round(capacity_explicitness([1, 2, 3, 4, 8], [0.6, 0.5, 0.52, 0.2, 0.1], baseline=0.75), 6)
    0.504762
    >>> capacity_explicitness([1, 2, 4], [0.4, 0.4, 0.4], baseline=1.0)
    1.0
    """
    kappa: Floats = np.asarray(capacities, dtype=np.float64)
    loss: Floats = np.minimum.accumulate(np.asarray(losses, dtype=np.float64))
    if kappa.ndim != 1 or kappa.shape != loss.shape or len(kappa) < 2 or (np.diff(kappa) <= 0).any():
        raise ValueError(
            f"Expected at least two increasing capacities and as many losses, got {capacities} and {losses}."
        )
    if not (np.isfinite(loss).all() and 0 < baseline < np.inf):
        raise ValueError(f"losses must be finite and baseline positive, got {losses} and {baseline}.")
    above = loss - loss[-1]
    area = float(((above[1:] + above[:-1]) / 2 * np.diff(kappa)).sum())
    last = kappa[-1] if end is None else max(float(end), float(kappa[-1]))
    return float(1 - 2 * area / ((last - kappa[0]) * baseline))
