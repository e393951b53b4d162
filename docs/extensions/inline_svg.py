"""Inlines SVG images into the pages, so that they follow light and dark colors."""

import html
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform


class InlineSvg(SphinxPostTransform):
    """Replaces SVG images by their content; the alternative text becomes the label for screen readers."""

    default_priority = 5  # before images are collected for copying
    formats = ("html",)

    def run(self, **_: Any) -> None:
        """Replaces every SVG image of the document."""
        for node in list(self.document.findall(nodes.image)):
            if node["uri"].endswith(".svg"):
                text = (Path(self.app.srcdir) / node["uri"]).read_text(encoding="utf-8")
                label = html.escape(node.get("alt", ""), quote=True)
                text = re.sub(r"<svg ", f'<svg role="img" aria-label="{label}" ', text, count=1)
                node.replace_self(nodes.raw("", f'<div class="figure">{text}</div>', format="html"))


def setup(app: Sphinx) -> dict[str, Any]:
    """Registers the transform."""
    app.add_post_transform(InlineSvg)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
