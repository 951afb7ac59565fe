"""Registry of models and networks, by the names that checkpoints, configurations and commands use.

A checkpoint holds names and arguments, never code. A name that is not registered is an error; nothing is imported to
find it.
"""

import functools
import inspect
import json
from collections.abc import Callable, Mapping
from fnmatch import fnmatch
from typing import Any, TypeVar

from torch import nn

from unknot.arguments import did_you_mean

MODELS: dict[str, type[Any]] = {}
"""Models by the name that checkpoints and commands use."""

NETWORKS: dict[str, Callable[..., nn.Module]] = {}
"""Encoders, decoders and likelihoods by name."""

Network = str | dict[str, Any] | nn.Module | None
"""A network as models accept it: a registered name, ``{"name": ..., **arguments}``, a module, or ``None``."""

Class = TypeVar("Class", bound=type[Any])
Maker = TypeVar("Maker", bound=Callable[..., nn.Module])


def register_model(cls: Class) -> Class:
    """Register your own model under the name of its class, so that its checkpoints load.

    >>> from unknot.zoo import BetaVAE, list_models, register_model
    >>> @register_model
    ... class QuietVAE(BetaVAE):
    ...     "A β-VAE with a name of its own."
    >>> "QuietVAE" in list_models(), "QuietVAE" in list_models(family="weak")
    (True, False)
    """
    if not (isinstance(cls, type) and hasattr(cls, "from_pretrained") and hasattr(cls, "losses")):
        raise TypeError(f"@register_model is for a subclass of unknot.zoo.Model, such as VAE, got {cls!r}.")
    _claim(MODELS, cls.__name__, cls)
    return cls


def register_network(target: Any = None, *, name: str | None = None) -> Any:
    """Register a network class, or a function that builds a network, under its name.

    Models then take the name, or ``{"name": ..., **arguments}``, as ``encoder``, ``decoder`` or ``likelihood``.
    Networks built this way remember their name and arguments, so that a model that received one as a module can be
    saved too. When a checkpoint is loaded, it chooses the arguments: do not register anything that is unsafe to call
    with untrusted arguments, such as a function that downloads from an address in its arguments.

    Args:
        target: an ``nn.Module`` class, or a function that returns a module. Arguments called ``image_shape`` and
            ``latent_dim`` are filled in by the model.
        name: name to register; by default that of the class or function.

    >>> from math import prod
    >>> from unknot.zoo import BetaVAE, register_network
    >>> @register_network
    ... def wide(image_shape, width=512):
    ...     return nn.Sequential(nn.Flatten(), nn.Linear(prod(image_shape), width), nn.ReLU())
    >>> BetaVAE(encoder={"name": "wide", "width": 64}).hparams.encoder
    {'name': 'wide', 'width': 64}
    """
    if target is None:
        return functools.partial(register_network, name=name)
    if not callable(target) or (isinstance(target, type) and not issubclass(target, nn.Module)):
        raise TypeError(f"@register_network is for a class of nn.Module or a function that makes one, got {target!r}.")
    key = name or target.__name__
    made = _remembering_class(target, key) if isinstance(target, type) else _remembering_function(target, key)
    _claim(NETWORKS, key, made)
    return made


def _claim(registry: dict[str, Any], name: str, target: Any) -> None:
    """Register a name. The same definition may be registered again, as in a notebook, but not replaced by another."""
    old = registry.get(name)
    same = old is not None and (old.__module__, old.__qualname__) == (target.__module__, target.__qualname__)
    if old is not None and not same:
        raise ValueError(f"The name {name!r} is taken by {old.__module__}.{old.__qualname__}; choose another.")
    registry[name] = target


