"""Tables of graph functions equal the function over all edges, and follow by the components that changed."""

from __future__ import annotations

import random
from typing import Any

import networkx as nx
import pytest

from freshline.compute import graph as graph_rows
from freshline.errors import DeclarationErrors
from tests.compute.test_graph_in_memory import by_definition, exact_ranks
from tests.crashes import crash

HEAD = "FRESHNESS = INTERVAL '5' MINUTE AS SELECT"
Pair = tuple[Any, Any]


def pairs_of(lab, name: str = "edge") -> list[Pair]:
    pairs = [(row["src"], row["dst"]) for row in lab.rows(name)]
    return [pair for pair in pairs if None not in pair]


def stored(lab, table: str, value: str) -> dict[Any, Any]:
    rows = lab.rows(table)
    found = {row["node"]: row[value] for row in rows}
    assert len(found) == len(rows)
    return found


def components_of(pairs: list[Pair]) -> dict[Any, Any]:
    return {node: min(group) for group in nx.connected_components(nx.Graph(pairs)) for node in group}


def require_all(lab, *, verify: bool = True) -> None:
    """Require the tables of `edge` to be the functions over it, by networkx, elimination and definition, and verify."""
    pairs = pairs_of(lab)
    assert stored(lab, "part", "component") == components_of(pairs)
    assert stored(lab, "community", "community") == by_definition(pairs, 4)
    expected = exact_ranks(pairs)
    ranks = stored(lab, "importance", "rank")
    assert ranks.keys() == expected.keys()
    assert all(abs(ranks[node] - expected[node]) <= 5e-6 for node in expected)
    for table in TABLES if verify else ():
        found = lab.verify(table)
        assert found.equal, (table, found)


def declare_all(lab) -> None:
    lab.declare(
        "CREATE MATERIALIZED TABLE part (PRIMARY KEY (node)) "
        f"{HEAD} node, component FROM CONNECTED_COMPONENTS(TABLE edge, DESCRIPTOR(src, dst))"
    )
    lab.declare(
        f"CREATE MATERIALIZED TABLE importance {HEAD} * "
        "FROM TABLE(PAGERANK(DATA => TABLE edge, EDGES => DESCRIPTOR(src, dst), TOLERANCE => 1e-5)) AS p"
    )
    lab.declare(
        "CREATE MATERIALIZED TABLE community (PRIMARY KEY (node)) "
        f"{HEAD} c.node, c.community FROM COMMUNITIES((SELECT src, dst FROM edge), DESCRIPTOR(src, dst), ROUNDS => 4) c"
    )
    # Some nodes only, a value that is computed, and edges that need more than one row of the input each.
    lab.declare(
        f"CREATE MATERIALIZED TABLE even {HEAD} concat('c', component) AS name, node AS `node-id` "
        "FROM CONNECTED_COMPONENTS((SELECT DISTINCT src, dst FROM edge WHERE src <> dst), DESCRIPTOR(src, dst)) "
        "WHERE ascii(substring(node, -1)) % 2 = 0"
    )


TABLES = ("part", "community", "importance", "even")


def drawn(chance: random.Random, number: int) -> list[str]:
    """Statements that change edges: they come, go and move; to themselves, several times, and to nobody."""

    def node() -> str:
        return chance.choice(["NULL", *[f"'n{chance.randrange(40)}'"] * 15])

    rows = ", ".join(f"({number * 100 + n}, {node()}, {node()}, 0)" for n in range(1, chance.randint(2, 8)))
    changes = [
        f"INSERT INTO edge VALUES {rows}",
        f"UPDATE edge SET dst = {node()} WHERE id % 9 = {chance.randrange(9)}",
        f"DELETE FROM edge WHERE id % 7 = {chance.randrange(7)}",
        f"UPDATE edge SET src = dst, dst = src WHERE id % 5 = {chance.randrange(5)}",
        f"DELETE FROM edge WHERE src = 'n{chance.randrange(40)}'",
    ]
    return [changes[0], *chance.sample(changes[1:], chance.randint(0, 2))]


