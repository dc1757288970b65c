"""Order, freshness and the rules between declarations."""

from __future__ import annotations

import pytest

from freshline.values.freshness import Freshness
from freshline.values.names import TableName


def name(text: str) -> TableName:
    return TableName.parse(text)


def names(found) -> list[str]:
    return [str(each) for each in found]


def source(project, path: str, freshness: str = "", connector: str = "'files', 'format' = 'json'") -> None:
    project.declare(
        f"{path.replace('.', '/')}.sql",
        f"CREATE SOURCE {path} (id INT) {freshness} WITH ('connector' = {connector}, 'path' = 'x')",
    )


def freshness(seconds: int) -> str:
    return f"FRESHNESS = INTERVAL '{seconds}' SECOND"


def test_the_order_has_sources_first_and_every_table_behind_what_it_reads(project):
    source(project, "z_source")
    source(project, "a_source")
    project.table("b", "SELECT d.id FROM d JOIN a_source s ON d.id = s.id")
    project.table("c", "SELECT id FROM z_source")
    project.table("d", "SELECT id FROM c")
    project.table("sales.a", "SELECT id FROM z_source")
    graph = project.read()

    assert names(graph.order) == ["a_source", "z_source", "c", "d", "b", "sales.a"]
    assert names(spec.name for spec in graph.sources) == ["a_source", "z_source"]
    assert names(spec.name for spec in graph.tables) == ["c", "d", "b", "sales.a"]


def test_neighbours_are_found_near_and_far(shop):
    shop.table("a", "SELECT id, customer FROM orders")
    shop.table("b", "SELECT a.id FROM a JOIN customers FOR SYSTEM_TIME AS OF PROCTIME() AS c ON c.id = a.customer")
    shop.table("c", "SELECT b.id FROM b JOIN customers x ON b.id = x.id", header="WITH ('non-driving' = 'customers')")
    graph = shop.read()

    assert names(graph.consumers(name("customers"))) == ["b", "c"]
    assert names(graph.consumers(name("c"))) == []
    assert names(graph.reads(name("b"))) == ["a", "customers"]
    assert names(graph.upstream(name("c"))) == ["customers", "orders", "a", "b"]
    assert names(graph.downstream(name("orders"))) == ["a", "b", "c"]
    assert names(graph.driving(name("c"))) == ["b"]
    assert names(graph.roots(name("c"))) == ["orders"]
    assert names(graph.roots(name("orders"))) == ["orders"]


def test_names_are_found_in_any_letter_case_and_their_neighbours_named(shop):
    shop.table("a", "SELECT ID FROM Orders")
    graph = shop.read()

    assert graph.spec(name("ORDERS")) is graph.source(name("orders"))
    assert name("A") in graph
    assert name("b") not in graph
    assert graph.columns(name("A")) == ("ID",)
    with pytest.raises(KeyError, match="no table or source order.*Did you mean orders"):
        graph.spec(name("order"))
    with pytest.raises(KeyError, match="is a source"):
        graph.table(name("orders"))
    with pytest.raises(KeyError, match="is a table"):
        graph.source(name("a"))


def test_a_cycle_is_refused_with_its_path(project):
    source(project, "s")
    project.table("a", "SELECT c.id FROM c JOIN s ON s.id = c.id")
    project.table("b", "SELECT id FROM a")
    project.table("c", "SELECT id FROM b")
    project.table("behind", "SELECT id FROM c")
    message = project.check_error("CYCLE", at="assets/a.sql:1")

    assert message.startswith("a reads c reads b reads a.")


def test_each_cycle_is_reported_once_and_a_table_may_not_read_itself(project):
    project.table("a", "SELECT id FROM b")
    project.table("b", "SELECT id FROM a")
    project.table("x", "SELECT id FROM x")

    assert [(rule, message.partition(".")[0]) for rule, _, message in project.errors()] == [
        ("CYCLE", "a reads b reads a"),
        ("CYCLE", "x reads x"),
    ]


def test_a_lookup_closes_a_cycle_too(project):
    source(project, "s")
    project.table("a", "SELECT s.id FROM s JOIN b FOR SYSTEM_TIME AS OF PROCTIME() AS d ON d.id = s.id")
    project.table("b", "SELECT id FROM a")
    assert project.rules() == ["CYCLE"]


def test_an_unknown_upstream_is_reported_with_its_line_and_the_nearest_name(shop):
    shop.table("t", "SELECT o.id\nFROM ordrs o\nJOIN nothing_like_it n ON n.id = o.id")
    errors = shop.errors()

    assert [(rule, where) for rule, where, _ in errors] == [
        ("UNKNOWN_UPSTREAM", "assets/t.sql:4"),
        ("UNKNOWN_UPSTREAM", "assets/t.sql:5"),
    ]
    assert "t reads ordrs, which is not declared. Did you mean orders?" in errors[0][2]
    assert "Did you mean" not in errors[1][2]


def test_a_declaration_that_is_broken_is_not_unknown_to_its_readers(shop):
    shop.table("a", "SELECT FROM WHERE")
    shop.table("b", "SELECT id FROM a")
    shop.table("c", "SELECT nothing FROM b")
    assert [(rule, where) for rule, where, _ in shop.errors()] == [("QUERY_SYNTAX", "assets/a.sql:3")]


