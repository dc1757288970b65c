"""The rows of TPC-H, and changes of them in SQL that Spark and DuckDB both run.

The rows come from the package `tpchgen-cli`, which makes the same ones for a scale every time and needs no network.
Scale 1 is about one gigabyte and six million rows of lineitem.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from benchmarks.tpch_tables.declarations import SOURCES

# Keys of made up orders begin here; those of a scale below 1 are all smaller.
NEW_KEYS = 10_000_000


def generate(folder: Path, scale: float) -> Mapping[str, Path]:
    """A file of Parquet for each source."""
    command = [str(Path(sys.executable).parent / "tpchgen-cli"), "parquet"]
    subprocess.run(
        [*command, "--scale-factor", str(scale), "--output-dir", str(folder)], check=True, capture_output=True
    )
    return {name: folder / f"{name}.parquet" for name in SOURCES}


def new_orders(modulus: int, number: int) -> list[str]:
    """One order in `modulus` again, with its lines, under new keys: the first refresh function of TPC-H.

    `number` is from 1 to 7 and distinguishes calls; of the keys of orders, each eighth after another 24 are left out.
    """
    found = []
    for name, key in (("orders", "o_orderkey"), ("lineitem", "l_orderkey")):
        others = ", ".join(column for column in column_names(name) if column != key)
        found.append(
            f"INSERT INTO {name} SELECT {key} + {NEW_KEYS * number}, {others} FROM {name} "
            f"WHERE {key} % {modulus} = {number} AND {key} < {NEW_KEYS}"
        )
    return found


def old_orders(modulus: int, number: int) -> list[str]:
    """One order in `modulus` goes away, with its lines: the second refresh function of TPC-H."""
    return [
        f"DELETE FROM {name} WHERE {key} % {modulus} = {number} AND {key} < {NEW_KEYS}"
        for name, key in (("orders", "o_orderkey"), ("lineitem", "l_orderkey"))
    ]


def column_names(source: str) -> tuple[str, ...]:
    """The columns of a source, in order."""
    return tuple(column.split()[0] for column in SOURCES[source].columns.replace("(15,2)", "").split(", "))


# Rows of the other tables change in ways that the queries ask about.
OTHERS: tuple[str, ...] = (
    "UPDATE customer SET c_nationkey = (c_nationkey + 1) % 25, c_acctbal = c_acctbal + 100 WHERE c_custkey % 50 = 3",
    "UPDATE customer SET c_mktsegment = 'BUILDING' WHERE c_custkey % 40 = 5",
    "DELETE FROM customer WHERE c_custkey % 70 = 9",
    "UPDATE part SET p_brand = 'Brand#23', p_container = 'MED BOX' WHERE p_partkey % 50 = 3",
    "UPDATE part SET p_type = 'ECONOMY ANODIZED STEEL', p_size = 15 WHERE p_partkey % 50 = 3",
    "UPDATE part SET p_name = 'forest green' WHERE p_partkey % 50 = 7",
    "UPDATE supplier SET s_nationkey = (s_nationkey + 3) % 25 WHERE s_suppkey % 5 = 3",
    "UPDATE supplier SET s_comment = 'Customer Complaints' WHERE s_suppkey % 5 = 2",
    "DELETE FROM partsupp WHERE ps_partkey % 40 = 3",
    "UPDATE partsupp SET ps_supplycost = ps_supplycost / 2 WHERE ps_partkey % 40 = 5",
    "UPDATE nation SET n_regionkey = (n_regionkey + 1) % 5 WHERE n_nationkey = 18",
    "UPDATE region SET r_comment = 'as it was' WHERE r_regionkey = 1",
)
