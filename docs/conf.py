"""The documentation site: Sphinx's configuration. ``make docs`` builds it into ``docs/_build``, without a network."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

project = "coulomb"
author = "the authors of coulomb"
language = "en"
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "extensions.mathml",
    "extensions.inline_svg",
    "extensions.docstrings",
    "extensions.listings",
    "extensions.pages",
]
exclude_patterns = ["_build", "static", "extensions"]
source_suffix = {".md": "markdown"}

myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3
html_math_renderer = "mathml"

autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "exclude-members": "extra_repr"}
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
add_module_names = False
toc_object_entries_show_parents = "hide"
default_role = "py:obj"
napoleon_numpy_docstring = False
napoleon_use_rtype = False
pygments_style = "friendly"
pygments_dark_style = "github-dark"

html_theme = "furo"
html_title = "coulomb"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False
html_show_search_summary = False  # it would fetch pages, which browsers refuse for files
html_theme_options = {"top_of_page_buttons": []}
