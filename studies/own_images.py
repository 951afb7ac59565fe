"""Users' own images as a data set of a study."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from unknot.arguments import did_you_mean

CLASS = "unknot.datamodules.ImageDataModule"
PATHS = {"images": "source", "labels": "labels"}
"""Keys of a study file that hold paths, and the arguments of :class:`ImageDataModule` that they become."""
TAKEN = ("crop", "grayscale", "label_keys", "num_bins", "val_fraction", "unreadable", "background", "image_key")
KEYS = (*PATHS, "name", "image_size", *TAKEN, "max_cache_gb")
CARRIED = ("batch_size", "num_val_batches")
"""Arguments of the configuration's own DataModule that are kept."""


def check_entry(where: str, entry: Mapping[str, Any]) -> None:
    """Check an entry of ``datasets`` that describes images.

    Args:
        where: of the study, for the message.
        entry: ``images``, ``labels`` and further arguments of :class:`~unknot.datamodules.ImageDataModule`.
    """
    for key in entry:
        if key not in KEYS:
            raise ValueError(f"{where}: unknown key `{key}` of own images. {did_you_mean(str(key), KEYS)}")
    for key in (*PATHS, "name"):
        if key in entry and not (isinstance(entry[key], str) and entry[key]):
            raise ValueError(f"{where}: `{key}` of own images must be a path or a name, got {entry[key]!r:.80}.")


def name_of_images(entry: Mapping[str, Any]) -> str:
    """Return the name of the images in tables: ``name``, or that of their folder or file.

    >>> name_of_images({"images": "data/photos", "labels": "factors.csv"})
    'photos'
    """
    return str(entry.get("name") or Path(entry["images"]).stem)


def use_images(
    config: dict[str, Any], entry: Mapping[str, Any], batch: str, image_size: int | None, folder: Path, where: str
) -> list[int]:
    """Use own images as the data of a configuration, and return their shape.

    Args:
        config: configuration of a job, whose ``data`` is replaced.
        entry: entry of the study's ``datasets``.
        batch: kind of batch that the model trains on.
        image_size: side to resize to; None for that of the entry or the default.
        folder: folder of the study, to which paths are relative.
        where: names of study and configuration, for messages.
    """
    if batch not in ("images", "labelled"):
        raise ValueError(
            f"{where}: its model trains on {batch}, and `images` gives single images. Take a configuration for single "
            "images, such as beta_vae."
        )
    own = (config.get("data") or {}).get("init_args", {})
    arguments = {key: own[key] for key in CARRIED if key in own}
    arguments |= {PATHS.get(key, key): value for key, value in entry.items() if key != "name"}
    if image_size is not None:
        arguments["image_size"] = image_size
    if batch == "labelled":
        arguments["with_labels"] = True
    config["data"] = {"class_path": CLASS, "init_args": arguments}
    try:
        data = open_images(located(config, folder)["data"])
        if not data.label_names:
            raise ValueError("a study scores models on labels: give `labels`, a table of them, or `label_keys`.")
    except (ValueError, OSError, ImportError) as error:
        raise ValueError(f"{where}: {error}") from None
    return list(data.image_shape)


def located(config: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return a configuration with absolute paths of own images."""
    data = config["data"]
    if data.get("class_path") != CLASS:
        return config
    arguments = {
        name: str((folder / value).resolve()) if name in PATHS.values() and isinstance(value, str) else value
        for name, value in data["init_args"].items()
    }
    return {**config, "data": {**data, "init_args": arguments}}


def open_images(data: Mapping[str, Any]) -> Any:
    """Return the :class:`~unknot.datamodules.ImageDataModule` that settings describe."""
    from unknot.datamodules import ImageDataModule

    return ImageDataModule(**data["init_args"])


def check_scores(where: str, data: Mapping[str, Any], protocols: Iterable[Any]) -> None:
    """Check that own images allow the scores.

    Args:
        where: of the study, for the message.
        data: settings of the images, with absolute paths.
        protocols: scores of the study.
    """
    from unknot.metrics import METRICS

    protocols = list(protocols)
    if any(protocol.labels for protocol in protocols):
        raise ValueError(f"{where}: scores on few `labels` need a ground-truth data set, not own images.")
    if laws := [protocol.law for protocol in protocols if protocol.law != "training"]:
        raise ValueError(f"{where}: own images have one distribution of factors: remove `law: {laws[0]}`.")
    chosen = dict.fromkeys(name for part in protocols for name in part.metrics if METRICS[name].intervenes)
    if chosen and not open_images(data).has_all_combinations:
        raise ValueError(
            f"{where}: {', '.join(chosen)} need an image of every combination of factors, which these images do not "
            "have. Remove them from `scores`."
        )
