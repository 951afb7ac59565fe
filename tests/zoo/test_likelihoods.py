"""Likelihoods against torch's distributions, in the objective, and in a checkpoint."""

import math

import numpy as np
import pytest
import torch
from PIL import Image
from torch.distributions import ContinuousBernoulli as Expected
from torch.distributions import Normal
from torch.utils.data import DataLoader, TensorDataset

from unknot.datamodules import FactorDataModule, FactorSpace, GroundTruthDataset
from unknot.lightning import pl
from unknot.metrics import evaluate
from unknot.zoo import BetaVAE, ContinuousBernoulli, FactorVAE, Gaussian, Likelihood, register_network
from unknot.zoo.pictures import draw_reconstructions

SHAPE = (1, 32, 32)


def data(n=3, low=0.0, high=1.0):
    generator = torch.Generator().manual_seed(0)
    return low + (high - low) * torch.rand(n, *SHAPE, generator=generator)


@pytest.mark.parametrize("scale", [1e-4, 0.02, 1.0, 8.0])
def test_continuous_bernoulli_is_torchs(scale):
    x, logits = data().double(), scale * torch.randn(3, *SHAPE, dtype=torch.float64)
    expected = Expected(logits=logits, lims=(0.4999, 0.5001))
    likelihood = ContinuousBernoulli()
    torch.testing.assert_close(likelihood(x, logits), -expected.log_prob(x).sum() / 3, rtol=1e-7, atol=1e-7)
    torch.testing.assert_close(likelihood.mean(logits), expected.mean, rtol=1e-5, atol=1e-6)


def test_gradients_of_the_continuous_bernoulli_are_finite_at_zero():
    logits = torch.zeros(3, *SHAPE, requires_grad=True)
    ContinuousBernoulli()(data(), logits).backward()
    assert logits.grad.isfinite().all()


@pytest.mark.parametrize("variance", [0.1, 0.5, 2.0])
def test_gaussian_of_a_fixed_variance_is_a_density_up_to_a_constant(variance):
    x, outputs = data(low=-4, high=4).double(), torch.randn(3, *SHAPE, dtype=torch.float64)
    density = -Normal(outputs, math.sqrt(variance)).log_prob(x).sum() / 3
    constant = x[0].numel() / 2 * math.log(2 * math.pi * variance)
    torch.testing.assert_close(Gaussian(variance, bounded=False)(x, outputs), density - constant)


def test_gaussian_of_a_learned_variance_finds_the_variance():
    likelihood, x = Gaussian("learned", bounded=False), 0.3 * torch.randn(64, *SHAPE)
    density = -Normal(torch.zeros(()), math.sqrt(0.5)).log_prob(x).sum() / 64
    torch.testing.assert_close(likelihood(x, torch.zeros_like(x)), density)
    optimizer = torch.optim.Adam(likelihood.parameters(), lr=0.1)
    for _ in range(60):
        optimizer.zero_grad()
        likelihood(x, torch.zeros_like(x)).backward()
        optimizer.step()
    assert likelihood.log_variance.exp().item() == pytest.approx(x.var().item(), rel=0.02)


@pytest.mark.parametrize("variance", [0.0, -1.0, math.nan, math.inf, "fixed", None])
def test_variances_that_are_none(variance):
    with pytest.raises(ValueError, match="variance must be positive and finite, or 'learned'"):
        Gaussian(variance)


def test_values_beyond_one_where_the_likelihood_allows_them(tmp_path):
    x = data(low=-3, high=3)
    with pytest.raises(ValueError, match=r"expected \[0, 1\].*likelihood=.*'bounded': False"):
        BetaVAE(image_shape=SHAPE, likelihood="gaussian").losses(x)
    model = BetaVAE(image_shape=SHAPE, likelihood={"name": "gaussian", "variance": "learned", "bounded": False})
    assert model.losses(x)["loss"].isfinite()
    with pytest.raises(ValueError, match="finite values"):
        model.represent(x / 0)
    loaded = BetaVAE.from_pretrained(model.save_pretrained(tmp_path))
    assert torch.equal(loaded.reconstruct(x), model.eval().reconstruct(x))


class Signed(GroundTruthDataset):
    """A square of -1 or 1 in one of 16 places on grey, as some scenes have their values."""

    name = "signed"
    stochastic = False
    factor_space = FactorSpace(("row", "column"), (4, 4))
    image_shape = SHAPE

    def observe(self, factors, generator=None):
        rows, columns = (torch.nn.functional.one_hot(part, 4).repeat_interleave(8, 1) for part in factors.T)
        return (2 * rows[:, :, None] * columns[:, None, :] - 1)[:, None].float()


