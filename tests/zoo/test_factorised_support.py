"""HFS: the distance and its gradient from the formula and its invariants."""

from itertools import combinations

import pytest
import torch

from unknot.zoo import HFSVAE, BetaVAE
from unknot.zoo.factorised_support import all_pairs, factorised_support


def whole_formula(codes, pairs, average=False):
    """Every recombination, every sample, and the gradient of all of it."""
    first, second = codes.T[pairs[:, 0]], codes.T[pairs[:, 1]]
    apart, across = ((x[:, :, None] - x[:, None]) ** 2 for x in (first, second))
    nearest = (apart[:, :, None] + across[:, None]).amin(3).flatten(1)
    n = len(codes)
    return (nearest.sum(1) / (n * (n - 1)) if average else nearest.amax(1)).sum()


@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize(("n", "d"), [(2, 2), (16, 3), (40, 6)])
def test_value_and_gradient_are_those_of_the_whole_formula(n, d, average):
    codes = torch.randn(n, d, dtype=torch.float64, generator=torch.Generator().manual_seed(n))
    pairs = torch.tensor([*combinations(range(d), 2)])
    assert torch.equal(all_pairs(d), pairs)
    found = []
    for function in (factorised_support, whole_formula):
        leaf = codes.clone().requires_grad_()
        value = function(leaf, pairs, average)
        value.backward()
        found.append((value.detach(), leaf.grad))
    torch.testing.assert_close(found[0], found[1], rtol=1e-12, atol=1e-14)
    assert torch.equal(factorised_support(codes, average=average), found[0][0])


def test_correlated_codes_may_have_a_factorised_support_and_independent_ones_lack_it():
    grid = torch.cartesian_prod(torch.arange(4.0), torch.arange(4.0))
    often = torch.cat([grid, torch.arange(4.0)[:, None].repeat(50, 2)])  # the diagonal again and again
    assert torch.corrcoef(often.T)[0, 1] > 0.8
    assert factorised_support(often) == 0
    assert factorised_support(grid[grid.sum(1) < 6]) == 1  # one corner is missing; its neighbours are a step away
    assert factorised_support(2 * grid[grid.sum(1) < 6]) == 4  # squared
    circle = torch.linspace(0, 6.28, 200)
    ring = torch.stack([circle.cos(), circle.sin()], dim=1)
    assert factorised_support(ring).item() == pytest.approx(1, abs=0.03)  # its centre
    assert factorised_support(torch.randn(1, 3)) == factorised_support(torch.randn(8, 1)) == 0


def test_the_objective():
    torch.manual_seed(0)
    model = HFSVAE(gamma=7.0, beta=3.0, image_shape=(1, 16, 16), latent_dim=4)
    images = torch.rand(6, 1, 16, 16)
    terms = model.losses(images)
    whole = factorised_support(model.represent(images))  # six pairs: all of them, added in another order
    torch.testing.assert_close(terms["factorised_support"], whole)
    expected = terms["reconstruction"] + 3 * terms["kl"] + 7 * terms["factorised_support"]
    torch.testing.assert_close(terms["loss"], expected)
    plain = BetaVAE(3.0, image_shape=(1, 16, 16), latent_dim=4)
    plain.load_state_dict(model.state_dict())
    model.gamma = 0.0
    results = []
    for one in (model, plain):
        torch.manual_seed(1)
        results.append(one.losses(images)["loss"])
    assert results[0] == results[1]


def test_some_pairs_at_each_step():
    model = HFSVAE(num_pairs=2, image_shape=(1, 16, 16), latent_dim=5)
    posterior = model.encode(torch.rand(5, 1, 16, 16))
    each = {factorised_support(posterior.mean, pair[None]).item() for pair in all_pairs(5)}
    sums = {round(a + b, 6) for a, b in combinations(sorted(each), 2)}
    seen = {
        round(model.regularizer(posterior, posterior.mean, torch.tensor(0.0))[1]["factorised_support"].item(), 6)
        for _ in range(9)
    }
    assert len(seen) > 3
    assert all(min(abs(value - total) for total in sums) < 1e-5 for value in seen)