def _remembering_class(cls: type[nn.Module], key: str) -> type[nn.Module]:
    init: Any = cls.__init__

    @functools.wraps(init)
    def remembering(self: nn.Module, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        if type(self) is cls:
            _remember(self, key, inspect.signature(cls), args, kwargs)

    cls.__init__ = remembering  # type: ignore[method-assign, assignment]
    return cls


def _remembering_function(function: Maker, key: str) -> Maker:
    @functools.wraps(function)
    def remembering(*args: Any, **kwargs: Any) -> nn.Module:
        module = function(*args, **kwargs)
        _remember(module, key, inspect.signature(function), args, kwargs)
        return module

    return remembering  # type: ignore[return-value]


def _remember(module: nn.Module, key: str, signature: inspect.Signature, args: Any, kwargs: Any) -> None:
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    arguments = dict(bound.arguments)
    for parameter in signature.parameters.values():
        if parameter.kind == parameter.VAR_KEYWORD:
            arguments |= arguments.pop(parameter.name)
        elif parameter.kind == parameter.VAR_POSITIONAL and not arguments[parameter.name]:
            del arguments[parameter.name]
    module.__dict__["_made_by"] = {"name": key, **arguments}


def make_network(given: Network, role: str, default: str, **sizes: Any) -> tuple[nn.Module, Any]:
    """Build a network from a model's argument, and return it with its description as JSON.

    Args:
        given: see :data:`Network`.
        role: name of the argument, for messages.
        default: registered name used if ``given`` is None.
        sizes: arguments that the model knows, such as ``image_shape``; passed if the network accepts them.
    """
    if isinstance(given, nn.Module):
        return given, _recipe(given)
    recipe: Any = {"name": given or default} if isinstance(given, str | None) else given
    if not isinstance(recipe, Mapping) or not isinstance(recipe.get("name"), str):
        raise ValueError(
            f"{role} must be a registered name, a dictionary with its 'name' and arguments, or a module, got {given!r}."
        )
    arguments = {key: value for key, value in recipe.items() if key != "name"}
    if recipe["name"] not in NETWORKS:
        raise ValueError(
            f"{role}: no network is registered as {recipe['name']!r}. {did_you_mean(recipe['name'], NETWORKS)} "
            "Import the module that registers it with @register_network first, if it is your own."
        )
    target = NETWORKS[recipe["name"]]
    taken = inspect.signature(target).parameters
    everything = any(parameter.kind == parameter.VAR_KEYWORD for parameter in taken.values())
    if unknown := [] if everything else sorted(arguments.keys() - taken.keys()):
        raise ValueError(f"{role}: {recipe['name']} has no arguments {unknown}; it takes {list(taken)}.")
    return target(**{**{key: value for key, value in sizes.items() if key in taken}, **arguments}), given


def _recipe(module: nn.Module) -> dict[str, Any]:
    """Return the description by which a module was built, or its class name if that is unknown or not JSON."""
    recipe = module.__dict__.get("_made_by")
    try:
        return json.loads(json.dumps(recipe)) if recipe else {"unregistered": type(module).__name__}
    except TypeError:
        return {"unregistered": type(module).__name__}


def list_models(filter: str | None = None, family: str | None = None, pretrained: bool | None = None) -> list[str]:
    """Return the names of the models of the zoo and of those registered with :func:`register_model`.

    Args:
        filter: a pattern such as ``"Ada*"``; case is ignored.
        family: only of this family, e.g. ``"weak"``.
        pretrained: only those with a bundled checkpoint (True), or without (False).

    >>> from unknot.zoo import list_models
    >>> list_models("ada*", family="weak")
    ['AdaGVAE', 'AdaMLVAE']
    >>> list_models("*GVAE", pretrained=True)
    ['AdaGVAE', 'GVAE']
    """
    names = sorted(MODELS)
    if filter is not None:
        names = [name for name in names if fnmatch(name.lower(), filter.lower())]
    if family is not None:
        names = [name for name in names if MODELS[name].family == family]
    if pretrained is not None:
        bundled = bundled_models()
        names = [name for name in names if (name in bundled) == pretrained]
    return names


def list_networks() -> list[str]:
    """Return the names of all encoders, decoders and likelihoods.

    >>> from unknot.zoo import list_networks
    >>> [name for name in list_networks() if name.startswith("Residual")]
    ['ResidualDecoder', 'ResidualEncoder']
    """
    return sorted(NETWORKS)


def bundled_models() -> set[str]:
    """Return the names of the models that have a bundled checkpoint."""
    from unknot.checkpoints.names import BUNDLED

    configs = BUNDLED.glob("*/config.json")
    return {json.loads(config.read_text(encoding="utf-8"))["model"] for config in configs}
