"""Total correlation: the estimators of β-TCVAE, FactorVAE's discriminator, and how both networks are trained."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_softmax
from scipy.stats import norm
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from unknot.lightning import pl
from unknot.zoo import VAE, BetaTCVAE, FactorVAE, Posterior
from unknot.zoo.total_correlation import _log_weights, permute_dims, total_correlation

SHAPE = (1, 32, 32)


def images(n=4, seed=0):
    return torch.rand(n, *SHAPE, generator=torch.Generator().manual_seed(seed))


def random_posterior(n, d, seed):
    """Posteriors and one code of each, in double precision."""
    rng = np.random.default_rng(seed)
    mean, logvar = rng.normal(size=(n, d)), rng.uniform(-2, 1, size=(n, d))
    z = mean + np.exp(logvar / 2) * rng.normal(size=(n, d))
    return Posterior(torch.from_numpy(mean), torch.from_numpy(logvar)), torch.from_numpy(z)


def trainer(tmp_path, **settings):
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    quiet["enable_model_summary"] = False
    return pl.Trainer(default_root_dir=tmp_path, accelerator="cpu", **quiet, **{"max_steps": 3, **settings})


def loader(n=12, batch_size=4):
    return DataLoader(TensorDataset(images(n)), batch_size=batch_size)


# Minibatch estimators


def tc_by_loops(posterior, z, weights):
    """Mean of log Σ_j w_ij Π_l q(z_il|x_j) - Σ_l log Σ_j w_ij q(z_il|x_j), by densities and loops."""
    (mean, logvar), z = (part.numpy() for part in posterior), z.numpy()
    m, d = z.shape
    total = 0.0
    for i in range(m):
        density = [[norm.pdf(z[i, k], mean[j, k], np.exp(logvar[j, k] / 2)) for k in range(d)] for j in range(m)]
        joint = sum(weights[i][j] * np.prod(density[j]) for j in range(m))
        marginals = [sum(weights[i][j] * density[j][k] for j in range(m)) for k in range(d)]
        total += math.log(joint) - sum(math.log(marginal) for marginal in marginals)
    return total / m


def stratified_weights(m, dataset_size):
    """Chen et al. (2018), appendix: the batch is one own image and M = m - 1 others, the next of which fills up."""
    others = m - 1
    rows = []
    for i in range(m):
        row = [1 / others] * m
        row[i] = 1 / dataset_size
        row[(i + 1) % m] = (dataset_size - others) / (dataset_size * others)
        rows.append(row)
    return rows


@settings(max_examples=25, deadline=None, derandomize=True)
@given(m=st.integers(1, 7), d=st.integers(1, 4), seed=st.integers(0, 10_000))
def test_weighted_estimator(m, d, seed):
    posterior, z = random_posterior(m, d, seed)
    expected = tc_by_loops(posterior, z, [[1 / m] * m] * m)
    assert total_correlation(z, posterior).item() == pytest.approx(expected, rel=1e-5, abs=1e-6)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(m=st.integers(2, 7), d=st.integers(1, 4), seed=st.integers(0, 10_000), more=st.integers(0, 1000))
def test_stratified_estimator(m, d, seed, more):
    posterior, z = random_posterior(m, d, seed)
    expected = tc_by_loops(posterior, z, stratified_weights(m, m + more))
    assert total_correlation(z, posterior, m + more).item() == pytest.approx(expected, rel=1e-5, abs=1e-5)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(m=st.integers(1, 60), more=st.integers(0, 10**6), stratified=st.booleans())
def test_the_weights_of_every_row_sum_to_one(m, more, stratified):
    weights = _log_weights(m, m + more if stratified else None).exp().double()
    assert weights.shape == (m, m)
    torch.testing.assert_close(weights.sum(1), torch.ones(m).double(), atol=1e-5, rtol=0)
    if stratified and m > 1:
        torch.testing.assert_close(weights.diagonal(), torch.full((m,), 1 / (m + more)).double(), rtol=1e-5, atol=0)


def test_estimators_differ():
    posterior, z = random_posterior(6, 3, 0)
    weighted, small, large = (total_correlation(z, posterior, n).item() for n in (None, 6, 10**6))
    assert abs(weighted - large) > 0.1
    assert abs(small - large) > 0.1


@pytest.mark.parametrize("dataset_size", [None, 1_000_000])
@pytest.mark.parametrize("matrix", [[[1.0, 0.9], [0.9, 1.0]], [[2.0, -0.8], [-0.8, 0.5]], [[1.0, 0.0], [0.0, 1.0]]])
def test_total_correlation_of_a_gaussian(matrix, dataset_size):
    """Means from N(0, S) and posterior variances s: the aggregated posterior is N(0, S + s I), whose value is known."""
    matrix, s, estimates = np.array(matrix), 0.1, []
    aggregated = matrix + s * np.eye(2)
    expected = 0.5 * (np.log(np.diag(aggregated)).sum() - np.linalg.slogdet(aggregated)[1])
    for seed in range(4):
        rng = np.random.default_rng(seed)
        mean = torch.from_numpy(rng.multivariate_normal(np.zeros(2), matrix, size=1500))
        z = mean + math.sqrt(s) * torch.from_numpy(rng.normal(size=mean.shape))
        posterior = Posterior(mean.float(), torch.full(mean.shape, math.log(s)))
        estimates.append(total_correlation(z.float(), posterior, dataset_size).item())
    assert np.mean(estimates) == pytest.approx(expected, rel=0.04, abs=0.02)


@pytest.mark.parametrize("dataset_size", [None, 8, 10_000])
def test_codes_that_ignore_the_images_have_no_total_correlation(dataset_size):
    torch.manual_seed(0)
    posterior = Posterior(torch.tensor([[0.3, -1.0, 2.0]]).repeat(8, 1), torch.tensor([[0.5, -2.0, 0.0]]).repeat(8, 1))
    assert total_correlation(posterior.sample(), posterior, dataset_size).item() == pytest.approx(0, abs=1e-5)


@pytest.mark.parametrize("dataset_size", [None, 100])
def test_one_code_has_no_total_correlation(dataset_size):
    posterior, z = random_posterior(5, 1, 0)
    assert total_correlation(z, posterior, dataset_size).item() == 0


def test_far_posteriors_do_not_underflow():
    """Codes a thousand standard deviations apart: each sees its own posterior only."""
    mean = torch.arange(4.0)[:, None].repeat(1, 3)
    posterior = Posterior(mean, torch.full((4, 3), 2 * math.log(1e-3)))
    # log 1/M of the joint minus D times log 1/M of the marginals
    assert total_correlation(mean, posterior).item() == pytest.approx(2 * math.log(4), rel=1e-4)


@pytest.mark.parametrize("dataset_size", [None, 50])
def test_beta_weighs_the_total_correlation_beside_one_kl(dataset_size):
    model = BetaTCVAE(6.0, dataset_size, image_shape=SHAPE, latent_dim=3)
    posterior, z = random_posterior(5, 3, 0)
    found, terms = model.regularizer(posterior, z, torch.tensor(2.5, dtype=torch.float64))
    weights = [[1 / 5] * 5] * 5 if dataset_size is None else stratified_weights(5, 50)
    expected = tc_by_loops(posterior, z, weights)
    assert terms["total_correlation"].item() == pytest.approx(expected, rel=1e-5)
    assert found.item() == pytest.approx(2.5 + 5 * expected, rel=1e-5)


def test_beta_tcvae_looks_at_the_codes_that_are_decoded():
    model, x = BetaTCVAE(6.0, image_shape=SHAPE, latent_dim=3), images()
    torch.manual_seed(1)
    terms = model.losses(x)
    torch.manual_seed(1)
    mean, logvar = model.encode(x)
    z = mean + (logvar / 2).exp() * torch.randn(4, 3)
    posterior = Posterior(mean.detach().double(), logvar.detach().double())
    expected = tc_by_loops(posterior, z.detach().double(), [[1 / 4] * 4] * 4)
    assert terms["total_correlation"].item() == pytest.approx(expected, abs=1e-5)
    loss = terms["reconstruction"].item() + terms["kl"].item() + 5 * expected
    assert terms["loss"].item() == pytest.approx(loss, rel=1e-5)


def test_total_correlation_reaches_the_codes_and_both_heads():
    posterior, z = random_posterior(5, 3, 0)
    parts = [part.requires_grad_() for part in (*posterior, z)]
    total_correlation(z, posterior).backward()
    assert all(part.grad.abs().sum() > 0 for part in parts)


# Shuffling


@pytest.mark.parametrize(("n", "d"), [(1, 3), (2, 1), (50, 4)])
def test_shuffling_keeps_each_column(n, d):
    torch.manual_seed(0)
    z = torch.randn(n, d)
    shuffled = permute_dims(z)
    assert shuffled.shape == z.shape
    assert torch.equal(shuffled.sort(0).values, z.sort(0).values)


def test_shuffling_breaks_rows():
    torch.manual_seed(0)
    z = torch.arange(1000.0)[:, None].repeat(1, 3)  # all codes of a row are equal
    shuffled = permute_dims(z)
    equal = (shuffled[:, 0] == shuffled[:, 1]) | (shuffled[:, 1] == shuffled[:, 2])
    assert equal.float().mean() < 0.02
    assert abs(np.corrcoef(shuffled.numpy(), rowvar=False)[0, 1]) < 0.1
    assert not torch.equal(permute_dims(z), shuffled)


def test_all_orders_are_equally_likely():
    torch.manual_seed(0)
    z = torch.arange(3.0)[:, None].repeat(1, 6000)
    order = permute_dims(z).T @ torch.tensor([9.0, 3.0, 1.0])
    counts = torch.unique(order, return_counts=True)[1]
    assert len(counts) == 6
    assert (counts - 1000).abs().max() < 130  # 4.5 standard deviations


# The discriminator


def discriminator_in_numpy(network, z):
    """Dense layers with leaky ReLUs of slope 0.2 between them, in double precision."""
    hidden = z.detach().double().numpy()
    dense = [layer for layer in network if isinstance(layer, nn.Linear)]
    for number, layer in enumerate(dense):
        hidden = hidden @ layer.weight.detach().double().numpy().T + layer.bias.detach().double().numpy()
        if number < len(dense) - 1:
            hidden = np.where(hidden > 0, hidden, 0.2 * hidden)
    return hidden


@pytest.fixture(scope="module")
def factor_model():
    """A model whose discriminator has an opinion; tests leave it as it is."""
    torch.manual_seed(0)
    model = FactorVAE(gamma=3.0, image_shape=SHAPE, latent_dim=4)
    nn.init.normal_(model.discriminator[-1].weight, std=0.5)
    nn.init.normal_(model.discriminator[-1].bias)
    return model


@pytest.mark.parametrize("n", [1, 2, 9])
def test_discriminator_loss_and_total_correlation(factor_model, n):
    z = 2 * torch.randn(n, 4, generator=torch.Generator().manual_seed(n))
    posterior = Posterior(z, torch.zeros_like(z))
    torch.manual_seed(5)
    found, terms = factor_model.regularizer(posterior, z, torch.tensor(1.5))
    torch.manual_seed(5)
    shuffled = permute_dims(z)
    joint, product = (discriminator_in_numpy(factor_model.discriminator, codes) for codes in (z, shuffled))
    estimate = np.mean(joint[:, 0] - joint[:, 1])
    log_p, log_p_shuffled = log_softmax(joint, axis=1)[:, 0], log_softmax(product, axis=1)[:, 1]
    assert terms["total_correlation"].item() == pytest.approx(estimate, rel=1e-5, abs=1e-5)
    assert terms["discriminator"].item() == pytest.approx(-(log_p.mean() + log_p_shuffled.mean()) / 2, rel=1e-5)
    assert found.item() == pytest.approx(1.5 + 3.0 * estimate, rel=1e-5, abs=3e-5)


def gradients(model, loss):
    model.zero_grad(set_to_none=True)
    loss.backward()
    found = {name: parameter.grad for name, parameter in model.named_parameters()}
    model.zero_grad(set_to_none=True)
    return found


def test_the_loss_of_the_model_does_not_reach_the_discriminator(factor_model):
    found = gradients(factor_model, factor_model.losses(images())["loss"])
    for name, gradient in found.items():
        if name.startswith("discriminator"):
            assert gradient is None
        else:
            assert gradient.abs().sum() > 0, name


def test_the_loss_of_the_discriminator_reaches_nothing_else(factor_model):
    found = gradients(factor_model, factor_model.losses(images())["discriminator"])
    for name, gradient in found.items():
        if name.startswith("discriminator"):
            assert gradient.abs().sum() > 0, name
        else:
            assert gradient is None, name


def test_the_estimate_alone_trains_the_encoder(factor_model):
    found = gradients(factor_model, factor_model.losses(images())["total_correlation"])
    assert found["encoder.mean.weight"].abs().sum() > 0
    assert found["encoder.logvar.weight"].abs().sum() > 0
    assert all(gradient is None for name, gradient in found.items() if not name.startswith("encoder"))


def test_both_losses_in_one_pass_have_the_gradients_of_two(factor_model):
    found = []
    for names in (["loss"], ["discriminator"], ["loss", "discriminator"]):
        torch.manual_seed(0)
        terms = factor_model.losses(images())
        found.append(gradients(factor_model, sum(terms[name] for name in names)))
    model, discriminator, both = found
    for name, gradient in both.items():
        own = discriminator if name.startswith("discriminator") else model
        torch.testing.assert_close(gradient, own[name], rtol=1e-5, atol=1e-9)


def trained_discriminator(correlation, steps=400):
    """A FactorVAE with a small discriminator, trained alone on Gaussian codes; and a batch it has not seen."""
    torch.manual_seed(0)
    model = FactorVAE(image_shape=SHAPE, latent_dim=2, discriminator_lr=2e-3)
    model.discriminator = nn.Sequential(nn.Linear(2, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64), nn.Tanh())
    model.discriminator.append(nn.Linear(64, 2))
    optimizer = model.configure_optimizers()
    factor = torch.linalg.cholesky(torch.tensor([[1.0, correlation], [correlation, 1.0]]))

    def terms(n):
        z = torch.randn(n, 2) @ factor.T
        return model.regularizer(Posterior(z, torch.zeros_like(z)), z, torch.tensor(0.0))[1]

    for _ in range(steps):
        optimizer.zero_grad()
        terms(256)["discriminator"].backward()
        optimizer.step()
    with torch.no_grad():
        return terms(20_000)


def test_the_discriminator_learns_the_total_correlation():
    found = trained_discriminator(correlation=0.9)
    assert found["total_correlation"].item() == pytest.approx(-0.5 * math.log(1 - 0.9**2), rel=0.15)
    assert found["discriminator"].item() < math.log(2) - 0.1


def test_the_discriminator_finds_nothing_in_independent_codes():
    found = trained_discriminator(correlation=0.0)
    assert found["total_correlation"].item() == pytest.approx(0.0, abs=0.03)
    assert found["discriminator"].item() == pytest.approx(math.log(2), abs=0.02)


def test_the_published_discriminator_learns_within_a_few_steps():
    torch.manual_seed(0)
    model = FactorVAE(image_shape=SHAPE, latent_dim=2)
    optimizer = model.configure_optimizers()
    for _ in range(25):
        z = torch.randn(64, 1).repeat(1, 2)
        _, terms = model.regularizer(Posterior(z, torch.zeros_like(z)), z, torch.tensor(0.0))
        optimizer.zero_grad()
        terms["discriminator"].backward()
        optimizer.step()
    assert terms["total_correlation"].item() > 0.3
    assert terms["discriminator"].item() < math.log(2) - 0.1


# Training of FactorVAE


def test_optimisers_of_the_studies(factor_model):
    optimizer = factor_model.configure_optimizers()
    assert type(optimizer) is torch.optim.Adam
    model, discriminator = optimizer.param_groups
    assert (model["lr"], model["betas"], model["eps"]) == (1e-4, (0.9, 0.999), 1e-8)
    assert (discriminator["lr"], discriminator["betas"], discriminator["eps"]) == (1e-4, (0.5, 0.9), 1e-8)
    owned = [{id(parameter) for parameter in group["params"]} for group in (model, discriminator)]
    assert owned[1] == {id(parameter) for parameter in factor_model.discriminator.parameters()}
    assert not owned[0] & owned[1]
    assert owned[0] | owned[1] == {id(parameter) for parameter in factor_model.parameters()}


class SeededSteps(FactorVAE):
    """The noise of a step is that of its number, so that a loop by hand can draw the same."""

    def on_train_batch_start(self, batch, batch_idx):
        torch.manual_seed(batch_idx)


def two_optimizers_by_hand(model, steps, gamma):
    """Kim & Mnih's algorithm as one would write it: two losses, two passes, two optimisers."""
    own = [*model.encoder.parameters(), *model.decoder.parameters()]
    judge = model.discriminator
    adam = torch.optim.Adam(own, lr=1e-3)
    judge_adam = torch.optim.Adam(judge.parameters(), lr=5e-4, betas=(0.5, 0.9))
    for step, x in enumerate(images(4 * steps).to(model.dtype).split(4)):
        torch.manual_seed(step)
        mean, logvar = model.encoder(x)
        z = mean + (logvar / 2).exp() * torch.randn_like(mean)
        shuffled = permute_dims(z.detach())
        reconstruction = nn.functional.binary_cross_entropy_with_logits(model.decoder(z), x, reduction="sum") / 4
        kl = ((mean**2 + logvar.exp() - logvar - 1) / 2).sum(1).mean()
        logits = judge(z)
        loss = reconstruction + (kl + gamma * (logits[:, 0] - logits[:, 1]).mean())
        own_gradients = torch.autograd.grad(loss, own)
        logits = judge(torch.cat([z.detach(), shuffled]))
        loss = nn.functional.cross_entropy(logits, torch.tensor([0] * 4 + [1] * 4))
        judge_gradients = torch.autograd.grad(loss, list(judge.parameters()))
        for parameters, found, optimizer in (
            (own, own_gradients, adam),
            (judge.parameters(), judge_gradients, judge_adam),
        ):
            for parameter, gradient in zip(parameters, found, strict=True):
                parameter.grad = gradient
            optimizer.step()


