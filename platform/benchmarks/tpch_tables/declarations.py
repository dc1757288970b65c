"""The eight tables and the 22 queries of TPC-H as declarations.

The queries are those of the public specification (TPC-H 3.0.1) with its validation parameters, each in its own file.
ORDER BY and the numbers of rows that a query asks for are left out, since a table has no order; q15 uses WITH instead
of a view, which the specification allows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from freshline.testing import Lab

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Source:
    """Columns as in CREATE TABLE, and those of them that are the primary key."""

    columns: str
    primary_key: tuple[str, ...]


# Identifiers are 64 bits wide and money has two decimals, as the generators of the data write them.
SOURCES: Mapping[str, Source] = {
    "region": Source("r_regionkey BIGINT, r_name STRING, r_comment STRING", ("r_regionkey",)),
    "nation": Source("n_nationkey BIGINT, n_name STRING, n_regionkey BIGINT, n_comment STRING", ("n_nationkey",)),
    "supplier": Source(
        "s_suppkey BIGINT, s_name STRING, s_address STRING, s_nationkey BIGINT, s_phone STRING, "
        "s_acctbal DECIMAL(15,2), s_comment STRING",
        ("s_suppkey",),
    ),
    "part": Source(
        "p_partkey BIGINT, p_name STRING, p_mfgr STRING, p_brand STRING, p_type STRING, p_size INT, "
        "p_container STRING, p_retailprice DECIMAL(15,2), p_comment STRING",
        ("p_partkey",),
    ),
    "partsupp": Source(
        "ps_partkey BIGINT, ps_suppkey BIGINT, ps_availqty INT, ps_supplycost DECIMAL(15,2), ps_comment STRING",
        ("ps_partkey", "ps_suppkey"),
    ),
    "customer": Source(
        "c_custkey BIGINT, c_name STRING, c_address STRING, c_nationkey BIGINT, c_phone STRING, "
        "c_acctbal DECIMAL(15,2), c_mktsegment STRING, c_comment STRING",
        ("c_custkey",),
    ),
    "orders": Source(
        "o_orderkey BIGINT, o_custkey BIGINT, o_orderstatus STRING, o_totalprice DECIMAL(15,2), o_orderdate DATE, "
        "o_orderpriority STRING, o_clerk STRING, o_shippriority INT, o_comment STRING",
        ("o_orderkey",),
    ),
    "lineitem": Source(
        "l_orderkey BIGINT, l_partkey BIGINT, l_suppkey BIGINT, l_linenumber INT, l_quantity DECIMAL(15,2), "
        "l_extendedprice DECIMAL(15,2), l_discount DECIMAL(15,2), l_tax DECIMAL(15,2), l_returnflag STRING, "
        "l_linestatus STRING, l_shipdate DATE, l_commitdate DATE, l_receiptdate DATE, l_shipinstruct STRING, "
        "l_shipmode STRING, l_comment STRING",
        ("l_orderkey", "l_linenumber"),
    ),
}
TABLES: tuple[str, ...] = tuple(f"q{number:02}" for number in range(1, 23))


def statement(table: str) -> str:
    """The declaration of one of the 22 tables."""
    return FOLDER.joinpath(f"{table}.sql").read_text(encoding="utf-8")


def reads(table: str) -> tuple[str, ...]:
    """The sources that one of the tables reads."""
    return sources_of(statement(table))


def sources_of(query: str) -> tuple[str, ...]:
    """The sources that a query reads."""
    words = set(re.findall(r"\w+", query))
    return tuple(name for name in SOURCES if name in words)


def declare(lab: Lab, tables: tuple[str, ...] = TABLES) -> tuple[str, ...]:
    """Declare these tables in a Lab, and what they read as empty sources, whose names are given back."""
    read = {name for table in tables for name in reads(table)}
    for name in read:
        lab.source(name, SOURCES[name].columns, primary_key=SOURCES[name].primary_key)
    for table in tables:
        lab.declare(statement(table))
    return tuple(name for name in SOURCES if name in read)
