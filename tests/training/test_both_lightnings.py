"""Users hold `pytorch_lightning` or `lightning`; both Trainers take our modules."""

import os
import subprocess
import sys

import pytest

FIT = """
trainer = Trainer(max_steps=2, logger=False, enable_checkpointing=False, enable_progress_bar=False, accelerator="cpu",
                  enable_model_summary=False, limit_val_batches=1)
trainer.fit(BetaVAE(), datamodule=FactorDataModule(DSprites(), batch_size=2))
print("fitted", trainer.global_step)
"""
OURS = "from unknot.datamodules import DSprites, FactorDataModule\nfrom unknot.zoo import BetaVAE\n"


def run(script: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if name != "UNKNOT_LIGHTNING"}
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300, env=env)


@pytest.mark.parametrize(
    "head",
    [
        "from lightning.pytorch import Trainer as Same\nfrom lightning import Trainer\nassert Same is Trainer\n" + OURS,
        "import os; os.environ['UNKNOT_LIGHTNING'] = 'lightning'\n" + OURS + "from lightning.pytorch import Trainer\n",
    ],
    ids=["lightning", "by hand"],
)
def test_the_trainer_of_lightning_fits(head: str) -> None:
    """That of pytorch_lightning is the one of all other tests."""
    pytest.importorskip("lightning")
    done = run(head + FIT)
    assert "fitted 2" in done.stdout, done.stderr[-2000:]


def test_the_other_trainer_says_what_to_import() -> None:
    pytest.importorskip("lightning")
    done = run(OURS + "from lightning.pytorch import Trainer\n" + FIT)
    assert done.returncode != 0
    assert "use `from pytorch_lightning import Trainer`, or import lightning.pytorch before unknot" in done.stderr


def test_an_unknown_choice_is_refused() -> None:
    done = run("import os; os.environ['UNKNOT_LIGHTNING'] = 'thunder'\nimport unknot.lightning")
    assert "must be 'lightning' or 'pytorch_lightning'" in done.stderr.strip().splitlines()[-1]
