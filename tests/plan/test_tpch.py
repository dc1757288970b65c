"""How the 22 queries of TPC-H are kept up, and that no row outside of the affected keys differs."""

from __future__ import annotations

import duckdb
import pytest

from benchmarks.tpch_tables.data import OTHERS, column_names, generate, new_orders, old_orders
from benchmarks.tpch_tables.declarations import SOURCES, TABLES, reads, statement
from freshline.plan.changes import ChangeKind
from freshline.plan.explain import declared_types, find_case
from freshline.plan.project import open_project
from freshline.values.names import TableName
from freshline.values.query import SqlQuery
from freshline.values.reason import Reason
from tests.query.two_times import TwoTimes

ONE_SUM = "keys ALGEBRAIC(all rows)"
# The step when orders and lines change together, as the refresh functions of TPC-H change them.
AFTER_ORDERS = {
    "q01": "keys AFFECTED_KEYS(l_returnflag, l_linestatus)",
    "q02": "noop NOTHING_NEW()",
    "q03": "keys AFFECTED_KEYS(l_orderkey, o_orderdate, o_shippriority)",
    "q04": "keys AFFECTED_KEYS(o_orderpriority)",
    "q05": "keys AFFECTED_KEYS(n_name)",
    "q06": ONE_SUM,
    "q07": "keys AFFECTED_KEYS(supp_nation, cust_nation, l_year)",
    "q08": "keys AFFECTED_KEYS(o_year)",
    "q09": "keys AFFECTED_KEYS(nation, o_year)",
    "q10": "keys AFFECTED_KEYS(c_custkey, c_name, c_acctbal, n_name, c_address, c_phone, c_comment)",
    "q11": "noop NOTHING_NEW()",
    "q12": "keys AFFECTED_KEYS(l_shipmode)",
    "q13": "keys AFFECTED_KEYS(c_count)",
    "q14": "full HIDDEN_AGGREGATE(SUM(l_extendedprice * (1 - l_discount)))",
    "q15": "keys AFFECTED_KEYS(s_suppkey, s_name, s_address, s_phone, total_revenue)",
    "q16": "noop NOTHING_NEW()",
    "q17": "full HIDDEN_AGGREGATE(SUM(l_extendedprice))",
    "q18": "keys AFFECTED_KEYS(c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice)",
    "q19": ONE_SUM,
    "q20": "keys AFFECTED_KEYS(s_name, s_address)",
    "q21": "keys AFFECTED_KEYS(s_name)",
    "q22": "keys AFFECTED_KEYS(cntrycode)",
}
# The step when every input changes, where that is another one.
AFTER_ALL = AFTER_ORDERS | {
    "q02": "keys AFFECTED_KEYS(s_acctbal, s_name, n_name, p_partkey, p_mfgr, s_address, s_phone, s_comment)",
    "q11": "keys AFFECTED_KEYS(ps_partkey)",
    "q16": "keys AFFECTED_KEYS(p_brand, p_type, p_size)",
}


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    from tests.conftest import settings_in

    settings = settings_in(tmp_path_factory.mktemp("tpch"))
    settings.declarations.mkdir(parents=True)
    for name, source in SOURCES.items():
        key = ", ".join(source.primary_key)
        text = (
            f"CREATE SOURCE {name} ({source.columns}, PRIMARY KEY ({key})) WITH ('connector' = 'delta', 'path' = 'x')"
        )
        (settings.declarations / f"{name}.sql").write_text(text)
    for table in TABLES:
        (settings.declarations / f"{table}.sql").write_text(statement(table))
    return open_project(settings)


def told(graph, table, changed):
    spec = graph.table(TableName.parse(table))
    kinds = {name: ChangeKind.MUTATE for name in spec.reads if str(name) in changed}
    columns = {name: graph.columns(name) for name in spec.reads}
    step = find_case(spec, columns, kinds, declared_types(spec, graph)).steps[0]
    return f"{step.strategy} {step.reason.code}({step.reason.about})"


@pytest.mark.seconds
def test_orders_and_lines_that_change_are_followed(graph):
    assert {table: told(graph, table, {"orders", "lineitem"}) for table in TABLES} == AFTER_ORDERS


@pytest.mark.seconds
def test_any_change_is_followed_where_the_rows_of_the_table_can_be_distinguished(graph):
    assert {table: told(graph, table, set(SOURCES)) for table in TABLES} == AFTER_ALL


@pytest.mark.seconds
@pytest.mark.parametrize("changed", SOURCES)
def test_one_input_that_changes_is_followed_where_all_are(graph, changed):
    for table in TABLES:
        expected = AFTER_ALL[table] if changed in reads(table) else "noop NOTHING_NEW()"
        assert told(graph, table, {changed}) == expected, table


# -- the keys themselves


CHANGES = {
    "orders": [*new_orders(101, 1), *old_orders(97, 2)],
    "others": [*OTHERS],
    "everything": [*new_orders(103, 3), *OTHERS, *old_orders(89, 4)],
}


@pytest.fixture(scope="module")
def generated(tmp_path_factory):
    return generate(tmp_path_factory.mktemp("rows"), 0.01)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        pytest.param(changes, id=name, marks=[] if name == "everything" else pytest.mark.long)
        for name, changes in CHANGES.items()
    ],
)
def test_every_row_that_differs_has_an_affected_key(graph, generated, changes):
    with duckdb.connect() as connection:
        for name, file in generated.items():
            connection.execute(f"CREATE TABLE {name} AS FROM '{file}'")
            connection.execute(f"CREATE TABLE old_{name} AS FROM {name}")
        for change in changes:
            connection.execute(change)
        for name in generated:
            connection.execute(f"ALTER TABLE {name} RENAME TO new_{name}")
        sources = {name: graph.spec(TableName.parse(name)).columns for name in SOURCES}
        types = {name: {column.name.lower(): column.type for column in columns} for name, columns in sources.items()}
        times = TwoTimes(connection, {name: column_names(name) for name in SOURCES}, types)
        differing = 0
        for table in TABLES:
            query = graph.table(TableName.parse(table)).query
            assert isinstance(query, SqlQuery)
            found = times.look(query.render())
            if isinstance(found, Reason):
                # A sum of all rows has no key, and follows from the changed rows without one.
                assert AFTER_ALL[table] in (ONE_SUM, f"full {found.code}({found.about})"), table
                continue
            assert found.alike, table
            assert found.missing == frozenset(), table
            differing += len(found.differing)
        assert differing > 50
