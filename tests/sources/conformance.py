"""The claims that every connector is held to, whoever wrote it.

A connector is tested by a class that derives from `Conformance` and has a fixture `system`: the system outside, with
what the claims need to do to it.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import pytest

from freshline.declare.connector import RECORD
from freshline.declare.registry import find_connector
from freshline.errors import DeclarationErrors, RequestError
from freshline.plan.position import position_from_json
from freshline.plan.receipt import Receipt
from freshline.testing import Crash, Lab

LOG_POINTS = ("log-before-quarantine", "log-after-quarantine", "log-before-commit", "log-after-commit")
SECRET = "hunter2-is-the-secret"
Row = Mapping[str, object]


class System(ABC):
    """A system outside, of which one source `s` is declared.

    `broken` is a record that is none, and `code` its code of quarantine. `may_be_null` are metadata that a record need
    not have. `replays` says that what was read can be read again, else `lost` is the code of the error. `gone` is the
    code of the error when the system is taken away. `secret` is an option for a secret; the system can be read with
    what `held` makes of SECRET.
    """

    connector: ClassVar[str]
    format: ClassVar[str] = "json"
    broken: ClassVar[bytes] = b'{"id": 1'
    code: ClassVar[str] = "NOT_JSON"
    replays: ClassVar[bool] = True
    lost: ClassVar[str] = ""
    has_tail: ClassVar[bool] = True
    may_be_null: ClassVar[frozenset[str]] = frozenset()
    gone: ClassVar[str] = "SOURCE"
    comes_back: ClassVar[bool] = True
    secret: ClassVar[str]

    def __init__(self, lab: Lab) -> None:
        self.lab = lab

    @property
    @abstractmethod
    def options(self) -> dict[str, str]:
        """What every declaration of the source has in WITH, beside the connector and the format."""

    def declare(self, columns: str = "id INT, a STRING", **more: str) -> None:
        options = {"connector": self.connector, "format": self.format, **self.options, **more}
        given = ", ".join(f"'{name}' = '{value}'" for name, value in options.items())
        self.lab.declare(f"CREATE SOURCE s ({columns}) WITH ({given})")

    def encode(self, row: Row) -> bytes:
        return json.dumps(row).encode()

    def send(self, *records: Row | bytes) -> None:
        """Records that the next inspection finds, in this order."""
        self.put([record if isinstance(record, bytes) else self.encode(record) for record in records])

    def held(self, secret: str) -> str:
        """The text that the option for a secret stands for, which contains the secret."""
        return secret

    @abstractmethod
    def put(self, records: list[bytes]) -> None:
        """Records as they are."""

    @abstractmethod
    def take_away(self) -> None:
        """The system cannot be reached any more."""

    def bring_back(self) -> None:
        """The same system is there again, where it can be."""
        raise NotImplementedError


def ids(lab: Lab, name: str = "s") -> list[object]:
    return [row["id"] for row in lab.rows(name)]


def receipt_of(lab: Lab) -> Receipt:
    receipt = lab.receipt("s")
    assert receipt is not None
    return receipt


class FormatConformance:
    """What records become, whatever brings them: all that a format decides."""

    def test_each_record_is_a_row_once(self, lab, system):
        system.declare()
        system.send({"id": 1, "a": "x"}, {"id": 2, "a": "y"})
        first = lab.refresh("s")

        assert (first.state, first.strategy, first.rows_in, first.rows_out) == ("SUCCEEDED", "append", 2, 2)
        assert first.data_timestamp is not None
        assert lab.refresh("s").strategy == "noop"
        system.send({"id": 3, "a": "z"})
        assert lab.refresh("s").rows_out == 1
        assert lab.rows("s") == [{"id": 1, "a": "x"}, {"id": 2, "a": "y"}, {"id": 3, "a": "z"}]

    def test_what_is_no_record_is_in_quarantine_and_the_rest_goes_on(self, lab, system):
        system.declare("id INT, a STRING, PRIMARY KEY (id)")
        system.send({"id": 1, "a": "x"}, system.broken, b"\xff\xfe", {"a": "without a key"}, {"id": 2, "a": "y"})
        outcome = lab.refresh("s")

        assert (outcome.state, outcome.rows_out, outcome.rejected) == ("SUCCEEDED", 2, 3)
        assert ids(lab) == [1, 2]
        found = {row["error"]: bytes(row["raw"]) for row in lab.quarantine("s")}
        assert found.keys() == {system.code, "NOT_UTF8", "NULL_KEY"}
        assert (found[system.code], found["NOT_UTF8"]) == (system.broken, b"\xff\xfe")
        assert all(row["message"] for row in lab.quarantine("s"))

    def test_an_event_that_arrives_again_is_left_out_and_another_with_its_key_is_not(self, lab, system):
        system.declare("id INT, a STRING, PRIMARY KEY (id)")
        system.send({"id": 1, "a": "x"}, {"id": 1, "a": "x"}, {"id": 2, "a": "y"})
        assert lab.refresh("s").rows_out == 2
        system.send({"id": 1, "a": "x"}, {"id": 2, "a": "other"}, {"id": 3, "a": "z"})
        outcome = lab.refresh("s")

        assert (outcome.rows_in, outcome.rows_out, outcome.rejected) == (3, 1, 1)
        assert lab.rows("s") == [{"id": 1, "a": "x"}, {"id": 2, "a": "y"}, {"id": 3, "a": "z"}]
        assert [row["error"] for row in lab.quarantine("s")] == ["KEY_CONFLICT"]

    def test_a_union_read_has_what_has_not_arrived_and_the_same_again(self, lab, system):
        system.declare("id INT, a STRING, PRIMARY KEY (id)")
        system.send({"id": 1, "a": "x"})
        lab.refresh("s")
        system.send({"id": 2, "a": "y"}, {"id": 1, "a": "x"}, system.broken)
        if not system.has_tail:
            with pytest.raises(RequestError, match="cannot be read beyond"):
                lab.union("s")
            return
        rows, token = lab.union("s")

        assert rows == [{"id": 1, "a": "x"}, {"id": 2, "a": "y"}]
        assert ids(lab) == [1]
        with pytest.raises(RequestError, match="of another source"):
            lab.union("s", replace(token, end=token.version))
        assert lab.union("s", token)[0] == rows
        lab.refresh("s")
        system.send({"id": 3, "a": "z"})
        lab.refresh("s")
        assert lab.union("s", token)[0] == rows
        assert [row["id"] for row in lab.union("s")[0]] == [1, 2, 3]


class LogConformance:
    """What holds for a connector whose rows arrive in a log table, whatever its records are."""

    def test_an_empty_source_succeeds_and_has_a_version(self, lab, system):
        system.declare()
        outcome = lab.refresh("s")

        assert (outcome.state, outcome.rows_out, outcome.error) == ("SUCCEEDED", 0, None)
        assert lab.rows("s") == []

    def test_every_metadata_has_its_type_and_a_value(self, lab, system):
        metadata = find_connector(system.connector).metadata
        declared = ", ".join(f"m_{name} {each.type} METADATA FROM '{name}'" for name, each in metadata.items())
        system.declare(f"id INT, {declared}")
        system.send({"id": 1})
        assert lab.refresh("s").error is None
        (row,) = lab.rows("s")

        assert row["m_ingested_at"] == lab.clock()
        assert {name for name in metadata if row[f"m_{name}"] is None} <= system.may_be_null

    def test_the_position_in_the_receipt_is_all_that_the_next_engine_needs(self, lab, system):
        system.declare()
        system.send({"id": 1, "a": "x"})
        lab.refresh("s")
        (position,) = receipt_of(lab).positions.values()
        written = json.loads(json.dumps(position.as_json()))

        assert written["kind"] == system.connector
        assert position_from_json(written) == position
        assert Receipt.from_json(receipt_of(lab).to_json()) == receipt_of(lab)

        lab.restart(lose_control_store=True)
        assert lab.refresh("s").strategy == "noop"
        system.send({"id": 2, "a": "y"})
        assert lab.refresh("s").rows_out == 1
        assert ids(lab) == [1, 2]

    def test_stopped_at_each_point_it_loses_and_repeats_nothing(self, lab, system):
        system.declare()
        for number, point in enumerate(LOG_POINTS):
            system.send({"id": number, "a": "x"}, system.broken)
            with lab.crash_at(point), pytest.raises(Crash):
                lab.refresh("s")
            lab.restart(lose_control_store=point == "log-after-quarantine")
            assert lab.refresh("s").error is None
            assert ids(lab) == list(range(number + 1)), point

        assert [row["error"] for row in lab.quarantine("s")] == [system.code] * len(LOG_POINTS)
        assert lab.refresh("s").strategy == "noop"

    def test_stopped_again_and_again_before_anything_is_committed(self, lab, system):
        system.declare("id INT, a STRING, PRIMARY KEY (id)")
        system.send({"id": 1, "a": "x"}, system.broken)
        for point in ("log-after-quarantine", "log-before-commit", "log-after-quarantine"):
            with lab.crash_at(point), pytest.raises(Crash):
                lab.refresh("s")
            lab.restart()

        assert lab.refresh("s").rows_out == 1
        assert (ids(lab), len(lab.quarantine("s"))) == ([1], 1)

    def test_a_log_that_is_put_back_reads_on_from_there(self, lab, system):
        system.declare()
        system.send({"id": 1, "a": "x"})
        lab.refresh("s")
        lab.create_savepoint("before")
        system.send({"id": 2, "a": "y"}, system.broken)
        lab.refresh("s")

        lab.restore_savepoint("before")
        assert ids(lab) == [1]
        assert lab.quarantine("s") == []
        if not system.replays:
            assert lab.refresh("s").error.code == system.lost
            return
        lab.refresh("s")
        assert ids(lab) == [1, 2]
        assert [row["error"] for row in lab.quarantine("s")] == [system.code]

    def test_a_system_that_is_gone_is_an_error_with_a_code_and_costs_nothing(self, lab, system):
        system.declare()
        system.send({"id": 1, "a": "x"})
        lab.refresh("s")
        system.take_away()
        outcome = lab.refresh("s")

        assert outcome.state == "FAILED"
        assert outcome.error.code == system.gone
        assert outcome.error.where
        assert ids(lab) == [1]
        if system.comes_back:
            system.bring_back()
            system.send({"id": 2, "a": "y"})
            assert lab.refresh("s").error is None
            assert ids(lab) == [1, 2]

    def test_a_log_of_another_connector_is_not_written(self, lab, system, tmp_path):
        system.declare()
        system.send({"id": 1, "a": "x"})
        lab.refresh("s")
        other = "files" if system.connector != "files" else "kafka"
        options = {
            "files": f"'path' = '{tmp_path}', 'settle' = '0 seconds'",
            "kafka": "'topic' = 't', 'bootstrap.servers' = 'localhost:1'",
        }[other]
        lab.declare(f"CREATE SOURCE s (id INT, a STRING) WITH ('connector' = '{other}', 'format' = 'json', {options})")
        outcome = lab.refresh("s")

        assert outcome.error.code == "DEFINITION_CHANGED"
        assert ids(lab) == [1]


class Conformance(LogConformance, FormatConformance):
    """What holds for a connector whose records may be anything."""

    def test_a_rejected_record_that_is_a_row_later_says_where_it_came_from(self, lab, system):
        metadata = find_connector(system.connector).metadata
        facts = ", ".join(f"m_{name} {each.type} METADATA FROM '{name}'" for name, each in metadata.items())
        small = "CONSTRAINT small EXPECT (id < 10) ON VIOLATION QUARANTINE"
        system.declare(f"id INT, a STRING, {facts}, {small}")
        system.send({"id": 1, "a": "x"}, {"id": 20, "a": "\u00e9\U0001f600"}, system.broken, {"id": 2, "a": "z"})
        assert lab.refresh("s").rejected == 2
        position = receipt_of(lab).positions

        system.declare(f"id INT, a STRING, {facts}")
        assert lab.retry_quarantine("s").rows_out == 1
        assert receipt_of(lab).positions == position
        system.send({"id": 3, "a": "later"})
        assert lab.refresh("s").rows_out == 1

        first, second, third, last = lab.rows("s")
        assert [first["id"], second["id"], third["id"], last["id"]] == [1, 2, 20, 3]
        assert third["a"] == "\u00e9\U0001f600"
        for name in metadata:
            # A record of the same look has the same facts but for its place, which is between the others'.
            found = third[f"m_{name}"]
            assert (found is None) == (first[f"m_{name}"] is None), name
            if metadata[name].stored == RECORD:
                assert first[f"m_{name}"] < found < second[f"m_{name}"], name

    def test_a_merge_over_it_keeps_rows_without_a_key_in_its_quarantine(self, lab, system):
        system.declare()
        lab.declare(
            "CREATE MATERIALIZED TABLE last (PRIMARY KEY (id)) WITH ('merge' = 'last_row', 'merge.sequence' = 'a', "
            "'merge.tie-breaker' = 'a') FRESHNESS = INTERVAL '1' HOUR AS SELECT id, a FROM s"
        )
        system.send({"id": 1, "a": "x"}, {"a": "without a key"}, {"id": 1, "a": "y"})
        assert [outcome.error for outcome in lab.refresh_all()] == [None, None]

        assert lab.rows("last") == [{"id": 1, "a": "y"}]
        assert [row["error"] for row in lab.quarantine("s")] == ["NULL_KEY(last)"]
        assert lab.diff("last") == []


class SecretClaims:
    """What holds beside that for a connector with an option for a secret."""

    @pytest.mark.security
    def test_a_secret_is_written_as_a_reference_and_shown_nowhere(self, lab, system, monkeypatch):
        with pytest.raises(DeclarationErrors) as refused:
            system.declare(**{system.secret: SECRET})
        assert refused.value.errors[0].rule == "REFERENCE"
        assert SECRET not in str(refused.value)

        monkeypatch.setenv("SYSTEM_SECRET", system.held(SECRET))
        system.declare(**{system.secret: "${env:SYSTEM_SECRET}"})
        system.send({"id": 1, "a": "x"}, system.broken)
        said = [lab.refresh("s"), receipt_of(lab).to_json(), lab.status(), lab.runtime.graph.sources]
        system.take_away()
        failed = lab.refresh("s")
        said += [failed.error, failed.error.as_json(), lab.status()]
        monkeypatch.delenv("SYSTEM_SECRET")
        missing = lab.refresh("s")

        assert "SYSTEM_SECRET" in str(missing.error)
        assert SECRET not in "".join(map(repr, [*said, missing]))


class SecretConformance(SecretClaims, Conformance):
    """What holds for a connector of any records that has an option for a secret."""
