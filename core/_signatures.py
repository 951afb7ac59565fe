"""Arguments that a class hands on to its bases as ``**keywords``: written once, shown by all that take them."""

import inspect
from typing import Any


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
    """A class whose subclasses show, in ``help`` for instance, all arguments that they take."""

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        cls.__signature__ = signature_of(cls)  # type: ignore[attr-defined]
