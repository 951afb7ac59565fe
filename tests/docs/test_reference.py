"""Every page of the reference has a formula, its source, and an example."""

import inspect
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sphinx", reason="needs the extra docs: pip install 'unknot[docs]'")
sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "_ext"))
from api_pages import about, documented, everything, functional_form, public_object
from mathml import mathml
from torchmetrics import Metric

from unknot.solvers.atoms import AtomSet
from unknot.zoo import MODELS

PLAIN = {  # those that have no formula of their own
    *("solvers.atoms.AtomSet", "solvers.atoms.Custom", "solvers.atoms.Lazy", "solvers.atoms.Wrapper"),
    *("metrics.FactorCodes", "solvers.atoms.as_atoms", "solvers.objectives.as_objective", "solvers.objectives.along"),
    "metrics.functional.adjusted",  # has it in words of its own
}


def public(package: str) -> dict[str, Any]:
    module = import_module(f"unknot.{package}")
    return {f"{package}.{name}": getattr(module, name) for name in module.__all__}


def docstring(name: str) -> str:
    return inspect.getdoc(public_object(name)) or ""


def names() -> dict[str, Any]:
    """Models, metrics, their functions, solvers and sets of atoms."""
    found = {f"zoo.{name}": cls for name, cls in MODELS.items() if cls.__module__.startswith("unknot.")}
    found |= {name: thing for name, thing in public("metrics").items() if _is_a(thing, Metric)}
    for package in ("metrics.functional", "solvers"):
        found |= {name: thing for name, thing in public(package).items() if inspect.isfunction(thing)}
    found |= {name: thing for name, thing in public("solvers.atoms").items() if _is_a(thing, AtomSet)}
    return {name: thing for name, thing in found.items() if name not in PLAIN}


def _is_a(thing: Any, base: type) -> bool:
    return inspect.isclass(thing) and issubclass(thing, base)


NAMES = names()


def test_the_names_are_found() -> None:
    assert len(NAMES) > 80


@pytest.mark.parametrize("name", NAMES)
def test_a_page_has_a_formula_its_source_and_an_example(name: str) -> None:
    text, known = inspect.getdoc(NAMES[name]) or "", about(name)
    if function := functional_form(name, text):
        text += inspect.getdoc(public_object(f"unknot.{function}")) or ""
    own = re.search(r"^    .*[=←].*$", text.partition("Args:")[0].partition(">>>")[0], flags=re.MULTILINE)
    assert ".. math::" in text or own, "a formula"
    assert ">>>" in text, "an example that runs"
    assert known.get("references") or re.search(r"Thesis:|chapter|section|Algorithm|20\d\d", text), (
        "its place in the thesis, or a reference"
    )


@pytest.mark.parametrize("name", [name for name in documented().values() if ".. math::" in docstring(name)])
def test_the_formulae_of_a_docstring_can_be_drawn(name: str) -> None:
    formulae = re.findall(r"^( *)\.\. math::(.*(?:\n\1 +\S.*)*)", docstring(name), flags=re.MULTILINE)
    assert formulae
    for _, formula in formulae:
        assert "<math" in mathml("\n".join(line.strip() for line in formula.split("\n")), "block")


@pytest.mark.parametrize("name", everything())
def test_what_is_told_of_a_name_belongs_to_one(name: str) -> None:
    package, _, word = name.rpartition(".")
    assert word in import_module(f"unknot.{package}").__all__


def test_places_in_the_thesis_are_those_of_its_table() -> None:
    """Labels of equations that the reference names are labels that the table of the thesis has."""
    table = (Path(__file__).parents[2] / "docs" / "thesis.md").read_text(encoding="utf-8")
    labels = {label for name in documented().values() for label in re.findall(r'"(eqn?:[\w-]+)"', docstring(name))}
    assert labels
    assert [label for label in labels if f"`{label}`" not in table] == []
