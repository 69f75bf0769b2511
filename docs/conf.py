"""How the site is built: `make docs`."""

import fxlab

project = "fxlab"
version = release = fxlab.__version__
copyright = "the authors of fxlab"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
# Every name that a docstring refers to is in the reference.
nitpicky = True
nitpick_ignore_regex = [("py:.*", r"torch\..*|collections\..*|Limit")]
myst_heading_anchors = 3
source_suffix = {".md": "markdown"}

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the parameters of each docstring say more than the types of its signature
napoleon_google_docstring = False
napoleon_use_rtype = False
add_module_names = False

html_theme = "furo"
html_title = "fxlab"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False
pygments_style = "tango"
pygments_dark_style = "github-dark"
