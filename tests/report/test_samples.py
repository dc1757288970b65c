"""Samples: rows as texts, and no way for a masked column to be seen."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from freshline.errors import ReadError
from freshline.report.samples import Mask, find_masks, read_quarantine, read_sample
from freshline.values.names import TableName
from tests.report.board.shop import HOSTILE, open_shop

DECLARATIONS = {
    "customer": "CREATE SOURCE customer (id STRING, email STRING, country STRING)"
    " WITH ('connector' = 'files', 'format' = 'json', 'path' = 'in')",
    "crm/named": "CREATE MATERIALIZED TABLE crm.named FRESHNESS = INTERVAL '1' HOUR AS"
    " SELECT id, lower(email) AS address, struct(email, id) AS whole, country FROM customer",
    "domains": "CREATE MATERIALIZED TABLE domains FRESHNESS = INTERVAL '1' HOUR AS"
    " SELECT split(address, '@')[1] AS domain, count(*) AS n FROM crm.named GROUP BY split(address, '@')[1]",
    "countries": "CREATE MATERIALIZED TABLE countries FRESHNESS = INTERVAL '1' HOUR AS"
    " SELECT country, count(*) AS n FROM customer GROUP BY country",
}
CUSTOMER, NAMED, DOMAINS, COUNTRIES = map(TableName.parse, ("customer", "crm.named", "domains", "countries"))


def masks(folder: Path, *written: str) -> dict[TableName, Mask]:
    with open_shop(folder, DECLARATIONS) as shop:
        return dict(find_masks(shop.graph, written))


def hidden(mask: Mask, *columns: str) -> set[str]:
    return {column for column in columns if mask.hides(column)}


@pytest.mark.parametrize("written", ["EMAIL", "customer.email"])
def test_a_column_computed_from_a_masked_one_is_masked_in_every_table_behind_it(tmp_path, written):
    found = masks(tmp_path, written)

    assert hidden(found[CUSTOMER], "id", "email", "country") == {"email"}
    assert hidden(found[NAMED], "id", "address", "whole", "country") == {"address", "whole"}
    assert hidden(found[DOMAINS], "domain", "n") == {"domain"}
    assert hidden(found[COUNTRIES], "country", "n") == set()


def test_a_column_of_one_table_is_not_masked_in_the_table_that_it_comes_from(tmp_path):
    found = masks(tmp_path, "crm.named.address", "another.email")

    assert hidden(found[CUSTOMER], "email", "address") == set()
    assert hidden(found[NAMED], "address", "whole") == {"address"}
    assert hidden(found[DOMAINS], "domain", "n") == {"domain"}


def test_nothing_is_masked_where_nothing_is_written(tmp_path):
    assert not any(masks(tmp_path).values())


@pytest.mark.seconds
def test_a_table_in_python_that_reads_a_masked_column_is_masked_as_a_whole(tmp_path):
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets" / "scored.py").write_text(
        "from datetime import timedelta\n\nimport freshline\n\n\n"
        "@freshline.table(freshness=timedelta(hours=1))\ndef scored(customer):\n    return customer\n"
    )

    found = masks(tmp_path, "email")

    assert found[TableName.parse("scored")].everything


def test_rows_are_texts_and_masked_columns_are_not_among_them(tmp_path):
    rows = {
        'a"b<i>': [HOSTILE, None, ""],
        "email": ["x@example.com"] * 3,
        "price": pa.array([Decimal("1.50"), None, Decimal("0.00")], pa.decimal128(10, 2)),
        "day": [date(2026, 11, 1)] * 3,
        "at": [datetime(2026, 11, 1, 5, tzinfo=UTC)] * 3,
        "raw": [b"\xff<b>"] * 3,
        "tags": [["ä", None]] * 3,
        "good": [True] * 3,
        "_freshline_seq": [1] * 3,
    }
    write_deltalake(str(tmp_path / "t"), pa.table(rows))

    found = read_sample(tmp_path / "t", 20, Mask(frozenset({"email"})))

    assert found is not None
    assert found.columns == ('a"b<i>', "price", "day", "at", "raw", "tags", "good")
    assert found.masked == ("email",)
    assert found.rows[0] == (
        HOSTILE, "1.50", "2026-11-01", "2026-11-01 05:00:00+00:00", "\\xff<b>", '["ä", null]', "true",
    )  # fmt: skip
    assert [row[0] for row in found.rows] == [HOSTILE, None, ""]
    shown = read_sample(tmp_path / "t", 2, Mask())
    assert shown is not None
    assert len(shown.rows) == 2
    assert "x@example.com" in shown.rows[0]


def test_of_long_values_only_the_beginning_is_shown(tmp_path):
    write_deltalake(str(tmp_path / "t"), pa.table({"x": ["ä" * 10_000]}))

    found = read_sample(tmp_path / "t", 1, Mask())

    assert found is not None
    assert len((found.rows[0][0] or "").encode()) <= 200


def test_no_table_and_no_wish_are_no_sample_and_a_broken_log_is_an_error(tmp_path):
    assert read_sample(tmp_path / "t", 20, Mask()) is None
    write_deltalake(str(tmp_path / "t"), pa.table({"x": [1]}))
    assert read_sample(tmp_path / "t", 0, Mask()) is None
    hidden_whole = read_sample(tmp_path / "t", 20, Mask(everything=True))
    assert hidden_whole is not None
    assert (hidden_whole.rows, hidden_whole.masked) == ((), ("x",))
    next((tmp_path / "t").glob("*.parquet")).unlink()
    with pytest.raises(ReadError, match="no rows of it can be shown"):
        read_sample(tmp_path / "t", 20, Mask())


def test_a_quarantined_record_is_not_shown_where_a_column_of_it_is_masked(tmp_path):
    records = {
        "file": ["a.json", "b.json"],
        "raw": [b'{"email": "x@example.com"', b"{"],
        "error": ["JSON"] * 2,
        "message": ["x@example.com is no number", "no end"],
        "retried_in": pa.array([None, 7], pa.int64()),
    }
    write_deltalake(str(tmp_path / "q"), pa.table(records))

    open_, masked = (read_quarantine(tmp_path / "q", 20, mask) for mask in (Mask(), Mask(frozenset({"email"}))))

    assert open_ is not None
    assert masked is not None
    # The second record became a row later.
    assert open_.rows == (("a.json", '{"email": "x@example.com"', "JSON", "x@example.com is no number"),)
    assert (masked.columns, masked.rows) == (("file", "error"), (("a.json", "JSON"),))
