"""The site: `make docs` builds it into docs/_build/html, with warnings as errors."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))

from fedge import __version__  # noqa: E402

project, author, release = "fedge", "The fedge developers", __version__
copyright = "The fedge developers; Apache-2.0"
extensions = ["myst_nb", "from_program"]
exclude_patterns = ["_build", "_ext"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
nb_ipywidgets_js = {}  # nothing is fetched by a page: the site works from a folder, offline
nb_execution_mode = "off"  # outputs are stored; tests/docs run the cells again
highlight_language = "none"
maximum_signature_line_length = 80
python_display_short_literal_types = True
add_module_names = False
html_theme = "furo"
html_title = f"fedge {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0b6e6e", "color-brand-content": "#0b6e6e"},
    "dark_css_variables": {"color-brand-primary": "#5ec8c0", "color-brand-content": "#5ec8c0"},
}