def test_training_is_that_of_two_optimisers(tmp_path):
    torch.manual_seed(0)
    arguments = {"gamma": 10.0, "image_shape": SHAPE, "latent_dim": 4, "lr": 1e-3, "discriminator_lr": 5e-4}
    model, by_hand = SeededSteps(**arguments), FactorVAE(**arguments)
    by_hand.load_state_dict(model.state_dict())
    before = {name: value.clone() for name, value in model.state_dict().items()}
    # In double precision: Adam makes a whole step of a gradient that is nothing but its rounding.
    run = trainer(tmp_path, precision="64-true")
    run.fit(model, loader(12))
    two_optimizers_by_hand(by_hand.double(), steps=3, gamma=10.0)
    assert run.global_step == 3
    for name, value in model.state_dict().items():
        assert not torch.equal(value, before[name].double()), name
        torch.testing.assert_close(value, by_hand.state_dict()[name], rtol=0, atol=1e-6, msg=name)


def test_a_step_of_both_networks_counts_once(tmp_path):
    batches = []

    class Counting(FactorVAE):
        def on_train_batch_end(self, outputs, batch, batch_idx):
            batches.append(self.global_step)

    model = Counting(image_shape=SHAPE, latent_dim=2)
    run = trainer(tmp_path, max_steps=3)
    run.fit(model, loader(20), loader(4))
    assert batches == [1, 2, 3]
    assert run.global_step == 3
    for optimizer in run.optimizers:
        assert {state["step"].item() for state in optimizer.state.values()} == {3}


