"""AnnealedVAE: the KL is drawn to a capacity that grows with the steps of training."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, TensorDataset

from unknot.lightning import pl
from unknot.zoo import VAE, AnnealedVAE, Posterior

SHAPE = (1, 32, 32)


def images(n=4, seed=0):
    return torch.rand(n, *SHAPE, generator=torch.Generator().manual_seed(seed))


def random_posterior(n, d, seed, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    return Posterior(
        scale * torch.randn(n, d, generator=generator), torch.randn(n, d, generator=generator).clamp(-3, 3)
    )


def kl_in_numpy(posterior):
    mean, logvar = (part.detach().double().numpy() for part in posterior)
    return np.mean(np.sum(0.5 * (mean**2 + np.exp(logvar) - 1.0 - logvar), axis=1))


def trainer(tmp_path, **settings):
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    return pl.Trainer(
        default_root_dir=tmp_path, accelerator="cpu", enable_model_summary=False, **quiet, max_epochs=-1, **settings
    )


def loader(n=16):
    return DataLoader(TensorDataset(images(n)), batch_size=2)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    n=st.integers(1, 6),
    d=st.integers(1, 5),
    seed=st.integers(0, 10_000),
    gamma=st.floats(0, 1000),
    capacity=st.floats(0, 60),
)
def test_the_regularizer_is_the_weighted_distance_of_the_kl_from_the_capacity(n, d, seed, gamma, capacity):
    model = AnnealedVAE(gamma=gamma, image_shape=SHAPE, latent_dim=d)
    model.capacity.fill_(capacity)
    posterior = Posterior(*(part.double() for part in random_posterior(n, d, seed, scale=3.0)))
    found, terms = model.regularizer(posterior, posterior.mean, posterior.kl().sum(1).mean())
    expected = gamma * abs(kl_in_numpy(posterior) - float(np.float32(capacity)))
    assert found.item() == pytest.approx(expected, rel=1e-5, abs=1e-9)
    assert terms["capacity"].item() == pytest.approx(capacity, rel=1e-6)


def test_the_loss_is_reconstruction_plus_regularizer():
    model = AnnealedVAE(gamma=3.0, image_shape=SHAPE, latent_dim=4)
    model.capacity.fill_(20.0)
    posterior = random_posterior(5, 4, 0)
    terms = model.objective(images(5), posterior)
    expected = terms["reconstruction"].item() + 3.0 * abs(kl_in_numpy(posterior) - 20.0)
    assert terms["loss"].item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(("capacity", "sign"), [(0.0, 1.0), (1e3, -1.0)])
def test_the_kl_is_pushed_down_above_the_capacity_and_up_below_it(capacity, sign):
    model = AnnealedVAE(gamma=7.0, image_shape=SHAPE, latent_dim=3)
    model.capacity.fill_(capacity)
    kl = torch.tensor(5.0, requires_grad=True)
    posterior = random_posterior(2, 3, 0)
    model.regularizer(posterior, posterior.mean, kl)[0].backward()
    assert kl.grad.item() == sign * 7.0


def test_the_kl_inside_the_bars_is_the_mean_of_the_batch():
    """Half of the images lie below the capacity, half above: their distances cancel and are not added."""
    model = AnnealedVAE(gamma=1.0, image_shape=SHAPE, latent_dim=1)
    model.capacity.fill_(2.0)
    posterior = Posterior(torch.tensor([[0.0], [math.sqrt(8)]]), torch.zeros(2, 1))  # KL 0 and 4
    terms = model.objective(images(2), posterior)
    assert (terms["loss"] - terms["reconstruction"]).item() == pytest.approx(0.0, abs=1e-4)


def test_capacity_grows_linearly_and_then_stays(tmp_path):
    threshold, seen, added = 4, [], []

    class Watched(AnnealedVAE):
        def losses(self, batch):
            terms = super().losses(batch)
            if self.training:
                seen.append((self.global_step, terms["capacity"].item()))
                gap = 50.0 * abs(terms["kl"].item() - 10.0 * min(1.0, self.global_step / threshold))
                added.append(((terms["loss"] - terms["reconstruction"]).item(), gap))
            return terms

    torch.manual_seed(0)
    model = Watched(c_max=10.0, gamma=50.0, iteration_threshold=threshold, image_shape=SHAPE, latent_dim=3)
    assert model.capacity.item() == 0
    trainer(tmp_path, max_steps=2 * threshold + 1).fit(model, loader(20))
    capacities = dict(seen)
    assert list(capacities) == list(range(2 * threshold + 1))
    assert capacities[0] == 0.0
    assert capacities[threshold // 2] == 5.0
    assert capacities[threshold] == 10.0
    assert capacities[2 * threshold] == 10.0
    assert list(capacities.values()) == pytest.approx([0, 2.5, 5, 7.5, 10, 10, 10, 10, 10])
    assert all(value == pytest.approx(expected, abs=2e-3) for value, expected in added)


@pytest.mark.parametrize(("steps", "expected"), [(1, 0.0), (4, 3.0), (8, 7.0), (11, 8.0)])
def test_after_k_steps_the_model_has_the_capacity_of_its_last_step(tmp_path, steps, expected):
    model = AnnealedVAE(c_max=8.0, iteration_threshold=8, image_shape=SHAPE, latent_dim=2)
    run = trainer(tmp_path, max_steps=steps)
    run.fit(model, loader(8), loader(2))
    assert run.global_step == steps
    assert model.capacity.item() == pytest.approx(expected)


def test_capacity_counts_updates_and_not_batches(tmp_path):
    model = AnnealedVAE(c_max=8.0, iteration_threshold=8, image_shape=SHAPE, latent_dim=2)
    trainer(tmp_path, max_steps=3, accumulate_grad_batches=2).fit(model, loader(16))
    assert model.capacity.item() == pytest.approx(2.0)


def test_capacity_is_saved_with_the_weights(tmp_path):
    model = AnnealedVAE(c_max=8.0, iteration_threshold=4, image_shape=SHAPE, latent_dim=2)
    trainer(tmp_path, max_steps=3).fit(model, loader(8))
    assert model.capacity.item() == 4.0
    assert AnnealedVAE.from_pretrained(model.save_pretrained(tmp_path / "saved")).capacity.item() == 4.0


def test_capacity_is_no_parameter():
    model = AnnealedVAE(image_shape=SHAPE, latent_dim=2)
    assert "capacity" in model.state_dict()
    assert "capacity" not in dict(model.named_parameters())
    assert not model.losses(images())["capacity"].requires_grad


def test_the_logged_capacity_does_not_change_with_the_next_step():
    model = AnnealedVAE(image_shape=SHAPE, latent_dim=2)
    logged = model.losses(images())["capacity"]
    model.capacity.fill_(3.0)
    assert logged.item() == 0.0


def test_no_capacity_and_weight_one_is_the_plain_vae():
    base, model = VAE(SHAPE, 3), AnnealedVAE(c_max=0.0, gamma=1.0, image_shape=SHAPE, latent_dim=3)
    model.load_state_dict(base.state_dict() | {"capacity": torch.tensor(0.0)})
    torch.manual_seed(0)
    expected = base.losses(images())["loss"]
    torch.manual_seed(0)
    assert torch.equal(model.losses(images())["loss"], expected)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"c_max": -1.0}, r"c_max must be finite and not negative, got -1\.0"),
        ({"c_max": math.inf}, "c_max must be finite and not negative, got inf"),
        ({"gamma": -0.5}, r"gamma must be finite and not negative, got -0\.5"),
        ({"gamma": math.nan}, "gamma must be finite and not negative, got nan"),
        ({"iteration_threshold": 0}, "iteration_threshold must be positive and finite, got 0"),
        ({"iteration_threshold": -5}, "iteration_threshold must be positive and finite, got -5"),
    ],
)
def test_constructor_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        AnnealedVAE(image_shape=SHAPE, **arguments)
