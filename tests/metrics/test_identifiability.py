"""MCC, regressions, slot identifiability and explicitness curves: from their definitions, and odd inputs."""

from itertools import permutations

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics import r2_score

from unknot.metrics import functional as f

RNG = np.random.default_rng(0)
FACTORS = RNG.normal(size=(200, 3))
CODES = FACTORS @ RNG.normal(size=(3, 4)) + RNG.normal(size=(200, 4))


@pytest.mark.parametrize("correlation", ["pearson", "spearman"])
def test_mcc_is_the_best_of_all_matches(correlation):
    matrix = np.abs(np.corrcoef(FACTORS.T, CODES.T)[:3, 3:])
    if correlation == "spearman":
        matrix = np.abs(spearmanr(FACTORS, CODES)[0][:3, 3:])
    best = max(np.mean([matrix[k, d] for k, d in enumerate(match)]) for match in permutations(range(4), 3))
    assert f.mcc(CODES, FACTORS, correlation) == pytest.approx(best)
    fewer = max(matrix[k, d] for k in range(3) for d in range(1)) / 3  # two of three factors go without a latent
    assert f.mcc(CODES[:, :1], FACTORS, correlation) == pytest.approx(fewer)
    latents, correlations = f.matched_correlations(CODES[:, :1], FACTORS, correlation)
    assert sorted(latents) == [-1, -1, 0]
    assert correlations[latents == -1].tolist() == [0, 0]


def test_mcc_is_blind_to_order_sign_and_scale_and_takes_what_numbers_come():
    score = f.mcc(CODES, FACTORS)
    assert f.mcc(CODES[:, ::-1] * [-1, 2, -3, 1e-6] + 5, FACTORS * 100 - 3) == pytest.approx(score)
    assert f.mcc(torch.from_numpy(CODES), torch.from_numpy(FACTORS)) == pytest.approx(score)
    assert f.mcc(np.exp(CODES), FACTORS, "spearman") == pytest.approx(f.mcc(CODES, FACTORS, "spearman"))
    still = np.column_stack([FACTORS, np.full(200, 7.3)])
    assert f.mcc(CODES, still) == pytest.approx(score)
    assert f.mcc(np.full((200, 2), 0.1), FACTORS) == 0
    assert f.mcc(CODES, np.ones((200, 2))) == 0
    assert f.mcc([[0], [1], [2]], [[0], [2], [4]]) == pytest.approx(1)
    with pytest.raises(ValueError, match="correlation must be 'pearson' or 'spearman', got 'kendall'"):
        f.mcc(CODES, FACTORS, "kendall")
    holes = np.where(FACTORS > 2, np.nan, FACTORS)  # rows without all labels are left out
    whole = ~np.isnan(holes).any(1)
    assert f.mcc(CODES, holes) == pytest.approx(f.mcc(CODES[whole], FACTORS[whole]))
    with pytest.raises(ValueError, match="as many rows, got 200 and 9"):
        f.mcc(CODES, FACTORS[:9])


def test_regressions():
    train, test = slice(0, 120), slice(120, 200)
    rows = CODES[train], FACTORS[train], CODES[test], FACTORS[test]
    weights = np.linalg.lstsq(np.c_[CODES[train], np.ones(120)], FACTORS[train], rcond=None)[0]
    predicted = np.c_[CODES[test], np.ones(80)] @ weights
    found = f.regression_r2(*rows)
    assert found["r2"] == pytest.approx(r2_score(FACTORS[test], predicted))
    pearson = [np.corrcoef(a, b)[0, 1] for a, b in zip(predicted.T, FACTORS[test].T, strict=True)]
    assert found["correlation"] == pytest.approx(np.mean(pearson))
    assert found["r2_per_factor"] == pytest.approx(r2_score(FACTORS[test], predicted, multioutput="raw_values"))
    bent = FACTORS**2
    linear = f.regression_r2(FACTORS[train], bent[train], FACTORS[test], bent[test])["r2"]
    for regressor in ("kernel", "mlp"):
        curved = f.regression_r2(FACTORS[train], bent[train], FACTORS[test], bent[test], regressor)
        assert curved["r2"] > linear + 0.2, regressor
    x, y = ((v - v[train].mean(0)) / v[train].std(0) for v in (FACTORS, bent))
    ridge = KernelRidge(kernel="rbf", gamma=1 / 3).fit(x[train], y[train])
    curved = f.regression_r2(FACTORS[train], bent[train], FACTORS[test], bent[test], "kernel")
    assert curved["r2"] == pytest.approx(r2_score(y[test], ridge.predict(x[test])))
    constant = f.regression_r2(np.ones((9, 1)), np.arange(9)[:, None], np.ones((9, 1)), np.arange(9)[:, None])
    assert (constant["r2"], constant["correlation"]) == pytest.approx((0, 0))
    left_out = f.regression_r2(CODES, np.c_[FACTORS, np.ones(200)], CODES, np.c_[FACTORS, np.ones(200)])
    assert np.isnan(left_out["r2_per_factor"]).tolist() == [False, False, False, True]
    with pytest.raises(ValueError, match="regressor must be 'linear', 'kernel' or 'mlp', got 'svm'"):
        f.regression_r2(*rows, regressor="svm")
    with pytest.raises(ValueError, match="codes to train and to test on must be as wide, got 4 and 2 columns"):
        f.regression_r2(CODES, FACTORS, CODES[:, :2], FACTORS)


