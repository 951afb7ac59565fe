"""evaluate: draws, represents and scores, reproducibly and without side effects."""

import random
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from unknot.datamodules import FactorDataModule, FactorSpace, GroundTruthDataset, ImageDataModule, SetBatch
from unknot.lightning import pl
from unknot.metrics import METRICS, MIG, Scores, computations, default_scores, register, set_scores
from unknot.metrics import evaluate as evaluate_all
from unknot.metrics.functional import dci, downstream_accuracy, mig
from unknot.zoo import AdaGVAE, BetaVAE, SlotSetPredictor

evaluate = partial(evaluate_all, metrics="mig")  # all of them take a while


class Levels(GroundTruthDataset):
    """Each factor is the grey level of one pixel, under a little noise."""

    name = "levels"
    factor_space = FactorSpace(names=("left", "right", "none"), sizes=(4, 6, 1))
    image_shape = (1, 1, 3)

    def observe(self, factors, generator=None):
        clean = factors.float() / torch.tensor(self.factor_space.sizes)
        return (clean + 0.1 * torch.rand(clean.shape, generator=generator))[:, None, None, :]


class Model(nn.Module):
    """Mixes the pixels; in training mode it would add noise."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 4)
        self.noise = nn.Dropout(0.5)
        with torch.no_grad():
            self.linear.weight.copy_(torch.tensor([[1.0, 0, 0], [0, 1, 0], [0.5, 0.5, 0], [0, 0, 1]]))

    def represent(self, images):
        return self.noise(self.linear(images.flatten(1)))


@pytest.fixture
def probe():
    """Register a metric for one test; its list receives the draws it is given."""
    seen = []

    @register("probe")
    def _probe(draws):
        seen.append(draws)
        torch.rand(3, generator=draws.generator("probe"))
        return {"probe": float(draws.test[0].sum() + draws.train[0].sum())}

    yield seen
    del METRICS["probe"]


def flat(images):
    return images.flatten(1)


def test_is_the_metric_of_i_i_d_draws(probe):
    scores = evaluate(flat, Levels(), metrics=["mig", "probe"], num_train=600, num_test=70)
    (codes, factors), (test_codes, test_factors) = probe[0].train, probe[0].test
    assert scores["mig"] == mig(codes, factors)
    assert codes.shape == factors.shape == (600, 3)
    assert test_codes.shape == test_factors.shape == (70, 3)
    assert not (factors[:70] == test_factors).all()
    assert factors.max(axis=0).tolist() == [3, 5, 0]


def test_codes_belong_to_their_factors():
    assert evaluate(flat, Levels(), num_train=2000)["mig"] > 0.95
    assert evaluate(lambda images: flat(images)[torch.randperm(len(images))], Levels(), num_train=2000)["mig"] < 0.05


def test_a_model_and_its_function_score_the_same():
    model = Model().eval()
    expected = evaluate(model, Levels(), num_train=500)
    assert evaluate(model.represent, Levels(), num_train=500) == expected
    assert evaluate(lambda images: model.represent(images).numpy(), Levels(), num_train=500) == expected
    assert expected["mig"] > 0


def test_a_module_without_represent_is_called():
    assert evaluate(nn.Flatten(), Levels(), num_train=500) == evaluate(flat, Levels(), num_train=500)


def test_the_seed_decides():
    first, again, other = (evaluate(Model(), Levels(), num_train=300, seed=seed)["mig"] for seed in (5, 5, 6))
    assert first == again
    assert first != other


def test_the_global_generators_are_neither_used_nor_moved():
    def states():
        return torch.get_rng_state().tolist(), np.random.get_state()[1].tolist(), random.getstate()  # noqa: NPY002

    scores = []
    for seed in (1, 2):
        pl.seed_everything(seed, verbose=False)
        before = states()
        scores.append(evaluate(flat, Levels(), metrics=["mig", "dci", "sap", "irs", "beta_vae"], num_train=100))
        assert states() == before
    assert scores[0] == scores[1]


def test_scores_do_not_depend_on_their_company(probe):
    alone = evaluate(flat, Levels(), metrics="mig", num_train=300) | evaluate(
        flat, Levels(), metrics="probe", num_train=300
    )
    assert alone.keys() == {"mig", "probe"}
    assert evaluate(flat, Levels(), metrics=["mig", "probe"], num_train=300) == alone
    assert evaluate(flat, Levels(), metrics=["probe", "mig"], num_train=300) == alone


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(computations, "INTERVENTIONS", 1)


def test_metrics_by_name(probe, quick):
    every = evaluate_all(flat, Levels(), "all", num_train=30, num_test=10)
    # two need models that offer them, and two take too long to come unasked
    assert {*METRICS} - every.keys() == {"elbo", "weak_reconstruction", "reasoning", "dci_es"}
    for name in every:
        assert any(name == metric or name.startswith((f"{metric}_", f"{metric}/")) for metric in METRICS), name
    some = ["probe", "total_correlation", "unfairness", "factor_vae"]
    assert evaluate(flat, Levels(), metrics=some, num_train=30, num_test=10).items() <= every.items()
    assert evaluate(flat, Levels(), metrics="mig", num_train=50).keys() == {"mig"}
    assert evaluate(flat, Levels(), metrics=("mig",), num_train=50).keys() == {"mig"}
    assert evaluate(flat, Levels(), metrics=(name for name in ["probe"]), num_train=50).keys() == {"probe"}


def test_what_a_model_lacks_is_said():
    with pytest.raises(ValueError, match="'elbo' requires a model with 'elbo' in its `capabilities`"):
        evaluate(flat, Levels(), metrics=["elbo"])
    scores = evaluate(flat, Levels(), metrics=["elbo", "mig"], num_train=50)
    assert scores.keys() == {"mig"}
    assert "requires a model with 'elbo'" in scores.reasons["elbo"]
    with pytest.raises(KeyError, match="was not computed: 'elbo' requires a model"):
        scores["elbo"]
    assert "ELBO  not computed: 'elbo' requires" in str(scores)


def test_a_score_that_fails_does_not_hide_the_others(probe):
    METRICS["probe"] = METRICS["probe"]._replace(function=lambda draws: 1 / (1 - draws.seed))
    scores = evaluate(flat, Levels(), metrics=["probe", "mig"], num_train=50, repeats=2)
    assert (scores.keys(), scores.reasons) == ({"mig"}, {"probe": "ZeroDivisionError: division by zero"})
    assert Scores.from_json(scores.to_json()).reasons == scores.reasons
    with pytest.raises(ZeroDivisionError):
        evaluate(flat, Levels(), metrics="probe", num_train=50, seed=1)


def test_the_default_is_a_readable_handful_of_registered_scores():
    scores = evaluate_all(flat, Levels(), num_train=60, num_test=30)
    assert {name for name in scores if name in METRICS} == {*default_scores(flat)}
    assert not scores.reasons


def test_more_than_one_reason():
    with pytest.raises(ValueError, match="'weak_reconstruction' requires a model with 'pairs'"):
        evaluate(BetaVAE(image_shape=(1, 32, 32)), Stripes(), metrics="weak_reconstruction")


def test_set_predictors_are_told_where_to_go():
    with pytest.raises(ValueError, match=r"gives sets, not codes .* `unknot slots`"):
        evaluate(SlotSetPredictor(image_shape=(3, 32, 32)), Levels(), metrics="all")


def test_models_of_codes_are_told_where_to_go():
    scenes = SetBatch(torch.rand(2, 1, 16, 16), torch.zeros(2, 3, 19), None)
    with pytest.raises(ValueError, match=r"This AdaGVAE has no sets to score; .* `evaluate`"):
        set_scores(AdaGVAE(image_shape=(1, 16, 16)), scenes)


def test_repeats_give_mean_and_deviation():
    alone = [evaluate(flat, Levels(), num_train=100, seed=seed)["mig"] for seed in (7, 8, 9)]
    summary = evaluate(flat, Levels(), num_train=100, seed=7, repeats=3)
    assert summary == {"mig": pytest.approx(np.mean(alone))}
    assert summary.std == {"mig": pytest.approx(np.std(alone, ddof=1))}
    assert summary.protocol.items() >= {"seed": 7, "repeats": 3, "num_train": 100, "dataset": "levels"}.items()
    assert evaluate(flat, Levels(), num_train=100, seed=7, repeats=1) == {"mig": alone[0]}
    with pytest.raises(ValueError, match="repeats must be a whole number of at least 1, got 0"):
        evaluate(flat, Levels(), repeats=0)


def test_an_infinite_score_has_no_deviation(probe):
    METRICS["probe"] = METRICS["probe"]._replace(function=lambda draws: {"probe": np.inf if draws.seed else 1.0})
    summary = evaluate(flat, Levels(), metrics=["mig", "probe"], num_train=50, repeats=2)
    assert summary["probe"] == np.inf
    assert summary.std.keys() == {"mig"}


@pytest.mark.parametrize(
    "value", [2, np.float32(2), np.array(2.0), torch.tensor(2)], ids=lambda value: type(value).__name__
)
def test_a_score_may_be_a_number_alone(probe, value):
    METRICS["probe"] = METRICS["probe"]._replace(function=lambda draws: value)
    scores = evaluate(flat, Levels(), metrics="probe", num_train=50)
    assert scores == {"probe": 2.0}
    assert type(scores["probe"]) is float


@pytest.mark.parametrize("value", [None, "2", {"other": 1.0}, {"probe": [1.0]}, np.zeros(3)], ids=repr)
def test_a_score_that_gives_no_number_is_told_what_to_give(probe, value):
    METRICS["probe"] = METRICS["probe"]._replace(function=lambda draws: value)
    with pytest.raises(ValueError, match="The score 'probe' must give a number, or a dictionary"):
        evaluate(flat, Levels(), metrics="probe", num_train=50)


def test_pictures_of_the_matrices(tmp_path):
    scores = evaluate(flat, Levels(), num_train=40, num_test=20, pictures=tmp_path / "new")
    assert scores == evaluate(flat, Levels(), num_train=40, num_test=20)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["factor_code.png"]


class Sharp(Levels):
    """Without the noise an image is a function of its factors."""

    stochastic = False

    def observe(self, factors, generator=None):
        return (factors.float() / torch.tensor(self.factor_space.sizes))[:, None, None, :]


def test_remembered_codes_are_the_codes():
    class Forgotten(Sharp):
        stochastic = True

    names, images = ["mig", "factor_vae", "beta_vae"], []

    def count(batch):
        images.append(len(batch))
        return flat(batch)

    remembered = evaluate(count, Sharp(), metrics=names, num_train=50, num_test=20)
    assert max(images) == 64
    assert sum(images) <= 2 * 64  # of 24 grid points
    assert remembered == evaluate(flat, Forgotten(), metrics=names, num_train=50, num_test=20)


def test_dci_and_downstream_accuracy_share_their_trees(probe):
    named = evaluate(flat, Levels(), metrics=["probe", "dci", "downstream_gbt"], num_train=110, num_test=30)
    expected = dci(*probe[0].train, *probe[0].test)
    assert named["dci"] == expected["disentanglement"]
    for name in ("completeness", "informativeness_train", "informativeness_test"):
        assert named[f"dci_{name}"] == expected[name]
    test = probe[0].iid(110, "downstream")
    for size in (10, 100, 110):
        train = [rows[:size] for rows in probe[0].train]
        accuracy = downstream_accuracy(*train, *test, per_factor=True)
        assert named[f"downstream_gbt_{size}"] == pytest.approx(accuracy.mean())
        assert named[f"downstream_gbt_{size}/right"] == pytest.approx(accuracy[1])
    assert named["downstream_gbt"] == named["downstream_gbt_110"]
    assert "downstream_gbt_1000" not in named
    assert "downstream_gbt_efficiency" not in named


def test_statistical_efficiency_is_100_against_10_000_samples():
    class Coin(GroundTruthDataset):
        name = "coin"
        factor_space = FactorSpace(names=("side",), sizes=(2,))
        image_shape = (1, 1, 1)

        def observe(self, factors, generator=None):
            return (factors + 0.8 * torch.randn(factors.shape, generator=generator)).float()[:, None, None, :]

    scores = evaluate(flat, Coin(), metrics="downstream_lr", num_train=10_000, num_test=1)
    assert {f"downstream_lr_{size}" for size in (10, 100, 1000, 10_000)} < scores.keys()
    assert scores["downstream_lr"] == scores["downstream_lr_10000"] == scores["downstream_lr_10000/side"]
    assert scores["downstream_lr_efficiency"] == scores["downstream_lr_100"] / scores["downstream_lr_10000"]
    assert 0.8 < scores["downstream_lr_efficiency"] < 1.05


def test_codes_of_a_plain_autoencoder_are_not_sampled():
    class AutoEncoder(Model):
        def encode(self, images):
            return self.represent(images)

    names = evaluate(AutoEncoder(), Levels(), metrics="total_correlation", num_train=50).keys()
    assert "total_correlation" in names
    assert "total_correlation_sampled" not in names


class Stripes(GroundTruthDataset):
    """Images large enough for the networks of the zoo."""

    name = "stripes"
    stochastic = False
    factor_space = FactorSpace(names=("row", "column"), sizes=(4, 4))
    image_shape = (1, 32, 32)

    def observe(self, factors, generator=None):
        grid = torch.arange(32) // 8
        rows, columns = ((grid == factors[:, k, None]).float() for k in (0, 1))
        return torch.maximum(rows[:, None, :, None], columns[:, None, None, :]).expand(-1, 1, 32, 32).contiguous()


def test_terms_of_the_objective():
    torch.manual_seed(0)
    model = BetaVAE(image_shape=(1, 32, 32), latent_dim=3).train()
    torch.manual_seed(1)
    scores = evaluate(model, Stripes(), metrics=["elbo", "total_correlation"], num_train=80, num_test=80)
    state = torch.get_rng_state()
    torch.manual_seed(1)
    assert torch.equal(torch.get_rng_state(), state)  # the noise of the codes came from elsewhere
    assert scores == evaluate(model, Stripes(), metrics=["elbo", "total_correlation"], num_train=80, num_test=80)
    assert model.training
    assert scores["elbo"] == pytest.approx(-scores["elbo_reconstruction"] - scores["elbo_kl"], rel=1e-5)
    every = Stripes().observe(Stripes.factor_space.factors(torch.arange(16)))
    with torch.no_grad():
        posterior = model.eval().encode(every)
    assert scores["elbo_kl"] == pytest.approx(float(posterior.kl().sum(1).mean()), rel=0.2)
    assert scores["elbo_reconstruction"] == pytest.approx(32 * 32 * np.log(2), rel=0.1)  # nothing learnt yet
    # an untrained posterior is nearly the prior: samples are independent, means need not be
    assert scores["total_correlation_sampled"] < 0.2


def test_weak_reconstruction_of_a_loaded_model(tmp_path):
    torch.manual_seed(0)
    AdaGVAE(image_shape=(1, 32, 32), latent_dim=3).save_pretrained(tmp_path / "model")
    model = AdaGVAE.from_pretrained(tmp_path / "model")
    state = torch.get_rng_state()
    scores = evaluate(model, Stripes(), metrics="weak_reconstruction", num_test=128)
    assert torch.equal(torch.get_rng_state(), state)
    assert scores == evaluate(model, Stripes(), metrics="weak_reconstruction", num_test=128)
    assert scores["weak_reconstruction"] == pytest.approx(2 * 32 * 32 * np.log(2), rel=0.1)  # nothing learnt yet


# One's own images


def own_images(n=60, **options):
    """Images of one bright pixel each; its place is the label, and no two images are the same."""
    places = torch.arange(n) % 4
    images = (
        torch.nn.functional.one_hot(places, 4).float().view(n, 1, 2, 2) / 2 + torch.arange(n).view(n, 1, 1, 1) / 500
    )
    return images, ImageDataModule(images, labels=torch.stack([places, torch.arange(n) % 3], dim=1), **options)


def test_own_images_are_fitted_on_some_and_tested_on_others(probe):
    images, data = own_images(val_fraction=0.25)
    scores = evaluate(flat, data, metrics=["mig", "dci", "sap", "probe"])
    (train, _), (test, _) = probe[0].train, probe[0].test
    assert (len(train), len(test)) == (45, 15)
    assert sorted(map(tuple, np.vstack([train, test]))) == sorted(map(tuple, images.flatten(1).double().numpy()))
    held_out = images[data.indices("val")].flatten(1).double().numpy()
    assert sorted(map(tuple, test)) == sorted(map(tuple, held_out))
    assert scores.protocol.items() >= {"dataset": "own images", "num_train": 45, "num_test": 15}.items()
    assert scores["dci_informativeness_test"] > 0.5


def test_labelled_images_alone_are_parted(probe):
    images, data = own_images()
    evaluate(flat, data.ground_truth(), metrics="probe", num_train=1000, num_test=500)
    (train, _), (test, _) = probe[0].train, probe[0].test
    assert (len(train), len(test)) == (40, 20)
    assert len({*map(tuple, np.vstack([train, test]))}) == len(images)


def test_all_scores_of_own_images_leave_interventions_out():
    _, data = own_images()
    names = evaluate(flat, data, metrics="all").keys()
    assert {"mig", "dci", "downstream_gbt", "total_correlation"} < names
    assert not {"beta_vae", "factor_vae", "unfairness", "covariate_shift"} & names


def test_data_sets_by_name_and_by_data_module():
    with pytest.raises(ValueError, match=r"Unknown data set 'dsprits'.*dsprites"):
        evaluate(flat, "dsprits")
    for wrong in (None, 3, Levels, [1]):
        with pytest.raises(ValueError, match="evaluate needs a data set with known factors"):
            evaluate(flat, wrong)
    assert evaluate(flat, FactorDataModule(Levels()), num_train=50) == evaluate(flat, Levels(), num_train=50)


@pytest.mark.parametrize("training", [True, False])
def test_runs_in_evaluation_mode_and_restores_every_mode(training):
    model = Model().train(training)
    model.linear.train(not training)  # as a frozen part would be
    seen = []
    model.linear.register_forward_hook(lambda module, *_: seen.append((model.training, module.training)))
    evaluate(model, Levels(), num_train=50)
    assert set(seen) == {(False, False)}
    assert (model.training, model.noise.training, model.linear.training) == (training, training, not training)


def test_modes_are_restored_after_a_failure():
    class Wide(Levels):
        def observe(self, factors, generator=None):
            return torch.rand(len(factors), 1, 1, 9, generator=generator)

    model = Model()
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        evaluate(model, Wide(), num_train=8)
    assert model.training


@pytest.mark.parametrize("wrap", [lambda model: model, lambda model: model.represent])
def test_no_gradient_is_recorded(wrap):
    model, recorded = Model(), []
    model.linear.register_forward_hook(lambda _module, _inputs, output: recorded.append(output.requires_grad))
    evaluate(wrap(model), Levels(), num_train=50)
    assert recorded
    assert not any(recorded)
    assert model.linear.weight.grad is None
    assert model.linear.weight.requires_grad


def test_images_come_in_batches():
    sizes = []
    evaluate(lambda images: sizes.append(len(images)) or flat(images), Levels(), metrics="mig", num_train=600)
    assert sum(sizes) == 600
    assert max(sizes) <= 64


def test_unknown_metrics_are_told_the_known():
    with pytest.raises(ValueError, match=r"Unknown metrics \['mgi'\]. Did you mean 'mig'\?.*'default'"):
        evaluate(flat, Levels(), metrics=["mig", "mgi"])


@pytest.mark.parametrize("sizes", [{"num_train": 0}, {"num_test": 0}, {"num_train": -1}])
def test_empty_draws_are_refused(sizes):
    with pytest.raises(ValueError, match=r"num_t.* must be a whole number of at least 1"):
        evaluate(flat, Levels(), **sizes)


@pytest.mark.parametrize("wrong", [object(), None, Model, 3, "model"])
def test_what_cannot_represent_is_refused(wrong):
    with pytest.raises(ValueError, match="evaluate needs a model with a `represent` method, or a function"):
        evaluate(wrong, Levels())


@pytest.mark.parametrize(
    ("represent", "message"),
    [
        (lambda images: flat(images) * torch.nan, "codes must be finite: 50 of 50 rows"),
        (lambda images: images, r"codes must have shape \[N, D\]"),
        (lambda images: flat(images)[:7], r"got codes of shape \[7, 3\] for 50 images"),
        (lambda images: (flat(images), flat(images)), "must be one tensor .* got tuple"),
    ],
)
def test_unusable_codes_are_explained(represent, message):
    with pytest.raises(ValueError, match=message):
        evaluate(represent, Levels(), num_train=50)


def test_a_data_set_that_observes_no_tensors_is_refused_by_the_model():
    class Arrays(Stripes):
        def observe(self, factors, generator=None):
            return super().observe(factors, generator).numpy()

    with pytest.raises(ValueError, match="Images are of type ndarray, expected a tensor"):
        evaluate(BetaVAE(image_shape=(1, 32, 32)), Arrays(), metrics="mig", num_train=50)


def test_the_class_and_evaluate_agree(probe):
    score = evaluate(flat, Levels(), metrics=["mig", "probe"], num_train=500)["mig"]
    metric = MIG()
    metric.update(*(torch.from_numpy(array) for array in probe[0].train))
    assert metric.compute() == torch.tensor(score)
