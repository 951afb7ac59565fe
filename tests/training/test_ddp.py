"""Two processes: each rank draws its own samples, and the ranks stay in step."""

import subprocess
import sys
from pathlib import Path

import torch

SCRIPT = """
import sys
import torch
from unknot._lightning import pl
from unknot.datamodules import DSprites, FactorDataModule
from unknot.zoo import BetaVAE

class Recorder(pl.Callback):
    def __init__(self):
        self.batches = []

    def on_train_batch_start(self, trainer, model, batch, batch_idx):
        self.batches.append(batch.clone())
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


def test_ranks_draw_different_samples_and_stay_in_step(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    done = subprocess.run([sys.executable, script, tmp_path], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    first, second = (torch.load(tmp_path / f"rank{rank}.pt", weights_only=True) for rank in (0, 1))
    assert first["batches"].shape == (4, 4, 1, 64, 64)
    everything = torch.cat([first["batches"], second["batches"]]).flatten(2).flatten(0, 1)
    assert len(everything.unique(dim=0)) == len(everything)
    assert not torch.equal(first["noise"], second["noise"])
    assert all(torch.equal(first["state"][name], second["state"][name]) for name in first["state"])
