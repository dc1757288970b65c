"""`freshline quarantine`: rejected records are seen with code, reason, place and bytes."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from freshline.cli.main import run
from freshline.cli.options import open_settings
from freshline.commit.warehouse import Warehouse
from freshline.report.quarantine import read_rejected
from freshline.values.names import TableName
from tests.cli.conftest import FakeEngine

AT = datetime(2026, 11, 27, 8, tzinfo=UTC)
REJECTED: dict[str, Any] = {
    "_freshline_seq": pa.array([1, 1, 2, 2], pa.int64()),
    "file": ["landing/one.csv", "landing/one.csv", "landing/two.csv", "landing/two.csv"],
    "line": pa.array([7, 8, 2, 3], pa.int64()),
    "raw": pa.array([b"1,2", b"3", b'Ren\xe9,"a\tb"\n\x1b[2J\\', b"gone"], pa.binary()),
    "error": ["NOT_CSV", "NOT_CSV", "NOT_UTF8", "NOT_CSV"],
    "message": ["columns", "columns", "no UTF-8", "columns"],
    "quarantined_at": pa.array([AT, AT, AT + timedelta(hours=1), AT + timedelta(hours=2)], pa.timestamp("us", "UTC")),
    "retried_in": pa.array([None, None, None, 5], pa.int64()),
}
ESCAPED = r'Ren\xe9,"a\tb"\n\x1b[2J\\'


@pytest.fixture
def rejecting(shop: Path) -> Path:
    """The project of `init`, whose source has rejected records."""
    path = Warehouse(open_settings(shop).warehouse).quarantine(TableName.parse("orders"))
    write_deltalake(str(path), pa.table(REJECTED))
    return shop


def test_rejected_records_are_shown_the_newest_first_with_code_reason_place_and_bytes(
    rejecting: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["quarantine", "orders"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "2026-11-27 09:00:00  NOT_UTF8  landing/two.csv:2",
        "  no UTF-8",
        f"  {ESCAPED}",
        "2026-11-27 08:00:00  NOT_CSV  landing/one.csv:8",
        "  columns",
        "  3",
        "2026-11-27 08:00:00  NOT_CSV  landing/one.csv:7",
        "  columns",
        "  1,2",
    ]


@pytest.mark.parametrize("command", [["quarantine", "orders"], ["quarantine", "show", "ORDERS"]])
def test_as_json_each_is_an_object_and_a_limit_says_that_there_are_more(
    rejecting: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    assert run([*command, "--json", "--limit", "1"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out) == [
        {
            "code": "NOT_UTF8",
            "reason": "no UTF-8",
            "place": {"file": "landing/two.csv", "line": 2},
            "bytes": ESCAPED,
            "quarantined_at": "2026-11-27T09:00:00+00:00",
        }
    ]
    assert err == "There are more records than these 1; --limit 0 shows all.\n"
    assert run([*command, "--json", "--limit", "0"]) == 0
    out, err = capsys.readouterr()
    assert (len(json.loads(out)), err) == (3, "")


def test_a_source_without_any_says_so_and_an_unknown_name_has_its_nearest(
    shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["quarantine", "orders"]) == 0
    assert capsys.readouterr().out == "no record of orders is in quarantine\n"
    assert run(["quarantine", "orders", "--json"]) == 0
    assert capsys.readouterr().out == "[]\n"
    assert run(["quarantine", "order"]) == 1
    assert "there is no table or source order. Did you mean orders?" in capsys.readouterr().err
    assert run(["quarantine", "--json", "orders"]) == 0


def test_records_of_a_source_whose_declaration_has_a_mistake_are_seen_too(
    rejecting: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (rejecting / "assets" / "orders.sql").write_text("CREATE SOURCE orders")
    assert run(["quarantine", "orders", "--json"]) == 0
    out, err = capsys.readouterr()
    assert len(json.loads(out)) == 3
    assert "assets/orders.sql:1" in err


def test_records_of_topics_and_rows_of_tables_have_their_own_places(tmp_path: Path) -> None:
    own = {name: values for name, values in REJECTED.items() if name not in ("file", "line", "retried_in")}
    nothing = {"file": pa.array([None] * 4, pa.string()), "line": pa.array([None] * 4, pa.int64())}
    topic = {
        **own,
        **nothing,
        "partition": pa.array([0, 1, 2, 3], pa.int32()),
        "offset": pa.array([9] * 4, pa.int64()),
        "key": pa.array([b"\xffk"] * 4, pa.binary()),
    }
    write_deltalake(str(tmp_path / "topic"), pa.table(topic))
    table = {**own, "raw": ['{"id": 1}'] * 4, "positions": ['{"orders": 3}'] * 4}
    write_deltalake(str(tmp_path / "table"), pa.table(table))

    assert read_rejected(tmp_path / "topic", 1)[0].place_text == r"partition 3, offset 9, key \xffk"
    (row,) = read_rejected(tmp_path / "table", 1)
    assert (row.place_text, row.content) == ('{"orders": 3}', '{"id": 1}')


def test_retry_is_still_a_command(shop: Path, fake_engine: FakeEngine) -> None:
    assert run(["quarantine", "retry", "orders"]) == 0
    assert fake_engine.asked == [("refresh", {"tables": ["orders"], "retry": True, "upstreams": False})]
