"""The claims that every connector must fulfil, whoever wrote it.

`check_connector` tries all of them on a `System`: the system outside, with what the claims need to do to it. With
pytest, a class that derives from `Conformance` and has the fixtures `lab` and `system` has a test of each.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from pyspark.sql import SparkSession

from freshline.errors import DeclarationErrors, FreshlineError, RequestError
from freshline.sources.formats.json import Json
from freshline.testing.claims import SECRET as SECRET
from freshline.testing.claims import ClaimSubject, environment, refused, require, require_that, run_claims
from freshline.testing.crash import Crash
from freshline.testing.lab import Lab
from freshline.values.connector import RECORD, Connector
from freshline.values.position import position_from_json
from freshline.values.receipt import Receipt
from freshline.values.registry import find_connector

LOG_POINTS = ("log-before-quarantine", "log-after-quarantine", "log-before-commit", "log-after-commit")
Row = Mapping[str, object]


class System(ClaimSubject, ABC):
    """A system outside, of which one source `s` is declared.

    `broken` is a record that is none, and `code` its code of quarantine. `odd` are others that may be anything.
    `rejects_bytes` says that bytes which are not UTF-8 are a record of their own, and rejected. `may_be_null` are
    metadata that a record need not have. `replays` says that what was read can be read again, else `lost` is the code
    of the error. `has_tail` says that the source can be read beyond its position. `gone` is the code of the error when
    the system is taken away, and `comes_back` says that `bring_back` can make it the same again. `secret` is an option
    for a secret, which `options` have as `${env:SYSTEM_SECRET}`; the system can be read with what `held` makes of
    SECRET.
    """

    connector: ClassVar[str]
    format: ClassVar[str] = "json"
    broken: ClassVar[bytes] = b'{"id": 1'
    code: ClassVar[str] = Json.rejection()
    odd: ClassVar[tuple[bytes, ...]] = (b"{}", b"[1]", b"null", b"\x00", b'{"id": "one"}', b'{"id": 1e99}')
    rejects_bytes: ClassVar[bool] = True
    replays: ClassVar[bool] = True
    lost: ClassVar[str] = ""
    has_tail: ClassVar[bool] = True
    may_be_null: ClassVar[frozenset[str]] = frozenset()
    gone: ClassVar[str] = "SOURCE"
    comes_back: ClassVar[bool] = True
    secret_variable = "SYSTEM_SECRET"

    def __init__(self, lab: Lab) -> None:
        self.lab = lab

    @property
    @abstractmethod
    def options(self) -> dict[str, str]:
        """The options that every declaration of the source has in WITH, beside the connector and the format."""

    def declare(self, columns: str = "id INT, a STRING", **more: str) -> None:
        options = {"connector": self.connector, "format": self.format, **self.options, **more}
        given = ", ".join(f"'{name}' = '{value}'" for name, value in options.items())
        self.lab.declare(f"CREATE SOURCE s ({columns}) WITH ({given})")

    def encode(self, row: Row) -> bytes:
        return json.dumps(row).encode()

    def send(self, *records: Row | bytes) -> None:
        """Records that the next inspection finds, in this order."""
        self.put([record if isinstance(record, bytes) else self.encode(record) for record in records])

    @abstractmethod
    def put(self, records: list[bytes]) -> None:
        """Records as they are."""

    @abstractmethod
    def take_away(self) -> None:
        """The system cannot be reached any more."""

    def bring_back(self) -> None:
        """The same system is there again, where it can be."""
        raise NotImplementedError


class LandingFolder(System):
    """A folder of files; each sending is a file. Formats are tried in it, in a class that derives from this one."""

    connector = "files"

    def __init__(self, lab: Lab, folder: Path | None = None) -> None:
        super().__init__(lab)
        self.folder = (lab.settings.root if folder is None else folder) / "landing"
        self.files = 0
        self.folder.mkdir(parents=True)

    @property
    def options(self) -> dict[str, str]:
        return {"path": str(self.folder), "settle": "0 seconds"}

    def put(self, records: list[bytes]) -> None:
        self.files += 1
        (self.folder / f"{self.files:03}.json").write_bytes(b"".join(record + b"\n" for record in records))

    def take_away(self) -> None:
        self.folder.rename(self.folder.with_name("gone"))

    def bring_back(self) -> None:
        self.folder.with_name("gone").rename(self.folder)


def check_connector(
    system: Callable[[Lab], System], *, spark: SparkSession | None = None, leave_out: Collection[str] = ()
) -> None:
    """Try on a connector every claim about connectors, each with a system and a Lab of its own.

    `system` makes the system outside. `leave_out` has the names of claims that are not tried, such as
    `test_stopped_at_each_point_it_loses_and_repeats_nothing`. Takes minutes. Raises ClaimsError with all claims that
    fail.
    """
    kind = _connector_of(system, spark)
    of_any_records = kind.record_format is None
    bases: tuple[type[Any], ...] = (Conformance,) if of_any_records else (LogConformance,)
    if any(option.secret for option in kind.options):
        bases = (SecretClaims, *bases)
    suite = type("ConnectorClaims", bases, {})
    run_claims(suite, system, f"the connector '{kind.name}'", spark=spark, leave_out=leave_out)


def _connector_of(system: Callable[[Lab], System], spark: SparkSession | None) -> type[Connector]:
    with Lab(spark) as lab:
        made = system(lab)
        try:
            return find_connector(made.connector)
        finally:
            made.close()


def ids(lab: Lab, name: str = "s") -> list[object]:
    return [row["id"] for row in lab.rows(name)]


def receipt_of(lab: Lab) -> Receipt:
    receipt = lab.receipt("s")
    if receipt is None:
        raise AssertionError("the log table has no receipt")
    return receipt


class FormatConformance:
    """The claims about all that a format decides: the rows that records become, whatever brings them."""

    def test_each_record_is_a_row_once(self, lab: Lab, system: System) -> None:
        system.declare()
        system.send({"id": 1, "a": "x"}, {"id": 2, "a": "y"})
        first = lab.refresh("s")

        found = (first.state, first.error, first.strategy, first.rows_in, first.rows_out)
        require(found, ("SUCCEEDED", None, "append", 2, 2), "the refresh of two records")
        require_that(first.data_timestamp is not None, "the refresh of two records has no data timestamp")
        require(lab.refresh("s").strategy, "noop", "the strategy where nothing is new")
        system.send({"id": 3, "a": "z"})
        require(lab.refresh("s").rows_out, 1, "the rows of one more record")
        require(
            lab.rows("s"), [{"id": 1, "a": "x"}, {"id": 2, "a": "y"}, {"id": 3, "a": "z"}], "the rows of three records"
        )

    def test_what_is_no_record_is_in_quarantine_and_the_rest_goes_on(self, lab: Lab, system: System) -> None:
        no_text = [b"\xff\xfe"] if system.rejects_bytes else []
        system.declare("id INT, a STRING, PRIMARY KEY (id)")
        system.send({"id": 1, "a": "x"}, system.broken, *no_text, {"a": "without a key"}, {"id": 2, "a": "y"})
        outcome = lab.refresh("s")

        found = (outcome.state, outcome.error, outcome.rows_out, outcome.rejected)
        require(found, ("SUCCEEDED", None, 2, 2 + len(no_text)), "the refresh of two rows among broken records")
        require(ids(lab), [1, 2], "the rows among broken records")
        rejected = {row["error"]: bytes(row["raw"]) for row in lab.quarantine("s")}
        wanted = {system.code, "NULL_KEY", *(["NOT_UTF8"] if no_text else [])}
        require(rejected.keys(), wanted, "the codes in quarantine")
        require(rejected[system.code], system.broken, f"the bytes of the record that is {system.code}")
        require_that(not no_text or rejected["NOT_UTF8"] == no_text[0], "the bytes that are NOT_UTF8 are other ones")
        silent = [row["error"] for row in lab.quarantine("s") if not row["message"]]
        require(silent, [], "codes in quarantine without a message")

    def test_an_event_that_arrives_again_is_left_out_and_another_with_its_key_is_not(
        self, lab: Lab, system: System
    ) -> None:
        system.declare("id INT, a STRING, PRIMARY KEY (id)")
        system.send({"id": 1, "a": "x"}, {"id": 1, "a": "x"}, {"id": 2, "a": "y"})
        require(lab.refresh("s").rows_out, 2, "the rows of two events, of which one was sent twice")
        system.send({"id": 1, "a": "x"}, {"id": 2, "a": "other"}, {"id": 3, "a": "z"})
        outcome = lab.refresh("s")

        found = (outcome.rows_in, outcome.rows_out, outcome.rejected)
        require(found, (3, 1, 1), "an event again, another with its key, and a new one: read, stored, rejected")
        require(lab.rows("s"), [{"id": 1, "a": "x"}, {"id": 2, "a": "y"}, {"id": 3, "a": "z"}], "the rows by key")
        require([row["error"] for row in lab.quarantine("s")], ["KEY_CONFLICT"], "the codes in quarantine")

    def test_a_union_read_has_what_has_not_arrived_and_the_same_again(self, lab: Lab, system: System) -> None:
        system.declare("id INT, a STRING, PRIMARY KEY (id)")
        system.send({"id": 1, "a": "x"})
        lab.refresh("s")
        system.send({"id": 2, "a": "y"}, {"id": 1, "a": "x"}, system.broken)
        if not system.has_tail:
            with refused(RequestError, "cannot be read beyond"):
                lab.union("s")
            return
        rows, token = lab.union("s")

        require(rows, [{"id": 1, "a": "x"}, {"id": 2, "a": "y"}], "the rows of a union read")
        require(ids(lab), [1], "the log table, which a union read does not change")
        with refused(RequestError, "of another source"):
            lab.union("s", replace(token, end=token.version))
        require(lab.union("s", token)[0], rows, "the rows of a union read again with its token")
        lab.refresh("s")
        system.send({"id": 3, "a": "z"})
        lab.refresh("s")
        require(lab.union("s", token)[0], rows, "the rows with the token, once they have arrived")
        require([row["id"] for row in lab.union("s")[0]], [1, 2, 3], "the rows of a new union read")


class LogConformance:
    """The claims about a connector whose rows arrive in a log table, whatever its records are."""

    def test_an_empty_source_succeeds_and_has_a_version(self, lab: Lab, system: System) -> None:
        system.declare()
        outcome = lab.refresh("s")

        found = (outcome.state, outcome.rows_out, outcome.error)
        require(found, ("SUCCEEDED", 0, None), "the refresh of an empty source")
        require(lab.rows("s"), [], "its rows")

    def test_every_metadata_has_its_type_and_a_value(self, lab: Lab, system: System) -> None:
        metadata = find_connector(system.connector).metadata
        declared = ", ".join(f"m_{name} {each.type} METADATA FROM '{name}'" for name, each in metadata.items())
        system.declare(f"id INT, {declared}")
        system.send({"id": 1})
        require(lab.refresh("s").error, None, "the error of a refresh with all metadata")
        (row,) = lab.rows("s")

        require(row["m_ingested_at"], lab.clock(), "the metadata ingested_at")
        missing = {name for name in metadata if row[f"m_{name}"] is None} - system.may_be_null
        require(missing, set(), "metadata without a value that are not in `may_be_null`")

    def test_the_position_in_the_receipt_is_all_that_the_next_engine_needs(self, lab: Lab, system: System) -> None:
        system.declare()
        system.send({"id": 1, "a": "x"})
        lab.refresh("s")
        (position,) = receipt_of(lab).positions.values()
        written = json.loads(json.dumps(position.as_json()))

        require(written["kind"], system.connector, "the `kind` in the JSON of a position")
        require(position_from_json(written), position, "a position that was written as JSON and read again")
        require(Receipt.from_json(receipt_of(lab).to_json()), receipt_of(lab), "a receipt that was written and read")

        lab.restart(lose_control_store=True)
        require(lab.refresh("s").strategy, "noop", "the strategy of the next engine where nothing is new")
        system.send({"id": 2, "a": "y"})
        require(lab.refresh("s").rows_out, 1, "the rows that the next engine stores of one more record")
        require(ids(lab), [1, 2], "the rows of both engines")

    def test_stopped_at_each_point_it_loses_and_repeats_nothing(self, lab: Lab, system: System) -> None:
        system.declare()
        for number, point in enumerate(LOG_POINTS):
            system.send({"id": number, "a": "x"}, system.broken)
            with lab.crash_at(point), refused(Crash):
                lab.refresh("s")
            lab.restart(lose_control_store=point == "log-after-quarantine")
            require(lab.refresh("s").error, None, f"the error of the refresh after a stop at {point}")
            require(ids(lab), list(range(number + 1)), f"the rows after a stop at {point}")

        rejected = [row["error"] for row in lab.quarantine("s")]
        require(rejected, [system.code] * len(LOG_POINTS), "the codes in quarantine after the stops")
        require(lab.refresh("s").strategy, "noop", "the strategy where nothing is new")

    def test_stopped_again_and_again_before_anything_is_committed(self, lab: Lab, system: System) -> None:
        system.declare("id INT, a STRING, PRIMARY KEY (id)")
        system.send({"id": 1, "a": "x"}, system.broken)
        for point in ("log-after-quarantine", "log-before-commit", "log-after-quarantine"):
            with lab.crash_at(point), refused(Crash):
                lab.refresh("s")
            lab.restart()

        require(lab.refresh("s").rows_out, 1, "the rows after three stops")
        require((ids(lab), len(lab.quarantine("s"))), ([1], 1), "rows, and how many are in quarantine")

    def test_a_log_that_is_put_back_reads_on_from_there(self, lab: Lab, system: System) -> None:
        system.declare()
        system.send({"id": 1, "a": "x"})
        lab.refresh("s")
        lab.create_savepoint("before")
        system.send({"id": 2, "a": "y"}, system.broken)
        lab.refresh("s")

        lab.restore_savepoint("before")
        require(ids(lab), [1], "the rows of the savepoint")
        require(lab.quarantine("s"), [], "the quarantine of the savepoint")
        if not system.replays:
            require(_code(lab.refresh("s").error), system.lost, "the error where nothing can be read again")
            return
        lab.refresh("s")
        require(ids(lab), [1, 2], "the rows that were read again")
        require([row["error"] for row in lab.quarantine("s")], [system.code], "the codes that were read again")

    def test_a_system_that_is_gone_is_an_error_with_a_code_and_costs_nothing(self, lab: Lab, system: System) -> None:
        system.declare()
        system.send({"id": 1, "a": "x"})
        lab.refresh("s")
        system.take_away()
        outcome = lab.refresh("s")

        require((outcome.state, _code(outcome.error)), ("FAILED", system.gone), "the refresh without its system")
        require_that(outcome.error is not None and outcome.error.where, "the error has no `where`")
        require(ids(lab), [1], "the rows, which stay")
        if system.comes_back:
            system.bring_back()
            system.send({"id": 2, "a": "y"})
            require(lab.refresh("s").error, None, "the error once the system is there again")
            require(ids(lab), [1, 2], "the rows once the system is there again")

    def test_a_log_of_another_connector_is_not_written(self, lab: Lab, system: System, tmp_path: Path) -> None:
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

        require(_code(outcome.error), "DEFINITION_CHANGED", f"the error where 's' is declared as one of {other}")
        require(ids(lab), [1], "the rows, which stay")


class Conformance(LogConformance, FormatConformance):
    """The claims about a connector whose records may be anything."""

    def test_a_rejected_record_that_is_a_row_later_says_where_it_came_from(self, lab: Lab, system: System) -> None:
        metadata = find_connector(system.connector).metadata
        facts = ", ".join(f"m_{name} {each.type} METADATA FROM '{name}'" for name, each in metadata.items())
        small = "CONSTRAINT small EXPECT (id < 10) ON VIOLATION QUARANTINE"
        system.declare(f"id INT, a STRING, {facts}, {small}")
        system.send({"id": 1, "a": "x"}, {"id": 20, "a": "\u00e9\U0001f600"}, system.broken, {"id": 2, "a": "z"})
        require(lab.refresh("s").rejected, 2, "the rejected records")
        position = receipt_of(lab).positions

        system.declare(f"id INT, a STRING, {facts}")
        require(lab.retry_quarantine("s").rows_out, 1, "the rows of a retry of the quarantine")
        require(receipt_of(lab).positions, position, "the position, which a retry does not move")
        system.send({"id": 3, "a": "later"})
        require(lab.refresh("s").rows_out, 1, "the rows after the retry")

        rows = lab.rows("s")
        require([row["id"] for row in rows], [1, 2, 20, 3], "the rows in the order of their batches")
        first, second, third, _last = rows
        require(third["a"], "\u00e9\U0001f600", "a text in quarantine")
        for name in metadata:
            # A record of the same inspection has the same facts but for its place, which is between the others'.
            found = third[f"m_{name}"]
            require(found is None, first[f"m_{name}"] is None, f"whether the metadata {name} is missing after a retry")
            if metadata[name].stored == RECORD:
                places = (first[f"m_{name}"], found, second[f"m_{name}"])
                require_that(places[0] < places[1] < places[2], f"{name} does not follow the records: {places}")

    def test_a_merge_over_it_keeps_rows_without_a_key_in_its_quarantine(self, lab: Lab, system: System) -> None:
        system.declare()
        lab.declare(
            "CREATE MATERIALIZED TABLE last (PRIMARY KEY (id)) WITH ('merge' = 'last_row', 'merge.sequence' = 'a', "
            "'merge.tie-breaker' = 'a') FRESHNESS = INTERVAL '1' HOUR AS SELECT id, a FROM s"
        )
        system.send({"id": 1, "a": "x"}, {"a": "without a key"}, {"id": 1, "a": "y"})
        require([outcome.error for outcome in lab.refresh_all()], [None, None], "the errors of a merge over it")

        require(lab.rows("last"), [{"id": 1, "a": "y"}], "the rows of a merge over it")
        require([row["error"] for row in lab.quarantine("s")], ["NULL_KEY(last)"], "the codes in quarantine")
        require(lab.diff("last"), [], "the rows by which the merge differs from its query")


class SecretClaims:
    """The further claims about a connector with an option for a secret."""

    def test_a_secret_is_written_as_a_reference_and_shown_nowhere(self, lab: Lab, system: System) -> None:
        with refused(DeclarationErrors) as refusal:
            system.declare(**{system.secret: SECRET})
        require(refusal.error.errors[0].rule, "REFERENCE", f"the rule for a secret in the option '{system.secret}'")
        require_that(SECRET not in str(refusal.error), "the error of the declaration shows the secret")

        with environment("SYSTEM_SECRET", system.held(SECRET)):
            system.declare(**{system.secret: "${env:SYSTEM_SECRET}"})
            system.send({"id": 1, "a": "x"}, system.broken)
            said = [lab.refresh("s"), receipt_of(lab).to_json(), lab.status(), lab.runtime.graph.sources]
            system.take_away()
            failed = lab.refresh("s")
            said += [failed.error, None if failed.error is None else failed.error.as_json(), lab.status()]
        with environment("SYSTEM_SECRET", None):
            missing = lab.refresh("s")

        require_that("SYSTEM_SECRET" in str(missing.error), f"the error does not name the variable: {missing.error}")
        shown = [type(what).__name__ for what in [*said, missing] if SECRET in repr(what)]
        require(shown, [], "kinds of values that show the secret")


class SecretConformance(SecretClaims, Conformance):
    """The claims about a connector of any records that has an option for a secret."""


def _code(error: FreshlineError | None) -> str | None:
    return None if error is None else error.code
