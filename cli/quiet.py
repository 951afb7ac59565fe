"""Terminal output without what helps nobody."""

import logging
import warnings


def hush_lightning() -> None:
    """Silence Lightning's advertisements and the warnings that our users can do nothing about."""
    for message in (
        *("does not have many workers", "isinstance.treespec, LeafSpec", "LightningCLI's args parameter"),
        *("Checkpoint directory .* exists and is not empty",),
    ):
        warnings.filterwarnings("ignore", f".*{message}.*")
    logger = logging.getLogger("pytorch_lightning.utilities.rank_zero")
    logger.addFilter(lambda record: "💡" not in str(record.msg))
