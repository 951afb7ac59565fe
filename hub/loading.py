"""Load a checkpoint by a bundled name, a repository (and revision) on a hub, or a folder."""

from pathlib import Path
from typing import Any

from unknot.checkpoints.card import plain
from unknot.checkpoints.locate import WHERE, find
from unknot.checkpoints.names import CONFIG
from unknot.zoo import MODELS
from unknot.zoo.lightning_checkpoint import as_saved_model, is_checkpoint
from unknot.zoo.pretrained import build, overridden, read_config


def load(ref: str | Path, **options: Any) -> Any:
    """Load a saved model; its class comes from the registry by the name in ``config.json``.

    Args:
        ref: a bundled name (``unknot/adagvae-dsprites``), ``USER/REPO``, ``USER/REPO@REVISION``, a folder, or a
            Lightning checkpoint ``*.ckpt`` of a zoo model, from which only tensors and plain values are read.
        options: ``revision``, ``endpoint``, ``token``, ``cache_dir``, ``local_files_only`` and ``max_bytes``, as in
            :func:`unknot.checkpoints.locate.resolve`. All others replace arguments of the model, such as ``lr=1e-3``
            for further training.

    >>> import tempfile
    >>> from unknot.zoo import BetaVAE
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = BetaVAE(beta=2.0).save_pretrained(folder)
    ...     type(load(folder)).__name__, load(folder, beta=4.0).beta
    ('BetaVAE', 4.0)
    """
    if is_checkpoint(ref):
        with as_saved_model(ref) as folder:
            return load(folder, **options)
    source = find(ref, **{name: value for name, value in options.items() if name in WHERE})
    config = read_config(source)
    name = config["model"]
    if name not in MODELS:
        raise ValueError(
            f"{source.label(CONFIG)}: unknown model {plain(name, 100)!r}; this version knows {sorted(MODELS)}. A class "
            "of your own is known once the module is imported that registers it."
        )
    return build(MODELS[name], source, overridden(config, options))
