"""The bodies that may be posted to Dagster."""

from __future__ import annotations

import json

import pytest

from freshline.dagster.webserver.access import Door
from freshline.dagster.webserver.body import judge_body

pytestmark = pytest.mark.security


def code_of(door: Door, body: bytes, *, read_only: bool = False) -> str | None:
    """The code of the refusal, None where there is none."""
    refusal = judge_body(door, body, read_only=read_only)
    return None if refusal is None else refusal.code


def told(query: object, *, read_only: bool = False, door: Door = Door.GRAPHQL) -> str | None:
    return code_of(door, json.dumps({"query": query}).encode(), read_only=read_only)


@pytest.mark.parametrize("body", [b"", b"x", b"[]", b'[{"query": "{a}"}]', b"3", b'{"query": 3}', b"{}", b"[" * 99_999])
def test_a_body_that_is_no_request_of_graphql_is_refused(body):
    assert code_of(Door.GRAPHQL, body) == "BODY"


def test_a_report_is_an_object():
    assert code_of(Door.REPORT, b'{"partition": "2026-11-01"}') is None
    assert code_of(Door.REPORT, b"[]") == "BODY"
    assert code_of(Door.REPORT, b"") == "BODY"


@pytest.mark.parametrize(
    "query",
    [
        "mutation { stopRunningSensor { id } }",
        "mutation M($a: Int) { x(a: $a) { id } } query Q { version }",
        "query Q { version } mutation M { x }",
        "# a comment\n,,mutation{x}",
        "fragment F on Mutation { x } mutation { ...F }",
    ],
)
def test_mutations_are_refused_in_read_only_mode_only(query):
    assert told(query, read_only=True) == "READ_ONLY"
    assert told(query) is None


def test_queries_are_answered_in_read_only_mode():
    assert told("{ version }", read_only=True) is None
    assert told("query mutation { mutation: version }", read_only=True) is None
    assert told('{ search(text: "mutation { x }") { id } }', read_only=True) is None


def test_a_query_that_cannot_be_read_is_no_way_around_it():
    for query in ("mutation {", "{" * 100_000, "", "\ud800"):
        assert told(query, read_only=True) == "BODY"
