"""Adapts the pages to the site that MkDocs builds, so that it shows them as the repository does.

Two things differ there. A link to a file outside of the documentation has no target on the site, so the page names the
path of the file instead. Python-Markdown takes `STRUCT<name: ..>` in a sentence for HTML and hides it, so HTML is off.
"""

from __future__ import annotations

import re
from pathlib import Path
from posixpath import normpath
from typing import Any

from markdown import Markdown
from markdown.extensions import Extension

FOLDER = Path(__file__).resolve().parent.relative_to(Path(__file__).resolve().parents[2]).as_posix()
LINK_OUTSIDE = re.compile(r"(?<!!)\[([^\]]*)\]\((\.\./[^)\s#]*)(?:#[^)\s]*)?\)")


def name_files_outside(markdown: str) -> str:
    """Replace each link to a file outside of the documentation by its text and the path of the file.

    >>> name_files_outside("as in the [README](../../README.md#quick-start), and in [refreshing](refresh.md)")
    'as in the `README.md`, and in [refreshing](refresh.md)'
    >>> name_files_outside("see [the example](../examples/spark_asset/README.md)")
    'see the example (`platform/examples/spark_asset/README.md`)'
    """

    def named(link: re.Match[str]) -> str:
        path = normpath(f"{FOLDER}/{link[2]}")
        return f"`{path}`" if path.startswith(link[1]) else f"{link[1]} (`{path}`)"

    return LINK_OUTSIDE.sub(named, markdown)


class WithoutHtml(Extension):
    """Shows `<` and `>` of a page as they are written."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802 - the name that Python-Markdown calls
        md.preprocessors.deregister("html_block")
        md.inlinePatterns.deregister("html")


def on_config(config: Any) -> None:
    """Called by MkDocs before it reads the pages."""
    config.markdown_extensions.append(WithoutHtml())


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by MkDocs with the text of each page."""
    return name_files_outside(markdown)