def test_names_that_differ_in_letter_case_only_are_one_name(shop):
    shop.table("Orders", "SELECT 1 AS one")
    shop.check_error("DUPLICATE_NAME", "also declared in assets/")


@pytest.mark.seconds
def test_the_same_name_in_sql_and_in_python_is_declared_twice(shop):
    shop.table("t", "SELECT id FROM orders")
    shop.declare("t.py", "import freshline\nfreshline.table(query='SELECT id FROM orders')\n")
    shop.check_error("DUPLICATE_NAME", "assets/t.py:2", at="assets/t.sql:1")


def test_a_name_may_not_be_a_namespace_too(shop):
    shop.table("orders.t", "SELECT id FROM orders")
    shop.check_error("PATH_COLLISION", "orders and orders.t would lie in one folder", at="assets/orders.sql:1")


@pytest.mark.parametrize("suffix", ["__quarantine", "__file"])
def test_the_tables_beside_a_log_table_are_taken(shop, suffix):
    shop.table(f"orders{suffix}", "SELECT 1 AS one")
    shop.table(f"customers{suffix}", "SELECT 1 AS one")
    assert [(rule, where) for rule, where, _ in shop.errors()] == [("PATH_COLLISION", f"assets/orders{suffix}.sql:1")]


@pytest.mark.parametrize("taken", ["freshline_refreshes", "Freshline_x", "freshline_5.x", "sales.freshline_y"])
def test_names_of_freshlines_own_are_refused(shop, taken):
    shop.table(taken, "SELECT 1 AS one")
    assert shop.rules() == ["RESERVED_NAME"]


# -- freshness


def test_a_source_is_as_fresh_as_its_tightest_consumer_asks(project):
    source(project, "s")
    source(project, "stated", freshness(20))
    source(project, "unread")
    project.table("a", "SELECT id FROM s", header=freshness(300))
    project.table("b", "SELECT id FROM s", header=freshness(30))
    project.table("c", "SELECT id FROM stated", header=freshness(600))
    graph = project.read()

    assert graph.freshness(name("s")) == Freshness(30)
    assert graph.freshness(name("stated")) == Freshness(20)
    assert graph.freshness(name("unread")) == Freshness(3600)


def test_a_consumer_that_it_does_not_drive_counts_only_where_there_is_no_other(project):
    source(project, "s")
    source(project, "d")
    source(project, "e")
    project.table(
        "a",
        "SELECT s.id FROM s JOIN d ON d.id = s.id JOIN e ON e.id = s.id",
        header=freshness(30) + " WITH ('non-driving' = 'd, e')",
    )
    project.table("b", "SELECT id FROM d", header=freshness(600))
    graph = project.read()

    assert graph.freshness(name("d")) == Freshness(600)
    assert graph.freshness(name("e")) == Freshness(30)


def test_downstream_inherits_the_tightest_of_its_consumers(project):
    source(project, "s")
    project.table("a", "SELECT id FROM s", header="FRESHNESS = DOWNSTREAM")
    project.table("b", "SELECT id FROM a", header="FRESHNESS = DOWNSTREAM")
    project.table("c", "SELECT id FROM b", header=freshness(600))
    project.table("d", "SELECT id FROM a", header=freshness(20))
    graph = project.read()

    assert graph.freshness(name("a")) == Freshness(20)
    assert graph.freshness(name("b")) == Freshness(600)
    assert graph.freshness(name("s")) == Freshness(20)


def test_a_downstream_leaf_is_an_error(project):
    source(project, "s")
    project.table("a", "SELECT id FROM s", header="FRESHNESS = DOWNSTREAM")
    project.check_error("FRESHNESS_DOWNSTREAM", "no table reads a", at="assets/a.sql:2")


@pytest.mark.parametrize("declare_upstream", ["table", "source"])
def test_a_table_cannot_be_fresher_than_what_drives_it(project, declare_upstream):
    if declare_upstream == "table":
        source(project, "s")
        project.table("up", "SELECT id FROM s", header=freshness(600))
        line = 2
    else:
        source(project, "up", freshness(600))
        line = 1
    project.table("t", "SELECT id FROM up", header=freshness(60))
    project.check_error(
        "FRESHNESS_UPSTREAM",
        "freshness 1 minute is tighter than up delivers",
        f"10 minutes (assets/up.sql:{line})",
        at="assets/t.sql:2",
    )


def test_lookups_and_non_driving_inputs_do_not_delay_a_table(project):
    source(project, "s")
    project.table("slow", "SELECT id FROM s", header=freshness(600))
    project.table(
        "a", "SELECT s.id FROM s JOIN slow FOR SYSTEM_TIME AS OF PROCTIME() AS d ON d.id = s.id", header=freshness(10)
    )
    project.table(
        "b", "SELECT s.id FROM s JOIN slow ON slow.id = s.id", header=freshness(10) + " WITH ('non-driving' = 'slow')"
    )
    assert project.errors() == []


