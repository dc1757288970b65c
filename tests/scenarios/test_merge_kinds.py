"""Merges that fold the set of rows of a key: whatever order they come in, one table.

Ten arrival orders are walked at once: an order is a column of the key, and each order has the same rows, in another
order and split into batches elsewhere.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import partial
from itertools import permutations
from typing import Any

import pytest

from tests.lanes import few_or_many
from tests.merges import slow
from tests.plain_lab import PlainLab
from tests.scenarios.tables import HOURLY, declare, declare_merge, follow

ORDERS = 10
NOT_A_NUMBER = 999.0
# NaN has no text in JSON: the queries make it of a number.
SCORE = f"CASE WHEN score = {NOT_A_NUMBER} THEN double('NaN') ELSE score END AS score"
COLUMNS = (
    "o INT, k INT, id INT, ver BIGINT, seen BIGINT, amount DECIMAL(12,2), score DOUBLE, name STRING, flag BOOLEAN, "
    "tags MAP<STRING, INT>, op STRING"
)
Row = dict[str, Any]


def random_rows(seed: int, count: int) -> list[Row]:
    """Rows of a few keys with many ties, NULLs in every column, both zeros and NaN, some of them twice."""
    chance = random.Random(seed)

    def some(*values: Any) -> Any:
        return None if chance.random() < 0.2 else chance.choice(values)

    rows = [
        {
            "k": some(*range(6)) if chance.random() < 0.4 else chance.randrange(6),
            "id": chance.randrange(4),
            "ver": some(1, 2, 3, 9_007_199_254_740_993),
            "seen": some(1, 2, 3),
            "amount": some(0.1, 0.2, -0.3, 1_234_567_890.12),
            "score": some(0.0, -0.0, 0.1, 0.7, -1e16, 1e16, 1.5, NOT_A_NUMBER),
            "name": some("a", "b", "", "ä"),
            "flag": some(True, False),
            "tags": some({"x": 1}, {"x": 2, "y": 1}, {"y": None}, {}),
            "op": some("u", "u", "d"),
        }
        for _ in range(count)
    ]
    return [*rows, *rows[: count // 4]]


def land_in_ten_orders(lab: Any, rows: Sequence[Row], seed: int, batches: int) -> Iterator[None]:
    """Land the rows in ten orders, each cut into `batches` files elsewhere, and yield after each file."""
    chance = random.Random(seed)
    files: list[list[Row]] = [[] for _ in range(batches)]
    for order in range(ORDERS):
        shuffled = chance.sample(rows, len(rows))
        cuts = sorted(chance.randrange(len(rows) + 1) for _ in range(batches - 1))
        for number, (start, end) in enumerate(zip([0, *cuts], [*cuts, len(rows)], strict=True)):
            files[number] += [{"o": order, **row} for row in shuffled[start:end]]
    for number, file in enumerate(files):
        lab.land("s", f"{number}.json", file)
        yield


def as_read(row: Mapping[str, Any]) -> Row:
    """A row as the queries return it."""
    amount, score = row["amount"], row["score"]
    return {
        **row,
        "amount": None if amount is None else Decimal(str(amount)).quantize(Decimal("0.01")),
        "score": float("nan") if score == NOT_A_NUMBER else score,
    }


def require_one_table(lab: Any, name: str, expected: list[Row]) -> None:
    """Each of the ten orders has the expected rows, and `verify` finds the same."""
    found: dict[int, list[Row]] = {order: [] for order in range(ORDERS)}
    for row in lab.rows(name):
        found[row["o"]].append({column: row[column] for column in row if column != "o"})
    for order, rows in found.items():
        in_order = sorted(rows, key=lambda row: slow.rank(row["k"]))
        assert [_plain(row) for row in in_order] == [_plain(row) for row in expected], (name, order)
    assert lab.diff(name) == [], name


def _plain(row: Row) -> Row:
    return {column: slow.plain(value) for column, value in row.items()}


def fold(rows: Sequence[Row], fold_key: Callable[[list[Any]], Row | None]) -> list[Row]:
    return slow.fold([as_read(row) for row in rows], ["k"], fold_key)


# -- versioned


def is_delete(row: Mapping[str, Any]) -> bool:
    return bool(row["op"] == "d")


VERSIONED = {
    "stored": ("", f"ver, amount, {SCORE}, name, tags", ("ver", "amount", "score", "name", "tags"), False),
    "hidden": ("", f"name, {SCORE}", ("name", "score"), False),
    "deleting": (", 'merge.delete-when' = 'op = ''d'''", "name, ver", ("name", "ver"), True),
}


@pytest.mark.long
@pytest.mark.parametrize("size", [(tuple(VERSIONED), tuple(range(2, 22)), 120, 5)])
def test_versioned_is_one_table_for_every_arrival_order(spark, size):
    names, seeds, count, batches = size
    for seed in seeds:
        with PlainLab(spark) as lab:
            lab.files("s", COLUMNS)
            for name in names:
                options, items, _, _ = VERSIONED[name]
                lab.declare(
                    f"CREATE MATERIALIZED TABLE {name} (PRIMARY KEY (o, k)) WITH ('merge' = 'versioned', "
                    f"'merge.sequence' = 'ver'{options}) {HOURLY} AS SELECT o, k, {items} FROM s"
                )
            rows = random_rows(seed, count)
            strategies = []
            for _ in land_in_ten_orders(lab, rows, seed, batches):
                outcomes = lab.refresh_all()
                assert [outcome.error for outcome in outcomes] == [None] * len(outcomes)
                strategies.append({outcome.strategy for outcome in outcomes if outcome.kind == "table"})

            assert strategies == [{"full"}, *[{"merge"}] * (batches - 1)]
            for name in names:
                _, _, columns, deletes = VERSIONED[name]
                is_gone = is_delete if deletes else None
                require_one_table(lab, name, fold(rows, partial(slow.versioned, "ver", columns, is_gone)))


# -- aggregate

# Each column of the table, what it is of, and how.
FUNCTIONS = {
    "total": ("amount", "sum"),
    "points": ("score", "sum"),
    "large": ("ver", "sum"),
    "factors": ("seen", "product"),
    "known": ("name", "count"),
    "least": ("score", "min"),
    "most": ("tags", "max"),
    "every": ("flag", "bool_and"),
    "some": ("flag", "bool_or"),
    "first": ("name", "first_value"),
    "last": ("score", "last_value"),
    "first_known": ("amount", "first_non_null"),
    "last_known": ("tags", "last_non_null"),
    "names": ("name", "listagg"),
    "scores": ("score", "collect"),
    "kinds": ("tags", "collect_distinct"),
    "different": ("score", "collect_distinct"),
    "seen_names": ("name", "collect_distinct"),
    "merged": ("tags", "merge_map"),
}
SEPARATOR = "', "
ORDERED = "'merge.sequence' = 'seen', 'merge.tie-breaker' = 'id'"


def aggregated(name: str, keys: str = "o, k", order: str = ORDERED, columns: Sequence[str] = tuple(FUNCTIONS)) -> str:
    """The declaration of a table with every function, or with those of some columns."""
    functions = ", ".join(f"'merge.aggregate.{column}' = '{FUNCTIONS[column][1]}'" for column in columns)
    of = {column: FUNCTIONS[column][0] for column in columns}
    items = [f"{SCORE.removesuffix(' AS score') if of[c] == 'score' else of[c]} AS {c}" for c in columns]
    separator = SEPARATOR.replace("'", "''")
    lists = f", 'merge.separator.names' = '{separator}', {order}" if order else ""
    return (
        f"CREATE MATERIALIZED TABLE {name} (PRIMARY KEY ({keys})) WITH ('merge' = 'aggregate', {functions}{lists}) "
        f"{HOURLY} AS SELECT {keys}, {', '.join(items)} FROM s"
    )


def slowly_aggregated(rows: Sequence[Row], order: Sequence[str]) -> list[Row]:
    functions = {column: (function, SEPARATOR) for column, (_, function) in FUNCTIONS.items()}
    shown = [
        {
            **row,
            **{f"_{name}": row[name] for name in order},
            **{column: as_read(row)[of] for column, (of, _) in FUNCTIONS.items()},
        }
        for row in rows
    ]
    return slow.fold(shown, ["k"], partial(slow.aggregate, functions, lambda row: [row[f"_{name}"] for name in order]))


@pytest.mark.parametrize("size", few_or_many(((1,), 50, 2), (tuple(range(2, 22)), 120, 5)))
def test_aggregate_is_one_table_for_every_arrival_order(spark, size):
    seeds, count, batches = size
    for seed in seeds:
        with PlainLab(spark) as lab:
            lab.files("s", COLUMNS)
            lab.declare(aggregated("t"))
            rows = random_rows(seed, count)
            strategies = []
            for _ in land_in_ten_orders(lab, rows, seed, batches):
                outcome = lab.refresh("t")
                assert outcome.error is None, outcome.error
                strategies.append(outcome.strategy)

            assert strategies == ["full", *["keys"] * (batches - 1)]
            require_one_table(lab, "t", slowly_aggregated(rows, ["seen", "id"]))


# -- partial_update

GROUPS = {
    "profile": ({"name": "", "amount": "", "ver": ""}, ("ver",)),
    "points": ({"score": "", "total": "sum", "names": "listagg", "seen": ""}, ("seen", "id")),
    "marks": ({"tags": "merge_map"}, ("ver", "seen")),
}
OPTIONS = (
    "'merge' = 'partial_update', 'merge.group.profile' = 'name, amount BY ver', "
    "'merge.group.points' = '`score`, total USING SUM, names USING listagg BY seen, s.id', "
    "'merge.group.marks' = 'tags USING merge_map BY coalesce(ver, NULL), seen + 1', "
    "'merge.sequence' = 'seen', 'merge.tie-breaker' = 'length(name)'"
)
DELETING = ", 'merge.delete-when' = 'op = ''d'' ', 'merge.delete-group' = 'Profile'"


def partially_updated(name: str, more: str = "", keys: str = "o, k") -> str:
    return (
        f"CREATE MATERIALIZED TABLE {name} (PRIMARY KEY ({keys})) WITH ({OPTIONS}{more}) {HOURLY} "
        f"AS SELECT {keys}, name, amount, ver, {SCORE}, amount AS total, name AS names, seen, tags, flag FROM s"
    )


def slowly_updated(rows: Sequence[Row], *, deleting: bool = False) -> list[Row]:
    shown = [
        {**row, "total": row["amount"], "names": row["name"], "size": None if row["name"] is None else len(row["name"])}
        for row in map(as_read, rows)
    ]
    deletes = ("profile", is_delete) if deleting else None
    return slow.fold(shown, ["k"], partial(slow.partial_update, GROUPS, ["flag"], "seen", ["size"], deletes))


@pytest.mark.long
@pytest.mark.parametrize("size", [(tuple(range(2, 22)), 120, 5)])
def test_partial_update_is_one_table_for_every_arrival_order(spark, size):
    seeds, count, batches = size
    for seed in seeds:
        with PlainLab(spark) as lab:
            lab.files("s", COLUMNS)
            lab.declare(partially_updated("t", DELETING))
            if count > 50:
                lab.declare(partially_updated("kept"))
            rows = random_rows(seed, count)
            strategies = []
            for _ in land_in_ten_orders(lab, rows, seed, batches):
                outcomes = [outcome for outcome in lab.refresh_all() if outcome.kind == "table"]
                assert {outcome.error for outcome in outcomes} == {None}
                strategies.append({outcome.strategy for outcome in outcomes})

            assert strategies == [{"full"}, *[{"keys"}] * (batches - 1)]
            require_one_table(lab, "t", slowly_updated(rows, deleting=True))
            if count > 50:
                require_one_table(lab, "kept", slowly_updated(rows))


def test_a_row_without_a_version_is_quarantined_once(lab):
    lab.files("s", "k STRING, ver INT, v STRING")
    declared = (
        "CREATE MATERIALIZED TABLE t (PRIMARY KEY (k), CONSTRAINT some EXPECT (v <> 'bad') ON VIOLATION {violation}) "
        f"WITH ('merge' = 'versioned', 'merge.sequence' = 'ver') {HOURLY} AS SELECT k, v, ver FROM s"
    )
    lab.declare(declared.format(violation="DROP ROW"))
    lab.land("s", "1.json", [{"k": "a", "ver": 1, "v": "x"}, {"k": "a", "v": "bad"}, {"k": "b", "v": "y"}])
    assert lab.refresh("t").rejected == 2
    lab.land("s", "2.json", [{"v": "z"}, {"k": "a", "ver": 1, "v": "y"}, {"k": "b"}, {"k": "a", "ver": 2, "v": "bad"}])
    lab.refresh("s")
    found, _ = lab.union("t")
    lab.restart()
    outcome = lab.refresh("t")

    assert (outcome.strategy, outcome.rejected) == ("merge", 2)
    assert lab.rows("t") == found == [{"k": "a", "v": "y", "ver": 1}]
    assert lab.refresh("t", full=True).rejected == 0
    assert lab.diff("t") == []
    rows = [(row["error"], row["file"], row["line"], row["raw"]) for row in lab.quarantine("s")]
    assert sorted(rows) == [
        ("NULL_KEY(t)", "2.json", 1, b'{"v":"z"}'),
        ("NULL_VERSION(t)", "1.json", 2, b'{"k":"a","v":"bad"}'),
        ("NULL_VERSION(t)", "1.json", 3, b'{"k":"b","v":"y"}'),
        ("NULL_VERSION(t)", "2.json", 3, b'{"k":"b"}'),
    ]
    assert {row["message"] for row in lab.quarantine("s")} == {
        "the version ('merge.sequence') is NULL",
        "a column of PRIMARY KEY (k) is NULL",
    }


@pytest.mark.parametrize(
    ("shown", "name"),
    [
        ("SELECT k, v FROM s", "k"),
        ("SELECT K, v FROM s AS e", "k"),
        ("SELECT nullif(k, 'none') AS k, v FROM s", "k"),
        ("SELECT e.old AS k, v FROM s AS e", "old"),
        ("SELECT e.* EXCEPT (k), nullif(k, 'none') AS k FROM s AS e", "k"),
    ],
)
def test_a_row_without_a_key_is_quarantined_whatever_the_query_calls_the_key(lab, shown, name):
    lab.files("s", "old STRING, k STRING, v INT")
    declare_merge(lab, shown, "k", "last_row", sequence="v", tie_breaker="v")
    for number in range(3):
        row = {"old": "o", "k": "a", "v": number}
        whole = [row, {**row, name: "b", "v": 10 + number}]
        # The second batch has all keys.
        batch = whole if number == 1 else [*whole, {**row, name: None}]
        if number == 2 and "nullif" in shown:
            batch.append({**row, "k": "none"})
        lab.land("s", f"{number}.json", batch)
        outcome = follow(lab)
        assert outcome.rejected == len(batch) - len(whole)

    assert [row["error"] for row in lab.quarantine("s")] == ["NULL_KEY(t)"] * (3 if "nullif" in shown else 2)


def test_an_empty_text_in_a_key_that_is_a_partition_is_quarantined(lab):
    lab.files("s", "k STRING, v INT")
    lab.declare(
        "CREATE MATERIALIZED TABLE t (PRIMARY KEY (k)) PARTITIONED BY (k) "
        f"WITH ('merge' = 'first_row', 'merge.order' = 'v', 'merge.tie-breaker' = 'v') {HOURLY} AS SELECT k, v FROM s"
    )
    for number in range(2):
        lab.land("s", f"{number}.json", [{"k": "a", "v": number}, {"k": "", "v": number}])
        assert lab.refresh("t").rejected == 1
    assert [row["error"] for row in lab.quarantine("s")] == ["NULL_KEY(t)"] * 2


@pytest.mark.long
def test_versioned_follows_updates_and_deletes_of_its_input(lab):
    lab.source("s", "k INT, ver INT, v STRING")
    lab.sql("INSERT INTO s VALUES (1, 1, 'a'), (1, 2, 'b'), (1, 2, 'c'), (2, NULL, 'd'), (NULL, 1, 'e'), (3, 1, 'f')")
    declare(lab, "SELECT k, v FROM s", "(PRIMARY KEY (k)) WITH ('merge' = 'versioned', 'merge.sequence' = 'ver')")
    assert lab.refresh("t").rejected == 2
    assert lab.rows("t") == [{"k": 1, "v": "c"}, {"k": 3, "v": "f"}]
    append, change = lab.explain("t").cases
    assert (append.strategy, change.strategy) == ("merge", "keys")

    lab.sql("DELETE FROM s WHERE v IN ('c', 'f')")
    lab.sql("UPDATE s SET ver = 5 WHERE v = 'd'")
    outcome = lab.refresh("t")
    assert (outcome.strategy, outcome.rejected) == ("keys", 0)
    assert lab.rows("t") == [{"k": 1, "v": "b"}, {"k": 2, "v": "d"}]
    lab.sql("UPDATE s SET ver = NULL WHERE k = 2")
    assert lab.refresh("t").rejected == 1
    assert lab.rows("t") == [{"k": 1, "v": "b"}]
    assert lab.diff("t") == []


# Tables over a source `s` without orders, and how they are folded slowly.
TOTALS = ("total", "large", "known", "least", "most", "every", "some")
BARE = "'merge' = 'partial_update', 'merge.group.a' = 'name, tags BY ver', 'merge.group.b' = {b}"
ADDED = "'score, total USING sum, known USING count, some USING bool_or BY seen'"


def folded_onto(kind: str, keys: str) -> str:
    """The declaration of a table whose stored row is enough to fold new rows with."""
    if kind == "totals":
        return aggregated("totals", keys, "", TOTALS)
    items = f"name, tags, ver, {SCORE}, amount AS total, name AS known, flag AS some, seen"
    return (
        f"CREATE MATERIALIZED TABLE added (PRIMARY KEY ({keys})) WITH ({BARE.format(b=ADDED)}) {HOURLY} "
        f"AS SELECT {keys}, {items} FROM s"
    )


def slowly_totalled(rows: Sequence[Row]) -> list[Row]:
    return [{column: row[column] for column in ("k", *TOTALS)} for row in slowly_aggregated(rows, ["id"])]


def slowly_added(rows: Sequence[Row]) -> list[Row]:
    groups = {
        "a": ({"name": "", "tags": "", "ver": ""}, ("ver",)),
        "b": ({"score": "", "seen": "", "total": "sum", "known": "count", "some": "bool_or"}, ("seen",)),
    }
    shown = [{**row, "total": row["amount"], "known": row["name"], "some": row["flag"]} for row in map(as_read, rows)]
    return slow.fold(shown, ["k"], partial(slow.partial_update, groups, [], "seen", [], None))


@pytest.mark.long
@pytest.mark.parametrize("size", [((1,), 50, 3), (tuple(range(2, 22)), 120, 5)])
def test_new_rows_are_folded_with_the_stored_row_where_it_says_enough(spark, size, monkeypatch):
    seeds, count, batches = size
    for seed in seeds:
        with PlainLab(spark) as lab, monkeypatch.context() as patch:
            lab.files("s", COLUMNS)
            lab.declare(folded_onto("totals", "o, k"))
            lab.declare(folded_onto("added", "o, k"))
            rows = random_rows(seed, count)
            for _ in land_in_ten_orders(lab, rows, seed, batches):
                outcomes = [outcome for outcome in lab.refresh_all() if outcome.kind == "table"]
                assert {outcome.error for outcome in outcomes} == {None}
                assert {outcome.strategy for outcome in outcomes} <= {"full", "keys", "noop"}
                # The older rows of the input are not read from here on.
                patch.setattr("freshline.strategies.keys.changes.read_whole", None)
                lab.restart()

            require_one_table(lab, "totals", slowly_totalled(rows))
            require_one_table(lab, "added", slowly_added(rows))


FOLDS: dict[str, tuple[str, Callable[[Sequence[Row]], list[Row]]]] = {
    "sums": (aggregated("sums", keys="k"), partial(slowly_aggregated, order=["seen", "id"])),
    "totals": (folded_onto("totals", "k"), slowly_totalled),
    "added": (folded_onto("added", "k"), slowly_added),
    "parts": (partially_updated("parts", DELETING, keys="k"), partial(slowly_updated, deleting=True)),
}


def literal(value: Any) -> str:
    """A value of `random_rows` in SQL."""
    if isinstance(value, dict):
        entries = ", ".join(f"{literal(key)}, {literal(of)}" for key, of in value.items())
        return f"CAST(map({entries}) AS MAP<STRING, INT>)"
    if isinstance(value, str):
        return f"'{value}'"
    return "NULL" if value is None else f"{value!r}D" if isinstance(value, float) else str(value).lower()


def insert(lab: Any, rows: Sequence[Row]) -> None:
    values = (f"({', '.join(literal(value) for value in row.values())})" for row in rows)
    lab.sql(f"INSERT INTO s VALUES {', '.join(values)}")


@pytest.mark.parametrize("size", few_or_many(((1,), 2), (tuple(range(2, 12)), 8)))
def test_a_fold_follows_updates_and_deletes_of_its_input(spark, size):
    seeds, steps = size
    for seed in seeds:
        chance = random.Random(seed)
        with PlainLab(spark) as lab:
            lab.source("s", COLUMNS.removeprefix("o INT, "))
            for declaration, _ in FOLDS.values():
                lab.declare(declaration)
            insert(lab, random_rows(seed, 20))
            lab.refresh_all()
            for step in range(steps):
                if step % 2:
                    insert(lab, random_rows(1000 * seed + step, 5))
                else:
                    column = chance.choice(["seen", "ver", "score", "tags", "op", "k"])
                    new = chance.choice([row[column] for row in random_rows(step, 9)])
                    lab.sql(f"UPDATE s SET {column} = {literal(new)} WHERE id = {chance.randrange(4)}")
                    lab.sql(f"DELETE FROM s WHERE k = {chance.randrange(6)} AND id <> {chance.randrange(4)}")
                    lab.restart()
                outcomes = [outcome for outcome in lab.refresh_all() if outcome.kind == "table"]
                assert {outcome.error for outcome in outcomes} == {None}
                assert {outcome.strategy for outcome in outcomes} <= {"keys", "noop"}
                rows = lab.rows("s")
                for name, (_, slowly) in FOLDS.items():
                    found = sorted(lab.rows(name), key=lambda row: slow.rank(row["k"]))
                    assert [_plain(row) for row in found] == [_plain(row) for row in slowly(rows)], (name, step)
                    assert lab.diff(name) == [], name


@pytest.mark.long
def test_a_fold_by_arrival_is_that_of_a_union_read(lab):
    lab.files("s", "k STRING, v STRING, n BIGINT, m MAP<STRING, INT>")
    functions = {"v": "listagg", "n": "sum", "m": "merge_map"}
    options = ", ".join(f"'merge.aggregate.{column}' = '{function}'" for column, function in functions.items())
    lab.declare(
        "CREATE MATERIALIZED TABLE t (PRIMARY KEY (k), CONSTRAINT good EXPECT (v <> 'bad') ON VIOLATION DROP ROW) "
        f"WITH ('merge' = 'aggregate', {options}, 'merge.sequence' = 'arrival') {HOURLY} AS SELECT k, v, n, m FROM s"
    )
    most = 2**63 - 1
    lab.land("s", "2.json", [{"k": "a", "v": "b", "n": most, "m": {"x": 1, "y": 1}}, {"k": "b", "v": "bad"}])
    assert lab.refresh("t").strategy == "full"
    # The sum of the first two is too large, and that of all three is not.
    lab.land("s", "1.json", [{"k": "a", "v": "a", "n": 1, "m": {"x": 2}}, {"k": "a", "v": "a", "n": -2}, {"v": "n"}])
    lab.refresh("s")
    lab.land("s", "0.json", [{"k": "b", "v": "c"}, {"k": "a", "v": "c", "m": {"y": None}}])
    found, _ = lab.union("t")
    lab.restart()
    outcome = follow(lab)
    assert (outcome.strategy, outcome.rejected) == ("keys", 1)
    assert found == lab.rows("t")
    assert found == [
        {"k": "a", "v": "b,a,a,c", "n": most - 1, "m": {"x": 2, "y": None}},
        {"k": "b", "v": "c", "n": None, "m": None},
    ]
    (case,) = lab.explain("t").cases
    assert (case.strategy, case.refused["merge"].about) == ("keys", "aggregate folds whole keys")


def test_a_function_that_does_not_take_its_column_fails_the_refresh_with_the_place(lab):
    lab.files("s", "k STRING, v STRING, n BIGINT")
    lab.declare(
        f"CREATE MATERIALIZED TABLE t (PRIMARY KEY (k))\nWITH ('merge' = 'aggregate', 'merge.aggregate.v' = 'sum', "
        f"'merge.aggregate.n' = 'product') {HOURLY} AS SELECT k, v, n FROM s"
    )
    lab.land("s", "1.json", [{"k": "a", "v": "x", "n": 2**62}, {"k": "a", "v": "x", "n": 2}])
    error = lab.refresh("t").error
    assert (error.code, error.rule, error.where) == ("DECLARATION", "MERGE_AGGREGATE", "assets/t.sql:1")
    assert "sum of column v of t takes numbers, and the query yields STRING. Cast it in the query" in error.message

    declare_merge(lab, "SELECT k, n FROM s", "k", "aggregate", "'merge.aggregate.n' = 'product'")
    assert "overflow" in str(lab.refresh("t").error).lower()
    # A later row makes the product fit, and the refresh has all of them.
    lab.land("s", "2.json", [{"k": "a", "n": 0}])
    assert lab.refresh("t").error is None
    assert lab.rows("t") == [{"k": "a", "n": 0}]


@pytest.mark.long
def test_values_of_every_type_and_names_of_every_kind_are_folded_in_any_order(lab):
    """Rows that tie but for what Spark takes for equal, or does not compare."""
    lab.files("s", "O INT, K INT, `a.b` STRUCT<`x-y`: DOUBLE, m: MAP<STRING, DOUBLE>>, L ARRAY<DOUBLE>, `by` TIMESTAMP")
    functions = {"a.b": "last_value", "m": "max", "L": "collect_distinct", "first": "first_value", "n": "count"}
    options = ", ".join(f"'merge.aggregate.{column}' = '{function}'" for column, function in functions.items())
    lab.declare(
        f"CREATE MATERIALIZED TABLE folded (PRIMARY KEY (o, k)) WITH ('merge' = 'aggregate', {options}, "
        f"'merge.sequence' = '`by`') {HOURLY} AS SELECT O, K, `a.b`, `a.b`.m AS m, L, L AS first, `by` AS n FROM s"
    )
    lab.declare(
        "CREATE MATERIALIZED TABLE parts (PRIMARY KEY (o, k)) WITH ('merge' = 'partial_update', "
        "'merge.group.one' = '`A.B`, `by` BY `by`', 'merge.sequence' = '`by`') "
        f"{HOURLY} AS SELECT O, K, `a.b`, L, `by` FROM s"
    )
    declare_merge(lab, "SELECT O, K, `a.b`, L FROM s", "o, k", "versioned", sequence="`by`", name="latest")
    at = "2026-01-01T00:00:00Z"
    events: list[Row] = [
        {"a.b": {"x-y": -0.0, "m": {"p": 1.0}}, "L": [0.0, None], "by": at},
        {"a.b": {"x-y": 0.0, "m": {"p": 0.0}}, "L": [-0.0, None], "by": at},
        {"a.b": {"x-y": 0.0, "m": {"p": -0.0}}, "L": None, "by": at},
        {"a.b": None, "L": [], "by": None},
    ]
    orders = list(permutations(events))
    for place, (start, end) in enumerate([(0, 2), (2, 4)]):
        lab.land(
            "s", f"{place}.json", [{"O": n, "K": 1, **e} for n, order in enumerate(orders) for e in order[start:end]]
        )
        assert {outcome.error for outcome in lab.refresh_all()} == {None}

    expected: dict[str, Row] = {
        "folded": {
            "a.b": {"x-y": 0.0, "m": {"p": 0.0}},
            "m": {"p": 1.0},
            "L": [[], [0.0, None]],
            "first": [0.0, None],
            "n": 3,
        },
        "parts": {"a.b": {"x-y": 0.0, "m": {"p": 0.0}}, "L": [0.0, None]},
        "latest": {"a.b": {"x-y": 0.0, "m": {"p": 0.0}}, "L": [-0.0, None]},
    }
    for name, row in expected.items():
        for found in lab.rows(name):
            assert {column: slow.plain(found[column]) for column in row} == _plain(row), (name, found)
        assert len(lab.rows(name)) == 24
        assert lab.diff(name) == [], name