def test_the_discriminator_goes_on_learning_when_the_model_does_not_care(tmp_path):
    """With γ = 0 the model's loss ignores it, but its own loss does not."""
    model = FactorVAE(gamma=0.0, image_shape=SHAPE, latent_dim=2)
    before = model.discriminator[0].weight.clone()
    trainer(tmp_path, max_steps=1).fit(model, loader(4))
    assert not torch.equal(model.discriminator[0].weight, before)


def test_validation_changes_neither_network(tmp_path, factor_model):
    before = {name: value.clone() for name, value in factor_model.state_dict().items()}
    (logged,) = trainer(tmp_path).validate(factor_model, loader(5), verbose=False)
    assert all(torch.equal(value, before[name]) for name, value in factor_model.state_dict().items())
    expected = logged["val/reconstruction"] + logged["val/kl"] + 3.0 * logged["val/total_correlation"]
    assert logged["val/loss"] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_discriminator_that_is_not_finite_stops_training_before_the_weights_are_lost(tmp_path, value):
    model = FactorVAE(image_shape=SHAPE, latent_dim=2)
    nn.init.constant_(model.discriminator[-1].bias, value)
    before = [parameter.clone() for parameter in model.encoder.parameters()]
    with pytest.raises(FloatingPointError, match="step 0: the loss is not finite"):
        trainer(tmp_path).fit(model, loader(4))
    assert all(torch.equal(now, old) for now, old in zip(model.encoder.parameters(), before, strict=True))


