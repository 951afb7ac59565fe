"""Convert the docstrings of this project to reStructuredText.

They are text with Google's sections, in which formulae stand indented, ``|`` and ``*`` mean what they mean in
mathematics, and examples come last. A class without a formula shows those of its functional form.
"""

import inspect
import re
from typing import Any

from sphinx.application import Sphinx

SECTION = re.compile(r"(Args|Arguments|Returns|Yields|Raises|Attributes|Note|Notes):$")
MARKED = re.compile(r"(``.+?``|(?<!\S)\*\*\w[^*]*\*\*|:[\w:]+:`[^`]+`|`[^`]+`_{0,2})", re.DOTALL)


def escaped(text: str) -> str:
    r"""Return text in which nothing is markup but literals, roles and bold.

    >>> escaped("|x| and ``a_|b|``, w_ * 2, **in bold**")
    '\\|x\\| and ``a_|b|``, w\\_ \\* 2, **in bold**'
    """
    parts = MARKED.split(text)
    parts[::2] = [re.sub(r"(?<=\w)_(?!\w)", r"\\_", re.sub(r"([*|])", r"\\\1", part)) for part in parts[::2]]
    return "".join(parts)


def blocks(lines: list[str]) -> list[list[str]]:
    """Return paragraphs: runs of lines without an empty one."""
    found: list[list[str]] = [[]]
    for line in lines:
        if line.strip():
            found[-1].append(line)
        elif found[-1]:
            found.append([])
    return [block for block in found if block]


def converted(lines: list[str]) -> list[str]:
    """Return the docstring as reStructuredText."""
    out: list[str] = []
    literal = in_section = example = False
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
            out += [".. code-block:: none", "   :class: formula", "", *(f"   {line}" for line in block)]
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
    return "\n".join(out).split("\n")


def formulae(thing: Any) -> list[str]:
    """Return the formulae and the place in the thesis from the docstring of a function, each after an empty line."""
    text = inspect.getdoc(thing) or ""
    shown = [block for block in blocks(text.split("\n")) if block[0].startswith((".. math::", "Thesis: "))]
    return [line for block in shown for line in ("", *block)]


def process(app: Sphinx, kind: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Convert a docstring of autodoc, before napoleon reads it."""
    from api_pages import functional_form, public_object

    function = functional_form(name, "\n".join(lines))
    if function and not any(line.lstrip().startswith(".. math::") for line in lines):
        summary = lines.index("") if "" in lines else len(lines)
        lines[summary:summary] = formulae(public_object(f"unknot.{function}"))
    lines[:] = converted(lines)


def setup(app: Sphinx) -> dict[str, bool]:
    """Listen to autodoc."""
    app.connect("autodoc-process-docstring", process, priority=100)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
