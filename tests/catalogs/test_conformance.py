"""The registrars of freshline, and the one of the page, checked against the claims of `freshline.testing`."""

from __future__ import annotations

import re
import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from freshline.catalogs.hive.thrift_calls import Database, SerDeInfo, StorageDescriptor, Table
from freshline.errors import ExtensionFailedError, SettingsError
from freshline.testing import CatalogSystem, ClaimsError, check_registrar
from freshline.testing.claims import claims_of
from freshline.testing.registrars import RegistrarConformance
from tests.catalogs.shop import CatalogProject
from tests.sources.stranger import PAGES, code_of_page, on_the_path, write_package

ALL = claims_of(RegistrarConformance)
ENTRIES = {"freshline.registrars": {"shelf": "shelf:Shelf"}}
MODULES = ("shelf", "shelf_file")
_VIEW = re.compile(
    r"""^CREATE (?:OR REPLACE )?VIEW ("?\w+"?(?:\."?\w+"?)?) AS SELECT \* FROM \w+\('((?:[^']|'')*)'\)""", re.M
)


class Views(CatalogSystem):
    """A file of views, read as text."""

    registrar = "duckdb"
    secret = "file"

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp())

    def held(self, secret):
        return str(self.folder / secret / "views.sql")

    @property
    def file(self):
        return Path(self.held("hunter2-is-the-secret"))

    @property
    def options(self):
        return {"file": "${env:CATALOG_SECRET}"}

    @property
    def text(self):
        return self.file.read_text(encoding="utf-8") if self.file.is_file() else ""

    def read(self):
        return {name.replace('"', "").lower(): path.replace("''", "'") for name, path in _VIEW.findall(self.text)}

    def add_foreign(self, place):
        self.file.parent.mkdir(exist_ok=True)
        self.file.write_text(
            self.text + f"CREATE VIEW {place} AS SELECT * FROM read_csv('theirs');\n", encoding="utf-8"
        )

    def take_away(self):
        self.file.parent.rename(self.folder / "away")
        self.file.parent.write_text("in the way")

    def bring_back(self):
        self.file.parent.unlink()
        (self.folder / "away").rename(self.file.parent)

    def close(self):
        shutil.rmtree(self.folder)


class Databases(CatalogSystem):
    """The databases of a metastore that begin with a name of their own."""

    registrar = "hive"

    def __init__(self, server) -> None:
        self.server = server
        self.name = server.new_name()
        self.waiting = ExitStack()

    @property
    def options(self):
        prefix = {"database": self.name, "database-prefix": f"{self.name}_"}
        return {"uri": self.server.uri, "timeout": "2 seconds", **prefix}

    def read(self):
        with self.server.client() as calls:
            found = {}
            for database in calls.databases():
                if database == self.name or database.startswith(f"{self.name}_"):
                    for table in calls.tables(database, calls.names(database)):
                        found[f"{database}.{table.name}"] = table.storage.location.removeprefix("file:")
            return found

    def add_foreign(self, place):
        database, _, name = place.partition(".")
        with self.server.client() as calls:
            if database not in calls.databases():
                calls.create_database(Database(name=database))
            storage = StorageDescriptor(
                columns=[], location=f"file:{self.server.folder}/theirs", serde=SerDeInfo(name=name, parameters={})
            )
            calls.create_table(
                Table(
                    name=name,
                    database=database,
                    storage=storage,
                    type="EXTERNAL_TABLE",
                    parameters={"EXTERNAL": "TRUE"},
                )
            )

    def take_away(self):
        self.waiting.enter_context(self.server.hanging())

    def bring_back(self):
        self.waiting.close()

    def close(self):
        self.waiting.close()
        # The id of the claims' warehouse is the same each time, so nothing of this claim is left for the next one.
        with self.server.client() as calls:
            for place in self.read():
                calls.drop_table(*place.split("."))


@pytest.mark.seconds
def test_duckdb_keeps_the_claims():
    check_registrar(Views)


@pytest.mark.slow
def test_hive_keeps_the_claims(metastore):
    check_registrar(lambda: Databases(metastore))


