"""Pictures of learned representations, and a callback that draws them during training."""

from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor
from torchvision.utils import make_grid

from unknot.arguments import whole
from unknot.files import replacing
from unknot.inference import evaluation_mode
from unknot.lightning import pl
from unknot.randomness import kept_generators, seed_device
from unknot.zoo.base import Model


@torch.no_grad()
def draw_traversals(model: Any, images: Tensor, path: str | Path) -> Path:
    """Write a PNG of latent traversals, one row per latent, the most active first.

    Rows are labelled with ``model.activity(images)``, for VAEs the mean KL(q(z_d|x) || p(z_d)) over ``images`` ``[N, C,
    H, W]`` in nats: a value near zero means an unused latent. The traversals start from the first image.
    """
    images = images.to(model.device)
    information = model.activity(images)
    order = information.argsort(descending=True)
    strips = model.traverse(images[:1])[0, order].cpu()
    rows, columns = strips.shape[:2]
    figure = Figure(figsize=(columns * 0.75 + 1.3, rows * 0.75 + 0.6), layout="constrained")
    axes = figure.subplots(rows, 1, squeeze=False)[:, 0]
    for axis, strip, code in zip(axes, strips, order.tolist(), strict=True):
        axis.imshow(_grid(strip, columns, images))
        axis.set_ylabel(f"z{code}\n{information[code]:.2f}", rotation=0, ha="right", va="center", fontsize=9)
        axis.set_xticks([])
        axis.set_yticks([])
    steps = "through its values" if "levels" in model.capabilities else "from -2 to 2"
    figure.suptitle(f"Traversals: each latent {steps} (label: its {model.activity_name})", fontsize=10)
    return _save(figure, path)


@torch.no_grad()
def draw_reconstructions(model: Any, images: Tensor, path: str | Path) -> Path:
    """Write a PNG with images ``[N, C, H, W]`` above and their reconstructions below."""
    images = images.to(model.device)
    pairs = torch.cat([images, model.reconstruct(images)]).cpu()
    figure = Figure(figsize=(len(images) * 0.75, 2), layout="constrained")
    axis = figure.subplots()
    axis.imshow(_grid(pairs, len(images), images))
    axis.set_axis_off()
    axis.set_title("Images and their reconstructions", fontsize=10)
    return _save(figure, path)


def _grid(drawn: Tensor, columns: int, images: Tensor) -> Any:
    """Tile images, scaled to [0, 1] by the range of the data if it is not [0, 1]."""
    low, high = images.min().clamp(max=0).item(), images.max().clamp(min=1).item()
    scaled = ((drawn - low) / (high - low)).clamp(0, 1)
    return make_grid(scaled, nrow=columns, padding=2, pad_value=0.5).permute(1, 2, 0).numpy()


def _save(figure: Figure, path: str | Path) -> Path:
    path = Path(path)
    with replacing(path) as beside:
        figure.savefig(beside, format="png", dpi=100)
    return path


class Pictures(pl.Callback):
    """Callback that draws pictures of held-out images during training, as PNG files in the run folder.

    The model's method ``draw`` decides what to draw: traversals and reconstructions for a VAE, sets and attention for a
    set predictor.

    Args:
        every_n_steps: steps between pictures; there is one more at the end.
        num_images: number of images to show.
    """

    def __init__(self, every_n_steps: int = 5000, num_images: int = 10) -> None:
        self.every_n_steps = whole("every_n_steps", every_n_steps)
        self.num_images = whole("num_images", num_images)
        self._batch: Any = None
        self._drawn = -1

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Take a held-out batch, or wait for the first one."""
        loaders = getattr(trainer, "val_dataloaders", None)
        if loaders is not None:
            with kept_generators(pl_module.device):  # starting a loader draws a seed
                self._keep(next(iter(loaders[0] if isinstance(loaders, list | tuple) else loaders)))

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Draw if it is time."""
        if self._batch is None:
            self._keep(batch)
        if trainer.global_step // self.every_n_steps != max(self._drawn, 0) // self.every_n_steps:
            self._draw(trainer, pl_module)

    def on_train_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        """Draw the final state."""
        if self._batch is not None and self._drawn != trainer.global_step:
            self._draw(trainer, pl_module)

    def _keep(self, batch: Any) -> None:
        parts = batch if isinstance(batch, tuple | list) else (batch,)
        self._batch = [part.detach().cpu() if isinstance(part, Tensor) else part for part in parts]

    def _draw(self, trainer: pl.Trainer, model: Model) -> None:
        self._drawn = trainer.global_step
        if not trainer.is_global_zero:
            return
        folder = Path(trainer.log_dir or trainer.default_root_dir) / "pictures"
        with evaluation_mode(model), kept_generators(model.device):
            seed_device(0, model.device)  # the same initial slots in every picture
            model.draw(self._batch, folder, f"-{trainer.global_step:08d}", self.num_images)

    def state_dict(self) -> dict[str, Any]:
        """Return the step of the last picture."""
        return {"drawn": self._drawn}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the step of the last picture."""
        self._drawn = state_dict["drawn"]
