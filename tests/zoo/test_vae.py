"""VAE and β-VAE: inference, objective, and training on anybody's data."""

import math

import pytest
import torch
from torch.distributions import Bernoulli, Normal, kl_divergence
from torch.utils.data import DataLoader, TensorDataset

from unknot.inference import evaluation_mode
from unknot.lightning import pl
from unknot.zoo import VAE, BetaVAE, Posterior

SHAPE = (1, 32, 32)


def images(n=4, shape=SHAPE, seed=0):
    return torch.rand(n, *shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def model():
    torch.manual_seed(0)
    return BetaVAE(beta=4.0, image_shape=SHAPE, latent_dim=5)


def trainer(tmp_path, **settings):
    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    return pl.Trainer(default_root_dir=tmp_path, accelerator="cpu", **quiet, **{"max_steps": 3, **settings})


def loader(n=12, shape=SHAPE):
    return DataLoader(TensorDataset(images(n, shape)), batch_size=4)


# Posterior


def test_kl_of_each_code():
    generator = torch.Generator().manual_seed(0)
    mean, logvar = torch.randn(6, 3, generator=generator), torch.randn(6, 3, generator=generator)
    expected = kl_divergence(Normal(mean, (logvar / 2).exp()), Normal(0.0, 1.0))
    torch.testing.assert_close(Posterior(mean, logvar).kl(), expected)


def test_the_prior_has_no_kl():
    assert (Posterior(torch.zeros(2, 3), torch.zeros(2, 3)).kl() == 0).all()


def test_samples_have_the_mean_and_variance_of_the_posterior():
    torch.manual_seed(0)
    mean, logvar = torch.tensor([[1.0, -2.0]]), torch.tensor([[0.0, -3.0]])
    samples = Posterior(mean.expand(100_000, 2), logvar.expand(100_000, 2)).sample()
    torch.testing.assert_close(samples.mean(0), mean[0], atol=0.02, rtol=0)
    torch.testing.assert_close(samples.var(0), logvar[0].exp(), atol=0.02, rtol=0)


def test_samples_carry_gradients():
    mean, logvar = torch.zeros(2, 3, requires_grad=True), torch.zeros(2, 3, requires_grad=True)
    Posterior(mean, logvar).sample().sum().backward()
    assert (mean.grad == 1).all()
    assert (logvar.grad != 0).all()


# Inference


def test_represent_is_the_mean_is_forward(model):
    x = images()
    mean, logvar = model.encode(x)
    assert mean.shape == logvar.shape == (4, 5)
    assert torch.equal(model.represent(x), mean)
    assert torch.equal(model(x), mean)


def test_decode_gives_images(model):
    decoded = model.decode(100 * torch.randn(6, 5))
    assert decoded.shape == (6, *SHAPE)
    assert 0 <= decoded.min() < decoded.max() <= 1


def test_reconstruct_decodes_the_representation(model):
    x = images()
    assert torch.equal(model.reconstruct(x), model.decode(model.represent(x)))


def test_samples_follow_the_generator_and_nothing_else(model):
    first = model.sample(3, generator=torch.Generator().manual_seed(1))
    torch.randn(7)
    assert torch.equal(model.sample(3, generator=torch.Generator().manual_seed(1)), first)
    assert not torch.equal(model.sample(3, generator=torch.Generator().manual_seed(2)), first)
    assert first.shape == (3, *SHAPE)
    assert 0 <= first.min() < first.max() <= 1
    assert not first.requires_grad


def test_traversals_change_one_code_each(model):
    x, values = images(2), torch.tensor([-1.5, 0.0, 3.0])
    traversals = model.traverse(x, values)
    assert traversals.shape == (2, 5, 3, *SHAPE)
    assert not traversals.requires_grad
    means = model.represent(x)
    for i, mean in enumerate(means):
        for d in range(5):
            for v, value in enumerate(values):
                code = mean.clone()
                code[d] = value
                torch.testing.assert_close(traversals[i, d, v], model.decode(code[None])[0])
    assert not torch.allclose(traversals[0, 0, 0], traversals[0, 0, 2])


def test_traversals_reach_from_minus_two_to_two(model):
    x = images(1)
    traversals = model.traverse(x)
    assert traversals.shape == (1, 5, 11, *SHAPE)
    assert torch.equal(traversals, model.traverse(x, torch.linspace(-2, 2, 11)))
    torch.testing.assert_close(model.traverse(x, [-2, 2]), traversals[:, :, [0, -1]])


@pytest.mark.parametrize(("latent_dim", "shape"), [(1, SHAPE), (3, SHAPE), (10, (3, 32, 48)), (2, (4, 64, 32))])
def test_other_sizes(latent_dim, shape):
    model, x = BetaVAE(image_shape=shape, latent_dim=latent_dim), images(2, shape)
    assert model.represent(x).shape == (2, latent_dim)
    assert model.reconstruct(x).shape == model.sample(2).shape == (2, *shape)
    assert model.traverse(x).shape == (2, latent_dim, 11, *shape)
    assert model.losses(x)["loss"].isfinite()


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (torch.rand(2, 1, 64, 64), r"shape \[2, 1, 64, 64\].*expects \[N, 1, 32, 32\]: resize"),
        (torch.rand(2, 3, 32, 32), r"shape \[2, 3, 32, 32\].*expects \[N, 1, 32, 32\].*image_shape="),
        (torch.rand(2, 32, 32, 1), r"expects \[N, 1, 32, 32\]"),
        (torch.rand(1, 32, 32), r"shape \[1, 32, 32\].*expects \[N, 1, 32, 32\]"),
        (
            torch.randint(256, (2, 1, 32, 32), dtype=torch.uint8),
            r"torch.uint8, expected floats in \[0, 1\]: divide by 255",
        ),
        (torch.zeros(2, 1, 32, 32, dtype=torch.bool), r"torch.bool, expected floats"),
        (torch.full((2, 1, 32, 32), 255.0), r"reach from 255 to 255, expected \[0, 1\]: rescale"),
        (torch.full((2, 1, 32, 32), -0.5), r"reach from -0.5 to -0.5, expected \[0, 1\]: rescale"),
        (torch.rand(2, 1, 32, 32).index_fill(3, torch.tensor([5]), torch.nan), r"nan.*expected \[0, 1\]"),
        (torch.full((2, 1, 32, 32), torch.inf), r"inf.*expected \[0, 1\]"),
        (torch.rand(2, 1, 32, 32).numpy(), r"ndarray, expected a tensor \[N, C, H, W\]: use torch.as_tensor"),
    ],
)
@pytest.mark.parametrize("method", ["encode", "represent", "forward", "reconstruct", "traverse", "losses"])
def test_unusable_images_are_told_what_was_expected(model, bad, message, method):
    with pytest.raises(ValueError, match=message) as error:
        getattr(model, method)(bad)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"lr": 0.0}, "lr must be positive and finite, got 0"),
        ({"lr": math.nan}, "lr must be positive and finite, got nan"),
        ({"latent_dim": 0}, "latent_dim must be a whole number of at least 1, got 0"),
        ({"latent_dim": -2}, "latent_dim must be a whole number of at least 1"),
        ({"latent_dim": 2.5}, r"latent_dim must be a whole number of at least 1, got 2\.5"),
        ({"latent_dim": "10"}, "latent_dim must be a whole number of at least 1, got '10'"),
        ({"likelihood": "l2"}, "likelihood: no network is registered as 'l2'. There are .*bernoulli"),
        ({"image_shape": (1, 8, 40)}, "sides from 16 up, or use MLPEncoder"),
        ({"image_shape": (64, 64)}, r"\(channels, height, width\).*got \(64, 64\)"),
        ({"image_shape": (1, 64, 64, 3)}, r"\(channels, height, width\).*got \(1, 64, 64, 3\)"),
    ],
)
@pytest.mark.parametrize("cls", [VAE, BetaVAE])
def test_constructor_refuses(cls, arguments, message):
    with pytest.raises(ValueError, match=message):
        cls(**arguments)


