"""How many materialized views of another project are kept without ever computing them in full.

Reads files with CREATE TABLE, CREATE VIEW and CREATE MATERIALIZED VIEW in another dialect of SQL, such as the
end-to-end tests of RisingWave (`e2e_test/streaming`, Apache-2.0), which keeps all of them incrementally. Each table
becomes a source, each view a table; what Spark has no word for is told and does not count. Nothing is computed: the
strategies are those of `freshline explain`.

    python platform/benchmarks/falls.py FOLDER [--tables FILE..] [--dialect risingwave] [--show]

Each file is judged for itself, with the tables of the files in `--tables`.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "platform"), str(Path(__file__).parent)]

import sqlglot  # noqa: E402 - after the path, with those that need it
from sqlglot import exp  # noqa: E402
from sqlglot.errors import SqlglotError  # noqa: E402

from freshline.cli.explain import explain  # noqa: E402
from freshline.declare.project_settings import read_settings  # noqa: E402
from freshline.errors import DeclarationErrors  # noqa: E402

_GOAL = 0.95
_FULL = "full"
_ENDINGS = (".sql", ".slt", ".part")
# The lines of a test file between its statements.
_DIRECTIVE = re.compile(r"^(statement|query|include|sleep|skipif|onlyif|control|halt|#|----).*", re.IGNORECASE)


@dataclass(frozen=True)
class View:
    """A view of a file: the first reason why it is computed in full at some change, None where it never is."""

    file: str
    name: str
    reason: str | None


def statements(text: str, dialect: str) -> Iterator[exp.Create | str]:
    """The statements of a file that create, in its order; the text of a statement that is not understood."""
    lines = [line for line in text.splitlines() if not _DIRECTIVE.match(line.strip())]
    for written in re.findall(r"(?is)\bcreate\s+(?:materialized\s+view|table|view)\b[^;]*;", "\n".join(lines)):
        try:
            found = sqlglot.parse_one(written.rstrip(";"), read=dialect)
        except SqlglotError:
            yield written
            continue
        if isinstance(found, exp.Create):
            yield found


def declared(create: exp.Create) -> tuple[str, str] | None:
    """The name and the declaration of what is created; None of a table without columns."""
    target = create.this.this if isinstance(create.this, exp.Schema) else create.this
    name = target.name
    if create.expression is not None:
        query = create.expression
        for select in [query.selects] if isinstance(query, exp.Query) else []:
            for number, item in enumerate(select):
                if not isinstance(item, exp.Alias | exp.Column | exp.Star):
                    item.replace(exp.alias_(item.copy(), f"c{number}"))
        text = query.sql(dialect="spark")
        return name, f"CREATE MATERIALIZED TABLE {name} FRESHNESS = INTERVAL '10' MINUTE AS {text}"
    if not isinstance(create.this, exp.Schema):
        return None
    columns = [item for item in create.this.expressions if isinstance(item, exp.ColumnDef) and item.kind is not None]
    shown = ", ".join(f"{item.name} {item.kind.sql(dialect='spark')}" for item in columns if item.kind is not None)
    return (
        (name, f"CREATE SOURCE {name} ({shown}) WITH ('connector' = 'delta', 'path' = '{name}')") if columns else None
    )


def judge(file: Path, dialect: str, tables: Sequence[Path] = ()) -> tuple[list[View], list[str]]:
    """The views of a file, and what could not be declared, with its reason; `tables` are files with more tables."""
    with tempfile.TemporaryDirectory() as folder:
        assets = Path(folder) / "assets"
        assets.mkdir()
        (Path(folder) / "pyproject.toml").write_text("[tool.freshline]\n", encoding="utf-8")
        views, left = [], []
        every = "\n".join(each.read_text(encoding="utf-8") for each in (*tables, file))
        for create in statements(every, dialect):
            made = None if isinstance(create, str) else declared(create)
            if isinstance(create, str) or made is None:
                left.append(f"{' '.join(str(create).split())[:60]}: not understood")
                continue
            name, text = made
            (assets / f"{name}.sql").write_text(text, encoding="utf-8")
            if text.startswith("CREATE MATERIALIZED"):
                views.append(name)
        while True:
            try:
                found = explain(read_settings(Path(folder), {}), ())
            except DeclarationErrors as errors:
                for error in errors.errors:
                    wrong = Path(folder) / str(error.where).rpartition(":")[0]
                    if wrong.exists():
                        wrong.unlink()
                        left.append(f"{wrong.stem}: {error.message.splitlines()[0]}")
                continue
            break
    reasons = {str(item[1]["table"]).lower(): _reason(item[1]) for item in found}  # type: ignore[index]
    kept = [View(file.name, name, reasons[name.lower()]) for name in dict.fromkeys(views) if name.lower() in reasons]
    return kept, left


def _reason(explained: object) -> str | None:
    assert isinstance(explained, dict)
    return next((str(case["reason"]) for case in explained["cases"] if case["strategy"] == _FULL), None)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tables", type=Path, nargs="*", default=[], help="files with tables that others read")
    parser.add_argument("--dialect", default="risingwave")
    parser.add_argument("--show", action="store_true", help="also show each view that falls, and what was left out")
    given = parser.parse_args(arguments)
    views: list[View] = []
    left: list[str] = []
    for file in sorted(given.folder.rglob("*")):
        if file.suffix in _ENDINGS:
            of_file, others = judge(file, given.dialect, given.tables)
            views, left = views + of_file, left + [f"{file.name} {text}" for text in others]
    falls = [view for view in views if view.reason is not None]
    share = 1 - len(falls) / max(1, len(views))
    print(f"falls: {len(views) - len(falls)} of {len(views)} views are never computed in full, {share:.1%}")
    print(f"goal {_GOAL:.0%} {'met' if share >= _GOAL else 'MISSED'}; {len(left)} statements could not be declared")
    for code, count in Counter(str(view.reason).partition("(")[0] for view in falls).most_common():
        print(f"  {code} {count}")
    if given.show:
        for view in falls:
            print(f"{view.file} {view.name}: {view.reason}")
        print("left out:", *left, sep="\n  ")


if __name__ == "__main__":
    main(sys.argv[1:])
