"""PATTERN is read, or refused where it goes wrong."""

from __future__ import annotations

import pytest

from freshline.patterns.pattern import (
    Alternation,
    Anchor,
    Exclusion,
    PatternSequence,
    PatternTextError,
    Repetition,
    Variable,
    parse_pattern,
)

A, B, C = Variable("A"), Variable("B"), Variable("C")


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("a", A),
        ("A B", PatternSequence((A, B))),
        ("A | B C", Alternation((A, PatternSequence((B, C))))),
        ("A*", Repetition(A, 0, None)),
        ("A +?", Repetition(A, 1, None, reluctant=True)),
        ("A??", Repetition(A, 0, 1, reluctant=True)),
        ("A{2}", Repetition(A, 2, 2)),
        ("A { 2 , }?", Repetition(A, 2, None, reluctant=True)),
        ("A{,3}", Repetition(A, 0, 3)),
        ("(A B)+ C", PatternSequence((Repetition(PatternSequence((A, B)), 1, None), C))),
        ("()", PatternSequence(())),
        ("^ A $", PatternSequence((Anchor(True), A, Anchor(False)))),
        ("A {- B* -} C", PatternSequence((A, Exclusion(Repetition(B, 0, None)), C))),
        ("PERMUTE(A, B)", Alternation((PatternSequence((A, B)), PatternSequence((B, A))))),
        ('"a b" `c``d`', PatternSequence((Variable("a b"), Variable("c`d")))),
        ("permute", Variable("PERMUTE")),
        ("A\n\tB", PatternSequence((A, B))),
    ],
)
def test_it_is_read(text, pattern):
    assert parse_pattern(text) == pattern


@pytest.mark.parametrize(
    ("text", "offset"),
    [
        ("", 0),
        ("A |", 3),
        ("| A", 0),
        ("(A", 2),
        ("A)", 1),
        ("A **", 3),
        ("A{3,2}", 1),
        ("A{0}", 1),
        ("A{}", 1),
        ("A{,}", 1),
        ("A{20000}", 1),
        ("^*", 1),
        ("{- A {- B -} -}", 5),
        ("{- A", 4),
        ("A; B", 1),
        ("A -} B", 2),
        ("PERMUTE(A, B, C, A, B, C, A)", 0),
        ("PERMUTE(A,)", 10),
        ("* A", 0),
        ("(" * 200 + "A" + ")" * 200, 100),
    ],
)
def test_it_is_refused_where_it_goes_wrong(text, offset):
    with pytest.raises(PatternTextError) as raised:
        parse_pattern(text)

    assert raised.value.offset == offset
