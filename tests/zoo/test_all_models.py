"""Abilities of every VAE of the zoo: save and load, train on plain loaders, odd batches, resume exactly."""

import json
import shutil

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from unknot.datamodules import FactorDataModule, FactorSpace, GroundTruthDataset, LabelledDataModule, PairDataModule
from unknot.lightning import pl
from unknot.zoo import MODELS, VAE, list_models

SHAPE = (1, 32, 32)
LATENT = 6

UNSUPERVISED = ["BetaVAE", "AnnealedVAE", "FactorVAE", "BetaTCVAE", "DIPVAEI", "DIPVAEII", "HFSVAE"]
LABELLED = ["S2BetaVAE", "S2BetaTCVAE", "S2FactorVAE", "S2DIPVAEI", "SupervisedVAE"]
PAIRED = ["GVAE", "MLVAE", "AdaGVAE", "AdaMLVAE", "SlowVAE"]
TWO_NETWORKS = ["FactorVAE", "S2FactorVAE"]

# No value is a default.
LABELS = {"gamma_sup": 12.5, "supervised": "l2", "supervised_reduction": "sum"}
ARGUMENTS = {
    "BetaVAE": {"beta": 2.5},
    "AnnealedVAE": {"c_max": 7.5, "gamma": 3.0, "iteration_threshold": 5},
    "FactorVAE": {"gamma": 2.5, "discriminator_lr": 2e-4},
    "BetaTCVAE": {"beta": 2.5, "dataset_size": 1234},
    "DIPVAEI": {"lambda_od": 2.5, "lambda_d": 1.5},
    "DIPVAEII": {"lambda_od": 2.5, "lambda_d": 1.5},
    "S2BetaVAE": {"beta": 2.5, **LABELS},
    "S2BetaTCVAE": {"beta": 2.5, "dataset_size": 1234, **LABELS},
    "S2FactorVAE": {"gamma": 2.5, "discriminator_lr": 2e-4, **LABELS},
    "S2DIPVAEI": {"lambda_od": 2.5, "lambda_d": 1.5, **LABELS},
    "SupervisedVAE": {"supervised": "l2", "supervised_reduction": "sum"},
    "GVAE": {"beta": 2.5},
    "MLVAE": {"beta": 2.5, "average": "harmonic"},
    "AdaGVAE": {"beta": 2.5, "num_changed": 2},
    "AdaMLVAE": {"beta": 2.5, "average": "harmonic", "num_changed": 2},
    "HFSVAE": {"gamma": 2.5, "beta": 1.5, "num_pairs": 7},
    "SlowVAE": {"gamma": 2.5, "rate": 3.5, "beta": 1.5, "reference": True},
}

SHARED = {
    "image_shape": (3, 32, 48),
    "latent_dim": 6,
    "lr": 3e-4,
    "likelihood": {"name": "gaussian", "variance": "learned"},
    "encoder": "MLPEncoder",
    "decoder": {"name": "ResidualDecoder", "width": 4},
    "reconstruction_weight": 4.0,
}

TERMS = {"loss", "reconstruction", "kl", "elbo"}
OWN_TERMS = {
    "BetaVAE": set(),
    "AnnealedVAE": {"capacity"},
    "FactorVAE": {"total_correlation", "discriminator"},
    "BetaTCVAE": {"total_correlation"},
    "DIPVAEI": {"off_diagonal", "diagonal"},
    "DIPVAEII": {"off_diagonal", "diagonal"},
    "S2BetaVAE": {"supervised"},
    "S2BetaTCVAE": {"supervised", "total_correlation"},
    "S2FactorVAE": {"supervised", "total_correlation", "discriminator"},
    "S2DIPVAEI": {"supervised", "off_diagonal", "diagonal"},
    "SupervisedVAE": {"supervised"},
    "GVAE": {"weak_reconstruction"},
    "MLVAE": {"weak_reconstruction"},
    "AdaGVAE": {"weak_reconstruction"},
    "AdaMLVAE": {"weak_reconstruction"},
    "HFSVAE": {"factorised_support"},
    "SlowVAE": {"weak_reconstruction", "transition"},
}


@pytest.fixture
def tmp_path(tmp_path):
    """Emptied at once: the checkpoints of all models are half a gigabyte."""
    yield tmp_path
    shutil.rmtree(tmp_path)


