"""The reference: a page for every public name, in one order, and an index for each package.

What it is for, its formula and where the thesis has it, inputs and outputs, an example: these come from the docstring.
Then a picture, the functional form, methods, the gallery's examples that use it, and references, from what is found and
from ``api/about.yaml``. The pages are written when the site is built and are no part of the repository.
"""

import functools
import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml
from docstrings import escaped
from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.pycode import ModuleAnalyzer

HERE = Path(__file__).parents[1]
PACKAGES = {
    "zoo": "Models",
    "datamodules": "Data",
    "metrics": "Metrics",
    "metrics.functional": "Metrics: functions",
    "solvers": "Solvers",
    "solvers.atoms": "Solvers: sets of atoms",
    "solvers.objectives": "Solvers: objectives",
    "hub": "Hub",
    "studies": "Studies",
    "studies.analyses": "Studies: analyses",
}
MODULES = {  # modules without an ``__all__`` that pages or public names speak of
    "solvers.geometry": "solvers",
    "solvers.terms": "solvers",
    "solvers.boosting": "solvers",
    "zoo.pictures": "zoo",
    "studies.theory": "studies",
    "studies.report": "studies",
    "studies.statistics": "studies",
    "studies.synthetic": "studies",
    "metrics.functional.trees": "metrics.functional",
    "machine": "studies",
}

PLUMBING = {"networks", "registry", "likelihoods", "base", "batches", "labels", "lines", "maps", "errors"}
"""Modules that come last in an index, although they have many names."""


@functools.cache
def everything() -> dict[str, dict[str, Any]]:
    """What ``api/about.yaml`` knows, by name without ``unknot.``."""
    return yaml.safe_load((HERE / "api" / "about.yaml").read_text(encoding="utf-8")) or {}


def about(name: str) -> dict[str, Any]:
    """What is known of a public name; a class shares what is known of the function it wraps."""
    known = everything().get(name.removeprefix("unknot."), {})
    return everything().get(known["function"], {}) | known if "function" in known else known


class Name:
    """A public name: where it is imported from, what it is, and its page."""

    def __init__(self, package: str, name: str) -> None:
        self.package, self.name = package, name
        self.object = getattr(import_module(f"unknot.{package}"), name)
        self.full = f"unknot.{package}.{name}"
        is_data = not callable(self.object)
        kinds = {"class": inspect.isclass(self.object), "module": inspect.ismodule(self.object), "data": is_data}
        self.kind = next((kind for kind, found in kinds.items() if found), "function")

    @property
    def role(self) -> str:
        """A link to it."""
        return f":py:{ {'class': 'class', 'module': 'mod', 'data': 'data'}.get(self.kind, 'func') }:`~{self.full}`"

    @property
    def page(self) -> str:
        """Of its file in the package's folder; some file systems know no capitals."""
        names = import_module(f"unknot.{self.package}").__all__
        twins = [name for name in names if name.lower() == self.name.lower()]
        return self.name + ("-class" if len(twins) > 1 and self.kind == "class" else "")

    @property
    def home(self) -> str:
        """The module that it is written in."""
        if self.kind == "data":
            return data_home(self.package, self.name)[0]
        return getattr(self.object, "__module__", f"unknot.{self.package}")

    @property
    def text(self) -> str:
        """Its docstring, or the comment under a value."""
        return data_home(self.package, self.name)[1] if self.kind == "data" else inspect.getdoc(self.object) or ""


@functools.cache
def data_home(package: str, name: str) -> tuple[str, str]:
    """The module of a value, and what is written under it."""
    folder = Path(str(import_module(f"unknot.{package}").__file__)).parent
    for file in [folder / "__init__.py", *sorted(folder.glob("*.py"))]:
        module = f"unknot.{package}" + ("" if file.stem == "__init__" else f".{file.stem}")
        docs = ModuleAnalyzer.for_module(module).find_attr_docs()
        if ("", name) in docs:
            return module, "\n".join(docs["", name]).strip()
    raise LookupError(f"unknot.{package}.{name} has no docstring under its assignment")


