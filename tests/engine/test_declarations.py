"""A running engine takes up changed declarations, and keeps the ones before while the new ones have errors."""

from __future__ import annotations

import os
import time
from pathlib import Path

import psutil
import pytest

from freshline.declare.graph import Graph
from freshline.engine import declarations as declarations_module
from freshline.engine.declarations import Declarations
from freshline.errors import CancelledError, DeclarationError
from freshline.plan.project import open_project
from freshline.testing.models import linear_model
from freshline.values.freshness import Freshness
from freshline.values.names import TableName
from freshline.values.settings import Settings

ORDERS = (
    "CREATE SOURCE orders (id BIGINT) FRESHNESS = INTERVAL '10' SECOND "
    "WITH ('connector' = 'files', 'format' = 'json', 'path' = 'orders')"
)
TABLE = "CREATE MATERIALIZED TABLE big FRESHNESS = INTERVAL '1' HOUR AS SELECT id FROM orders WHERE id > {least}"


@pytest.fixture
def assets(settings: Settings) -> Path:
    settings.declarations.mkdir()
    (settings.declarations / "orders.sql").write_text(ORDERS)
    (settings.declarations / "big.sql").write_text(TABLE.format(least=1))
    return settings.declarations


@pytest.fixture
def model(settings: Settings, assets: Path) -> Path:
    """The file of a model that `big` asks."""
    file = settings.root / "least.onnx"
    file.write_bytes(linear_model([1.0], 0.0))
    (assets / "least.sql").write_text("CREATE MODEL least WITH ('path' = 'least.onnx')")
    (assets / "big.sql").write_text(TABLE.format(least="ml_predict(least, id)"))
    return file


def test_files_that_did_not_change_are_not_read_again(settings, assets):
    declarations = Declarations(settings)

    assert declarations.check() is declarations.check()


def test_a_changed_file_is_taken_up_and_reported(settings, assets):
    declarations = Declarations(settings)
    on_outcome: list[Graph] = []
    declarations.on_change(on_outcome.append)
    before = declarations.graph
    (assets / "big.sql").write_text(TABLE.format(least=100))

    after = declarations.check()

    big = TableName.parse("big")
    assert after.spec(big).fingerprint != before.spec(big).fingerprint
    assert on_outcome == [after]


def test_another_file_of_a_model_is_another_table_and_a_missing_one_is_awaited(settings, assets, model):
    declarations = Declarations(settings)
    big = TableName.parse("big")
    before = declarations.graph.spec(big).fingerprint

    model.write_bytes(linear_model([100.0, 1.0], 0.0))
    with pytest.raises(DeclarationError, match="is given 1 values of a row, and the model takes 2"):
        declarations.check_strictly()
    model.unlink()
    with pytest.raises(DeclarationError, match=r"least\.onnx cannot be read"):
        declarations.check_strictly()
    assert declarations.check().spec(big).fingerprint == before
    model.write_bytes(linear_model([100.0], 0.0))
    assert declarations.check_strictly().spec(big).fingerprint != before
    assert declarations.check() is declarations.check()


def test_another_file_in_the_place_of_one_is_seen_though_size_and_time_are_the_same(settings, assets, model):
    declarations = Declarations(settings)
    big = TableName.parse("big")
    before = declarations.graph.spec(big).fingerprint

    put_in_place_of(model, linear_model([2.0], 0.0))
    after = declarations.check_strictly().spec(big).fingerprint
    assert after != before

    # A link that leads to another file, as deployments switch releases.
    for release in ("one", "two"):
        (settings.root / release).write_bytes(linear_model([3.0 if release == "one" else 4.0], 0.0))
        os.utime(settings.root / release, ns=(1, 1))
    model.unlink()
    model.symlink_to("one")
    linked = declarations.check_strictly().spec(big).fingerprint
    (settings.root / "link").symlink_to("two")
    (settings.root / "link").rename(model)
    assert len({before, after, linked, declarations.check_strictly().spec(big).fingerprint}) == 4

    put_in_place_of(assets / "big.sql", (assets / "big.sql").read_bytes().replace(b"1' HOUR", b"2' HOUR"))
    assert declarations.check_strictly().spec(big).freshness == Freshness.parse("2 hours")


def put_in_place_of(file: Path, content: bytes) -> None:
    """Put another file of the same size and time there, at once."""
    status = file.stat()
    assert status.st_size == len(content)
    new = file.with_name(f"{file.name}.new")
    new.write_bytes(content)
    os.utime(new, ns=(status.st_atime_ns, status.st_mtime_ns))
    new.rename(file)


def test_files_that_change_while_the_engine_starts_are_read_again(settings, assets, model, monkeypatch):
    big, read = TableName.parse("big"), open_project

    def slowly(settings: Settings) -> Graph:
        graph = read(settings)
        put_in_place_of(model, linear_model([2.0], 0.0))
        put_in_place_of(assets / "big.sql", (assets / "big.sql").read_bytes().replace(b"1' HOUR", b"2' HOUR"))
        return graph

    monkeypatch.setattr(declarations_module, "open_project", slowly)
    declarations = Declarations(settings)
    before = declarations.graph.spec(big)
    monkeypatch.setattr(declarations_module, "open_project", read)

    after = declarations.check_strictly().spec(big)
    assert after.fingerprint != before.fingerprint
    assert after.freshness != before.freshness
    assert declarations.check() is declarations.check()


def test_a_new_and_a_removed_file_are_taken_up(settings, assets):
    declarations = Declarations(settings)
    (assets / "small.sql").write_text(TABLE.format(least=5).replace("big", "small"))
    assert TableName.parse("small") in declarations.check()

    (assets / "small.sql").unlink()
    assert TableName.parse("small") not in declarations.check()


