"""A file of views for DuckDB, one for each table, which `.read FILE` or `duckdb -init FILE` makes known to a session.

The file may have statements of others too. Ours stand in blocks that name their warehouse and table, and everything
outside them stays as it is, byte for byte.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import ClassVar, Self

from freshline.values.names import PART, TableName
from freshline.values.options import Option, Options, Reference
from freshline.values.registrar import Catalog, CatalogEntry, CatalogHost, Registrar


@dataclass(frozen=True)
class DuckDb(Registrar):
    """A file of views. Tables without a namespace have theirs in `schema`."""

    file: str
    schema: str = "main"

    name: ClassVar[str] = "duckdb"
    title: ClassVar[str] = "a file of DuckDB views"
    options: ClassVar[tuple[Option, ...]] = (
        Option(
            "file",
            "the file of views, relative to the project",
            required="the file that has the views",
            reference=Reference.WHOLE,
        ),
        Option("schema", "the schema of tables without a namespace"),
    )

    @classmethod
    def declare(cls, options: Options) -> Self:
        options.matching("schema", PART, "a name of letters, digits and underscores")
        return super().declare(options)

    @property
    def address(self) -> str:
        return self.file

    def place(self, name: TableName) -> str:
        # DuckDB finds names in any letter case.
        return f"{name.namespace or self.schema}.{name.name}".lower()

    def content(self, entry: CatalogEntry) -> object:
        return self.statements(entry)

    def statements(self, entry: CatalogEntry) -> str:
        """The statements of one view, one a line."""
        schema = entry.name.namespace or self.schema
        view = f"{identifier(schema)}.{identifier(entry.name.name)}"
        lines = [] if schema.lower() == "main" else [f"CREATE SCHEMA IF NOT EXISTS {identifier(schema)};"]
        lines.append(f"CREATE OR REPLACE VIEW {view} AS SELECT * FROM delta_scan({literal(entry.path)});")
        if entry.comment:
            lines.append(f"COMMENT ON VIEW {view} IS {literal(entry.comment)};")
        lines += [
            f"COMMENT ON COLUMN {view}.{identifier(column.name)} IS {literal(column.comment)};"
            for column in entry.columns
            if column.comment
        ]
        return "\n".join(lines)

    def open(self, host: CatalogHost) -> AbstractContextManager[Catalog]:
        from freshline.catalogs.duckdb.views_file import open_views

        return open_views(self, host.path(host.resolve(self.file)))


def identifier(name: str) -> str:
    """A name in double quotes, as DuckDB has it.

    >>> identifier('a"b')
    '"a""b"'
    """
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    r"""A text of DuckDB that stands on one line.

    >>> literal("it's"), literal("two\nlines")
    ("'it''s'", "E'two\\nlines'")
    """
    plain = text.replace("'", "''")
    if text.isprintable():
        return f"'{plain}'"
    plain = plain.replace("\\", "\\\\")
    return "E'" + "".join(each if each.isprintable() else _escaped(each) for each in plain) + "'"


def _escaped(character: str) -> str:
    if (short := {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(character)) is not None:
        return short
    # A text of DuckDB cannot hold a zero.
    return "".join(f"\\x{byte:02x}" for byte in character.encode()) if character != "\0" else ""
