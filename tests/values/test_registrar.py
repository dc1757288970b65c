"""The changes of a catalog are decided from values: ours follow the tables, and nobody else's is touched."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field, replace

import pytest

from freshline.values.names import TableName
from freshline.values.registrar import CatalogEntry, FoundEntry, Registrar, plan_catalog

OURS, THEIRS = "warehouse-1", "warehouse-2"


@dataclass(frozen=True)
class Shelf(Registrar):
    """A catalog of entries by place, in memory."""

    name = "shelf"
    title = "a shelf"
    there: list[FoundEntry] = field(default_factory=list)

    def place(self, name):
        return str(name).lower()

    def content(self, entry):
        return entry.path, entry.comment

    def open(self, host):
        return nullcontext()


SHELF = Shelf()


def entry(name, identity=None, **fields):
    table = TableName.parse(name)
    made = CatalogEntry(table, f"/warehouse/{'/'.join(table.parts)}", identity or f"id-{name}", OURS)
    return replace(made, **fields)


def found(of, warehouse=OURS, **fields):
    return replace(FoundEntry(SHELF.place(of.name), SHELF.content(of), warehouse, of.table_id), **fields)


def changes(wanted, there, **options):
    return [str(each) for each in plan_catalog(SHELF, wanted, there, OURS, **options)]


def test_a_catalog_that_has_all_needs_nothing():
    tables = [entry("orders"), entry("sales.spend")]

    assert changes(tables, map(found, tables)) == []
    assert changes([], []) == []


def test_new_changed_and_dropped_tables_follow():
    kept, altered, new, gone = entry("kept"), entry("altered"), entry("new"), entry("gone")
    there = [found(kept), found(altered, content=("/elsewhere", None)), found(gone)]

    assert changes([kept, altered, new], there) == ["drop gone", "change altered", "create new"]


def test_a_table_that_was_made_anew_under_its_name_is_a_change():
    assert changes([entry("orders", "id-2")], [found(entry("orders", "id-1"))]) == ["change orders"]


def test_a_table_under_another_name_is_renamed_and_not_made_again():
    there = [found(entry("orders", "id-1")), found(entry("other"))]

    assert changes([entry("bookings", "id-1"), entry("other")], there) == ["rename orders to bookings"]


def test_tables_that_exchanged_their_names_keep_two_entries():
    there = [found(entry("a", "id-1")), found(entry("b", "id-2"))]

    assert changes([entry("a", "id-2"), entry("b", "id-1")], there) == ["change a", "change b"]


def test_a_name_that_becomes_free_can_be_taken_in_the_same_sync():
    there = [found(entry("a", "id-1")), found(entry("b", "id-2"))]

    assert changes([entry("b", "id-1")], there) == ["drop a", "change b"]


@pytest.mark.parametrize("warehouse", [None, THEIRS])
def test_entries_of_others_are_never_touched(warehouse):
    there = [found(entry("orders"), warehouse, content="theirs"), found(entry("unknown"), warehouse)]

    assert changes([entry("orders"), entry("spend")], there) == [
        "create spend",
        "conflict orders: somebody else's entry is here",
    ]


def test_two_tables_for_one_place_leave_the_first_one_there():
    class Flat(Shelf):
        def place(self, name):
            return name.name

    planned = plan_catalog(Flat(), [entry("a.orders"), entry("b.orders")], [], OURS)

    assert [str(each) for each in planned] == ["create orders", "conflict orders: a.orders is entered here"]


def test_without_the_right_to_drop_nothing_is_dropped():
    assert changes([entry("new")], [found(entry("gone"))], may_drop=False) == ["create new"]
