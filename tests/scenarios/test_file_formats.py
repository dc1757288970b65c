"""Each format of files, on Spark and Delta: rows as they were written, poison inside, redelivery, restarts."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from decimal import Decimal

import fastavro
import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq

UTC_TIME = pa.timestamp("us", "UTC")


def parquet(table, **options):
    file = io.BytesIO()
    pq.write_table(table, file, **options)
    return file.getvalue()


def orc_file(table):
    file = io.BytesIO()
    orc.write_table(table, file)
    return file.getvalue()


def avro(schema, rows, codec="deflate"):
    file = io.BytesIO()
    fastavro.writer(file, fastavro.parse_schema(schema), rows, codec=codec)
    return file.getvalue()


def record(**fields):
    return {"type": "record", "name": "r", "fields": [{"name": name, "type": kind} for name, kind in fields.items()]}


def rejected(lab, name="s"):
    return [(row["file"], row["line"], row["error"]) for row in lab.quarantine(name)]


def test_smoke(lab):
    lab.files(
        "s", "id INT, t STRING, m MAP<STRING, INT>, at TIMESTAMP, l ARRAY<STRUCT<a: DECIMAL(10,2)>>", format="parquet"
    )
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    table = pa.table(
        {
            "id": [1, 2**40],
            "t": ["a", None],
            "m": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int32())),
            "at": pa.array([moment, None], UTC_TIME),
            "l": [[{"a": Decimal("1.5")}], []],
        }
    )
    lab.land("s", "1.parquet", parquet(table))
    outcome = lab.refresh("s")
    print(outcome, lab.rows("s"), lab.quarantine("s"))
    assert outcome.error is None
