"""Values in the Markdown of Dagster's pages, read by another implementation of CommonMark: they are texts."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from freshline.dagster.markdown import code_list, plain_list
from freshline.report.table_text import printable

pytestmark = pytest.mark.security

HOSTILE = (
    "`![x](https://example.com/pixel.png)`",
    "`` ` ``",
    "a\n\n# heading\n\n[link](https://example.com)",
    "<img src=x onerror=alert(1)> &amp; &#60;",
    "[a]: https://example.com",
    "<https://example.com> **bold** _em_ ~~gone~~ | a | b |",
    "https://example.com/?a=b www.example.com mailto:a@example.com",
    "\\` \\\\",
    "- item\n  - item",
    "1. one",
    "    1",
    "> quoted",
    "",
    " ",
    "\u202e\x9b31m",
    "---",
    "```\ncode\n```",
)
TEXTS = st.one_of(st.sampled_from(HOSTILE), st.text(alphabet="`*_[]()!<>#-+.:/\\&;= \n\ta1é\u202e|~", max_size=30))


def read(markdown):
    """The items of a list, each as the pairs of kind and text of what stands in its line."""
    tokens = MarkdownIt("js-default").parse(markdown)
    kinds = {token.type for token in tokens}
    assert kinds <= {
        "bullet_list_open", "bullet_list_close", "list_item_open", "list_item_close", "paragraph_open",
        "paragraph_close", "inline",
    }, kinds  # fmt: skip
    lines = [token.children or [] for token in tokens if token.type == "inline"]
    return [[(each.type, each.content) for each in line] for line in lines]


# A machine with other work is no finding.
@settings(deadline=None)
@given(st.lists(TEXTS, min_size=1, max_size=3))
def test_a_text_as_code_is_code_alone(texts):
    assert read(code_list(texts)) == [[("code_inline", printable(text) or "  ")] for text in texts]


# A machine with other work is no finding.
@settings(deadline=None)
@given(st.lists(TEXTS.filter(lambda text: text.strip() != ""), min_size=1, max_size=3))
def test_a_plain_text_has_no_sign_with_a_meaning(texts):
    found = read(plain_list(texts))

    assert {kind for item in found for kind, _ in item} <= {"text", "text_special"}
    shown = ["".join(text for _, text in item).replace("\u2060", "") for item in found]
    assert shown == [" ".join(printable(text).split(" ")).strip() for text in texts]
