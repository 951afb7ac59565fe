"""Trained checkpoints: find them, load them with the right class, publish them, serve them."""

from typing import TYPE_CHECKING

from unknot.checkpoints.errors import (
    AccessError,
    ConflictError,
    IntegrityError,
    MissingError,
    OfflineError,
    TooLargeError,
    UnreachableError,
    UnsafeCheckpointError,
)
from unknot.lazy import lazily

if TYPE_CHECKING:
    from unknot.hub.browser.app import browse
    from unknot.hub.listing import Checkpoint, list_checkpoints, pull, show
    from unknot.hub.loading import load
    from unknot.hub.publish_bundled import publish_shipped
    from unknot.hub.publishing import push
    from unknot.hub.server.app import serve

# Listing must answer at once and not wait for torch, so each name is imported when it is first used.
_HOMES = {
    "Checkpoint": "listing",
    "browse": "browser.app",
    "list_checkpoints": "listing",
    "load": "loading",
    "publish_shipped": "publish_bundled",
    "pull": "listing",
    "push": "publishing",
    "serve": "server.app",
    "show": "listing",
}

__all__ = [
    "AccessError",
    "Checkpoint",
    "ConflictError",
    "IntegrityError",
    "MissingError",
    "OfflineError",
    "TooLargeError",
    "UnreachableError",
    "UnsafeCheckpointError",
    "browse",
    "list_checkpoints",
    "load",
    "publish_shipped",
    "pull",
    "push",
    "serve",
    "show",
]


__getattr__ = lazily(__name__, _HOMES)
