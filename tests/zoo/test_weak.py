"""Weakly-supervised models: which codes a pair shares, how they are averaged, and the objective of pairs."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import trapezoid
from scipy.stats import norm
from torch.distributions import Normal, kl_divergence

from unknot.zoo import GVAE, MLVAE, VAE, AdaGVAE, AdaMLVAE, BetaVAE, Posterior
from unknot.zoo.weak import (
    adaptive_shared,
    arithmetic_average,
    harmonic_average,
    known_shared,
    product_average,
    smallest_shared,
)

SHAPE = (1, 32, 32)
WEAK = [GVAE, MLVAE, AdaGVAE, AdaMLVAE]


def images(n=4, seed=0):
    return torch.rand(n, *SHAPE, generator=torch.Generator().manual_seed(seed))


def batch(n=4, latent_dim=5):
    return images(n), images(n, seed=1), torch.arange(n) % latent_dim


def random_posterior(n, d, seed, spread=1.0):
    rng = np.random.default_rng(seed)
    return Posterior(torch.from_numpy(rng.normal(size=(n, d))), torch.from_numpy(rng.normal(0, spread, size=(n, d))))


def as_numpy(posterior):
    """Mean and plain variance."""
    return posterior.mean.double().numpy(), np.exp(posterior.logvar.double().numpy())


def average_in_numpy(kind, first, second):
    """Mean and variance as the thesis and the reference write them."""
    (m1, v1), (m2, v2) = as_numpy(first), as_numpy(second)
    if kind == "arithmetic":
        return (m1 + m2) / 2, (v1 + v2) / 2
    if kind == "product":
        variance = 1 / (1 / v1 + 1 / v2)
        return (m1 / v1 + m2 / v2) * variance, variance
    variance = 2 * v1 * v2 / (v1 + v2)
    return 0.5 * (m1 / v1 + m2 / v2) * variance, variance


AVERAGES = {"arithmetic": arithmetic_average, "product": product_average, "harmonic": harmonic_average}


# Averages


@pytest.mark.parametrize("kind", AVERAGES)
@settings(max_examples=30, deadline=None, derandomize=True)
@given(n=st.integers(1, 5), d=st.integers(1, 5), seed=st.integers(0, 10_000), spread=st.floats(0, 5))
def test_averages(kind, n, d, seed, spread):
    first, second = random_posterior(n, d, seed, spread), random_posterior(n, d, seed + 1, spread)
    mean, variance = average_in_numpy(kind, first, second)
    found = as_numpy(AVERAGES[kind](first, second))
    np.testing.assert_allclose(found[0], mean, rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(found[1], variance, rtol=1e-5)


@pytest.mark.parametrize("kind", AVERAGES)
def test_averages_do_not_care_who_is_first(kind):
    first, second = random_posterior(4, 3, 0), random_posterior(4, 3, 1)
    for one, other in zip(AVERAGES[kind](first, second), AVERAGES[kind](second, first), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize(("kind", "factor"), [("arithmetic", 1.0), ("product", 0.5), ("harmonic", 1.0)])
def test_average_of_two_equal_posteriors(kind, factor):
    posterior = random_posterior(4, 3, 0)
    mean, logvar = AVERAGES[kind](posterior, posterior)
    torch.testing.assert_close(mean, posterior.mean)
    torch.testing.assert_close(logvar.exp(), factor * posterior.logvar.exp())


@pytest.mark.parametrize("seed", range(5))
def test_product_is_the_normalised_product_of_the_densities(seed):
    first, second = random_posterior(1, 1, seed), random_posterior(1, 1, seed + 100)
    grid = np.linspace(-30, 30, 200_001)
    density = np.prod([norm.pdf(grid, m.item(), math.exp(v.item() / 2)) for m, v in (first, second)], axis=0)
    density /= trapezoid(density, grid)
    mean, variance = as_numpy(product_average(first, second))
    np.testing.assert_allclose(density, norm.pdf(grid, mean.item(), math.sqrt(variance.item())), atol=1e-6)


@pytest.mark.parametrize("kind", AVERAGES)
@pytest.mark.parametrize("logvar", [-200.0, 200.0])
def test_extreme_variances_stay_finite(kind, logvar):
    first = Posterior(torch.tensor([[1.0]]), torch.tensor([[logvar]], requires_grad=True))
    second = Posterior(torch.tensor([[3.0]]), torch.tensor([[0.5]], requires_grad=True))
    mean, found = AVERAGES[kind](first, second)
    assert mean.isfinite().all()
    assert found.isfinite().all()
    (mean + found).sum().backward()
    assert first.logvar.grad.isfinite().all()
    if kind != "arithmetic":  # the sharper of the two decides
        assert mean.item() == pytest.approx(1.0 if logvar < 0 else 3.0)


# Which codes are shared


@settings(max_examples=30, deadline=None, derandomize=True)
@given(changed=st.lists(st.integers(0, 5), min_size=1, max_size=6), more=st.integers(0, 3))
def test_known_codes(changed, more):
    mask = known_shared(torch.tensor(changed), 6 + more)
    assert mask.dtype == torch.bool
    assert mask.tolist() == [[code != factor for code in range(6 + more)] for factor in changed]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(n=st.integers(1, 6), d=st.integers(2, 8), seed=st.integers(0, 10_000))
def test_adaptive_codes(n, d, seed):
    first, second = random_posterior(n, d, seed), random_posterior(n, d, seed + 1)
    q1, q2 = (Normal(mean, (logvar / 2).exp()) for mean, logvar in (first, second))
    delta = kl_divergence(q1, q2).numpy()
    expected = [[value < (max(row) + min(row)) / 2 for value in row] for row in delta]
    assert adaptive_shared(first, second).tolist() == expected
    # In any pair the most different code is kept and the most similar one is shared.
    assert not adaptive_shared(first, second)[range(n), delta.argmax(1)].any()
    assert adaptive_shared(first, second)[range(n), delta.argmin(1)].all()


def test_the_divergence_is_not_symmetric():
    """From a sharp to a wide posterior it is smaller than back: the order of a pair can change what is shared."""
    first = Posterior(torch.zeros(1, 3), torch.tensor([[0.0, -4.0, 0.0]]))
    second = Posterior(torch.tensor([[0.0, 0.0, 2.0]]), torch.zeros(1, 3))
    # δ = 0, (e⁻⁴ + 4 - 1)/2 = 1.5, 2 forwards; 0, (e⁴ - 4 - 1)/2 = 24.8, 2 backwards
    assert adaptive_shared(first, second).tolist() == [[True, False, False]]
    assert adaptive_shared(second, first).tolist() == [[True, False, True]]


def test_a_code_on_the_threshold_is_not_shared():
    logvar = torch.tensor([[0.0, 0.0, math.log(2)]], dtype=torch.float64)
    assert logvar.exp().tolist() == [[1, 1, 2]]
    first = Posterior(torch.zeros(1, 3, dtype=torch.float64), logvar)
    second = Posterior(torch.tensor([[0.0, 2.0, 2.0]], dtype=torch.float64), logvar)  # δ = 0, 2, 1 and τ = 1
    assert adaptive_shared(first, second).tolist() == [[True, False, False]]
    closer = Posterior(second.mean - torch.tensor([0, 0, 1e-9]), logvar)
    assert adaptive_shared(first, closer).tolist() == [[True, False, True]]


def test_two_equal_images_keep_their_codes():
    posterior = random_posterior(3, 4, 0)
    assert not adaptive_shared(posterior, posterior).any()


def test_thresholds_are_those_of_each_pair():
    """A pair that is far apart leaves the others alone."""
    first, second = random_posterior(2, 5, 0), random_posterior(2, 5, 1)
    alone = adaptive_shared(Posterior(*(part[:1] for part in first)), Posterior(*(part[:1] for part in second)))
    far = Posterior(second.mean + torch.tensor([[0.0], [1e3]]), second.logvar)
    assert torch.equal(adaptive_shared(first, far)[:1], alone)


def test_the_mask_carries_no_gradient():
    first, second = (Posterior(*(p.requires_grad_() for p in random_posterior(3, 4, seed))) for seed in (0, 1))
    mask = adaptive_shared(first, second)
    assert mask.dtype == torch.bool
    assert not mask.requires_grad


@pytest.mark.parametrize("kind", [AdaGVAE, AdaMLVAE])
@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_a_disentangled_encoder_gives_the_true_shared_codes(kind, k):
    """One code per factor, and two that say nothing; k of the five factors change."""
    rng = np.random.default_rng(k)
    values = rng.integers(0, 2, size=(50, 5))
    changed = np.stack([rng.permutation(5) < k for _ in range(50)])
    others = np.where(changed, 1 - values, values)
    means = [torch.from_numpy(np.c_[v, np.zeros((50, 2))]).float() for v in (values, others)]
    first, second = (Posterior(mean, torch.full((50, 7), -3.0)) for mean in means)
    model = kind(image_shape=SHAPE, latent_dim=7)
    truly = torch.from_numpy(np.c_[~changed, np.ones((50, 2), bool)])
    assert torch.equal(model.shared(first, second, None), truly)
    one, other = model.aggregate(first, second, None).mean.chunk(2)
    assert torch.equal(one == other, truly)
    assert torch.equal(one[~truly], first.mean[~truly])
    assert torch.equal(other[~truly], second.mean[~truly])


@pytest.mark.parametrize("kind", [AdaGVAE, AdaMLVAE])
@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_a_known_number_of_changes_is_found_whatever_their_sizes(kind, k, tmp_path):
    """Where the threshold takes small changes for none; KLs by torch.distributions."""
    rng = np.random.default_rng(k)
    changed = np.stack([rng.permutation(5) < k for _ in range(200)])
    values, moves = rng.normal(size=(200, 5)), rng.uniform(0.1, 4, size=(200, 5))
    logvar = torch.from_numpy(rng.normal(size=(1, 5))).expand(200, 5)
    first, second = (Posterior(torch.from_numpy(v), logvar) for v in (values, values + changed * moves))
    model = kind(image_shape=SHAPE, latent_dim=5, num_changed=k)
    assert torch.equal(model.shared(first, second, None), torch.from_numpy(~changed))
    assert torch.equal(adaptive_shared(first, second), torch.from_numpy(~changed)) == (k == 1)
    one, other = random_posterior(50, 5, 0), random_posterior(50, 5, 1)
    delta = kl_divergence(*(Normal(p.mean, (p.logvar / 2).exp()) for p in (one, other)))
    shared = delta.argsort(1).argsort(1) < 5 - k
    assert torch.equal(smallest_shared(one, other, k), shared)
    model.save_pretrained(tmp_path)
    assert kind.from_pretrained(tmp_path).num_changed == k


def test_a_number_of_changes_that_leaves_nothing_to_share_is_refused():
    for number in (0, 5):
        with pytest.raises(ValueError, match="num_changed must be between 1 and 4"):
            AdaGVAE(image_shape=SHAPE, latent_dim=5, num_changed=number)


def test_one_changed_factor_is_found_whatever_its_values():
    rng = np.random.default_rng(0)
    values = rng.uniform(-3, 3, size=(100, 6))
    others, changed = values.copy(), rng.integers(0, 6, size=100)
    others[range(100), changed] = rng.uniform(-3, 3, size=100)
    logvar = torch.from_numpy(rng.normal(size=(1, 6))).expand(100, 6)
    mask = adaptive_shared(Posterior(torch.from_numpy(values), logvar), Posterior(torch.from_numpy(others), logvar))
    assert torch.equal(mask, known_shared(torch.from_numpy(changed), 6))


def test_what_did_not_change_is_always_shared():
    """Several factors that change by different amounts: small changes may be taken for none, never the reverse."""
    rng = np.random.default_rng(0)
    values, moves = rng.uniform(size=(200, 6)), rng.exponential(size=(200, 6))
    changed = np.stack([rng.permutation(6) < k for k in rng.integers(1, 6, size=200)])
    logvar = torch.full((200, 6), -2.0)
    first = Posterior(torch.from_numpy(values), logvar)
    second = Posterior(torch.from_numpy(values + changed * moves), logvar)
    mask = adaptive_shared(first, second).numpy()
    assert mask[~changed].all()
    assert not mask[range(200), (changed * moves).argmax(1)].any()


# Aggregated posteriors and the objective

KINDS = [
    (GVAE, {}, "arithmetic"),
    (MLVAE, {}, "product"),
    (MLVAE, {"average": "harmonic"}, "harmonic"),
    (AdaGVAE, {}, "arithmetic"),
    (AdaMLVAE, {}, "product"),
    (AdaMLVAE, {"average": "harmonic"}, "harmonic"),
]


def aggregate_in_numpy(model, kind, first, second, changed):
    """Means and variances ``[2 N, D]``, code by code."""
    (m1, v1), (m2, v2) = as_numpy(first), as_numpy(second)
    mean, variance = average_in_numpy(kind, first, second)
    delta = 0.5 * (v1 / v2 + (m2 - m1) ** 2 / v2 - 1 + np.log(v2) - np.log(v1))
    result = [np.concatenate([m1, m2]), np.concatenate([v1, v2])]
    n, d = m1.shape
    for i in range(n):
        for j in range(d):
            adaptive = isinstance(model, AdaGVAE | AdaMLVAE)
            shared = delta[i, j] < (delta[i].max() + delta[i].min()) / 2 if adaptive else j != changed[i]
            if shared:
                result[0][[i, n + i], j] = mean[i, j]
                result[1][[i, n + i], j] = variance[i, j]
    return result


@pytest.mark.parametrize(("cls", "arguments", "kind"), KINDS)
@settings(max_examples=15, deadline=None, derandomize=True)
@given(n=st.integers(1, 5), d=st.integers(1, 6), seed=st.integers(0, 10_000))
def test_aggregated_posteriors(cls, arguments, kind, n, d, seed):
    model = cls(image_shape=SHAPE, latent_dim=d, **arguments)
    first, second = random_posterior(n, d, seed), random_posterior(n, d, seed + 1)
    changed = torch.from_numpy(np.random.default_rng(seed).integers(0, d, size=n))
    found = as_numpy(model.aggregate(first, second, changed))
    mean, variance = aggregate_in_numpy(model, kind, first, second, changed)
    np.testing.assert_allclose(found[0], mean, rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(found[1], variance, rtol=1e-5)


@pytest.mark.parametrize(("cls", "arguments", "kind"), KINDS)
@pytest.mark.parametrize("likelihood", ["bernoulli", "gaussian"])
def test_objective_of_pairs(cls, arguments, kind, likelihood):
    torch.manual_seed(0)
    model = cls(beta=3.0, image_shape=SHAPE, latent_dim=5, likelihood=likelihood, **arguments)
    for head in (model.encoder.mean, model.encoder.logvar):
        torch.nn.init.normal_(head.weight)  # posteriors that differ
    x1, x2, changed = batch()
    torch.manual_seed(3)
    terms = model.losses((x1, x2, changed))
    torch.manual_seed(3)
    noise = torch.randn(8, 5)
    with torch.no_grad():
        mean, variance = aggregate_in_numpy(model, kind, model.encode(x1), model.encode(x2), changed)
        z = torch.from_numpy(mean).float() + torch.from_numpy(np.sqrt(variance)).float() * noise
        p = 1 / (1 + np.exp(-model.decoder(z).double().numpy()))
    x = torch.cat([x1, x2]).double().numpy()
    each = -(x * np.log(p) + (1 - x) * np.log(1 - p)) if likelihood == "bernoulli" else (x - p) ** 2
    each = each.sum((1, 2, 3))
    first, second = each[:4].mean(), each[4:].mean()
    kl = (0.5 * (mean**2 + variance - 1 - np.log(variance))).sum(1)
    assert terms["weak_reconstruction"].item() == pytest.approx(first + second, rel=1e-5)
    assert terms["reconstruction"].item() == pytest.approx((first + second) / 2, rel=1e-5)
    assert terms["kl"].item() == pytest.approx((kl[:4].mean() + kl[4:].mean()) / 2, rel=1e-5)
    displayed = first + second + 3 * kl[:4].mean() + 3 * kl[4:].mean()
    assert terms["loss"].item() == pytest.approx(displayed / 2, rel=1e-5)
    assert terms["elbo"].item() == pytest.approx(-(first + second + kl[:4].mean() + kl[4:].mean()) / 2, rel=1e-5)


def test_defaults_are_those_of_the_chapter():
    assert all(cls(image_shape=SHAPE).beta == 1.0 for cls in WEAK)
    assert not MLVAE(image_shape=SHAPE).harmonic
    assert AdaMLVAE(image_shape=SHAPE, average="harmonic").harmonic


@pytest.mark.parametrize("cls", WEAK)
@pytest.mark.parametrize("beta", [1.0, 4.0])
def test_pairs_that_share_nothing_are_images_by_themselves(cls, beta):
    class Nothing(cls):
        def shared(self, first, second, changed):
            return torch.zeros_like(first.mean, dtype=torch.bool)

    model = Nothing(beta=beta, image_shape=SHAPE, latent_dim=3)
    plain = VAE(SHAPE, 3) if beta == 1 else BetaVAE(beta, image_shape=SHAPE, latent_dim=3)
    plain.load_state_dict(model.state_dict())
    x1, x2, _ = batch()
    torch.manual_seed(0)
    expected = plain.losses(torch.cat([x1, x2]))
    torch.manual_seed(0)
    terms = model.losses((x1, x2))
    assert all(torch.equal(terms[name], expected[name]) for name in expected)


@pytest.mark.parametrize("cls", WEAK)
def test_both_images_train_the_encoder(cls):
    model = cls(image_shape=SHAPE, latent_dim=3)
    x1, x2, changed = batch(latent_dim=3)
    parts = [x.clone().requires_grad_() for x in (x1, x2)]
    model.losses((*parts, changed))["kl"].backward()
    assert all(part.grad.abs().sum() > 0 for part in parts)
    model.zero_grad()
    model.losses((x1, x2, changed))["loss"].backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in model.parameters())


@pytest.mark.parametrize("cls", [AdaGVAE, AdaMLVAE])
def test_adaptive_models_do_not_look_at_the_changed_factor(cls):
    model, (x1, x2, changed) = cls(image_shape=SHAPE, latent_dim=5), batch()
    found = []
    for extra in ((), (changed,), (torch.full((4,), 99),), (torch.rand(4), torch.rand(2))):
        torch.manual_seed(0)
        found.append(model.losses((x1, x2, *extra))["loss"])
    assert all(torch.equal(loss, found[0]) for loss in found)


@pytest.mark.parametrize("cls", [GVAE, MLVAE])
def test_the_changed_factor_matters(cls):
    model, (x1, x2, changed) = cls(image_shape=SHAPE, latent_dim=5), batch()
    found = [model.losses((x1, x2, index))["kl"] for index in (changed, (changed + 1) % 5, changed.int())]
    assert not torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


# Refusals


@pytest.mark.parametrize("cls", WEAK)
@pytest.mark.parametrize(
    ("bad", "found"),
    [
        (images(4), r"\[4, 1, 32, 32\]"),
        ((images(4),), r"\[4, 1, 32, 32\]"),
        ([images(4), images(3)], r"\[4, 1, 32, 32\] and \[3, 1, 32, 32\]"),
        ((images(4), torch.rand(4, 1, 64, 64)), r"\[4, 1, 32, 32\] and \[4, 1, 64, 64\]"),
        ((images(4), torch.arange(4)), r"\[4, 1, 32, 32\] and \[4\]"),
        ((images(4), None), r"\[4, 1, 32, 32\] and None"),
        ((images(4), images(4), [0, 1, 2, 3]), r"\[4, 1, 32, 32\] and \[4, 1, 32, 32\] and \[0, 1, 2, 3\]"),
    ],
)
def test_batches_are_pairs(cls, bad, found):
    message = rf"needs pairs, \(first, second\) of the same shape \[N, C, H, W\], got {found}: use PairDataModule"
    with pytest.raises(ValueError, match=message) as error:
        cls(image_shape=SHAPE, latent_dim=4).losses(bad)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("cls", [GVAE, MLVAE])
def test_the_changed_factor_must_be_known(cls):
    message = (
        rf"{cls.__name__} needs the index of the changed factor.*group_label=True.*or train Ada{cls.__name__} without"
    )
    with pytest.raises(ValueError, match=message) as error:
        cls(image_shape=SHAPE, latent_dim=4).losses((images(4), images(4)))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("cls", [GVAE, MLVAE])
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            torch.tensor([0, 1, 2, 4]),
            r"run from 0 to 4, but .* between 0 and 3, or raise latent_dim",
        ),
        (
            torch.tensor([3, 3, 3, 17]),
            r"run from 3 to 17, but .* between 0 and 3, or raise latent_dim",
        ),
        (torch.tensor([0, -1, 2, 3]), r"run from -1 to 3, but latent j stands for factor j and there are 4 latents"),
        (torch.tensor([0.0, 1.0, 2.0, 3.0]), r"must be 4 integers, one per pair, got torch.float32 of shape \[4\]"),
        (torch.tensor([0, 0, 255, 0], dtype=torch.uint8), r"run from 0 to 255, but"),
        (torch.tensor([True, False, True, True]), r"must be 4 integers, one per pair, got torch.bool"),
        (torch.tensor([0, 1]), r"must be 4 integers, one per pair, got torch.int64 of shape \[2\]"),
        (torch.tensor([[0], [1], [2], [3]]), r"must be 4 integers, one per pair, got torch.int64 of shape \[4, 1\]"),
        (torch.tensor(1), r"must be 4 integers, one per pair, got torch.int64 of shape \[\]"),
    ],
)
def test_unusable_changed_factors(cls, changed, message):
    with pytest.raises(ValueError, match=message) as error:
        cls(image_shape=SHAPE, latent_dim=4).losses((images(4), images(4), changed))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("cls", WEAK)
def test_both_images_are_checked(cls):
    model, (x1, x2, changed) = cls(image_shape=SHAPE, latent_dim=4), batch(latent_dim=4)
    with pytest.raises(ValueError, match=r"reach from .* expected \[0, 1\]: rescale"):
        model.losses((x1, 255 * x2, changed))
    with pytest.raises(ValueError, match=r"shape \[8, 3, 32, 32\].*expects \[N, 1, 32, 32\]"):
        model.losses((x1.repeat(1, 3, 1, 1), x2.repeat(1, 3, 1, 1), changed))


@pytest.mark.parametrize(
    ("cls", "arguments", "message"),
    [
        *((cls, {"beta": -1.0}, r"beta must be finite and not negative, got -1\.0") for cls in WEAK),
        (GVAE, {"beta": math.nan}, "beta must be finite and not negative, got nan"),
        (MLVAE, {"average": "mean"}, "average must be 'product' or 'harmonic', got 'mean'"),
        (AdaMLVAE, {"average": "arithmetic"}, "average must be 'product' or 'harmonic', got 'arithmetic'"),
        (AdaGVAE, {"likelihood": "l2"}, "likelihood: no network is registered as 'l2'"),
    ],
)
def test_constructor_refuses(cls, arguments, message):
    with pytest.raises(ValueError, match=message):
        cls(**{"image_shape": SHAPE, **arguments})
