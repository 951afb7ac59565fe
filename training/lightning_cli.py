"""Build a model, its data and a Trainer from settings, with the one subclass of LightningCLI."""

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

from jsonargparse import Namespace
from lightning_fabric.plugins import CheckpointIO
from pytorch_lightning import Callback, LightningDataModule, Trainer
from pytorch_lightning.cli import LightningArgumentParser, LightningCLI, instantiate_class

import unknot.datamodules
import unknot.zoo  # noqa: F401  both make class names known without their module paths
from unknot.training.callbacks import WholeCheckpoints
from unknot.zoo import Model
from unknot.zoo.pictures import Pictures

DEFAULTS: dict[str, Any] = {"max_epochs": -1, "check_val_every_n_epoch": None}
TYPED_SHAPE = re.compile(r"--model\.(init_args\.)?image_shape")
FORMER = ("weights_only", "verbose", "return_predictions", "dataloaders", "train_dataloaders", "val_dataloaders")
"""Keys in configurations of earlier versions, for arguments of Trainer methods."""


class TrainingCLI(LightningCLI):
    """Parse settings and build the objects that they describe.

    Args:
        args: words of a command line, or settings as plain values.
        parts: function that returns callbacks and further arguments of the Trainer, given model and data.
        keep_shape: take ``image_shape`` from the settings; otherwise from the data, unless the command line sets it.
        resumed: whether the weights will come from a checkpoint of the run.
    """

    def __init__(
        self,
        args: Sequence[str] | dict[str, Any],
        parts: "Callable[[TrainingCLI], tuple[list[Callback], dict[str, Any]]]",
        keep_shape: bool = False,
        resumed: bool = False,
    ) -> None:
        self.parts, self.resumed = parts, resumed
        self.keep_shape = keep_shape or any(TYPED_SHAPE.match(word) for word in args)
        super().__init__(
            Model,
            LightningDataModule,
            subclass_mode_model=True,
            subclass_mode_data=True,
            seed_everything_default=0,
            save_config_callback=None,
            parser_kwargs={"exit_on_error": False, "allow_abbrev": False},
            trainer_defaults=dict(DEFAULTS),
            args=args if isinstance(args, dict) else list(args),
            run=False,
        )

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Add unknot's options."""
        parser.add_lightning_class_args(Pictures, "pictures")
        parser.add_argument("--pretrained", type=str | None, default=None, help="Checkpoint to take the weights of.")
        parser.add_argument("--checkpoint_every", type=int, default=1000, help="Steps between saves of last.ckpt.")
        parser.add_argument("--ckpt_path", type=str | None, default=None, help="Lightning checkpoint to start from.")
        for name in FORMER:
            parser.add_argument(f"--{name}", type=Any, default=None, help="Ignored.")

    def _add_configure_optimizers_method_to_model(self, subcommand: str | None) -> None:
        """Pass ``optimizer`` and ``lr_scheduler`` to the model, which builds them; either may be omitted."""
        for option, attribute in (("optimizer", "optimizer"), ("lr_scheduler", "scheduler")):
            if chosen := self.config_init.get(option):
                setattr(self.model, attribute, functools.partial(instantiate_class, init=chosen))

    def instantiate_classes(self) -> None:
        """Infer the image shape from the data, unless it was chosen."""
        arguments = self.config.model.get("init_args", {})
        if "image_shape" in arguments and not self.keep_shape:
            data = self.parser.instantiate_classes(Namespace(data=self.config.data)).data
            shape = getattr(data, "image_shape", None) or getattr(getattr(data, "dataset", None), "image_shape", None)
            if shape is not None:
                arguments.image_shape = tuple(shape)
                vars(self).pop("config_dump", None)  # made for the data, and kept by Lightning for the model
        super().instantiate_classes()

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        """Add callbacks, logger and plugins of the run."""
        start = self.config.get("pretrained")
        if start and not (self.resumed or self.config.get("ckpt_path")):  # these bring their own weights
            self.model.start_from(start)
        self.trainer_defaults["callbacks"], further = self.parts(self)
        plugins = further.pop("plugins", None) or self.config_init.trainer.get("plugins") or []
        plugins = plugins if isinstance(plugins, list) else [plugins]
        if not any(isinstance(plugin, CheckpointIO) for plugin in plugins):
            plugins = [*plugins, WholeCheckpoints()]
        return super().instantiate_trainer(**{"plugins": plugins, **further, **kwargs})

    def dump(self) -> str:
        """Return the resolved settings as YAML, without options that only concern this process."""
        config = self.config.clone()
        for name in ("ckpt_path", *FORMER):
            config.pop(name, None)
        return str(self.parser.dump(config, skip_none=False, skip_validation=True))
