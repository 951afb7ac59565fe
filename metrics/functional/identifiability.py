"""Identifiability scores: recovery of factors up to permutation (MCC), a linear map, or a smooth map (R²).

These are the scores of nonlinear independent component analysis and of causal representation learning. They treat
factors as numbers: leave out unordered categories, and pass angles as sine and cosine.
"""

from typing import Any, Literal

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.stats import rankdata

from unknot.metrics.functional.checks import Floats, Ints, as_codes, as_numbers

Correlation = Literal["pearson", "spearman"]
Regressor = Literal["linear", "kernel", "mlp"]


def mcc(codes: Any, factors: Any, correlation: Correlation = "pearson") -> float:
    r"""Mean correlation coefficient (Hyvärinen & Morioka, 2016) under the best one-to-one match of latents and factors.

    .. math:: \mathrm{MCC} = \max_{\pi}\; \frac{1}{F}\sum_{k=1}^{F} \left|\mathrm{corr}(v_k, z_{\pi(k)})\right|

    With more latents than factors, surplus latents stay unmatched. (slow_disentanglement pads the factors with noise
    instead and averages the first F, which gives the same match.) With fewer latents, unmatched factors count 0.

    The score does not detect further information in a latent; for random latents it grows with D / N, see
    :func:`permuted_baseline`.

    Args:
        codes: representation ``[N, D]``.
        factors: numbers ``[N, F]``, integer or float. Factors that do not vary are left out; constant latents correlate
            with nothing.
        correlation: ``"pearson"``, for latents that are linear in a factor; ``"spearman"``, of ranks, for monotone
            ones.

    Returns:
        A score in [0, 1]; 0 if no factor varies.

    >>> factors = np.random.default_rng(0).normal(size=(1000, 2))
    >>> round(mcc(-factors[:, ::-1] ** 3, factors, correlation="spearman"), 6)
    1.0
    """
    _, matched = matched_correlations(codes, factors, correlation)
    return float(np.mean(matched)) if len(matched) else 0.0


def matched_correlations(codes: Any, factors: Any, correlation: Correlation = "pearson") -> tuple[Ints, Floats]:
    r"""Return the match used by :func:`mcc`: the latent of each factor that varies, and their absolute correlation.

    .. math:: \pi^* = \mathrm{argmax}_{\pi}\; \sum_{k=1}^{F} \left|\mathrm{corr}(v_k, z_{\pi(k)})\right|

    Args:
        codes: representation ``[N, D]``.
        factors: numbers ``[N, F]``.
        correlation: ``"pearson"`` or ``"spearman"``.

    Returns:
        Latents ``[F]``, -1 for a factor without one, and correlations ``[F]``, of the factors that vary.

    >>> factors = np.random.default_rng(0).normal(size=(1000, 2))
    >>> latents, correlations = matched_correlations(-factors[:, ::-1], factors)
    >>> latents.tolist(), correlations.round(6).tolist()
    ([1, 0], [1.0, 1.0])
    """
    if correlation not in ("pearson", "spearman"):
        raise ValueError(f"correlation must be 'pearson' or 'spearman', got {correlation!r}.")
    codes = as_codes(codes)
    codes, values = _complete(codes, as_values(factors, len(codes)))
    values = values[:, (values != values[0]).any(0)]
    if correlation == "spearman":
        codes, values = rankdata(codes, axis=0), rankdata(values, axis=0)
    strength = np.abs(_unit(values).T @ _unit(codes))  # [F, D]
    latents, correlations = np.full(len(strength), -1), np.zeros(len(strength))
    rows, columns = linear_sum_assignment(-strength)
    latents[rows], correlations[rows] = columns, np.minimum(strength[rows, columns], 1.0)
    return latents, correlations