# Identities


@pytest.mark.parametrize(
    "make",
    [
        lambda: BetaTCVAE(1.0, image_shape=SHAPE, latent_dim=3),
        lambda: BetaTCVAE(1.0, 1000, image_shape=SHAPE, latent_dim=3),
        lambda: FactorVAE(0.0, image_shape=SHAPE, latent_dim=3),
    ],
    ids=["BetaTCVAE", "BetaTCVAE stratified", "FactorVAE"],
)
def test_without_weight_it_is_the_plain_vae(make):
    base, model = VAE(SHAPE, 3), make()
    model.load_state_dict(base.state_dict(), strict=False)
    terms = []
    for one in (base, model):
        torch.manual_seed(0)
        terms.append(one.losses(images()))
    assert all(torch.equal(terms[0][name], terms[1][name]) for name in terms[0])


# Refusals


@pytest.mark.parametrize(
    ("cls", "arguments", "message"),
    [
        (BetaTCVAE, {"beta": -1.0}, r"beta must be finite and not negative, got -1\.0"),
        (BetaTCVAE, {"beta": math.nan}, "beta must be finite and not negative, got nan"),
        (BetaTCVAE, {"dataset_size": 0}, "dataset_size must be a whole number of at least 1, got 0"),
        (BetaTCVAE, {"dataset_size": -7}, "dataset_size must be a whole number of at least 1, got -7"),
        (FactorVAE, {"gamma": -1.0}, r"gamma must be finite and not negative, got -1\.0"),
        (FactorVAE, {"gamma": math.inf}, "gamma must be finite and not negative, got inf"),
        (FactorVAE, {"discriminator_lr": 0.0}, r"discriminator_lr must be positive and finite, got 0\.0"),
        (FactorVAE, {"discriminator_lr": math.nan}, "discriminator_lr must be positive and finite, got nan"),
    ],
)
def test_constructor_refuses(cls, arguments, message):
    with pytest.raises(ValueError, match=message):
        cls(image_shape=SHAPE, **arguments)


def test_a_batch_cannot_be_larger_than_the_data_set():
    model = BetaTCVAE(dataset_size=3, image_shape=SHAPE, latent_dim=2)
    with pytest.raises(ValueError, match=r"batch of 4 images is larger than dataset_size=3; give the true size"):
        model.losses(images(4))
    for n in (1, 2, 3):
        assert model.losses(images(n))["loss"].isfinite()
