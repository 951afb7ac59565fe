"""The theorems, as equalities."""

import itertools

import numpy as np
import pytest
import torch
from scipy import stats

from unknot.metrics.functional import mig, unfairness
from unknot.studies import theory
from unknot.studies.theory import Entangling

LAWS = {"uniform": stats.uniform(), "expon": stats.expon(), "norm": stats.norm(), "beta": stats.beta(2, 5)}


def points(f: Entangling, n: int = 1000) -> np.ndarray:
    """Draws whose normal scores, and those of their images, lie within four standard deviations."""
    z = f.sample(n)
    scores = [
        np.stack([stats.norm.ppf(law.cdf(column)) for law, column in zip(f.marginals, u.T, strict=True)], axis=1)
        for u in (z, f(z))
    ]
    return z[(np.abs(scores) < 4).all((0, 2))]


@pytest.mark.parametrize("dim", [2, 3, 5])
@pytest.mark.parametrize("law", LAWS)
def test_construction_keeps_the_density_and_mixes_every_coordinate(law: str, dim: int) -> None:
    f = Entangling([LAWS[law]] * dim, alpha=0.3)
    u = points(f)
    assert len(u) > 990
    np.testing.assert_allclose(f.matrix @ f.matrix.T, np.eye(dim), atol=1e-14)
    assert (f.matrix != 0).all()
    np.testing.assert_allclose(f(f(u)), u, rtol=0, atol=1e-11)
    jacobian = f.jacobian(u)
    assert (jacobian != 0).all()
    np.testing.assert_allclose(np.abs(np.linalg.det(jacobian)) * f.density(f(u)), f.density(u), rtol=1e-12)


def test_jacobian_is_the_limit_of_differences() -> None:
    f = Entangling([stats.uniform(), stats.expon(), stats.beta(2, 5)], alpha=0.2)
    u = np.array([[0.3, 1.2, 0.4], [0.7, 0.3, 0.2]])
    step = 1e-6
    for j in range(3):
        shift = step * np.eye(3)[j]
        np.testing.assert_allclose((f(u + shift) - f(u - shift)) / (2 * step), f.jacobian(u)[:, :, j], atol=1e-7)


def test_image_has_the_law_of_the_original() -> None:
    f = Entangling([stats.uniform(), stats.expon(), stats.beta(2, 5)], alpha=0.3)
    z = f.sample(100_000)
    image = f(z)
    for law, column in zip(f.marginals, image.T, strict=True):
        assert stats.kstest(column, law.cdf).statistic < 0.006
    rho = stats.spearmanr(image).statistic
    assert np.abs(rho - np.eye(3)).max() < 0.01


def test_no_observation_tells_two_models_apart_whose_scores_are_opposite() -> None:
    f = Entangling([stats.uniform()] * 2)
    np.testing.assert_allclose(np.abs(f.matrix), np.sqrt(0.5))
    z = f.sample(10_000)
    other = f(z)
    mixing = np.array([[1.0, 2.0], [-3.0, 0.5], [0.2, 0.1]])

    def observe(latents: np.ndarray) -> np.ndarray:
        return np.tanh(latents @ mixing.T)

    # the second model draws z' = f(z), of the same law, and decodes with decoder ∘ f: the same pictures
    np.testing.assert_allclose(observe(f(other)), observe(z), atol=1e-11)

    def classes(latents: np.ndarray) -> np.ndarray:
        return np.minimum((latents * 10).astype(int), 9)

    assert mig(z, classes(z)) > 0.99
    assert mig(other, classes(z)) < 0.006
    assert mig(other, classes(other)) > 0.99
    assert mig(z, classes(other)) < 0.006


def test_family_is_infinite_and_its_members_entangle_less_or_more() -> None:
    z = Entangling([stats.uniform()] * 2).sample(10_000)
    classes = np.minimum((z * 10).astype(int), 9)
    scores = [mig(Entangling([stats.uniform()] * 2, alpha)(z), classes) for alpha in (0.01, 0.25)]
    assert scores[0] > 0.5
    assert scores[1] == pytest.approx(0.22, abs=0.01)
    z = Entangling([stats.uniform()] * 5).sample(10_000)
    assert mig(Entangling([stats.uniform()] * 5, 0.3)(z), (z * 10).astype(int)) == pytest.approx(0.05, abs=0.01)


def test_extreme_points_stay_finite() -> None:
    f = Entangling([stats.uniform(), stats.uniform()], alpha=0.3)
    assert np.isfinite(f(np.array([[0.0, 1.0], [1.0, 1.0]]))).all()


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_reflection_refuses_zero_entries(alpha: float) -> None:
    with pytest.raises(ValueError, match="alpha must lie strictly between"):
        theory.reflection(3, alpha)


def test_points_of_another_width_are_refused() -> None:
    with pytest.raises(ValueError, match=r"Points must be \[N, 2\]"):
        Entangling([stats.norm()] * 2)(np.zeros((3, 4)))


def test_perfect_classifier_is_unfair_by_a_third() -> None:
    result = theory.perfect_classifier()
    assert result.posterior == pytest.approx(1 / 3, abs=1e-15)
    assert result.rate == pytest.approx((1 / 3, 2 / 3), abs=1e-15)
    assert result.gap == pytest.approx(1 / 3, abs=1e-15)
    assert result.unfairness == pytest.approx(1 / 6, abs=1e-15)


