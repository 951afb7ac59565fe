"""Unsupervised scores of the dependence between latents."""

from typing import Any

import numpy as np

from unknot.metrics.functional.checks import Floats, as_codes
from unknot.metrics.functional.information import discretize, mutual_information


def total_correlation(codes: Any) -> float:
    r"""Total correlation, in nats, of a Gaussian with the covariance Σ of the codes.

    .. math::
        \mathrm{TC} = D_{KL}\left(\mathcal{N}(\mu, \Sigma)\,\|\,\prod_j \mathcal{N}(\mu_j, \Sigma_{jj})\right) =
        \frac{1}{2}\left(\sum_j \log\Sigma_{jj} - \log\det\Sigma\right)

    Thesis: section "Can We Learn Disentangled Representations Without Supervision?".

    Constant latents are independent of everything and left out. Latents that determine each other linearly have an
    infinite total correlation; each such dependence then counts as -½ log 2⁻⁵² = 18 nats, the limit of double
    precision, so that means and ranks over models stay finite (the reference returns rounding errors, 50 to 70 in
    total).

    Args:
        codes: representation ``[N, D]``, means or samples.

    >>> rng = np.random.default_rng(0)
    >>> bool(total_correlation(rng.normal(size=(10_000, 3))) < 0.01)
    True
    >>> total_correlation(np.zeros((10, 3)))
    0.0
    """
    covariance = _covariance(as_codes(codes))
    if not covariance.size:
        return 0.0
    scale = np.sqrt(np.diag(covariance))
    eigenvalues = np.linalg.eigvalsh(covariance / scale / scale[:, None])
    smallest = 10 * len(scale) * np.finfo(float).eps  # rounding error of 0
    eigenvalues = np.where(eigenvalues <= smallest, np.finfo(float).eps, eigenvalues)
    return max(0.0, float(-0.5 * np.log(eigenvalues).sum()))


def wasserstein_dependence(codes: Any, normalized: bool = False) -> float:
    r"""Squared 2-Wasserstein distance between a Gaussian with the covariance of the codes and the product of its
    marginals.

    .. math::
        W_2^2 = 2\,\mathrm{tr}\,\Sigma - 2\,\mathrm{tr}\left(\Sigma^{1/2}\, \mathrm{diag}(\Sigma)\,
        \Sigma^{1/2}\right)^{1/2}

    Args:
        codes: representation ``[N, D]``.
        normalized: relative to the total variance; 0 if there is none.

    >>> rng = np.random.default_rng(0)
    >>> bool(wasserstein_dependence(rng.normal(size=(10_000, 3)), normalized=True) < 0.001)
    True
    """
    covariance = _covariance(as_codes(codes))
    if not covariance.size:
        return 0.0
    scale = np.sqrt(np.diag(covariance))
    # the same trace: Σ^½ diag(Σ) Σ^½ and diag(Σ)^½ Σ diag(Σ)^½ have equal eigenvalues
    eigenvalues = np.linalg.eigvalsh(covariance * scale * scale[:, None]).clip(min=0)
    total = np.trace(covariance)
    distance = max(0.0, 2 * total - 2 * np.sqrt(eigenvalues).sum())
    return float(distance / total if normalized else distance)


def pairwise_information(codes: Any, bins: int = 20) -> float:
    r"""Mean mutual information, in nats, of two different latents, each in ``bins`` intervals; 0 for a single latent.

    .. math:: \frac{1}{D(D-1)}\sum_{i\neq j} I(z_i; z_j)

    >>> coin = np.array([[0.0], [1.0]]).repeat(2, axis=1)
    >>> round(pairwise_information(coin), 4)
    0.6931
    """
    classes = discretize(as_codes(codes), bins)
    information = mutual_information(classes, classes)
    pairs = information[~np.eye(len(information), dtype=bool)]
    return float(pairs.mean()) if pairs.size else 0.0


def _covariance(codes: Floats) -> Floats:
    """Return the covariance of the latents that vary."""
    codes = codes[:, codes.min(0) < codes.max(0)]
    return np.atleast_2d(np.cov(codes, rowvar=False)) if codes.size else np.empty((0, 0))
