"""Tables of text are aligned, and a value cannot draw on the terminal."""

from __future__ import annotations

import pytest

from freshline.report.table_text import count_text, duration_text, freshness_text, printable, table_text, width


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    text = table_text(["name", "rows"], [["a", "1"], ["longer_name", "1,000"]], right=[1])

    assert text.splitlines() == ["name          rows", "a                1", "longer_name  1,000"]


def test_null_is_distinguished_from_an_empty_text() -> None:
    assert table_text(["a", "b"], [[None, "x"], ["", "y"]]).splitlines()[1:] == ["NULL  x", "      y"]


def test_wide_characters_take_two_columns() -> None:
    assert table_text(["a", "b"], [["日本", "x"], ["abcd", "y"]]).splitlines()[1:] == ["日本  x", "abcd  y"]


@pytest.mark.parametrize("text", ["a\nb", "\x1b[2J", "a\rb", "\x00", "\x9b2J", "a\u202eb"])
def test_a_value_cannot_move_the_cursor(text: str) -> None:
    assert printable(text).isprintable()


def test_an_empty_result_shows_its_headers() -> None:
    assert table_text(["a", "b"], []) == "a  b"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "-"), (0, "0.0 s"), (9.94, "9.9 s"), (9.96, "10 s"), (119, "119 s"), (300, "5 min"), (7200, "2 h"),
     (86400, "24 h"), (30 * 86400, "30 d")],
)  # fmt: skip
def test_a_duration_is_said_in_few_digits(seconds: float | None, text: str) -> None:
    assert duration_text(seconds) == text


def test_freshness_is_said_as_it_was_written() -> None:
    assert [freshness_text(s) for s in (1, 60, 61, 7200, 129600)] == ["1 s", "1 min", "61 s", "2 h", "36 h"]


def test_counts_have_thousands() -> None:
    assert (count_text(None), count_text(0), count_text(336776)) == ("-", "0", "336,776")


def test_combining_marks_take_no_column() -> None:
    assert width("é") == 1
