"""The functions by which a merge makes one value of all values of a column: their names, and those that are refused.

All are functions of the set of rows. `freshline.merges.values`, which needs Spark, computes them.
"""

from __future__ import annotations

from enum import StrEnum

from freshline.values.options import join_words


class Aggregate(StrEnum):
    """A function over the values of a column; NULL counts in `first_value` and `last_value` alone."""

    SUM = "sum"
    PRODUCT = "product"
    COUNT = "count"
    MIN = "min"
    MAX = "max"
    BOOL_AND = "bool_and"
    BOOL_OR = "bool_or"
    FIRST_VALUE = "first_value"
    LAST_VALUE = "last_value"
    FIRST_NON_NULL = "first_non_null"
    LAST_NON_NULL = "last_non_null"
    LISTAGG = "listagg"
    COLLECT = "collect"
    COLLECT_DISTINCT = "collect_distinct"
    MERGE_MAP = "merge_map"

    @property
    def is_ordered(self) -> bool:
        """Whether it needs to know which row is earlier."""
        return self in _ORDERED


_ORDERED = (
    Aggregate.FIRST_VALUE,
    Aggregate.LAST_VALUE,
    Aggregate.FIRST_NON_NULL,
    Aggregate.LAST_NON_NULL,
    Aggregate.LISTAGG,
    Aggregate.MERGE_MAP,
)
_SKETCH = (
    "the bytes of a sketch follow from the order of the rows. Use collect_distinct, or count in a table with "
    "approx_count_distinct and GROUP BY that reads the same input"
)
# Functions that other systems have, and what to do instead.
REFUSED = {
    "hll_sketch": _SKETCH,
    "theta_sketch": _SKETCH,
    "rbm32": "there are no bitmaps. Use collect_distinct, or count(DISTINCT ..) in a table with GROUP BY that reads "
    "the same input",
    "nested_update": "rows inside of a row are not updated. Keep them in a table of their own with the merge last_row, "
    "whose PRIMARY KEY has the inner key too, and put them together with collect_list and GROUP BY in a table that "
    "reads it",
}


def parse_aggregate(text: str) -> Aggregate:
    """The function of this name, in any letter case; raises ValueError with a sentence."""
    name = text.strip().lower()
    if name in REFUSED:
        raise ValueError(f"{name} is refused: {REFUSED[name]}.")
    try:
        return Aggregate(name)
    except ValueError:
        from freshline.values.rules import nearest

        near, accepted = nearest(name, Aggregate), join_words(tuple(Aggregate))
        raise ValueError(f"there is no function '{text.strip()}'.{near} Accepted is {accepted}.") from None
