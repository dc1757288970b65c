"""Which keys of a `freshline.process` wait for a timer, and when the first of it is due.

This is kept beside the control store, so that a refresh after which only the watermark moved need not replay all keys.
It may be lost, damaged or old at any time: it names the receipt and the positions that it belongs to, and one that does
not belong to those of the table is not used. All keys are replayed then.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from freshline.attempt.attempt import Attempt
from freshline.attempt.runtime import Runtime
from freshline.commit.delta_log import table_id
from freshline.declare.names import TableName
from freshline.declare.query import PythonQuery
from freshline.keyed.batches import KEY, TIMER
from freshline.plan.position import Position
from freshline.plan.receipt import Receipt
from freshline.refresh.keys import Keys
from freshline.refresh.literal import quoted

LOG = logging.getLogger(__name__)


def read_waiting(attempt: Attempt, like: StructType) -> DataFrame | None:
    """The first waiting timer of each key: the columns of `like`, which are those of the key, and TIMER.

    None where that is not known for the rows that the table has.
    """
    receipt, folder = attempt.receipt, _folder(attempt.runtime, attempt.spec.name)
    if receipt is None:
        return None
    before = {name: change.before for name, change in attempt.changes.items() if change.before is not None}
    try:
        found = json.loads((folder / "of.json").read_text(encoding="utf-8"))
        if found != _belongs_to(attempt, receipt, before):
            return None
        rows = attempt.spark.read.parquet(str(folder / "rows"))
        names = [*(f"{KEY}{number}" for number in range(len(like))), TIMER]
        columns = [F.col(name) for name in names]
        typed = [
            column.cast(field.dataType).alias(field.name) for column, field in zip(columns, like.fields, strict=False)
        ]
        return rows.select(*typed, columns[-1])
    except (OSError, ValueError, PySparkException) as error:
        if folder.exists():
            LOG.warning("%s: the waiting timers are not known, and all keys are replayed: %s", attempt.spec.name, error)
        return None


def waiting_after(keys: Keys, before: DataFrame | None, made: DataFrame) -> DataFrame:
    """The first waiting timer of each key after some keys were replayed, in the columns that are kept.

    `made` is the result of the replay, `before` is as `read_waiting` gives it, None where all keys were replayed.
    """
    now = made.where(F.col(TIMER).isNotNull()).select(*_kept(len(keys.columns)))
    if before is None:
        return now
    others = keys.leave(before)
    renamed = [F.col(quoted(name)).alias(f"{KEY}{number}") for number, name in enumerate(keys.columns)]
    return others.select(*renamed, TIMER).unionAll(now)


def waiting_of_all(attempt: Attempt, made: DataFrame) -> DataFrame:
    """The first waiting timer of each key after all keys were replayed."""
    assert isinstance(attempt.spec.query, PythonQuery)
    return made.where(F.col(TIMER).isNotNull()).select(*_kept(len(attempt.spec.query.key_columns)))


def keep_waiting(
    attempt: Attempt, waiting: DataFrame, receipt: Receipt, positions: Mapping[TableName, Position]
) -> None:
    """Keep it for the rows that a receipt stands for, at these positions of the input."""
    folder = _folder(attempt.runtime, attempt.spec.name)
    made = folder.with_name(f"{folder.name}.{uuid4().hex}")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        waiting.coalesce(1).write.parquet(str(made / "rows"))
        belongs = json.dumps(_belongs_to(attempt, receipt, positions))
        (made / "of.json").write_text(belongs, encoding="utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        made.replace(folder)
    except (OSError, PySparkException, Py4JError) as error:
        shutil.rmtree(made, ignore_errors=True)
        LOG.warning("%s: the waiting timers cannot be kept: %s", attempt.spec.name, error)
    attempt.runtime.failpoint("table-timers-kept")


def _kept(keys: int) -> list[Column]:
    return [*(F.col(f"{KEY}{number}") for number in range(keys)), F.col(TIMER)]


def _belongs_to(attempt: Attempt, receipt: Receipt, positions: Mapping[TableName, Position]) -> dict[str, object]:
    """What tells of which rows of the table, and of its input, the timers are."""
    return {
        "table": table_id(attempt.path),
        "fingerprint": attempt.spec.fingerprint,
        "epoch": receipt.epoch,
        "seq": receipt.seq,
        "positions": {str(name): position.as_json() for name, position in sorted(positions.items(), key=str)},
    }


def _folder(runtime: Runtime, name: TableName) -> Path:
    return runtime.settings.state / "timers" / "/".join(part.lower() for part in name.parts)
