"""Which part of the page a model gets, read from what it says it can do."""

from collections.abc import Collection
from typing import Any

from unknot.zoo import MODELS


def describe_model(name: str | None) -> dict[str, Any]:
    """Return family, capabilities and part of the page of a registered model; nothing of one that is not known.

    >>> describe_model("BetaVAE")["family"], describe_model("BetaVAE")["kind"], describe_model("no such model")
    ('vae', 'latents', {})
    """
    cls = MODELS.get(name or "")
    if cls is None:
        return {}
    return {"family": cls.family, "kind": kind_of(cls.capabilities), "capabilities": sorted(cls.capabilities)}


def kind_of(capabilities: Collection[str]) -> str | None:
    """Return the part of the page: ``"latents"``, ``"slots"``, ``"sets"`` or ``"matrices"``.

    >>> kind_of({"codes", "decode"}), kind_of({"codes"}), kind_of({"sets"})
    ('latents', None, 'sets')
    """
    if {"codes", "decode"} <= set(capabilities):
        return "latents"
    parts = {"reasoning": "matrices", "slots": "slots", "sets": "sets"}
    return next((part for capability, part in parts.items() if capability in capabilities), None)
