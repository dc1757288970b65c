"""The statements that manage tables, beside CREATE, whose grammar is that of the files.

```sql
ALTER MATERIALIZED TABLE t SET FRESHNESS INTERVAL '5' SECOND [FOR INTERVAL '48' HOUR] [CASCADE]
ALTER MATERIALIZED TABLE t RESET FRESHNESS [CASCADE]
ALTER MATERIALIZED TABLE t SUSPEND [FOR INTERVAL '2' HOUR] [BECAUSE '..']
ALTER MATERIALIZED TABLE t RESUME
ALTER MATERIALIZED TABLE t REFRESH [FULL] [PARTITION (ds = 'a')].. [PARTITION (ds BETWEEN 'a' AND 'b')].. [CASCADE]
ALTER MATERIALIZED TABLE t AS SELECT .. [FROM NOW | FROM BEGINNING | FROM DATE '2026-11-01']
CREATE [OR ALTER] MATERIALIZED TABLE t ..      CREATE [OR ALTER] SOURCE s ..      CREATE [OR ALTER] SINK k ..
DROP MATERIALIZED TABLE [IF EXISTS] t [PURGE]
SHOW MATERIALIZED TABLES    SHOW CREATE MATERIALIZED TABLE t    SHOW REFRESHES [FOR t]
DESCRIBE [EXTENDED] t       EXPLAIN MATERIALIZED TABLE t        EXPLAIN FRESHNESS t
VERIFY MATERIALIZED TABLE t [PARTITION (column = 'value')]
CREATE SAVEPOINT s [FOR t, ..]    RESTORE SAVEPOINT s    DROP SAVEPOINT s    SHOW SAVEPOINTS
```

ALTER, DROP, SHOW CREATE, EXPLAIN and VERIFY take SINK in the place of MATERIALIZED TABLE.

They become values here; no name is resolved and nothing is done. A part that the grammar knows and this version does
not have is refused with a sentence. Any other statement is one for Spark.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date

from freshline.errors import RequestError
from freshline.sql.tokens import Text, Token, TokenKind, Tokens
from freshline.values.freshness import Freshness, parse_seconds
from freshline.values.names import TableName
from freshline.values.rules import declaration_error

Partition = tuple[tuple[str, str], ...]
# From when on a changed declaration applies, where it is no date.
NOW = "now"
BEGINNING = "beginning"

# Location shown for statements, which have no file.
STATEMENT = "statement"
_LEADING = re.compile(r"(?:\s|--[^\n]*(?:\n|\Z)|/\*.*?\*/)*", re.DOTALL)
_WORD = re.compile(r"\w+")
# A statement that begins with one of these, and goes on as below, is ours.
_OURS = {
    "ALTER": re.compile(r"(MATERIALIZED|SINK)\b", re.IGNORECASE),
    "CREATE": re.compile(r"(OR\s+\w+\s+)?(MATERIALIZED|SOURCE|SINK|SAVEPOINT)\b", re.IGNORECASE),
    "DROP": re.compile(r"(MATERIALIZED|SINK|SAVEPOINT)\b", re.IGNORECASE),
    "SHOW": re.compile(r"(MATERIALIZED|REFRESHES|SAVEPOINTS|CREATE\s+(MATERIALIZED|SINK))\b", re.IGNORECASE),
    "DESCRIBE": re.compile(r"(EXTENDED\s+)?[\w`.]+\s*;?\s*\Z", re.IGNORECASE),
    "DESC": re.compile(r"(EXTENDED\s+)?[\w`.]+\s*;?\s*\Z", re.IGNORECASE),
    "EXPLAIN": re.compile(r"(MATERIALIZED|SINK|FRESHNESS)\b", re.IGNORECASE),
    "VERIFY": re.compile(r"", re.IGNORECASE),
    "RESTORE": re.compile(r"SAVEPOINT\b", re.IGNORECASE),
}
_ACTIONS = "SET FRESHNESS, RESET FRESHNESS, SUSPEND, RESUME, REFRESH or AS"


@dataclass(frozen=True)
class SetFreshness:
    """Another freshness, for `lasts` seconds or until it is reset."""

    table: TableName
    freshness: Freshness
    lasts: int | None
    cascade: bool


@dataclass(frozen=True)
class ResetFreshness:
    """The declared freshness again."""

    table: TableName
    cascade: bool


@dataclass(frozen=True)
class Suspend:
    """Leave the table as it is, for `lasts` seconds or until it is resumed."""

    table: TableName
    lasts: int | None
    because: str | None


@dataclass(frozen=True)
class Resume:
    """Keep a suspended table fresh again."""

    table: TableName


@dataclass(frozen=True)
class PartitionRange:
    """The time partitions from one key to another, both included."""

    column: str
    first: str
    last: str


@dataclass(frozen=True)
class Refresh:
    """Bring a table up to date, or replace these partitions of it; with `cascade`, what reads it too."""

    table: TableName
    full: bool
    partitions: tuple[Partition, ...]
    ranges: tuple[PartitionRange, ...] = ()
    cascade: bool = False


@dataclass(frozen=True)
class AlterQuery:
    """Another query for a table; `start` says from when on it applies: `now`, `beginning`, a date, None unstated."""

    table: TableName
    query: str
    start: str | None


@dataclass(frozen=True)
class Create:
    """Declare a table or source; `text` is the statement as it was written."""

    name: TableName
    or_alter: bool
    text: str


@dataclass(frozen=True)
class Drop:
    """Declare the table no more; its data stays, unless it is to `purge`."""

    table: TableName
    if_exists: bool
    purge: bool = False


@dataclass(frozen=True)
class ShowTables:
    """The state of every table."""


@dataclass(frozen=True)
class ShowCreate:
    """The declaration as it stands in its file."""

    table: TableName


@dataclass(frozen=True)
class ShowRefreshes:
    """The refreshes that were made, and the decisions."""

    table: TableName | None


@dataclass(frozen=True)
class Describe:
    """The columns of a table or source, and with `extended` what it promises."""

    table: TableName
    extended: bool


@dataclass(frozen=True)
class Explain:
    """The steps of a table's refresh after each kind of change."""

    table: TableName


