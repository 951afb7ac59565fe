"""Semi-supervised models: the loss of the labels, what it is added to, and what it must not touch."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit
from sklearn.metrics import log_loss
from torch.utils.data import DataLoader, TensorDataset

from unknot.lightning import pl
from unknot.zoo import (
    DIPVAEI,
    S2DIPVAEI,
    VAE,
    BetaTCVAE,
    BetaVAE,
    FactorVAE,
    S2BetaTCVAE,
    S2BetaVAE,
    S2FactorVAE,
    SupervisedVAE,
)
from unknot.zoo.semi_supervised import supervised_loss

SHAPE = (1, 32, 32)
PAIRS = [(S2BetaVAE, BetaVAE), (S2BetaTCVAE, BetaTCVAE), (S2FactorVAE, FactorVAE), (S2DIPVAEI, DIPVAEI)]
LABELLED = [*(cls for cls, _ in PAIRS), SupervisedVAE]


def images(n=4, seed=0):
    return torch.rand(n, *SHAPE, generator=torch.Generator().manual_seed(seed))


def labels(n=4, d=2, seed=0):
    return torch.rand(n, d, generator=torch.Generator().manual_seed(seed))


def batch(n=4, labelled=3, d=2):
    return images(n), images(labelled, seed=1), labels(labelled, d)


def trainer(tmp_path, **settings):
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    quiet["enable_model_summary"] = False
    return pl.Trainer(default_root_dir=tmp_path, accelerator="cpu", **quiet, **{"max_steps": 3, **settings})


# R_s


def in_numpy(mean, targets, kind, reduction):
    r, z = mean.numpy().astype(float)[:, : targets.shape[1]], targets.numpy().astype(float)
    p = expit(r)
    if kind == "xent":
        each = [-sum(z[i] * np.log(p[i]) + (1 - z[i]) * np.log(1 - p[i])) for i in range(len(z))]
    else:
        each = [np.linalg.norm(row) ** 2 for row in p - z]
    return np.mean(each) if reduction == "mean" else np.sum(each)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("kind", ["xent", "l2"])
@settings(max_examples=30, deadline=None, derandomize=True)
@given(m=st.integers(1, 8), d=st.integers(1, 5), more=st.integers(0, 3), seed=st.integers(0, 10_000))
def test_supervised_loss(kind, reduction, m, d, more, seed):
    rng = np.random.default_rng(seed)
    mean = torch.from_numpy(rng.normal(0, 3, size=(m, d + more)))
    targets = torch.from_numpy(rng.integers(0, 11, size=(m, d)) / 10)  # 0 and 1 included
    expected = in_numpy(mean, targets, kind, reduction)
    assert supervised_loss(mean, targets, kind, reduction).item() == pytest.approx(expected, rel=1e-5)
    single = supervised_loss(mean.float(), targets.float(), kind, reduction).item()
    assert single == pytest.approx(expected, rel=1e-5)


def test_cross_entropy_of_hard_labels_is_that_of_scikit_learn():
    """A label z is the share z of ones: log_loss with these weights, over all entries."""
    rng = np.random.default_rng(0)
    mean, targets = rng.normal(size=(20, 3)), rng.uniform(size=(20, 3))
    p, z = expit(mean).ravel(), targets.ravel()
    truth = np.r_[np.ones_like(z), np.zeros_like(z)]
    total = log_loss(truth, np.r_[p, p], sample_weight=np.r_[z, 1 - z], normalize=False)
    found = supervised_loss(torch.from_numpy(mean), torch.from_numpy(targets), "xent", "sum").item()
    assert found == pytest.approx(total, rel=1e-9)
    hard = (targets > 0.5).astype(float)
    found = supervised_loss(torch.from_numpy(mean), torch.from_numpy(hard), "xent", "mean").item()
    assert found == pytest.approx(3 * log_loss(hard.ravel(), p), rel=1e-9)


def test_defaults_are_those_of_the_chapter():
    mean, targets = torch.randn(5, 4), labels(5, 3)
    assert torch.equal(supervised_loss(mean, targets), supervised_loss(mean, targets, "xent", "mean"))
    model = S2BetaVAE(image_shape=SHAPE)
    assert (model.gamma_sup, model.supervised, model.supervised_reduction) == (1.0, "xent", "mean")


def test_the_best_mean_is_the_logit_of_the_label():
    targets = torch.tensor([[0.1, 0.7]])
    for kind in ("xent", "l2"):
        mean = torch.logit(targets).requires_grad_()
        supervised_loss(mean, targets, kind).backward()
        assert mean.grad.abs().max() < 1e-6


@pytest.mark.parametrize("kind", ["xent", "l2"])
def test_only_the_first_means_matter(kind):
    mean, targets = torch.randn(5, 6), labels(5, 2)
    mean.requires_grad_()
    loss = supervised_loss(mean, targets, kind)
    loss.backward()
    assert (mean.grad[:, :2] != 0).all()
    assert (mean.grad[:, 2:] == 0).all()
    other = torch.cat([mean[:, :2], torch.full((5, 4), 99.0)], dim=1)
    assert torch.equal(supervised_loss(other, targets, kind), loss)


def test_extreme_means_stay_finite():
    mean, targets = torch.tensor([[1e4, -1e4]]), torch.tensor([[0.0, 0.0]])
    assert supervised_loss(mean, targets).item() == pytest.approx(1e4)
    assert supervised_loss(mean, targets, "l2").item() == pytest.approx(1.0)


# Objective


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("kind", ["xent", "l2"])
@pytest.mark.parametrize(("cls", "base"), PAIRS)
def test_the_loss_is_that_of_the_base_plus_weighted_labels(cls, base, kind, reduction):
    model = cls(gamma_sup=7.0, supervised=kind, supervised_reduction=reduction, image_shape=SHAPE, latent_dim=4)
    unsupervised = base(image_shape=SHAPE, latent_dim=4)
    unsupervised.load_state_dict(model.state_dict())
    x, labelled, targets = batch()
    torch.manual_seed(0)
    terms = model.losses((x, labelled, targets))
    torch.manual_seed(0)
    expected = unsupervised.losses(x)
    supervised = in_numpy(model.represent(labelled).detach(), targets, kind, reduction)
    assert terms.keys() == expected.keys() | {"supervised"}
    assert terms["supervised"].item() == pytest.approx(supervised, rel=1e-5)
    assert terms["loss"].item() == pytest.approx(expected["loss"].item() + 7 * supervised, rel=1e-6)
    assert all(torch.equal(terms[name], expected[name]) for name in expected if name != "loss")


@pytest.mark.parametrize(
    ("cls", "base", "arguments"),
    [
        (S2BetaVAE, VAE, {"beta": 1.0}),
        (S2BetaTCVAE, VAE, {"beta": 1.0}),
        (S2FactorVAE, VAE, {"gamma": 0.0}),
        (S2DIPVAEI, VAE, {"lambda_od": 0.0, "lambda_d": 0.0}),
        (S2BetaVAE, BetaVAE, {"beta": 3.0}),
        (S2BetaTCVAE, BetaTCVAE, {"beta": 3.0, "dataset_size": 100}),
        (S2FactorVAE, FactorVAE, {"gamma": 3.0}),
        (S2DIPVAEI, DIPVAEI, {"lambda_od": 3.0, "lambda_d": 2.0}),
    ],
)
def test_without_weight_it_is_the_base(cls, base, arguments):
    model = cls(gamma_sup=0.0, image_shape=SHAPE, latent_dim=3, **arguments)
    plain = base(image_shape=SHAPE, latent_dim=3, **({} if base is VAE else arguments))
    plain.load_state_dict({name: value for name, value in model.state_dict().items() if name in plain.state_dict()})
    torch.manual_seed(0)
    expected = plain.losses(images())
    torch.manual_seed(0)
    terms = model.losses(batch())
    assert all(torch.equal(terms[name], expected[name]) for name in expected)


def test_labels_are_of_the_labelled_images():
    model = S2BetaVAE(image_shape=SHAPE, latent_dim=3)
    x, labelled, targets = batch()
    found = [model.losses((x, labelled, targets)), model.losses((images(4, seed=9), labelled, targets))]
    assert torch.equal(found[0]["supervised"], found[1]["supervised"])
    moved = model.losses((x, labelled.flip(0), targets))["supervised"]
    assert not torch.equal(moved, found[0]["supervised"])


def test_the_mean_does_not_depend_on_how_many_are_labelled_and_the_sum_does():
    for reduction, factor in (("mean", 1), ("sum", 3)):
        model = S2BetaVAE(supervised_reduction=reduction, image_shape=SHAPE, latent_dim=3)
        once = model.supervised_loss(images(2), labels(2))
        thrice = model.supervised_loss(images(2).repeat(3, 1, 1, 1), labels(2).repeat(3, 1))
        torch.testing.assert_close(thrice, factor * once)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.int64, torch.bool])
def test_labels_of_other_types(dtype):
    targets = torch.tensor([[0, 1], [1, 1]])
    model = S2BetaVAE(image_shape=SHAPE, latent_dim=3)
    found = model.supervised_loss(images(2), targets.to(dtype))
    assert torch.equal(found, model.supervised_loss(images(2), targets.float()))


@pytest.mark.parametrize("cls", LABELLED)
def test_labels_train_the_mean_and_nothing_of_the_decoder(cls):
    model = cls(image_shape=SHAPE, latent_dim=4)
    model.losses(batch(d=2))["supervised"].backward()
    for name, parameter in model.named_parameters():
        if name.startswith(("encoder.body", "encoder.mean")):
            assert parameter.grad.abs().sum() > 0, name
        else:
            assert parameter.grad is None, name
    rows = model.encoder.mean.weight.grad.abs().sum(1)
    assert (rows[:2] > 0).all()
    assert (rows[2:] == 0).all()


# The supervised baseline


@pytest.mark.parametrize("kind", ["xent", "l2"])
def test_supervised_baseline_has_no_kl(kind):
    model = SupervisedVAE(supervised=kind, image_shape=SHAPE, latent_dim=3)
    x, labelled, targets = batch()
    torch.manual_seed(0)
    terms = model.losses((x, labelled, targets))
    torch.manual_seed(0)
    mean, logvar = model.encode(x)
    z = mean + (logvar / 2).exp() * torch.randn(4, 3)
    reconstruction = model.reconstruction_loss(x, model.decoder(z)).item()
    supervised = in_numpy(model.represent(labelled).detach(), targets, kind, "mean")
    assert terms["reconstruction"].item() == pytest.approx(reconstruction, rel=1e-6)
    assert terms["supervised"].item() == pytest.approx(supervised, rel=1e-5)
    assert terms["loss"].item() == pytest.approx(reconstruction + supervised, rel=1e-6)


def test_the_decoder_of_the_baseline_sends_nothing_to_the_encoder():
    model = SupervisedVAE(image_shape=SHAPE, latent_dim=3)
    model.losses(batch())["reconstruction"].backward()
    assert all(parameter.grad is None for parameter in model.encoder.parameters())
    assert all(parameter.grad.abs().sum() > 0 for parameter in model.decoder.parameters())


def test_the_encoder_of_the_baseline_learns_from_labels_alone():
    """Its gradient is that of R_s, whatever the unlabelled images are."""
    model = SupervisedVAE(image_shape=SHAPE, latent_dim=3)
    x, labelled, targets = batch()
    found = []
    for unlabelled in (x, images(4, seed=7)):
        model.zero_grad()
        model.losses((unlabelled, labelled, targets))["loss"].backward()
        found.append(model.encoder.mean.weight.grad.clone())
    model.zero_grad()
    model.supervised_loss(labelled, targets).backward()
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], model.encoder.mean.weight.grad)


def test_the_variance_of_the_baseline_does_not_train(tmp_path):
    torch.manual_seed(0)
    model = SupervisedVAE(image_shape=SHAPE, latent_dim=3, lr=1e-2)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    data = TensorDataset(images(12), images(12, seed=1), labels(12))
    trainer(tmp_path).fit(model, DataLoader(data, batch_size=4))
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]) == name.startswith("encoder.logvar"), name


def test_the_variance_of_a_loaded_baseline_does_not_train(tmp_path):
    model = SupervisedVAE.from_pretrained(SupervisedVAE(image_shape=SHAPE).save_pretrained(tmp_path / "saved"))
    frozen = {name for name, parameter in model.named_parameters() if not parameter.requires_grad}
    assert frozen == {"encoder.logvar.weight", "encoder.logvar.bias"}


@pytest.mark.parametrize("cls", [S2BetaVAE, SupervisedVAE])
def test_labels_are_learned(tmp_path, cls):
    torch.manual_seed(0)
    model = cls(image_shape=SHAPE, latent_dim=3, lr=1e-3, **({} if cls is SupervisedVAE else {"gamma_sup": 100.0}))
    x, targets = images(8), torch.tensor([[0.0, 1.0], [1.0, 0.0]]).repeat(4, 1)
    before = model.supervised_loss(x, targets).item()
    data = TensorDataset(x, x, targets)
    trainer(tmp_path, max_steps=30, max_epochs=-1).fit(model, DataLoader(data, batch_size=8))
    assert model.supervised_loss(x, targets).item() < 0.7 * before


# Refusals


@pytest.mark.parametrize("cls", [S2BetaVAE, SupervisedVAE])
@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (2 * torch.ones(3, 2), r"Labels reach from 2 to 2, expected \[0, 1\]: divide each by its factor's number"),
        (torch.tensor([[0, 1], [2, 3], [5, 31]]), r"Labels reach from 0 to 31, expected \[0, 1\]: divide each"),
        (torch.full((3, 2), -0.25), r"Labels reach from -0.25 to -0.25, expected \[0, 1\]"),
        (torch.tensor([[0.5, 0.5], [math.nan, 0.5], [0.1, 0.2]]), r"Labels reach from nan to nan, expected \[0, 1\]"),
        (torch.full((3, 2), math.inf), r"Labels reach from inf to inf, expected \[0, 1\]"),
        (torch.rand(3, 5), r"5 factors are labelled, but the model has 4 latents: build it with latent_dim=5 or more"),
        (torch.rand(3), r"Labels have shape \[3\], expected one row for each of the 3 labelled images"),
        (torch.rand(3, 2, 1), r"Labels have shape \[3, 2, 1\], expected one row"),
        (torch.rand(2, 2), r"Labels have shape \[2, 2\], expected one row for each of the 3 labelled images"),
        (torch.rand(0, 2), r"Labels have shape \[0, 2\], expected one row for each of the 3 labelled images"),
    ],
)
def test_unusable_labels_are_told_what_was_expected(cls, bad, message):
    model = cls(image_shape=SHAPE, latent_dim=4)
    with pytest.raises(ValueError, match=message) as error:
        model.losses((images(4), images(3), bad))
    assert "\n" not in str(error.value)


def test_no_labelled_images_at_all():
    model = S2BetaVAE(image_shape=SHAPE, latent_dim=4)
    with pytest.raises(ValueError, match=r"each of the 0 labelled images .* at least one of each"):
        model.losses((images(4), images(0), torch.rand(0, 2)))


@pytest.mark.parametrize("cls", LABELLED)
@pytest.mark.parametrize(
    ("bad", "found"),
    [
        (images(4), "one tensor"),
        ((images(4),), "1 tensors"),
        ([images(4), labels(4)], "2 tensors"),
    ],
)
def test_batches_are_triples_at_least(cls, bad, found):
    model = cls(image_shape=SHAPE, latent_dim=4)
    message = rf"needs batches \(images, labelled_images, labels\), got {found}: use LabelledDataModule"
    with pytest.raises(ValueError, match=message) as error:
        model.losses(bad)
    assert "\n" not in str(error.value)


def test_labelled_images_are_checked_too():
    model = S2BetaVAE(image_shape=SHAPE, latent_dim=4)
    with pytest.raises(ValueError, match=r"reach from .* expected \[0, 1\]: rescale"):
        model.losses((images(4), 255 * images(3), labels(3)))
    with pytest.raises(ValueError, match=r"shape \[3, 1, 64, 64\].*expects \[N, 1, 32, 32\]"):
        model.losses((images(4), torch.rand(3, 1, 64, 64), labels(3)))


def test_bad_labels_stop_training_at_once(tmp_path):
    model = S2BetaVAE(image_shape=SHAPE, latent_dim=4)
    data = TensorDataset(images(8), images(8), 5 + labels(8))
    with pytest.raises(ValueError, match=r"Labels reach from 5\.\d+ to 5\.\d+, expected \[0, 1\]"):
        trainer(tmp_path).fit(model, DataLoader(data, batch_size=4))


@pytest.mark.parametrize(
    ("cls", "arguments", "message"),
    [
        (S2BetaVAE, {"gamma_sup": -1.0}, r"gamma_sup must be finite and not negative, got -1\.0"),
        (S2FactorVAE, {"gamma_sup": math.nan}, "gamma_sup must be finite and not negative, got nan"),
        (S2BetaVAE, {"beta": -1.0}, r"beta must be finite and not negative, got -1\.0"),
        (S2FactorVAE, {"gamma": -1.0}, r"gamma must be finite and not negative, got -1\.0"),
        (S2DIPVAEI, {"lambda_od": -1.0}, r"lambda_od must be finite and not negative, got -1\.0"),
        (S2BetaTCVAE, {"dataset_size": 0}, "dataset_size must be a whole number of at least 1, got 0"),
        (S2BetaVAE, {"supervised": "mse"}, "supervised loss must be 'xent' or 'l2', got 'mse'"),
        (SupervisedVAE, {"supervised": "XENT"}, "supervised loss must be 'xent' or 'l2', got 'XENT'"),
        (
            S2DIPVAEI,
            {"supervised_reduction": "none"},
            "must be 'mean' or 'sum', got 'none'",
        ),
        (
            SupervisedVAE,
            {"supervised_reduction": ""},
            "must be 'mean' or 'sum', got ''",
        ),
        (S2BetaVAE, {"likelihood": "l2"}, "likelihood: no network is registered as 'l2'"),
        (S2BetaVAE, {"latent_dim": 0}, "latent_dim must be a whole number of at least 1, got 0"),
    ],
)
def test_constructor_refuses(cls, arguments, message):
    with pytest.raises(ValueError, match=message):
        cls(**{"image_shape": SHAPE, **arguments})


def test_arguments_that_no_base_has_are_refused():
    with pytest.raises(TypeError, match="S2BetaVAE has no argument 'gamma'"):
        S2BetaVAE(gamma=3.0, image_shape=SHAPE)


def test_labels_of_no_factor_are_refused():
    x = torch.rand(4, *SHAPE)
    with pytest.raises(ValueError, match=r"Labels have shape \[4, 0\], expected .* at least one of each"):
        S2BetaVAE(image_shape=SHAPE).losses((x, x, torch.zeros(4, 0)))


@pytest.mark.parametrize("options", [{"kind": "bogus"}, {"reduction": "none"}])
def test_the_function_refuses_unknown_kinds_too(options):
    with pytest.raises(ValueError, match="must be"):
        supervised_loss(torch.zeros(2, 3), torch.zeros(2, 1), **options)


@pytest.mark.parametrize("count", [3, 12])
def test_a_held_out_sum_does_not_grow_with_the_number_of_labels(count):
    model = S2BetaVAE(image_shape=SHAPE, supervised_reduction="sum").eval()
    images, labelled, labels = torch.rand(4, *SHAPE), torch.rand(1, *SHAPE), torch.rand(1, 2)
    many = images, labelled.repeat(count, 1, 1, 1), labels.repeat(count, 1)
    one = images, labelled, labels
    torch.testing.assert_close(model.losses(many)["supervised"], model.losses(one)["supervised"])
    model.train()
    torch.testing.assert_close(model.losses(many)["supervised"], count / 4 * model.eval().losses(one)["supervised"])
