"""InfoMEC: modularity, explicitness and compactness from normalised information (Hsu et al., 2023).

Modularity and compactness use a matrix of normalised mutual information, explicitness a linear probe. How the
information of continuous latents is estimated, and which latents count, matters as much as the latents themselves:
:func:`neighbour_information` and :func:`active_codes` implement these two choices.
"""

import warnings
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from unknot.metrics.functional.aggregation import NOTHING
from unknot.metrics.functional.checks import Floats, as_codes, as_rows, varying
from unknot.metrics.functional.information import entropy, mutual_information

NEIGHBOURS = 10
STEPS = 100  # steps of the linear probe's optimiser

Pruning = Literal["range", "wide_range", "interquartile"]


def infomec(
    codes: Any,
    factors: Any,
    discrete_codes: bool = False,
    pruning: Pruning = "range",
    neighbours: int = NEIGHBOURS,
) -> dict[str, float]:
    r"""Modularity (InfoM), explicitness (InfoE) and compactness (InfoC) of a representation (Hsu et al., 2023).

    .. math::
        \mathrm{InfoM} = \frac{\frac{1}{A}\sum_{d} \frac{\max_k N_{kd}}{\sum_k N_{kd}} - \frac{1}{F}}{1 - \frac{1}{F}}

    .. math::
        \mathrm{InfoC} = \frac{\frac{1}{F}\sum_{k} \frac{\max_d N_{kd}}{\sum_d N_{kd}} - \frac{1}{A}}{1 - \frac{1}{A}}

    .. math:: \mathrm{InfoE} = \frac{1}{F}\sum_k \frac{H_0(v_k) - H(v_k \mid z)}{H_0(v_k)}

    .. math:: N_{kd} = \frac{I(v_k; z_d)}{H(v_k)}

    over the A active latents (:func:`active_codes`) and the F factors that vary. H(v_k | z) is the training log-loss of
    a logistic regression without penalty and with balanced classes, H₀ that of the same regression on zeros, the
    logarithm of the number of classes.

    **Read InfoM together with InfoE.** InfoM divides by a latent's information, however small: with the estimator of
    continuous latents, pure noise reaches 0.9, because the estimate is rarely above zero for two factors.
    :func:`permuted_baseline` gives the value for factors in random order. The estimates for continuous and for discrete
    latents differ, so scores of continuous and quantised models are not strictly comparable.

    The authors' code returns NaN when an active latent has no information about any factor. Here that latent is left
    out of the mean of InfoM, and still counts in A for InfoC.

    Args:
        codes: representation ``[N, D]``.
        factors: integer classes ``[N, F]``; the authors take the first 10,000 training images. Factors that do not vary
            are left out.
        discrete_codes: whether the latents take few values, as in a quantised model: information is counted, and the
            probe gets one-hot latents. Otherwise information is estimated from nearest neighbours, which fails with
            ties.
        pruning: rule that selects active latents, see :func:`active_codes`. ``"range"`` is the rule of the authors'
            metric.
        neighbours: k of the estimator for continuous latents.

    Returns:
        ``infom``, ``infoe`` and ``infoc``. All are 0 if no latent is active or no factor varies. With a single factor
        InfoM, and with a single active latent InfoC, are 1 for a latent that has information; the formula is 0/0 there.

    >>> rng = np.random.default_rng(0)
    >>> factors = rng.integers(0, 4, size=(500, 2))
    >>> scores = infomec(factors + 0.1 * rng.normal(size=(500, 2)), factors)
    >>> {name: round(value, 1) for name, value in scores.items()}
    {'infom': 1.0, 'infoe': 1.0, 'infoc': 1.0}
    """
    codes, factors = as_rows(codes, factors)
    factors = factors[:, varying(factors)]
    active = active_codes(codes, discrete_codes, pruning)
    if not active.any() or not factors.shape[1]:
        return {"infom": 0.0, "infoe": 0.0, "infoc": 0.0}
    information = normalised_information(codes, factors, discrete_codes, neighbours)[:, active]
    return {
        "infom": _concentration(information.T),
        "infoe": probe_explicitness(codes, factors, discrete_codes),
        "infoc": _concentration(information),
    }


def normalised_information(
    codes: Any, factors: Any, discrete_codes: bool = False, neighbours: int = NEIGHBOURS
) -> Floats:
    r"""Normalised mutual information I(v_k; z_d) / H(v_k), as estimated by InfoMEC: ``[F, D]``.

    .. math:: N_{kd} = \frac{I(v_k; z_d)}{H(v_k)}

    Entries of continuous latents can slightly exceed 1, because the two entropies are estimated separately. Rows of
    factors that do not vary are 0.

    Args:
        codes: representation ``[N, D]``.
        factors: integer classes ``[N, F]``.
        discrete_codes: count the information of each value; otherwise estimate it (:func:`neighbour_information`).
        neighbours: k of the estimator for continuous latents.

    >>> factors = np.arange(12).reshape(-1, 1) % 3
    >>> normalised_information(np.hstack([factors, 0 * factors]), factors, discrete_codes=True).tolist()
    [[1.0, 0.0]]
    """
    codes, factors = as_rows(codes, factors)
    if discrete_codes:
        levels = np.stack([np.unique(column, return_inverse=True)[1] for column in codes.T], axis=1)
        information = mutual_information(levels, factors).T
    else:
        information = neighbour_information(codes, factors, neighbours)
    entropies = entropy(factors)[:, None]
    return np.divide(information, entropies, out=np.zeros_like(information), where=entropies > 0)


