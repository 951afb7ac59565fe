"""Arguments that a class hands on to its bases as ``**keywords``: written once, shown by all that take them."""

import inspect
from typing import Any

from typing_extensions import Self

from unknot._words import did_you_mean


def signature_of(cls: type[Any]) -> inspect.Signature:
    """The arguments of a class, those that it hands on to its bases as ``**keywords`` included."""
    found: dict[str, inspect.Parameter] = {}
    for base in cls.__mro__:
        if "__init__" in vars(base):
            parameters = list(inspect.signature(vars(base)["__init__"]).parameters.values())[1:]  # without self
            own = [parameter for parameter in parameters if parameter.kind != parameter.VAR_KEYWORD]
            # What comes from further bases can be given by name alone.
            more = [parameter.replace(kind=parameter.KEYWORD_ONLY) for parameter in own] if found else own
            found |= {parameter.name: parameter for parameter in more if parameter.name not in found}
            if len(own) == len(parameters):
                break
    return inspect.Signature(sorted(found.values(), key=lambda parameter: parameter.kind))


class ShowsArguments:
    """A class whose subclasses show, in ``help`` for instance, all arguments that they take, and name one that they do
    not: Python would say so of the base to which it was handed on."""

    __signature__: inspect.Signature

    def __new__(cls, *arguments: Any, **keywords: Any) -> Self:
        """Refuse a name that is no argument; a class of somebody's own may take names that only its code tells."""
        known = cls.__signature__.parameters
        if (unknown := next((name for name in keywords if name not in known), None)) and _is_ours(cls):
            raise TypeError(f"{cls.__name__} has no argument {unknown!r}. {did_you_mean(unknown, known)}")
        return super().__new__(cls)

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        cls.__signature__ = signature_of(cls)


def _is_ours(cls: type[Any]) -> bool:
    return cls.__module__.partition(".")[0] == "unknot"
