"""Window functions whose frames are ranges of time: how far a changed time can be seen from."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sqlglot import exp

from freshline.query.rules.time_range import Scale, width_of
from freshline.query.tree import fragment, own_nodes, unsupported


@dataclass(frozen=True)
class Frame:
    """`RANGE BETWEEN .. AND ..`: a row at t sees the rows from t - `before` to t + `after`, in microseconds.

    `order` is the time, which is a point of time on `scale`. Both ends are closed, and rows of one time see each other.
    """

    order: exp.Expr
    scale: Scale
    before: float
    after: float

    @property
    def is_surely_of_time(self) -> bool:
        """Whether what it is ordered by has times: an end that is an interval says so, CURRENT ROW says nothing."""
        return self.scale is Scale.MICROSECONDS or any(0 < abs(end) < math.inf for end in (self.before, self.after))

    @property
    def is_open(self) -> bool:
        """Whether an end is unbounded: then rows without a time are in the frames of others, or see them."""
        return math.inf in (self.before, self.after)


def windows_in(select: exp.Select) -> list[exp.Window]:
    """The windows of a SELECT's own expressions, those with a name as they are written behind WINDOW."""
    found = []
    named = {window.this.name.lower(): window for window in select.args.get("windows") or () if window.this}
    for part in (*select.expressions, select.args.get("qualify")):
        for node in own_nodes(part) if part is not None else ():
            if isinstance(node, exp.Window):
                alias = node.args.get("alias")
                if alias is not None:
                    if alias.name.lower() not in named:
                        raise unsupported(fragment(node))
                    node = named[alias.name.lower()]
                found.append(node)
    return found


def time_of(order: exp.Expr) -> exp.Expr:
    """The time that a frame is ordered by: the one inside where that is `unix_micros(CAST(ts AS TIMESTAMP))`."""
    if not isinstance(order, exp.UnixMicros):
        return order
    time: exp.Expr = order.this.unnest()
    if isinstance(time, exp.Cast) and time.to.is_type("timestamp", "timestamptz"):
        time = time.this.unnest()
    return time


def frame_of(window: exp.Window) -> Frame | None:
    """The frame of a window, None where it is no range of time.

    >>> from freshline.sql.query_parser import parse_sql
    >>> over = "OVER (ORDER BY ts DESC RANGE BETWEEN INTERVAL '5' MINUTES PRECEDING AND CURRENT ROW)"
    >>> frame = frame_of(parse_sql(f"SELECT sum(v) {over}").expressions[0])
    >>> frame.before, frame.after
    (0, 300000000)
    """
    spec, order = window.args.get("spec"), window.args.get("order")
    if spec is None or order is None or str(spec.args.get("kind")).upper() != "RANGE" or len(order.expressions) != 1:
        return None
    (ordered,) = order.expressions
    time = ordered.this.unnest() if isinstance(ordered, exp.Ordered) else ordered.unnest()
    micros = isinstance(time, exp.UnixMicros)
    if not isinstance(time_of(time), exp.Column):
        return None
    ends = [_end(spec, side, micros=micros) for side in ("start", "end")]
    if ends[0] is None or ends[1] is None:
        return None
    before, after = -ends[0], ends[1]
    if isinstance(ordered, exp.Ordered) and ordered.args.get("desc"):
        before, after = after, before
    return Frame(time, Scale.MICROSECONDS if micros else Scale.TIME, before, after)


def _end(spec: exp.WindowSpec, side: str, *, micros: bool) -> float | None:
    """The distance of a frame's end behind the row, by the order; negative in front of it. At least that far out."""
    value = spec.args.get(side)
    sign = -1 if side == "start" else 1
    if value is None:
        return 0 if side == "end" else None
    toward = str(spec.args.get(f"{side}_side") or "").upper()
    if isinstance(value, str):
        return 0 if value.upper() == "CURRENT ROW" else sign * math.inf if value.upper() == "UNBOUNDED" else None
    if micros:
        number = value.unnest() if isinstance(value, exp.Expr) else None
        width = (int(number.name),) * 2 if isinstance(number, exp.Literal) and number.is_int else None
    else:
        width = width_of(value)
    if width is None or toward not in ("PRECEDING", "FOLLOWING"):
        return None
    least, greatest = width if toward == "FOLLOWING" else (-width[1], -width[0])
    return least if side == "start" else greatest
