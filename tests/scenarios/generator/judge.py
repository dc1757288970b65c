"""Who says that a case is wrong: DuckDB of the analysis alone, or freshline's own comparison after every refresh."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random
from typing import Any

from freshline.errors import DeclarationErrors, IncrementalError, RequestError
from freshline.query.clock import ClockSpan
from freshline.query.resolved import ResolvedQuery
from freshline.query.rules.keys import Affected, find_affected
from freshline.testing import Lab
from freshline.values.clock import CLOCK
from freshline.values.reason import Reason
from freshline.values.result import RefreshResult
from tests.crashes import another_engine, refresh_by
from tests.scenarios.generator.case import BEGINNING, FIRST_DAY, ROUND, Case, Table
from tests.scenarios.generator.second_engine import BACKWARD, FORWARD, NotReadError, Row, SecondEngine, plain
from tests.scenarios.generator.values import SPARK, declaration, type_of

STRATEGIES = ("keys", None, "append", "partition")
SHARES = (7, 2, 1, 1)
# How many of the refreshes are compared with DuckDB too, more of them where text of freshline's own is lowered, and how
# many are overtaken by another engine.
SECOND_OPINIONS = 0.25
BY_DEFINITION = 0.6
OVERTAKEN = 0.03
POINTS = ("table-before-commit", "table-writing")
# How often the first day of a table with time partitions is named before a refresh of the whole.
NAMED = 0.25


@dataclass(frozen=True)
class Failure:
    """The mistake of a table of a case, and the round after which it was found."""

    table: str
    round: int
    kind: str
    detail: str


@dataclass
class Counts:
    """The work that was done, which distinguishes a run that tests nothing from one that finds nothing."""

    refreshes: int = 0
    second_opinions: int = 0
    by_definition: int = 0
    by_hand: int = 0
    matched: int = 0
    strategies: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {count}" for name, count in self.strategies.most_common())
        reasons = ", ".join(f"{name} {count}" for name, count in self.reasons.most_common(8))
        left_out = ", ".join(f"{name} {count}" for name, count in self.left_out.most_common(8))
        return (
            f"{self.refreshes} refreshes ({parts}), {self.second_opinions} compared with DuckDB, "
            f"{self.by_definition} with definitions, {self.matched} matches by definition, "
            f"{self.by_hand} with days and expectations written as conditions; "
            f"reasons: {reasons}; left out: {left_out}"
        )


# -- the analysis alone --------------------------------------------------------------------------------------------


def judge_analysis(case: Case, counts: Counts, *, orders: bool = False) -> Failure | None:
    """The first table of which a row without an affected key is another one after a round; None where there is none.

    With `orders`, also the first one whose keys follow the order in which the rows of the sources are added up.
    """
    engine = SecondEngine(case.relations)
    try:
        engine.apply(case.first)
        for number, changes in enumerate(case.rounds, 1):
            engine.keep()
            engine.apply(changes)
            changed = engine.compare()
            if orders:
                engine.arrange(FORWARD)
            found = _judge_keys(engine, case, number, changed, counts)
            if isinstance(found, Failure):
                return found
            failure = _judge_meaning(engine, case, number, counts)
            if failure is not None:
                return failure
            if orders:
                engine.arrange(BACKWARD)
                for table, affected, keys in found:
                    again = engine.keys(affected)
                    if again != keys:
                        detail = f"of {affected.columns}: {keys}, then {again}"
                        return Failure(table.name, number, "order", detail)
    finally:
        engine.close()
    return None


def _judge_keys(
    engine: SecondEngine, case: Case, number: int, changed: frozenset[str], counts: Counts
) -> Failure | list[tuple[Table, Affected, set[Row] | None]]:
    """The keys of every table that has such after a round, or what is wrong with them."""
    schema = {relation.name.lower(): [c.name for c in relation.columns] for relation in case.relations}
    types = {
        relation.name.lower(): {c.name.lower(): type_of(c.kind, SPARK) for c in relation.columns}
        for relation in case.relations
    }
    found: list[tuple[Table, Affected, set[Row] | None]] = []
    clock = ClockSpan(BEGINNING + (number - 1) * ROUND, BEGINNING + number * ROUND)
    for table in case.tables:
        text = table.analysed
        moved = changed | {CLOCK} if text != table.lowered else changed
        affected = find_affected(ResolvedQuery.of(text, schema, types), moved, primary_key=table.primary_key)
        if isinstance(affected, Reason):
            counts.reasons[affected.code] += 1
            continue
        try:
            affected = affected.at(clock)
            before = clock.fill(text.replace(f"{CLOCK}()", f"{CLOCK}_old()"))
            wrong = engine.wrong_rows(clock.fill(text), table.names, affected, summed=table.summed, before=before)
            found.append((table, affected, engine.keys(affected)))
        except NotReadError:
            counts.left_out["not read by DuckDB"] += 1
            continue
        except AssertionError as error:
            return Failure(table.name, number, "misread", str(error))
        if wrong is None:
            counts.reasons["guard"] += 1
            continue
        counts.refreshes += 1
        if wrong:
            return Failure(table.name, number, "key", f"of {affected.columns} without {dict(wrong)}")
    return found


def judge_meaning(case: Case, counts: Counts) -> Failure | None:
    """The same as far as it is about window functions and as-of joins: what they become, and not how it changes."""
    engine = SecondEngine(case.relations)
    try:
        for number, changes in enumerate((case.first, *case.rounds)):
            engine.apply(changes)
            failure = _judge_meaning(engine, case, number, counts)
            if failure is not None:
                return failure
    finally:
        engine.close()
    return None


def _judge_meaning(engine: SecondEngine, case: Case, number: int, counts: Counts) -> Failure | None:
    """Whether window functions and as-of joins became what gives the same rows as their definitions."""
    for table in case.tables:
        if not table.meanings:
            continue
        try:
            lowered, meant = engine.rows(table.lowered), engine.defined_rows(table.defined)
        except NotReadError:
            counts.left_out["definition not read by DuckDB"] += 1
            continue
        counts.by_definition += 1
        if lowered != meant:
            detail = f"more {lowered - meant}, less {meant - lowered}"
            return Failure(table.name, number, "definition", detail)
    return None


# -- refreshes -----------------------------------------------------------------------------------------------------


def judge_refreshes(
    case: Case, labs: Callable[[datetime], AbstractContextManager[Lab]], counts: Counts, *, force: str | None = ""
) -> Failure | None:
    """Whether every table equals its query after every refresh; `force` is a strategy instead of drawn ones.

    `labs` makes a Lab whose clock begins at a time.
    """
    with labs(BEGINNING) as lab:
        for relation in case.relations:
            lab.source(
                relation.name,
                declaration(relation.columns, SPARK),
                primary_key=relation.primary_key,
                watermark=relation.since,
                options={} if relation.since is None else {"as-of.tie-breaker": ", ".join(relation.primary_key)},
            )
        _change(lab, case, 0)
        tables = [table for table in case.tables if _begins(lab, table, counts)]
        for number in range(1, len(case.rounds) + 1):
            lab.clock.advance(seconds=ROUND.total_seconds())
            _change(lab, case, number)
            for table in list(tables):
                drawn = Random(f"{case.seed} {table.name} {number}")
                strategy = drawn.choices(STRATEGIES, SHARES)[0] if force == "" else force
                failure = None
                if drawn.random() < OVERTAKEN:
                    # After the check whether somebody else was faster, only the fence is left.
                    _overtake(lab, table, Random(f"{case.seed} {table.name} {number} at").choice(POINTS))
                    # At once: the next refresh would find in the receipts what went wrong, and make it good.
                    failure = _differ(lab, table, number, "a refresh that was overtaken", counts)
                if failure is None and table.daily and drawn.random() < NAMED:
                    failure = _name_first_day(lab, table, number, counts)
                if failure is None:
                    failure = _refresh(lab, table, number, strategy, counts)
                if failure is None:
                    failure = _look_at(lab, case, table, number, drawn, counts)
                if failure is not None and failure.kind == "ended":
                    tables.remove(table)
                elif failure is not None:
                    return failure
    return None


def _look_at(lab: Lab, case: Case, table: Table, number: int, drawn: Random, counts: Counts) -> Failure | None:
    """Whether a table and its side outputs are as their conditions and another engine have them."""
    failure = None
    # Of equal rows another engine may take others for the first.
    share = 0.0 if table.first else BY_DEFINITION if table.meanings else SECOND_OPINIONS
    for part in (table, *table.parts):
        if part is not table:
            failure = _differ(lab, part, number, "a refresh of the main table", counts)
        if failure is None and (table.daily or table.expected or table.outputs) and not table.summed:
            failure = _by_hand(lab, part, number, counts)
        if failure is None and drawn.random() < share and not table.summed:
            failure = _second_opinion(lab, case, part, number, counts)
        if failure is not None:
            return failure
    return None


def _change(lab: Lab, case: Case, number: int) -> None:
    for change in (case.first, *case.rounds)[number]:
        for statement in change.statements(case.relation(change.source), SPARK):
            lab.sql(statement)


def _begins(lab: Lab, table: Table, counts: Counts) -> bool:
    """Declare and fill a table; one that Spark refuses is left out."""
    try:
        lab.declare(table.declaration)
    except DeclarationErrors as error:
        counts.left_out[f"declaration {error.errors[0].code}"] += 1
        return False
    outcome = lab.refresh(table.name)
    if outcome.error is not None:
        counts.left_out[f"first refresh {outcome.error.code}"] += 1
        return False
    return True


def _overtake(lab: Lab, table: Table, at: str) -> None:
    """Refresh while a newer engine does the same: when this one is about to commit, the other one commits."""
    older = lab.runtime.epoch
    taken: list[str] = []

    def other(point: str) -> None:
        if point == at and not taken:
            taken.append(point)
            refresh_by(another_engine(lab, older + 1), table.name)

    refresh_by(another_engine(lab, older, other), table.name)
    lab.restart()


def _name_first_day(lab: Lab, table: Table, number: int, counts: Counts) -> Failure | None:
    """Replace one time partition."""
    (column,) = table.partitioned_by
    return _compare(lab, table, number, lab.refresh(table.name, partitions={column: FIRST_DAY}), counts)


def _refresh(lab: Lab, table: Table, number: int, strategy: str | None, counts: Counts) -> Failure | None:
    outcome = lab.refresh(table.name, strategy=strategy)
    if isinstance(outcome.error, IncrementalError):
        counts.reasons[f"{strategy} refused"] += 1
        outcome = lab.refresh(table.name)
    return _compare(lab, table, number, outcome, counts)


def _compare(lab: Lab, table: Table, number: int, outcome: RefreshResult, counts: Counts) -> Failure | None:
    """Whether a refresh went well, and left the table as its query is at the positions of its receipt."""
    if outcome.error is not None:
        whole = lab.refresh(table.name, full=True)
        if whole.error is None:
            return Failure(table.name, number, "error", f"{outcome.error.code}: {outcome.error}")
        counts.left_out[f"every refresh {whole.error.code}"] += 1
        return Failure(table.name, number, "ended", str(whole.error))
    counts.refreshes += 1
    counts.strategies[str(outcome.strategy)] += 1
    if outcome.strategy == "full" or outcome.strategy == "noop":
        counts.reasons[str(outcome.reason).split(":")[0].split("(")[0]] += 1
    return _differ(lab, table, number, str(outcome.strategy), counts)


def _differ(lab: Lab, table: Table, number: int, after: str, counts: Counts) -> Failure | None:
    """Whether a table is not as its query is at the positions of its receipt."""
    try:
        found = lab.diff(table.name)
    except RequestError as error:
        # Spark itself fails at this query in this form; that its refreshes did not is no proof of anything.
        counts.left_out[f"comparing {error.code}"] += 1
        return Failure(table.name, number, "ended", str(error))
    found = _unlike(found, table.summed)
    return Failure(table.name, number, "rows", f"after {after} {found[:6]}") if found else None


def _unlike(found: list[tuple[str, dict[str, Any]]], summed: Sequence[str]) -> list[tuple[str, dict[str, Any]]]:
    """Differences that are more than another order of additions, in which 1e16 + 1 - 1e16 may be 0 or 1."""
    left: list[tuple[str, dict[str, Any]]] = []
    for sign, row in found:
        known = {name: value is None if name.lower() in summed else value for name, value in row.items()}
        other = next((item for item in left if item[0] != sign and item[1] == known), None)
        if other is None:
            left.append((sign, known))
        else:
            left.remove(other)
    return left


def _by_hand(lab: Lab, table: Table, number: int, counts: Counts) -> Failure | None:
    """Compare with the query as it is now; time partitions, constraints and side outputs are written as conditions."""
    if "MATCH_RECOGNIZE" in table.query:
        # The text that it becomes is for freshline alone.
        return None
    asked = Counter(plain([list(row.values()) for row in lab.sql(table.query_at(lab.clock()))]))
    stored = Counter(plain([list(row.values()) for row in lab.rows(table.name)]))
    counts.by_hand += 1
    if stored == asked:
        return None
    return Failure(table.name, number, "by hand", f"more {stored - asked}, less {asked - stored}")


def _second_opinion(lab: Lab, case: Case, table: Table, number: int, counts: Counts) -> Failure | None:
    """Compare the table with what DuckDB computes from the same rows of the sources."""
    if table.partitioned_by and not table.daily:
        # Delta keeps an empty text of a partition as NULL, DuckDB knows nothing of that.
        return None
    if "LATERAL VIEW OUTER" in table.query:
        # In what the query becomes for DuckDB, a row whose array is NULL or empty is left out.
        counts.left_out["LATERAL VIEW OUTER in DuckDB"] += 1
        return None
    engine = SecondEngine(case.relations)
    try:
        for relation in case.relations:
            engine.fill(relation.name, [_without_zone(row) for row in lab.rows(relation.name)])
        counts.matched += engine.match(each.matching for each in table.meanings if each.matching is not None)
        asked: Counter[Any] = Counter()
        for row, times in engine.defined_rows(table.query_at(lab.clock(), by_definition=True)).items():
            # Whether DuckDB gives a time with a zone depends on the form of the query.
            asked[tuple(_utc(value) for value in row)] += times
    except NotReadError:
        counts.left_out["not read by DuckDB"] += 1
        return None
    finally:
        engine.close()
    stored = Counter(plain([list(_without_zone(row).values()) for row in lab.rows(table.name)]))
    counts.second_opinions += 1
    if stored == asked:
        return None
    return Failure(table.name, number, "second engine", f"more {stored - asked}, less {asked - stored}")


def _without_zone(row: dict[str, Any]) -> dict[str, Any]:
    return {name: _utc(value) for name, value in row.items()}


def _utc(value: Any) -> Any:
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).replace(tzinfo=None)
    return value
