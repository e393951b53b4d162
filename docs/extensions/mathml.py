"""Renders formulas as MathML, which browsers display without scripts, fonts or network."""

from typing import Any

import latex2mathml.converter
from docutils import nodes
from sphinx.application import Sphinx


def _inline(self: Any, node: nodes.math) -> None:
    self.body.append(latex2mathml.converter.convert(node.astext()))
    raise nodes.SkipNode


def _block(self: Any, node: nodes.math_block) -> None:
    rows = [row.strip() for row in node.astext().split("\n\n") if row.strip()]
    formulas = "".join(latex2mathml.converter.convert(row, display="block") for row in rows)
    self.body.append(f'<div class="math-block" tabindex="0" role="group" aria-label="formula">{formulas}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """Registers the renderer ``mathml``."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
