"""Sphinx configuration.  ``sphinx-build -W docs docs/_build/html`` builds the site; nothing is fetched."""

from __future__ import annotations

import tomllib
from pathlib import Path

_METADATA = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]

project = "flowsched"
author = "flowsched developers"
copyright = "2026, flowsched developers"
release = version = _METADATA["version"]

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = [
    "_build",
    "benchmarks/tables/*_summary.md",
    "benchmarks/tables/*_failures.md",
    "**.ipynb_checkpoints",
]
root_doc = "index"

# Single backquotes in docstrings name Python objects; those that the site does not show stay plain.
default_role = "py:obj"
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

pygments_style = "tango"
pygments_dark_style = "github-dark"
html_theme = "furo"
html_title = f"flowsched {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}