VAES = sorted(name for name, model in MODELS.items() if issubclass(model, VAE))
every_model = pytest.mark.parametrize("name", VAES)


def build(name, seed=0, **arguments):
    torch.manual_seed(seed)
    return MODELS[name](**{"image_shape": SHAPE, "latent_dim": LATENT, **arguments})


def batch(name, n, latent_dim=LATENT, shape=SHAPE, seed=0):
    """A batch as the family of the model wants it."""
    generator = torch.Generator().manual_seed(seed)
    first, second = torch.rand(2, n, *shape, generator=generator)
    if name in LABELLED:
        return first, second, torch.rand(n, min(latent_dim, 2), generator=generator)
    if name in ("GVAE", "MLVAE"):
        return first, second, torch.randint(latent_dim, (n,), generator=generator)
    return (first, second) if name in PAIRED else (first,)


def loader(name, n, batch_size=4, **options):
    return DataLoader(TensorDataset(*batch(name, n, **options)), batch_size=batch_size)


def trainer(tmp_path, **settings):
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    quiet["enable_model_summary"] = False
    return pl.Trainer(default_root_dir=tmp_path, accelerator="cpu", **quiet, **settings)


def test_the_lists_of_this_file_are_complete():
    assert sorted(UNSUPERVISED + LABELLED + PAIRED) == VAES
    assert sorted(MODELS) == list_models()
    assert ARGUMENTS.keys() == OWN_TERMS.keys() == set(VAES)


# Saving and loading


@every_model
def test_saved_and_loaded(name, tmp_path):
    arguments = SHARED | ARGUMENTS[name]
    model = build(name, **arguments).eval()
    default = dict(MODELS[name]().hparams)
    assert not {key for key, value in arguments.items() if key != "latent_dim" and default[key] == value}
    folder = model.save_pretrained(tmp_path / "saved")
    saved = json.loads((folder / "config.json").read_text())["arguments"]
    assert saved == arguments | {"image_shape": [3, 32, 48]}
    loaded = MODELS[name].from_pretrained(folder)
    assert dict(loaded.hparams) == dict(model.hparams) == arguments
    assert loaded.state_dict().keys() == model.state_dict().keys()
    assert all(torch.equal(value, loaded.state_dict()[key]) for key, value in model.state_dict().items())
    plain = (int, float, str, bool, tuple)
    settings = [
        {key: value for key, value in vars(one).items() if isinstance(value, plain) and key != "training"}
        for one in (model, loaded)
    ]
    assert settings[0] == settings[1]
    x = batch(name, 3, shape=(3, 32, 48))
    assert torch.equal(loaded.represent(x[0]), model.represent(x[0]))
    assert torch.equal(loaded.reconstruct(x[0]), model.reconstruct(x[0]))
    terms = []
    for one in (model, loaded):
        torch.manual_seed(1)
        terms.append(one.losses(x))
    assert all(torch.equal(terms[0][key], terms[1][key]) for key in terms[0].keys() | terms[1].keys())


@every_model
def test_defaults_are_saved_too(name, tmp_path):
    """A checkpoint says everything, so that a later change of a default does not change it."""
    model = build(name)
    saved = json.loads((model.save_pretrained(tmp_path) / "config.json").read_text())["arguments"]
    assert saved.keys() == ARGUMENTS[name].keys() | SHARED.keys()
    assert dict(MODELS[name].from_pretrained(tmp_path).hparams) == dict(model.hparams)


@every_model
def test_a_loaded_model_trains_on(name, tmp_path):
    model = MODELS[name].from_pretrained(build(name).save_pretrained(tmp_path / "saved"))
    before = {key: value.clone() for key, value in model.state_dict().items()}
    trainer(tmp_path, max_steps=1).fit(model.train(), loader(name, 4), loader(name, 2))
    moved = {key for key, value in model.state_dict().items() if not torch.equal(value, before[key])}
    fixed = {"capacity"} if name == "AnnealedVAE" else set()
    fixed |= {"encoder.logvar.weight", "encoder.logvar.bias"} if name == "SupervisedVAE" else set()
    assert moved == before.keys() - fixed


# Training on plain loaders


