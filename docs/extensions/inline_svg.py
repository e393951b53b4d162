"""Puts SVG pictures into the page itself, so that they follow its light and dark colours."""

import html
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform


class InlineSvg(SphinxPostTransform):
    """An image that is an SVG becomes the SVG; its alternative text becomes the picture's name for screen readers."""

    default_priority = 5  # before images are collected for copying
    formats = ("html",)

    def run(self, **_: Any) -> None:
        """Replace."""
        for node in list(self.document.findall(nodes.image)):
            if node["uri"].endswith(".svg"):
                text = (Path(self.app.srcdir) / node["uri"]).read_text(encoding="utf-8")
                label = html.escape(node.get("alt", ""), quote=True)
                text = re.sub(r"<svg ", f'<svg role="img" aria-label="{label}" ', text, count=1)
                node.replace_self(nodes.raw("", f'<div class="figure">{text}</div>', format="html"))


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the transform."""
    app.add_post_transform(InlineSvg)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
