"""Trained checkpoints: find them, load them with the right class, publish them, serve them."""

import warnings
from typing import TYPE_CHECKING, Any

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
    from unknot.hub.publishing import push
    from unknot.hub.publishing_bundled import publish_bundled
    from unknot.hub.publishing_site import publish_site
    from unknot.hub.server.app import serve

# Listing must be fast and not wait for torch, so each name is imported on first use.
_HOMES = {
    "Checkpoint": "listing",
    "browse": "browser.app",
    "list_checkpoints": "listing",
    "load": "loading",
    "publish_bundled": "publishing_bundled",
    "publish_site": "publishing_site",
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
    "publish_bundled",
    "publish_site",
    "pull",
    "push",
    "serve",
    "show",
]


_find = lazily(__name__, _HOMES)


def __getattr__(name: str) -> Any:
    if name == "publish_shipped":
        warnings.warn("unknot.hub.publish_shipped is now publish_bundled.", FutureWarning, stacklevel=2)
        name = "publish_bundled"
    return _find(name)
