"""``--import MODULE``: your own models, networks and data, for every command."""

import sys
from importlib import import_module
from pathlib import Path

FLAG = "--import"
HELP = "a module of yours that registers models, networks or data; may be repeated"


def take_imports(argv: list[str]) -> tuple[list[str], list[str]]:
    """Import the modules named by ``--import``; return the remaining arguments, and the modules.

    As with ``python -m``, modules in the current folder can be imported; a file ``path/to/mine.py`` works too.
    """
    rest: list[str] = []
    modules: list[str] = []
    words = iter(argv)
    for word in words:
        flag, equals, value = word.partition("=")
        if flag != FLAG:
            rest.append(word)
            continue
        name = value if equals else next(words, "")
        if not name:
            raise ValueError(f"{FLAG} needs the name of a module, e.g. {FLAG} mymodels.")
        modules.append(_import(name))
    return rest, modules


def _import(name: str) -> str:
    folder = Path.cwd()
    if name.endswith(".py"):
        file = Path(name)
        if not file.is_file():
            raise FileNotFoundError(f"{FLAG} {name}: no such file.")
        folder, name = file.resolve().parent, file.stem
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    try:
        import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name.partition(".")[0] and error.name != name:
            raise
        raise ModuleNotFoundError(f"{FLAG} {name}: no such module, neither installed nor in {folder}.") from None
    return name
