"""SlowVAE: its cross entropy against sampling, both readings of its loss, and the authors' values."""

import math

import pytest
import torch
from torch.distributions import Laplace, Normal

from unknot.zoo import BetaVAE, Posterior, SlowVAE
from unknot.zoo.slow import entropy, laplace_cross_entropy


def draw(n=4, d=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return Posterior(*torch.randn(2, n, d, dtype=torch.float64, generator=generator))


def test_cross_entropy_and_entropy_are_those_of_samples():
    first, second = draw(seed=1), draw(seed=2)
    noise = torch.randn(200_000, 4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    samples = first.mean + (first.logvar / 2).exp() * noise
    for rate in (1.0, 6.0):
        expected = -Laplace(second.mean, 1 / rate).log_prob(samples).mean(0)
        torch.testing.assert_close(laplace_cross_entropy(first, second, rate), expected, rtol=0.01, atol=0.01)
    torch.testing.assert_close(entropy(first), Normal(first.mean, (first.logvar / 2).exp()).entropy())
    sharp = Posterior(torch.tensor([[0.0, 2.0]]), torch.full((1, 2), -60.0, requires_grad=True))
    value = laplace_cross_entropy(sharp, Posterior(torch.zeros(1, 2), torch.zeros(1, 2)), 6.0)
    assert value[0].tolist() == pytest.approx([-math.log(3), 12 - math.log(3)])
    value.sum().backward()
    assert sharp.logvar.grad.isfinite().all()


def test_both_readings_of_the_transition():
    first, second = draw(seed=3), draw(seed=4)
    cross = laplace_cross_entropy(first, second, 6.0) + laplace_cross_entropy(second, first, 6.0)
    text, code = (SlowVAE(image_shape=(1, 16, 16), reference=reference) for reference in (False, True))
    both = entropy(first) + entropy(second)
    torch.testing.assert_close(text.transition(first, second), (cross - both).sum(1).mean())
    torch.testing.assert_close(code.transition(first, second), (cross - both / 2).sum(1).mean())
    assert text.transition(first, second) > 0  # a sum of two divergences
    assert text.transition(first, second) == text.transition(second, first)


def test_the_objective_is_half_of_the_displayed_sum():
    torch.manual_seed(0)
    model = SlowVAE(gamma=7.0, beta=3.0, image_shape=(1, 16, 16), latent_dim=4)
    pair = torch.rand(2, 5, 1, 16, 16)
    terms = model.losses((pair[0], pair[1], torch.arange(5)))
    displayed = terms["weak_reconstruction"] + 3 * terms["kl"] + 7 * terms["transition"]
    torch.testing.assert_close(terms["loss"], displayed / 2)
    torch.testing.assert_close(terms["transition"], model.transition(model.encode(pair[0]), model.encode(pair[1])))
    torch.testing.assert_close(terms["weak_reconstruction"], 2 * terms["reconstruction"])
    plain = BetaVAE(1.5, image_shape=(1, 16, 16), latent_dim=4)
    plain.load_state_dict(model.state_dict())
    model.gamma = 0.0
    results = []
    for one, batch in ((model, tuple(pair)), (plain, pair.flatten(0, 1))):
        torch.manual_seed(1)
        results.append(one.losses(batch)["loss"])
    assert results[0] == results[1]
    with pytest.raises(ValueError, match="needs pairs"):
        model.losses(pair[0])
    with pytest.raises(ValueError, match="rate must be positive"):
        SlowVAE(rate=0.0)
