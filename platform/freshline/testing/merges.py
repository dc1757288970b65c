"""The claims that every merge must fulfil, whoever wrote it.

`check_merge` tries all of them on a `MergedTable`: a table with the merge over rows that are made at random. With
pytest, a class that derives from `MergeConformance` and has the fixtures `lab` and `system` has a test of each.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from random import Random
from typing import ClassVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from freshline.commit.delta_log import newest_version, position_of
from freshline.compute.cancellation import Cancellation
from freshline.compute.fold import fold_keys, is_folded, read_before_constraints
from freshline.compute.inputs import Pinned, drop_views, read_whole, shadow_inputs
from freshline.compute.literal import sql_literal
from freshline.errors import DeclarationErrors
from freshline.testing.claims import ClaimSubject, refused, require, require_that, run_claims
from freshline.testing.crash import Crash
from freshline.testing.lab import Lab, Row
from freshline.values.merge import Merge
from freshline.values.names import TableName, quoted
from freshline.values.registry import find_merge
from freshline.values.result import RefreshResult
from freshline.values.spec import TableSpec

TABLE_POINTS = ("table-pinned", "table-before-commit", "table-writing", "table-after-commit")
# Values of each type, few of each: keys occur again, and rows are equal now and then.
_VALUES: Mapping[str, Sequence[object]] = {
    "BOOLEAN": (True, False),
    "TINYINT": (-1, 0, 1),
    "SMALLINT": (-1, 0, 1),
    "INT": (0, 1, 2, 3),
    "BIGINT": (-(2**53), 0, 1, 2),
    "DOUBLE": (-1.5, 0.0, 1.0, 2.5),
    "STRING": ("", "a", "b", "\u00e9\U0001f600"),
    "DATE": ("2024-02-29", "2026-01-01"),
    "TIMESTAMP": ("2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"),
}


class MergedTable(ClaimSubject):
    """A table `m` with a merge over an input `s`, whose rows are made at random.

    `merge` is the name of the merge and `options` are its options. `columns` are those of the input, `query` gives the
    rows that are folded, and `primary_key` is the key of the table. `other` are options that mean another table.
    `retracts` says that rows may be updated and deleted in the input. `over_log` says that the input has to be a log,
    as for an order of arrival. Override `row` for columns of other types, or for other rows.
    """

    merge: ClassVar[str]
    options: ClassVar[Mapping[str, str]] = {}
    columns: ClassVar[str] = "k INT, v STRING"
    query: ClassVar[str] = "SELECT * FROM s"
    primary_key: ClassVar[tuple[str, ...]] = ("k",)
    other: ClassVar[Mapping[str, str]] = {}
    retracts: ClassVar[bool] = True
    over_log: ClassVar[bool] = False

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.random = Random(20_260_101)
        self._landed = 0

    def row(self) -> Row:
        """The next row of the input. By default one value in eight is NULL."""
        found: Row = {}
        for each in self.columns.split(","):
            name, kind = each.split()
            values = _VALUES[kind.upper()]
            found[name] = None if self.random.random() < 1 / 8 else self.random.choice(values)
        return found

    def rows(self, count: int) -> list[Row]:
        return [self.row() for _ in range(count)]

    def declare(self, options: Mapping[str, str] | None = None) -> TableName:
        """Declare the table with its options, or with these in their place."""
        given = {"merge": self.merge, **(self.options if options is None else options)}
        written = ", ".join(f"'{name}' = {sql_literal(value)}" for name, value in given.items())
        return self.lab.declare(
            f"CREATE MATERIALIZED TABLE m (PRIMARY KEY ({', '.join(self.primary_key)})) WITH ({written}) "
            f"FRESHNESS = INTERVAL '1' HOUR AS {self.query}"
        )

    def declare_log(self) -> None:
        """The input as a log, and the table over it."""
        self.lab.files("s", self.columns)
        self.declare()

    def declare_table(self) -> None:
        """The input as a table whose rows may change, and the table over it."""
        self.lab.source("s", self.columns)
        self.declare()

    def land(self, rows: Sequence[Row]) -> None:
        """Rows that the log has with its next refresh."""
        self._landed += 1
        self.lab.land("s", f"{self._landed:03}.json", list(rows))

    def insert(self, rows: Sequence[Row]) -> None:
        """Rows that are in the table from now on."""
        columns = [each.split() for each in self.columns.split(",")]
        texts = [[f"CAST({sql_literal(row.get(name))} AS {kind})" for name, kind in columns] for row in rows]
        values = ", ".join(f"({', '.join(each)})" for each in texts)
        self.lab.sql(f"INSERT INTO s ({', '.join(name for name, _ in columns)}) VALUES {values}")


def check_merge(
    table: Callable[[Lab], MergedTable], *, spark: SparkSession | None = None, leave_out: Collection[str] = ()
) -> None:
    """Try on a merge every claim about merges, each with a table and a Lab of its own.

    `table` makes the table. `leave_out` has the names of claims that are not tried. Takes about a minute. Raises
    ClaimsError with all claims that fail.
    """
    name = getattr(table, "merge", "of this table")
    run_claims(MergeConformance, table, f"the merge '{name}'", spark=spark, leave_out=leave_out)


@dataclass(frozen=True)
class _Folding:
    """The merge of a table, and the rows of its query with the helpers of the merge."""

    spec: TableSpec
    every: DataFrame

    def fold(self, rows: DataFrame) -> list[Row]:
        """The rows that the merge makes of some of the rows, in the order of their keys."""
        found = fold_keys(rows, self.spec).toArrow().to_pylist(maps_as_pydicts="strict")
        return sorted(found, key=lambda row: [str(row[key]) for key in self.spec.primary_key])


@contextmanager
def _folding(system: MergedTable) -> Iterator[_Folding]:
    """The rows of the input as they are folded, at its newest version."""
    lab = system.lab
    spec = lab.runtime.graph.table(TableName.parse("m"))
    (name,) = spec.driving
    of = lab.runtime.graph.spec(name)
    path = lab.runtime.warehouse.location(of)
    version = newest_version(path)
    if version is None:
        raise AssertionError("the input has no version")
    pinned = Pinned(of, path, position_of(path, version))
    with lab.runtime.working(Cancellation(), pool="manual", what="claims of a merge") as spark:
        shadow_inputs({name: read_whole(spark, pinned, arrival=pinned.is_log)})
        try:
            rows = read_before_constraints(spark, spec, arrival=pinned.is_log)
            # Kept as they are: the views go, and what is at random must not be so twice.
            yield _Folding(spec, rows.where(is_folded(spec)).localCheckpoint())
        finally:
            drop_views(spark, [name])


class MergeConformance:
    """The claims about every merge."""

    def test_an_empty_input_folds_to_no_rows(self, lab: Lab, system: MergedTable) -> None:
        system.declare_log()
        outcome = _refreshed(lab)

        require((outcome.rows_out, lab.rows("m")), (0, []), "the rows of an empty input")

    def test_each_key_has_one_row_with_the_columns_of_the_table(self, lab: Lab, system: MergedTable) -> None:
        system.declare_log()
        system.land(system.rows(80))
        lab.refresh("s")
        with _folding(system) as folding:
            rows = folding.fold(folding.every)
            given = {_key(row, system) for row in _rows(folding.every)}

        keys = [_key(row, system) for row in rows]
        require(len(keys), len(set(keys)), "the number of rows, which is that of the keys")
        require(sorted(set(keys) - given), [], "keys that the folded rows have and the input has not")
        require([key for key in keys if "None" in key], [], "keys with a NULL")

    def test_the_order_of_rows_does_not_count(self, lab: Lab, system: MergedTable) -> None:
        system.declare_log()
        for _ in range(3):
            system.land(system.rows(30))
            lab.refresh("s")
        with _folding(system) as folding:
            wanted = folding.fold(folding.every)
            for seed, parts in ((1, 1), (2, 3), (3, 7)):
                mixed = folding.every.orderBy(F.rand(seed)).repartition(parts, F.rand(seed))
                require(folding.fold(mixed), wanted, f"the fold of the same rows in another order, in {parts} parts")

    def test_a_key_is_folded_of_its_own_rows(self, lab: Lab, system: MergedTable) -> None:
        system.declare_log()
        system.land(system.rows(80))
        lab.refresh("s")
        first = quoted(system.primary_key[0])
        with _folding(system) as folding:
            every = folding.fold(folding.every)
            for (value,) in folding.every.select(F.col(first)).distinct().orderBy(F.col(first)).limit(2).collect():
                some = folding.fold(folding.every.where(F.col(first) == F.lit(value)))
                wanted = [row for row in every if row[system.primary_key[0]] == value]
                require(some, wanted, f"the rows whose {first} is {value!r}, folded without the others")

    def test_refreshes_of_a_log_give_what_a_full_refresh_gives(self, lab: Lab, system: MergedTable) -> None:
        system.declare_log()
        for number in range(4):
            system.land(system.rows(40 if number == 0 else 6))
            _refreshed(lab)
            _require_as_declared(lab, f"after {number + 1} files")
        kept = lab.rows("m")
        _refreshed(lab, full=True)
        require(kept, lab.rows("m"), "the rows of four refreshes, against those of a full one")

    def test_refreshes_of_a_table_follow_its_updates_and_deletes(self, lab: Lab, system: MergedTable) -> None:
        if system.over_log or not system.retracts:
            return
        system.declare_table()
        system.insert(system.rows(40))
        _refreshed(lab)
        names = [quoted(each.split()[0]) for each in system.columns.split(",")]
        # Spark's own numbers of rows, so that the same ones are hit each time.
        number = f"hash({', '.join(names)})"
        for change in (
            f"DELETE FROM s WHERE pmod({number}, 3) = 0 OR {names[0]} IS NULL",
            None,
            f"UPDATE s SET {_changed(system)} WHERE pmod({number}, 4) = 0",
            f"DELETE FROM s WHERE pmod(hash({names[0]}), 2) = 0",
            "DELETE FROM s",
        ):
            when = f"after {change or 'an insert'}"
            if change is None:
                system.insert(system.rows(6))
            else:
                lab.sql(change)
            _refreshed(lab)
            _require_as_declared(lab, when)
            kept = lab.rows("m")
            _refreshed(lab, full=True)
            require(kept, lab.rows("m"), f"the rows {when}, against those of a full refresh")

    def test_a_union_read_is_the_table_that_the_next_refresh_makes(self, lab: Lab, system: MergedTable) -> None:
        system.declare_log()
        system.land(system.rows(40))
        _refreshed(lab)
        # Part of what the table has not folded is in the log, the rest in the folder.
        system.land(system.rows(6))
        lab.refresh("s")
        system.land(system.rows(6))
        found, token = lab.union("m")
        _refreshed(lab)

        require(found, lab.rows("m"), "the rows of a union read, against those of the refresh behind it")
        require(lab.union("m", token)[0], found, "the rows of the union read again with its token")

    def test_stopped_at_each_point_it_folds_each_row_once(self, lab: Lab, system: MergedTable) -> None:
        system.declare_log()
        system.land(system.rows(20))
        _refreshed(lab)
        for point in TABLE_POINTS:
            system.land(system.rows(6))
            # Rows that change nothing do not come to each point.
            with lab.crash_at(point), suppress(Crash):
                lab.refresh("m")
            lab.restart()
            _refreshed(lab)
            _require_as_declared(lab, f"after a stop at {point}")

    def test_its_options_are_asked_for_and_decide_what_table_it_is(self, lab: Lab, system: MergedTable) -> None:
        lab.files("s", system.columns)
        first = _fingerprint(system, system.options)
        require(_fingerprint(system, system.options), first, "the fingerprint of the same declaration")
        for name, value in system.other.items():
            again = _fingerprint(system, {**system.options, name: value})
            require_that(again != first, f"'{name}' = '{value}' means the same table. Name its field in `meaning`")
        kind: type[Merge] = find_merge(system.merge)
        for option in kind.options:
            if option.required and option.name in system.options:
                with refused(DeclarationErrors, option.name):
                    system.declare({each: text for each, text in system.options.items() if each != option.name})


def _fingerprint(system: MergedTable, options: Mapping[str, str]) -> str:
    name = system.declare(options)
    return system.lab.runtime.graph.table(name).fingerprint


def _refreshed(lab: Lab, *, full: bool = False) -> RefreshResult:
    outcome = lab.refresh("m", full=full)
    require(outcome.error, None, "the error of a refresh")
    return outcome


def _require_as_declared(lab: Lab, when: str) -> None:
    require(lab.diff("m"), [], f"the rows by which the table differs from its merge {when}")


def _rows(rows: DataFrame) -> list[Row]:
    found: list[Row] = rows.toArrow().to_pylist(maps_as_pydicts="strict")
    return found


def _key(row: Row, system: MergedTable) -> str:
    return repr([row[name] for name in system.primary_key])


def _changed(system: MergedTable) -> str:
    """An update that gives rows another value in their last column."""
    name, kind = system.columns.split(",")[-1].split()
    return f"{quoted(name)} = CAST({sql_literal(_VALUES[kind.upper()][1])} AS {kind})"
