"""The header of a declaration: CREATE MATERIALIZED TABLE, CREATE SOURCE, CREATE SINK and CREATE MODEL.

The header is read here, word by word; the query behind AS is cut out as it was written and read by
`query_parser`. A clause that the grammar knows and this version does not have is refused with a sentence,
so that nothing that was declared is ever ignored.
"""

from __future__ import annotations

from dataclasses import dataclass

from freshline.errors import DeclarationError
from freshline.sql.clauses import ModelClauses, QueryText, SinkClauses, SourceClauses, TableClauses
from freshline.sql.tokens import Text, Token, TokenKind, Tokens
from freshline.values.closing import Final
from freshline.values.column_types import normalise_type
from freshline.values.freshness import Freshness, parse_seconds
from freshline.values.location import Location, Written
from freshline.values.rules import Problems, declaration_error, nearest
from freshline.values.spec import Column, Constraint, Downstream, OnViolation, SideOutput, Watermark

TABLE_CLAUSES = ("COMMENT", "PARTITIONED", "CLUSTER", "WITH", "FRESHNESS", "REFRESH_MODE", "EMIT", "SIDE", "AS")
SOURCE_CLAUSES = ("COMMENT", "WITH", "FRESHNESS")
SINK_CLAUSES = ("COMMENT", "WITH", "FRESHNESS")
MODEL_CLAUSES = ("COMMENT", "WITH")


@dataclass(frozen=True)
class ColumnList:
    """Columns with their primary key, watermark and constraints."""

    columns: tuple[Written[Column], ...]
    primary_key: Written[tuple[str, ...]] | None
    watermark: Written[Watermark] | None
    constraints: tuple[Written[Constraint], ...]


def read_statement(text: Text) -> TableClauses | SourceClauses | SinkClauses | ModelClauses:
    """The one declaration of a SQL file.

    Raises DeclarationError, or DeclarationErrors with all that can be reported at once.
    """
    statements = _split(text)
    if not statements:
        raise declaration_error(
            "NO_DECLARATION",
            "the file declares nothing. Write CREATE MATERIALIZED TABLE .., CREATE SOURCE .. or CREATE SINK .., or "
            "begin the name of the file with an underscore.",
            text.at(0),
        )
    if len(statements) > 1:
        lines = " and ".join(str(text.line(tokens[0].start)) for tokens in statements)
        raise declaration_error(
            "TWO_DECLARATIONS",
            f"{len(statements)} statements in one file, on lines {lines}. Give each a file of its own.",
            text.at(statements[1][0].start),
        )
    return _Header(text, statements[0]).read()


def read_columns(text: Text) -> ColumnList:
    """The list between the parentheses of CREATE SOURCE."""
    header = _Header(text, text.tokens())
    header.column_list(closing=False)
    header.problems.raise_all()
    return ColumnList(tuple(header.columns), header.primary_key, header.watermark, tuple(header.constraints))


def _split(text: Text) -> list[list[Token]]:
    """The statements of a file, without semicolons; a CREATE after a whole query begins one as well."""
    statements: list[list[Token]] = [[]]
    for token in text.tokens():
        if token.word == ";":
            statements.append([])
        else:
            statements[-1].append(token)
    return [tokens for tokens in statements if tokens]


