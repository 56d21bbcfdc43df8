"""Build the documentation site: ``nox -s docs``, or by hand

    sphinx-build -W --keep-going -c docs . build/site

The sources are the repository's own Markdown pages, from its root, so a link that works in the
repository works on the site. The lists of ``docs/index.md`` and
``docs/pages.md`` are the navigation.
"""

import re
import sys
from os.path import normpath
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.util.logging import getLogger

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS.parent))

from docs.docstrings import without_numbers  # noqa: E402 - Sphinx has no path to this package

logger = getLogger(__name__)
INDEX = "docs/index"
SECTION = re.compile(r"^## (.+)\n((?:(?!^## ).*\n)*)", re.MULTILINE)
ENTRY = re.compile(r"^- \[([^]]+)\]\(([\w./-]+)\.md\)(.*(?:\n  .*)*)", re.MULTILINE)

project = "lockgate"
author = "The lockgate authors"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = INDEX
include_patterns = ["*.md", "docs/**"]
exclude_patterns = ["README.md", "docs/monitoring", "docs/_static", "**/__pycache__"]

# A broken link, an unknown anchor and a page outside the navigation are warnings, and the build
# takes warnings as errors.
nitpicky = True
nitpick_ignore_regex = [
    # Types of other packages: their pages are not asked, so that a build needs no network.
    (r"py:.*", r"(?!lockgate).*"),
    # Types that only signatures name.
    (r"py:.*", r"lockgate\.(clock|core|services|stores|web|events|sessions\.\w+)\..*"),
    (r"py:.*", r"lockgate\.\w+\.(App|Server)"),
]

myst_heading_anchors = 4

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
napoleon_use_rtype = False

html_theme = "furo"
html_title = "lockgate"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_extra_path = ["_static/index.html"]
html_show_sphinx = False
html_show_copyright = False
html_theme_options = {"navigation_with_keys": True}


def listed_pages() -> str:
    """Return the index and, below it, the sections of the page that lists all other pages."""
    _, *others = (DOCS / "pages.md").read_text().partition("\n## ")
    return (DOCS / "index.md").read_text() + "".join(others)


def add_navigation(app: Sphinx, page: str, text: list[str]) -> None:
    """Append to the index a hidden table of contents for each section that lists pages."""
    if page != INDEX:
        return
    for title, body in SECTION.findall(listed_pages()):
        pages = "\n".join(path for _, path, _ in ENTRY.findall(body))
        if pages:
            text[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {title}\n\n{pages}\n```\n"


def write_llms_txt(app: Sphinx, failure: Exception | None) -> None:
    """Write ``llms.txt`` (llmstxt.org): the lists of pages, with links to their Markdown."""
    if failure is not None or app.builder.name != "html":
        return
    site = Path(app.outdir)

    def source(link: re.Match[str]) -> str:
        file = Path(normpath(f"_sources/docs/{link[1]}.md.txt"))
        if not (site / file).exists():
            logger.warning("llms.txt: %s does not exist", file)
        return f"]({file.as_posix()})"

    index = re.sub(r"\]\(([\w./-]+)\.md(?:#[\w-]+)?\)", source, listed_pages())
    (site / "llms.txt").write_text(index)


def edit_docstring(
    app: Sphinx, what: str, name: str, documented: object, options: object, lines: list[str]
) -> None:
    """Leave out what serves readers of the code: drawings in modules, numbers of decisions."""
    if what == "module":
        lines.clear()
    lines[:] = without_numbers(lines)


def setup(app: Sphinx) -> None:
    """Connect the functions above to the build."""
    app.connect("source-read", add_navigation)
    app.connect("autodoc-process-docstring", edit_docstring)
    app.connect("build-finished", write_llms_txt)