def test_a_source_that_is_read_in_place_delays_nothing(project):
    source(project, "s", freshness(86_400), connector="'delta'")
    project.table("t", "SELECT id FROM s", header=freshness(60))
    assert project.read().freshness(name("s")) == Freshness(86_400)


def test_the_default_freshness_is_checked_by_the_same_rule(project):
    source(project, "s", freshness(86_400))
    project.table("t", "SELECT id FROM s")
    assert "freshness 1 hour (the project's default) is tighter than s delivers" in project.error()[2]


# -- freshnesses in place of the declared ones


def chain(project) -> None:
    """orders (inherits) -> clean (DOWNSTREAM) -> spend (5 min) -> report (1 day, lookup on customers)"""
    project.inputs()
    project.table("clean", "SELECT id, customer FROM orders", header="FRESHNESS = DOWNSTREAM")
    project.table("spend", "SELECT id, customer FROM clean", header=freshness(300))
    project.table("report", "SELECT id FROM spend", header=freshness(86_400))


def test_another_freshness_changes_the_mode_and_is_inherited_by_inputs(project):
    chain(project)
    graph = project.read()

    changed = graph.with_freshness({name("SPEND"): Freshness(5)})

    assert [changed.freshness(name(each)).seconds for each in ("orders", "clean", "spend", "report")] == [
        5, 5, 5, 86_400,
    ]  # fmt: skip
    assert [str(changed.mode(name(each))) for each in ("clean", "spend", "report")] == [
        "continuous", "continuous", "batch",
    ]  # fmt: skip
    assert changed.mode_reason(name("spend")) == "freshness 5 seconds is below 1 minute"
    assert changed.declared_freshness(name("spend")) == Freshness(300)
    assert changed.overrides == {name("spend"): Freshness(5)}


def test_taking_it_back_gives_the_declared_graph(project):
    chain(project)
    graph = project.read()
    changed = graph.with_freshness({name("spend"): Freshness(5)})

    back = changed.with_freshness({})
    other = changed.with_freshness({name("report"): Freshness(3600)})

    assert (back.freshnesses, back.modes) == (graph.freshnesses, graph.modes)
    assert other.freshness(name("spend")) == Freshness(300)
    assert graph.with_freshness({}) is graph


def test_an_override_of_what_is_no_table_any_more_is_left_out(project):
    chain(project)
    graph = project.read()

    assert graph.with_freshness({name("gone"): Freshness(5), name("orders"): Freshness(5)}) is graph


def test_an_override_that_cannot_be_kept_is_named_and_takes_nothing_down(project):
    project.inputs()
    project.table("clean", "SELECT id FROM orders", header=freshness(600))
    project.table("spend", "SELECT id FROM clean", header=freshness(3600))
    graph = project.read()

    changed = graph.with_freshness({name("spend"): Freshness(1)})

    assert names(changed.slower_inputs(name("spend"))) == ["clean"]
    assert graph.slower_inputs(name("spend")) == ()
    assert changed.freshness(name("spend")) == Freshness(1)


def test_an_explicit_mode_outlives_another_freshness(project):
    project.inputs()
    project.table("clean", "SELECT id FROM orders", header=f"{freshness(3600)} REFRESH_MODE = BATCH")

    changed = project.read().with_freshness({name("clean"): Freshness(5)})

    assert changed.mode_reason(name("clean")) == "REFRESH_MODE = BATCH is declared"


def test_below_a_table_is_what_it_drives(shop):
    shop.table("a", "SELECT id, customer FROM orders")
    shop.table("b", "SELECT id FROM a")
    shop.table("c", "SELECT b.id FROM b JOIN a x ON b.id = x.id", header="WITH ('non-driving' = 'b')")
    graph = shop.read()

    assert names(graph.driven(name("b"))) == []
    assert names(graph.driven(name("a"))) == ["b", "c"]
    assert names(graph.driving_upstream(name("c"))) == ["orders", "a"]


def test_tables_that_are_joined_again_below_by_another_way_from_a_source_are_known(project):
    for root in ("s", "t"):
        source(project, root)
    project.table("a", "SELECT id FROM s")
    project.table("a2", "SELECT id FROM a")
    project.table("b", "SELECT id FROM s")
    project.table("c", "SELECT id FROM t")
    project.table("alone", "SELECT id FROM s")
    project.table("met", "SELECT a2.id FROM a2 JOIN b ON a2.id = b.id JOIN c ON c.id = b.id")
    project.table("beside", "SELECT c.id FROM c JOIN t ON c.id = t.id")
    project.table("apart", "SELECT alone.id FROM alone JOIN beside ON alone.id = beside.id")

    assert names(sorted(project.read().meeting)) == ["a", "a2", "b", "c"]


def test_a_way_to_an_input_that_does_not_drive_delays_the_driving_ones_only(project):
    source(project, "s")
    project.table("a", "SELECT id FROM s")
    project.table("b", "SELECT id FROM s")
    project.table("t", "SELECT a.id FROM a JOIN b ON a.id = b.id", header="WITH ('non-driving' = 'b')")
    graph = project.read()

    assert names(graph.meeting) == ["a"]
    assert graph.meetings(name("a")) == ()