# Objective


def test_bernoulli_reconstruction_is_summed_over_pixels_and_averaged_over_images():
    model, x, logits = VAE(SHAPE), images(3).round(), torch.randn(3, *SHAPE)
    expected = -Bernoulli(logits=logits).log_prob(x).sum() / 3
    torch.testing.assert_close(model.reconstruction_loss(x, logits), expected)


def test_bernoulli_reconstruction_of_grey_images():
    model, x, logits = VAE(SHAPE), images(3), torch.randn(3, *SHAPE)
    p = torch.sigmoid(logits.double())
    expected = -(x * p.log() + (1 - x) * (1 - p).log()).sum((1, 2, 3)).mean()
    torch.testing.assert_close(model.reconstruction_loss(x, logits), expected.float())


def test_gaussian_reconstruction_is_the_summed_squared_error():
    model, x, logits = VAE(SHAPE, likelihood="gaussian"), images(3), torch.randn(3, *SHAPE)
    expected = ((x - 1 / (1 + (-logits).exp())) ** 2).sum((1, 2, 3)).mean()
    torch.testing.assert_close(model.reconstruction_loss(x, logits), expected)


def test_extreme_logits_stay_finite():
    model, x = VAE(SHAPE), images(2).round()
    loss = model.reconstruction_loss(x, torch.full((2, *SHAPE), 1e4))
    torch.testing.assert_close(loss, 1e4 * (1 - x).sum() / 2)


