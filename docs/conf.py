"""Configuration of the documentation site; `make docs` builds it."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS))

from generators import commands, http_api  # noqa: E402
from stoker import __version__  # noqa: E402

project = "Stoker"
author = "The authors of Stoker"
copyright = author  # noqa: A001 - Sphinx wants this name
release = version = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinxcontrib.mermaid", "sphinx_copybutton"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build", "generators", "screenshots"]
nitpicky = True
nitpick_ignore_regex = [("py:.*", ".*")]  # types of other libraries have no pages here

myst_heading_anchors = 4
myst_fence_as_directive = ["mermaid"]
mermaid_height = "auto"
mermaid_fullscreen_button = "enlarge"
myst_links_external_new_tab = False
suppress_warnings = ["misc.highlighting_failure"]  # sessions with `…` in them

autodoc_typehints = "signature"
python_maximum_signature_line_length = 80
autodoc_member_order = "bysource"
autoclass_content = "class"
default_role = "code"

html_theme = "furo"
html_title = f"Stoker {version}"
templates_path: list[str] = []
copybutton_prompt_text = r"\$ "
copybutton_prompt_is_regexp = True

# Mermaid draws the diagrams in the browser. `make docs` takes it from npm: the site needs no other host.
_MERMAID = Path(os.environ.get("MERMAID", ""))
_HAS_MERMAID = (_MERMAID / "mermaid.esm.min.mjs").is_file()
if _HAS_MERMAID:
    mermaid_use_local = "mermaid/mermaid.esm.min.mjs"

# Files of the repository that are pages of the site too.
_PAGES_OF_REPOSITORY = {
    "SECURITY.md": "project/security.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changes.md",
    "CODE_OF_CONDUCT.md": "project/code-of-conduct.md",
    "benchmarks/RESULTS.md": "project/benchmarks.md",
}


def _write_generated(_app: Any) -> None:
    """Write the pages that are made from the program."""
    folder = DOCS / "reference" / "commands"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    verbs = commands.verbs()
    (folder / "index.md").write_text(commands.index_of(verbs))
    for verb in verbs:
        (folder / f"{verb.name}.md").write_text(commands.page_of(verb))
    (DOCS / "reference" / "http.md").write_text(http_api.page())


def _copy_mermaid(app: Any, error: Exception | None) -> None:
    """Copy Mermaid's modules to the site that has been built."""
    if error is not None or not _HAS_MERMAID:
        return
    target = Path(app.outdir) / "_static" / "mermaid"
    chunks = Path("chunks", "mermaid.esm.min")
    no_maps = shutil.ignore_patterns("*.map")
    shutil.copytree(_MERMAID / chunks, target / chunks, ignore=no_maps, dirs_exist_ok=True)
    shutil.copy(_MERMAID / "mermaid.esm.min.mjs", target)


def _lead_links_to_pages(_app: Any, docname: str, source: list[str]) -> None:
    """Let links to files of the repository lead to the pages that show them."""
    text = source[0]
    up = "../" * docname.count("/")
    for file, page in _PAGES_OF_REPOSITORY.items():
        text = text.replace(f"]({up}../{file}", f"]({up}{page}")
    source[0] = text


def _lead_included_links(_app: Any, _path: str, _docname: str, source: list[str]) -> None:
    """Let links of an included file of the repository lead to the pages of the site."""
    text = source[0].replace("](docs/", "](../")
    for file, page in _PAGES_OF_REPOSITORY.items():
        text = text.replace(f"]({file}", f"](../{page}")
    source[0] = text


def _mark_code(
    _app: Any, _what: str, _name: str, _object: Any, _options: Any, lines: list[str]
) -> None:
    """Let the indented examples of a docstring be shown as code."""
    for place in reversed(range(1, len(lines) - 1)):
        starts = lines[place + 1].startswith("    ") and not lines[place].strip()
        if starts and lines[place - 1] and not lines[place - 1].startswith((" ", "::")):
            lines[place:place] = ["", "::"]


def setup(app: Any) -> None:
    """Connect the steps above."""
    app.connect("autodoc-process-docstring", _mark_code)
    app.connect("builder-inited", _write_generated)
    app.connect("build-finished", _copy_mermaid)
    app.connect("source-read", _lead_links_to_pages)
    app.connect("include-read", _lead_included_links)