def test_a_table_in_yaml_is_taken_up_and_changed(settings, assets):
    declarations = Declarations(settings)
    file = assets / "defs" / "lake" / "defs.yaml"
    file.parent.mkdir(parents=True)
    head = "type: freshline.dagster.FreshlineProjectComponent\nattributes:\n  tables:\n"
    file.write_text(f"{head}    - {{name: small, query: SELECT id FROM orders WHERE id > 5}}\n")
    small = TableName.parse("small")
    before = declarations.check().spec(small)

    file.write_text(f"{head}    - {{name: small, query: SELECT id FROM orders WHERE id > 500}}\n")

    assert declarations.check().spec(small).fingerprint != before.fingerprint


def test_errors_are_for_those_who_ask_and_the_graph_before_stays_in_force(settings, assets):
    declarations = Declarations(settings)
    before = declarations.graph
    (assets / "big.sql").write_text("CREATE MATERIALIZED TABLE big AS SELECT id FROM nowhere")

    assert declarations.check() is before
    with pytest.raises(DeclarationError, match="nowhere"):
        declarations.check_strictly()

    (assets / "big.sql").write_text(TABLE.format(least=2))
    assert declarations.check_strictly() is not before
    assert declarations.error is None


def test_a_mistake_elsewhere_costs_a_request_nothing_and_a_change_or_a_mistake_above_does(settings, assets):
    (assets / "small.sql").write_text(TABLE.format(least=0).replace("big", "small"))
    (assets / "top.sql").write_text("CREATE MATERIALIZED TABLE top FRESHNESS = INTERVAL '1' HOUR AS SELECT id FROM big")
    declarations = Declarations(settings)
    before = declarations.graph
    orders, big, small, top = map(TableName.parse, ("orders", "big", "small", "top"))

    def is_refused(*wanted: TableName) -> bool:
        try:
            return declarations.check_strictly(wanted=wanted) is not before
        except DeclarationError:
            return True

    (assets / "big.sql").write_text("CREATE MATERIALIZED TABLE big AS SELECT id FROM nowhere")
    assert [is_refused(*wanted) for wanted in ((small,), (orders,), (orders, small))] == [False] * 3
    # The table with the mistake, its reader, a table that nobody has declared, and the project as a whole.
    refused = ((big,), (top,), (small, big), (TableName.parse("nobody"),), ())
    assert [is_refused(*wanted) for wanted in refused] == [True] * 5
    # A table that was changed beside the mistake is not refreshed by its old declaration.
    (assets / "small.sql").write_text(TABLE.format(least=7).replace("big", "small"))
    assert is_refused(small)
    assert not is_refused(orders)


def test_one_that_starts_beside_mistakes_keeps_what_stands_and_takes_up_what_is_corrected(settings, assets):
    orders, big, small = map(TableName.parse, ("orders", "big", "small"))
    (assets / "big.sql").write_text("CREATE MATERIALIZED TABLE big AS SELECT id FROM nowhere")
    (assets / "small.sql").write_text("CREATE MATERIALIZED TABLE small AS SELECT nothing FROM orders")
    declarations = Declarations(settings)

    assert set(declarations.graph.order) == {orders}
    partial = [declarations.partial]
    assert set(declarations.left_out) == {big, small}
    assert declarations.check_strictly(wanted=(orders,)) is declarations.graph
    with pytest.raises(DeclarationError, match="nowhere"):
        declarations.check_strictly()
    # One is corrected while the other is not.
    (assets / "small.sql").write_text(TABLE.format(least=0).replace("big", "small"))
    assert set(declarations.check_whole().order) == {orders, small}
    assert set(declarations.left_out) == {big}
    # A mistake in what stood does not take that out of the loops.
    (assets / "small.sql").write_text("CREATE MATERIALIZED TABLE small AS SELECT nothing FROM orders")
    assert set(declarations.check_whole().order) == {orders, small}
    (assets / "small.sql").write_text(TABLE.format(least=0).replace("big", "small"))
    (assets / "big.sql").write_text(TABLE.format(least=2))
    assert set(declarations.check_whole().order) == {orders, big, small}
    assert declarations.error is None
    assert set(declarations.left_out) == set()
    assert [*partial, declarations.partial] == [True, False]


@pytest.mark.seconds
def test_a_change_in_a_module_that_a_python_table_imports_is_a_change(settings, assets):
    (settings.root / "lib").mkdir()
    (settings.root / "lib" / "words.py").write_text("LEAST = 1\n")
    (assets / "late.py").write_text(
        "import freshline\nfrom lib.words import LEAST\n\n"
        "@freshline.table(freshness='1 hour')\ndef late(orders):\n    return orders.where(orders.id > LEAST)\n"
    )
    declarations = Declarations(settings)
    late = TableName.parse("late")
    before = declarations.graph.spec(late).fingerprint
    (settings.root / "lib" / "words.py").write_text("LEAST = 2\n")
    os.utime(settings.root / "lib" / "words.py", ns=(1, 1))

    assert declarations.check_strictly().spec(late).fingerprint != before


@pytest.mark.seconds
def test_a_file_that_hangs_while_it_loads_stops_neither_the_loops_nor_its_cancelled_request(settings, assets):
    declarations = Declarations(settings)
    before = declarations.graph
    (assets / "late.py").write_text("import time\ntime.sleep(1000)\n")
    began = time.monotonic()

    assert declarations.check() is declarations.check() is before
    with pytest.raises(CancelledError):
        declarations.check_strictly(cancelled)
    assert time.monotonic() - began < 20

    (assets / "late.py").unlink()
    for process in psutil.Process().children():
        if "python_loading" in " ".join(process.cmdline()):
            process.kill()
    assert declarations.check_strictly() is not None


def cancelled() -> None:
    raise CancelledError("the request was cancelled")
