"""Chance level of a score, from factors in random order."""

from collections.abc import Callable
from typing import Any

import numpy as np

from unknot.arguments import whole
from unknot.metrics.functional.checks import _as_numpy, as_codes


def permuted_baseline(
    score: Callable[[Any, Any], Any], codes: Any, factors: Any, repeats: int = 5, seed: int = 0
) -> dict[str, dict[str, float]]:
    r"""Chance level: mean and standard deviation of a score whose factors are in random order.

    .. math:: \mathbb{E}_{\pi}\; s\left((z_i)_{i=1}^{N},\, (v_{\pi(i)})_{i=1}^{N}\right)

    Rows of factors are permuted as a whole, so that factors keep their distribution and their correlations, but are
    independent of the codes.

    Args:
        score: a function of codes and factors, such as :func:`infomec` or :func:`unknot.metrics.functional.mig`, that
            returns a number or a dictionary of numbers.
        codes: representation ``[N, D]``.
        factors: factors ``[N, F]``.
        repeats: number of permutations.
        seed: seed of the permutations.

    Returns:
        ``{"mean": {...}, "std": {...}}``, each with the names of the score, or ``"score"`` if it has none.

    >>> from unknot.metrics.functional import mig
    >>> factors = np.random.default_rng(0).integers(0, 3, size=(500, 2))
    >>> bool(permuted_baseline(mig, factors * 1.0, factors)["mean"]["score"] < 0.05)
    True
    """
    repeats, seed = whole("repeats", repeats), whole("seed", seed, least=0)
    rng = np.random.default_rng(seed)
    codes = as_codes(codes)
    factors = _as_numpy(factors)
    results = []
    for _ in range(repeats):
        value = score(codes, factors[rng.permutation(len(factors))])
        results.append(dict(value) if isinstance(value, dict) else {"score": float(value)})
    columns = {name: [float(values[name]) for values in results] for name in results[0]}
    return {
        "mean": {name: float(np.mean(values)) for name, values in columns.items()},
        "std": {name: float(np.std(values)) for name, values in columns.items()},
    }