def test_values_from_minus_one_to_one_from_training_to_pictures(tmp_path):
    likelihood = {"name": "gaussian", "bounded": False}
    torch.manual_seed(0)
    model = BetaVAE(beta=0.1, image_shape=SHAPE, lr=1e-3, likelihood=likelihood, encoder="MLPEncoder")
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = pl.Trainer(max_steps=60, accelerator="cpu", enable_model_summary=False, **quiet)
    trainer.fit(model, datamodule=FactorDataModule(Signed(), batch_size=16, num_val_batches=1, seed=0))
    loaded = BetaVAE.from_pretrained(model.save_pretrained(tmp_path))
    images = Signed()[:][0]
    drawn = loaded.reconstruct(images)
    assert drawn.min() < -0.9
    assert torch.equal(drawn, model.eval().reconstruct(images))
    assert loaded.sample(3).min() < -0.5
    assert evaluate(loaded, Signed(), ["mig", "elbo"], num_train=50, num_test=10)["elbo"] < 0
    picture = draw_reconstructions(loaded, images[:1], tmp_path / "drawn.png")
    shades = np.asarray(Image.open(picture).convert("L"))[-60:]  # below the title
    dark = draw_reconstructions(loaded, images[:1].clamp(min=0.0), tmp_path / "dark.png")
    assert (np.asarray(Image.open(dark).convert("L"))[-60:] != shades).any()  # -1 is not drawn as 0
    with pytest.raises(ValueError, match=r"expected \[0, 1\]: .*'bounded': False"):
        BetaVAE(image_shape=SHAPE).represent(images)


def test_the_weight_of_the_reconstruction_is_explicit():
    terms = []
    for weight in (1.0, 4.0):
        torch.manual_seed(0)
        model = BetaVAE(beta=2.0, image_shape=SHAPE, reconstruction_weight=weight)
        terms.append(model.losses(data()))
    one, four = terms
    assert torch.equal(one["reconstruction"], four["reconstruction"])
    assert torch.equal(one["elbo"], four["elbo"])
    torch.testing.assert_close(four["loss"], 4 * one["reconstruction"] + 2 * one["kl"])


def test_the_older_name_still_works():
    old, new = BetaVAE(image_shape=SHAPE, reconstruction="gaussian"), BetaVAE(image_shape=SHAPE, likelihood="gaussian")
    assert dict(old.hparams) == dict(new.hparams)
    assert isinstance(old.likelihood, Gaussian)


class Laplace(Likelihood):
    """|x - m|."""

    support = (-math.inf, math.inf)

    def __init__(self, scale=1.0):
        super().__init__()
        self.scale = scale

    def forward(self, images, outputs):
        return (images - outputs).abs().sum() / (self.scale * len(images))

    def mean(self, outputs):
        return outputs


def test_a_likelihood_of_ones_own(tmp_path):
    register_network(Laplace)
    model = BetaVAE(image_shape=SHAPE, likelihood=Laplace(scale=0.5))
    assert model.hparams.likelihood == {"name": "Laplace", "scale": 0.5}
    loaded = BetaVAE.from_pretrained(model.save_pretrained(tmp_path))
    assert isinstance(loaded.likelihood, Laplace)
    assert loaded.likelihood.scale == 0.5


@pytest.mark.parametrize("cls", [BetaVAE, FactorVAE])
def test_a_learned_variance_is_trained(cls, tmp_path):
    model = cls(image_shape=SHAPE, likelihood=Gaussian("learned"))
    before = model.likelihood.log_variance.item()
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = pl.Trainer(max_steps=2, accelerator="cpu", enable_model_summary=False, **quiet)
    trainer.fit(model, DataLoader(TensorDataset(data(8)), batch_size=4))
    assert model.likelihood.log_variance.item() != before


class SureDecoder(torch.nn.Linear):
    """Logits that are sure of the upper half of the image, by an amount that is trained."""

    def __init__(self, logit):
        super().__init__(10, math.prod(SHAPE))
        with torch.no_grad():
            self.weight.zero_()
            self.bias.zero_()[: math.prod(SHAPE) // 2] = logit

    def forward(self, codes):
        return super().forward(codes).unflatten(1, SHAPE)


@pytest.mark.filterwarnings("ignore:The decoder is a SureDecoder")
@pytest.mark.parametrize("likelihood", ["bernoulli", "gaussian"])
@pytest.mark.parametrize("logit", [-30.0, -44.0, -88.0, 100.0])
def test_no_gradient_is_subnormal(likelihood, logit):
    decoder = SureDecoder(logit)
    model = BetaVAE(image_shape=SHAPE, decoder=decoder, likelihood=likelihood)
    black = torch.zeros(2, *SHAPE)
    model.losses(black)["loss"].backward()
    gradient = decoder.bias.grad
    assert not ((gradient != 0) & (gradient.abs() < torch.finfo(torch.float32).tiny)).any()
    outputs = decoder.bias.detach().requires_grad_()
    model.likelihood(black[:1], outputs.view(1, *SHAPE)).backward()  # where nothing is left out
    torch.testing.assert_close(gradient, outputs.grad, atol=1e-19, rtol=1e-5)
    assert gradient[-1] != 0
