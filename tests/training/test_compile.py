"""`torch.compile(model)` trains as the model itself does, and compiles the mathematics as one graph."""

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from unknot.lightning import pl
from unknot.zoo import MODELS, VAE

SHAPE = (1, 32, 32)


def pairs_or_labels(name: str) -> TensorDataset:
    """24 random images, with what the batches of this model's family bring along."""
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(24, *SHAPE, generator=generator)
    if name.startswith("S2") or name == "SupervisedVAE":
        return TensorDataset(images, images, torch.rand(24, 3, generator=generator))
    if MODELS[name].batch == "pairs":
        return TensorDataset(images, images.flip(0), torch.randint(3, (24,), generator=generator))
    return TensorDataset(images)


def train(name: str, compiled: bool) -> dict[str, torch.Tensor]:
    pl.seed_everything(0, verbose=False)
    model = MODELS[name](image_shape=SHAPE, latent_dim=4)
    trainer = pl.Trainer(
        **{"max_steps": 4, "accelerator": "cpu", "logger": False, "enable_checkpointing": False},
        **{"enable_progress_bar": False, "enable_model_summary": False},
    )
    # aot_eager captures and differentiates the graph but leaves out code generation, which needs a C++ compiler.
    fitted = torch.compile(model, backend="aot_eager") if compiled else model
    trainer.fit(fitted, DataLoader(pairs_or_labels(name), batch_size=8))
    return model.state_dict()


COMBINED = ("GVAE", "AdaMLVAE", "S2BetaTCVAE", "S2FactorVAE", "S2DIPVAEI")
"""Marked slow: each combines parts that other models compile too."""
NAMES = [
    pytest.param(name, marks=pytest.mark.slow if name in COMBINED else ())
    for name in sorted(name for name, model in MODELS.items() if issubclass(model, VAE))
]


@pytest.mark.parametrize("name", NAMES)
def test_a_compiled_model_trains_to_the_same_weights(name: str) -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    plain, compiled = train(name, compiled=False), train(name, compiled=True)
    # One graph, and a second for any batch number; FactorVAE's step continues after its losses: two of each.
    most = 4 if "Factor" in name else 2
    assert 1 <= torch._dynamo.utils.counters["stats"]["unique_graphs"] <= most
    for key, value in plain.items():
        torch.testing.assert_close(compiled[key], value, atol=1e-5, rtol=1e-4)
