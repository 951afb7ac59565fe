"""Base class of all models: training steps and their logs, optimisers, and capabilities."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor
from typing_extensions import Self

from unknot.arguments import positive
from unknot.lightning import pl, values_due
from unknot.zoo.lightning_checkpoint import MODEL
from unknot.zoo.networks import check_images
from unknot.zoo.noise import Noise
from unknot.zoo.pretrained import Pretrained


class Model(Pretrained, pl.LightningModule):
    """Base class of image models. A subclass sets ``image_shape`` and defines its objective in :meth:`losses`.

    Args:
        lr: learning rate.
    """

    family: ClassVar[str] = "own"
    """Family of models in lists."""

    batch: ClassVar[str] = "images"
    """Kind of batches: ``"images"``, ``"pairs"``, ``"labelled"`` or ``"sets"``, as returned by the DataModules."""

    capabilities: ClassVar[frozenset[str]] = frozenset()
    """Operations that the model supports. Commands, cards and the page rely on nothing else:

    - ``"codes"``: ``represent(images)`` gives ``[N, D]``;
    - ``"decode"``: ``decode(codes)`` gives images ``[N, C, H, W]``;
    - ``"elbo"``: ``encode`` gives a distribution, and ``objective`` its terms;
    - ``"levels"``: each latent takes one of a few values;
    - ``"sets"``: ``predict_sets(images)``; ``"slots"``: ``decompose(images)``; ``"reasoning"``: answers to matrices;
    - ``"feature_slots"``: ``decompose(features)``, whose parts are features and no images.
    """

    activity_name: ClassVar[str] = "variance"
    """Name of the quantity that :meth:`activity` measures, for labels."""

    image_shape: tuple[int, int, int]

    optimizer_class: ClassVar[type[torch.optim.Adam]] = torch.optim.Adam
    """The model's own optimiser: Adam, or one of its subclasses."""

    optimizer: Callable[[Iterable[Any]], torch.optim.Optimizer] | None = None
    """Function that creates the optimiser from parameters or groups, instead of the model's own."""

    scheduler: Callable[[torch.optim.Optimizer], Any] | None = None
    """Function that creates a schedule for the optimiser, instead of the model's own; it advances at every step."""

    _resumed_optimizer: str | None = None
    """Class of the optimiser whose state is in the checkpoint."""

    def __init__(self, lr: float) -> None:
        super().__init__()
        positive(lr=lr)
        self.lr = lr

    def losses(self, batch: Any) -> dict[str, Tensor]:
        """Return all terms of the objective for a batch; ``"loss"`` is the one to minimise."""
        raise NotImplementedError

    def activity(self, images: Tensor) -> Tensor:
        """Return how much each latent varies over the images, ``[D]``: by default the variance of
        ``represent(images)``.

        Models with a KL divergence or an entropy per latent override this. A value near zero means an unused latent.
        """
        model: Any = self
        codes: Tensor = model.represent(images)
        return codes.var(0, unbiased=False)

    @torch.no_grad()
    def traverse(self, images: Tensor, values: Tensor | None = None) -> Tensor:
        """Change one latent of each image at a time and decode, for models with ``"codes"`` and ``"decode"``.

        Args:
            images: ``[N, C, H, W]``.
            values: what each latent is set to, ``[V]``; by default 11 steps from -2 to 2.

        Returns:
            ``[N, D, V, C, H, W]``.
        """
        model: Any = self
        start: Tensor = model.represent(images)
        values = torch.linspace(-2, 2, 11) if values is None else torch.as_tensor(values, dtype=torch.float32)
        values = values.to(start)
        codes = start[:, None, None, :].repeat(1, start.shape[1], len(values), 1)
        each = torch.arange(start.shape[1])
        codes[:, each, :, each] = values
        decoded: Tensor = model.decode(codes.flatten(0, 2))
        return decoded.unflatten(0, codes.shape[:3])

    def reconstruct(self, images: Tensor) -> Tensor:
        """Encode images and decode their representations: ``[N, C, H, W]``."""
        model: Any = self
        decoded: Tensor = model.decode(model.represent(images))
        return decoded

    def draw(self, batch: Any, folder: Path, suffix: str = "", num_images: int = 10) -> list[Path]:
        """Draw examples of what the model does with a batch, one PNG per kind: ``folder/KIND + suffix + .png``.

        Models with ``"codes"`` and ``"decode"`` draw traversals of the first image, and reconstructions.
        """
        if not self.capabilities >= {"codes", "decode"}:
            return []
        from unknot.zoo.pictures import draw_reconstructions, draw_traversals  # Matplotlib takes a while

        images = first_of(batch)
        return [
            draw_traversals(self, images, folder / f"traversals{suffix}.png"),
            draw_reconstructions(self, images[:num_images], folder / f"reconstructions{suffix}.png"),
        ]

    def check_images(self, images: Tensor, values: bool | None = None) -> None:
        """Raise an error for images that the model cannot take. ``values`` also checks their values on a GPU."""
        check_images(images, self.image_shape, values)

    def bfloat16(self) -> Self:
        """Cast to bfloat16 and update the dtype that Lightning tracks, which its own method leaves unchanged."""
        return self.to(torch.bfloat16)

    @property
    def example_input_array(self) -> Any:
        """Two black images, used by ``to_onnx``, the model summary and TensorBoard's graph."""
        given = self._example_input_array
        return torch.zeros(2, *self.image_shape, device=self.device) if given is None else given

    @example_input_array.setter
    def example_input_array(self, example: Any) -> None:
        self._example_input_array = example

    # Steps

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Minimise ``losses(batch)["loss"]``."""
        return self._step("train", batch, batch_idx)["loss"]

    def validation_step(self, batch: Any, batch_idx: int) -> Any:
        """Log all terms as ``val/...``. Callbacks see the return value as ``outputs``."""
        self._step("val", batch, batch_idx)

    def test_step(self, batch: Any, batch_idx: int) -> None:
        """Log all terms as ``test/...``."""
        self._step("test", batch, batch_idx)

    def _step(self, stage: str, batch: Any, batch_idx: int) -> dict[str, Tensor]:
        images = first_of(batch)
        self._look_at(images, batch_idx)
        terms = self.losses(batch)
        self._report(stage, terms, batch_idx, len(images))
        return terms

    # Keep bookkeeping out of the compiled graph.

    @torch.compiler.disable
    def _look_at(self, images: Tensor, batch_idx: int) -> None:
        if batch_idx == 0:
            self.check_images(images, values=True)

    @torch.compiler.disable
    def _report(self, stage: str, terms: dict[str, Tensor], batch_idx: int, batch_size: int) -> None:
        if stage == "train" and (terms["loss"].is_cpu or batch_idx % 50 == 0):  # a GPU has to be waited for
            stop_unless_finite(terms, self.global_step, self.lr)
        held_out = stage != "train"
        if held_out or batch_idx % 10 == 0 or values_due(self.trainer):  # logging takes a millisecond
            values = {f"{stage}/{name}": value.detach() for name, value in terms.items()}
            loss = values.pop(f"{stage}/loss")
            self.log(f"{stage}/loss", loss, prog_bar=True, sync_dist=held_out, batch_size=batch_size)
            self.log_dict(values, sync_dist=held_out, batch_size=batch_size)

    # Training

    def configure_callbacks(self) -> list[pl.Callback]:
        """Add :class:`Noise`, so that training resumes exactly; models that add callbacks keep it."""
        return [Noise()]

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Return the parameters to optimise, in groups."""
        return [{"params": list(self.parameters())}]

    def own_schedule(self, optimizer: torch.optim.Optimizer) -> Any:
        """Return the model's own learning rate schedule, or ``None``."""
        return None

    def configure_optimizers(self) -> Any:
        """Return :attr:`optimizer`, by default Adam, with :attr:`scheduler`, by default the model's own schedule."""
        groups = self.parameter_groups()
        if self.optimizer is None:
            # One kernel for all parameters. It cannot clip gradients under a gradient scaler, so only without one; and
            # Lightning treats any mixed precision as if it had a scaler.
            trainer = self._trainer
            clips = trainer is not None and trainer.gradient_clip_val and "mixed" in str(trainer.precision)
            fused = not clips and all(parameter.is_cpu for group in groups for parameter in group["params"])
            optimizer: torch.optim.Optimizer = self.optimizer_class(groups, lr=self.lr, fused=fused or None)
        else:
            optimizer = self.optimizer(groups)
        self._check_resumed(optimizer)
        schedule = self.own_schedule(optimizer) if self.scheduler is None else self.scheduler(optimizer)
        if schedule is None:
            return optimizer
        if isinstance(schedule, torch.optim.lr_scheduler.ReduceLROnPlateau):
            monitor = getattr(schedule, "monitor", "val/loss")
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "monitor": monitor}}
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def _check_resumed(self, optimizer: torch.optim.Optimizer) -> None:
        """Raise an error if the checkpoint was trained with another optimiser: its state would be misread."""
        saved, self._resumed_optimizer = self._resumed_optimizer, None
        if saved not in (None, now := type(optimizer).__name__):
            raise ValueError(
                f"The checkpoint was trained with {saved}, but this model is set to train with {now}. Set the same "
                "`optimizer` to resume it, or start a new training from its weights with `start_from`."
            )

    def setup(self, stage: str) -> None:
        """Warn about parts that are missing from the checkpoint, if training needs them."""
        if stage != "predict":
            self.warn_of_absent()

    def on_fit_start(self) -> None:
        """Record the name of the data set that the model is about to be trained on."""
        dataset = getattr(getattr(self.trainer, "datamodule", None), "dataset", None)
        self.fitted_on(getattr(dataset, "name", None))

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Store the name of the class and the origin of the weights."""
        checkpoint[MODEL] = type(self).__name__
        checkpoint["trained_on"], checkpoint["fine_tuned_from"] = self.trained_on, self.fine_tuned_from
        if self._trainer is not None and self._trainer.optimizers:
            checkpoint["optimizer"] = type(self._trainer.optimizers[0]).__name__

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Restore the origin of the weights."""
        self.trained_on, self.fine_tuned_from = checkpoint.get("trained_on"), checkpoint.get("fine_tuned_from")
        if self._trainer is not None and self._trainer.state.fn == "fit":
            self._resumed_optimizer = checkpoint.get("optimizer")


def stop_unless_finite(terms: dict[str, Tensor], step: int, lr: float) -> None:
    """Raise an error for a loss that is not finite, before it reaches the weights."""
    if not torch.isfinite(terms["loss"]):
        shown = ", ".join(f"{name} {value.item():.4g}" for name, value in terms.items())
        raise FloatingPointError(
            f"Training stopped at step {step}: the loss is not finite ({shown}). Lower the learning rate (lr={lr:g}) "
            "or the regularisation, and resume from the last checkpoint."
        )


def first_of(batch: Any) -> Tensor:
    """Return the images of a batch: the batch itself if it is a tensor, else its first entry."""
    if isinstance(batch, dict):
        raise ValueError(
            f"The batch is a dictionary with {list(batch)}; expected a tensor of images, or a tuple or list "
            "whose first entry is one. Give the loader a collate_fn that returns one."
        )
    return batch[0] if isinstance(batch, tuple | list) else batch
