"""One's own network and model: trained, saved, published, and loaded by another process once it knows the class."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

MODULE = '''
import torch
from torch import nn
from torchvision.models import resnet18

from unknot.zoo import BetaVAE, register_model, register_network


@register_network
def resnet(features: int = 64) -> nn.Module:
    """torchvision's ResNet-18, with its BatchNorm."""
    return resnet18(num_classes=features)


@register_model
class L1VAE(BetaVAE):
    """Pulls the means to zero."""

    def __init__(self, alpha: float = 0.1, **vae) -> None:
        super().__init__(**vae)
        self.alpha = alpha

    def regularizer(self, posterior, z, kl):
        value, logged = super().regularizer(posterior, z, kl)
        size = posterior.mean.abs().sum(1).mean()
        return value + self.alpha * size, {**logged, "size": size}


def images(n: int = 8) -> torch.Tensor:
    return torch.rand(n, 3, 96, 96, generator=torch.Generator().manual_seed(1))
'''
TRAIN = """
import sys
import torch
from torch.utils.data import DataLoader, TensorDataset
from pytorch_lightning import Trainer, seed_everything
import own_module

seed_everything(0)
decoder = {"name": "ResidualDecoder", "width": 8}
model = own_module.L1VAE(alpha=0.25, image_shape=(3, 96, 96), encoder=own_module.resnet(features=32), decoder=decoder)
assert model.hparams.encoder == {"name": "resnet", "features": 32}, model.hparams.encoder
quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
trainer = Trainer(max_steps=int(sys.argv[1]), max_epochs=-1, **quiet)
trainer.fit(model, DataLoader(TensorDataset(own_module.images(64)), batch_size=8, shuffle=True))
assert model.encoder.body.bn1.num_batches_tracked == int(sys.argv[1])
print(model.push_to_hub("me/own", private=False, images=own_module.images()))
torch.save(model.eval().represent(own_module.images()), "codes.pt")
"""
LOAD = """
import torch
from unknot.hub import load
try:
    load("me/own")
except ValueError as error:
    assert "unknown model 'L1VAE'" in str(error) and "\\n" not in str(error), error
    print("refused:", error)
import own_module
model = load("me/own")
assert type(model) is own_module.L1VAE and model.alpha == 0.25
codes = model.represent(own_module.images())
print("equal", torch.equal(codes, torch.load("codes.pt")))
assert torch.equal(codes, own_module.L1VAE.from_pretrained("me/own").represent(own_module.images()))
"""


def run(script, folder, *words, stderr=False):
    environment = {**os.environ, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", script, *words], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout + done.stderr * stderr


@pytest.mark.parametrize("steps", [4, pytest.param(200, marks=pytest.mark.slow)])
def test_a_resnet_of_torchvision_from_training_to_another_process(here, tmp_path, steps):
    (tmp_path / "own_module.py").write_text(MODULE)
    run(TRAIN, tmp_path, str(steps))
    reply = run(LOAD, tmp_path)
    assert "refused:" in reply
    assert "equal True" in reply
    text = Path(here.api.hf_hub_download("me/own", "README.md")).read_text()
    assert "from unknot.zoo import L1VAE" not in text
    assert "import own_module" in text
    assert "family:vae" in text


def test_commands_take_a_class_of_ones_own_once_its_module_is_named(here, tmp_path):
    (tmp_path / "mine.py").write_text(
        "from unknot.zoo import BetaVAE, register_model\n\n\n"
        '@register_model\nclass MineVAE(BetaVAE):\n    """A name of its own."""\n'
    )
    train = """
import csv
from pathlib import Path
import numpy as np
from PIL import Image
from unknot.cli import main

Path("photos").mkdir()
rows = [["file", "shade", "side"]]
for number in range(24):
    shade, side = number % 3, number % 2
    pixels = np.full((32, 32), 20, dtype=np.uint8)
    pixels[:, 16 * side : 16 * side + 16] = 60 * shade + 60
    Image.fromarray(pixels).save(f"photos/{number:02}.png")
    rows.append([f"{number:02}.png", shade, side])
csv.writer(open("factors.csv", "w", newline="")).writerows(rows)

model = ["--model", "MineVAE", "--model.latent_dim", "3"]
data = ["--data", "ImageDataModule", "--data.source", "photos", "--data.grayscale", "true", "--data.batch_size", "8"]
assert main(["fit", "--import", "mine", *model, *data, "--trainer.max_steps", "2"]) == 0
"""
    script = """
from unknot.cli import main
from unknot.zoo import MODELS

evaluate = ["evaluate", MODEL, "--images", "photos", "--labels", "factors.csv", "--metrics", "mig"]
push = ["hub", "push", MODEL, "me/mine", "--scores", "scores.json"]
assert main(evaluate) == 1
assert main(push[:-2]) == 1
assert "MineVAE" not in MODELS
assert main([*evaluate, "--json", "scores.json", "--import", "mine"]) == 0
assert main(["--import=mine", *push]) == 0
assert main(["evaluate", "me/mine", *evaluate[2:], "--import", "mine"]) == 0
"""
    model = "runs/MineVAE/version_0/model"
    hint = f"Score it with: unknot evaluate {model.removesuffix('/model')} --import mine --images FOLDER --labels CSV"
    assert hint in run(train, tmp_path)
    reply = run(script.replace("MODEL, ", f"{model!r}, "), tmp_path, stderr=True)
    assert reply.count("unknown model 'MineVAE'") == 2
    text = Path(here.api.hf_hub_download("me/mine", "README.md")).read_text()
    assert "import mine" in text
    assert "name: mig" in text.lower()


HOSTILE = [
    {"model": "marking_module.Marked"},
    {"model": "marking_module"},
    {"arguments": {"encoder": "marking_module.Marked"}},
    {"arguments": {"encoder": {"name": "marking_module:Marked"}}},
    {"arguments": {"encoder": {"class_path": "marking_module.Marked", "name": "ConvEncoder"}}},
    {"arguments": {"likelihood": {"class_path": "marking_module.Marked"}}},
]


def test_no_name_in_a_checkpoint_is_ever_imported(model, tmp_path):
    for number, change in enumerate(HOSTILE):
        folder = model.save_pretrained(tmp_path / f"saved{number}")
        config = json.loads((folder / "config.json").read_text())
        arguments = config["arguments"] | change.get("arguments", {})
        (folder / "config.json").write_text(json.dumps(config | change | {"arguments": arguments}))
    mark = tmp_path / "mark"
    (tmp_path / "marking_module.py").write_text(f"open({str(mark)!r}, 'w').close()\nclass Marked: pass\n")
    script = f"""
from unknot.hub import load
for number in range({len(HOSTILE)}):
    try:
        load(f"saved{{number}}")
    except ValueError as error:
        print(error)
"""
    reply = run(script, tmp_path).splitlines()
    assert len(reply) == len(HOSTILE)
    assert all("marking_module" in line or "class_path" in line for line in reply)
    assert not mark.exists()
    run("import marking_module", tmp_path)
    assert mark.exists()  # it would have left one


def test_an_own_network_is_refused_until_it_is_registered(tmp_path):
    (tmp_path / "own_module.py").write_text(MODULE)
    save = (
        "import torch, own_module\nfrom unknot.zoo import BetaVAE\n"
        "BetaVAE(image_shape=(3, 96, 96), encoder='resnet').save_pretrained('saved')\n"
    )
    run(save, tmp_path)
    script = (
        "from unknot.zoo import BetaVAE\ntry:\n    BetaVAE.from_pretrained('saved')\nexcept ValueError as error:\n"
        "    print(error)\nimport own_module\nassert BetaVAE.from_pretrained('saved').beta == 4"
    )
    reply = run(script, tmp_path)
    assert "encoder: no network is registered as 'resnet'" in reply
    assert "Import the module that registers it" in reply


def test_a_network_that_is_not_registered_trains_but_says_at_once_that_it_cannot_be_saved(tmp_path):
    from torch import nn

    from unknot.zoo import BetaVAE

    network = nn.Sequential(nn.Flatten(), nn.Linear(1024, 16))
    with pytest.warns(UserWarning, match=r"encoder is a Sequential .* register its class"):
        model = BetaVAE(image_shape=(1, 32, 32), encoder=network)
    assert model.represent(torch.rand(2, 1, 32, 32)).shape == (2, 10)
    with pytest.raises(ValueError, match=r"encoder is a Sequential .*@unknot.zoo.register_network"):
        model.save_pretrained(tmp_path / "new")
    assert not (tmp_path / "new").exists()
