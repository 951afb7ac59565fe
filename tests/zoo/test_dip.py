"""DIP-VAE-I and DIP-VAE-II: the covariance that is drawn to the identity, and what its distance costs."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from unknot.zoo import DIPVAEI, DIPVAEII, VAE, Posterior
from unknot.zoo.dip import covariance

SHAPE = (1, 32, 32)


def images(n=4, seed=0):
    return torch.rand(n, *SHAPE, generator=torch.Generator().manual_seed(seed))


def random_posterior(n, d, seed):
    rng = np.random.default_rng(seed)
    mixing = rng.normal(size=(d, d))
    mean = 1.5 + rng.normal(size=(n, d)) @ mixing
    return Posterior(torch.from_numpy(mean), torch.from_numpy(rng.normal(-1, 1, size=(n, d))))


def covariance_in_numpy(kind, posterior):
    """By NumPy's own covariance, with the batch size in the denominator."""
    mean, logvar = (part.double().numpy() for part in posterior)
    result = np.atleast_2d(np.cov(mean, rowvar=False, bias=True)) if len(mean) > 1 else np.zeros((mean.shape[1],) * 2)
    if kind is DIPVAEII:
        result = result + np.diag(np.exp(logvar).mean(0))
    return result


def penalties_in_numpy(c):
    off = sum(c[i, j] ** 2 for i in range(len(c)) for j in range(len(c)) if i != j)
    return off, sum((c[i, i] - 1) ** 2 for i in range(len(c)))


@settings(max_examples=40, deadline=None, derandomize=True)
@given(n=st.integers(2, 40), d=st.integers(1, 6), seed=st.integers(0, 10_000))
def test_covariance_is_that_of_numpy(n, d, seed):
    x = random_posterior(n, d, seed).mean
    expected = np.atleast_2d(np.cov(x.numpy(), rowvar=False, bias=True))
    np.testing.assert_allclose(covariance(x).numpy(), expected, rtol=1e-9, atol=1e-12)


def test_covariance_of_one_image_is_zero():
    assert torch.equal(covariance(torch.tensor([[3.0, -2.0]])), torch.zeros(2, 2))


def test_covariance_of_far_off_means_keeps_its_digits():
    """E[x xᵀ] - E[x] E[x]ᵀ taken literally would lose all of them in single precision."""
    x = 1e4 + torch.randn(100, 2, generator=torch.Generator().manual_seed(0))
    expected = np.cov(x.double().numpy(), rowvar=False, bias=True)
    np.testing.assert_allclose(covariance(x).numpy(), expected, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("kind", [DIPVAEI, DIPVAEII])
@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    n=st.integers(1, 20),
    d=st.integers(1, 5),
    seed=st.integers(0, 10_000),
    lambda_od=st.floats(0, 50),
    lambda_d=st.floats(0, 50),
)
def test_penalties(kind, n, d, seed, lambda_od, lambda_d):
    model = kind(lambda_od, lambda_d, image_shape=SHAPE, latent_dim=d)
    posterior = random_posterior(n, d, seed)
    found, terms = model.regularizer(posterior, posterior.mean, posterior.kl().sum(1).mean())
    off, diagonal = penalties_in_numpy(covariance_in_numpy(kind, posterior))
    assert terms["off_diagonal"].item() == pytest.approx(off, rel=1e-5, abs=1e-9)
    assert terms["diagonal"].item() == pytest.approx(diagonal, rel=1e-5, abs=1e-9)
    mean, logvar = (part.numpy() for part in posterior)
    kl = 0.5 * np.sum(mean**2 + np.exp(logvar) - 1 - logvar) / n
    assert found.item() == pytest.approx(kl + lambda_od * off + lambda_d * diagonal, rel=1e-5)


@pytest.mark.parametrize("kind", [DIPVAEI, DIPVAEII])
def test_the_loss_is_reconstruction_plus_kl_plus_penalties(kind):
    model = kind(3.0, 7.0, image_shape=SHAPE, latent_dim=4)
    posterior = Posterior(*(part.float() for part in random_posterior(6, 4, 1)))
    terms = model.objective(images(6), posterior)
    off, diagonal = penalties_in_numpy(covariance_in_numpy(kind, posterior))
    expected = terms["reconstruction"].item() + terms["kl"].item() + 3 * off + 7 * diagonal
    assert terms["loss"].item() == pytest.approx(expected, rel=1e-5)


