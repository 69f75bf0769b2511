"""How the site is built: `make docs`."""

import sys
from pathlib import Path

import fxlab

sys.path.append(str(Path(__file__).parent))

project = "fxlab"
version = release = fxlab.__version__
copyright = "the authors of fxlab"

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "reference_pages"]
# Every name that a docstring refers to is in the reference. Types of signatures, also inner ones, are
# written as the code writes them.
_INNER = r"(fxlab\.\w+|collections|concurrent|os|pathlib|pd|sources|t)\..*"
_ALIASES = (
    r"Alignment|Argument|Arrangement|Choice|Combine|Executor|GraphModule|fx\.Node|Highlight|Metric|Inputs|Limit|Model|ModelLike"
    r"|Node|Pass|PassOrName|Path|SessionLike|StepLoop|View|Where"
)
nitpicky = True
nitpick_ignore_regex = [("py:.*", rf"torch\..*|pandas\..*|tuple\[~torch.*|{_INNER}|{_ALIASES}")]
myst_heading_anchors = 3
source_suffix = {".md": "myst-nb", ".ipynb": "myst-nb", ".rst": "restructuredtext"}
# Notebooks are stored with pictures in place of widgets, so `make docs` runs them anew.
nb_execution_mode = "force"
nb_execution_excludepatterns = ["judge_trained_weights.ipynb"]  # it asks for a package of its own
nb_execution_timeout = 600
nb_execution_raise_on_error = True
# Widgets show what they show without a kernel, and no code for them is fetched.
nb_mime_priority_overrides = [("html", "application/vnd.jupyter.widget-view+json", None)]
nb_ipywidgets_js = {}
exclude_patterns = ["**/.ipynb_checkpoints"]

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
maximum_signature_line_length = 80
napoleon_google_docstring = False
napoleon_use_rtype = False
add_module_names = False

html_theme = "furo"
html_title = "fxlab"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_show_sphinx = False
html_copy_source = False
# The reports that gallery.md shows, which docs/make_gallery.py makes.
html_extra_path = [str(path) for path in [Path(__file__).parents[1] / "build/site"] if path.exists()]
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "github-dark"