@pytest.mark.parametrize("likelihood", ["bernoulli", "gaussian"])
@pytest.mark.parametrize("beta", [0.0, 1.0, 4.0, 16.0])
def test_terms_of_the_objective(beta, likelihood):
    model, x = BetaVAE(beta, image_shape=SHAPE, latent_dim=5, likelihood=likelihood), images()
    torch.manual_seed(3)
    terms = model.losses(x)
    torch.manual_seed(3)
    mean, logvar = model.encode(x)
    z = mean + (logvar / 2).exp() * torch.randn(4, 5)
    expected = model.reconstruction_loss(x, model.decoder(z))
    kl = kl_divergence(Normal(mean, (logvar / 2).exp()), Normal(0.0, 1.0)).sum(1).mean()
    torch.testing.assert_close(terms["reconstruction"], expected)
    torch.testing.assert_close(terms["kl"], kl)
    torch.testing.assert_close(terms["loss"], expected + beta * kl)
    torch.testing.assert_close(terms["elbo"], -(expected + kl))


def test_beta_one_is_the_plain_vae():
    base, beta = VAE(SHAPE), BetaVAE(beta=1.0, image_shape=SHAPE)
    beta.load_state_dict(base.state_dict())
    terms = []
    for model in (base, beta):
        torch.manual_seed(0)
        terms.append(model.losses(images()))
    assert terms[0].keys() == terms[1].keys()
    assert all(torch.equal(terms[0][name], terms[1][name]) for name in terms[0])
    assert torch.equal(terms[0]["loss"], -terms[0]["elbo"])


def test_the_loss_trains_every_parameter(model):
    model.losses(images())["loss"].backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in model.parameters())


@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: (x,), lambda x: [x, torch.arange(4)]])
def test_batches_are_tensors_or_start_with_one(model, wrap):
    torch.manual_seed(0)
    expected = model.losses(images())["loss"]
    torch.manual_seed(0)
    assert model.losses(wrap(images()))["loss"] == expected


# Training


