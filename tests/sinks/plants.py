"""Bugs of sinks and lookups that the claims must find. Each is one replacement, and the claims that fail with it.

The mistakes of a sink of another package are planted in the one of the page "Extensions" (test_stranger.py).
"""

from __future__ import annotations

from functools import partial

from tests.plants import Planted, plant

_bug = partial(plant, slow=True)

CONFORMANCE = "tests/sinks/test_conformance.py"
REJECTED = "test_a_row_that_is_not_taken_fails_or_is_set_aside"
STOPPED = "test_stopped_at_each_point_it_has_each_state_once"
OTHERS = "test_other_writers_are_refused"
ASKED = "tests/sources/lookups/test_conformance.py::TestAnotherPackage"

BUGS: tuple[Planted, ...] = (
    _bug(
        "half a bulk is taken for all of it", "sinks/opensearch/bulk.py",
        '                status, error = item.get("status"), item.get("error") or {}\n',
        "                status, error = 200, {}\n",
        "documents that were not taken are missing, and nobody is told",
        f"tests/scenarios/test_opensearch_story.py::TestOpenSearch::{REJECTED}",
    ),
    _bug(
        "a post is taken for its rows", "sinks/webhook/writer.py",
        "        if 200 <= status < 300:\n", "        if status < 500:\n",
        "rows that the service refused are missing, and nobody is told",
        f"{CONFORMANCE}::TestHook::{REJECTED}",
    ),
    _bug(
        "one row that is not taken is all of its post", "sinks/webhook/writer.py",
        "        half = (start + end) // 2\n", "        return []\n        half = (start + end) // 2\n",
        "rows beside one that the service refused are missing",
        f"{CONFORMANCE}::TestHook::{REJECTED}",
    ),
    _bug(
        "a delivery that was stopped is forgotten", "sinks/webhook/writer.py",
        "        if sending is not None:\n", "        if sending is not None and False:\n",
        "a service has a part of a delivery", f"{CONFORMANCE}::TestHook::{STOPPED}",
    ),
    _bug(
        "the position is not in the transaction", "sinks/jdbc/mysql.py",
        "        yield\n        if staged.rejected:\n",
        '        yield\n        session.run("COMMIT")\n        session.run("START TRANSACTION")\n'
        "        if staged.rejected:\n",
        "rows of a refresh that is killed stay where the table takes them back",
        f"{CONFORMANCE}::TestMariadb::{STOPPED}",
    ),
    _bug(
        "the position of a topic follows its transaction", "sinks/kafka/writer.py",
        "            writing.put_position(delivery.after.table.version + 1, delivery.after.to_json())\n", "",
        "what a topic has is not known", f"{CONFORMANCE}::TestTopic::{OTHERS}",
    ),
    _bug(
        "an older engine writes a folder", "sinks/files/writer.py",
        "        self.require_position(None if newest is None else newest.position, delivery)\n", "",
        "a version of an older engine goes over that of the newer one", f"{CONFORMANCE}::TestFolder::{OTHERS}",
    ),
    _bug(
        "answers are kept once they are committed", "refresh/answers.py",
        "            self._put(batch.serialize())\n", "",
        "a system is asked again for answers that had arrived, and gives others",
        f"{ASKED}::test_a_stop_at_each_point_asks_for_no_answer_that_had_arrived",
    ),
    _bug(
        "answers are forgotten before they are committed", "refresh/answers.py",
        "            journal.close()\n            if journal.rows:\n",
        "            journal.close()\n            journal.remove()\n            if journal.rows:\n",
        "a system is asked again for answers that had arrived, and gives others",
        f"{ASKED}::test_a_stop_at_each_point_asks_for_no_answer_that_had_arrived",
    ),
)  # fmt: skip
