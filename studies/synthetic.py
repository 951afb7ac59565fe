"""Synthetic tables of results with known effects, to test analyses on populations of a given size."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from unknot.studies.population import DOWNSTREAM, METRICS

STRENGTHS = {
    "BetaVAE": (1, 2, 4, 6, 8, 16),
    "FactorVAE": (10, 20, 30, 40, 50, 100),
    "BetaTCVAE": (1, 2, 4, 6, 8, 10),
    "DIPVAEI": (1, 2, 5, 10, 20, 50),
    "DIPVAEII": (1, 2, 5, 10, 20, 50),
    "AnnealedVAE": (5, 10, 25, 50, 75, 100),
}
WEAK = ("AdaGVAE", "AdaMLVAE", "GVAE", "MLVAE")


def synthetic_results(
    datasets: Sequence[str] = ("dsprites", "rooms3d"),
    seeds: int = 3,
    method_share: float = 0.37,
    setting_share: float = 0.22,
    agreement: float = 0.8,
    fairness: float = -0.7,
    seed: int = 0,
    weak: bool = True,
) -> pd.DataFrame:
    """Return a table of results as if the unsupervised and a weakly-supervised study had been trained.

    Every model has a latent quality, the sum of effects of its method, setting and seed. Metrics measure it with noise;
    downstream accuracy, unfairness, weak loss and reasoning depend on it; modularity and the ELBO do not.

    Args:
        datasets: names of data sets, each with its own effects of settings.
        seeds: number of models of each setting.
        method_share: share of the variance of the quality that the method explains.
        setting_share: share that the strength explains beyond it.
        agreement: correlation of a metric with the quality.
        fairness: correlation of unfairness with the quality.
        seed: random seed.
        weak: include models trained on pairs, which have higher quality.

    >>> synthetic_results(seeds=1, weak=False).shape[0]
    72
    """
    rng = np.random.default_rng(seed)
    rows = [
        {"dataset": dataset, "method": method, "strength": strength, "seed": number, "data.k": None}
        for number in range(seeds)
        for dataset in datasets
        for method, strengths in STRENGTHS.items()
        for strength in strengths
    ]
    if weak:
        rows += [
            {"dataset": dataset, "method": method, "strength": beta, "seed": number, "data.k": k}
            for number in range(seeds)
            for dataset in datasets
            for method in WEAK
            for beta in STRENGTHS["BetaVAE"]
            for k in ("1", "rnd")
        ]
    table = pd.DataFrame(rows)
    n = len(table)

    def effect(columns: list[str]) -> np.ndarray:
        codes, names = pd.factorize(pd.MultiIndex.from_frame(table[columns]))
        return rng.standard_normal(len(names))[codes]

    quality = (
        np.sqrt(method_share) * effect(["dataset", "method"])
        + np.sqrt(setting_share) * effect(["dataset", "method", "strength"])
        + np.sqrt(max(0.0, 1 - method_share - setting_share)) * rng.standard_normal(n)
    )
    quality = quality + 1.5 * table.method.isin(WEAK)
    table["status"] = "done"

    def seen(correlation: float, reliability: float = 1.0) -> np.ndarray:
        noise = np.sqrt(1 - correlation**2) * rng.standard_normal(n)
        return correlation * quality * reliability + noise

    def squashed(values: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-values))

    scores: dict[str, Any] = {}
    for metric in METRICS:
        values = seen(0.0 if metric == "modularity" else agreement / 2 if metric == "irs" else agreement)
        scores[metric] = squashed(values)
        # a second draw, and two of 100 samples
        scores[f"{metric}@10000-again"] = squashed(values + 0.05 * rng.standard_normal(n))
        for run in ("", "-again"):
            scores[f"{metric}@100{run}"] = squashed(values + 0.8 * rng.standard_normal(n))
    for column in DOWNSTREAM:
        if not column.endswith("efficiency"):
            scores[column] = squashed(seen(0.8 if "gbt" in column else 0.6))
    for kind in ("lr", "gbt"):
        scores[f"downstream_{kind}_efficiency"] = scores[f"downstream_{kind}_100"] / scores[f"downstream_{kind}_10000"]
    scores["unfairness"] = 0.25 * squashed(seen(fairness))
    scores["covariate_shift"] = scores["downstream_gbt_10000"] * squashed(2 + seen(0.5))
    scores["elbo_reconstruction"], scores["elbo_kl"] = 50 + 5 * rng.standard_normal((2, n))
    scores["elbo"] = -scores["elbo_reconstruction"] - scores["elbo_kl"]
    place = table.groupby("method").strength.rank("dense")
    scores["total_correlation_sampled"] = np.exp(-0.4 * place + 0.1 * rng.standard_normal(n))
    scores["total_correlation"] = np.exp(0.3 * place + 0.1 * rng.standard_normal(n))
    scores["udr"] = squashed(seen(0.6))
    pairs = table.method.isin(WEAK)
    scores["weak_reconstruction"] = np.where(pairs, 60 - 5 * seen(0.7), np.nan)
    for steps, correlation in ((300, 0.7), (1000, 0.5), (10_000, 0.0)):
        scores[f"reasoning_{steps}"] = 0.2 + 0.6 * squashed(seen(correlation))
    for score, correlation in (("mig", 0.7), ("dci", 0.7), ("sap", 0.3)):
        for labels in (100, 1000):
            for kind, loss in (("perfect", 1.0), ("binned", 1.0), ("noisy", 0.9), ("partial", 0.7)):
                scores[f"{score}@{labels}-{kind}-0"] = squashed(seen(correlation * loss if labels == 100 else 0.7))
    for matrix, trust in (("importance", 0.8), ("information", 0.7), ("predictability", 0.5)):
        compact, modular = seen(trust), seen(trust)
        for name in ("dci_completeness", "mig", "sap"):
            scores[f"aggregation_{matrix}_{name}"] = squashed(compact + 0.3 * rng.standard_normal(n))
        scores[f"aggregation_{matrix}_dci_disentanglement"] = squashed(modular)
        scores[f"aggregation_{matrix}_modularity"] = squashed(rng.standard_normal(n))
        edges = -np.sort(-rng.random((n, 5)), axis=1)
        for factor in range(5):
            scores[f"aggregation_{matrix}_edge_{factor + 1}"] = edges[:, factor] / edges[:, 0]
            if factor:
                scores[f"aggregation_{matrix}_merge_{factor}"] = 0.5 * edges[:, factor] / edges[:, 0]
    return table.join(pd.DataFrame(scores))
