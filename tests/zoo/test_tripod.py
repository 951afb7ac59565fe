"""Tripod: rounding, multi-information and mixed curvature from their definitions."""

import math

import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from scipy.stats import gaussian_kde, norm
from torch.func import hessian

from unknot.zoo import Tripod
from unknot.zoo.tripod import curvature, multi_information

SMALL = {"image_shape": (1, 16, 16), "latent_dim": 3, "encoder": "MLPEncoder", "decoder": "MLPDecoder"}
STYLE = {
    "image_shape": (1, 32, 32),
    "encoder": {"name": "StyleEncoder", "widths": [4, 4, 8, 8], "depth": 1, "hidden": [16]},
    "decoder": {"name": "StyleDecoder", "widths": [8, 8, 4, 4], "depth": 2, "hidden": [16, 16]},
}


def quadratic(codes):
    """The function of the authors' values, (z0 z1 + 2 z2², z0²)."""
    return [torch.stack([codes[:, 0] * codes[:, 1] + 2 * codes[:, 2] ** 2, codes[:, 0] ** 2], dim=1)]


def shares(codes, std, draws, generator):
    """Mixed and whole curvature of the quadratic function."""
    shape = (draws, *codes.shape)
    signs = torch.randint(0, 2, shape, generator=generator).to(codes) * 2 - 1
    normal = torch.randn(shape, generator=generator, dtype=codes.dtype)
    return [curvature(quadratic, codes, directions * std, 0.1)[0] for directions in (signs, normal)]


def test_rounding_to_fixed_values():
    model = Tripod(**SMALL, num_values=5)
    features = torch.randn(20, 3, requires_grad=True)
    found = model.quantise(features)
    grid = np.linspace(-1, 1, 5)
    nearest = np.abs(np.tanh(features.detach().numpy())[..., None] - grid).argmin(-1)
    np.testing.assert_array_equal(found.indices, nearest)
    np.testing.assert_allclose(found.codes, grid[nearest], atol=1e-7)
    found.straight_through().sum().backward()
    torch.testing.assert_close(features.grad, 1 - features.detach().tanh() ** 2)
    assert "values" not in model.state_dict()
    with pytest.raises(ValueError, match="num_values must be a whole number of at least 2"):
        Tripod(**SMALL, num_values=1)


@pytest.mark.parametrize("silverman", [True, False])
def test_multi_information_is_that_of_kernel_density_estimates(silverman):
    rng = np.random.default_rng(0)
    codes = rng.normal(size=(40, 3)) @ rng.normal(size=(3, 3))
    std = codes.std(0)
    joint = (4 / (40 * 5)) ** (1 / 7)
    kernels = norm.logpdf(codes[:, None], codes, std * joint).sum(2)
    expected = logsumexp(kernels, 1) - math.log(40)
    for j in range(3):
        if silverman:  # SciPy standardises by the unbiased standard deviation
            width = (4 / (40 * 3)) ** (1 / 5) * std[j] / codes[:, j].std(ddof=1)
            expected -= gaussian_kde(codes[:, j], bw_method=width).logpdf(codes[:, j])
        else:
            expected -= logsumexp(norm.logpdf(codes[:, j, None], codes[:, j], std[j]), 1) - math.log(40)
    found = multi_information(torch.from_numpy(codes), torch.from_numpy(std), silverman)
    np.testing.assert_allclose(found, expected, atol=1e-10)


def test_independent_codes_share_less_information():
    generator = torch.Generator().manual_seed(0)
    codes = torch.randn(400, 2, generator=generator)
    same = codes[:, [0, 0]] + 0.1 * codes
    for silverman in (True, False):
        apart, together = (multi_information(z, z.std(0), silverman).mean() for z in (codes, same))
        assert together > apart + 0.5
    assert abs(multi_information(codes, codes.std(0), silverman=True).mean()) < 0.25
    assert multi_information(codes, codes.std(0)).mean() > 0.25  # wide kernels of the margins


def test_curvature_is_that_of_the_hessian():
    generator = torch.Generator().manual_seed(0)
    std = torch.tensor([0.6, 0.5, 0.7], dtype=torch.float64)
    codes = torch.randn(3, 3, generator=generator, dtype=torch.float64)
    scaled = hessian(lambda z: quadratic(z[None])[0][0])(codes[0]) * std[:, None] * std  # [2, 3, 3]
    whole = 2 * (scaled**2).sum((1, 2)).mean()
    mixed = whole - 2 * (scaled.diagonal(dim1=1, dim2=2) ** 2).sum(1).mean()
    found = shares(codes, std, 20_000, generator)
    torch.testing.assert_close(found[0], mixed.expand(3), rtol=0.03, atol=0)
    torch.testing.assert_close(found[1], whole.expand(3), rtol=0.1, atol=0)


@pytest.mark.parametrize("reference", [True, False])
def test_the_objective(reference):
    torch.manual_seed(0)
    model = Tripod(**SMALL, information_weight=0.3, curvature_weight=0.7, reference=reference)
    x = torch.rand(6, 1, 16, 16)
    torch.manual_seed(1)
    terms = model.losses(x)
    latents = model.encode(x)
    std = latents.continuous.std(0, unbiased=False) + 1e-6
    information = multi_information(latents.codes, std, silverman=not reference).mean()
    torch.testing.assert_close(terms["multi_information"], information)
    torch.manual_seed(1)
    torch.testing.assert_close(terms["curvature"], model.mixing(latents.codes, std), rtol=1e-3, atol=1e-4)
    pixels = terms["reconstruction"] / 256
    torch.testing.assert_close(terms["loss"], pixels + 0.3 * information + 0.7 * terms["curvature"])
    terms["loss"].backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in model.parameters())


def test_a_decoder_that_adds_what_each_latent_draws_is_not_penalised():
    model = Tripod(**SMALL)
    z, std = torch.rand(8, 3), torch.full((3,), 0.5)
    model.layers = lambda codes: [codes**2 @ torch.ones(3, 4)]
    assert model.mixing(z, std) < 1e-3
    model.layers = lambda codes: [codes.prod(1, keepdim=True)]
    assert model.mixing(z, std) > 0.3


def test_the_style_decoder_is_penalised_in_all_layers_but_the_last():
    model = Tripod(**STYLE, latent_dim=4).eval()
    codes = model.represent(torch.rand(3, 1, 32, 32))
    style, *maps = model.layers(codes)
    assert style.shape == (3, 16)
    assert [tuple(of.shape[1:]) for of in maps] == [(8, 4, 4), (8, 8, 8), (4, 16, 16)]
    torch.testing.assert_close(style, model.decoder.style(codes))
    assert torch.isfinite(model.losses(torch.rand(3, 1, 32, 32))["loss"])