def neighbour_information(codes: Any, factors: Any, neighbours: int = NEIGHBOURS) -> Floats:
    r"""Mutual information of continuous latents and classes, in nats, from nearest neighbours (Ross, 2014): ``[F, D]``.

    .. math::
        I = \max\left(0,\ \psi(N) + \langle\psi(k_i)\rangle - \langle\psi(N_i)\rangle - \langle\psi(m_i)\rangle\right)

    For sample i, N_i samples are of its class, k_i = min(k, N_i - 1), and m_i samples of any class are nearer than its
    k_i-th neighbour of the same class. Classes with one sample are left out. This is scikit-learn's
    ``mutual_info_classif``, which breaks ties with noise of 1e-10 (here with a fixed seed).

    Args:
        codes: representation ``[N, D]``.
        factors: integer classes ``[N, F]``.
        neighbours: k; 10 in InfoMEC, 3 in scikit-learn and in the training script of InfoMEC's authors.

    >>> codes = np.linspace(0, 1, 300)[:, None]
    >>> neighbour_information(codes, (codes > 0.5).astype(int)).round(1).tolist()  # log 2
    [[0.7]]
    """
    from sklearn.feature_selection import mutual_info_classif

    codes, factors = as_rows(codes, factors)
    standardised = _standardised(codes)
    rows = np.zeros((factors.shape[1], codes.shape[1]))
    moving = codes.std(0) > 0
    for f, factor in enumerate(factors.T):
        repeated = np.unique(factor, return_counts=True)[1].max() > 1
        if repeated and moving.any():
            rows[f, moving] = mutual_info_classif(
                standardised[:, moving], factor, discrete_features=False, n_neighbors=neighbours, random_state=0
            )
    return rows


def active_codes(codes: Any, discrete_codes: bool = False, pruning: Pruning = "range") -> npt.NDArray[np.bool_]:
    r"""Select the latents ``[D]`` that vary enough to count in InfoMEC, by one of three rules.

    .. math:: \max z_d - \min z_d > \frac{1}{20}\, \max_e\left(\max z_e - \min z_e\right)

    =================  =====================================  =====================  ==================================
    ``pruning``        continuous latents                     discrete latents       used by
    =================  =====================================  =====================  ==================================
    ``range``          range above 1/20 of the largest        range above 0          the metric of Hsu et al. (2023)
    ``wide_range``     range above 1/8 of the largest         the same               their training script
    ``interquartile``  interquartile range above 1/10 of the  interquartile range    Tripod (Hsu et al., 2024), whose
                       largest                                above 0.1              latents lie in [-1, 1]
    =================  =====================================  =====================  ==================================

    A latent that is zero for nine samples in ten and spread out for the rest is active by its range and inactive by its
    interquartile range.

    >>> codes = np.array([[0.0, 0.0], [1.0, 0.06], [2.0, 0.06], [3.0, 0.2]])
    >>> active_codes(codes).tolist(), active_codes(codes, pruning="interquartile").tolist()
    ([True, True], [True, False])
    """
    codes = as_codes(codes)
    if pruning not in ("range", "wide_range", "interquartile"):
        raise ValueError(f"pruning must be 'range', 'wide_range' or 'interquartile', got {pruning!r}.")
    if pruning == "interquartile":
        low, high = np.quantile(codes, [0.25, 0.75], axis=0)
        spread: Floats = high - low
        threshold = 0.1 if discrete_codes else spread.max() / 10
    else:
        spread = np.ptp(codes, axis=0)
        threshold = spread.max() / 8 if pruning == "wide_range" else 0.0 if discrete_codes else spread.max() / 20
    return spread > threshold


def probe_explicitness(codes: Any, factors: Any, discrete_codes: bool = False) -> float:
    r"""InfoE: share of each factor's entropy that a linear probe removes, on the samples that it was fitted on.

    .. math:: \mathrm{InfoE} = \frac{1}{F}\sum_{k=1}^{F} \frac{\log |V_k| - H(v_k \mid z)}{\log |V_k|}

    The probe is scikit-learn's logistic regression without penalty, with balanced classes and at most 100 steps of
    L-BFGS, on standardised latents, or on one-hot ones if they are discrete.

    Args:
        codes: representation ``[N, D]``.
        factors: integer classes ``[N, F]``. Factors that do not vary are left out.
        discrete_codes: give the probe one-hot latents.

    >>> factors = np.arange(30).reshape(-1, 1) % 3
    >>> round(probe_explicitness(factors, factors, discrete_codes=True), 3)
    1.0
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import log_loss
    from sklearn.preprocessing import OneHotEncoder

    codes, factors = as_rows(codes, factors)
    features = OneHotEncoder(sparse_output=False).fit_transform(codes) if discrete_codes else _standardised(codes)
    shares = []
    for factor in factors[:, varying(factors)].T:
        probe = LogisticRegression(C=np.inf, class_weight="balanced", max_iter=STEPS)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # 100 steps are the protocol
            probe.fit(features, factor)
        uniform = np.log(len(probe.classes_))
        shares.append((uniform - log_loss(factor, probe.predict_proba(features))) / uniform)
    return float(np.mean(shares)) if shares else 0.0


def _concentration(rows: Floats) -> float:
    """Return (mean over rows of largest / sum - 1/n) / (1 - 1/n) for n columns, ignoring rows of zeros."""
    total = rows.sum(1)
    informed = total > NOTHING
    columns = rows.shape[1]
    if not informed.any():
        return 0.0
    share = float(np.mean(rows[informed].max(1) / total[informed]))
    return share if columns == 1 else (share - 1 / columns) / (1 - 1 / columns)


def _standardised(codes: Floats) -> Floats:
    scale = codes.std(0)
    return (codes - codes.mean(0)) / np.where(scale > 0, scale, 1)
