"""Judge the bodies of requests."""

from __future__ import annotations

import json

from graphql import GraphQLError, OperationDefinitionNode, OperationType, parse

from freshline.dagster.webserver.access import Door, Refuse


def judge_body(door: Door, body: bytes, *, read_only: bool) -> Refuse | None:
    """Why a posted body does not reach Dagster; None if it does.

    It is read as Dagster reads it: an object, and for GraphQL one with a query. In read-only mode a document that
    contains a mutation is refused, whichever of its operations is named.

    >>> judge_body(Door.GRAPHQL, b'{"query": "{ version }"}', read_only=True)
    >>> judge_body(Door.GRAPHQL, b'{"query": "mutation { stop }"}', read_only=True).code
    'READ_ONLY'
    """
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        return Refuse("BODY", "the request is not JSON.")
    if not isinstance(content, dict):
        return Refuse("BODY", "a request is one JSON object.")
    if door is not Door.GRAPHQL:
        return None
    query = content.get("query")
    if not isinstance(query, str):
        return Refuse("BODY", "a request of GraphQL has the text `query`.")
    return _judge_query(query) if read_only else None


def _judge_query(query: str) -> Refuse | None:
    try:
        document = parse(query)
    except (GraphQLError, RecursionError):
        return Refuse("BODY", "the query is not GraphQL.")
    mutates = any(
        isinstance(definition, OperationDefinitionNode) and definition.operation is OperationType.MUTATION
        for definition in document.definitions
    )
    return Refuse("READ_ONLY", "the UI is read-only: nothing is changed through it.") if mutates else None