@every_model
def test_fits_plain_loaders_with_a_last_batch_of_one(name, tmp_path):
    model = build(name, **ARGUMENTS[name])
    run = trainer(tmp_path, max_epochs=2)
    run.fit(model, loader(name, 9), loader(name, 5, seed=1))
    assert run.global_step == 6
    assert all(value.isfinite().all() for value in model.state_dict().values())
    names = {f"{stage}/{term}" for stage in ("train", "val") for term in TERMS | OWN_TERMS[name]}
    assert run.callback_metrics.keys() == names
    assert all(value.isfinite() for value in run.callback_metrics.values())


@every_model
def test_training_learns(name, tmp_path):
    """The reconstruction gets better on images that are all alike."""
    torch.manual_seed(0)
    model = build(name, lr=2e-3)
    data = [part.round() if part.ndim == 4 else part for part in batch(name, 4)]
    data = [part[:1].expand(part.shape) if part.ndim == 4 else part for part in data]
    torch.manual_seed(0)
    before = model.losses(data)["reconstruction"].item()
    loading = DataLoader(TensorDataset(*data), batch_size=4)
    trainer(tmp_path, max_steps=8, max_epochs=-1, limit_val_batches=0).fit(model, loading)
    torch.manual_seed(0)
    assert model.losses(data)["reconstruction"].item() < before - 5


@every_model
def test_validation_and_test_log_the_same_terms_and_repeat(name, tmp_path):
    model = build(name)
    run = trainer(tmp_path)
    logged = [run.validate(model, loader(name, 5), verbose=False)[0] for _ in range(2)]
    (tested,) = run.test(model, loader(name, 5), verbose=False)
    assert logged[0] == logged[1]
    assert logged[0].keys() == {f"val/{term}" for term in TERMS | OWN_TERMS[name]}
    assert tested == {key.replace("val/", "test/"): value for key, value in logged[0].items()}


@every_model
def test_predicts_representations(name, tmp_path):
    model = build(name).eval()
    predicted = torch.cat(trainer(tmp_path).predict(model, loader(name, 5)))
    torch.testing.assert_close(predicted, model.represent(batch(name, 5)[0]))


@every_model
def test_mixed_precision(name, tmp_path):
    model = build(name, **ARGUMENTS[name])
    before = {key: value.clone() for key, value in model.state_dict().items()}
    run = trainer(tmp_path, max_steps=2, precision="bf16-mixed")
    run.fit(model, loader(name, 7), loader(name, 3))
    assert run.global_step == 2
    assert all(value.isfinite() for value in run.callback_metrics.values())
    assert all(value.dtype == torch.float32 and value.isfinite().all() for value in model.state_dict().values())
    assert any(not torch.equal(value, before[key]) for key, value in model.state_dict().items())


# Losses of any batch


@every_model
@pytest.mark.parametrize("n", [1, 2, 3, 7])
def test_batches_of_any_size(name, n):
    model = build(name, **ARGUMENTS[name])
    terms = model.losses(batch(name, n))
    assert terms.keys() == TERMS | OWN_TERMS[name]
    assert all(value.ndim == 0 and value.isfinite() for value in terms.values())
    (terms["loss"] + terms.get("discriminator", 0)).backward()
    frozen = {id(parameter) for parameter in model.parameters() if not parameter.requires_grad}
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters() if id(p) not in frozen)


@every_model
@pytest.mark.parametrize("shape", [SHAPE, (3, 32, 48)])
def test_a_single_code(name, shape):
    model = build(name, latent_dim=1, image_shape=shape)
    x = batch(name, 3, latent_dim=1, shape=shape)
    terms = model.losses(x)
    assert all(value.isfinite() for value in terms.values())
    terms["loss"].backward()
    assert model.encoder.mean.weight.grad.isfinite().all()
    assert model.represent(x[0]).shape == (3, 1)
    assert model.reconstruct(x[0]).shape == (3, *shape)


@every_model
def test_losses_follow_the_seed(name):
    model, x, found = build(name), batch(name, 4), []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        found.append(model.losses(x))
    assert all(torch.equal(found[0][key], found[1][key]) for key in found[0])
    assert not torch.equal(found[0]["loss"], found[2]["loss"])