def test_the_second_kind_matches_the_covariance_of_drawn_codes():
    """Law of total covariance: many draws from the posteriors have the covariance that DIP-VAE-II computes."""
    torch.manual_seed(0)
    mean, logvar = torch.randn(5, 3).double(), torch.randn(5, 3).double()
    many = Posterior(mean.repeat(60_000, 1), logvar.repeat(60_000, 1)).sample()
    expected = np.cov(many.numpy(), rowvar=False, bias=True)
    found = DIPVAEII(image_shape=SHAPE, latent_dim=3).covariance(Posterior(mean, logvar))
    np.testing.assert_allclose(found.numpy(), expected, atol=0.03)
    first = DIPVAEI(image_shape=SHAPE, latent_dim=3).covariance(Posterior(mean, logvar))
    assert np.abs(first.numpy() - expected).max() > 0.1


def test_the_identity_costs_nothing():
    corners = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    posterior, kl = Posterior(corners, torch.full((4, 2), -math.inf)), torch.tensor(0.0)
    for kind in (DIPVAEI, DIPVAEII):  # with no variance both see the covariance of the means
        assert kind(image_shape=SHAPE, latent_dim=2).regularizer(posterior, corners, kl)[0].item() == 0


def test_only_the_second_kind_looks_at_the_variance():
    mean = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
    for kind, moves in ((DIPVAEI, False), (DIPVAEII, True)):
        model, found = kind(image_shape=SHAPE, latent_dim=3), []
        for logvar in (0.0, 1.0):
            posterior = Posterior(mean, torch.full((6, 3), logvar))
            found.append(model.regularizer(posterior, mean, torch.tensor(0.0))[0].item())
        assert (found[0] != found[1]) == moves


def test_penalties_train_the_encoder():
    for kind in (DIPVAEI, DIPVAEII):
        model = kind(image_shape=SHAPE, latent_dim=3)
        terms = model.losses(images())
        for name in ("off_diagonal", "diagonal"):
            gradient = torch.autograd.grad(terms[name], model.encoder.mean.weight, retain_graph=True)[0]
            assert gradient.abs().sum() > 0


@pytest.mark.parametrize(("kind", "expected"), [(DIPVAEI, 20.0), (DIPVAEII, 2.0)])
def test_the_diagonal_weighs_what_the_study_says_unless_told(kind, expected):
    assert kind(lambda_od=2.0, image_shape=SHAPE).lambda_d == expected
    assert kind(lambda_od=2.0, lambda_d=0.0, image_shape=SHAPE).lambda_d == 0.0
    assert kind(lambda_od=2.0, lambda_d=3.0, image_shape=SHAPE).lambda_d == 3.0


@pytest.mark.parametrize("kind", [DIPVAEI, DIPVAEII])
def test_without_weights_it_is_the_plain_vae(kind):
    base, model = VAE(SHAPE, 3), kind(0.0, 0.0, image_shape=SHAPE, latent_dim=3)
    model.load_state_dict(base.state_dict())
    torch.manual_seed(0)
    expected = base.losses(images())["loss"]
    torch.manual_seed(0)
    assert torch.equal(model.losses(images())["loss"], expected)


@pytest.mark.parametrize("kind", [DIPVAEI, DIPVAEII])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"lambda_od": -1.0}, r"lambda_od must be finite and not negative, got -1\.0"),
        ({"lambda_od": math.nan}, "lambda_od must be finite and not negative, got nan"),
        ({"lambda_d": -2.0}, r"lambda_d must be finite and not negative, got -2\.0"),
        ({"lambda_d": math.inf}, "lambda_d must be finite and not negative, got inf"),
    ],
)
def test_constructor_refuses(kind, arguments, message):
    with pytest.raises(ValueError, match=message):
        kind(image_shape=SHAPE, **arguments)
