"""Everything again by Polars: a process a run, from all files of JSON to files of Parquet."""

from __future__ import annotations

import sys

import polars as pl

landing, tables = sys.argv[1:]


def read(name: str, time: str, columns: dict[str, type[pl.DataType]]) -> pl.LazyFrame:
    rows = pl.scan_ndjson(f"{landing}/{name}/*.json", schema={**columns, time: pl.String})
    return rows.with_columns(pl.col(time).str.to_datetime("%Y-%m-%dT%H:%M:%S%.6fZ", time_unit="us"))


def write(name: str, rows: pl.DataFrame) -> pl.DataFrame:
    rows.write_parquet(f"{tables}/{name}.parquet")
    return rows


event = read(
    "event", "happened_at", {"event_id": pl.String, "customer_id": pl.String, "kind": pl.String, "amount": pl.Int64}
).unique("event_id")
change = read(
    "change",
    "changed_at",
    dict.fromkeys(("change_id", "customer_id", "op", "name", "segment", "country"), pl.String),
)
events = write("event", event.collect())
write("first_event", events.sort("happened_at", "event_id").unique("customer_id", keep="first", maintain_order=True))
customer = write(
    "customer",
    change.sort("changed_at", "change_id")
    .unique("customer_id", keep="last", maintain_order=True)
    .filter(pl.col("op") != "d")
    .drop("op")
    .collect(),
)
enriched = write(
    "enriched", events.join(customer.select("customer_id", "segment", "country"), on="customer_id", how="left")
)
write(
    "revenue",
    enriched.group_by("segment", pl.col("happened_at").dt.date().alias("day")).agg(
        pl.len().cast(pl.Int64).alias("events"), pl.col("amount").sum()
    ),
)