@every_model
def test_losses_do_not_depend_on_the_order_of_calls(name):
    """No term keeps a state: the loss of a batch is the same after that of another."""
    model = build(name)
    torch.manual_seed(0)
    expected = model.losses(batch(name, 4))["loss"]
    model.losses(batch(name, 3, seed=5))
    torch.manual_seed(0)
    assert torch.equal(model.losses(batch(name, 4))["loss"], expected)


@every_model
def test_elbo_is_minus_reconstruction_and_kl(name):
    terms = build(name, **ARGUMENTS[name]).losses(batch(name, 4))
    torch.testing.assert_close(terms["elbo"], -(terms["reconstruction"] + terms["kl"]))


@every_model
def test_the_data_set_is_remembered(name, tmp_path):
    model = build(name)
    trainer(tmp_path, max_steps=1).fit(model, datamodule=stream(name))
    assert model.trained_on == "bars"
    assert MODELS[name].from_pretrained(model.save_pretrained(tmp_path / "saved")).trained_on == "bars"


# Exact resume


class Bars(GroundTruthDataset):
    """A bright block somewhere on a background of some shade."""

    name = "bars"
    factor_space = FactorSpace(("row", "column", "shade"), (4, 4, 3))
    image_shape = SHAPE

    def observe(self, factors, generator=None):
        row, column, shade = (factors[:, i, None, None] for i in range(3))
        place = torch.arange(32) // 8
        block = (place[:, None] == row) & (place[None, :] == column)
        return torch.where(block, 1.0, shade / 4)[:, None]


def stream(name, **options):
    options = {"batch_size": 3, "num_val_batches": 1} | options
    if name in LABELLED:
        return LabelledDataModule(Bars(), num_labels=12, **options)
    if name in PAIRED:
        return PairDataModule(Bars(), k=1, group_label=name in ("GVAE", "MLVAE"), **options)
    return FactorDataModule(Bars(), **options)


def fit(name, tmp_path, steps, ckpt_path=None, seed=0):
    pl.seed_everything(seed, verbose=False)
    model = MODELS[name](**{"image_shape": SHAPE, "latent_dim": LATENT, **ARGUMENTS[name]})
    run = trainer(tmp_path, max_steps=steps, max_epochs=-1, val_check_interval=3, check_val_every_n_epoch=None)
    run.fit(model, datamodule=stream(name), ckpt_path=ckpt_path, weights_only=True)
    return run, model


def flat(state):
    """The entries of nested dictionaries and lists, by their path."""
    if not isinstance(state, dict | list | tuple):
        return {(): state}
    pairs = state.items() if isinstance(state, dict) else enumerate(state)
    return {(key, *path): leaf for key, value in pairs for path, leaf in flat(value).items()}


def same(a, b):
    a, b = flat(a), flat(b)
    equal = (torch.equal(a[k], b[k]) if isinstance(a[k], torch.Tensor) else a[k] == b[k] for k in a.keys() & b.keys())
    return a.keys() == b.keys() and all(equal)


@every_model
def test_resume_is_exact(name, tmp_path):
    whole, expected = fit(name, tmp_path, steps=4)
    half, halfway = fit(name, tmp_path, steps=2)
    half.save_checkpoint(tmp_path / "half.ckpt", weights_only=False)
    assert half.global_step == 2
    assert not same(halfway.state_dict(), expected.state_dict())
    # The seed of the resumed process must not matter: that of the run is in the checkpoint.
    resumed, model = fit(name, tmp_path, steps=4, ckpt_path=tmp_path / "half.ckpt", seed=99)
    assert whole.global_step == resumed.global_step == 4
    assert same(model.state_dict(), expected.state_dict())
    assert len(whole.optimizers) == len(resumed.optimizers) == 1
    assert len(whole.optimizers[0].param_groups) == (2 if name in TWO_NETWORKS else 1)
    for one, other in zip(whole.optimizers, resumed.optimizers, strict=True):
        assert len(one.state_dict()["state"]) > 0
        assert {int(state["step"]) for state in one.state.values()} == {4}
        assert same(one.state_dict(), other.state_dict())
        assert not same(one.state_dict(), half.optimizers[whole.optimizers.index(one)].state_dict())
    if name == "AnnealedVAE":
        assert model.capacity.item() == pytest.approx(7.5 * 3 / 5)