class _Header:
    """Reads one statement; what is wrong with a value is collected, what is wrong with the grammar ends it."""

    def __init__(self, text: Text, tokens: list[Token]) -> None:
        self.text = text
        self.tokens = Tokens(text, tokens)
        self.problems = Problems()
        self.columns: list[Written[Column]] = []
        self._column_names: set[str] = set()
        self.primary_key: Written[tuple[str, ...]] | None = None
        self.watermark: Written[Watermark] | None = None
        self.constraints: list[Written[Constraint]] = []
        self._seen: dict[str, int] = {}
        self._comment: str | None = None
        self._freshness: Written[Freshness | Downstream] | None = None
        self._options: dict[str, Written[str]] = {}

    def read(self) -> TableClauses | SourceClauses | SinkClauses | ModelClauses:
        try:
            clauses = self._statement()
        except DeclarationError as error:
            self.problems.extend(error)
            self.problems.raise_all()
            raise AssertionError("an error was collected") from error
        self.problems.raise_all()
        return clauses

    def _statement(self) -> TableClauses | SourceClauses | SinkClauses | ModelClauses:
        tokens = self.tokens
        at = tokens.here
        if not tokens.accept("CREATE"):
            raise tokens.refuse(
                "CREATE MATERIALIZED TABLE or CREATE SOURCE is expected: a file holds a declaration and nothing else,"
            )
        if tokens.at("OR", "REPLACE"):
            raise tokens.refuse("a declaration says CREATE or CREATE OR ALTER; OR ALTER is expected")
        tokens.accept("OR", "ALTER")
        if tokens.accept("SOURCE"):
            return self._source(at)
        if tokens.accept("SINK"):
            return self._sink(at)
        if tokens.accept("MODEL"):
            return self._model(at)
        if not tokens.accept("MATERIALIZED", "TABLE"):
            raise tokens.refuse("MATERIALIZED TABLE, SOURCE, SINK or MODEL is expected")
        return self._table(at)

    # -- tables

    def _table(self, at: Location) -> TableClauses:
        tokens = self.tokens
        self._refuse_if_not_exists()
        name = tokens.table_name()
        if tokens.at("("):
            self._table_list()
        partitioned_by: Written[tuple[str, ...]] | None = None
        cluster_by: Written[tuple[str, ...]] | None = None
        mode: Written[str] | None = None
        final: Written[Final] | None = None
        side_outputs: list[Written[SideOutput]] = []
        while not tokens.at("AS"):
            line = tokens.line
            if tokens.at("PARTITIONED"):
                self._begin("PARTITIONED", "BY")
                partitioned_by = Written(tokens.comma_separated(lambda: tokens.identifier("a column")), line)
            elif tokens.at("CLUSTER"):
                self._begin("CLUSTER", "BY")
                cluster_by = Written(tokens.comma_separated(lambda: tokens.identifier("a column")), line)
            elif tokens.at("REFRESH_MODE"):
                self._begin("REFRESH_MODE")
                tokens.expect("=")
                mode = Written(tokens.identifier("AUTO, CONTINUOUS, INCREMENTAL or BATCH").upper(), line)
            elif tokens.at("EMIT"):
                final = self._emit()
            elif tokens.at("SIDE"):
                tokens.expect("SIDE", "OUTPUT")
                output = tokens.table_name()
                tokens.expect("WHERE")
                side_outputs.append(Written(SideOutput(output, self._condition()), line))
            else:
                self._common_clause(TABLE_CLAUSES)
        tokens.expect("AS")
        return TableClauses(
            name=name,
            written_at=at,
            query=self._query(),
            primary_key=self.primary_key,
            partitioned_by=partitioned_by,
            cluster_by=cluster_by,
            comment=self._comment,
            freshness=self._freshness,
            mode=mode,
            watermark=self.watermark,
            constraints=tuple(self.constraints),
            options=self._options,
            final=final,
            side_outputs=tuple(side_outputs),
        )

    def _emit(self) -> Written[Final] | None:
        """EMIT CHANGES, which is the default, or EMIT FINAL [ALLOWED LATENESS INTERVAL '1' MINUTE | WHEN (..)]."""
        tokens = self.tokens
        line = tokens.line
        self._begin("EMIT")
        if tokens.accept("CHANGES"):
            return None
        if not tokens.accept("FINAL"):
            raise tokens.refuse("CHANGES or FINAL is expected")
        lateness, is_stated = 0, tokens.at("ALLOWED")
        if tokens.accept("ALLOWED"):
            tokens.expect("LATENESS")
            at, words = tokens.here, []
            while tokens.token is not None and tokens.word() not in (*TABLE_CLAUSES, "WHEN"):
                words.append(tokens.advance())
            if not words:
                raise tokens.refuse("an interval, such as INTERVAL '1' MINUTE, is expected")
            try:
                lateness = parse_seconds(self.text.text[words[0].start : words[-1].end], "lateness", least=0)
            except ValueError as error:
                self.problems.add("LATENESS", f"ALLOWED LATENESS {error}", at)
        if not tokens.at("WHEN"):
            return Written(Final(lateness), line)
        if is_stated:
            self.problems.add(
                "LATENESS",
                "ALLOWED LATENESS is how long a window stays open, and with WHEN the condition alone decides when a "
                "row is written. Remove one of them. The condition can wait longer: WHEN (watermark() >= window_end + "
                "INTERVAL '1' MINUTE).",
                tokens.here,
            )
        tokens.expect("WHEN")
        return Written(Final(condition=self._condition()), line)

    def _table_list(self) -> None:
        tokens = self.tokens
        tokens.expect("(")
        while True:
            if not self._constraint():
                raise declaration_error(
                    "SYNTAX",
                    "PRIMARY KEY (..), WATERMARK FOR .. or CONSTRAINT .. EXPECT is expected between the parentheses: a "
                    "materialized table takes its columns from its query.",
                    tokens.here,
                )
            if not tokens.accept(","):
                break
        tokens.expect(")")

    def _query(self) -> QueryText:
        tokens = self.tokens
        rest = tokens.rest()
        if not rest:
            raise tokens.refuse("a query is expected")
        if rest[0].word not in ("SELECT", "WITH", "("):
            raise declaration_error(
                "QUERY_KIND",
                f"the query begins with {rest[0].raw}. Write one SELECT, or WITH .. SELECT.",
                tokens.here,
            )
        start, end = rest[0].start, rest[-1].end
        return QueryText(self.text.text[start:end], self.text.line(start))

    # -- sources

    def _source(self, at: Location) -> SourceClauses:
        tokens = self.tokens
        self._refuse_if_not_exists()
        name = tokens.table_name()
        if not tokens.at("("):
            raise tokens.refuse("the columns of the source, in parentheses, are expected")
        tokens.expect("(")
        self.column_list(closing=True)
        while tokens.token is not None:
            self._common_clause(SOURCE_CLAUSES)
        return SourceClauses(
            name=name,
            written_at=at,
            columns=tuple(self.columns),
            primary_key=self.primary_key,
            comment=self._comment,
            freshness=self._freshness,
            watermark=self.watermark,
            constraints=tuple(self.constraints),
            options=self._options,
        )

    def column_list(self, *, closing: bool) -> None:
        """Columns, PRIMARY KEY and constraints up to the closing parenthesis, or up to the end."""
        tokens = self.tokens
        while True:
            if not self._constraint():
                self._column()
            if not tokens.accept(","):
                break
        if closing:
            if not tokens.accept(")"):
                raise tokens.refuse(", or ) is expected")
        elif tokens.token is not None:
            raise tokens.refuse("a comma or the end of the columns is expected")

    def _column(self) -> None:
        tokens = self.tokens
        line, at = tokens.line, tokens.here
        name = tokens.identifier("the name of a column")
        kind = self._type(name)
        metadata: str | None = None
        comment: str | None = None
        seen: set[str] = set()
        while tokens.token is not None and not tokens.at(",") and not tokens.at(")"):
            clause = tokens.word()
            if clause in seen:
                raise declaration_error(
                    "DUPLICATE_CLAUSE", f"{clause} is written twice for column {name}.", tokens.here
                )
            seen.add(clause)
            if tokens.accept("METADATA"):
                tokens.expect("FROM")
                metadata = tokens.string("what the source knows beside the record").strip().lower()
            elif tokens.accept("COMMENT"):
                comment = tokens.string("a comment")
            elif tokens.at("NOT", "NULL"):
                self.problems.add(
                    "NOT_BUILT",
                    f"column {name}: NOT NULL is not built yet. Remove it; a column of the PRIMARY KEY is never NULL.",
                    tokens.here,
                )
                tokens.expect("NOT", "NULL")
            elif tokens.at("PRIMARY", "KEY"):
                self._begin("PRIMARY", "KEY")
                self.primary_key = Written((name,), line)
            else:
                raise tokens.refuse("METADATA FROM, COMMENT, a comma or ) is expected")
        if kind is None:
            return
        if name.lower() in self._column_names:
            self.problems.add("DUPLICATE_COLUMN", f"column {name} is declared twice. Remove one.", at)
            return
        self._column_names.add(name.lower())
        self.columns.append(Written(Column(name, kind, metadata, comment), line))

    def _type(self, column: str) -> str | None:
        """The words of a type up to the next clause or comma; None, with the problem collected, where it is none."""
        tokens = self.tokens
        first = tokens.token
        if first is None or first.word in (",", ")"):
            raise tokens.refuse(f"the type of column {column} is expected")
        at = tokens.here
        depth = 0
        last = first
        while tokens.token is not None:
            word = tokens.word()
            if depth == 0 and (word in (",", ")", "METADATA", "COMMENT", "NOT", "PRIMARY") or word == ""):
                break
            last = tokens.advance()
            depth += word.count("<") + word.count("(") - word.count(">") - word.count(")")
        try:
            return normalise_type(self.text.text[first.start : last.end])
        except ValueError as error:
            self.problems.add("COLUMN_TYPE", f"column {column}: {error}", at)
            return None

    # -- sinks

    def _sink(self, at: Location) -> SinkClauses:
        tokens = self.tokens
        self._refuse_if_not_exists()
        name = tokens.table_name()
        if not tokens.at("FROM"):
            raise tokens.refuse("FROM and the table whose rows go out are expected")
        tokens.expect("FROM")
        line = tokens.line
        table = Written(tokens.table_name(), line)
        while tokens.token is not None:
            self._common_clause(SINK_CLAUSES)
        return SinkClauses(name, at, table, self._comment, self._freshness, self._options)

    # -- models

    def _model(self, at: Location) -> ModelClauses:
        tokens = self.tokens
        self._refuse_if_not_exists()
        name = tokens.table_name()
        while tokens.token is not None:
            if tokens.word() in ("FRESHNESS", "WATERMARK", "CONSTRAINT"):
                raise tokens.refuse(f"one of {', '.join(MODEL_CLAUSES)} is expected")
            self._common_clause(MODEL_CLAUSES)
        return ModelClauses(name, at, self._comment, self._options)

    # -- all

    def _constraint(self) -> bool:
        """Read PRIMARY KEY, WATERMARK and CONSTRAINT .. EXPECT, refuse others; False where a column stands."""
        tokens = self.tokens
        if tokens.at("PRIMARY", "KEY") or (tokens.at("CONSTRAINT") and tokens.word(2) == "PRIMARY"):
            if tokens.accept("CONSTRAINT"):
                tokens.identifier("the name of the constraint")
            line, at = tokens.line, tokens.here
            self._begin("PRIMARY", "KEY")
            names = tokens.comma_separated(lambda: tokens.identifier("a column"))
            if tokens.accept("NOT"):
                tokens.expect("ENFORCED")
            twice = [name for index, name in enumerate(names) if name.lower() in {n.lower() for n in names[:index]}]
            if twice:
                self.problems.add("PRIMARY_KEY", f"PRIMARY KEY names {twice[0]} twice. Name it once.", at)
            self.primary_key = Written(names, line)
            return True
        if tokens.at("WATERMARK", "FOR"):
            self._watermark()
            return True
        if tokens.at("CONSTRAINT") and tokens.word(2) == "EXPECT":
            self._expectation()
            return True
        if tokens.at("CONSTRAINT") and tokens.word(2) in ("CHECK", "FOREIGN", "UNIQUE"):
            self._not_built(f"CONSTRAINT .. {tokens.word(2)}")
            return True
        return False

    def _expectation(self) -> None:
        """CONSTRAINT name EXPECT (condition) [ON VIOLATION WARN | DROP ROW | QUARANTINE | FAIL]."""
        tokens = self.tokens
        line = tokens.line
        tokens.expect("CONSTRAINT")
        name = tokens.identifier("the name of the constraint")
        tokens.expect("EXPECT")
        condition = self._condition().value
        on_violation = OnViolation.WARN
        if tokens.accept("ON"):
            tokens.expect("VIOLATION")
            found = next((each for each in OnViolation if tokens.accept(*each.split())), None)
            if found is None:
                raise tokens.refuse(f"{', '.join(OnViolation)} is expected")
            on_violation = found
        self.constraints.append(Written(Constraint(name, condition, on_violation), line))

    def _condition(self) -> Written[str]:
        """The text between two parentheses."""
        tokens = self.tokens
        tokens.expect("(")
        start, line = tokens.offset, tokens.line
        depth = 0
        while depth or not tokens.at(")"):
            if tokens.token is None:
                raise tokens.refuse(") is expected")
            word = tokens.word()
            depth += (word == "(") - (word == ")")
            tokens.advance()
        condition = self.text.text[start : tokens.offset].strip()
        tokens.expect(")")
        return Written(condition, line)

    def _watermark(self) -> None:
        """WATERMARK FOR column AS column [- INTERVAL '5' MINUTE]."""
        tokens = self.tokens
        line = tokens.line
        self._begin("WATERMARK")
        tokens.expect("FOR")
        column = tokens.identifier("a column")
        tokens.expect("AS")
        at = tokens.here
        again = tokens.identifier(f"the same column, {column},")
        delay = 0
        if again.lower() != column.lower():
            self.problems.add(
                "WATERMARK", f"WATERMARK FOR {column} is computed from {again}. Write {column}, less an interval.", at
            )
        if tokens.accept("-"):
            at = tokens.here
            words = []
            while tokens.token is not None and not tokens.at(",") and not tokens.at(")"):
                words.append(tokens.advance())
            if not words:
                raise tokens.refuse("an interval, such as INTERVAL '5' MINUTE, is expected")
            try:
                delay = parse_seconds(self.text.text[words[0].start : words[-1].end], "delay", least=0)
            except ValueError as error:
                self.problems.add("WATERMARK", f"WATERMARK FOR {column}: {error}", at)
        self.watermark = Written(Watermark(column, delay), line)

    def _not_built(self, clause: str) -> None:
        """Refuse a clause of the grammar that this version does not have, and step over it."""
        tokens = self.tokens
        self.problems.add("NOT_BUILT", f"{clause} is not built yet. Remove it.", tokens.here)
        depth = 0
        while tokens.token is not None:
            word = tokens.word()
            if depth == 0 and word in (",", ")"):
                return
            depth += (word == "(") - (word == ")")
            tokens.advance()

    def _common_clause(self, clauses: tuple[str, ...]) -> None:
        tokens = self.tokens
        if tokens.at("COMMENT"):
            self._begin("COMMENT")
            tokens.accept("=")
            self._comment = tokens.string("a comment")
        elif tokens.at("WITH"):
            self._with()
        elif tokens.at("FRESHNESS"):
            self._read_freshness(clauses)
        elif tokens.at("WATERMARK") or tokens.at("CONSTRAINT"):
            raise declaration_error("NOT_BUILT", f"{tokens.word()} is not built yet. Remove it.", tokens.here)
        else:
            word = tokens.word()
            near = nearest(word, clauses) if word else ""
            refused = tokens.refuse(f"one of {', '.join(clauses)} is expected")
            raise declaration_error("SYNTAX", refused.message + near, tokens.here)

    def _with(self) -> None:
        tokens = self.tokens
        self._begin("WITH")
        tokens.expect("(")
        while True:
            line, at = tokens.line, tokens.here
            key = tokens.string("the name of an option").strip().lower()
            tokens.expect("=")
            value = tokens.string(f"the value of '{key}'")
            if key in self._options:
                self.problems.add(
                    "DUPLICATE_CLAUSE", f"option '{key}' is also on line {self._options[key].line}. Remove one.", at
                )
            else:
                self._options[key] = Written(value, line)
            if not tokens.accept(","):
                break
        if not tokens.accept(")"):
            raise tokens.refuse(", or ) is expected")

    def _read_freshness(self, clauses: tuple[str, ...]) -> None:
        tokens = self.tokens
        line, at = tokens.line, tokens.here
        self._begin("FRESHNESS")
        tokens.accept("=")
        if tokens.accept("DOWNSTREAM"):
            self._freshness = Written(Downstream.DOWNSTREAM, line)
            return
        first = tokens.token
        words: list[Token] = []
        while tokens.token is not None and tokens.word() not in clauses and tokens.word() != ")":
            words.append(tokens.advance())
        if first is None or not words:
            raise tokens.refuse("an interval, such as INTERVAL '30' SECOND, is expected")
        only_string = len(words) == 1 and first.kind is TokenKind.STRING
        text = first.value if only_string else self.text.text[first.start : words[-1].end]
        try:
            self._freshness = Written(Freshness.parse(text), line)
        except ValueError as error:
            self.problems.add("FRESHNESS_VALUE", str(error), at)

    def _begin(self, *words: str) -> None:
        """Step over the words that begin a clause, which is written once."""
        clause = " ".join(words)
        if clause in self._seen:
            self.problems.add(
                "DUPLICATE_CLAUSE",
                f"{clause} is written twice, first on line {self._seen[clause]}. Remove one.",
                self.tokens.here,
            )
        self._seen.setdefault(clause, self.tokens.line)
        self.tokens.expect(*words)

    def _refuse_if_not_exists(self) -> None:
        if self.tokens.at("IF", "NOT", "EXISTS"):
            raise declaration_error(
                "SYNTAX",
                "IF NOT EXISTS has no meaning in a declaration: the file says what the table is. Remove it.",
                self.tokens.here,
            )
