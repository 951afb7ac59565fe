"""BetaVAE and FactorVAE scores: the functions, and the interventions that evaluate makes for them."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from unknot.datamodules import FactorSpace, GroundTruthDataset
from unknot.metrics import Draws, computations, evaluate
from unknot.metrics.functional import beta_vae_score, difference_features, factor_vae_score, least_varying


class Grid(GroundTruthDataset):
    """An image is its factors, so that a representation is a function of them."""

    name = "grid"
    stochastic = False
    image_shape = (1, 1, 3)

    def __init__(self, sizes=(4, 5, 6)):
        self.factor_space = FactorSpace(names=tuple("abcdef"[: len(sizes)]), sizes=sizes)

    def observe(self, factors, generator=None):
        return factors.float()[:, None, None, :]


def identity(images):
    return images.flatten(1)


# Functions


def test_features_are_mean_absolute_differences():
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(2, 5, 8, 3))
    expected = [
        [np.mean([abs(first[b, i, d] - second[b, i, d]) for i in range(8)]) for d in range(3)] for b in range(5)
    ]
    np.testing.assert_allclose(difference_features(first, second), expected)


def test_beta_vae_score_is_the_accuracy_of_a_logistic_regression():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, size=300)
    features = rng.normal(size=(300, 4)) + np.eye(4)[labels]
    model = LogisticRegression().fit(features[:200], labels[:200])
    score = beta_vae_score(features[:200], labels[:200], features[200:], labels[200:])
    assert score == model.score(features[200:], labels[200:])
    assert 0.4 < score < 0.95


def test_beta_vae_score_with_one_label():
    features = np.ones((4, 2))
    assert beta_vae_score(features, [3, 3, 3, 3], features, [3, 3, 3, 1]) == 0.75


def majority(votes, labels, tested, asked):
    """A dictionary of counters: each code votes for the factor it met most often, the smallest of several."""
    right = 0
    for code, truth in zip(tested, asked, strict=True):
        met = [label for vote, label in zip(votes, labels, strict=True) if vote == code]
        best = max(sorted(set(labels)), key=met.count)
        right += best == truth
    return right / len(asked)


@pytest.mark.parametrize("seed", range(5))
def test_factor_vae_score_is_a_majority_vote(seed):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, size=90)
    votes = np.where(rng.random(90) < 0.6, labels, rng.integers(0, 5, size=90))
    both = votes[:60].tolist(), labels[:60].tolist(), votes[60:].tolist(), labels[60:].tolist()
    assert factor_vae_score(*both, latent_dim=5) == pytest.approx(majority(*both))


def test_a_code_that_never_voted_votes_for_the_first_factor():
    assert factor_vae_score([0, 0, 1], [4, 4, 2], [2, 2], [2, 4], latent_dim=3) == 0.5


@pytest.mark.parametrize("argmin", [[0, 3], [-1, 0]])
def test_votes_for_codes_that_do_not_exist_are_refused(argmin):
    with pytest.raises(ValueError, match=r"argmin must lie in 0..2 \(latent_dim=3\), got"):
        factor_vae_score([0, 1], [0, 1], argmin, [0, 1], latent_dim=3)


def test_least_varying_prunes_by_the_standard_deviation_before_it_divides():
    rng = np.random.default_rng(0)
    codes = rng.normal(size=(6, 64, 4)) * [1, 2, 0.04, 0]
    codes[:3, :, 1] *= 0.1
    codes[3:, :, 0] *= 0.1
    codes[:, :, 2] *= 1e-3  # varies least of all, and counts for nothing: its standard deviation is below 0.05
    std = np.array([1.0, 2.0, 0.04, 0.0])
    assert least_varying(codes, std).tolist() == [1, 1, 1, 0, 0, 0]
    assert least_varying(codes, std, threshold=0.01).tolist() == [2] * 6
    assert least_varying(codes, std, threshold=0.03).tolist() == [2] * 6  # 0.04 is a deviation, not a variance


def test_least_varying_is_relative_to_the_global_variance():
    codes = np.random.default_rng(1).normal(size=(1, 5000, 2)) * [3, 1]
    assert least_varying(codes, np.array([30.0, 1.0])).tolist() == [0]
    expected = codes.var(1, ddof=1) / np.array([3.0, 1.01]) ** 2
    assert least_varying(codes, np.array([3.0, 1.01])).tolist() == expected.argmin(1).tolist()


# Draws


def test_identity_is_perfect_and_constants_are_chance():
    scores = evaluate(identity, Grid(), ["beta_vae", "factor_vae"], num_train=300, num_test=100)
    assert scores["beta_vae"] >= 0.99
    assert scores["factor_vae"] == 1.0
    scores = evaluate(
        lambda images: 0 * identity(images), Grid(), ["beta_vae", "factor_vae"], num_train=50, num_test=100
    )
    assert scores["beta_vae"] < 0.5
    assert scores["factor_vae"] == 0.0


def test_rotated_codes_are_worse():
    turn = torch.linalg.qr(torch.randn(3, 3, generator=torch.Generator().manual_seed(0)))[0]
    scores = evaluate(
        lambda images: identity(images) @ turn, Grid((4, 4, 4)), "factor_vae", num_train=300, num_test=100
    )
    assert 0.3 < scores["factor_vae"] < 0.9


def test_dead_codes_do_not_vote():
    def padded(images):
        return torch.cat([0.01 * identity(images), identity(images)], dim=1)  # copies that never reach 0.05

    assert evaluate(padded, Grid((3, 3, 3)), "factor_vae", num_train=200, num_test=50)["factor_vae"] == 1.0


class Watched(Draws):
    """Keeps the factors that were asked for."""

    def codes(self, factors, generator):
        self.asked = [*getattr(self, "asked", []), factors.clone()]
        return super().codes(factors, generator)


def test_pairs_agree_in_the_fixed_factor_and_only_there():
    draws = Watched(identity, Grid(), num_train=40, num_test=10)
    computations.beta_vae(draws)
    first, second = draws.asked[0].view(2, 40, 64, 3)
    same = (first == second).all(1)  # of a batch, in every one of its 64 pairs
    assert (same.sum(1) == 1).all()
    assert set(same.nonzero()[:, 1].tolist()) == {0, 1, 2}
    assert all(first[:, :, k].unique().numel() > 1 for k in range(3))
    vary = (first == first[:, :1]).all(1)
    assert not vary.any()  # the value itself changes from pair to pair
    assert draws.asked[1].shape == (2 * 10 * 64, 3)


def test_batches_of_a_vote_share_the_value_of_one_factor():
    draws = Watched(identity, Grid(), num_train=40, num_test=10)
    _ = draws.train
    draws.asked = []
    computations.factor_vae(draws)
    batches = draws.asked[0].view(40, 64, 3)
    same = (batches == batches[:, :1]).all(1)
    assert (same.sum(1) == 1).all()
    assert set(same.nonzero()[:, 1].tolist()) == {0, 1, 2}
    assert len(batches[same[:, 2], 0, 2].unique()) > 1


def test_factors_with_one_value_are_never_asked_for():
    scores = evaluate(identity, Grid((4, 1, 5)), ["beta_vae", "factor_vae"], num_train=200, num_test=50)
    assert scores["beta_vae"] >= 0.99
    assert scores["factor_vae"] == 1.0
    nothing = evaluate(identity, Grid((1, 1, 1)), ["beta_vae", "factor_vae", "unfairness", "covariate_shift"], 5, 5)
    assert set(nothing.values()) == {0.0}


def test_every_grid_point_is_encoded_once():
    images = []

    def represent(batch):
        images.append(len(batch))
        return identity(batch)

    evaluate(represent, Grid((2, 3, 4)), ["beta_vae", "factor_vae"], num_train=100, num_test=50)
    assert sum(images) <= 2 * 64  # 24 points, in full batches, asked for at most twice


# Unfairness and covariate shift


def test_unfairness_of_codes_that_know_one_factor_each_is_nothing():
    fair = evaluate(identity, Grid((3, 2, 3)), "unfairness", num_train=300, num_test=10)
    assert fair["unfairness"] == pytest.approx(0, abs=1e-9)
    assert fair["unfairness_max"] == pytest.approx(0, abs=1e-9)
    assert {"unfairness/a|b", "unfairness/c|a"} <= fair.flat().keys()
    assert "unfairness/a|a" not in fair.flat()


def test_unfairness_is_the_mean_over_targets_and_sensitive_factors():
    def mixed(images):
        a, b, _ = identity(images).unbind(1)
        return torch.stack([a + b], dim=1)  # predictions of a must follow b

    result = evaluate(mixed, Grid((3, 3, 2)), "unfairness", num_train=300, num_test=10)
    pairs = list(result.details["unfairness"].values())
    assert len(pairs) == 6
    assert result["unfairness"] == pytest.approx(np.mean(pairs))
    assert result["unfairness"] <= result["unfairness_max"]
    assert result["unfairness/a|b"] > 0.2
    assert result["unfairness/a|c"] == pytest.approx(0, abs=1e-9)


def test_covariate_shift_hurts_entangled_codes_only(monkeypatch):
    monkeypatch.setattr(computations, "INTERVENTIONS", 2)
    fine = evaluate(identity, Grid((2, 3, 2)), "covariate_shift", num_train=100, num_test=60)
    assert fine["covariate_shift"] == 1.0
    assert fine.flat().keys() == {"covariate_shift", "covariate_shift/a", "covariate_shift/b", "covariate_shift/c"}

    def summed(images):
        return identity(images).sum(1, keepdim=True)

    assert evaluate(summed, Grid((2, 3, 2)), "covariate_shift", num_train=100, num_test=60)["covariate_shift"] < 0.8


def test_the_frozen_factor_takes_its_other_values_in_the_test(monkeypatch):
    monkeypatch.setattr(computations, "INTERVENTIONS", 1)
    draws = Watched(identity, Grid((3, 3, 3)), num_train=30, num_test=30)
    computations.covariate_shift(draws)
    for train, test in zip(draws.asked[::2], draws.asked[1::2], strict=True):
        frozen = (train == train[0]).all(0).nonzero().flatten().tolist()
        assert len(frozen) == 1
        assert train[0, frozen[0]] not in test[:, frozen[0]]
        assert len(test[:, frozen[0]].unique()) == 2
