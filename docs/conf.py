"""Settings of the documentation site: ``make docs``, or ``sphinx-build -W --keep-going docs build/docs``.

``UNKNOT_DOCS_GALLERY=0`` builds it without running the gallery's scripts, which is what most tests do.
"""

import os
import sys
from importlib.metadata import version as installed
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # two scripts of the gallery run at a time

project = "unknot"
author = "the authors of unknot"
copyright = "the authors of unknot, Apache-2.0"
release = version = installed("unknot")

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "myst_parser",
    "sphinx_design",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
    "mathml",
    "docstrings",
    "api_pages",
]
exclude_patterns = ["_build", "gallery", "examples/*.ipynb", "**sg_execution_times.rst"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
myst_enable_extensions = ["dollarmath", "colon_fence", "deflist", "attrs_inline"]
myst_heading_anchors = 3
suppress_warnings = ["config.cache"]  # the order of the gallery is a function, which is not cached
nitpicky = True  # what looks like a link to a public name must be one
nitpick_ignore_regex = [(r"py:.*", r"(?!unknot\.).*")]
keep_warnings = False

templates_path = ["_templates"]
autosummary_imported_members = True
autosummary_ignore_module_all = False
autosummary_filename_map = {"unknot.studies.analyses.analysis": "unknot.studies.analyses.analysis-function"}
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_member_order = "bysource"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
add_module_names = False
toc_object_entries = False
napoleon_use_ivar = True

sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "examples",
    "filename_pattern": r"/plot_",
    "plot_gallery": os.environ.get("UNKNOT_DOCS_GALLERY", "1") != "0",
    "backreferences_dir": "examples/backreferences",
    "doc_module": ("unknot",),
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "remove_config_comments": True,
    "abort_on_example_error": True,
    "reset_modules": ("matplotlib", "figure_style.reset"),
    "min_reported_time": 1,
    "matplotlib_animations": False,
    "parallel": int(os.environ.get("UNKNOT_DOCS_JOBS", "1")),
}

html_theme = "pydata_sphinx_theme"
html_title = "unknot"
html_context = {"default_mode": "auto"}
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_show_search_summary = False  # summaries are fetched, which a browser refuses for pages on the disk
html_theme_options = {
    "logo": {"text": "unknot", "image_light": "_static/knot.svg", "image_dark": "_static/knot.svg"},
    "navbar_align": "left",
    "collapse_navigation": True,  # a third of the time to build, with some 300 pages in the reference
    "navbar_persistent": [],
    "navbar_end": ["search-button-field", "theme-switcher"],
    "header_links_before_dropdown": 8,
    "show_prev_next": True,
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_sidebars = {"index": [], "thesis": [], "changelog": []}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
