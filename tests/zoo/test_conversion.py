"""Models of disent and pythae in the zoo: equal outputs and losses on the libraries' own models, and bad files."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from unknot.cli import main
from unknot.hub import load
from unknot.zoo.conversion import DisentConvEncoder, convert


def close(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    assert ours.shape == theirs.shape
    difference = float((ours - theirs).abs().max())
    assert difference < 1e-5 * max(1.0, float(theirs.abs().max()))
    return difference


@pytest.mark.parametrize(("kind", "shape"), [("conv", (3, 64, 64)), ("fc", (1, 64, 64))])
def test_autoencoders_of_disent(tmp_path: Path, kind: str, shape: tuple[int, int, int]) -> None:
    ae = pytest.importorskip("disent.model.ae")
    from disent.model import AutoEncoder

    encoder, decoder = {"conv": (ae.EncoderConv64, ae.DecoderConv64), "fc": (ae.EncoderFC, ae.DecoderFC)}[kind]
    theirs = AutoEncoder(encoder(shape, 5, z_multiplier=2), decoder(shape, 5)).eval()
    weights = {f"_model.{name}": value for name, value in theirs.state_dict().items()}
    torch.save({"state_dict": weights}, tmp_path / "x.ckpt")
    ours: Any = convert("disent", tmp_path / "x.ckpt", beta=2.0)
    assert ours.beta == 2.0
    images, codes = torch.rand(4, *shape), torch.randn(4, 5)
    mean, logvar = theirs.encode(images, chunk=True)
    found = ours.encode(images)
    outputs = close(found.mean, mean), close(found.logvar, logvar), close(ours.decode(codes), theirs.decode(codes))
    squared = ((theirs.decode(codes) - images) ** 2).sum() / 4
    loss = close(ours.likelihood(images, ours.decoder(codes)), squared)
    print(f"disent {kind}: outputs {max(outputs):.1e}, loss {loss:.1e} of {squared:.0f}")


@pytest.mark.parametrize("loss", ["mse", "bce"])
@pytest.mark.parametrize("kind", ["mlp", "mnist"])
def test_models_of_pythae(tmp_path: Path, kind: str, loss: str) -> None:
    models = pytest.importorskip("pythae.models")
    config = models.BetaVAEConfig(input_dim=(1, 28, 28), latent_dim=6, beta=3.0, reconstruction_loss=loss)
    networks = {}
    if kind == "mnist":
        from pythae.models.nn.benchmarks.mnist import Decoder_Conv_AE_MNIST, Encoder_Conv_VAE_MNIST

        networks = {"encoder": Encoder_Conv_VAE_MNIST(config), "decoder": Decoder_Conv_AE_MNIST(config)}
    theirs = models.BetaVAE(config, **networks)
    images = torch.rand(4, 1, 28, 28)
    theirs({"data": images})  # moves the averages of batch normalisation
    theirs.eval().save(str(tmp_path / "saved"))
    assert main(["convert", "--from", "pythae", str(tmp_path / "saved"), str(tmp_path / "ours")]) == 0
    ours: Any = load(tmp_path / "ours")
    codes = torch.randn(4, 6)
    encoded = theirs.encoder(images)
    outputs = (
        close(ours.encode(images).mean, encoded.embedding),
        close(ours.encode(images).logvar, encoded.log_covariance),
        close(ours.decode(codes), theirs.decoder(codes).reconstruction.reshape(4, 1, 28, 28)),
    )
    torch.manual_seed(0)
    expected = theirs({"data": images}).loss
    torch.manual_seed(0)
    found = ours.losses(images)["loss"]
    print(f"pythae {kind} {loss}: outputs {max(outputs):.1e}, loss {close(found, expected):.1e} of {expected:.0f}")


def test_weights_that_cannot_be_converted_are_refused_in_one_sentence(tmp_path: Path) -> None:
    class Code:
        def __reduce__(self) -> Any:
            return (open, (str(tmp_path / "ran"), "w"))

    torch.save({"state_dict": Code()}, tmp_path / "code.pt")
    torch.save({"a": torch.zeros(2)}, tmp_path / "other.pt")
    torch.save([1, 2], tmp_path / "list.pt")
    (tmp_path / "text.pt").write_text("no weights")
    body = DisentConvEncoder((3, 64, 64))
    weights = {f"_encoder.model.{name}": value for name, value in body.state_dict().items()}
    odd = nn.Sequential(nn.Linear(7, 9), nn.ReLU(), nn.Linear(9, 4))
    weights |= {f"_decoder.model.{name}": value for name, value in odd.state_dict().items()}
    torch.save(weights, tmp_path / "odd.pt")
    (tmp_path / "pythae").mkdir()
    (tmp_path / "pythae" / "model_config.json").write_text(
        json.dumps({"name": "VQVAEConfig", "input_dim": [1, 28, 28], "latent_dim": 4})
    )
    torch.save({"model_state_dict": {}}, tmp_path / "pythae" / "model.pt")
    for library, path, reason in (
        ("disent", "nowhere.pt", "no such file"),
        ("disent", "code.pt", "not a file of tensors alone"),
        ("disent", "other.pt", "no weights called _encoder.model"),
        ("disent", "list.pt", "expected a state dict"),
        ("disent", "text.pt", "not a file of tensors alone"),
        ("disent", "odd.pt", "not those of an architecture that can be converted"),
        ("pythae", "other.pt", "model_config.json: no such file"),
        ("pythae", "pythae", "a VQVAEConfig has no counterpart here"),
        ("pythea", "other.pt", "Did you mean 'pythae'"),
    ):
        with pytest.raises((ValueError, FileNotFoundError), match=reason) as caught:
            convert(library, tmp_path / path)
        assert "\n" not in str(caught.value)
    assert not (tmp_path / "ran").exists()
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "x").write_text("mine")
    assert main(["convert", "--from", "disent", str(tmp_path / "other.pt"), str(tmp_path / "there")]) == 1