@dataclass(frozen=True)
class ExplainFreshness:
    """Whether a table's promise can be kept, and what it costs."""

    table: TableName


@dataclass(frozen=True)
class Verify:
    """Compute a table again and compare, all of it or these partitions."""

    table: TableName
    partitions: tuple[Partition, ...] = ()


@dataclass(frozen=True)
class CreateSavepoint:
    """Keep the state of all tables, or of these and what they depend on, under a name."""

    name: str
    tables: tuple[TableName, ...]


@dataclass(frozen=True)
class RestoreSavepoint:
    """Bring the tables of a savepoint back to what they were."""

    name: str


@dataclass(frozen=True)
class DropSavepoint:
    """Keep a savepoint no longer."""

    name: str


@dataclass(frozen=True)
class ShowSavepoints:
    """The savepoints that there are."""


Managing = (
    SetFreshness
    | ResetFreshness
    | Suspend
    | Resume
    | Refresh
    | AlterQuery
    | Create
    | Drop
    | ShowTables
    | ShowCreate
    | ShowRefreshes
    | Describe
    | Explain
    | ExplainFreshness
    | Verify
    | CreateSavepoint
    | RestoreSavepoint
    | DropSavepoint
    | ShowSavepoints
)


def read_start(text: str | None) -> str | None:
    """The start as a request has it. Raises RequestError."""
    if text is None or text.lower() in (NOW, BEGINNING):
        return None if text is None else text.lower()
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError as error:
        raise RequestError(f"{text!r} is no start: it is {BEGINNING}, {NOW}, or a date as 2026-11-01.") from error


def read_managing(statement: str) -> Managing | None:
    """The statement as a value, None for one that is Spark's.

    Raises DeclarationError, with the line, for one of ours that cannot be read or is not built.

    >>> read_managing("ALTER MATERIALIZED TABLE sales RESUME")
    Resume(table=TableName(namespace=None, name='sales'))
    >>> read_managing("SELECT 1") is None
    True
    """
    leading = _LEADING.match(statement)
    start = leading.end() if leading else 0
    first = _WORD.match(statement, start)
    if first is None or first[0].upper() not in _OURS:
        return None
    following = _LEADING.match(statement, first.end())
    if not _OURS[first[0].upper()].match(statement, following.end() if following else first.end()):
        return None
    # The first word is blanked out, at its place: behind some of them sqlglot takes the rest for one string.
    blank = " " * (first.end() - start)
    text = Text(statement[:start] + blank + statement[first.end() :], STATEMENT)
    tokens = Tokens(text, [token for token in text.tokens() if token.word != ";"], "the statement")
    return _Reader(tokens, statement[start:].rstrip().rstrip(";").rstrip()).read(first[0].upper())