@pytest.mark.long
@pytest.mark.parametrize("rounds", [30])
def test_graphs_follow_every_change(lab, rounds):
    lab.source("edge", "id BIGINT, src STRING, dst STRING, weight INT")
    declare_all(lab)
    chance = random.Random(8)
    for number in range(rounds):
        for change in drawn(chance, number):
            lab.sql(change)
        for table in TABLES:
            outcome = lab.refresh(table)
            assert outcome.error is None, outcome.error
            assert outcome.strategy in (("keys", "noop") if number else ("full",)), outcome.reason
        require_all(lab, verify=number % 5 == 3)
        if number == 1:
            lab.restart(lose_control_store=True)
    explained = lab.explain("part")
    assert "AFFECTED_COMPONENTS(node)" in str(explained)


def test_one_refresh_joins_components_and_parts_another(lab):
    lab.source("edge", "id BIGINT, src STRING, dst STRING, weight INT")
    lab.sql(
        "INSERT INTO edge VALUES (1, 'a', 'b', 0), (2, 'b', 'c', 0), (3, 'x', 'y', 0), (4, 'y', 'z', 0), "
        "(5, 'p', 'q', 0), (6, 's', 's', 0), (7, 'u', NULL, 0), (8, 'p', 'q', 0)"
    )
    declare_all(lab)
    for table in TABLES:
        lab.refresh(table)
    assert stored(lab, "part", "component") == {
        "a": "a", "b": "a", "c": "a", "x": "x", "y": "x", "z": "x", "p": "p", "q": "p", "s": "s",
    }  # fmt: skip

    # Parts a-b-c, and joins c, x-y-z and a new node. One of two equal edges goes; a weight is no matter of the graph.
    lab.sql("DELETE FROM edge WHERE id IN (2, 6, 8)")
    lab.sql("INSERT INTO edge VALUES (9, 'c', 'z', 0), (10, 'n', 'z', 0)")
    lab.sql("UPDATE edge SET weight = 1 WHERE id = 5")
    outcomes = {table: lab.refresh(table) for table in TABLES}
    assert {outcome.strategy for outcome in outcomes.values()} == {"keys"}
    # a stays as it is; the component of p and q had two edges and has one, which is no matter of components.
    assert outcomes["part"].rows_out == 6
    assert stored(lab, "part", "component") == {
        "a": "a", "b": "a", "c": "c", "x": "c", "y": "c", "z": "c", "n": "c", "p": "p", "q": "p",
    }  # fmt: skip
    require_all(lab)

    lab.sql("UPDATE edge SET weight = 2")
    assert {lab.refresh(table).strategy for table in TABLES} == {"noop"}
    lab.sql("DELETE FROM edge")
    assert {lab.refresh(table).strategy for table in TABLES} == {"keys"}
    assert [lab.rows(table) for table in TABLES] == [[], [], [], []]


@pytest.mark.long
def test_a_refresh_that_is_killed_and_a_savepoint_leave_the_tables_right(lab):
    lab.source("edge", "id BIGINT, src STRING, dst STRING, weight INT")
    lab.sql("INSERT INTO edge VALUES (1, 'a', 'b', 0), (2, 'c', 'd', 0)")
    declare_all(lab)
    for table in TABLES:
        lab.refresh(table)
    lab.create_savepoint("before")
    lab.sql("INSERT INTO edge VALUES (3, 'b', 'c', 0)")
    for table, point in zip(TABLES, ("table-pinned", "table-before-commit", "table-after-commit"), strict=False):
        crash(lab, point, table)
    for table in TABLES:
        # One of the tables may be up to date already.
        assert lab.refresh(table).strategy in ("keys", "noop")
    require_all(lab)
    lab.restore_savepoint("before")
    assert stored(lab, "part", "component") == {"a": "a", "b": "a", "c": "c", "d": "c"}
    for table in TABLES:
        assert lab.refresh(table).error is None
    require_all(lab)


