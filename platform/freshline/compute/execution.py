"""How Spark executes what it is asked for, by how many rows there are.

Of a few rows, compiling a query to bytecode costs more than running it interpreted: without it the reference deployment
took a fifth less CPU. Of many, adaptive execution is worth the job that it makes of each stage. A conf that a setting
of the project changed stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from pyspark.sql import SparkSession

# Up to this many rows in all tables together, nothing is compiled.
FEW_ROWS = 100_000
# Above this many rows in one of the tables, adaptive execution is on.
MANY_ROWS = 2_000_000
INTERPRETED: Mapping[str, str] = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
ADAPTIVE: Mapping[str, str] = {"spark.sql.adaptive.enabled": "true"}
# The session's values where no setting says otherwise (`engine.spark.session_confs`).
_UNTOUCHED = {
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
    "spark.sql.adaptive.enabled": "false",
}
# Names of the confs that this module changed and has not put back. It distinguishes them from a user's.
_CHANGED = "spark.freshline.execution"


@contextmanager
def suited_to(spark: SparkSession, counts: Iterable[int | None]) -> Iterator[None]:
    """Execute in the way that suits tables of so many rows, None for a table of which nobody knows.

    Within it, a step that reads other tables can be executed in the way that suits those.
    """
    known = [MANY_ROWS if count is None else count for count in counts]
    wanted: Mapping[str, str] = {}
    if any(count > MANY_ROWS for count in known):
        wanted = ADAPTIVE
    elif sum(known) <= FEW_ROWS:
        wanted = INTERPRETED
    told = spark.conf.get(_CHANGED, "")
    changed = set(filter(None, str(told).split(",")))
    before: dict[str, str] = {}
    for name in (*(name for name in _UNTOUCHED if name in wanted), *sorted(changed - wanted.keys())):
        value = str(spark.conf.get(name, _UNTOUCHED[name]))
        if name in changed or value == _UNTOUCHED[name]:
            before[name] = value
    after = {name: wanted.get(name, _UNTOUCHED[name]) for name in before}
    if before:
        for name, value in after.items():
            spark.conf.set(name, value)
        spark.conf.set(_CHANGED, ",".join(name for name, value in after.items() if value != _UNTOUCHED[name]))
    try:
        yield
    finally:
        if before:
            for name, value in before.items():
                spark.conf.set(name, value)
            spark.conf.set(_CHANGED, str(told))
