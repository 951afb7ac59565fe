"""The encoder and decoder of the studies: sizes, shapes and initialisation."""

import math

import pytest
import torch
from torch import nn

from unknot.zoo.networks import ConvDecoder, ConvEncoder, GaussianEncoder, check_image_shape
from unknot.zoo.transposed_conv import Transposed


def encoder(shape, latent_dim):
    return GaussianEncoder(ConvEncoder(shape), shape, latent_dim)


def count(network):
    return sum(parameter.numel() for parameter in network.parameters())


@pytest.mark.parametrize(("channels", "encoding", "decoding"), [(1, 309_204, 381_313), (3, 310_228, 382_339)])
def test_parameter_counts_of_the_reference(channels, encoding, decoding):
    assert count(encoder((channels, 64, 64), 10)) == encoding
    assert count(ConvDecoder(10, (channels, 64, 64))) == decoding


def test_kernels_and_strides_of_the_reference():
    convolutions = [layer for layer in ConvEncoder((1, 64, 64)).modules() if isinstance(layer, nn.Conv2d)]
    assert [layer.kernel_size for layer in convolutions] == [(4, 4), (4, 4), (2, 2), (2, 2)]
    assert [layer.out_channels for layer in convolutions] == [32, 32, 64, 64]
    transposed = [layer for layer in ConvDecoder(10, (1, 64, 64)) if isinstance(layer, nn.ConvTranspose2d)]
    assert [layer.kernel_size for layer in transposed] == [(4, 4)] * 4
    assert [layer.out_channels for layer in transposed] == [64, 32, 32, 1]


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("side", [(28, 28), (16, 33), (32, 32), (64, 64), (128, 128), (32, 96), (80, 48)])
def test_shapes(channels, side):
    shape, latent_dim = (channels, *side), 7
    mean, logvar = encoder(shape, latent_dim)(torch.rand(2, *shape))
    assert mean.shape == logvar.shape == (2, latent_dim)
    assert ConvDecoder(latent_dim, shape)(mean).shape == (2, *shape)


def test_heads_differ_and_images_matter():
    mean, logvar = encoder((1, 32, 32), 4)(torch.rand(3, 1, 32, 32))
    assert not torch.allclose(mean, logvar)
    assert mean.std(0).min() > 0


@pytest.mark.parametrize("build", [lambda: encoder((3, 64, 64), 10), lambda: ConvDecoder(10, (3, 64, 64))])
def test_glorot_uniform_weights_and_zero_biases(build):
    torch.manual_seed(0)
    network = build()
    layers = [layer for layer in network.modules() if isinstance(layer, nn.Linear | nn.Conv2d | nn.ConvTranspose2d)]
    assert len(layers) in (6, 7)
    for layer in layers:
        assert (layer.bias == 0).all()
        area = math.prod(layer.weight.shape[2:])
        bound = math.sqrt(6 / (area * (layer.weight.shape[0] + layer.weight.shape[1])))
        assert 0.95 * bound < layer.weight.abs().max() <= bound
        assert layer.weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.1)


@pytest.mark.parametrize(
    "shape",
    [
        (1, 15, 15),
        (1, 64, 8),
        (1, 0, 64),
        (64, 64),
        (1, 64, 64, 1),
        (0, 64, 64),
        (-1, 64, 64),
        (64, 64, 1),
        (1, 64.0, 64.0),
        ("1", "64", "64"),
        "abc",
        64,
        None,
        (),
    ],
)
@pytest.mark.parametrize("build", [check_image_shape, ConvEncoder, lambda shape: ConvDecoder(2, shape)])
def test_shapes_that_four_halvings_cannot_serve(shape, build):
    with pytest.raises(ValueError, match=r"\(channels, height, width\) with sides from 16 up") as error:
        build(shape)
    assert repr(shape) in str(error.value)
    assert "\n" not in str(error.value)


def test_lists_become_tuples():
    assert check_image_shape([3, 32, 48]) == (3, 32, 48)


@pytest.mark.parametrize("channels", [1, 3, 5])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize(
    "shape",
    [{"kernel_size": 4, "stride": 2, "padding": 1}, {"kernel_size": 5, "stride": 2, "padding": 2, "output_padding": 1}],
)
def test_the_quick_way_is_a_transposed_convolution(channels, layout, shape):
    torch.manual_seed(0)
    layer = Transposed(6, channels, **shape).double().to(memory_format=layout)
    maps = torch.randn(2, 6, 5, 3, dtype=torch.float64).to(memory_format=layout).requires_grad_()
    moves = {name: value for name, value in shape.items() if name != "kernel_size"}
    plain = torch.nn.functional.conv_transpose2d(maps, layer.weight, layer.bias, **moves)
    torch.testing.assert_close(layer(maps), plain)
    wanted = torch.randn_like(plain)
    inputs = [maps, layer.weight, layer.bias]
    ours, theirs = (torch.autograd.grad((output * wanted).sum(), inputs) for output in (layer(maps), plain))
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(layer.eval()(maps), plain, rtol=0, atol=0)


def test_the_quick_way_can_be_differentiated_twice():
    layer = Transposed(2, 1, kernel_size=4, stride=2, padding=1).double()
    maps = torch.randn(1, 2, 2, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(layer, maps)
    assert torch.autograd.gradgradcheck(layer, maps)