@pytest.mark.long
def test_more_edges_than_memory_is_for_give_the_same_tables(lab, monkeypatch):
    monkeypatch.setattr(graph_rows, "MOST_IN_MEMORY", 0)
    lab.source("edge", "id BIGINT, src STRING, dst STRING, weight INT")
    # A path that is longer than the rounds in which edges are followed, a hub, a loop, and an edge that is there twice.
    # No cycle, of which ranks take many rounds.
    path = [(f"p{n:02}", f"p{n + 1:02}") for n in range(10)]
    hub = [(f"h{n}", "h") for n in range(6)]
    pairs = [*path, *hub, ("s", "s"), ("d", "e"), ("d", "e"), ("e", "f")]
    rows = ", ".join(f"({n}, '{src}', '{dst}', 0)" for n, (src, dst) in enumerate(pairs))
    lab.sql(f"INSERT INTO edge VALUES {rows}, (100, NULL, 'a', 0)")
    declare_all(lab)
    for table in TABLES:
        assert lab.refresh(table).error is None
    require_all(lab, verify=False)
    lab.sql("DELETE FROM edge WHERE src IN ('p05', 'h3')")
    lab.sql("INSERT INTO edge VALUES (50, 'f', 'g', 0), (51, 'p10', 'h', 0)")
    for table in TABLES:
        assert lab.refresh(table).strategy == "keys"
    require_all(lab, verify=False)


@pytest.mark.long
@pytest.mark.parametrize("kinds", [("money", "at", "bytes"), ("whole", "day", "yes")])
def test_nodes_of_other_types_and_constraints(lab, kinds):
    types = {
        "whole": ("INT", "1", "2", "3"),
        "money": ("DECIMAL(10,2)", "1.50", "10.25", "2.00"),
        "day": ("DATE", "DATE'1969-12-31'", "DATE'2026-01-01'", "DATE'1970-01-01'"),
        "at": ("TIMESTAMP", "TIMESTAMP'1969-12-31 23:59:59.999999Z'", "TIMESTAMP'2026-01-01 00:00:00Z'", "NULL"),
        "yes": ("BOOLEAN", "true", "false", "true"),
        "bytes": ("BINARY", "X'FF'", "X'00FF'", "X''"),
    }
    for name in kinds:
        kind, first, second, third = types[name]
        lab.source(f"edge_{name}", f"`a-b` {kind}, dst {kind}")
        lab.sql(f"INSERT INTO edge_{name} VALUES ({first}, {second}), ({second}, {third})")
        lab.declare(
            f"CREATE MATERIALIZED TABLE part_{name} (CONSTRAINT c EXPECT (node IS NOT NULL) ON VIOLATION DROP ROW) "
            f"{HEAD} * FROM CONNECTED_COMPONENTS(TABLE edge_{name}, DESCRIPTOR(`a-b`, dst))"
        )
        assert lab.refresh(f"part_{name}").error is None
        lab.sql(f"INSERT INTO edge_{name} VALUES ({first}, {first})")
        assert lab.refresh(f"part_{name}").error is None
        pairs = [pair for pair in ((row["a-b"], row["dst"]) for row in lab.rows(f"edge_{name}")) if None not in pair]
        assert stored(lab, f"part_{name}", "component") == components_of(pairs), name
        assert lab.verify(f"part_{name}").equal


@pytest.mark.parametrize(("column", "strategy"), [("weight", "keys"), ("share", "full")])
def test_edges_by_a_sum_of_doubles_are_computed_in_full(lab, column, strategy):
    lab.source("edge", "src STRING, dst STRING, weight INT, share DOUBLE")
    edges = f"(SELECT src, dst FROM edge GROUP BY src, dst HAVING sum({column}) > 0.6)"
    components = f"CONNECTED_COMPONENTS({edges}, DESCRIPTOR(src, dst))"
    lab.declare(f"CREATE MATERIALIZED TABLE part {HEAD} node, component FROM {components}")

    found = lab.explain("part")

    assert {str(case.strategy) for case in found.cases} == {strategy}
    assert strategy == "keys" or all(case.reason.code == "INEXACT_KEY" for case in found.cases)