def first_sentence(text: str) -> str:
    """The summary of a docstring, on one line.

    >>> first_sentence("β-VAE (Higgins et al., 2017), paragraph:\\n\\n    max ...")
    'β-VAE (Higgins et al., 2017), paragraph'
    """
    paragraph = " ".join(text.strip().split("\n\n")[0].split())
    sentence = re.split(r"(?<=[a-z)`\]])\. (?=[A-Z])|; see :func:", paragraph)[0]
    return escaped(sentence.rstrip(".:;"))


def heading(text: str, line: str) -> list[str]:
    """A title."""
    return [text, line * (2 * len(text)), ""]


def methods(name: Name) -> tuple[list[str], dict[str, list[str]]]:
    """Public methods to document on this page, and those that a base class with a page of its own documents."""
    own: list[str] = []
    inherited: dict[str, list[str]] = {}
    seen: set[str] = set()
    ours = [base for base in name.object.__mro__ if base.__module__.startswith("unknot.")]
    for base in ours:
        # A base without a page of its own is documented with the most general class that has one.
        owner = [each for each in ours if each in PAGES and base in each.__mro__][-1]
        for method, value in vars(base).items():
            function = getattr(value, "__func__", value)
            plain = inspect.isfunction(function) or isinstance(value, property | functools.cached_property)
            if method.startswith("_") or method in seen or not plain or not getattr(function, "__doc__", ""):
                continue
            seen.add(method)
            if owner is name.object:
                own.append(method)
            else:
                inherited.setdefault(PAGES[owner].full, []).append(method)
    return own, inherited


def sections(name: Name, examples: Path) -> list[str]:
    """What stands below the docstring."""
    lines: list[str] = []
    known = about(name.full)
    if "picture" in known:
        lines += heading("Picture", "-")
        lines += [f".. figure:: /{known['picture']}", f"   :alt: {known['caption']}", "", f"   {known['caption']}", ""]
    function = known.get("function") or (re.findall(r"see :func:`~?unknot\.([\w.]+)`", name.text) or [None])[0]
    if function:
        lines += [*heading("Functional form", "-"), f":py:func:`unknot.{function}`", ""]
    if name.kind == "class":
        own, inherited = methods(name)
        if own or inherited:
            lines += heading("Methods", "-")
        for method in own:
            found = inspect.getattr_static(name.object, method)
            directive = "automethod" if callable(found) or hasattr(found, "__func__") else "autoproperty"
            lines += [f".. {directive}:: {name.name}.{method}", ""]
        for base, names in inherited.items():
            links = ", ".join(f":py:meth:`~{base}.{method}`" for method in names)
            lines += [f"From :py:class:`~{base}`: {links}.", ""]
    found = examples / f"{name.full}.examples"
    if found.exists() and "sphx-glr-thumbcontainer" in found.read_text(encoding="utf-8"):
        lines += [*heading("Examples that use this", "-"), f".. minigallery:: {name.full}", ""]
    more = [f"* {text}" for text in known.get("references", [])]
    more += [f"* :doc:`/{page}`" for page in known.get("pages", [])]
    if more:
        lines += [*heading("References", "-"), *more, ""]
    return lines


def page_of(name: Name, examples: Path) -> str:
    """The page of a name."""
    lines = [*heading(name.name, "="), f".. currentmodule:: unknot.{name.package}", ""]
    if name.kind == "data":
        lines += [f".. py:data:: {name.name}", "", *(f"   {line}" for line in name.text.split("\n")), ""]
    else:
        lines += [f".. auto{name.kind}:: {name.name}", ""]
    return "\n".join(lines + sections(name, examples))


