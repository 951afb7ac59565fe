"""Two processes: each rank draws its own samples, and the ranks stay in step."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

ONE_MODEL = """
import sys
import torch
from unknot.lightning import pl
from unknot.datamodules import DSprites, FactorDataModule
from unknot.zoo import BetaVAE

class Recorder(pl.Callback):
    def __init__(self):
        self.batches = []

    def on_train_batch_start(self, trainer, model, batch, batch_idx):
        self.batches.append(batch.clone())

    def on_before_zero_grad(self, trainer, model, optimizer):
        self.noise = torch.random.get_rng_state().clone()

    def on_train_end(self, trainer, model):
        state = {name: value.clone() for name, value in model.state_dict().items()}
        kept = {"batches": torch.stack(self.batches), "noise": self.noise, "state": state}
        torch.save(kept, f"{sys.argv[1]}/rank{trainer.global_rank}.pt")

torch.set_num_threads(1)
pl.seed_everything(0)
trainer = pl.Trainer(
    accelerator="cpu", devices=2, strategy="ddp", max_steps=4, logger=False, enable_checkpointing=False,
    enable_progress_bar=False, enable_model_summary=False, callbacks=[Recorder()],
    val_check_interval=2, check_val_every_n_epoch=None, max_epochs=-1,
)
trainer.fit(BetaVAE(), datamodule=FactorDataModule(DSprites(), batch_size=4, num_val_batches=1))
"""


def test_ranks_draw_different_samples_and_stay_in_step(ranks: Path) -> None:
    first, second = (torch.load(ranks / f"rank{rank}.pt", weights_only=True) for rank in (0, 1))
    assert first["batches"].shape == (4, 4, 1, 64, 64)
    everything = torch.cat([first["batches"], second["batches"]]).flatten(2).flatten(0, 1)
    assert len(everything.unique(dim=0)) == len(everything)
    assert not torch.equal(first["noise"], second["noise"])
    assert all(torch.equal(first["state"][name], second["state"][name]) for name in first["state"])


EVERY_MODEL = """
from unknot.datamodules import AbstractDSprites, Coarse, MatrixDataModule
from unknot.datamodules import FeatureScenes, LabelledDataModule, PairDataModule, Tetrominoes
from unknot.datamodules.scenes.clevr_scenes import ClevrScenes
from unknot.datamodules.sets import SetDataModule
from unknot.zoo import MODELS

SLOTS = {
    "SlotSetPredictor": {"warmup_steps": 0},
    "SlotMLPSetPredictor": {"warmup_steps": 0, "hidden_dim": 32},
    "DSPNSetPredictor": {"hidden_dim": 16, "num_iterations": 2},
    "SlotAutoEncoder": {"warmup_steps": 0, "strides": (2, 2, 1, 1), "channels": 16},
    "DINOSAUR": {"image_shape": (75, 7, 7), "num_slots": 4, "slot_dim": 32, "hidden_dim": 64, "warmup_steps": 0},
}

dataset, states = DSprites(), {}
for name, model_class in MODELS.items():
    pl.seed_everything(0)
    if name == "WReN":
        grid = Coarse(AbstractDSprites(), (5, 6, 3, 3, 4, 4))
        data = MatrixDataModule(grid, panels="images", batch_size=2, num_val_batches=1)
    elif name == "DINOSAUR":
        features = FeatureScenes(Tetrominoes(), backbone=lambda images: torch.nn.functional.pixel_unshuffle(images, 5))
        data = SetDataModule(features, batch_size=4, num_val_batches=1)
    elif name in SLOTS:
        data = SetDataModule(ClevrScenes(image_size=32, max_objects=4, samples=1), batch_size=4, num_val_batches=1)
    elif name.startswith("S2") or name == "SupervisedVAE":
        data = LabelledDataModule(dataset, num_labels=20, batch_size=4, num_val_batches=1)
    elif model_class.batch == "pairs":
        data = PairDataModule(dataset, k=1, group_label=True, batch_size=4, num_val_batches=1)
    else:
        data = FactorDataModule(dataset, batch_size=4, num_val_batches=1)
    trainer = pl.Trainer(
        accelerator="cpu", devices=2, strategy="ddp", max_steps=2, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, val_check_interval=2, check_val_every_n_epoch=None,
    )
    model = model_class(**{"image_shape": (3, 32, 32), **SLOTS[name]} if name in SLOTS else {})
    before = {key: value.clone() for key, value in model.state_dict().items()}
    trainer.fit(model, datamodule=data)
    changed = [key for key, value in model.state_dict().items() if not torch.equal(value, before[key])]
    states[name] = {"steps": trainer.global_step, "state": dict(model.state_dict()), "changed": changed}
torch.save(states, f"{sys.argv[1]}/every{trainer.global_rank}.pt")
"""


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder in which two processes that train one model, and then each of all, save their states."""
    folder = tmp_path_factory.mktemp("ranks")
    script = folder / "train.py"
    script.write_text(ONE_MODEL + EVERY_MODEL)
    done = subprocess.run([sys.executable, script, folder], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    return folder


def test_every_model_trains_on_two_processes(ranks: Path) -> None:
    first, second = (torch.load(ranks / f"every{rank}.pt", weights_only=True) for rank in (0, 1))
    for name, run in first.items():
        assert run["steps"] == 2, name
        assert all(torch.equal(value, second[name]["state"][key]) for key, value in run["state"].items()), name
        still = run["state"].keys() - set(run["changed"])
        expected = {"encoder.logvar.weight", "encoder.logvar.bias"} if name == "SupervisedVAE" else set()
        assert still == expected, name
