"""Sphinx's settings: Markdown, one theme, nothing that is loaded from elsewhere."""

from pathlib import Path

project = "tangrad"
author = "the developers of tangrad"
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
root_doc = "index"

html_theme = "furo"
html_title = "tangrad"
html_static_path = [str(Path(__file__).parent / "static")]
html_css_files = ["site.css"]
html_search_scorer = str(Path(__file__).parent / "static" / "scorer.js")
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
html_theme_options = {"top_of_page_buttons": []}
pygments_style = "default"
pygments_dark_style = "github-dark"

# Anchors of headings as on GitHub, so that a link works in the repository and on the site.
myst_heading_anchors = 4
myst_enable_extensions = []
# Blocks of programs that are right and that no lexer knows whole (templates, excerpts).
suppress_warnings = ["misc.highlighting_failure"]