def index_of(package: str, names: list[Name]) -> str:
    """The index of a package: its names by the module they come from, which says what they have in common."""
    module = import_module(f"unknot.{package}")
    lines = [*heading(PACKAGES[package], "="), f".. py:module:: unknot.{package}", ""]
    lines += [f"``unknot.{package}``: {first_sentence(module.__doc__ or '')}.", ""]
    homes: dict[str, list[Name]] = {}
    for name in names:
        homes.setdefault(name.home, []).append(name)
    for home in sorted(homes, key=lambda home: (home.rpartition(".")[2] in PLUMBING, -len(homes[home]), home)):
        lines += heading(first_sentence(import_module(home).__doc__ or home).partition(":")[0], "-")
        lines += [".. list-table::", "   :widths: 30 70", "   :class: names", ""]
        for name in homes[home]:
            lines += [f"   * - {name.role}", f"     - {first_sentence(name.text)}"]
        lines.append("")
    modules = [module for module, where in MODULES.items() if where == package]
    if modules:
        lines += [*heading("Modules", "-"), ".. list-table::", "   :widths: 30 70", "   :class: names", ""]
        for each in modules:
            lines += [f"   * - :py:mod:`unknot.{each}`"]
            lines += [f"     - {first_sentence(import_module(f'unknot.{each}').__doc__ or '')}"]
        lines.append("")
    children = [name.page for name in names if name.package == package and name.kind != "module"]
    lines += [".. toctree::", "   :hidden:", "", *(f"   {child}" for child in sorted(children, key=str.lower))]
    return "\n".join(lines + [f"   {each.rpartition('.')[2]}" for each in modules])


def module_page(module: str) -> str:
    """The page of a module without ``__all__``: everything in it."""
    title = module.rpartition(".")[2]
    return "\n".join([*heading(title, "="), f".. automodule:: unknot.{module}", "   :members:", ""])


PAGES: dict[Any, Name] = {}
"""The page of each class and function: that of the package nearest to the root."""


def write(path: Path, text: str) -> None:
    """Only what changed, so that only that is read again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def generate(app: Sphinx) -> None:
    """Write all pages, and remove those of names that are no more."""
    root, examples = Path(app.srcdir) / "api", Path(app.srcdir) / "examples" / "backreferences"
    listed: dict[str, list[Name]] = {}
    for package in PACKAGES:
        listed[package] = []
        for word in import_module(f"unknot.{package}").__all__:
            name = Name(package, word)
            if name.kind in ("class", "function"):
                name = PAGES.setdefault(name.object, name)
            listed[package].append(name)
    written: set[Path] = set()
    for package, names in listed.items():
        folder = root / package.replace(".", "/")
        texts = {folder / "index.rst": index_of(package, names)}
        for name in names:
            if name.package == package and name.kind != "module":
                texts[folder / f"{name.page}.rst"] = page_of(name, examples)
        for module, where in MODULES.items():
            if where == package:
                texts[folder / f"{module.rpartition('.')[2]}.rst"] = module_page(module)
        for path, text in texts.items():
            write(path, text)
        written |= texts.keys()
    for path in set(root.rglob("*.rst")) - written:
        path.unlink()


def public(app: Sphinx, env: BuildEnvironment, node: pending_xref, content: nodes.Element) -> nodes.Element | None:
    """A link to a name by the module it is written in leads to its page; what has none is no link, but must exist."""
    target = str(node.get("reftarget", ""))
    if node.get("refdomain") != "py" or not target.startswith("unknot."):
        return None
    thing, names = found_object(target)
    if thing is None:
        return None  # which Sphinx warns of
    page = PAGES.get(thing) if callable(thing) else None
    if page is None and names:
        return content
    full = page.full if page else target
    found = env.domains.python_domain.resolve_xref(
        env, node["refdoc"], app.builder, node["reftype"], full, node, content
    )
    return found or content


def found_object(target: str) -> tuple[Any, list[str]]:
    """What a dotted name stands for, and the part of it that is no module; ``None`` if there is no such thing."""
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
    """After the gallery, whose examples the pages link to."""
    app.connect("builder-inited", generate, priority=900)
    app.connect("missing-reference", public)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
