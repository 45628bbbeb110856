"""Sphinx: the documentation, built by `sphinx-build -W docs build/docs` without a network."""

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))

from _formulas import draw_block, draw_inline, typeset
from _pages import point_at_copies, write_pages

import fedjax_sel

project = "fedjax_sel"
author = "The fedjax_sel authors"
copyright = "the fedjax_sel authors"
release = fedjax_sel.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "fedjax_sel"
html_static_path = ["_static"]

default_role = "code"  # docstrings write `code` with one backtick
html_math_renderer = "mathml"
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
autodoc_typehints = "none"  # shapes stand in the signature
autodoc_preserve_defaults = True
autodoc_member_order = "bysource"

write_pages(Path(__file__).parent)


def escape_types(_app, _what, _name, _object, _options, lines):
    """Escapes the stars of shapes (`"*m"`), which reStructuredText takes for emphasis."""
    lines[:] = [escape_type(line) if line.startswith(":vartype") else line for line in lines]


def escape_type(line):
    """Returns the line of a type; a number that may be traced is written `float`."""
    name, _, kind = line.removeprefix(":vartype ").partition(": ")
    return f":vartype {name}: " + re.sub(r"[*`|]", r"\\\g<0>", "float" if "numpy.floating" in kind else kind)


STRATEGIES = ("client_selection", "data_selection", "local_training", "correction", "aggregation", "signals")


def typeset_formulas(_app, _what, name, _object, _options, lines):
    """Marks the formulas of the docstrings of strategies and signals."""
    if name.split(".")[1:2] and name.split(".")[1] in STRATEGIES:
        lines[:] = typeset("\n".join(lines)).split("\n")


def setup(app):
    """Draws formulas as MathML, points links of pages at what the site has copies of, and escapes shapes."""
    app.add_html_math_renderer("mathml", (draw_inline, None), (draw_block, None))
    app.connect("autodoc-process-docstring", typeset_formulas, priority=800)  # after napoleon
    app.connect("source-read", lambda _app, _name, source: source.__setitem__(0, point_at_copies(source[0])))
    app.connect("autodoc-process-docstring", escape_types, priority=900)  # after napoleon
