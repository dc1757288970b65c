"""The options of a connector or format, read by their kinds."""

from __future__ import annotations

import pytest

from freshline.values.location import Location, Written
from freshline.values.options import Kind, Option, Options
from freshline.values.rules import Problems

TABLE = (
    Option("text", "a text", required="what is needed"),
    Option("as-written", "a text with its blanks", Kind.RAW),
    Option("time.out", "a length of time", Kind.SECONDS, field="timeout_seconds", least=0),
    Option("most", "a number", Kind.WHOLE, greatest=10),
    Option("loud", "yes or no", Kind.BOOLEAN),
    Option("way", "one of two", Kind.CHOICE, choices=("left", "right")),
    Option("client.", "handed on", field="client", is_beginning=True),
)


def read(**written: str) -> tuple[dict[str, object], list[str]]:
    problems = Problems()
    given = {name: Written(value, 3) for name, value in written.items()}
    known = tuple(option.name for option in TABLE)
    options = Options(given, Location("s.sql", 1), problems, known, ("client.",))
    return options.values(TABLE), [error.message for error in problems.errors]


def test_each_kind_is_read_into_the_field_of_its_option():
    found, problems = read(
        **{
            "text": " a ",
            "as-written": " b ",
            "time.out": "2 minutes",
            "most": "10",
            "loud": "true",
            "way": "Left",
            "client.a.b": "c",
        }
    )

    assert problems == []
    assert found == {
        "text": "a",
        "as_written": " b ",
        "timeout_seconds": 120,
        "most": 10,
        "loud": True,
        "way": "left",
        "client": {"a.b": "c"},
    }


def test_an_option_that_is_not_written_is_left_to_the_field():
    assert read() == ({"text": "", "client": {}}, [])


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("most", "11", "Accepted is a whole number from 1 to 10."),
        ("way", "up", "Accepted is left or right."),
        ("loud", "loudly", "Accepted is true or false."),
        ("time.out", "soon", "soon is not a length of time"),
        ("text", " ", "Accepted is a text that is not empty."),
    ],
)
def test_a_value_that_an_option_does_not_accept_is_a_problem(name, value, said):
    (problem,) = read(**{name: value})[1]

    assert said in problem
