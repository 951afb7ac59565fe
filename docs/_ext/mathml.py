"""Formulae as MathML, made when the site is built: every browser draws it, and no script has to be fetched."""

from html import escape

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator


def mathml(latex: str, display: str) -> str:
    r"""Return a formula as MathML, with script letters as code points, which is how browsers know them.

    >>> "1D49C" in mathml(r"\mathcal{A}", "inline")
    True
    """
    drawn = convert(latex, display=display)
    if "\\" in drawn or "<mi>&</mi>" in drawn:
        raise ValueError(f"a command that latex2mathml does not know, in {latex!r}")
    return drawn


def visit(translator: HTML5Translator, node: nodes.math | nodes.math_block) -> None:
    """Write a formula as MathML instead of a call of MathJax."""
    block = isinstance(node, nodes.math_block)
    try:
        drawn = mathml(node.astext(), "block" if block else "inline")
    except Exception as error:  # whatever the converter meets
        logging.getLogger(__name__).warning("formula: %s", error, location=node)
        drawn = f"<code>{escape(node.astext())}</code>"
    wrapped = f'<div class="math"><div>{drawn}</div></div>' if block else f'<span class="math">{drawn}</span>'
    translator.body.append(wrapped)
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer."""
    app.add_html_math_renderer("mathml", inline_renderers=(visit, None), block_renderers=(visit, None))
    app.config.html_math_renderer = "mathml"
    return {"parallel_read_safe": True, "parallel_write_safe": True}
