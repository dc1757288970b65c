"""The claims that every registrar must fulfil, whoever wrote it.

`check_registrar` tries all of them on a `CatalogSystem`: the catalog that others read, with what the claims need to do
to it. No Spark is needed. With pytest, a class that derives from `RegistrarConformance` and has the fixture `system`
has a test of each.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from freshline.catalogs.sync import bring_catalog, resolve_in
from freshline.errors import CatalogError
from freshline.testing.claims import SECRET as SECRET
from freshline.testing.claims import ClaimSubject, environment, refused, require, require_that, try_claims
from freshline.values.catalog_settings import declared_registrar
from freshline.values.names import TableName
from freshline.values.registrar import (
    CatalogChange,
    CatalogChangeKind,
    CatalogColumn,
    CatalogEntry,
    CatalogHost,
    Registrar,
    apply_changes,
    plan_catalog,
)
from freshline.values.settings import CatalogSettings

_OURS, _THEIRS = "a1b2c3d4e5f60718293a4b5c6d7e8f90", "ffffffffffffffffffffffffffffffff"
_ODD = (
    CatalogColumn('x"; DROP TABLE y; --', "STRING", 'it\'s "odd" \\ `x`\n-- and long; ' + "c" * 300),
    CatalogColumn("Up.per`", "STRUCT<`a b`: ARRAY<BIGINT>, c: MAP<STRING, DECIMAL(10,2)>>", "\u00e9\U0001f600"),
    CatalogColumn("n", "TIMESTAMP_NTZ"),
)


class CatalogSystem(ClaimSubject, ABC):
    """A catalog outside, empty for each claim.

    `registrar` is the name of the registrar, as `type` has it. `secret` is the option for a secret; `options` have it
    as `${env:CATALOG_SECRET}`, and the value of the variable is what `held` makes of SECRET. `can_be_away` says that
    `take_away` does something.
    """

    registrar: ClassVar[str]
    secret_variable = "CATALOG_SECRET"
    can_be_away: ClassVar[bool] = True

    @property
    @abstractmethod
    def options(self) -> Mapping[str, str]:
        """The settings of the catalog, without `type`."""

    @abstractmethod
    def read(self) -> Mapping[str, str]:
        """The entries that are there, whosever they are: the path of each by its place. Not by the registrar."""

    @abstractmethod
    def add_foreign(self, place: str) -> None:
        """Somebody else makes an entry at a place."""

    def take_away(self) -> None:
        """The catalog cannot be reached any more."""
        raise NotImplementedError

    def bring_back(self) -> None:
        """The catalog is there again."""
        raise NotImplementedError


def check_registrar(system: Callable[[], CatalogSystem], *, leave_out: Collection[str] = ()) -> None:
    """Try on a registrar every claim about registrars, each with a catalog of its own that `system` makes.

    `leave_out` has the names of claims that are not tried. Raises ClaimsError with all claims that fail.
    """

    def try_claim(name: str) -> None:
        made = system()
        with ExitStack() as stack:
            stack.callback(made.close)
            for variable, value in made.variables.items():
                stack.enter_context(environment(variable, value))
            getattr(RegistrarConformance(), name)(made)

    title = f"the registrar '{getattr(system, 'registrar', 'of this catalog')}'"
    try_claims(RegistrarConformance, title, try_claim, leave_out=leave_out)


def _entry(name: str, number: int = 0, **fields: object) -> CatalogEntry:
    columns = (CatalogColumn("id", "BIGINT", "the number"), CatalogColumn("amount", "DECIMAL(10,2)"))
    table = TableName.parse(name)
    made = CatalogEntry(
        name=table,
        path=f"/warehouse/{'/'.join(table.parts)}",
        table_id=f"00000000-0000-4000-8000-{number:012d}",
        warehouse_id=_OURS,
        columns=columns,
        comment=f"the table {name}",
    )
    return replace(made, **fields)  # type: ignore[arg-type]  # fields of an entry


class RegistrarConformance:
    """The claims about every registrar."""

    def registrar(self, system: CatalogSystem) -> Registrar:
        settings = CatalogSettings("claims", system.registrar, dict(system.options))
        return declared_registrar(settings, "the settings of the claims")

    def sync(
        self, system: CatalogSystem, *wanted: CatalogEntry, dry: bool = False, warehouse: str = _OURS
    ) -> Sequence[CatalogChange]:
        """The changes of one sync."""
        entries = [replace(each, warehouse_id=warehouse) for each in wanted]
        return bring_catalog(self.registrar(system), _host(), entries, warehouse, dry=dry)

    def kinds(self, *arguments: CatalogSystem | CatalogEntry, **options: object) -> list[str]:
        """The kinds of the changes of one sync."""
        return [change.kind.value for change in self.sync(*arguments, **options)]  # type: ignore[arg-type]

    def places(self, system: CatalogSystem, *entries: CatalogEntry) -> dict[str, str]:
        """The path of each entry by its place, as `read` gives them."""
        registrar = self.registrar(system)
        return {registrar.place(each.name): each.path for each in entries}

    def require_entries(self, system: CatalogSystem, *entries: CatalogEntry, foreign: Sequence[str] = ()) -> None:
        """The catalog has these entries, the places of others, and nothing else."""
        found = {place: path for place, path in system.read().items() if place not in foreign}
        require(found, self.places(system, *entries), "the entries in the catalog, each with its path")
        missing = sorted(set(foreign) - set(system.read()))
        require(missing, [], "entries of others that are gone")

    def test_each_table_is_entered_and_a_second_sync_needs_nothing(self, system: CatalogSystem) -> None:
        tables = [_entry("orders", 1), _entry("sales.spend", 2)]

        require(self.kinds(system, *tables), ["create", "create"], "the changes of the first sync")
        self.require_entries(system, *tables)
        require(self.kinds(system, *tables), [], "the changes of a second sync")

    def test_a_dry_run_changes_nothing(self, system: CatalogSystem) -> None:
        require(self.kinds(system, _entry("orders", 1), dry=True), ["create"], "the changes of a dry run")
        self.require_entries(system)

    def test_names_columns_and_comments_may_have_any_character(self, system: CatalogSystem) -> None:
        table = _entry(
            "Sales.Odd_1", 1, path="/ware house/it's/Sales/Odd_1", columns=_ODD, comment="two\nlines; 'x' \\"
        )

        require(self.kinds(system, table), ["create"], "the changes of the first sync")
        self.require_entries(system, table)
        require(self.kinds(system, table), [], "the changes of a second sync")

    def test_a_table_at_another_path_or_made_anew_is_changed(self, system: CatalogSystem) -> None:
        self.sync(system, _entry("orders", 1))
        moved = _entry("orders", 1, path="/elsewhere/orders")
        require(self.kinds(system, moved), ["change"], "the changes for a table with another path")
        self.require_entries(system, moved)
        anew = replace(moved, table_id=_entry("x", 9).table_id, columns=_ODD)
        require(self.kinds(system, anew), ["change"], "the changes for a table that was made anew")
        require(self.kinds(system, anew), [], "the changes after that")

    def test_a_renamed_table_has_one_entry(self, system: CatalogSystem) -> None:
        self.sync(system, _entry("orders", 1), _entry("kept", 2))
        for name in ("bookings", "sales.bookings"):
            renamed = _entry(name, 1)
            require(self.kinds(system, renamed, _entry("kept", 2)), ["rename"], f"the changes for a rename to {name}")
            self.require_entries(system, renamed, _entry("kept", 2))
        require(self.kinds(system, _entry("sales.bookings", 1), _entry("kept", 2)), [], "the changes after that")

    def test_a_dropped_table_leaves(self, system: CatalogSystem) -> None:
        self.sync(system, _entry("orders", 1), _entry("sales.spend", 2))

        require(self.kinds(system, _entry("orders", 1)), ["drop"], "the changes where a table is gone")
        self.require_entries(system, _entry("orders", 1))
        require(self.kinds(system), ["drop"], "the changes where the last table is gone")
        self.require_entries(system)

    def test_entries_of_others_are_never_touched(self, system: CatalogSystem) -> None:
        registrar = self.registrar(system)
        taken, other = registrar.place(TableName.parse("orders")), registrar.place(TableName.parse("other"))
        system.add_foreign(taken)
        system.add_foreign(other)
        before = dict(system.read())

        found = self.sync(system, _entry("orders", 1), _entry("spend", 2))
        kinds = [(change.kind, change.place) for change in found]
        spend = registrar.place(TableName.parse("spend"))
        wanted = [(CatalogChangeKind.CREATE, spend), (CatalogChangeKind.CONFLICT, taken)]
        require(kinds, wanted, "the changes where a place is somebody else's")
        self.sync(system)
        require(dict(system.read()), before, "the entries of others after a sync that drops ours")

    def test_entries_of_another_warehouse_are_never_touched(self, system: CatalogSystem) -> None:
        self.sync(system, _entry("orders", 1), warehouse=_THEIRS)

        require(self.kinds(system, _entry("orders", 2)), ["conflict"], "the changes of another warehouse")
        require(self.kinds(system), [], "the changes of another warehouse without tables")
        self.require_entries(system, _entry("orders", 1))
        require(self.kinds(system, _entry("orders", 1), warehouse=_THEIRS), [], "the changes of the first warehouse")

    def test_stopped_after_any_change_the_next_sync_does_the_rest(self, system: CatalogSystem) -> None:
        before = [_entry("a", 1), _entry("b", 2), _entry("gone", 3)]
        after = [_entry("a", 1, path="/elsewhere/a"), _entry("renamed", 2), _entry("new", 4)]
        for done in range(5):
            self.sync(system)
            self.sync(system, *before)
            with refused(_StoppedError):
                self._stop(system, after, done)
            self.sync(system, *after)
            self.require_entries(system, *after)
            require(self.kinds(system, *after), [], f"the changes after a sync that was stopped after {done}")

    def _stop(self, system: CatalogSystem, wanted: Sequence[CatalogEntry], done: int) -> None:
        registrar = self.registrar(system)
        places = {registrar.place(each.name) for each in wanted}
        with registrar.open(_host()) as opened:
            changes = plan_catalog(registrar, wanted, opened.find(_OURS, places), _OURS)
            apply_changes(opened, changes[:done])
            raise _StoppedError

    def test_a_hundred_tables_are_entered_by_one_sync(self, system: CatalogSystem) -> None:
        tables = [_entry(f"t{number}", number) for number in range(100)]
        self.sync(system, *tables)

        self.require_entries(system, *tables)
        require(self.kinds(system, *tables), [], "the changes of a second sync")

    def test_a_catalog_that_is_away_is_an_error_and_costs_nothing(self, system: CatalogSystem) -> None:
        if not system.can_be_away:
            return
        self.sync(system, _entry("orders", 1))
        system.take_away()
        with refused(CatalogError) as refusal:
            self.sync(system, _entry("orders", 1), _entry("spend", 2))
        require_that(refusal.error.message, "the error has no sentence")
        require(refusal.error.refused, False, "whether a catalog that is away has `refused`")
        system.bring_back()
        require(self.kinds(system, _entry("orders", 1), _entry("spend", 2)), ["create"], "the changes once it is back")

    def test_a_secret_is_read_when_it_is_used_and_shown_nowhere(self, system: CatalogSystem) -> None:
        if not system.secret:
            return
        registrar = self.registrar(system)
        shown = [repr(registrar), str(registrar), registrar.address]
        self.sync(system, _entry("orders", 1))
        if system.can_be_away:
            system.take_away()
            with refused(CatalogError) as refusal:
                self.sync(system, _entry("orders", 1))
            shown += [str(refusal.error), repr(refusal.error.as_json())]
            system.bring_back()
        require([text for text in shown if SECRET in text], [], "texts that show the secret")
        with environment(system.secret_variable, None), refused(CatalogError, system.secret_variable):
            self.sync(system, _entry("orders", 1))


class _StoppedError(Exception):
    """A sync was stopped half way. Not an error that a registrar expects."""

    is_expected_of_extensions = True


def _host() -> CatalogHost:
    return CatalogHost(Path.cwd(), resolve_in(Path.cwd(), os.environ))
