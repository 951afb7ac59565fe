"""DCIMIG, JEMMIG, MIG-sup, MED and MIG by entropy of latents, against loops over scikit-learn's information."""

import numpy as np
import pytest
from sklearn.metrics import mutual_info_score

from unknot.metrics import functional as f
from unknot.metrics.functional.information import discretize


def draw(n=400, d=4, sizes=(3, 5), seed=0):
    rng = np.random.default_rng(seed)
    factors = rng.integers(0, sizes, size=(n, len(sizes)))
    return factors @ rng.normal(size=(len(sizes), d)) + 0.3 * rng.normal(size=(n, d)), factors


def entropy(*columns):
    counts = np.unique(np.stack(columns), axis=1, return_counts=True)[1] / len(columns[0])
    return -(counts * np.log(counts)).sum()


@pytest.mark.parametrize("sizes", [(3, 5), (4,), (2, 3, 6)])
@pytest.mark.parametrize("bins", [10, 20])
def test_against_loops(sizes, bins):
    codes, factors = draw(sizes=sizes)
    classes = discretize(codes, bins).T
    information = np.array([[mutual_info_score(z, v) for v in factors.T] for z in classes])
    rows = [sorted([*row, 0.0], reverse=True) for row in information]
    own, true = [entropy(z) for z in classes], [entropy(v) for v in factors.T]
    expected = {"mig_sup": np.mean([(row[0] - row[1]) / h for row, h in zip(rows, own, strict=True)])}
    gaps = dict.fromkeys(range(len(sizes)), 0.0)
    for d, row in enumerate(rows):
        k = int(information[d].argmax())
        gaps[k] = max(gaps[k], row[0] - row[1])
    expected["dcimig"] = sum(gaps.values()) / sum(true)
    parts = []
    for k, v in enumerate(factors.T):
        first, second = np.argsort(-information[:, k])[:2]
        joint = entropy(classes[first], v) - information[first, k] + information[second, k]
        parts.append(1 - joint / (true[k] + np.log(bins)))
    expected["jemmig"] = np.mean(parts)
    found = {name: getattr(f, name)(codes, factors, bins) for name in expected}
    assert found == pytest.approx(expected)
    divided = -np.sort(-information / np.array(own)[:, None], axis=0)
    assert f.mig(codes, factors, bins, divide_by="code") == pytest.approx(np.mean(divided[0] - divided[1]))
    shares = information / information.sum(0)
    assert f.med(codes, factors, bins) == pytest.approx(
        {"disentanglement": f.dci_disentanglement(shares), "completeness": f.dci_completeness(shares)}
    )


def test_the_most_disentangled_latents_of_each_factor():
    factors = draw(n=2000)[1]
    codes = np.column_stack([factors, factors @ [1, 3], factors[:, 0] * 2.0])
    assert f.med(codes, factors, top_k=1) == pytest.approx({"disentanglement": 1, "completeness": 1}, abs=0.03)
    # With two, the mixed latent stands for the second factor beside the pure one.
    assert f.med(codes, factors, top_k=2) == f.med(codes, factors)
    assert f.med(codes, factors)["disentanglement"] < 0.95
    with pytest.raises(ValueError, match="top_k must be a whole number of at least 1, got 0"):
        f.med(codes, factors, top_k=0)
    with pytest.raises(ValueError, match="divide_by must be 'factor' or 'code', got 'latent'"):
        f.mig(codes, factors, divide_by="latent")
