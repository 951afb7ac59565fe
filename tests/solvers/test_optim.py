"""The constrained optimiser: its box, its constraints, and a training in Lightning."""

import copy
import warnings
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from unknot.solvers import stochastic_frank_wolfe
from unknot.solvers.atoms import Birkhoff, Box, Dictionary, KSparse, L1Ball, NuclearBall, Simplex
from unknot.solvers.optim import StochasticFrankWolfe


def test_without_a_rate_it_is_the_method_of_the_thesis() -> None:
    """The same noisy gradients through the optimiser and through the solver give the same iterates."""
    target, start = torch.tensor([2.0, -1.0, 0.5, 0.0], dtype=torch.float64), torch.zeros(4, dtype=torch.float64)
    noise = torch.randn(50, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    draws = iter(noise)
    result = stochastic_frank_wolfe(lambda x, _: x - target + next(draws), L1Ball(1.0), start, max_iterations=40)
    x = nn.Parameter(start.clone())
    optimizer = StochasticFrankWolfe([x], L1Ball(1.0), lr=None)
    for row in noise[:40]:
        x.grad = x.detach() - target + row
        optimizer.step()
    torch.testing.assert_close(x.detach(), result.x)


SETS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "L1": (L1Ball(3.0), (4, 5)),
    "simplex": (Simplex(2.0), (7,)),
    "k-sparse": (KSparse(3, 0.5), (2, 3, 2)),
    "nuclear": (NuclearBall(1.5), (6, 3, 2)),
    "box": (Box(-0.1, 0.1), (3, 4)),
    "permutations": (Birkhoff(4), (4, 4)),
    "dictionary": (Dictionary(torch.eye(6)), (2, 3)),
}


@pytest.mark.parametrize("name", SETS)
def test_every_iterate_is_in_its_set(name: str) -> None:
    atoms, shape = SETS[name]
    torch.manual_seed(0)
    weight = nn.Parameter(torch.randn(shape))
    optimizer = StochasticFrankWolfe([{"params": [weight], "atoms": atoms}], lr=0.3)
    target = torch.randn(shape)

    def inside() -> bool:
        x = weight.detach().double()
        for view in (x, x.reshape(-1), x.reshape(len(x), -1)):
            try:
                return bool(atoms.contains(view, 1e-5))
            except (ValueError, RuntimeError):
                continue
        raise AssertionError

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = (weight - target).square().sum()
        loss.backward()
        return loss

    assert inside()
    first = float(closure().detach())
    for _ in range(60):
        loss = optimizer.step(closure)
        assert inside()
    assert float(loss.detach()) < first


def test_states_are_kept_and_bad_arguments_refused() -> None:
    torch.manual_seed(0)
    layer = nn.Conv2d(1, 2, 3).to(memory_format=torch.channels_last)
    groups = [{"params": [layer.weight], "atoms": L1Ball(1.0)}, {"params": [layer.bias], "lr": 0.01}]
    optimizer = StochasticFrankWolfe(groups, lr=0.1, momentum=0.5)
    images = torch.randn(4, 1, 8, 8)

    def train(layer: Any, optimizer: Any) -> None:
        for _ in range(3):
            optimizer.zero_grad()
            layer(images).square().mean().backward()
            optimizer.step()

    train(layer, optimizer)
    assert "atoms" not in str(optimizer.state_dict())  # checkpoints hold tensors and numbers only
    twin = copy.deepcopy(layer)
    resumed = StochasticFrankWolfe(
        [{"params": [twin.weight], "atoms": L1Ball(1.0)}, {"params": [twin.bias], "lr": 0.01}], lr=0.1, momentum=0.5
    )
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    train(layer, optimizer)
    train(twin, resumed)
    torch.testing.assert_close(twin.state_dict(), layer.state_dict())
    parameter = nn.Parameter(torch.zeros(3))
    for options, message in (
        ({"lr": 0.0}, "lr is 0.0: expected a positive number"),
        ({"lr": None}, "lr is None in a group without atoms"),
        ({"momentum": 1.0}, "momentum is 1.0"),
        ({"atoms": Birkhoff(4)}, "a parameter has shape"),
    ):
        with pytest.raises(ValueError, match=message):
            StochasticFrankWolfe([parameter], **options)  # type: ignore[arg-type]


class Digits(pl.LightningModule):
    """A classifier of digits, the weights of whose layers are constrained."""

    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Linear(64, 100), nn.ReLU(), nn.Linear(100, 40), nn.ReLU(), nn.Linear(40, 10))

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        images, labels = batch
        return nn.functional.cross_entropy(self.network(images), labels)

    def configure_optimizers(self) -> Any:
        first, second, last = (self.network[i] for i in (0, 2, 4))
        groups = [
            {"params": [first.weight], "atoms": L1Ball(300.0)},
            {"params": [second.weight], "atoms": NuclearBall(30.0)},
            {"params": [last.weight], "atoms": KSparse(200, 0.5)},
            {"params": [first.bias, second.bias, last.bias]},
        ]
        optimizer = StochasticFrankWolfe(groups, lr=3.0)
        return [optimizer], [torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 12)]


def test_a_network_trains_in_lightning(tmp_path: Path) -> None:
    digits = load_digits()
    order = torch.randperm(len(digits.target), generator=torch.Generator().manual_seed(0))
    images, labels = torch.tensor(digits.data / 16, dtype=torch.float32)[order], torch.tensor(digits.target)[order]
    pl.seed_everything(0)
    model = Digits()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = pl.Trainer(
            max_epochs=12,
            accelerator="cpu",
            default_root_dir=tmp_path,
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(model, DataLoader(TensorDataset(images[:1297], labels[:1297]), 64, shuffle=True))
    with torch.no_grad():
        accuracy = float((model.network(images[1297:]).argmax(1) == labels[1297:]).float().mean())
    assert accuracy > 0.9
    first, second, last = (model.network[i].weight.detach().double() for i in (0, 2, 4))
    assert L1Ball(300.0).contains(first.reshape(-1), 1e-5)
    assert NuclearBall(30.0).contains(second, 1e-5)
    assert KSparse(200, 0.5).contains(last.reshape(-1), 1e-5)
    (path,) = tmp_path.rglob("*.ckpt")
    restored = torch.load(path, weights_only=True)
    assert restored["optimizer_states"][0]["param_groups"][0]["lr"] < 3.0