def test_optimiser_of_the_studies():
    optimizer = BetaVAE(image_shape=SHAPE).configure_optimizers()
    assert isinstance(optimizer, torch.optim.Adam)
    assert {name: optimizer.defaults[name] for name in ("lr", "betas", "eps", "weight_decay")} == {
        "lr": 1e-4,
        "betas": (0.9, 0.999),
        "eps": 1e-8,
        "weight_decay": 0,
    }
    assert BetaVAE(image_shape=SHAPE, lr=0.5).configure_optimizers().defaults["lr"] == 0.5


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_fits_anybodys_images(model, tmp_path, precision):
    before = {name: value.clone() for name, value in model.state_dict().items()}
    run = trainer(tmp_path, precision=precision)
    run.fit(model, loader(), loader(4))
    assert run.global_step == 3
    assert all(not torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(value.isfinite().all() for value in model.state_dict().values())
    assert {"train/loss", "train/kl", "train/reconstruction", "train/elbo"} <= run.callback_metrics.keys()
    assert {"val/loss", "val/kl", "val/reconstruction", "val/elbo"} <= run.callback_metrics.keys()


def test_training_lowers_the_loss(tmp_path):
    torch.manual_seed(0)
    model, x = BetaVAE(beta=1.0, image_shape=SHAPE, lr=1e-3), images(8).round()
    before = model.losses(x)["loss"].item()
    trainer(tmp_path, max_steps=15).fit(model, DataLoader(TensorDataset(x.repeat(15, 1, 1, 1)), batch_size=8))
    assert model.losses(x)["loss"].item() < before - 5


def test_predict_gives_representations(model, tmp_path):
    predictions = trainer(tmp_path).predict(model.eval(), loader(8))
    torch.testing.assert_close(torch.cat(predictions), model.represent(images(8)))


def test_test_logs_all_terms(model, tmp_path):
    (logged,) = trainer(tmp_path).test(model, loader(8), verbose=False)
    assert logged.keys() == {"test/loss", "test/kl", "test/reconstruction", "test/elbo"}
    assert logged["test/loss"] == pytest.approx(logged["test/reconstruction"] + 4 * logged["test/kl"], rel=1e-5)


def test_bad_images_stop_training_at_once(model, tmp_path):
    bad = DataLoader(TensorDataset(255 * images(8)), batch_size=4)
    with pytest.raises(ValueError, match=r"expected \[0, 1\]: rescale"):
        trainer(tmp_path).fit(model, bad)


def test_an_exploding_run_stops_before_its_weights_are_lost(tmp_path):
    torch.manual_seed(0)
    model = BetaVAE(image_shape=SHAPE, lr=1e30)
    with pytest.raises(FloatingPointError, match=r"step 1\b.*loss is not finite.*lr=1e\+30") as error:
        trainer(tmp_path).fit(model, loader())
    assert "\n" not in str(error.value)
    assert all(parameter.isfinite().all() for parameter in model.parameters())


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_a_loss_that_is_not_finite_leaves_the_weights_of_the_step_before(tmp_path, value):
    class Breaks(BetaVAE):
        def regularizer(self, posterior, z, kl):
            if self.global_step == 2:
                self.before = [parameter.detach().clone() for parameter in self.parameters()]
                return kl * value, {}
            return kl, {}

    model = Breaks(image_shape=SHAPE)
    with pytest.raises(FloatingPointError, match=r"step 2: the loss is not finite"):
        trainer(tmp_path).fit(model, loader())
    assert all(torch.equal(now, before) for now, before in zip(model.parameters(), model.before, strict=True))


@pytest.mark.parametrize("beta", [-1.0, math.inf, math.nan])
def test_beta_is_finite_and_not_negative(beta):
    with pytest.raises(ValueError, match=f"beta must be finite and not negative, got {beta}"):
        BetaVAE(beta=beta)


def test_evaluation_mode_leaves_frozen_modules_frozen():
    model = BetaVAE(image_shape=SHAPE).train()
    model.encoder.eval()
    with evaluation_mode(model):
        assert not model.training
    assert model.training
    assert model.decoder.training
    assert not model.encoder.training


def test_a_batch_that_is_a_dictionary_is_told_what_to_be(model):
    with pytest.raises(ValueError, match=r"The batch is a dictionary with \['image'\]; .* collate_fn"):
        model.losses({"image": images()})


def test_a_regularizer_that_returns_no_pair_is_told_what_to_return():
    class Forgetful(BetaVAE):
        def regularizer(self, posterior, z, kl):
            return kl

    with pytest.raises(TypeError, match=r"Forgetful.regularizer must return its value and a dictionary .* got Tensor"):
        Forgetful(image_shape=SHAPE).losses(images())