def regression_r2(
    codes_train: Any,
    factors_train: Any,
    codes_test: Any,
    factors_test: Any,
    regressor: Regressor = "linear",
    seed: int = 0,
) -> dict[str, Any]:
    r"""R² and Pearson correlation of factors predicted from the codes by regression.

    .. math::
        R^2 = \frac{1}{F}\sum_{k=1}^{F} \left(1 - \frac{\sum_i (v_{ik} - \hat v_{ik})^2}{\sum_i (v_{ik} - \bar
        v_k)^2}\right)

    Linear R² measures identifiability up to a linear map, R² of the other regressors information. Pass the training
    samples twice for the in-sample values that papers report.

    Args:
        codes_train: representation ``[N, D]``.
        factors_train: numbers ``[N, F]``. Factors that do not vary here or in the test are left out.
        codes_test: further codes ``[M, D]``.
        factors_test: their factors ``[M, F]``.
        regressor: ``"linear"``, least squares; ``"kernel"``, ridge regression with a Gaussian kernel on standardised
            latents (α 1, γ 1/D; memory grows with N²); ``"mlp"``, one hidden layer of 100 units with early stopping.
            The last two are scikit-learn's.
        seed: seed of the MLP.

    Returns:
        ``r2``, at most 1 and negative where a constant would predict better; ``correlation``, the mean Pearson
        correlation of predictions and factors (linear MCC for ``"linear"``); ``r2_per_factor`` ``[F]``, NaN for factors
        left out. The means are 0 if no factor is left.

    >>> rng = np.random.default_rng(0)
    >>> factors = rng.normal(size=(300, 2))
    >>> scores = regression_r2(factors @ rng.normal(size=(2, 5)), factors, factors @ np.zeros((2, 5)), factors)
    >>> bool(scores["r2"] < 0.0)  # the test codes are constant
    True
    """
    train, known, test, asked = as_value_split(codes_train, factors_train, codes_test, factors_test)
    kept = (known != known[0]).any(0) & (asked != asked[0]).any(0)
    per_factor = np.full(known.shape[1], np.nan)
    if not kept.any():
        return {"r2": 0.0, "correlation": 0.0, "r2_per_factor": per_factor}
    predicted = _predictions(train, known[:, kept], test, regressor, seed)
    asked = asked[:, kept]
    per_factor[kept] = 1 - ((asked - predicted) ** 2).sum(0) / ((asked - asked.mean(0)) ** 2).sum(0)
    correlation = (_unit(predicted) * _unit(asked)).sum(0)
    return {
        "r2": float(per_factor[kept].mean()),
        "correlation": float(correlation.mean()),
        "r2_per_factor": per_factor,
    }


def as_values(factors: Any, n: int) -> Floats:
    """Convert factors to numbers ``[N, F]``, NaN if one is missing, with one row for each row of codes."""
    array = as_numbers(factors)
    if len(array) != n:
        raise ValueError(f"codes and factors must have as many rows, got {n} and {len(array)}.")
    return array


def _complete(codes: Floats, values: Floats) -> tuple[Floats, Floats]:
    """Return the rows in which all factors are known."""
    known = ~np.isnan(values).any(1)
    if not known.any():
        raise ValueError("No row is labelled for all factors. Give fewer factors, or leave out those with few labels.")
    return codes[known], values[known]


def as_value_split(
    codes_train: Any, factors_train: Any, codes_test: Any, factors_test: Any
) -> tuple[Floats, Floats, Floats, Floats]:
    """Check codes and numeric factors to fit on and to test on, which must have the same widths."""
    train, test = as_codes(codes_train), as_codes(codes_test)
    train, known = _complete(train, as_values(factors_train, len(train)))
    test, asked = _complete(test, as_values(factors_test, len(test)))
    for what, left, right in (("codes", train, test), ("factors", known, asked)):
        if left.shape[1] != right.shape[1]:
            raise ValueError(
                f"{what} to train and to test on must be as wide, got {left.shape[1]} and {right.shape[1]} columns."
            )
    return train, known, test, asked


def _predictions(train: Floats, known: Floats, test: Floats, regressor: str, seed: int) -> Floats:
    if regressor == "linear":
        weights = np.linalg.lstsq(np.column_stack([train, np.ones(len(train))]), known, rcond=None)[0]
        return np.column_stack([test, np.ones(len(test))]) @ weights
    mean, scale = train.mean(0), train.std(0)
    scale = np.where(scale > 0, scale, 1)
    middle, width = known.mean(0), known.std(0)
    train, test, known = (train - mean) / scale, (test - mean) / scale, (known - middle) / width
    if regressor == "kernel":
        from sklearn.kernel_ridge import KernelRidge

        model: Any = KernelRidge(kernel="rbf", alpha=1.0, gamma=1 / train.shape[1])
    elif regressor == "mlp":
        from sklearn.neural_network import MLPRegressor

        model = MLPRegressor(early_stopping=len(train) >= 20, random_state=seed, max_iter=500)
    else:
        raise ValueError(f"regressor must be 'linear', 'kernel' or 'mlp', got {regressor!r}.")
    predicted: Floats = model.fit(train, known).predict(test).reshape(len(test), -1)
    return predicted * width + middle


def _unit(columns: Floats) -> Floats:
    """Scale columns to mean 0 and length 1; constant columns become 0."""
    centred = columns - columns.mean(0)
    length = np.linalg.norm(centred, axis=0)
    noise = 1e-12 * np.abs(columns).max(0) * np.sqrt(len(columns))
    return centred / np.where(length > noise, length, np.inf)