def _cut_start(tokens: list[Token]) -> tuple[list[Token], str | None]:
    """The tokens of a query, and the start that is stated behind it.

    Only what follows a FROM of the query's own is one: a table may be called now.
    """
    for length, word in ((2, "NOW"), (2, "BEGINNING"), (3, "DATE")):
        query, tail = tokens[:-length], tokens[-length:]
        if [token.word for token in tail[:2]] == ["FROM", word] and _reads_from(query):
            if length == 2:
                return query, word.lower()
            if tail[2].kind is TokenKind.STRING:
                return query, tail[2].value
    return tokens, None


def _reads_from(query: list[Token]) -> bool:
    depth = 0
    for token in query:
        depth += (token.word == "(") - (token.word == ")")
        if token.word == "FROM" and not depth:
            return True
    return False


class _Reader:
    """Reads what follows the first word."""

    def __init__(self, tokens: Tokens, statement: str) -> None:
        self._tokens = tokens
        self._statement = statement

    def read(self, first: str) -> Managing:
        tokens = self._tokens
        if first == "CREATE" and not tokens.at("SAVEPOINT"):
            return self._create()
        if first == "RESTORE":
            tokens.expect("SAVEPOINT")
            found = self._savepoint(first)
        else:
            found = self._savepoint(first) if tokens.accept("SAVEPOINT") else self._readers()[first]()
        if tokens.token is not None:
            raise tokens.refuse("the end of the statement is expected")
        return found

    def _readers(self) -> dict[str, Callable[[], Managing]]:
        return {
            "ALTER": self._alter,
            "DROP": self._drop,
            "SHOW": self._show,
            "DESCRIBE": self._describe,
            "DESC": self._describe,
            "EXPLAIN": self._explain,
            "VERIFY": self._verify,
        }

    def _table(self) -> TableName:
        self._kind()
        return self._tokens.table_name()

    def _kind(self) -> None:
        """The words that say what a name is of."""
        if not self._tokens.accept("SINK"):
            self._tokens.expect("MATERIALIZED", "TABLE")

    def _alter(self) -> Managing:
        tokens = self._tokens
        table = self._table()
        if tokens.accept("SET"):
            tokens.expect("FRESHNESS")
            tokens.accept("=")
            freshness = Freshness(self._interval("freshness"))
            return SetFreshness(table, freshness, self._lasts(), tokens.accept("CASCADE"))
        if tokens.accept("RESET"):
            tokens.expect("FRESHNESS")
            return ResetFreshness(table, tokens.accept("CASCADE"))
        if tokens.accept("SUSPEND"):
            lasts = self._lasts()
            because = tokens.string("a reason") if tokens.accept("BECAUSE") else None
            return Suspend(table, lasts, because)
        if tokens.accept("RESUME"):
            return Resume(table)
        if tokens.accept("REFRESH"):
            return self._refresh(table)
        if tokens.accept("AS"):
            return self._query(table)
        raise tokens.refuse(f"{_ACTIONS} is expected")

    def _query(self, table: TableName) -> AlterQuery:
        tokens = self._tokens
        rest = tokens.rest()
        if not rest:
            raise tokens.refuse("a query is expected")
        query, start = _cut_start(rest)
        if start not in (None, NOW, BEGINNING):
            try:
                date.fromisoformat(str(start))
            except ValueError as error:
                raise declaration_error(
                    "SYNTAX", f"{start!r} is no date. Write it as 2026-11-01.", tokens.here
                ) from error
        while tokens.token is not None:
            tokens.advance()
        return AlterQuery(table, tokens.text.text[query[0].start : query[-1].end], start)

    def _refresh(self, table: TableName) -> Refresh:
        tokens = self._tokens
        full = tokens.accept("FULL")
        partitions: list[Partition] = []
        ranges: list[PartitionRange] = []
        while tokens.accept("PARTITION"):
            if full:
                raise declaration_error(
                    "SYNTAX", "FULL replaces all partitions: leave out FULL or PARTITION.", tokens.here
                )
            tokens.expect("(")
            column = tokens.identifier("a column")
            if tokens.accept("BETWEEN"):
                first = self._value()
                tokens.expect("AND")
                ranges.append(PartitionRange(column, first, self._value()))
            else:
                partitions.append(self._named(column))
            tokens.expect(")")
        return Refresh(table, full, tuple(partitions), tuple(ranges), tokens.accept("CASCADE"))

    def _named(self, column: str) -> Partition:
        """The pairs of a partition, after the name of its first column."""
        pairs = [self._pair(column)]
        while self._tokens.accept(","):
            pairs.append(self._pair(self._tokens.identifier("a column")))
        return tuple(pairs)

    def _pair(self, column: str) -> tuple[str, str]:
        self._tokens.expect("=")
        return column, self._value()

    def _value(self) -> str:
        tokens = self._tokens
        token = tokens.token
        if token is not None and token.kind is TokenKind.STRING:
            return tokens.string("a value")
        if token is None or token.word in (")", ",", "AND"):
            raise tokens.refuse("a value is expected")
        start = token.start
        # A number may have a sign, and a date its word: DATE '2026-11-01' means the text.
        if tokens.at("DATE") or tokens.at("TIMESTAMP"):
            tokens.advance()
            return tokens.string("a value")
        if tokens.accept("NULL"):
            # As everywhere, no text is the partition of NULL.
            return ""
        while tokens.token is not None and tokens.word() not in (")", ",", "AND"):
            tokens.advance()
        return tokens.text.text[start : tokens.previous.end]

    def _create(self) -> Create:
        tokens = self._tokens
        or_alter = tokens.accept("OR", "ALTER")
        if tokens.at("OR"):
            raise tokens.refuse("CREATE or CREATE OR ALTER is expected")
        if not tokens.accept("SOURCE"):
            self._kind()
        if tokens.at("IF", "NOT", "EXISTS"):
            raise declaration_error(
                "SYNTAX",
                "IF NOT EXISTS is not known here: CREATE OR ALTER of what is unchanged does nothing.",
                tokens.here,
            )
        return Create(tokens.table_name(), or_alter, self._statement)

    def _savepoint(self, first: str) -> Managing:
        tokens = self._tokens
        name = tokens.identifier("the name of a savepoint")
        if first == "RESTORE":
            return RestoreSavepoint(name)
        if first == "DROP":
            return DropSavepoint(name)
        tables: list[TableName] = []
        if tokens.accept("FOR"):
            tables.append(tokens.table_name())
            while tokens.accept(","):
                tables.append(tokens.table_name())
        return CreateSavepoint(name, tuple(tables))

    def _drop(self) -> Drop:
        tokens = self._tokens
        self._kind()
        if_exists = tokens.accept("IF", "EXISTS")
        table = tokens.table_name()
        return Drop(table, if_exists, tokens.accept("PURGE"))

    def _show(self) -> Managing:
        tokens = self._tokens
        if tokens.accept("REFRESHES"):
            return ShowRefreshes(tokens.table_name() if tokens.accept("FOR") else None)
        if tokens.accept("CREATE"):
            return ShowCreate(self._table())
        if tokens.accept("SAVEPOINTS"):
            return ShowSavepoints()
        tokens.expect("MATERIALIZED", "TABLES")
        return ShowTables()

    def _describe(self) -> Describe:
        tokens = self._tokens
        extended = tokens.at("EXTENDED") and tokens.word(1) != "" and tokens.word(1) != "."
        if extended:
            tokens.expect("EXTENDED")
        return Describe(tokens.table_name(), extended)

    def _explain(self) -> Managing:
        if self._tokens.accept("FRESHNESS"):
            return ExplainFreshness(self._tokens.table_name())
        return Explain(self._table())

    def _verify(self) -> Verify:
        tokens, table = self._tokens, self._table()
        partitions: list[Partition] = []
        while tokens.accept("PARTITION"):
            tokens.expect("(")
            partitions.append(self._named(tokens.identifier("a column")))
            tokens.expect(")")
        return Verify(table, tuple(partitions))

    def _lasts(self) -> int | None:
        return self._interval("duration") if self._tokens.accept("FOR") else None

    def _interval(self, what: str) -> int:
        """The seconds of an interval: INTERVAL, a text or number, and a unit; or all of it as one text."""
        tokens = self._tokens
        at, first = tokens.here, tokens.token
        if first is None:
            raise tokens.refuse("an interval, such as INTERVAL '30' SECOND, is expected")
        tokens.accept("INTERVAL")
        while tokens.token is not None and tokens.word() not in ("FOR", "CASCADE", "BECAUSE"):
            tokens.advance()
        last = tokens.previous
        alone = last is first and first.kind is TokenKind.STRING
        text = first.value if alone else tokens.text.text[first.start : last.end]
        try:
            return parse_seconds(text, what)
        except ValueError as error:
            raise declaration_error("FRESHNESS_VALUE", str(error), at) from error
