"""A real OpenSearch takes documents by version, and keeps them when it is killed."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.servers.opensearch import OpenSearchServer
from tests.servers.web import Fault, web_server

pytestmark = pytest.mark.slow


def bulk(index: str, *actions: tuple[str, str, int, dict[str, object] | None]) -> str:
    lines: list[dict[str, object]] = []
    for action, key, version, document in actions:
        lines.append({action: {"_index": index, "_id": key, "version": version, "version_type": "external_gte"}})
        lines += [] if document is None else [document]
    return "".join(json.dumps(line) + "\n" for line in lines)


def test_an_older_version_is_refused_an_equal_one_repeated_and_a_document_of_another_type_alone(
    opensearch: OpenSearchServer,
):
    index = opensearch.new_name()
    types = {"mappings": {"properties": {"n": {"type": "long"}}}}
    assert opensearch.ask("PUT", f"/{index}", types)[0] == 200

    first = opensearch.ask("POST", "/_bulk", bulk(index, ("index", "a", 5, {"n": 1}), ("index", "b", 5, {"n": "x"})))
    second = opensearch.ask("POST", "/_bulk", bulk(index, ("index", "a", 4, {"n": 0}), ("index", "a", 5, {"n": 2})))

    assert (first[0], first[1]["errors"]) == (200, True)
    assert [item["index"]["status"] for item in first[1]["items"]] == [201, 400]
    assert [item["index"]["status"] for item in second[1]["items"]] == [409, 200]
    assert opensearch.documents(index) == {"a": {"n": 2}}


def test_documents_are_there_after_a_power_cut(opensearch: OpenSearchServer):
    index = opensearch.new_name()
    opensearch.ask("POST", "/_bulk", bulk(index, ("index", "a", 1, {"n": 1}), ("index", "b", 1, {"n": 2})))
    opensearch.ask("POST", "/_bulk", bulk(index, ("delete", "b", 2, None)))

    opensearch.process.kill()
    with pytest.raises(OSError, match="refused"):
        opensearch.ask("GET", "/")
    opensearch.start()

    assert opensearch.documents(index) == {"a": {"n": 1}}


def test_a_front_loses_the_answer_of_a_bulk_that_was_done(opensearch: OpenSearchServer):
    index = opensearch.new_name()
    with web_server(behind=opensearch.port) as front:
        front.next(Fault.CUT, path="_bulk", then_fail=True)
        through = OpenSearchServer(opensearch.process, replace(opensearch.node, port=front.port))
        with pytest.raises(OSError, match="closed connection without response"):
            through.ask("POST", "/_bulk", bulk(index, ("index", "a", 1, {"n": 1})))

    assert opensearch.documents(index) == {"a": {"n": 1}}