REFUSED = {
    "CONNECTED_COMPONENTS: a table of a graph has the column node": "component FROM {}",
    "this query has GROUP": "node, count(*) AS n FROM {} GROUP BY node",
    "this query has JOINS": "g.node FROM {} g JOIN edge e ON e.src = g.node",
    "this query has another input": "node FROM (SELECT node FROM {})",
    "this query has WITH": "node FROM g",
    "this query has OVER": "node, rank() OVER (ORDER BY node) AS n FROM {}",
    "this query has a set operation": "node FROM {} UNION ALL SELECT src FROM edge",
    "this query has a subquery": "node FROM {} WHERE node IN (SELECT src FROM edge)",
    "a query has one graph function": "node FROM {} UNION ALL SELECT node FROM {}",
    "the ends of an edge are two columns": "node FROM CONNECTED_COMPONENTS(TABLE edge, DESCRIPTOR(src))",
    "EDGES is missing": "node FROM CONNECTED_COMPONENTS(TABLE edge)",
    "has no argument TOLERANC. Did you mean TOLERANCE?": (
        "node FROM PAGERANK(TABLE edge, DESCRIPTOR(src, dst), TOLERANC => 1)"
    ),
    "TOLERANCE 1e-12 is no number between 1e-09 and 0.1": "node FROM PAGERANK(TABLE edge, DESCRIPTOR(src, dst), 1e-12)",
    "ROUNDS 0 is no whole number between 1 and 1,000": "node FROM COMMUNITIES(TABLE edge, DESCRIPTOR(src, dst), 0)",
    "a rank is right within TOLERANCE": "node, rank FROM PAGERANK(TABLE edge, DESCRIPTOR(src, dst)) WHERE rank > 1",
    "both are nodes of one type": "node FROM COMMUNITIES(TABLE edge, DESCRIPTOR(src, weight))",
    "the end share is DOUBLE": "node FROM COMMUNITIES(TABLE edge, DESCRIPTOR(share, share))",
}
CALL = "CONNECTED_COMPONENTS(TABLE edge, DESCRIPTOR(src, dst))"


def test_mistakes_are_reported_at_the_line_of_the_call(lab):
    lab.source("edge", "src STRING, dst STRING, weight INT, share DOUBLE")
    for said, query in REFUSED.items():
        with_ = f"WITH g AS (SELECT node FROM {CALL})\n" if "WITH" in said else ""
        written = f"FRESHNESS = INTERVAL '5' MINUTE AS\n{with_}SELECT\n{query.replace('{}', CALL)}"
        with pytest.raises(DeclarationErrors) as found:
            lab.declare(f"CREATE MATERIALIZED TABLE t\n{written}")
        assert said in str(found.value), (query, str(found.value))
        assert {error.rule for error in found.value.errors} <= {"GRAPH", "QUERY_SYNTAX"}
    for said, items in (
        ("a rank is right within TOLERANCE", "node, rank AS r, round(r, 2) AS s"),
        ("a rank is right within TOLERANCE", "node, rank, hash(*) AS h"),
        ("a rank is right within TOLERANCE", "node, * EXCEPT (node)"),
        ("the select list has rank twice", "node, rank, rank AS r"),
        ("the select list has rank twice", "*, rank AS r"),
    ):
        with pytest.raises(DeclarationErrors, match=said):
            lab.declare(f"CREATE MATERIALIZED TABLE t {HEAD} {items} FROM PAGERANK(TABLE edge, DESCRIPTOR(src, dst))")
    whole = f"{HEAD} node, component FROM {CALL}"
    ranks = f"{HEAD} node, rank AS r FROM PAGERANK(TABLE edge, DESCRIPTOR(src, dst))"
    for header, body in (
        ("PARTITIONED BY (component)", whole),
        ("EMIT FINAL", whole),
        ("(CONSTRAINT c EXPECT (r > 1) ON VIOLATION DROP ROW)", ranks),
    ):
        place = body.replace(" AS SELECT", f" {header} AS SELECT") if header == "EMIT FINAL" else f"{header} {body}"
        with pytest.raises(DeclarationErrors) as found:
            lab.declare(f"CREATE MATERIALIZED TABLE t {place}")
        assert [error.rule for error in found.value.errors] == ["GRAPH"]