def test_dci_by_regression_trees():
    found = f.dci_regression(FACTORS[:, [1, 0]], FACTORS[:, :2], FACTORS[:, [1, 0]], FACTORS[:, :2])
    assert found["importance"].argmax(1).tolist() == [1, 0]
    assert min(found["disentanglement"], found["completeness"]) > 0.95
    assert found["error_train"] == found["error_test"] < 0.05
    nothing = f.dci_regression(np.zeros((20, 2)), FACTORS[:20], np.zeros((20, 2)), FACTORS[:20])
    assert (nothing["disentanglement"], nothing["completeness"]) == (0, 0)
    assert nothing["error_test"] == pytest.approx(FACTORS[:20].var(0).mean())


def test_curves_of_capacity():
    assert f.capacity_explicitness([0, 1, 2], [0.5, 0.0, 0.3], baseline=0.5) == pytest.approx(1 - 2 * 0.25 / (2 * 0.5))
    # A curve that is continued counts as flat there.
    assert f.capacity_explicitness([0, 1], [0.5, 0.0], baseline=0.5, end=2) == pytest.approx(0.5)
    with pytest.raises(ValueError, match="increasing capacities"):
        f.capacity_explicitness([1, 1], [0.5, 0.4], 1.0)
    with pytest.raises(ValueError, match="baseline positive"):
        f.capacity_explicitness([1, 2], [0.5, 0.4], 0.0)
    with pytest.raises(ValueError, match="depths must be at least two increasing whole numbers"):
        f.dci_es(CODES, FACTORS > 0, CODES, FACTORS > 0, depths=(3, 2))


def test_slots_that_know_one_object_and_slots_that_know_all():
    objects = RNG.normal(size=(150, 3, 2))
    apart = f.slot_identifiability(objects[:, [2, 0, 1]] ** 3, objects)
    assert apart["r2"].argmax(1).tolist() == [1, 2, 0]
    assert apart["sis"] > 0.7
    together = f.slot_identifiability(np.repeat(objects.reshape(150, 1, 6), 3, axis=1), objects)
    assert together["sis"] == pytest.approx(0, abs=1e-9)
    assert together["matched"] > 0.1
    assert f.slot_identifiability(np.zeros((150, 3, 2)), objects)["sis"] == 0
    with pytest.raises(ValueError, match=r"with O <= K, got \[150, 2, 2\] and \[150, 3, 2\]"):
        f.slot_identifiability(objects[:, :2], objects)


def test_contrast_of_decoders():
    one, other = np.eye(3), np.zeros((3, 3))
    apart = np.stack([np.block([[one, other], [other, one]])] * 5)  # three outputs of each of two slots
    together = np.stack([np.block([[one, one], [one, one]])] * 5)  # outputs of their sum, twice
    for weighted in (False, True):
        assert f.compositional_contrast(apart, 2, weighted) == 0
    assert f.compositional_contrast(together, 2) == pytest.approx(6)  # six outputs, each with two norms of 1
    assert f.compositional_contrast(7 * together, 2, weighted=True) == pytest.approx(6)
    assert f.compositional_contrast(0 * together, 2, weighted=True) == 0
    with pytest.raises(ValueError, match=r"of shape \[B, P, 4 \* D\]"):
        f.compositional_contrast(together, 4)
