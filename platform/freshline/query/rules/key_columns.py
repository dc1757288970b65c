"""The rules by which a query's keys are found, one a kind of query, in the order in which they are asked.

Each rule reads one lifted query and either is not for it (None), or names the columns of its result that identify
changes, and where their values come from; or it raises NotDerivedError with the reason why none do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp, parse_one

from freshline.query.exactness import Exactness, inexact
from freshline.query.functions import (
    TIME_WINDOWS,
    WINDOW_BOUNDS,
    is_aggregate,
    is_session_key,
    is_time_window,
    is_unordered,
    name_of,
)
from freshline.query.query import Query
from freshline.query.resolved import Lifted, columns_of
from freshline.query.rules.algebra import without_cast
from freshline.query.rules.frames import Frame, frame_of, time_of, windows_in
from freshline.query.rules.touched_rows import Touched, kept_sources, touched_rows
from freshline.query.tree import (
    DIALECT,
    NotDerivedError,
    RelationState,
    Types,
    all_of,
    conjuncts,
    fragment,
    item_expression,
    items_by_name,
    kind_of,
    own_nodes,
    own_queries,
    read_as,
    same,
    sources_of,
    sql,
    unsupported,
    view_of,
)
from freshline.values.reason import Reason

# Types whose equal values are one value. A decimal's and a text's parameters are part of the comparison.
IDENTICAL = ("TINYINT", "SMALLINT", "INT", "BIGINT", "DECIMAL", "STRING", "DATE", "TIMESTAMP", "BOOLEAN", "BINARY")
Place = tuple[str, str]
SETS = (exp.Rollup, exp.Cube, exp.GroupingSets)


@dataclass
class Context:
    """The situation that rules are asked about. `changed` are the relations whose rows changed; `guards` are collected.

    `types` are those of the columns of inputs, where they are known. `inner` says that rules are asked about a stage.
    """

    changed: frozenset[str]
    lifted: dict[str, Lifted]
    exactness: Exactness
    key_columns: dict[str, tuple[str, ...]] = field(default_factory=dict)
    guards: list[tuple[exp.Select, Reason]] = field(default_factory=list)
    types: Types = field(default_factory=dict)
    inner: bool = False


@dataclass(frozen=True)
class FoundKeyColumns:
    """The answer of a rule for one query.

    `columns` are the columns of the result that identify affected rows; None for any columns at all, because the
    changed rows themselves are known. `select` gives queries that yield the values of given columns.
    """

    columns: tuple[str, ...] | None
    select: Callable[[tuple[str, ...]], list[str]]


def _texts(rows: list[Touched], items: list[exp.Expr], context: Context, group: exp.Expr | None = None) -> list[str]:
    found = []
    for touched in rows:
        if not touched.adds(items):
            continue
        alone = select_alone(touched, items, context.types) if group is None else None
        if alone is not None:
            found.append(sql(read_as(alone, RelationState.NEW, context.changed), copy=False))
            continue
        query = touched.select(items, group)
        found.append(sql(read_as(query, RelationState.NEW, context.changed), copy=False))
        if touched.both:
            found.append(sql(read_as(query, RelationState.OLD, context.changed), copy=False))
    return list(dict.fromkeys(found))


def _named(expression: exp.Expr, name: str) -> exp.Expr:
    return exp.alias_(expression.copy(), name, quoted=True)


def set_operation(query: exp.Query, context: Context) -> FoundKeyColumns | None:
    """UNION [ALL], INTERSECT, EXCEPT: a row changes only if it changed on one of the sides."""
    if not isinstance(query, exp.SetOperation):
        return None
    if query.args.get("by_name"):
        raise unsupported("UNION BY NAME")
    names = [side.args["from_"].this.name for side in (query.this, query.expression)]
    sides = [context.lifted[name] for name in names]
    first = sides[0].columns
    # Columns that identify changes on every side do so in the result; without such, whole rows do.
    per_side = [
        None
        if side.relation not in context.changed or not context.key_columns.get(side.relation)
        else {side.columns.index(column) for column in context.key_columns[side.relation]}
        for side in sides
    ]
    places = [known for known in per_side if known is not None]
    common = set.intersection(*places) if places else set()
    exact = context.exactness.exact_columns(query)
    columns = tuple(first[place] for place in sorted(common) if first[place] in exact) or None

    def select(asked: tuple[str, ...]) -> list[str]:
        found = []
        for side in sides:
            if side.relation in context.changed:
                items = [_named(exp.column(side.columns[first.index(name)], quoted=True), name) for name in asked]
                view = view_of(RelationState.CHANGED, side.relation)
                found.append(sql(exp.select(*items).from_(exp.to_table(f"`{view}`", dialect=DIALECT))))
        return list(dict.fromkeys(found))

    return FoundKeyColumns(columns, select)


def refuse_disorder(tree: exp.Query) -> None:
    """Refuse parts whose result does not follow from changed rows, wherever they stand in a query.

    A session without another key follows from the rows beside a row.
    """
    for node in tree.walk():
        _refuse_order_of_reading(node)
        if name_of(node) in TIME_WINDOWS and not (is_time_window(node) or is_session_key(node)):
            raise unsupported(fragment(node))
        if isinstance(node, exp.Star) and not isinstance(node.parent, exp.Count):
            # Changed rows are read with a mark beside their columns, which a star would take in.
            raise unsupported(f"{fragment(node.parent or node)}: a star inside of a function")


def order_of_reading(query: Query) -> Reason | None:
    """The part of a query whose result follows the order in which rows are read; None where there is none."""
    try:
        for node in query.tree.walk():
            _refuse_order_of_reading(node)
    except NotDerivedError as error:
        return error.reason
    return None


def _refuse_order_of_reading(node: exp.Expr) -> None:
    """Refuse LIMIT and some aggregates.

    They follow the order of reading: even where their inputs did not change, the rows that were stored may have been
    made in another one.
    """
    if isinstance(node, exp.Query) and not isinstance(node.parent, exp.Exists):
        for argument in ("limit", "offset"):
            found = node.args.get(argument)
            if found and node.args.get("order"):
                raise NotDerivedError(Reason("TOP_N", fragment(found)))
            if found:
                raise unsupported(fragment(found))
    if is_unordered(node):
        raise NotDerivedError(Reason("NONDETERMINISTIC", fragment(node)))


def grouped(query: exp.Query, context: Context) -> FoundKeyColumns | None:
    """GROUP BY, with HAVING, DISTINCT and windows over the groups: the grouping columns identify changes.

    Of sessions the other columns do: a row may join two sessions of theirs, or part one.
    """
    assert isinstance(query, exp.Select)
    group = query.args.get("group")
    aggregated = any(
        is_aggregate(node)
        for part in (*query.expressions, query.args.get("having"), query.args.get("qualify"))
        if part is not None
        for node in own_nodes(part)
    )
    if group is None and not aggregated:
        return None
    if group is None:
        raise _of_all_rows(query, context.types)
    if group.args.get("all") or group.args.get("totals"):
        raise unsupported(fragment(group))
    sets = any(isinstance(key, SETS) for key in group.expressions)
    sets = sets or any(group.args.get(kind) for kind in ("grouping_sets", "cube", "rollup"))
    keys = [key for item in group.expressions for key in _grouping(item)]
    items = items_by_name(query)
    columns = [name for name, item in items.items() if any(_tells(item, key) for key in keys)]
    for window in windows_in(query):
        partition = _partition(window)
        columns = [name for name in columns if any(_tells(items[name], part) for part in partition)]
    if not columns:
        raise NotDerivedError(Reason("NO_KEY", f"{fragment(group)}, of which the select list has nothing"))
    rows = touched_rows(query, context.changed, context.guards, context.exactness)
    exact = [name for name in columns if context.exactness.is_exact(items[name], query)]
    if not exact:
        raise inexact(group)

    def select(asked: tuple[str, ...]) -> list[str]:
        chosen = [_named(items[name], name) for name in asked]
        return _texts(rows, chosen, context, group if sets else None)

    return FoundKeyColumns(tuple(exact), select)


def _of_all_rows(query: exp.Select, types: Types) -> NotDerivedError:
    """The refusal of one row of all rows: with the aggregate that it is computed from and does not show, if any."""
    items = [without_cast(item, query, types) for item in items_by_name(query).values()]
    for item in items:
        for node in own_nodes(item):
            if node is not item and is_aggregate(node) and not any(same(node, each) for each in items):
                return NotDerivedError(Reason("HIDDEN_AGGREGATE", fragment(node)))
    return NotDerivedError(Reason("NO_KEY", "an aggregate over all rows"))


def _tells(item: exp.Expr, key: exp.Expr) -> bool:
    """Whether an item of the select list is a grouping key, or identifies its window of time."""
    if is_session_key(key):
        return False
    if isinstance(item, exp.Dot) and is_time_window(key) and item.expression.name.lower() in WINDOW_BOUNDS:
        return same(item.this, key)
    return same(item, key)


def _grouping(item: exp.Expr) -> list[exp.Expr]:
    """The expressions that one item of GROUP BY groups by."""
    if isinstance(item, (*SETS, exp.Tuple, exp.Paren)):
        inner = item.expressions or ([item.this] if item.this is not None else [])
        return [key for part in inner for key in _grouping(part)]
    return [item]


def windowed(query: exp.Query, context: Context) -> FoundKeyColumns | None:
    """Window functions and QUALIFY: the columns by which every window is partitioned identify changes."""
    assert isinstance(query, exp.Select)
    windows = windows_in(query)
    if not windows:
        return None
    items = items_by_name(query)
    every_partition = [context.exactness.exact_only(_partition(window), query) for window in windows]
    for window, partition in zip(windows, every_partition, strict=True):
        if not partition:
            raise inexact(window)
    partitions = _widest(every_partition)
    rows = touched_rows(query, context.changed, context.guards, context.exactness)
    framed = _framed(query, windows, partitions, rows, context)
    if framed is not None:
        return framed
    columns = [
        name
        for name, item in items.items()
        if all(any(_tells(item, part) for part in partition) for partition in partitions)
    ]
    if columns:
        return FoundKeyColumns(
            tuple(columns), lambda asked: _texts(rows, [_named(items[name], name) for name in asked], context)
        )
    every = [
        name for name, item in items.items() if any(same(item, part) for partition in partitions for part in partition)
    ]
    if not every:
        # Any columns of the rows of a touched partition find these rows, if only more besides.
        shown = [name for name, item in items.items() if isinstance(item, exp.Column)]
        every = [name for name in shown if context.exactness.is_exact(items[name], query)]
    if not every:
        raise NotDerivedError(Reason("NO_KEY", f"{fragment(windows[0])}, of which the select list has no column"))

    def select(asked: tuple[str, ...]) -> list[str]:
        # A row is affected when one of its windows is: its columns are those of any row in a touched partition.
        found = []
        for partition in partitions:
            names = [f"freshline_k{number}" for number in range(len(partition))]
            chosen = [_named(part, name) for part, name in zip(partition, names, strict=True)]
            for text in _texts(rows, chosen, context):
                found += [
                    _in_partition(query, asked, partition, names, text, reading, context)
                    for reading in (RelationState.NEW, RelationState.OLD)
                ]
        return found

    return FoundKeyColumns(tuple(every), select)


def _framed(
    query: exp.Select,
    windows: Sequence[exp.Window],
    partitions: Sequence[Sequence[exp.Expr]],
    rows: list[Touched],
    context: Context,
) -> FoundKeyColumns | None:
    """The rows whose frames contain a changed time, where all frames are ranges of one time; else None.

    By the columns of the partition and the time. A changed row itself is in the partition at its own time, as it is and
    as it was, so the rows around it are searched among those that are there now.
    """
    frame = _widest_frame(windows)
    if frame is None or len(partitions) != 1 or query.args.get("laterals"):
        return None
    if context.inner and frame.is_open:
        # The rows of a stage are netted by value. A search for those that see a changed one would cost more.
        return None
    (partition,), items = partitions, items_by_name(query)
    time = time_of(frame.order)
    named = next((name for name, item in items.items() if same(item, time)), None)
    columns = {
        name: place
        for name, item in items.items()
        for place, part in enumerate(partition)
        if same(item, part) and name != named
    }
    if named is None or not columns or not context.exactness.is_exact(time, query):
        return None
    if not frame.is_surely_of_time and not _has_times(time, query, context):
        # A text or a number has another order than the time that it may be read as.
        return None
    places = {**columns, named: len(partition)}

    def select(asked: tuple[str, ...]) -> list[str]:
        parts = [*partition, time]
        chosen = [_named(part, f"freshline_k{number}") for number, part in enumerate(parts)]
        found = []
        for text in _texts(rows, chosen, context):
            own = ", ".join(f"k.`freshline_k{places[name]}` AS `{name}`" for name in asked)
            found.append(f"SELECT {own} FROM ({text}) k")
            found += [_around_changed(query, asked, parts, text, on, context) for on in _seeing(frame, time, parts)]
            if frame.is_open:
                # A row without a time sees all rows, or is seen by them.
                nulls = ", ".join("NULL" if name == named else f"k.`freshline_k{places[name]}`" for name in asked)
                found.append(f"SELECT {nulls} FROM ({text}) k")
        return found

    return FoundKeyColumns((*columns, named), select)


def _has_times(column: exp.Expr, query: exp.Select, context: Context) -> bool:
    """Whether a column of an input is known to have times."""
    if not isinstance(column, exp.Column):
        return False
    relation = next((source.name for source in sources_of(query) if source.alias_or_name == column.table), "")
    kind = context.types.get(relation.lower(), {}).get(column.name.lower(), "").upper()
    return kind == "DATE" or kind.startswith("TIMESTAMP")


def _widest_frame(windows: Sequence[exp.Window]) -> Frame | None:
    """One frame that contains the frames of all windows; None where one is no range of time, or without any end."""
    frames = [frame for window in windows if (frame := frame_of(window)) is not None]
    if len(frames) < len(windows) or any(not same(frame.order, frames[0].order) for frame in frames):
        return None
    before, after = max(frame.before for frame in frames), max(frame.after for frame in frames)
    return None if before == after == math.inf else replace(frames[0], before=before, after=after)


def _seeing(frame: Frame, time: exp.Expr, parts: Sequence[exp.Expr]) -> list[str]:
    """The conditions, in SQL, that a row at `time` sees a changed one; of rows of one partition."""
    own, changed = (
        f"unix_micros(CAST({each} AS TIMESTAMP))" for each in (sql(time), f"k.`freshline_k{len(parts) - 1}`")
    )
    ends = []
    if frame.after < math.inf:
        ends.append(f"{own} >= {changed} - {int(frame.after)}")
    if frame.before < math.inf:
        ends.append(f"{own} <= {changed} + {int(frame.before)}")
    found = [" AND ".join(ends)]
    if frame.is_open:
        found.append(f"k.`freshline_k{len(parts) - 1}` IS NULL")
    return found


def _around_changed(
    query: exp.Select, asked: tuple[str, ...], parts: Sequence[exp.Expr], keys: str, on: str, context: Context
) -> str:
    """The rows that are there now beside changed ones of their partition."""
    rows = _rows_of(query, asked, context)
    text = sql(read_as(rows, RelationState.NEW, context.changed), copy=False)
    equal = [f"{sql(part)} <=> k.`freshline_k{number}`" for number, part in enumerate(parts[:-1])]
    made = parse_one(text, dialect=DIALECT)
    joined = parse_one(f"SELECT 1 LEFT SEMI JOIN ({keys}) k ON {' AND '.join([*equal, on])}", dialect=DIALECT)
    made.set("joins", [*(made.args.get("joins") or ()), *joined.args["joins"]])
    return sql(made, copy=False)


def _rows_of(query: exp.Select, asked: tuple[str, ...], context: Context) -> exp.Select:
    """The rows that windows are over, by some columns, in the order in which these are asked for."""
    rows = context.exactness.wide(query).copy()
    assert isinstance(rows, exp.Select)
    for argument in ("qualify", "order", "distinct", "windows"):
        rows.set(argument, None)
    items = items_by_name(query)
    rows.set("expressions", [_named(items[name], name) for name in asked])
    return rows


def _widest(partitions: Sequence[Sequence[exp.Expr]]) -> list[list[exp.Expr]]:
    """The partitions without those that lie inside another: by fewer expressions, a partition is wider."""
    found: list[list[exp.Expr]] = []
    for partition in sorted(partitions, key=len):
        if not any(all(any(same(a, b) for b in partition) for a in wider) for wider in found):
            found.append(list(partition))
    return found


def _in_partition(
    query: exp.Select,
    asked: tuple[str, ...],
    partition: list[exp.Expr],
    names: list[str],
    keys: str,
    reading: RelationState,
    context: Context,
) -> str:
    rows = _rows_of(query, asked, context)
    parts = [_named(part, f"freshline_p{number}") for number, part in enumerate(partition)]
    rows.set("expressions", [*rows.expressions, *parts])
    text = sql(read_as(rows, reading, context.changed), copy=False)
    on = " AND ".join(f"r.`freshline_p{number}` <=> k.`{name}`" for number, name in enumerate(names))
    columns = ", ".join(f"r.`{name}`" for name in asked)
    return f"SELECT {columns} FROM ({text}) r LEFT SEMI JOIN ({keys}) k ON {on}"


def plain(query: exp.Query, context: Context) -> FoundKeyColumns | None:
    """Filters, expressions, joins, EXISTS, IN, DISTINCT: the changed rows themselves are known."""
    assert isinstance(query, exp.Select)
    if query.args.get("having") or query.args.get("qualify"):
        raise unsupported(fragment(query.args.get("having") or query.args["qualify"]))
    items = items_by_name(query)
    rows = touched_rows(query, context.changed, context.guards, context.exactness)
    return FoundKeyColumns(None, lambda asked: _texts(rows, [_named(items[name], name) for name in asked], context))


def _partition(window: exp.Window) -> list[exp.Expr]:
    partition = list(window.args.get("partition_by") or [])
    if not partition:
        raise NotDerivedError(Reason("WINDOW_WITHOUT_PARTITION", fragment(window)))
    return partition


RULES = (set_operation, grouped, windowed, plain)


def find_keys(query: exp.Query, context: Context) -> FoundKeyColumns:
    """The answer of the first rule that is for the query."""
    for rule in RULES:
        found = rule(query, context)
        if found is not None:
            return found
    raise unsupported(fragment(query))


def choose_columns(query: exp.Query, context: Context, primary_key: tuple[str, ...]) -> tuple[str, ...]:
    """The columns by which changed rows of a result are found, where any may be taken.

    The primary key; else columns that are columns of what it reads, and so can be found there: only those of
    sources whose every row is kept or dropped as it is, where there are such, for they do not turn NULL when a partner
    comes or goes; else all. Of these the exact ones.
    """
    names = columns_of(query)
    exact = context.exactness.exact_columns(query)
    choices = [primary_key] if primary_key and set(primary_key) <= set(names) else []
    if isinstance(query, exp.Select):
        columns = {
            item.alias_or_name.lower(): column
            for item in query.expressions
            if isinstance(column := item_expression(item), exp.Column)
        }
        kept = kept_sources(query)
        carried = () if context.exactness.is_steady(query) else _carried(query, columns, context)
        choices += [carried, tuple(name for name, column in columns.items() if column.table in kept), tuple(columns)]
    for choice in (*choices, names):
        found = tuple(name for name in choice if name in exact)
        if found:
            return found
    raise inexact(query)


def _carried(query: exp.Select, columns: Mapping[str, exp.Column], context: Context) -> tuple[str, ...]:
    """The columns that are the whole key of the one stage that a SELECT reads; empty where it has not all of them."""
    sources = sources_of(query)
    if len(sources) != 1 or query.args.get("laterals"):
        return ()
    key = context.key_columns.get(sources[0].name, ())
    shown = {column.name.lower(): name for name, column in columns.items()}
    return tuple(shown[name] for name in key) if all(name in shown for name in key) else ()


# -- keys that changed rows have by themselves ---------------------------------------------------------------------
#
# Below an inner join on `l.k = r.k`, what a changed row of r affects has l.k equal to its own r.k. So the key is read
# from the changed row, and the other side is not read: neither as it is now nor as it was. Keys of rows without a
# partner come with them, which affect nothing; there are never more keys than changed rows. Sound only where equal
# values are the same value: both columns have one type, and it is none whose equality is looser than that
# (floating-point zeros and texts with a collation).


def select_alone(touched: Touched, items: Sequence[exp.Expr], types: Types) -> exp.Select | None:
    """A SELECT of the items over the changed rows alone, None where they need the rows beside them."""
    source = touched.source
    simple = not (touched.padded or touched.laterals or touched.group or touched.having)
    if source is None or not simple or not touched.joins or any(kind_of(join) != "INNER" for join in touched.joins):
        return None
    changed = source.alias_or_name
    names = {part.alias_or_name: part.name for part in touched.tables() if isinstance(part, exp.Table)}
    names[changed] = source.name
    conditions = [*touched.where, *(on for join in touched.joins for on in conjuncts(join.args.get("on")))]
    same = _equal_to(changed, conditions, names, types)
    chosen = [_instead(item, changed, same) for item in items]
    if any(item is None for item in chosen):
        return None
    kept = [part for part in conditions if _is_of(part, changed)]
    at = next((part for part in touched.tables() if part.alias_or_name == changed), None)
    if at is None:
        return None
    made = exp.Select(expressions=chosen)
    made.set("from_", exp.From(this=at.copy()))
    condition = all_of(kept)
    if condition is not None:
        made.set("where", exp.Where(this=condition))
    return made


def _equal_to(
    changed: str, conditions: Sequence[exp.Expr], names: Mapping[str, str], types: Types
) -> dict[Place, exp.Column]:
    """The columns of other sources that equal a column of the changed rows, each with that column."""

    def type_of(column: exp.Column) -> str | None:
        kind = types.get(names.get(column.table, ""), {}).get(column.name.lower(), "").upper()
        return kind if kind.split("(")[0] in IDENTICAL else None

    pairs = [
        (condition.this, condition.expression)
        for condition in conditions
        if isinstance(condition, exp.EQ)
        and isinstance(condition.this, exp.Column)
        and isinstance(condition.expression, exp.Column)
        and type_of(condition.this) is not None
        and type_of(condition.this) == type_of(condition.expression)
    ]
    found: dict[Place, exp.Column] = {}
    grown = True
    while grown:
        grown = False
        for one, other in (pair for pair in (*pairs, *((b, a) for a, b in pairs))):
            there = one if one.table == changed else found.get(_place(one))
            if there is not None and other.table != changed and _place(other) not in found:
                found[_place(other)] = there
                grown = True
    return found


def _place(column: exp.Column) -> Place:
    return column.table, column.name.lower()


def _instead(item: exp.Expr, changed: str, same: Mapping[Place, exp.Column]) -> exp.Expr | None:
    """The item read from the changed rows; None where it is no column of theirs and none that equals one.

    An expression is left to the join: of a row without a partner it may fail.
    """
    column = item_expression(item)
    if not isinstance(column, exp.Column):
        return None
    if column.table == changed:
        return item.copy()
    there = same.get(_place(column))
    return None if there is None else exp.alias_(there.copy(), item.alias_or_name, quoted=True)


def _is_of(condition: exp.Expr, changed: str) -> bool:
    """Whether a condition reads nothing but the changed rows."""
    return not own_queries(condition) and all(column.table == changed for column in condition.find_all(exp.Column))
