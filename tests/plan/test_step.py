"""The step follows from the situation: gates first, then what the query's shape allows."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from freshline.errors import IncrementalError
from freshline.merges.first_row import FirstRow
from freshline.merges.last_row import LastRow
from freshline.plan.changes import ChangeKind, Changes
from freshline.plan.choose import choose_step, find_candidates
from freshline.plan.request import RefreshRequest
from freshline.plan.step import Full, Noop, ReplaceNamedPartitions, Situation
from freshline.query.clock import ClockSpan
from freshline.sql.query_parser import parse_query
from freshline.strategies.append import rule as append_rule
from freshline.strategies.append.rule import Append
from freshline.strategies.keys import rule as keys_rule
from freshline.strategies.keys.components import RefreshComponents
from freshline.strategies.keys.rule import LookUpChanged, RefoldKeys, RefreshKeys
from freshline.strategies.merge.rule import MergeRows
from freshline.strategies.partition import rule as partition_rule
from freshline.strategies.partition.rule import ReplacePartitions
from freshline.values.freshness import Freshness
from freshline.values.location import Location
from freshline.values.names import TableName
from freshline.values.position import TablePosition
from freshline.values.query import PythonInput, PythonQuery
from freshline.values.reason import CODES
from freshline.values.receipt import Receipt
from freshline.values.spec import TableSpec

S, R, D = (TableName.parse(name) for name in ("s", "r", "d"))


GRAPH = "SELECT node, component FROM CONNECTED_COMPONENTS({}, DESCRIPTOR({}))"


def table(query="SELECT a FROM s", **parts):
    return TableSpec(TableName.parse("t"), parse_query(query, "t.sql", 1), Location("t.sql", 1), Freshness(60), **parts)


def receipt_of(spec, **parts):
    return Receipt(
        table=spec.name,
        fingerprint=spec.fingerprint,
        epoch=1,
        seq=1,
        mode="batch",
        strategy="full",
        reason="",
        data_timestamp=None,
        positions={},
        rows_in=0,
        rows_out=0,
        attempt="x",
        **parts,
    )


def changes(name=S, kind=ChangeKind.APPEND, *, change_feed=True, log=False):
    return Changes(name, TablePosition("id", 1), TablePosition("id", 2), kind, log=log, change_feed=change_feed)


COLUMNS = {S: ("a", "k", "n"), R: ("b", "k"), D: ("k", "v")}


def situation(spec, *found, receipt=True, foreign=False, **request):
    there = {name: changes(name, ChangeKind.NOTHING) for name in spec.reads} | {item.name: item for item in found}
    receipt = receipt_of(spec) if receipt is True else receipt
    return Situation(spec, receipt, foreign, there, RefreshRequest(**request), COLUMNS)


def step_of(spec, *found, **parts):
    return choose_step(situation(spec, *found, **parts))


def test_nothing_new_is_a_step_with_a_reason():
    assert step_of(table()).reason.code == "NOTHING_NEW"
    assert isinstance(step_of(table()), Noop)


@pytest.mark.parametrize("query", ["SELECT a FROM s WHERE n > now()", "SELECT count(*) AS c FROM s WHERE n > now()"])
def test_where_no_row_crosses_a_temporal_filter_nothing_is_computed(query):
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    passed = replace(situation(table(query)), clock=ClockSpan(noon, noon + timedelta(hours=1)))
    assert not isinstance(choose_step(passed), Noop)

    step = choose_step(replace(passed, stands_still=True))
    assert (type(step), step.reason.code) == (Noop, "NO_ROW_CROSSED")


def test_changed_dimensions_alone_change_nothing():
    spec = table("SELECT s.a FROM s LEFT JOIN d FOR SYSTEM_TIME AS OF PROCTIME() AS d ON s.k = d.k")
    step = step_of(spec, changes(D, ChangeKind.MUTATE))

    assert (type(step), step.reason.code, step.reason.about) == (Noop, "DIMENSIONS_ONLY", "d")


@pytest.mark.parametrize(
    ("situation", "kind", "code"),
    [
        ({"receipt": None}, ChangeKind.APPEND, "NO_RECEIPT"),
        ({"foreign": True}, ChangeKind.APPEND, "FOREIGN_WRITE"),
        ({"full": True}, ChangeKind.APPEND, "REQUESTED"),
        ({"receipt": replace(receipt_of(table()), fingerprint="other")}, ChangeKind.APPEND, "DEFINITION_CHANGED"),
        ({}, ChangeKind.SOURCE_REPLACED, "SOURCE_REPLACED"),
        ({}, ChangeKind.SCHEMA_CHANGED, "SCHEMA_CHANGED"),
        ({}, ChangeKind.HISTORY_GONE, "HISTORY_GONE"),
    ],
)
def test_gates_and_changes_that_are_no_inserts_need_everything(situation, kind, code):
    step = step_of(table(), changes(kind=kind), **situation)

    assert (type(step), step.reason.code) == (Full, code)


@pytest.mark.parametrize("kind", [ChangeKind.MUTATE, ChangeKind.REPLACE])
def test_updates_deletes_and_overwrites_are_followed_by_keys(kind):
    assert isinstance(step_of(table(), changes(kind=kind)), RefreshKeys)
    without = step_of(table(), changes(kind=kind, change_feed=False))
    assert (type(without), without.reason.code) == (Full, "CDF_DISABLED")


def test_inserts_are_appended_where_new_rows_give_new_rows():
    assert step_of(table(), changes()).as_changes == {S}
    assert isinstance(step_of(table(), changes()), Append)
    assert step_of(table(), changes(change_feed=False)).reason.code == "CDF_DISABLED"
    assert isinstance(step_of(table(), changes(change_feed=False, log=True)), Append)


def test_partitions_of_changed_rows_are_replaced():
    spec = table("SELECT a, count(*) AS n FROM s GROUP BY a", partitioned_by=("a",))

    for kind in (ChangeKind.APPEND, ChangeKind.MUTATE, ChangeKind.REPLACE):
        assert step_of(spec, changes(kind=kind)).expressions == ("a",)
        assert isinstance(step_of(spec, changes(kind=kind)), ReplacePartitions)
    assert step_of(spec, changes(kind=ChangeKind.MUTATE, change_feed=False)).reason.code == "CDF_DISABLED"


def test_a_change_beside_the_input_of_the_partition_needs_everything():
    spec = table("SELECT s.a, r.b FROM s LEFT JOIN r ON s.k = r.k", partitioned_by=("a",))

    assert isinstance(step_of(spec, changes()), Append)
    assert isinstance(step_of(spec, changes(kind=ChangeKind.MUTATE)), ReplacePartitions)
    beside = find_candidates(situation(spec, changes(R, ChangeKind.MUTATE)))
    assert beside.refused["partition"].about == "r changed, the partition follows from s"


def test_after_partitions_were_refreshed_separately_rows_are_not_appended():
    spec = table("SELECT a FROM s", partitioned_by=("a",))
    apart = receipt_of(spec, partitions={"a=1": {S: TablePosition("id", 2)}})

    assert isinstance(step_of(spec, changes()), Append)
    assert isinstance(step_of(spec, changes(), receipt=apart), ReplacePartitions)


def test_named_partitions_are_what_was_asked_for():
    spec = table("SELECT a FROM s", partitioned_by=("a",))
    asked = ((("a", "1"),),)

    assert step_of(spec, changes(), partitions=asked).partitions == asked
    assert isinstance(step_of(spec, partitions=asked), ReplaceNamedPartitions)


def merging(kind=LastRow, **parts):
    return table("SELECT k, a FROM s", primary_key=("k",), merge=kind("a", "k", **parts))


def test_merge_types_fold_inserts_and_the_keys_of_updates_and_deletes_again():
    assert isinstance(step_of(merging(), changes()), MergeRows)
    step = step_of(merging(), changes(kind=ChangeKind.MUTATE))
    assert (type(step), step.reason.code) == (RefoldKeys, "UPSTREAM_DELETES")
    late = merging(FirstRow, late="ignore")
    assert isinstance(step_of(late, changes(kind=ChangeKind.MUTATE)), Full)
    assert isinstance(step_of(merging(), changes(kind=ChangeKind.MUTATE, change_feed=False)), Full)
    assert step_of(merging(), changes(change_feed=False)).reason.code == "CDF_DISABLED"
    assert isinstance(step_of(merging(), changes(change_feed=False, log=True)), MergeRows)


def test_deletes_that_are_ignored_leave_updates_to_merge():
    ignoring = merging(upstream_deletes="ignore")

    assert step_of(ignoring, changes()).updates is False
    assert step_of(ignoring, changes(kind=ChangeKind.MUTATE)).updates is True
    assert step_of(ignoring, changes(kind=ChangeKind.MUTATE, change_feed=False)).reason.code == "CDF_DISABLED"


def test_last_row_with_deletes_needs_a_log_to_find_deletes_in():
    step = step_of(merging(delete_when="a = 0"), changes())
    assert (type(step), step.reason.code) == (RefoldKeys, "AFFECTED_KEYS")
    assert isinstance(step_of(merging(delete_when="a = 0"), changes(log=True)), MergeRows)


def test_every_reason_has_a_sentence():
    assert all(sentence and sentence[0].islower() for sentence in CODES.values())


def test_a_change_in_a_group_is_computed_by_its_keys():
    spec = table("SELECT a, sum(n) AS s FROM s GROUP BY a")

    step = step_of(spec, changes(kind=ChangeKind.MUTATE))

    assert (type(step), step.reason.code, step.affected.columns) == (RefreshKeys, "AFFECTED_KEYS", ("a",))
    assert step.changed == {S}


@pytest.mark.parametrize(
    ("strategy", "columns"), [("append", "a, n"), ("keys", "a, n"), ("partition", "a, n"), ("full", "a, n")]
)
def test_one_strategy_can_be_asked_for(strategy, columns):
    spec = table(f"SELECT {columns} FROM s", partitioned_by=("a",))

    assert step_of(spec, changes(), strategy=strategy).strategy == strategy


def test_a_strategy_that_is_not_right_is_refused_with_its_reason():
    spec = table("SELECT a, sum(n) AS s FROM s GROUP BY a")

    with pytest.raises(IncrementalError, match=r"strategy append .*GROUP BY a"):
        step_of(spec, changes(), strategy="append")
    assert isinstance(step_of(spec, strategy="append"), Noop)


SESSION = "SELECT window_start, a FROM SESSION(TABLE s PARTITION BY a, DESCRIPTOR(k), INTERVAL '5' MINUTES)"
PATTERN = "SELECT * FROM s MATCH_RECOGNIZE ({}ORDER BY k MEASURES A.a AS i PATTERN (A+) DEFINE A AS A.n > 1)"


@pytest.mark.parametrize(
    "query",
    [
        SESSION,
        SESSION.replace(" PARTITION BY a", ""),
        PATTERN.format(""),
        PATTERN.format("PARTITION BY a "),
        f"SELECT max(i) AS i FROM ({PATTERN.format('')})",
    ],
)
def test_reasons_have_the_words_of_the_query_and_none_of_how_it_is_written_out(query):
    found = find_candidates(situation(table(query), changes(kind=ChangeKind.MUTATE)))

    said = " ".join(map(str, found.refused.values()))
    assert not re.search(r"freshline_\w+\.|freshline_(rows|m|match)|COLLECT_LIST|STRUCT\(|UNIX_MICROS", said)


@pytest.mark.parametrize(
    ("query", "follows"),
    [
        ("SELECT CAST(sum(n) AS BIGINT) AS s FROM s", True),
        (
            "SELECT CAST(sum(d) AS DECIMAL(19, 2)) AS s, CAST(count(*) AS BIGINT) AS c, int(max(n)) AS m FROM s",
            True,
        ),
        ("SELECT a, CAST(min(d) AS DECIMAL(9,2)) AS s FROM s GROUP BY a", True),
        ("SELECT CAST(sum(n) AS INT) AS s FROM s", False),
        ("SELECT CAST(sum(d) AS BIGINT) AS s FROM s", False),
        ("SELECT CAST(sum(k) AS BIGINT) AS s FROM s", False),
    ],
)
def test_a_cast_to_the_type_that_an_aggregate_has_changes_nothing(query, follows):
    types = {S: {"a": "STRING", "n": "INT", "d": "DECIMAL(9,2)"}}
    there = situation(table(query), changes(kind=ChangeKind.MUTATE))
    step = choose_step(replace(there, types=types, columns={S: ("a", "k", "n", "d")}))

    assert (isinstance(step, RefreshKeys) and step.uses_stored_values) == follows
    assert follows or step.reason.code == "HIDDEN_AGGREGATE"


@pytest.mark.parametrize(
    ("query", "step"),
    [
        ("SELECT a, k FROM s WHERE n > 0", Append),
        ("SELECT a, count(*) AS n FROM s GROUP BY a", RefreshKeys),
        ("SELECT * FROM s", Full),
        ("SELECT s.a, b FROM s NATURAL JOIN r", Full),
        ("SELECT a, New FROM s", Full),
    ],
)
def test_a_column_that_an_input_gained_matters_to_those_who_read_it(query, step):
    found = step_of(table(query), replace(changes(), gained=("new",)))

    assert isinstance(found, step)
    if step is Full:
        assert (found.reason.code, found.reason.about) == ("SCHEMA_CHANGED", "s: new column new")


LOOKED_UP = "SELECT s.a, s.n, d.v FROM s LEFT JOIN d FOR SYSTEM_TIME AS OF PROCTIME() AS d ON s.k = d.k"


def test_below_a_lookup_join_only_changed_rows_are_joined_whatever_that_costs():
    step = step_of(table(LOOKED_UP), changes(kind=ChangeKind.MUTATE))

    assert (type(step), step.reason.code, step.keys) == (LookUpChanged, "AFFECTED_KEYS", ("a", "n"))
    assert not step.is_priced
    # Without a change feed, too: then the rows of both versions are compared.
    assert isinstance(step_of(table(LOOKED_UP), changes(change_feed=False)), LookUpChanged)


def test_rows_that_a_query_makes_of_several_rows_below_a_lookup_join_are_all_joined():
    step = step_of(table(f"SELECT a, max(v) AS v FROM ({LOOKED_UP}) AS e GROUP BY a"), changes(kind=ChangeKind.MUTATE))

    assert (type(step), step.reason.code, step.reason.about) == (Full, "UNSUPPORTED", "GROUP BY a")


@pytest.mark.parametrize(
    ("edges", "reason"),
    [
        ("SELECT a, first(k) AS k FROM s GROUP BY a", "NONDETERMINISTIC(FIRST(k))"),
        ("SELECT a, k FROM s LIMIT 5", "UNSUPPORTED(LIMIT 5)"),
        ("SELECT a, k FROM (SELECT a, k FROM s ORDER BY n LIMIT 5) AS o", "TOP_N(LIMIT 5)"),
        ("SELECT a, rand() AS k FROM s", "NONDETERMINISTIC(rand)"),
    ],
)
def test_edges_by_the_order_of_reading_are_no_edges_that_came_or_went(edges, reason):
    step = step_of(table(edges), changes())
    assert (type(step), f"{step.reason.code}({step.reason.about})") == (Full, reason)

    step = step_of(table(GRAPH.format(f"({edges})", "a, k")), changes())
    assert (type(step), f"{step.reason.code}({step.reason.about})") == (Full, reason)


@pytest.mark.parametrize(
    "edges", ["TABLE s", "(SELECT DISTINCT a, k FROM s)", "(SELECT a, max(k) AS k, count(*) AS c FROM s GROUP BY a)"]
)
def test_edges_that_came_or_went_decide_which_components_are_computed(edges):
    assert isinstance(step_of(table(GRAPH.format(edges, "a, k")), changes()), RefreshComponents)


@pytest.mark.parametrize(("strategy", "promise"), [("keys", {"keys": ((S, ("a",)),)}), ("append", {"append": S})])
def test_a_function_goes_on_from_its_rows_as_long_as_the_dimension_stands_that_they_were_joined_with(strategy, promise):
    inputs = (PythonInput("s", S), PythonInput("d", D, lookup=True))
    query = PythonQuery("t.py", "t", inputs, "hash", **promise)
    spec = TableSpec(TableName.parse("t"), query, Location("t.py", 1), Freshness(60))

    def candidates(met, now, **dimension):
        base = replace(receipt_of(spec, promise=query.promise), positions={D: TablePosition("id", met)})
        seen = Changes(D, **{"before": TablePosition("id", met), "after": TablePosition("id", now), **dimension})
        return find_candidates(situation(spec, changes(), seen, receipt=base))

    assert candidates(1, 1, kind=ChangeKind.NOTHING).steps[0].strategy == strategy
    assert candidates(1, 2, kind=ChangeKind.NOTHING).steps[0].strategy == strategy, "a commit without rows"
    # A check has seen the newer version, and only dimensions had changed then.
    checked = candidates(1, 2, kind=ChangeKind.NOTHING, before=TablePosition("id", 2))
    for found in (candidates(1, 2, kind=ChangeKind.APPEND), checked):
        assert [type(step) for step in found.steps] == [Full]
        assert found.refused[strategy].about == "the dimension d changed, which all rows meet at one version"


@pytest.fixture
def asked(monkeypatch):
    """The rules over a query that are asked, in order."""
    names = []

    def counted(name, real):
        def noted(*arguments, **named):
            names.append(name)
            return real(*arguments, **named)

        return noted

    for place, name in (
        (append_rule, "find_branches"),
        (partition_rule, "find_origin"),
        (keys_rule, "find_affected"),
        (keys_rule, "find_algebra"),
    ):
        monkeypatch.setattr(place, name, counted(name, getattr(place, name)))
    return names


def test_keys_and_algebra_are_not_searched_where_rows_are_appended(asked):
    assert isinstance(step_of(table(), changes()), Append)
    assert asked == ["find_branches"]


def test_keys_and_algebra_are_not_searched_where_partitions_are_replaced(asked):
    spec = table("SELECT a, count(*) AS n FROM s GROUP BY a", partitioned_by=("a",))

    assert isinstance(step_of(spec, changes()), ReplacePartitions)
    assert asked == ["find_branches", "find_origin"]


@pytest.mark.parametrize(("strategy", "rules"), [("append", ["find_branches"]), ("keys", ["find_affected"])])
def test_only_the_strategy_that_was_asked_for_is_searched(asked, strategy, rules):
    assert step_of(table("SELECT a, k FROM s"), changes(), strategy=strategy).strategy == strategy
    assert asked[: len(rules)] == rules
    assert "find_origin" not in asked


def test_a_full_refresh_that_is_asked_for_says_why_it_is_needed_or_that_it_was_requested():
    needed = step_of(table("SELECT max(a) - min(a) AS m FROM s"), changes(), strategy="full")
    wanted = step_of(table(partitioned_by=("a",)), changes(), strategy="full")

    assert (needed.reason.code, wanted.reason.code) == ("HIDDEN_AGGREGATE", "REQUESTED")


def test_every_candidate_is_searched_where_all_are_shown(asked):
    found = find_candidates(situation(table("SELECT a, count(*) AS n FROM s GROUP BY a"), changes()))

    assert [each.strategy for each in found.steps] == ["keys", "full"]
    assert set(found.refused) == {"append", "partition"}
    assert asked == ["find_branches", "find_origin", "find_affected", "find_algebra"]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT a FROM s",
        "SELECT a, count(*) AS n FROM s GROUP BY a",
        "SELECT max(a) AS m FROM s",
        "SELECT uuid() AS u FROM s",
    ],
)
@pytest.mark.parametrize("kind", [ChangeKind.APPEND, ChangeKind.MUTATE, ChangeKind.NOTHING, ChangeKind.HISTORY_GONE])
@pytest.mark.parametrize("partitioned_by", [(), ("a",)])
def test_the_step_that_is_taken_is_the_first_of_all_candidates(query, kind, partitioned_by):
    found = situation(table(query, partitioned_by=partitioned_by), changes(kind=kind))

    assert choose_step(found) == find_candidates(found).steps[0]
