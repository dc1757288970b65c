"""ClickHouse's engine behind its HTTP interface: rows, versions, deduplication, errors, and a power cut."""

from __future__ import annotations

import gzip
import struct
import urllib.request

import pytest

from tests.servers.clickhouse import ClickHouseServer

pytestmark = pytest.mark.seconds

TABLE = (
    "CREATE TABLE t (id Int64, v String, version UInt64, deleted UInt8) ENGINE = ReplacingMergeTree(version, deleted)"
)


@pytest.fixture
def database(clickhouse: ClickHouseServer) -> str:
    name = clickhouse.new_database()
    clickhouse.ask(f"{TABLE} ORDER BY id SETTINGS non_replicated_deduplication_window = 100", database=name)
    return name


def rows(server: ClickHouseServer, database: str) -> list[str]:
    return server.ask("SELECT id, v FROM t FINAL ORDER BY id", database=database).splitlines()


def test_the_row_of_the_greatest_version_stays_and_a_deleted_one_goes(clickhouse: ClickHouseServer, database: str):
    lines = b'{"id":1,"v":"new","version":2,"deleted":0}\n{"id":2,"v":"x","version":1,"deleted":0}\n'
    clickhouse.ask("INSERT INTO t FORMAT JSONEachRow", lines, database=database)
    older = b'{"id":1,"v":"old","version":1,"deleted":0}\n{"id":2,"v":"","version":2,"deleted":1}\n'
    clickhouse.ask("INSERT INTO t FORMAT JSONEachRow", older, database=database)

    assert rows(clickhouse, database) == ['{"id":1,"v":"new"}']


def test_an_insert_with_the_token_of_another_one_changes_nothing(clickhouse: ClickHouseServer, database: str):
    for key in (1, 2):
        line = f'{{"id":{key},"v":"a","version":1,"deleted":0}}'.encode()
        clickhouse.ask("INSERT INTO t FORMAT JSONEachRow", line, database=database, insert_deduplication_token="one")

    assert rows(clickhouse, database) == ['{"id":1,"v":"a"}']
    # The setting was that of the request.
    clickhouse.ask("INSERT INTO t FORMAT JSONEachRow", b'{"id":3,"v":"b","version":1}', database=database)
    assert len(rows(clickhouse, database)) == 2


def test_rows_are_bytes_and_may_be_packed(clickhouse: ClickHouseServer, database: str):
    row = struct.pack("<q", 7) + b"\x03a\x00\xff" + struct.pack("<QB", 1, 0)
    request = urllib.request.Request(
        f"{clickhouse.url}/?query=INSERT+INTO+t+FORMAT+RowBinary&database={database}",
        gzip.compress(row),
        {"Content-Encoding": "gzip", "X-ClickHouse-User": "default", "X-ClickHouse-Key": clickhouse.password},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.status == 200

    assert clickhouse.ask("SELECT id, hex(v) AS v FROM t", database=database) == '{"id":7,"v":"6100FF"}\n'


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("SELECT * FROM nowhere", 404, "Code: 60."),
        ("SELECT nothing FROM t", 404, "Code: 47."),
        ("SELEC 1", 400, "Code: 62."),
        ("INSERT INTO t FORMAT JSONEachRow {\"id\":\"x\"}", 400, "Code: 27."),
        ("SELECT throwIf(1)", 500, "Code: 395."),
    ],
)  # fmt: skip
def test_an_error_has_its_code_and_a_status(
    clickhouse: ClickHouseServer, database: str, query: str, status: int, code: str
):
    assert (found := clickhouse.try_to_ask(query, database=database))[0] == status, found
    assert found[1].startswith(code)


def test_a_wrong_password_and_an_unknown_setting_are_refused(clickhouse: ClickHouseServer):
    other = ClickHouseServer(clickhouse.process, clickhouse.port, password="another")
    status, text = other.try_to_ask("SELECT 1")
    assert status == 403
    assert text.startswith("Code: 516. DB::Exception: default: Authentication failed: password is incorrect")
    assert "(version 26.5." in text
    assert clickhouse.try_to_ask("SELECT 1", nonsense="1")[0] == 404


def test_rows_are_there_after_a_power_cut(clickhouse: ClickHouseServer, database: str):
    clickhouse.ask('INSERT INTO t FORMAT JSONEachRow {"id":1,"v":"a","version":1}', database=database)

    clickhouse.process.kill()
    with pytest.raises(OSError, match="refused"):
        clickhouse.try_to_ask("SELECT 1")
    clickhouse.start()

    assert rows(clickhouse, database) == ['{"id":1,"v":"a"}']


def test_a_server_hangs_and_answers_again(clickhouse: ClickHouseServer):
    with clickhouse.process.hanging(), pytest.raises(TimeoutError):
        urllib.request.urlopen(f"{clickhouse.url}/ping", timeout=0.3)

    with urllib.request.urlopen(f"{clickhouse.url}/ping", timeout=30) as answer:
        assert answer.read() == b"Ok.\n"
