"""Arguments that are handed on from class to class: shown by all, and named by the class that one called."""

import inspect

import pytest
import torch

from unknot.datamodules import ImageDataModule
from unknot.zoo import BetaVAE, S2FactorVAE

IMAGES = torch.rand(4, 1, 16, 16)


def test_a_class_shows_what_it_hands_on():
    assert {"beta", "image_shape", "encoder"} <= set(inspect.signature(BetaVAE).parameters)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: BetaVAE(betta=4.0), "BetaVAE has no argument 'betta'. Did you mean 'beta'?"),
        (lambda: S2FactorVAE(latent_dims=4), "S2FactorVAE has no argument 'latent_dims'. Did you mean 'latent_dim'?"),
        (lambda: ImageDataModule(IMAGES, batchsize=4), "ImageDataModule has no argument 'batchsize'. Did you mean"),
        (lambda: BetaVAE(zzz=4.0), "BetaVAE has no argument 'zzz'. There are beta, decoder, encoder"),
    ],
)
def test_an_argument_that_there_is_not_is_named_with_the_class_that_was_called(make, expected):
    with pytest.raises(TypeError) as error:
        make()
    assert str(error.value).startswith(expected)


class Own(BetaVAE):
    """Class with an argument that its signature does not show."""

    def __init__(self, **options):
        self_named = options.pop("alpha", 0.0)
        super().__init__(**options)
        self.alpha = self_named


def test_classes_of_ones_own_may_take_what_they_like():
    assert Own(alpha=2.0, image_shape=(1, 16, 16)).alpha == 2.0
    with pytest.raises(TypeError, match="alphaa"):
        Own(alphaa=2.0)