@pytest.fixture
def installed(tmp_path):
    """The package `freshline-shelf` is installed; gives the system of the page."""
    folder = tmp_path / "site"
    folder.mkdir()
    code = code_of_page("extending.md")
    for module in MODULES:
        (folder / f"{module}.py").write_text(code[module], encoding="utf-8")
    write_package(folder, "freshline-shelf", ENTRIES)
    with on_the_path(folder, MODULES):
        text = (PAGES / "extending.md").read_text(encoding="utf-8")
        (shown,) = (each for each in re.findall(r"```python\n(.*?)```", text, re.S) if "ShelfSystem" in each)
        names: dict[str, Any] = {}
        exec(shown, names)
        yield names["ShelfSystem"]


def test_the_registrar_of_the_page_keeps_the_claims(installed):
    check_registrar(installed)


def test_the_registrar_of_the_page_is_a_type_of_catalogs(installed, tmp_path):
    shop = CatalogProject(tmp_path / "shop")
    shop.settings('[tool.freshline.catalogs.it]\ntype = "shelf"\nfile = "tables.json"\n')
    shop.add("orders")

    assert shop.changes() == ["create orders"]
    assert shop.changes() == []
    shop.settings('[tool.freshline.catalogs.it]\ntype = "shelf"\nfle = "tables.json"\n')
    error = shop.sync().error
    assert error is not None
    assert "[tool.freshline.catalogs.it] has no setting fle. Did you mean file?" in str(error)


def test_an_exception_of_a_registrar_names_its_package(installed, tmp_path):
    shop = CatalogProject(tmp_path / "shop")
    shop.settings('[tool.freshline.catalogs.it]\ntype = "shelf"\nfile = "tables.json"\n')
    shop.add("orders")
    (shop.root / "tables.json").write_text('{"a": 3}')

    error = shop.sync().error

    assert isinstance(error, ExtensionFailedError)
    assert "ShelfFile.find of freshline-shelf 1.0 raised AttributeError" in str(error)


def forgets_to_drop(self, found):
    pass


def leaves_the_old_name(self, entry, found):
    place = self.shelf.place(entry.name)
    own = {"warehouse": entry.warehouse_id, "table": entry.table_id, "content": self.shelf.content(entry)}
    self.entries[place] = own


def finds_all_as_ours(self, warehouse_id, places):
    from freshline.values.registrar import FoundEntry

    for place, own in self.entries.items():
        yield FoundEntry(place, own.get("content"), warehouse_id, own.get("table"))


def finds_only_wanted(self, warehouse_id, places):
    from freshline.values.registrar import FoundEntry

    for place in places & self.entries.keys():
        own = self.entries[place]
        yield FoundEntry(place, own.get("content"), own.get("warehouse"), own.get("table"))


def forgets_the_path(self, entry):
    return {"path": "/warehouse", "columns": []}


PLANTS = {
    "drop is forgotten": ("shelf_file", "ShelfFile", "drop", forgets_to_drop, "test_a_dropped_table_leaves"),
    "a rename leaves the old name": (
        "shelf_file", "ShelfFile", "write", leaves_the_old_name, "test_a_renamed_table_has_one_entry",
    ),
    "all entries are ours": (
        "shelf_file", "ShelfFile", "find", finds_all_as_ours, "test_entries_of_others_are_never_touched",
    ),
    "old entries are not found": (
        "shelf_file", "ShelfFile", "find", finds_only_wanted, "test_a_dropped_table_leaves",
    ),
    "the path is forgotten": (
        "shelf", "Shelf", "content", forgets_the_path, "test_a_table_at_another_path_or_made_anew_is_changed",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_mistake_is_found(installed, monkeypatch, name):
    module, kind, method, mistake, claim = PLANTS[name]
    monkeypatch.setattr(getattr(__import__(module), kind), method, mistake)

    with pytest.raises(ClaimsError) as raised:
        check_registrar(installed)

    assert claim in raised.value.broken


def test_a_claim_can_be_left_out_and_an_unknown_one_cannot(installed):
    check_registrar(installed, leave_out=ALL[1:])
    with pytest.raises(ValueError, match="test_x is no claim here"):
        check_registrar(installed, leave_out=["test_x"])


def test_an_unknown_option_of_the_settings_is_refused_by_the_claims(installed):
    mistaken = type("Mistaken", (installed,), {"options": {"fle": "x"}})

    with pytest.raises(ClaimsError) as raised:
        check_registrar(mistaken, leave_out=ALL[1:])
    assert isinstance(raised.value.broken[ALL[0]], SettingsError)
