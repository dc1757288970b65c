"""Tables and sinks in YAML: the attributes of a FreshlineProjectComponent, in a `defs.yaml` of Dagster's `dg`.

```yaml
type: freshline.dagster.FreshlineProjectComponent
attributes:
  tables:
    - name: spend
      freshness: 5 minutes
      primary_key: customer
      query: |
        SELECT customer, sum(amount) AS total FROM orders GROUP BY customer
  sinks:
    - name: spend_copy
      table: spend
      options: {connector: jdbc, url: "${env:SHOP}", table: public.spend}
```

Each field becomes the clause of CREATE MATERIALIZED TABLE or CREATE SINK of its name, with the line on which it stands.
Values are taken as they are written: YAML's own reading of `on`, `1:30` or `0x10` has no part in it, and nothing is
rendered.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from freshline.errors import DeclarationError
from freshline.sql.clauses import QueryText, SinkClauses, TableClauses
from freshline.values.freshness import Freshness, parse_seconds
from freshline.values.location import Location, Written
from freshline.values.names import PART, TableName
from freshline.values.rules import Problems, declaration_error, nearest
from freshline.values.spec import Constraint, Downstream, OnViolation, Watermark

COMPONENT = "freshline.dagster.FreshlineProjectComponent"
RULE = "YAML_DECLARATION"
FIELDS = (
    "name",
    "query",
    "freshness",
    "mode",
    "primary_key",
    "partitioned_by",
    "cluster_by",
    "watermark",
    "constraints",
    "comment",
    "options",
)
REQUIRED_FIELDS = ("name", "query")
SINK_FIELDS = ("name", "table", "freshness", "comment", "options")
REQUIRED_SINK_FIELDS = ("name", "table")
WATERMARK_FIELDS = ("column", "delay")
CONSTRAINT_FIELDS = ("expect", "on_violation")


@dataclass(frozen=True)
class YamlTable:
    """One entry of `tables` or `sinks`: where it stands, and its text without the indentation."""

    at: Location
    text: str
    node: Any
    is_sink: bool = False

    @property
    def name(self) -> TableName | None:
        """The name of the table, None where it is none or missing."""
        written = next((value for key, value in _pairs(self.node) if _key(key) == "name"), None)
        try:
            return TableName.parse(str(getattr(written, "value", "")))
        except ValueError:
            return None

    def clauses(self) -> TableClauses | SinkClauses:
        """The clauses of the entry. Raises DeclarationErrors with everything that is wrong with it."""
        reader = _Reader(self.node, self.at, is_sink=self.is_sink)
        clauses: TableClauses | SinkClauses | None = reader.sink() if self.is_sink else reader.table()
        reader.problems.raise_all()
        assert clauses is not None, "an entry that cannot be read has raised"
        return clauses


def find_tables(text: str, path: str) -> tuple[YamlTable, ...]:
    """The tables and sinks in a `defs.yaml`; none in one of other components. Raises DeclarationError for bad YAML."""
    # The file of another component is none of ours, also where it is broken.
    if COMPONENT not in text:
        return ()
    try:
        documents = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = 1 if mark is None else mark.line + 1
        raise declaration_error(
            RULE, f"the file is no YAML: {getattr(error, 'problem', error)}.", Location(path, line)
        ) from error
    except RecursionError as error:
        raise declaration_error(RULE, "the file is nested too deeply to be read.", Location(path, 1)) from error
    return tuple(table for document in documents for table in _tables(document, text, path))


def declared_text(text: str, line: int) -> str | None:
    """The entry of the table at a line of a `defs.yaml`, None where there is none."""
    return next((table.text for table in find_tables(text, "") if table.at.line == line), None)


def table_at(text: str, line: int) -> YamlTable | None:
    """The table whose entry has that line of a `defs.yaml`, None where none has. Raises DeclarationError."""
    tables = find_tables(text, "")
    before = [table for table in tables if table.at.line <= line]
    return before[-1] if before and line <= _last_line(before[-1]) else None


def without_tables(text: str, names: Collection[TableName]) -> str | None:
    """The text of a `defs.yaml` without the entries of some tables, all others on their lines.

    None where they cannot be taken out alone: none is left, or entries share lines.
    """
    lines = text.split("\n")
    tables = find_tables(text, "")
    kept = [table for table in tables if table.name not in names]
    for table in tables:
        if table.name in names:
            for place in range(table.at.line - 1, _last_line(table)):
                lines[place] = ""
    left = "\n".join(lines)
    try:
        same = [(table.at, table.text) for table in find_tables(left, "")] == [(each.at, each.text) for each in kept]
    except DeclarationError:
        return None
    return left if kept and same else None


def _last_line(table: YamlTable) -> int:
    return table.at.line + table.text.count("\n")


def _tables(document: Any, text: str, path: str) -> Iterator[YamlTable]:
    fields = {_key(key): value for key, value in _pairs(document)}
    if getattr(fields.get("type"), "value", None) != COMPONENT:
        return
    attributes = {_key(key): value for key, value in _pairs(fields.get("attributes"))}
    for field, each in (("tables", "table"), ("sinks", "sink")):
        entries = attributes.get(field)
        if entries is None:
            continue
        if not isinstance(entries, yaml.SequenceNode):
            at = Location(path, _line(entries))
            raise declaration_error(RULE, f"{field} is a list with an entry for each {each}.", at)
        for node in entries.value:
            yield YamlTable(Location(path, _line(node)), _text_of(node, text), node, is_sink=field == "sinks")


def _text_of(node: Any, text: str) -> str:
    indent = node.start_mark.column
    lines = text[node.start_mark.index : node.end_mark.index].split("\n")
    # The entry ends where the next begins: what is between them is not of it.
    while len(lines) > 1 and (not lines[-1].strip() or lines[-1].lstrip().startswith("#")):
        lines.pop()
    return "\n".join([lines[0], *(line[indent:] if not line[:indent].strip() else line for line in lines[1:])])


def _pairs(node: Any) -> list[tuple[Any, Any]]:
    return list(node.value) if isinstance(node, yaml.MappingNode) else []


def _key(node: Any) -> str:
    """The text of a key; a list or mapping may be one too, and names nothing."""
    return str(node.value) if isinstance(node, yaml.ScalarNode) else _kind(node)


def _line(node: Any) -> int:
    return int(node.start_mark.line) + 1


class _Reader:
    """Reads one entry; what is wrong is collected, so that all of it is reported at once."""

    def __init__(self, node: Any, at: Location, *, is_sink: bool = False) -> None:
        self.at = at
        self.problems = Problems()
        self.kind = "a sink" if is_sink else "a table"
        self.fields = self.mapping(node, self.kind, SINK_FIELDS if is_sink else FIELDS)

    def table(self) -> TableClauses | None:
        name, query = self.name(), self.query()
        clauses = {
            "primary_key": self.names("primary_key"),
            "partitioned_by": self.names("partitioned_by"),
            "cluster_by": self.names("cluster_by"),
        }
        comment, mode = self.text("comment"), self.text("mode")
        freshness, watermark = self.freshness(), self.watermark()
        constraints, options = self.constraints(), self.options()
        if name is None or query is None:
            return None
        return TableClauses(
            name=name,
            written_at=self.at,
            query=query,
            **clauses,
            comment=None if comment is None else comment.value,
            freshness=freshness,
            mode=None if mode is None else Written(mode.value.strip().upper(), mode.line),
            watermark=watermark,
            constraints=constraints,
            options=options,
            final=None,
            side_outputs=(),
            process_outputs=(),
        )

    def sink(self) -> SinkClauses | None:
        name, table = self.name(), self.name("table")
        comment, freshness, options = self.text("comment"), self.freshness(), self.options()
        if name is None or table is None:
            return None
        return SinkClauses(
            name=name,
            written_at=self.at,
            table=Written(table, self.fields["table"][1]),
            comment=None if comment is None else comment.value,
            freshness=freshness,
            options=options,
        )

    def refuse(self, message: str, line: int) -> None:
        self.problems.add(RULE, message, Location(self.at.path, line))

    def mapping(self, node: Any, what: str, known: tuple[str, ...] | None = None) -> dict[str, tuple[Any, int]]:
        """The values by key, each with the line of its key; a key that is not `known` is refused."""
        if not isinstance(node, yaml.MappingNode):
            self.refuse(f"{what} is a mapping{'' if known is None else ' of ' + ', '.join(known)}.", _line(node))
            return {}
        found: dict[str, tuple[Any, int]] = {}
        for key, value in _pairs(node):
            name, line = _key(key), _line(key)
            if known is not None and name not in known:
                self.refuse(f"{what} has no {name}.{nearest(name, known)}", line)
            elif name in found:
                self.problems.add(
                    "DUPLICATE_CLAUSE",
                    f"{name} is written twice, first on line {found[name][1]}. Remove one.",
                    Location(self.at.path, line),
                )
            else:
                found[name] = (value, line)
        return found

    def scalar(self, node: Any, what: str, line: int) -> str | None:
        if isinstance(node, yaml.ScalarNode) and node.value.strip():
            return str(node.value)
        self.refuse(f"{what} is a text, and not {_kind(node)}.", line)
        return None

    def text(self, field: str) -> Written[str] | None:
        if field not in self.fields:
            return None
        node, line = self.fields[field]
        found = self.scalar(node, field, line)
        return None if found is None else Written(found, line)

    def required(self, field: str) -> Written[str] | None:
        if field not in self.fields:
            self.refuse(f"{self.kind} has a {field}.", self.at.line)
        return self.text(field)

    def name(self, field: str = "name") -> TableName | None:
        written = self.required(field)
        if written is None:
            return None
        try:
            return TableName.parse(written.value)
        except ValueError as error:
            self.problems.add("NAME", str(error), Location(self.at.path, written.line))
            return None

    def query(self) -> QueryText | None:
        written = self.required("query")
        if written is None:
            return None
        node, _ = self.fields["query"]
        # The text of a block begins below its sign, that of a quoted or plain value on the line of it.
        first = _line(node) + (node.style in ("|", ">"))
        before = written.value[: len(written.value) - len(written.value.lstrip())]
        return QueryText(written.value.strip().rstrip(";").rstrip(), first + before.count("\n"))

    def freshness(self) -> Written[Freshness | Downstream] | None:
        written = self.text("freshness")
        if written is None:
            return None
        if written.value.strip().upper() == "DOWNSTREAM":
            return Written(Downstream.DOWNSTREAM, written.line)
        try:
            return Written(Freshness.parse(written.value), written.line)
        except ValueError as error:
            self.problems.add("FRESHNESS_VALUE", str(error), Location(self.at.path, written.line))
            return None

    def names(self, field: str) -> Written[tuple[str, ...]] | None:
        if field not in self.fields:
            return None
        node, line = self.fields[field]
        nodes = node.value if isinstance(node, yaml.SequenceNode) else [node]
        found = [self.scalar(each, f"a column of {field}", line) for each in nodes]
        names = tuple(name.strip() for name in found if name is not None)
        if len({name.lower() for name in names}) < len(names):
            self.refuse(f"{field} names a column twice. Name it once.", line)
            return None
        return Written(names, line) if names else None

    def watermark(self) -> Written[Watermark] | None:
        if "watermark" not in self.fields:
            return None
        node, line = self.fields["watermark"]
        given = self.mapping(node, "watermark", WATERMARK_FIELDS)
        texts = {key: self.scalar(value, f"{key} of watermark", at) for key, (value, at) in given.items()}
        column, delay = texts.get("column"), texts.get("delay", "0 seconds")
        if column is None or delay is None:
            if "column" not in given:
                self.refuse("a watermark has a column.", line)
            return None
        try:
            return Written(Watermark(column.strip(), parse_seconds(delay, "delay", least=0)), line)
        except ValueError as error:
            self.problems.add("WATERMARK", f"WATERMARK FOR {column}: {error}", Location(self.at.path, line))
            return None

    def constraints(self) -> tuple[Written[Constraint], ...]:
        if "constraints" not in self.fields:
            return ()
        node, _ = self.fields["constraints"]
        found = (self.constraint(name, *said) for name, said in self.mapping(node, "constraints").items())
        return tuple(each for each in found if each is not None)

    def constraint(self, name: str, node: Any, line: int) -> Written[Constraint] | None:
        if not PART.match(name):
            self.refuse(f"constraint {name!r} has a name of letters, digits and underscores.", line)
            return None
        said: Mapping[str, tuple[Any, int]] = {"expect": (node, line)}
        if isinstance(node, yaml.MappingNode):
            said = self.mapping(node, f"constraint {name}", CONSTRAINT_FIELDS)
        if "expect" not in said:
            self.refuse(f"constraint {name} has a condition, expect.", line)
            return None
        condition = self.scalar(said["expect"][0], f"the condition of constraint {name}", line)
        violation, at = said.get("on_violation", (None, line))
        words = OnViolation.WARN.value if violation is None else self.scalar(violation, "on_violation", at)
        if condition is None or words is None:
            return None
        words = " ".join(words.upper().split())
        if words not in set(OnViolation):
            self.refuse(f"on_violation is {words}. It is one of {', '.join(OnViolation)}.", at)
            return None
        return Written(Constraint(name, condition.strip(), OnViolation(words)), line)

    def options(self) -> dict[str, Written[str]]:
        if "options" not in self.fields:
            return {}
        node, _ = self.fields["options"]
        found: dict[str, Written[str]] = {}
        for key, (value, line) in self.mapping(node, "options").items():
            text = value.value if isinstance(value, yaml.ScalarNode) else None
            if text is None:
                self.refuse(f"option '{key}' is a text, a number, true or false, and not {_kind(value)}.", line)
            else:
                found[key.strip().lower()] = Written(str(text), line)
        return found


def _kind(node: Any) -> str:
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    return "a mapping" if isinstance(node, yaml.MappingNode) else "nothing"
