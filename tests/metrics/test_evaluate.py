"""evaluate: draws, represents and scores, reproducibly and without side effects."""

import pytest
import torch
from torch import nn

from unknot.datamodules import FactorSpace, GroundTruthDataset
from unknot.metrics import METRICS, MIG, evaluate, register
from unknot.metrics.functional import mig


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
    scores = evaluate(flat, Levels(), num_train=600, num_test=70)
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


def test_the_global_generator_is_neither_used_nor_moved():
    torch.manual_seed(1)
    first = evaluate(flat, Levels(), num_train=300)
    torch.manual_seed(2)
    state = torch.get_rng_state()
    assert evaluate(flat, Levels(), num_train=300) == first
    assert torch.equal(torch.get_rng_state(), state)


def test_scores_do_not_depend_on_their_company(probe):
    alone = evaluate(flat, Levels(), metrics="mig", num_train=300) | evaluate(
        flat, Levels(), metrics="probe", num_train=300
    )
    assert alone.keys() == {"mig", "probe"}
    assert evaluate(flat, Levels(), metrics=["mig", "probe"], num_train=300) == alone
    assert evaluate(flat, Levels(), metrics=["probe", "mig"], num_train=300) == alone


def test_metrics_by_name(probe):
    every = evaluate(flat, Levels(), num_train=50)
    assert every.keys() == {*METRICS}
    assert evaluate(flat, Levels(), metrics="all", num_train=50) == every
    assert evaluate(flat, Levels(), metrics="mig", num_train=50).keys() == {"mig"}
    assert evaluate(flat, Levels(), metrics=("mig",), num_train=50).keys() == {"mig"}
    assert evaluate(flat, Levels(), metrics=(name for name in ["probe"]), num_train=50).keys() == {"probe"}


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
    model = Model()
    with pytest.raises(RuntimeError):
        evaluate(model, type("Wide", (Levels,), {"observe": lambda *_: torch.rand(8, 1, 1, 9)})(), num_train=8)
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
    assert max(sizes) <= 256


def test_unknown_metrics_are_told_the_known():
    with pytest.raises(ValueError, match=r"Unknown metrics \['mgi'\]; there are \[.*'mig'"):
        evaluate(flat, Levels(), metrics=["mig", "mgi"])


@pytest.mark.parametrize("sizes", [{"num_train": 0}, {"num_test": 0}, {"num_train": -1}])
def test_empty_draws_are_refused(sizes):
    with pytest.raises(ValueError, match="num_train and num_test must be at least 1"):
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
        (lambda images: flat(images)[:7], "as many rows, got 7 and 50"),
    ],
)
def test_unusable_codes_are_explained(represent, message):
    with pytest.raises(ValueError, match=message):
        evaluate(represent, Levels(), num_train=50)


def test_the_class_and_evaluate_agree(probe):
    score = evaluate(flat, Levels(), num_train=500)["mig"]
    metric = MIG()
    metric.update(*(torch.from_numpy(array) for array in probe[0].train))
    assert metric.compute() == torch.tensor(score)
