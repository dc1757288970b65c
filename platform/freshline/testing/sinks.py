"""The claims that every sink must fulfil, whoever wrote it.

`check_sink` tries all of them on a `SinkSystem`: a system outside that a table `t` is sent to. With pytest, a class
that derives from `SinkConformance` and has the fixtures `lab` and `system` has a test of each.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql import SparkSession

from freshline.compute.literal import sql_literal
from freshline.compute.outgoing import Outgoing
from freshline.errors import DeclarationErrors, SinkFencedError, SinkHistoryError
from freshline.sinks.writer import Delivery, SinkWriter
from freshline.testing.claims import SECRET, ClaimError, ClaimSubject, refused, require, require_that, run_claims
from freshline.testing.crash import Crash
from freshline.testing.lab import Lab, Row
from freshline.values.names import TableName
from freshline.values.result import RefreshResult
from freshline.values.sink import Sink
from freshline.values.sink_position import SinkPosition
from freshline.values.spec import TableSpec

# Where a refresh of every sink may be stopped; a kind may have more (`SinkSystem.points`).
POINTS = ("sink-writing", "sink-before-commit", "sink-committed", "sink-written", "table-before-commit")
# Those within a writer, which has one way for changes and one for all rows.
_OF_WRITERS = ("sink-before-commit", "sink-committed")
_TABLE = "CREATE MATERIALIZED TABLE t (PRIMARY KEY (k)) FRESHNESS = INTERVAL '1' HOUR AS SELECT {columns} FROM s"


# More rows than are sent from memory, and than are in one batch.
_MANY = 21_000
# As many rows are shown where they are other ones.
_FEW = 100


class SinkSystem(ClaimSubject):
    """A system that the sink `out` sends the table `t` to.

    `sink` is the name of the kind and `options` are its options, without secrets. The source has the columns `k INT`,
    its key, `v STRING` and `n DOUBLE`. The table has those of `columns`, a list of SELECT: these three, and others
    where a row that is not taken needs one. `refused` are values of `v` whose rows the system does not take, none for
    one that takes all. `points` are failpoints that this kind has alone. `gone` is the code of the error when the
    system is taken away, and `untrusted` that of a certificate which nobody vouches for.

    Claims that a kind cannot fulfil are left out by what its `Sink` says: one without `can_be_read` is not verified,
    and one without `takes_changes` is sent all rows each time.
    """

    sink: ClassVar[str]
    options: ClassVar[Mapping[str, str]] = {}
    columns: ClassVar[str] = "k, v, n"
    refused: ClassVar[tuple[str, ...]] = ()
    points: ClassVar[tuple[str, ...]] = ()
    gone: ClassVar[str] = "SINK"
    untrusted: ClassVar[str] = "SINK_REFUSED"

    def __init__(self, lab: Lab) -> None:
        self.lab = lab

    @abstractmethod
    def stored(self) -> list[Row]:
        """The rows that the system has, read by its own means, in the order of their keys."""

    def spoil(self) -> bool:
        """Take a row away from the system and add another; False where it cannot."""
        return False

    def take_away(self) -> bool:
        """Let the system answer nobody any more; False where it cannot. Its writer may wait for a minute."""
        return False

    def bring_back(self) -> None:
        """Let it answer again, with the rows that it had."""

    def by_tls(self) -> Mapping[str, str]:
        """Options that reach the same system by TLS; none where there is no such way.

        Its certificate is accepted with the file that the option `tls.ca` names, and not without it.
        """
        return {}

    @property
    def given(self) -> Mapping[str, str]:
        """The options of the declaration."""
        own = {self.secret: f"${{env:{self.secret_variable}}}"} if self.secret else {}
        return {"connector": self.sink, **self.options, **own}

    def declare(self, name: str = "out", **more: str) -> None:
        """Declare the sink with its options, and with these."""
        options = {**self.given, **{key.replace("_", "-"): value for key, value in more.items()}}
        written = ", ".join(f"{sql_literal(key)} = {sql_literal(value)}" for key, value in options.items())
        self.lab.declare(f"CREATE SINK {name} FROM t WITH ({written})")

    def begin(self, rows: Sequence[Row] = (), **more: str) -> None:
        """The source, the table, the sink, and rows in the source."""
        self.lab.source("s", "k INT, v STRING, n DOUBLE, more INT", primary_key=["k"])
        self.lab.declare(_TABLE.format(columns=self.columns))
        self.declare(**more)
        self.insert(rows)

    def insert(self, rows: Sequence[Row]) -> None:
        """Rows that the source has from now on."""
        if rows:
            texts = [", ".join(sql_literal(row.get(name)) for name in ("k", "v", "n")) for row in rows]
            values = ", ".join(f"({text}, NULL)" for text in texts)
            self.lab.sql(f"INSERT INTO s VALUES {values}")

    @property
    def kind(self) -> Sink:
        """The kind as it says of itself what it can, and as it is declared."""
        found = self.spec.sink
        assert found is not None
        return found

    @property
    def spec(self) -> TableSpec:
        """The sink as it is declared."""
        return self.lab.runtime.graph.table(TableName.parse("out"))

    @property
    def writer(self) -> SinkWriter:
        """The writer of the engine."""
        return self.lab.runtime.sink_writer(self.spec)

    def row(self, key: int) -> Row:
        """A row of the source, as the table has it."""
        return {"k": key, "v": f"v{key}", "n": key / 2}


def check_sink(
    system: Callable[[Lab], SinkSystem], *, spark: SparkSession | None = None, leave_out: Collection[str] = ()
) -> None:
    """Try on a sink every claim about sinks, each with a system and a Lab of its own.

    `system` makes the system, empty. `leave_out` has the names of claims that are not tried. Takes a few minutes.
    Raises ClaimsError with all claims that fail.
    """
    name = getattr(system, "sink", "of this system")
    run_claims(SinkConformance, system, f"the sink '{name}'", spark=spark, leave_out=leave_out)


class SinkConformance:
    """The claims about every sink."""

    def test_an_empty_table_gives_no_rows(self, lab: Lab, system: SinkSystem) -> None:
        system.begin()
        require((_refreshed(lab).rows_out, system.stored()), (0, []), "the rows of an empty table")
        _require_equal(lab, system, "of an empty table")

    def test_rows_come_and_change_and_go(self, lab: Lab, system: SinkSystem) -> None:
        rows = [system.row(key) for key in range(40)]
        system.begin([*rows, {"k": 100, "v": None, "n": None}, {"k": 101, "v": "\u00e9\"'\\,\n\t%", "n": -0.5}])
        require(_refreshed(lab).rows_out, 42, "the rows of the first refresh")
        _require_equal(lab, system, "after the first refresh")
        for change, sent in (
            ("INSERT INTO s VALUES (200, '', 0, NULL)", 1),
            ("UPDATE s SET v = concat(v, '!') WHERE k < 5", 5),
            ("DELETE FROM s WHERE k >= 30 AND k < 40", 10),
            ("UPDATE s SET k = k + 1000 WHERE k = 200", 2),
            ("UPDATE s SET more = 1", 0),
        ):
            lab.sql(change)
            outcome = _refreshed(lab)
            require(outcome.rows_out, _sent(lab, system, sent), f"the rows that were sent after {change}")
            expected = ("changes" if system.kind.takes_changes else "full", "noop")
            require_that(outcome.strategy in expected, f"{outcome.strategy} after {change}: {outcome.reason}")
            _require_equal(lab, system, f"after {change}")
        require(_refreshed(lab).strategy, "noop", "a refresh with nothing new")
        lab.sql("DELETE FROM s")
        _refreshed(lab)
        require(system.stored(), [], "the rows of a table that was emptied")

    def test_states_between_two_refreshes_are_not_sent(self, lab: Lab, system: SinkSystem) -> None:
        system.begin([system.row(1), system.row(2)])
        _refreshed(lab)
        for change in (
            "UPDATE s SET v = 'x' WHERE k = 1",
            "DELETE FROM s WHERE k = 2",
            "INSERT INTO s VALUES (2, 'v2', 1.0, NULL), (3, 'gone', 1, NULL)",
            "DELETE FROM s WHERE k = 3",
            "UPDATE s SET v = 'y' WHERE k = 1",
        ):
            lab.sql(change)
            lab.refresh("t")
        require(_refreshed(lab).rows_out, _sent(lab, system, 1), "the rows of five changes that are one")
        _require_equal(lab, system, "after five changes that are one")

    def test_many_rows_come_and_go_in_batches(self, lab: Lab, system: SinkSystem) -> None:
        system.begin()
        lab.sql(f"INSERT INTO s SELECT CAST(id AS INT), concat('v', id), id / 2, NULL FROM range({_MANY})")
        require(_refreshed(lab).rows_out, _MANY, "the rows of the first refresh")
        _require_equal(lab, system, "after many came")
        lab.sql("UPDATE s SET v = 'w' WHERE k % 2 = 0")
        lab.sql("DELETE FROM s WHERE k % 2 = 1")
        require(_refreshed(lab).rows_out, _sent(lab, system, _MANY), "the rows that were sent when all changed")
        _require_equal(lab, system, "after many changed and went")

    def test_stopped_at_each_point_it_has_each_state_once(self, lab: Lab, system: SinkSystem) -> None:
        changes, whole = (*POINTS, *system.points), (*_OF_WRITERS, *system.points)
        stops = tuple(enumerate((*changes, *whole)))
        system.begin([system.row(key) for key in (*range(9), *[100 + number for number, _ in stops])])
        for number, point in stops:
            changed = f"k < 9 AND k % 3 = {number % 3}"
            lab.sql(f"UPDATE s SET n = n + 1 WHERE {changed}")
            lab.sql(f"DELETE FROM s WHERE k = {100 + number}")
            system.insert([system.row(50 + number)])
            with lab.crash_at(point), refused(Crash):
                lab.refresh("out", full=number >= len(changes))
            lab.restart(lose_control_store=number % 3 == 2)
            if number % 2:
                # Taken back, so that it is no change any more: nothing that was written may stay.
                lab.sql(f"UPDATE s SET n = n - 1 WHERE {changed}")
                lab.sql(f"DELETE FROM s WHERE k = {50 + number}")
                system.insert([system.row(100 + number)])
            if number % 4 == 3:
                lab.sql(f"UPDATE s SET v = 'after {number}' WHERE k % 4 = 3")
            _refreshed(lab)
            _require_equal(lab, system, f"after a stop at {point}")

    def test_other_writers_are_refused(self, lab: Lab, system: SinkSystem) -> None:
        system.begin([system.row(1)])
        _refreshed(lab)
        writer, held = system.writer, system.writer.position()
        if held is None:
            raise AssertionError("the sink has no position after a refresh")
        rows = _outgoing([{"k": 1, "v": "of another", "n": 0.0}])
        newer = replace(held.table, version=held.table.version + 1)
        older = replace(held.table, version=held.table.version - 1)
        by_older_engine = replace(held, table=newer, epoch=held.epoch - 1)
        for about, error, delivery in (
            ("of all rows by an older engine", SinkFencedError, _whole(by_older_engine)),
            ("of all rows of an older version", SinkHistoryError, _whole(replace(held, table=older))),
            ("of another sink", SinkFencedError, _whole(replace(held, owner="other 1"))),
            ("of changes by an older engine", SinkFencedError, Delivery(held, by_older_engine)),
            ("over another version", SinkFencedError, Delivery(replace(held, table=older), replace(held, table=newer))),
        ):
            if delivery.before is not None and not system.kind.takes_changes:
                continue
            with refused(error):
                (writer.compare if delivery.before is None else writer.apply)(rows, delivery, lambda rejected: None)
            require(system.stored(), [system.row(1)], f"the rows after a write {about}")
        if not system.kind.can_be_read:
            # Then its position is not there either, and the next sink knows of no other.
            return
        system.declare("other")
        outcome = lab.refresh("other")
        require(getattr(outcome.error, "code", None), "SINK_FENCED", "the error of a second sink of the same place")
        require(lab.refresh("other", full=True).error, None, "the error of one that takes the place over")
        require(getattr(lab.refresh("out", full=False).error, "code", None), None, "the error where nothing is new")
        lab.sql("UPDATE s SET v = 'w'")
        require(getattr(lab.refresh("out").error, "code", None), "SINK_FENCED", "the error of the first sink after it")

    def test_a_full_refresh_removes_what_does_not_belong(self, lab: Lab, system: SinkSystem) -> None:
        system.begin([system.row(key) for key in range(5)])
        _refreshed(lab)
        if not system.spoil():
            return
        if system.kind.can_be_read:
            require_that(not lab.verify("out").equal, "verify says equal after rows of the system were changed")
        _refreshed(lab, full=True)
        _require_equal(lab, system, "after a full refresh")

    def test_a_column_that_the_table_gains_is_sent(self, lab: Lab, system: SinkSystem) -> None:
        system.begin([system.row(1), system.row(2)])
        _refreshed(lab)
        lab.declare(_TABLE.format(columns=f"{system.columns}, k * 10 AS tens"))
        _refreshed(lab)
        _require_equal(lab, system, "after a column came")
        require([row["tens"] for row in system.stored()], [10, 20], "the values of the column")

    def test_a_restored_table_is_followed(self, lab: Lab, system: SinkSystem) -> None:
        system.begin([system.row(1)])
        _refreshed(lab)
        lab.create_savepoint("before")
        system.insert([system.row(2)])
        lab.sql("UPDATE s SET v = 'x' WHERE k = 1")
        _refreshed(lab)
        lab.restore_savepoint("before")
        require(lab.refresh("out", upstreams=False).error, None, "the error of a refresh after a restore")
        require(system.stored(), [system.row(1)], "the rows after a restore")
        _refreshed(lab)
        _require_equal(lab, system, "after the restored table went on")

    def test_a_row_that_is_not_taken_fails_or_is_set_aside(self, lab: Lab, system: SinkSystem) -> None:
        if not system.refused:
            return
        bad = [{"k": 10 + number, "v": value, "n": 1.0} for number, value in enumerate(system.refused)]
        system.begin([system.row(1), *bad])
        outcome = lab.refresh("out")
        require(getattr(outcome.error, "code", None), "SINK_REJECTED", "the error of a row that is not taken")
        require(system.stored(), [], "the rows of a refresh that failed")
        system.declare(on_reject="quarantine")
        require(
            (_refreshed(lab).rejected, system.stored()), (len(bad), [system.row(1)]), "the rejected rows, and others"
        )
        # Set aside by a refresh that is stopped, they are not set aside again.
        for number, point in enumerate(("sink-written", "sink-rejected-kept"), 2):
            lab.sql(f"UPDATE s SET n = {number} WHERE k >= 10")
            with lab.crash_at(point), refused(Crash):
                lab.refresh("out")
            lab.restart()
            _refreshed(lab)
            require(system.stored(), [system.row(1)], f"the rows after a stop at {point}")
            require(_rejected(lab, system), number * len(bad), f"the rows that were set aside after a stop at {point}")
        if system.kind.can_be_read:
            require(lab.verify("out").unverified, len(bad), "the rows that verify does not count as different")
        lab.sql("UPDATE s SET v = 'mended' WHERE k >= 10")
        _refreshed(lab)
        _require_equal(lab, system, "after the rows were mended")
        require(_rejected(lab, system), 3 * len(bad), "the rows that were set aside, after they were mended")

    def test_a_system_that_goes_away_comes_back(self, lab: Lab, system: SinkSystem) -> None:
        system.begin([system.row(1)])
        _refreshed(lab)
        system.insert([system.row(2)])
        if not system.take_away():
            return
        try:
            failed = lab.refresh("out").error
        finally:
            system.bring_back()
        if failed is None:
            raise ClaimError("a refresh without the system gives no error")
        require((failed.code, failed.retry_helps), (system.gone, True), f"the error without the system: {failed}")
        require_that(SECRET not in str(failed), "the secret is in the error")
        _refreshed(lab)
        _require_equal(lab, system, "after the system came back")

    def test_a_certificate_that_nobody_vouches_for_is_refused(self, lab: Lab, system: SinkSystem) -> None:
        system.begin([system.row(1)])
        options = dict(system.by_tls())
        if not options:
            return
        authorities = options.pop("tls.ca")
        system.declare(**options)
        failed = lab.refresh("out").error
        if failed is None:
            raise ClaimError("a refresh takes a certificate that nobody vouches for")
        require((failed.code, failed.retry_helps), (system.untrusted, False), f"the error of the certificate: {failed}")
        require(system.stored(), [], "the rows that were sent all the same")
        system.declare(**options, **{"tls.ca": authorities})
        _refreshed(lab)
        _require_equal(lab, system, "by TLS")

    def test_a_secret_is_nowhere(self, lab: Lab, system: SinkSystem) -> None:
        if not system.secret:
            return
        system.begin([system.row(1)])
        said: list[Any] = [_refreshed(lab), lab.receipt("out"), lab.status(), lab.runtime.graph.tables]
        files = [file for file in lab.settings.root.rglob("*") if file.is_file()]
        require([file for file in files if SECRET.encode() in file.read_bytes()], [], "the files that have the secret")
        require_that(SECRET not in repr(said), "the secret is in what a refresh and status say")

    def test_an_option_that_is_not_there_is_refused(self, lab: Lab, system: SinkSystem) -> None:
        system.begin()
        with refused(DeclarationErrors, "not_an_option".replace("_", "-")):
            system.declare(not_an_option="1")


def _outgoing(rows: Sequence[Row]) -> Outgoing:
    schema = pa.schema([("k", pa.int32()), ("v", pa.string()), ("n", pa.float64())])
    batch = pa.RecordBatch.from_pylist(list(rows), schema)
    return Outgoing(schema, len(rows), 0, lambda: iter([batch]))


def _whole(after: SinkPosition) -> Delivery:
    return Delivery(None, after)


def _sent(lab: Lab, system: SinkSystem, changed: int) -> int:
    """The rows that are sent when so many have changed: these, or all that there are."""
    return changed if system.kind.takes_changes or not changed else len(lab.rows("t"))


def _rejected(lab: Lab, system: SinkSystem) -> int:
    path = lab.runtime.warehouse.rejections(system.spec)
    return int(lab.runtime.spark.read.format("delta").load(str(path)).count())


def _refreshed(lab: Lab, *, full: bool = False) -> RefreshResult:
    outcome = lab.refresh("out", full=full)
    require(outcome.error, None, "the error of a refresh")
    return outcome


def _require_equal(lab: Lab, system: SinkSystem, when: str) -> None:
    """The system has the rows of the table, as it says itself, and as verify says where it can be read."""
    rows = sorted(lab.rows("t"), key=lambda row: row["k"])
    stored = system.stored()
    if len(rows) > _FEW:
        different = [(own, other) for own, other in zip(stored, rows, strict=False) if own != other]
        require((len(stored), different[:3]), (len(rows), []), f"the rows of the system {when}")
    require(stored, rows, f"the rows of the system {when}")
    if not system.kind.can_be_read:
        return
    found = lab.verify("out")
    require((found.error, found.samples, found.equal), (None, (), True), f"what verify says {when}")