def test_perfect_classifier_against_draws_and_the_score_of_the_chapter() -> None:
    b, q = 0.3, 0.6
    exact = theory.perfect_classifier(b, q)
    assert (round(exact.gap, 4), round(exact.unfairness, 4)) == (0.2561, 0.1280)
    assert round(exact.unfairness_weighted, 4) == 0.1229
    rng = np.random.default_rng(0)
    y, s = rng.random((2, 400_000)) < np.array([[b], [q]])
    x = y & s
    predicted = np.where(x, 1, rng.random(len(x)) < y[~x].mean()).astype(int)
    assert unfairness(predicted, s.astype(int)) == pytest.approx(exact.unfairness_weighted, abs=0.004)
    assert unfairness(predicted, s.astype(int), reduction="uniform") == pytest.approx(exact.unfairness, abs=0.004)


@pytest.mark.parametrize(("d", "k"), [(d, k) for d in range(2, 7) for k in range(1, d)])
def test_isolation_probability_counts_pairs_of_sets(d: int, k: int) -> None:
    sets = [set(chosen) for chosen in itertools.combinations(range(d), d - k)]
    share = np.mean([a & b == {0} for a in sets for b in sets])
    assert theory.isolation_probability(d, k) == pytest.approx(share, abs=1e-12)
    assert theory.condition_holds(d, k) == (k >= (d - 1) / 2)


def test_the_old_name_of_the_condition_warns() -> None:
    with pytest.warns(DeprecationWarning, match="condition_holds"):
        assert theory.is_identifiable(5, 2)


@pytest.mark.parametrize(("d", "k"), [(3, 1), (4, 2), (5, 3)])
def test_codes_that_match_pairs_are_the_factors_up_to_order_and_scale(d: int, k: int) -> None:
    """The theorem's conclusion: maps are learned from pairs alone, of factors that a rotation has mixed.

    A learned map matches the pairs if d - k of its codes agree in each. From random starts gradients reach such maps,
    and each of them has one factor for one code; maps that were stuck elsewhere do not match.
    """
    assert theory.condition_holds(d, k)
    first, second = theory.sample_pairs([stats.norm()] * d, k, n=300, seed=k)
    change = torch.from_numpy(second - first)
    mixed = change @ torch.linalg.qr(torch.from_numpy(np.random.default_rng(d).normal(size=(d, d)))).Q.T
    starts = torch.from_numpy(np.random.default_rng(0).normal(size=(16, d, d))).requires_grad_()
    optimizer = torch.optim.Adam([starts], lr=0.03)
    for step in range(250):
        maps = torch.linalg.qr(starts).Q
        moved = torch.einsum("sed,pd->spe", maps, mixed).abs()
        least = moved.sort(-1).values[..., : d - k].sum(-1)
        optimizer.param_groups[0]["lr"] = 0.03 * (1 - step / 250)
        optimizer.zero_grad()
        least.mean(1).sum().backward()
        optimizer.step()
    unmixed = torch.linalg.qr(starts.detach()).Q @ (mixed.T @ torch.linalg.pinv(change.T))  # of the true factors
    off_axis = 1 - (unmixed**2).max(-1).values.min(-1).values  # 0 for one factor in each code
    loss = least.detach().mean(1)
    matches = loss < 0.02
    assert matches.sum() >= 3
    assert (off_axis[matches] < 1e-3).all()
    assert not (off_axis[~matches] < 1e-3).any()


def test_isolation_probabilities_of_the_thesis_dimensions() -> None:
    assert theory.isolation_probability(3, 1) == pytest.approx(2 / 9, abs=1e-15)
    assert [theory.isolation_probability(5, k) for k in (1, 2, 3, 4)] == pytest.approx([0, 0.06, 0.12, 0.04])


def test_pairs_tell_apart_what_singles_cannot() -> None:
    d = 4
    first, second = theory.sample_pairs([stats.uniform()] * d, k=1, n=2000)
    assert set(theory.shared_coordinates(first, second)) == {d - 1}
    order = [2, 0, 3, 1]
    assert set(theory.shared_coordinates(np.exp(first[:, order]), np.exp(second[:, order]))) == {d - 1}
    f = Entangling([stats.uniform()] * d, alpha=0.3)
    assert set(theory.shared_coordinates(f(first), f(second))) == {0}
    angle = np.pi / 6  # inside one pair of coordinates
    turn = np.eye(d)
    turn[:2, :2] = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
    assert set(theory.shared_coordinates(first @ turn.T, second @ turn.T)) == {d - 1, d - 2}


def test_threshold_finds_one_change_and_misses_several() -> None:
    sizes = (3, 6, 40, 32, 32)
    found = [theory.heuristic_success(sizes, k) for k in (1, 2, 3, 4)]
    assert found == pytest.approx([1.0, 0.43, 0.15, 0.05], abs=0.01)
    fewer = [theory.heuristic_success(sizes, k, keep_value=False) for k in (1, 2, 3, 4)]
    assert fewer[0] == 1.0
    assert all(a < b for a, b in zip(fewer[1:], found[1:], strict=True))


@pytest.mark.parametrize(("d", "k"), [(3, 0), (3, 3)])
def test_impossible_numbers_of_changes_are_refused(d: int, k: int) -> None:
    with pytest.raises(ValueError, match="1 <= k < d"):
        theory.isolation_probability(d, k)
