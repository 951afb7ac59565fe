"""Additions to autosummary: pictures, references and examples, and links by a name's own module.

``api/about.yaml`` has the picture, the functional form and the literature of a public name.
"""

import functools
import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml
from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.pycode import ModuleAnalyzer

HERE = Path(__file__).parents[1]


@functools.cache
def everything() -> dict[str, dict[str, Any]]:
    """Return the contents of ``api/about.yaml``, by name without ``unknot.``."""
    return yaml.safe_load((HERE / "api" / "about.yaml").read_text(encoding="utf-8")) or {}


def about(name: str) -> dict[str, Any]:
    """Return the facts about a public name; a class shares those of the function it wraps."""
    known = everything().get(name.removeprefix("unknot."), {})
    return everything().get(known["function"], {}) | known if "function" in known else known


@functools.cache
def packages() -> list[str]:
    """Return the packages of the reference, as ``api/index.md`` lists them."""
    listed = re.findall(r"^   (unknot\.\S+)$", (HERE / "api" / "index.md").read_text(encoding="utf-8"), re.MULTILINE)
    modules = [name for name in listed if not name.rpartition(".")[2].isupper()]
    return [name for name in modules if hasattr(import_module(name), "__all__")]


@functools.cache
def documented() -> dict[Any, str]:
    """Return the name under which each public class and function has its page: the first in the reference."""
    names: dict[Any, str] = {}
    for package in packages():
        for word in import_module(package).__all__:
            thing = getattr(import_module(package), word)
            if inspect.isclass(thing) or inspect.isroutine(thing):
                names.setdefault(thing, f"{package}.{word}")
    return names


def value_docstring(name: str) -> list[str]:
    """Return the docstring under the assignment of a public value."""
    package, _, word = name.rpartition(".")
    folder = Path(str(import_module(package).__file__)).parent
    for file in [folder / "__init__.py", *sorted(folder.glob("*.py"))]:
        module = package + ("" if file.stem == "__init__" else f".{file.stem}")
        docs = ModuleAnalyzer.for_module(module).find_attr_docs()
        if ("", word) in docs:
            return docs["", word]
    raise LookupError(f"{name} has no docstring under its assignment")


def public_object(name: str) -> Any:
    """Return the object of a public name, also where a module has the same name."""
    package, _, word = name.rpartition(".")
    return getattr(import_module(package), word)


def functional_form(name: str, text: str) -> str | None:
    """Return the name of the function that a class wraps, without ``unknot.``, or ``None``."""
    return about(name).get("function") or (re.findall(r"see :func:`~?unknot\.([\w.]+)`", text) or [None])[0]


def sections(name: str, text: str) -> list[str]:
    """Return the lines below a docstring: picture, functional form, references."""
    known, lines = about(name), []
    if "picture" in known:
        lines += [
            "",
            f".. figure:: /{known['picture']}",
            f"   :alt: {known['caption']}",
            "",
            f"   {known['caption']}",
            "",
        ]
    if function := functional_form(name, text):
        lines += ["", ".. rubric:: Functional form", "", f":py:func:`unknot.{function}`", ""]
    more = [f"* {reference}" for reference in known.get("references", [])]
    more += [f"* :doc:`/{page}`" for page in known.get("pages", [])]
    examples = HERE / "examples" / "backreferences" / f"{name}.examples"
    if examples.exists() and "sphx-glr-thumbcontainer" in examples.read_text(encoding="utf-8"):
        lines += ["", ".. rubric:: Examples that use this", "", f".. minigallery:: {name}", ""]
    return [*lines, *(["", ".. rubric:: References", "", *more, ""] if more else [])]


def complete(app: Sphinx, kind: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Complete a docstring of autodoc, after napoleon has read it."""
    if kind == "data":
        lines[:] = value_docstring(name)
    elif kind in ("class", "function"):
        lines += sections(name, "\n".join(lines))


def public(app: Sphinx, env: BuildEnvironment, node: pending_xref, content: nodes.Element) -> nodes.Element | None:
    """Lead a link by the module of a definition to the public page; without a page it is text, but must exist."""
    target = str(node.get("reftarget", ""))
    if node.get("refdomain") != "py" or not target.startswith("unknot."):
        return None
    thing, names = resolve(target)
    if thing is None:
        return None  # Sphinx warns
    page = documented().get(thing) if callable(thing) else None
    if page is None and names:
        return content
    found = env.domains.python_domain.resolve_xref(
        env, node["refdoc"], app.builder, node["reftype"], page or target, node, content
    )
    return found or content


def resolve(target: str) -> tuple[Any, list[str]]:
    """Return the object of a dotted name and its parts within the module; ``None`` if there is no such object."""
    parts = target.split(".")
    for length in range(len(parts), 0, -1):
        try:
            thing: Any = import_module(".".join(parts[:length]))
        except ImportError:
            continue
        for part in parts[length:]:
            thing = getattr(thing, part, None)
        return thing, parts[length:]
    return None, []


def setup(app: Sphinx) -> dict[str, bool]:
    """Listen to autodoc and to links."""
    app.connect("autodoc-process-docstring", complete, priority=900)
    app.connect("missing-reference", public)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
