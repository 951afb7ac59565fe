"""QLAE: quantisation and its gradients, the objective, decay, its networks, saving and training."""

import json

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from unknot.lightning import pl
from unknot.metrics.draws import GivenDraws
from unknot.metrics.functional import infomec
from unknot.metrics.registry import METRICS
from unknot.zoo import QLAE, BetaVAE, StyleDecoder, StyleEncoder
from unknot.zoo.quantised import quantise

SHAPE = (1, 32, 32)
NETWORKS = {
    "encoder": {"name": "StyleEncoder", "widths": [4, 4, 8, 8], "depth": 2, "hidden": [16]},
    "decoder": {"name": "StyleDecoder", "widths": [8, 8, 4, 4], "depth": 2, "hidden": [16, 16]},
}


def build(seed=0, **arguments):
    torch.manual_seed(seed)
    return QLAE(**{"image_shape": SHAPE, "latent_dim": 5, **NETWORKS, **arguments})


def images(n=4, seed=0):
    return torch.rand(n, *SHAPE, generator=torch.Generator().manual_seed(seed))


def test_codes_are_the_nearest_of_their_own_values():
    generator = torch.Generator().manual_seed(0)
    continuous, values = torch.randn(7, 3, generator=generator), torch.randn(3, 4, generator=generator)
    found = quantise(continuous, values)
    for n in range(7):
        for d in range(3):
            nearest = min(range(4), key=lambda v: abs(continuous[n, d] - values[d, v]))
            assert found.indices[n, d] == nearest
            assert found.codes[n, d] == values[d, nearest]


def test_the_objective():
    model, x = build(quantisation_weight=0.3, commitment_weight=0.7), images()
    terms, latents = model.losses(x), model.encode(x)
    gap = ((latents.continuous - latents.codes) ** 2).mean()
    torch.testing.assert_close(terms["quantisation"], gap)
    torch.testing.assert_close(terms["commitment"], gap)
    p = model.reconstruct(x).double()
    pixels = -(x * p.log() + (1 - x) * (1 - p).log())
    assert terms["reconstruction"].item() == pytest.approx(pixels.sum((1, 2, 3)).mean().item(), rel=1e-4)
    assert terms["loss"].item() == pytest.approx(pixels.mean().item() + gap.item(), rel=1e-4)
    terms["loss"].backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in model.parameters())
    # Values move by the first of the two terms only, the head by the second and the reconstruction.
    used = torch.zeros_like(model.values).scatter_(1, latents.indices.T, 1.0).bool()
    assert model.values.grad[~used].abs().sum() == 0
    expected = torch.zeros_like(model.values)
    step = 0.3 * 2 * (latents.codes - latents.continuous) / latents.codes.numel()
    expected.scatter_add_(1, latents.indices.T, step.T.detach())
    torch.testing.assert_close(model.values.grad, expected)


def test_the_representation_is_quantised_and_scored_as_such():
    model = build(num_values=3).eval()
    codes = model.represent(images(16))
    assert all(
        set(column.tolist()) <= set(values.tolist()) for column, values in zip(codes.T, model.values, strict=True)
    )
    assert model.traverse(images(2)).shape == (2, 5, 3, *SHAPE)
    strip = model.traverse(images(1))[0, 1]
    start = model.represent(images(1))
    for value, drawn in zip(model.values[1], strip, strict=True):
        codes = start.clone()
        codes[0, 1] = value
        torch.testing.assert_close(drawn, model.decode(codes)[0], rtol=1e-4, atol=1e-5)
    assert model.traverse(images(2), torch.tensor([-1.0, 0.0])).shape == (2, 5, 2, *SHAPE)
    rows = model.represent(images(60)).detach().numpy(), np.random.default_rng(0).integers(0, 3, (60, 2))
    draws = GivenDraws(rows, rows)
    draws.model = model
    assert METRICS["infomec"].of(draws)["infomec"] == infomec(*rows, discrete_codes=True)["infom"]
    with pytest.raises(ValueError, match=r"expected a tensor \[N, 5\]"):
        model.decode(torch.zeros(2, 4))


def test_weights_decay_and_biases_and_values_do_not():
    model = build(weight_decay=0.5, lr=0.1)
    optimizer = model.configure_optimizers()
    assert type(optimizer) is torch.optim.AdamW
    assert type(BetaVAE(image_shape=SHAPE).configure_optimizers()) is torch.optim.Adam
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    for name, parameter in model.named_parameters():
        factor = 1 if name.endswith("bias") or name == "values" else 1 - 0.1 * 0.5
        torch.testing.assert_close(parameter.detach(), factor * before[name])


def test_networks():
    assert StyleEncoder((3, 64, 64))(torch.rand(2, 3, 64, 64)).shape == (2, 256)
    odd = (2, 28, 40)
    assert StyleEncoder(odd, widths=(4, 4, 8, 8))(torch.rand(2, *odd)).shape == (2, 256)
    decoder = StyleDecoder(3, odd, widths=(8, 8, 4, 4))
    assert decoder(torch.rand(2, 3)).shape == (2, *odd)
    assert [layer.kernel_size[0] for layer in decoder.layers] == [3, 3, 4] * 4
    assert [layer.stride[0] for layer in decoder.layers] == [1, 1, 2] * 4
    full = StyleDecoder(12, (3, 64, 64))
    assert [layer.out_channels for layer in full.layers] == [256] * 3 + [128] * 3 + [64] * 3 + [32] * 3
    assert full.start.shape == (1, 256, 4, 4)
    assert torch.equal(full.start, torch.full_like(full.start, 0.1))
    with pytest.raises(ValueError, match="sides from 17 up"):
        StyleEncoder((1, 16, 16))


def test_it_is_saved_loaded_trained_and_drawn(tmp_path):
    arguments = {"latent_dim": 4, "num_values": 7, "lr": 2e-3, "weight_decay": 0.2, "quantisation_weight": 0.3}
    arguments |= {"commitment_weight": 0.4, "likelihood": {"name": "gaussian", "variance": "learned"}}
    model = build(**arguments)
    folder = model.save_pretrained(tmp_path / "saved")
    saved = json.loads((folder / "config.json").read_text())["arguments"]
    assert saved == {**arguments, **NETWORKS, "image_shape": [1, 32, 32]}
    loaded = QLAE.from_pretrained(folder)
    assert torch.equal(loaded.represent(images()), model.eval().represent(images()))
    assert dict(loaded.hparams) == dict(model.hparams)

    model, data = build(lr=5e-3), images(1).round().expand(8, -1, -1, -1)
    before = model.losses(data)["reconstruction"].item()
    run = pl.Trainer(
        **{"max_steps": 20, "max_epochs": -1, "accelerator": "cpu", "logger": False, "enable_checkpointing": False},
        **{"enable_progress_bar": False, "enable_model_summary": False, "gradient_clip_val": 1.0},
        gradient_clip_algorithm="value",
    )
    run.fit(model.train(), DataLoader(TensorDataset(data), batch_size=8))
    assert model.losses(data)["reconstruction"].item() < before - 5
    assert {path.name for path in model.draw(data, tmp_path)} == {"traversals.png", "reconstructions.png"}
