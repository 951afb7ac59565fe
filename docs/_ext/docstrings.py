"""Docstrings as they are written here, made into reStructuredText.

They are text with Google's sections, in which formulae stand indented, ``|`` and ``*`` mean what they mean in
mathematics, and examples come last. A class without a formula shows those of its functional form.
"""

import inspect
import re
from typing import Any

from sphinx.application import Sphinx

SECTION = re.compile(r"(Args|Arguments|Returns|Yields|Raises|Attributes|Note|Notes):$")
LONG = 90
"""Characters of LaTeX in one line; with the sidebars there is room for about 600 pixels."""
MARKED = re.compile(r"(``.+?``|:[\w:]+:`[^`]+`|`[^`]+`_{0,2})", re.DOTALL)


def escaped(text: str) -> str:
    r"""Text in which nothing is markup but literals and roles.

    >>> escaped("|x| and ``a_|b|``, w_ * 2")
    '\\|x\\| and ``a_|b|``, w\\_ \\* 2'
    """
    parts = MARKED.split(text)
    parts[::2] = [re.sub(r"(?<=\w)_(?!\w)", r"\\_", re.sub(r"([*|])", r"\\\1", part)) for part in parts[::2]]
    return "".join(parts)


def parts(formula: str) -> list[str]:
    r"""A long formula in lines, of what its parts define, so that it need not scroll.

    >>> parts(r"a = b,\quad b = c"), len(parts(r"a = b,\quad b = c" + 90 * "+")), parts("")
    (['a = b,\\quad b = c'], 2, [])
    """
    found = formula.split(r",\quad") if len(formula) > LONG else [formula]
    return [part.strip() for part in found if part.strip()]


def blocks(lines: list[str]) -> list[list[str]]:
    """Paragraphs: runs of lines without an empty one."""
    found: list[list[str]] = [[]]
    for line in lines:
        if line.strip():
            found[-1].append(line)
        elif found[-1]:
            found.append([])
    return [block for block in found if block]


def converted(lines: list[str], formula: str = "", place: str = "") -> list[str]:
    """The docstring as reStructuredText, with ``formula`` in LaTeX for its first indented one and the thesis' place."""
    out: list[str] = []
    shown = [line for part in parts(formula) for line in (".. math::", "", f"   {part}", "")]
    shown += (
        [".. rst-class:: thesis", "", f"Thesis: {escaped(place)}. (:doc:`All of it </thesis>`)", ""] if place else []
    )
    literal = in_section = example = placed = False
    for block in blocks(lines):
        indented = block[0].startswith("    ")
        in_section = bool(SECTION.match(block[0].strip())) or (in_section and indented)
        if block[0].lstrip().startswith(">>>"):
            out += [] if example else [".. rubric:: Example", ""]
            out += block
            example = True
        elif in_section:
            out += escaped("\n".join(block)).split("\n")
        elif block[0].lstrip().startswith("..") or any("====" in line for line in block):
            out += block  # a directive, or a table
        elif block[0].startswith("Thesis: "):
            out += [".. rst-class:: thesis", "", escaped(" ".join(block)) + " (:doc:`All of it </thesis>`)"]
        elif indented and not literal:
            own = [".. code-block:: none", "   :class: formula", "", *(f"   {line}" for line in block), ""]
            out += (shown if formula else own + shown) if not placed else own
            placed = True
        elif indented:
            out += block
        else:
            literal = block[-1].endswith("::")
            bullet = re.compile(r"\s*[*-] ")
            starts = [bullet.match(line) for line in block]
            text = [line[start.end() :] if start else line for start, line in zip(starts, block, strict=True)]
            text = escaped("\n".join(text)).split("\n")
            out += [(start[0] if start else "") + line for start, line in zip(starts, text, strict=True)]
        out.append("")
    if not placed:  # no formula of its own: after the summary
        summary = out.index("") + 1
        out[summary:summary] = shown
    return "\n".join(out).split("\n")


def formulae(thing: Any) -> list[str]:
    """Return the formulae and the place in the thesis from the docstring of a function, each after an empty line."""
    text = inspect.getdoc(thing) or ""
    shown = [block for block in blocks(text.split("\n")) if block[0].startswith((".. math::", "Thesis: "))]
    return [line for block in shown for line in ("", *block)]


def process(app: Sphinx, kind: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Convert a docstring of autodoc, before napoleon reads it."""
    from api_pages import about, functional_form, public_object

    known = about(name)
    function = functional_form(name, "\n".join(lines))
    if function and not any(line.lstrip().startswith(".. math::") for line in lines):
        summary = lines.index("") if "" in lines else len(lines)
        lines[summary:summary] = formulae(public_object(f"unknot.{function}"))
    lines[:] = converted(lines, known.get("formula", ""), known.get("thesis", ""))


def setup(app: Sphinx) -> dict[str, bool]:
    """Listen to autodoc."""
    app.connect("autodoc-process-docstring", process, priority=100)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
