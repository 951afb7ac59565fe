"""A number among the arguments may be NumPy's; anything else is refused in words before any work starts."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from unknot import datamodules as data
from unknot import metrics, zoo
from unknot.zoo.pictures import Pictures

IMAGES = torch.rand(20, 1, 16, 16)


def _vae(model: type[zoo.VAE], **arguments: Any) -> zoo.VAE:
    return model(image_shape=(1, 16, 16), **arguments)


def _slots(model: type[zoo.SetPredictor], **arguments: Any) -> zoo.SetPredictor:
    return model(image_shape=(3, 16, 16), **arguments)


def _mean(images: torch.Tensor) -> torch.Tensor:
    return images.mean((2, 3))


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda x: _vae(zoo.FactorVAE, discriminator_lr=x), "discriminator_lr"),
        (lambda x: _vae(zoo.AnnealedVAE, iteration_threshold=x), "iteration_threshold"),
        (lambda x: _vae(zoo.DIPVAEI, lambda_od=x), "lambda_od"),
        (lambda x: _slots(zoo.SlotSetPredictor, coordinate_scale=x), "coordinate_scale"),
        (lambda x: _slots(zoo.DSPNSetPredictor, inner_lr=x), "inner_lr"),
        (lambda x: zoo.WReN("codes", dropout=x), "dropout"),
        (lambda x: zoo.WReN("codes", code_dim=x), "code_dim"),
        (lambda x: zoo.Anneal("beta", 0.0, 1.0, steps=x), "steps"),
        (lambda x: zoo.WarmupCosine(torch.optim.SGD([torch.zeros(1)], lr=0.1), x, 5), "warmup_steps"),
        (lambda x: Pictures(every_n_steps=x), "every_n_steps"),
        (lambda x: data.ImageDataModule(IMAGES, val_fraction=x), "val_fraction"),
        (lambda x: data.ImageDataModule(IMAGES, num_bins=x), "num_bins"),
        (lambda x: data.FramePairDataModule(IMAGES, val_fraction=x), "val_fraction"),
        (lambda x: data.LabelledDataModule(data.DSprites(), train_fraction=x), "train_fraction"),
        (lambda x: data.Noisy(x), "noise"),
        (lambda x: data.FactorDataModule(data.DSprites(), seed=x), "seed"),
        (lambda x: metrics.evaluate(_mean, "dsprites", ["mig"], num_train=x), "num_train"),
        (lambda x: metrics.evaluate(_mean, "dsprites", ["mig"], repeats=x), "repeats"),
        (lambda x: metrics.evaluate(_mean, "dsprites", ["mig"], seed=x), "seed"),
        (lambda x: metrics.ScoreCallback(data.DSprites(), every_n_steps=x), "every_n_steps"),
        (lambda x: metrics.DCI(test_fraction=x), "test_fraction"),
        (lambda x: metrics.functional.mig(np.eye(3), np.eye(3, dtype=int), bins=x), "bins"),
        (lambda x: metrics.functional.irs(np.eye(3), np.eye(3, dtype=int), quantile=x), "quantile"),
    ],
)
def test_text_is_no_number(make: Callable[[Any], Any], name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must .*'0.5'"):
        make("0.5")


@pytest.mark.parametrize(
    "make",
    [
        lambda n: zoo.BetaVAE(image_shape=(np.int64(1), 8 * n, 8 * n), latent_dim=n),
        lambda n: _vae(zoo.BetaTCVAE, dataset_size=n),
        lambda n: _vae(zoo.BetaVAE, encoder={"name": "MLPEncoder", "hidden": [n, n]}),
        lambda n: _vae(zoo.BetaVAE, encoder={"name": "ResidualEncoder", "width": n, "blocks": n}),
        lambda n: _vae(zoo.BetaVAE, likelihood={"name": "gaussian", "variance": np.float32(0.5)}),
        lambda n: _slots(zoo.SlotSetPredictor, num_slots=n, strides=(n, n), warmup_steps=n, decay_steps=n),
        lambda n: zoo.Anneal("beta", np.float32(0), np.float32(1), steps=n),
        lambda n: data.LabelledDataModule(data.DSprites(), num_labels=n, label_seed=n),
        lambda n: metrics.evaluate(_mean, "dsprites", ["mig"], num_train=5 * n, num_test=n, seed=n, repeats=n),
    ],
)
def test_numbers_of_numpy_are_numbers(make: Callable[[Any], Any]) -> None:
    make(np.int64(2))


def test_a_seed_of_numpy_is_that_seed() -> None:
    batches = [
        next(iter(data.FactorDataModule(data.DSprites(), batch_size=4, seed=seed).train_dataloader()))
        for seed in (7, np.int64(7), np.uint8(7))
    ]
    assert torch.equal(batches[0], batches[1])
    assert torch.equal(batches[0], batches[2])


def test_a_class_shows_no_panels() -> None:
    with pytest.raises(ValueError, match=r"dataset must be a ground-truth data set such as DSprites\(\), got <class"):
        data.MatrixDataModule(data.DSprites)  # type: ignore[arg-type]


def test_a_relation_network_says_what_batches_it_needs() -> None:
    with pytest.raises(ValueError, match=r"needs batches \(context, answers, position\): use MatrixDataModule"):
        zoo.WReN("codes").losses(torch.zeros(2, 8, 10))
