"""The documentation site: Sphinx's configuration. ``make docs`` builds it into ``docs/_build``, without a network."""

import os
import sys
from pathlib import Path

import matplotlib.font_manager  # noqa: F401  (builds its cache of fonts, which a notebook would report as an error)
from jupyter_client.manager import KernelManager

sys.path.insert(0, str(Path(__file__).parent))

project = "coulomb"
author = "the authors of coulomb"
language = "en"
extensions = [
    "myst_nb",  # Markdown, and the notebooks among it
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "extensions.mathml",
    "extensions.inline_svg",
    "extensions.docstrings",
    "extensions.listings",
    "extensions.pages",
]
exclude_patterns = ["_build", "static", "extensions", "jupyter_execute"]
source_suffix = {".md": "myst-nb"}

os.environ["PYTHONWARNINGS"] = "ignore:IProgress not found"  # of the notebooks: tqdm would like to draw with ipywidgets

if hasattr(KernelManager, "transport_encryption"):  # else ipykernel warns that others could listen to the notebooks
    KernelManager.transport_encryption.default_value = "auto"

# Notebooks are executed whenever the site is built, and no output is stored: a picture shows what this version does.
nb_execution_mode = "force"
nb_execution_timeout = 600  # of a cell, in seconds
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_output_stderr = "error"
nb_merge_streams = True

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
napoleon_custom_sections = [("Shape", "params_style")]
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
