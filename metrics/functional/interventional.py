"""Interventional scores: BetaVAE (Higgins et al., 2017) and FactorVAE (Kim & Mnih, 2018).

Both predict the index of the factor that was fixed in a batch. Their features come from batches that
:func:`unknot.metrics.evaluate` draws; the functions here take features and indices only.
"""

from typing import Any

import numpy as np

from unknot.metrics.functional.checks import Floats, Ints, as_codes, as_labels
from unknot.metrics.functional.logistic import scikit_regression


def beta_vae_score(features_train: Any, labels_train: Any, features_test: Any, labels_test: Any) -> float:
    r"""Test accuracy of a linear classifier that predicts the factor shared by two batches.

    .. math:: P\left(\mathrm{argmax}_k\, (W x + b)_k = k_{\mathrm{fixed}}\right)

    .. math:: x = \frac{1}{B}\sum_{i=1}^{B} |z_i - z_i^\prime|

    Thesis: section "Measuring Disentanglement".

    Args:
        features_train: ``[N, D]``, each the mean over a batch of |z₁ - z₂| for pairs that agree in one factor
            (:func:`difference_features`); 10,000 batches of 64 in the thesis.
        labels_train: index of that factor, ``[N]``.
        features_test: ``[M, D]``; 5,000 in the thesis.
        labels_test: ``[M]``.

    >>> labels = np.arange(90) % 3
    >>> features = 1.0 - np.eye(3)[labels]
    >>> beta_vae_score(features[:60], labels[:60], features[60:], labels[60:])
    1.0
    """
    train, test = as_codes(features_train), as_codes(features_test)
    known, asked = as_labels(labels_train, len(train)), as_labels(labels_test, len(test))
    if train.shape[1] != test.shape[1]:
        raise ValueError(f"features must be as wide in training and test, got {train.shape[1]} and {test.shape[1]}.")
    if (known == known[0]).all():
        return float(np.mean(asked == known[0]))
    return float(np.mean(scikit_regression(train, known).predict(test) == asked))


def factor_vae_score(
    argmin_train: Any, labels_train: Any, argmin_test: Any, labels_test: Any, latent_dim: int
) -> float:
    r"""Test accuracy of a majority vote for the factor that was fixed, given the latent that varied least.

    .. math:: P\left(\mathrm{argmax}_k\, V_{d^* k} = k_{\mathrm{fixed}}\right)

    .. math:: d^* = \mathrm{argmin}_d\, \frac{\mathrm{Var}(z_d \mid k_{\mathrm{fixed}})}{\mathrm{Var}(z_d)}

    Thesis: section "Measuring Disentanglement".

    V counts the training batches in which latent d varied least while factor k was fixed.

    Args:
        argmin_train: for each batch, the latent with the smallest variance relative to its global variance, ``[N]`` in
            0..latent_dim-1 (:func:`least_varying`); 10,000 batches of 64 in the thesis.
        labels_train: index of the factor that was fixed, ``[N]``.
        argmin_test: ``[M]``; 5,000 in the thesis.
        labels_test: ``[M]``.
        latent_dim: number of latents.

    >>> factor_vae_score([0, 0, 1, 1], [2, 2, 0, 2], [0, 1, 1], [2, 0, 2], latent_dim=3)
    0.6666666666666666
    """
    votes, tested = as_labels(argmin_train, what="argmin"), as_labels(argmin_test, what="argmin")
    known, asked = as_labels(labels_train, len(votes)), as_labels(labels_test, len(tested))
    for argmin in (votes, tested):
        if argmin.min() < 0 or argmin.max() >= latent_dim:
            raise ValueError(
                f"argmin must lie in 0..{latent_dim - 1} (latent_dim={latent_dim}), got {argmin.min()}..{argmin.max()}."
            )
    classes, ranks = np.unique(known, return_inverse=True)
    table = np.zeros((latent_dim, len(classes)), dtype=np.int64)
    np.add.at(table, (votes, ranks), 1)
    return float(np.mean(classes[table.argmax(1)][tested] == asked))


def difference_features(first: Floats, second: Floats) -> Floats:
    r"""Mean |z₁ - z₂| over each batch of pairs: two arrays ``[B, N, D]`` to ``[B, D]``.

    .. math:: d = \frac{1}{N}\sum_{i=1}^{N} |z_i - z_i^\prime|

    Thesis: section "Measuring Disentanglement", the BetaVAE metric.

    Args:
        first: codes of the first image of each pair, ``[B, N, D]``.
        second: codes of the second image, which shares one factor with the first.

    >>> difference_features(np.zeros((1, 2, 2)), np.array([[[0.0, 1.0], [0.0, -3.0]]])).tolist()
    [[0.0, 2.0]]
    """
    return np.abs(first - second).mean(1)


def least_varying(codes: Floats, global_std: Floats, threshold: float = 0.05) -> Ints:
    r"""Index of the latent that varies least in each batch ``[B, N, D]``, relative to its global standard deviation:
    ``[B]``.

    .. math:: d = \mathrm{argmin}_i\, \frac{\mathrm{Var}(z_i)}{s_i^2}

    .. math:: s_i = \text{standard deviation of } z_i \text{ over all images}

    Thesis: section "Measuring Disentanglement", the FactorVAE metric.

    Latents whose global standard deviation is below ``threshold`` are unused and left out. The reference's function has
    a default of 0, its study uses 0.05.

    Args:
        codes: codes of batches of images that share one factor, ``[B, N, D]``.
        global_std: standard deviation of each latent over all images, ``[D]``.
        threshold: standard deviation below which a latent is unused.

    >>> least_varying(np.array([[[0.0, 1.0], [2.0, 1.1]]]), np.array([1.0, 1.0])).tolist()
    [1]
    """
    live = global_std >= threshold
    relative = codes.var(1, ddof=1) / np.where(live, global_std, 1) ** 2
    return np.where(live, relative, np.inf).argmin(1)
