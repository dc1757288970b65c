"""Files become rows once; what cannot be a row is kept, counted and said, and the rest goes on."""

from __future__ import annotations

import gzip
import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from dagster import AssetKey

from freshline.cli.status import watermark_lines
from freshline.commit.delta_log import last_seq, newest_version, read_newest
from freshline.commit.write import carry_receipt
from freshline.dagster.materialize import Materialization, version_metadata
from freshline.errors import FileChangedError, ForeignWriteError, SourceError
from freshline.sources.files import plain_json
from freshline.sources.files import reader as files_reader
from tests.crashes import crash
from tests.lanes import few_or_many, long_but
from tests.scenarios.tables import declare, follow

COLUMNS = "id STRING, n INT, ts TIMESTAMP"
GOOD = '{"id": "a", "n": 1, "ts": "2026-01-01T00:00:00Z"}\n'


def errors(lab, name):
    return [(row["file"], row["line"], row["error"]) for row in lab.quarantine(name)]


def test_rows_behind_the_watermark_are_counted_and_kept(lab):
    folder = lab.files("ev", "id STRING, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '5' MINUTE")
    rows = '{{"id": "{}", "ts": "2026-01-01T10:{}:00Z"}}\n'
    (folder / "1.json").write_text(rows.format("a", "10") + rows.format("b", "00"))
    first = lab.refresh("ev")
    (folder / "2.json").write_text(rows.format("c", "06") + rows.format("d", "04") + rows.format("e", "20"))
    second = lab.refresh("ev")

    assert (first.late_rows, second.late_rows) == (0, 1)
    assert len(lab.rows("ev")) == 5
    (status,) = [status for status in lab.status() if str(status.table) == "ev"]
    assert status.event_timestamp == datetime(2026, 1, 1, 10, 20, tzinfo=UTC)
    assert status.event_lag_seconds is not None


AHEAD = '{{"id": "{}", "ts": "{}"}}\n'


@pytest.mark.parametrize("kind", long_but(["TIMESTAMP_NTZ"], ["TIMESTAMP", "TIMESTAMP_NTZ"]))
def test_one_event_of_the_year_2999_does_not_make_later_rows_late(lab, kind):
    lab.files("ev", f"id STRING, ts {kind}, WATERMARK FOR ts AS ts - INTERVAL '5' MINUTE")
    now = lab.clock().replace(microsecond=0, tzinfo=None)

    def land(name, *times):
        lab.land("ev", name, "".join(AHEAD.format(name, time) for time in times))
        outcome = lab.refresh("ev")
        return outcome.late_rows, outcome.ahead_rows

    hours = [now + timedelta(hours=hour) for hour in (-1, 0, 23, 25)]
    assert land("1.json", hours[0], "2999-01-01 00:00:00") == (0, 1)
    assert land("2.json", hours[0], hours[0] - timedelta(minutes=6)) == (1, 0)
    assert land("3.json", hours[3], hours[1]) == (0, 1)
    # The facts of it are in the log, not in the engine.
    lab.restart(lose_control_store=True)
    assert land("4.json", hours[1] - timedelta(minutes=5), hours[0]) == (1, 0)
    (status,) = [status for status in lab.status() if str(status.table) == "ev"]
    assert status.event_timestamp == hours[1].replace(tzinfo=UTC)
    assert land("5.json", hours[2]) == (0, 0)
    assert land("6.json", hours[1]) == (1, 0)
    assert len(lab.rows("ev")) == 10


def test_the_watermark_goes_on_from_a_log_whose_receipts_have_none(lab):
    columns = "id STRING, ts TIMESTAMP"
    folder = lab.files("ev", columns)
    now = lab.clock().replace(microsecond=0, tzinfo=None)
    for name, times in (("1.json", [now, "2999-01-01 00:00:00"]), ("2.json", [now - timedelta(hours=1)])):
        lab.land("ev", name, "".join(AHEAD.format(name, time) for time in times))
        lab.refresh("ev")
    lab.declare(
        f"CREATE SOURCE ev ({columns}, WATERMARK FOR ts AS ts - INTERVAL '5' MINUTE) WITH ('connector' = 'files', "
        f"'format' = 'json', 'settle' = '0 seconds', 'path' = '{folder}')"
    )

    lab.land("ev", "3.json", AHEAD.format("a", now - timedelta(minutes=6)) + AHEAD.format("b", now))

    assert lab.refresh("ev").late_rows == 1


HOUR = datetime(2026, 1, 1, 10, tzinfo=UTC)
WATERMARKED = (
    "id STRING, ts TIMESTAMP, w TIMESTAMP METADATA FROM 'watermark', WATERMARK FOR ts AS ts - INTERVAL '{}' MINUTE"
)


def send(lab, name, *minutes):
    """Land a file with an event at each of these minutes past ten, and bring it in."""
    rows = [{"id": f"{name}{number}", "ts": at(minute).isoformat()} for number, minute in enumerate(minutes)]
    lab.land("ev", f"{name}.json", rows)
    outcome = lab.refresh("ev")
    assert outcome.error is None, outcome.error
    return outcome


def at(minute):
    return HOUR + timedelta(minutes=minute)


def before_batches(lab):
    """The watermark before its batch, as each row has it."""
    return {row["id"]: row["w"] for row in lab.rows("ev")}


def redeclare(lab, columns, **options):
    folder = lab.settings.root / "landing" / "ev"
    also = "".join(f", '{key.replace('_', '-')}' = '{value}'" for key, value in options.items())
    lab.declare(
        f"CREATE SOURCE ev ({columns}) WITH ('connector' = 'files', 'format' = 'json', "
        f"'settle' = '0 seconds', 'path' = '{folder}'{also})"
    )


def test_rows_and_receipt_say_the_watermark_before_and_after_their_batch(lab):
    lab.files("ev", WATERMARKED.format(5))
    lab.declare("CREATE MATERIALIZED TABLE late AS SELECT id, ts FROM ev WHERE ts < w")
    send(lab, "a", 10, 0)
    first = lab.receipt("ev").event_time
    outcome = send(lab, "b", 4, 20)
    second = lab.receipt("ev").event_time
    follow(lab, name="late")
    assert (first.before, first.watermark, first.moved_by) == (None, at(5), "events")
    assert (second.before, second.watermark, second.late) == (at(5), at(15), 1)
    assert {name: each.greatest for name, each in second.partitions.items()} == {"": at(20)}
    assert outcome.late_rows == 1
    assert before_batches(lab) == {"a0": None, "a1": None, "b0": at(5), "b1": at(5)}
    assert [row["id"] for row in lab.rows("late")] == ["b0"]


def test_a_record_that_is_no_row_moves_no_watermark(lab):
    constraints = "CONSTRAINT kept EXPECT (id <> 'bad') ON VIOLATION QUARANTINE"
    dropped = "CONSTRAINT there EXPECT (id <> 'drop') ON VIOLATION DROP ROW"
    lab.files("ev", f"{WATERMARKED.format(0)}, {constraints}, {dropped}")
    rows = [{"id": "a", "ts": at(1).isoformat()}, {"id": "none", "ts": None}]
    bad = [{"id": name, "ts": at(50).isoformat()} for name in ("bad", "drop")]
    lab.land("ev", "1.json", [*rows, *bad])

    outcome = lab.refresh("ev")

    assert (outcome.rows_out, outcome.rejected) == (2, 1)
    assert lab.receipt("ev").event_time.watermark == at(1)


@pytest.mark.long
def test_large_files_move_the_watermark_as_small_ones_do(lab, taken):
    lab.files("ev", WATERMARKED.format(5))
    now = lab.clock().replace(microsecond=0)
    times = [now - timedelta(seconds=number % 1000) for number in range(30_000)]
    rows = [{"id": str(number), "ts": time.isoformat()} for number, time in enumerate(times)]
    lab.land("ev", "1.json", rows)
    lab.refresh("ev")
    lab.land("ev", "2.json", [*rows, {"id": "ahead", "ts": "2999-01-01T00:00:00Z"}])
    lab.refresh("ev")
    # One record in doubt: all records are classified one by one.
    lab.land("ev", "3.json", "".join(f'{{"id": "{row["id"]}", "ts": "{row["ts"]}"}}\n' for row in rows) + "broken\n")
    outcome = lab.refresh("ev")

    found = lab.receipt("ev").event_time
    assert len(taken) == 2
    assert outcome.rejected == 1
    assert (found.before, found.watermark) == (now - timedelta(minutes=5), now - timedelta(minutes=5))
    assert (found.late, found.ahead) == (sum(time < found.before for time in times), 0)
    assert {row["w"] for row in lab.rows("ev")} == {None, found.before}


def test_the_watermark_never_goes_back(lab):
    lab.files("ev", WATERMARKED.format(5))
    send(lab, "a", 10)
    redeclare(lab, WATERMARKED.format(30))
    send(lab, "b", 20)
    assert lab.receipt("ev").event_time.watermark == at(5)
    lab.restart(lose_control_store=True)
    send(lab, "c", 0)
    assert lab.receipt("ev").event_time.watermark == at(5)
    # Without a watermark for a while, and then declared again.
    redeclare(lab, "id STRING, ts TIMESTAMP")
    send(lab, "d", 32)
    redeclare(lab, WATERMARKED.format(30))
    send(lab, "e", 25)
    assert lab.receipt("ev").event_time.watermark == at(5)
    assert lab.receipt("ev").event_time.partitions[""].greatest == at(32)
    send(lab, "f", 40)

    assert lab.receipt("ev").event_time.watermark == at(10)
    assert before_batches(lab) == {"a0": None, **dict.fromkeys(("b0", "c0", "d0", "e0", "f0"), at(5))}


@pytest.mark.parametrize("savepoint", long_but([True], [True, False]))
def test_a_restore_brings_back_the_watermark_of_its_version(lab, savepoint):
    lab.files("ev", WATERMARKED.format(5))
    send(lab, "a", 10)
    version = newest_version(lab.path("ev"))
    if savepoint:
        lab.create_savepoint("before")
    send(lab, "b", 50)
    assert lab.receipt("ev").event_time.watermark == at(45)
    if savepoint:
        lab.restore_savepoint("before")
    else:
        lab.runtime.sessions.root.sql(f"RESTORE TABLE delta.`{lab.path('ev')}` TO VERSION AS OF {version}")
    (lab.settings.root / "landing" / "ev" / "b.json").unlink()
    send(lab, "c", 20)

    found = lab.receipt("ev").event_time
    assert (found.before, found.watermark) == (at(5), at(15))
    assert before_batches(lab) == {"a0": None, "c0": at(5)}


def test_a_log_of_an_earlier_commit_gains_the_column_and_its_readers_go_on(lab):
    """Earlier commits wrote the watermark before a batch into its receipt, and none into rows."""
    lab.files("ev", "id STRING, ts TIMESTAMP")
    lab.declare("CREATE MATERIALIZED TABLE t AS SELECT id, ts FROM ev")
    send(lab, "a", 10)
    send(lab, "b", 20)
    lab.refresh("t")
    session, path = lab.runtime.sessions.root, lab.path("ev")
    old = replace(lab.receipt("ev").carried("an earlier commit"), watermark={"ts": at(5)})
    carry_receipt(lambda: session, path, old)
    redeclare(lab, WATERMARKED.format(5))

    outcome = send(lab, "c", 14, 30)
    refreshed = lab.refresh("t")

    assert outcome.late_rows == 1
    found = lab.receipt("ev").event_time
    assert (found.before, found.watermark) == (at(15), at(25))
    assert before_batches(lab) == {"a0": None, "b0": None, "c0": at(15), "c1": at(15)}
    assert (refreshed.strategy, refreshed.reason.split(":")[0]) == ("append", "INSERTS_ONLY(ev)")
    assert lab.diff("t") == []


def test_with_nothing_to_read_the_watermark_stands_or_follows_the_clock(lab):
    lab.files("ev", WATERMARKED.format(5))
    lab.declare("CREATE MATERIALIZED TABLE t AS SELECT id, w FROM ev")
    send(lab, "a", 10)
    lab.refresh("t")
    lab.clock.advance(hours=1)
    assert lab.refresh("ev").strategy == "noop"
    redeclare(lab, WATERMARKED.format(5), **{"watermark.idle": "30 seconds", "watermark.when-idle": "advance"})
    found = []
    for seconds in (0, 20, 10):
        lab.clock.advance(seconds=seconds)
        outcome = lab.refresh("ev")
        now = lab.receipt("ev").event_time.watermark
        found.append((outcome.strategy, outcome.reason.split(":")[0], lab.clock() - now))

    behind = timedelta(minutes=5, seconds=30)
    assert found == [
        ("append", "WATERMARK_MOVED(clock)", behind),
        ("noop", "NOTHING_NEW", behind + timedelta(seconds=20)),
        ("append", "WATERMARK_MOVED(clock)", behind),
    ]
    assert lab.receipt("ev").event_time.partitions[""].idle
    assert (lab.refresh("t").rows_out or 0) == 0
    assert lab.diff("t") == []
    assert lab.watermark("t") == lab.watermark("ev") == lab.clock() - behind
    watermark = lab.receipt("ev").event_time.watermark
    assert send(lab, "b", 20).late_rows == 1
    assert before_batches(lab) == {"a0": None, "b0": watermark}
    assert lab.receipt("ev").event_time.watermark == watermark


@pytest.mark.parametrize("point", long_but(["log-after-commit"], ["log-before-commit", "log-after-commit"]))
def test_a_stop_beside_an_empty_batch_neither_repeats_nor_loses_it(lab, point):
    lab.files("ev", WATERMARKED.format(0))
    redeclare(lab, WATERMARKED.format(0), **{"watermark.when-idle": "advance"})
    send(lab, "a", 10)
    lab.clock.advance(minutes=10)
    crash(lab, point, "ev")
    lab.refresh("ev")

    receipt = lab.receipt("ev")
    assert receipt.seq == 2
    assert receipt.event_time.watermark == lab.clock() - timedelta(minutes=1)
    assert ids(lab, "ev") == ["a0"]


def test_the_watermark_of_a_table_is_the_least_of_its_inputs_that_it_has_read(lab):
    lab.files("ev", WATERMARKED.format(5))
    lab.files("other", "id STRING, ts TIMESTAMP, WATERMARK FOR ts AS ts")
    lab.files("plain", "id STRING")
    lab.declare("CREATE MATERIALIZED TABLE both AS SELECT e.id FROM ev e JOIN other o ON o.id = e.id")
    lab.declare("CREATE MATERIALIZED TABLE above AS SELECT id FROM both")
    lab.declare("CREATE MATERIALIZED TABLE mixed AS SELECT e.id FROM ev e JOIN plain p ON p.id = e.id")
    windows = "TUMBLE(TABLE ev, DESCRIPTOR(ts), INTERVAL '1' MINUTE)"
    lab.declare(
        f"CREATE MATERIALIZED TABLE final EMIT FINAL AS SELECT count(*) AS n FROM {windows} GROUP BY window_start"
    )
    assert lab.watermark("above") is None
    lab.land("other", "a.json", [{"id": "x", "ts": at(7).isoformat()}])
    lab.land("plain", "a.json", [{"id": "x"}])
    send(lab, "a", 10)
    lab.refresh("above")
    lab.refresh("mixed")
    names = ("ev", "other", "both", "above", "mixed")
    assert [lab.watermark(name) for name in names] == [at(5), at(7), at(5), at(5), None]
    send(lab, "b", 30)

    # The tables have not read the second batch.
    assert [lab.watermark(name) for name in ("ev", "both", "above")] == [at(25), at(5), at(5)]
    lab.refresh("above")
    lab.refresh("final")
    assert [lab.watermark(name) for name in ("both", "above", "final")] == [at(7), at(7), at(25)]
    statuses = {str(status.table): status for status in lab.status()}
    assert {name: status.watermark_held_by for name, status in statuses.items()} == {
        "ev": ("ev",), "other": ("other",), "plain": (), "both": ("other",), "above": ("other",), "mixed": ("plain",),
        "final": ("ev",), "final__late": ("ev",),
    }  # fmt: skip
    lines = watermark_lines(list(statuses.values()))
    assert "above: watermark 2026-01-01 10:07:00, held up by other" in lines
    assert "mixed: watermark none yet, held up by plain" in lines
    spec = statuses["above"].table
    graph, warehouse = lab.runtime.graph, lab.runtime.warehouse
    asked = Materialization(graph.specs[spec], AssetKey("above"), warehouse, specs=graph.specs)
    metadata = version_metadata(asked, statuses["above"].version)
    assert (metadata["watermark"].value, metadata["watermark_held_by"]) == (at(7).timestamp(), "other")


def test_a_union_read_says_the_watermark_that_the_next_batch_will_have(lab):
    lab.files("ev", WATERMARKED.format(5))
    send(lab, "a", 10)
    lab.land("ev", "b.json", [{"id": "b0", "ts": at(20).isoformat()}])

    rows, token = lab.union("ev")
    lab.refresh("ev")
    again, _ = lab.union("ev", token)

    assert {row["id"]: row["w"] for row in rows} == {"a0": None, "b0": at(5)} == before_batches(lab)
    assert again == rows


def ids(lab, name):
    return [row["id"] for row in lab.rows(name)]


def test_broken_json_is_quarantined_with_its_place_and_the_rest_goes_on(lab):
    lab.files("ev", COLUMNS, max_record_bytes="1000000")
    broken: dict[str | bytes, str] = {
        "{bad": "NOT_JSON",
        '{"id": "x", "n": "one"}': "NOT_JSON",  # a wrong type
        '{"id": "x", "ts": "yesterday"}': "NOT_JSON",
        '{"id": "x", "n": 99999999999}': "NOT_JSON",
        '{"id": "x"} trailing': "NOT_JSON",
        '{"id": "x"}}': "NOT_JSON",
        '{"id": "x"}]': "NOT_JSON",
        '{"id": "x"}, {"id": "y"}': "NOT_JSON",
        '{"id": "x"}, "v": {"id": "y"}': "NOT_JSON",
        '{"id": "x"}{"id": "y"}': "NOT_JSON",
        '["x"]': "NOT_JSON",
        '[{"id": "x"}]': "NOT_JSON",
        "null": "NOT_JSON",
        "1": "NOT_JSON",
        '"text"': "NOT_JSON",
        '{"id": "x': "NOT_JSON",
        b'{"id": "\xff"}': "NOT_UTF8",
        b"\xc3\x28": "NOT_UTF8",
        '{"id": "' + "x" * 10_000_000 + '"}': "TOO_LARGE",
    }
    lines = [line if isinstance(line, bytes) else line.encode() for line in broken]
    lab.land("ev", "broken.json", GOOD.encode() + b"\n".join(lines) + b"\n\n   \n" + GOOD.replace("a", "b").encode())
    lab.land("ev", "empty.json", b"")
    lab.land("ev", "windows.json", b"\xef\xbb\xbf" + GOOD.replace("a", "bom").replace("\n", "\r\n").encode() * 2)
    lab.land("ev", "no_newline.json", GOOD.replace("a", "end").rstrip())
    lab.land("ev", "fields.json", '{"n": null, "more": [1, {"x": 2}], "id": "other fields are not declared"}\n{}\n')

    outcome = lab.refresh("ev")

    assert outcome.error is None, outcome.error
    assert ids(lab, "ev") == [None, "a", "b", "bom", "bom", "end", "other fields are not declared"]
    found = errors(lab, "ev")
    assert found == sorted(
        [
            *(("broken.json", line, code) for line, code in enumerate(broken.values(), 2)),
            ("empty.json", None, "EMPTY_FILE"),
        ]
    )
    assert outcome.rejected == len(found)
    assert (outcome.rows_in, outcome.rows_out) == (len(found) + 7, 7)
    raw = {row["line"]: row["raw"] for row in lab.quarantine("ev")}
    # Of a line that is too large only the beginning was ever in memory.
    assert [raw[line] for line in range(2, 1 + len(lines))] == lines[:-1]
    assert len(raw[1 + len(lines)]) >= 64 << 10
    assert lines[-1].startswith(raw[1 + len(lines)])
    assert all(row["message"] for row in lab.quarantine("ev"))


def test_broken_csv_is_quarantined_with_its_place_and_the_rest_goes_on(lab):
    lab.files("c", "id STRING, n INT, note STRING", format="csv", null_value="NULL")
    lab.land(
        "c",
        "a.csv",
        'id,n,note\na,1,fine\nb,2\nc,3,x,y\nd,three,x\nid,n,note\n"e ""quoted"", comma",5,"NULL"\n'
        'f,6,"goes on\nin the next line"\ng,7,5" pipe\nh,,\n\nNULL,8,NULL\n',
    )
    lab.land("c", "order.csv", "\ufeffNOTE,extra,ID,N\r\nx,e,i,9\r\n")
    lab.land("c", "no_header.csv", "j,1,x\nk,2,y\n")
    lab.land("c", "too_few.csv", "id,n\nl,1\n")
    lab.land("c", "only_header.csv", "id,n,note\n")
    lab.land("c", "twice.csv", "id,n,note,id\n1,2,3,4\n")
    lab.land("c", "latin1.csv", "id,n,note\nm,1,é\n".encode("latin-1"))
    lab.land("c", "empty.csv", b"")

    outcome = lab.refresh("c")

    assert outcome.error is None, outcome.error
    assert sorted((row["id"] or "", row["n"], row["note"]) for row in lab.rows("c")) == [
        ("", 8, None),
        ("a", 1, "fine"),
        ('e "quoted", comma', 5, None),
        ("g", 7, '5" pipe'),
        ("h", None, None),
        ("i", 9, "x"),
    ]
    assert errors(lab, "c") == sorted(
        [
            ("a.csv", 3, "NOT_CSV"),
            ("a.csv", 4, "NOT_CSV"),
            ("a.csv", 5, "NOT_CSV"),
            ("a.csv", 6, "NOT_CSV"),  # the header again, as data
            ("a.csv", 8, "NOT_CSV"),
            ("a.csv", 9, "NOT_CSV"),
            ("no_header.csv", 1, "HEADER_MISMATCH"),
            ("no_header.csv", 2, "HEADER_MISMATCH"),
            ("too_few.csv", 1, "HEADER_MISMATCH"),
            ("too_few.csv", 2, "HEADER_MISMATCH"),
            ("twice.csv", 1, "HEADER_MISMATCH"),
            ("twice.csv", 2, "HEADER_MISMATCH"),
            ("latin1.csv", 2, "NOT_UTF8"),
            ("empty.csv", None, "EMPTY_FILE"),
        ],
        key=lambda row: (row[0], row[1] or 0),
    )


def test_a_csv_without_header_has_its_columns_in_the_declared_order(lab):
    lab.files("c", "id STRING, n INT", format="csv", header="false")
    lab.land("c", "a.csv", "a,1\nb,2\nc\n")

    assert lab.refresh("c").rejected == 1
    assert lab.rows("c") == [{"id": "a", "n": 1}, {"id": "b", "n": 2}]


def test_names_of_files_are_only_names(lab):
    root = lab.files(
        "ev",
        "id STRING, f STRING METADATA FROM 'file', r BIGINT METADATA "
        "FROM 'record', at TIMESTAMP METADATA FROM 'ingested_at'",
    )
    names = [
        "with space.json",
        "per%20cent%.json",
        "plus+and&.json",
        "[glob]*?.json",
        "{a,b}.json",
        "ünï✓.json",
        "sem;colon.json",
        "hash#tag.json",
        "co:lon.json",
        "deep/er/nested folder/x.json",
        "packed.json.gz",
        "back\\slash.json",
        "quote'\".json",
    ]
    for name in names:
        text = "\n" + '{"id": "x"}\n' * 2
        lab.land("ev", name, gzip.compress(text.encode()) if name.endswith(".gz") else text)
    for hidden in (".hidden.json", "_underscore.json", "_folder/x.json", ".folder/x.json"):
        lab.land("ev", hidden, GOOD)
    (root / "broken_link.json").symlink_to(root / "nowhere")

    outcome = lab.refresh("ev")

    assert outcome.error is None, outcome.error
    assert sorted({row["f"] for row in lab.rows("ev")}) == sorted(names)
    assert {row["r"] for row in lab.rows("ev")} == {2, 3}
    assert {row["at"] for row in lab.rows("ev")} == {lab.clock()}
    assert lab.refresh("ev").reason.startswith("NOTHING_NEW")


def test_a_damaged_gzip_file_delays_nothing(lab):
    lab.files("ev", "id STRING")
    whole = gzip.compress(b'{"id": "zipped"}\n' * 1000)
    lab.land("ev", "cut.json.gz", whole[:-20])
    lab.land("ev", "no_gzip.json.gz", b'{"id": "plain"}\n')
    lab.land("ev", "good.json.gz", whole)

    outcome = lab.refresh("ev")

    assert outcome.error is None, outcome.error
    assert errors(lab, "ev") == [("cut.json.gz", None, "UNREADABLE"), ("no_gzip.json.gz", None, "UNREADABLE")]
    assert (outcome.rows_out, outcome.rejected) == (1000, 2)


def test_redelivered_records_are_dropped_and_other_values_of_a_key_are_quarantined(lab):
    lab.files("ev", "id STRING, x STRING, y STRING, m MAP<STRING, INT>", primary_key=["id"], deduplicate="2 days")
    first = [{"id": "a", "x": "1", "y": None}, {"id": "b", "x": "1", "m": {"k": 1}}]
    lab.land("ev", "1.json", [*first, first[0], {"id": "a", "x": "2"}, {"x": "no key"}])
    outcome = lab.refresh("ev")
    assert (outcome.rows_in, outcome.rows_out, outcome.rejected) == (5, 2, 2)
    lab.clock.advance(days=1)
    # The same value in another column is another record.
    lab.land("ev", "2.json", [*first, {"id": "a", "x": None, "y": "1"}, {"id": "c", "x": "1"}])
    outcome = lab.refresh("ev")
    assert (outcome.rows_in, outcome.rows_out, outcome.rejected) == (4, 1, 1)
    assert [(row["file"], row["line"], row["error"]) for row in lab.quarantine("ev")] == [
        ("1.json", 4, "KEY_CONFLICT"),
        ("1.json", 5, "NULL_KEY"),
        ("2.json", 3, "KEY_CONFLICT"),
    ]
    # Beyond the horizon of arrival the same key is a new record.
    lab.clock.advance(days=2)
    lab.land("ev", "3.json", first)
    assert lab.refresh("ev").rows_out == 2
    assert ids(lab, "ev") == ["a", "a", "b", "b", "c"]


def test_a_record_that_is_no_row_takes_no_key_from_one_that_is(lab):
    lab.files("ev", "id STRING, n INT, CONSTRAINT small EXPECT (n < 100) ON VIOLATION QUARANTINE", primary_key=["id"])
    garbled = [{"id": "a", "n": 99_999_999_999}, {"id": "b", "n": 100}]
    good = [{"id": "a", "n": 1}, {"id": "b", "n": 2}]
    # Twice, as of a sender that lost the answer.
    lab.land("ev", "1.json", [*garbled, *good, *good, *garbled])

    outcome = lab.refresh("ev")

    assert (outcome.rows_out, outcome.rejected) == (2, 4)
    assert lab.rows("ev") == good
    assert {row["error"] for row in lab.quarantine("ev")} == {"NOT_JSON", "CONSTRAINT(small)"}


def test_a_file_that_changes_after_it_was_read_is_named_and_the_rest_goes_on(lab):
    lab.files("ev", "id STRING")
    lab.land("ev", "a.json", '{"id": "a"}\n')
    lab.land("ev", "b.json", '{"id": "b"}\n')
    lab.refresh("ev")
    lab.land("ev", "a.json", '{"id": "changed"}\n')
    lab.land("ev", "c.json", '{"id": "c"}\n')

    outcome = lab.refresh("ev")

    assert (outcome.state, outcome.ok, outcome.rows_out) == ("SUCCEEDED", False, 1)
    (problem,) = outcome.problems
    assert isinstance(problem, FileChangedError)
    assert problem.where is not None
    assert problem.where.endswith("/ev/a.json")
    assert ids(lab, "ev") == ["a", "b", "c"]
    again = lab.refresh("ev")
    assert (again.strategy, len(again.problems)) == ("noop", 1)


def test_a_file_is_read_when_it_has_settled(lab):
    lab.files("ev", "id STRING", settle="1 minute")
    lab.land("ev", "a.json", '{"id": "a"}\n')
    waiting = lab.refresh("ev")
    assert (waiting.strategy, lab.rows("ev")) == ("noop", [])
    # Up to the file, everything is there.
    assert waiting.data_timestamp <= lab.clock()
    lab.clock.advance(hours=1)

    assert lab.refresh("ev").rows_out == 1


def test_files_are_known_after_their_names_left_the_receipts(lab, monkeypatch):
    lab.files("ev", "id STRING")
    declare(lab, "SELECT id FROM ev")
    for number in range(300):
        lab.land("ev", f"{number}.json", f'{{"id": "{number}"}}\n{{"id": "x{number}"\n')
    lab.refresh("t")
    assert len(lab.receipt("ev").positions[lab.receipt("ev").table].recent) == 300
    # Beyond this many, a batch reads several files in a task.
    assert {row["line"] for row in lab.quarantine("ev")} == {2}
    lab.land("ev", "more.json", '{"id": "more"}\n')
    lab.refresh("t")
    position = lab.receipt("ev").positions[lab.receipt("ev").table]
    assert (position.flushed_seq, [mark.path for mark in position.recent]) == (1, ["more.json"])
    lab.restart()

    assert lab.refresh("t").reason.startswith("NOTHING_NEW")
    lab.land("ev", "7.json", '{"id": "changed"}\n')
    assert [problem.code for problem in lab.refresh("ev").problems] == ["FILE_CHANGED"]
    assert len(lab.rows("ev")) == len(set(ids(lab, "t"))) == 301
    assert lab.diff("t") == []


def test_much_input_is_read_in_batches_of_bounded_size(lab, monkeypatch):
    monkeypatch.setattr(files_reader, "BATCH_FILES", 2)
    lab.files("ev", "id STRING")
    declare(lab, "SELECT id FROM ev")
    for number in range(3):
        lab.land("ev", f"{number}.json", f'{{"id": "{number}"}}\n')
        lab.clock.advance(minutes=1)

    lab.refresh("t")

    assert lab.receipt("ev").seq == 2
    assert lab.receipt("ev").data_timestamp == lab.receipt("t").data_timestamp == lab.clock()
    assert ids(lab, "t") == ["0", "1", "2"]


def test_a_log_gains_columns_and_refuses_other_changes(lab):
    lab.files("ev", "id STRING")
    declare(lab, "SELECT id FROM ev")
    lab.land("ev", "1.json", '{"id": "a", "n": 1}\n')
    lab.refresh("t")
    folder = lab.settings.root / "landing" / "ev"
    options = f"WITH ('connector' = 'files', 'format' = 'json', 'settle' = '0 seconds', 'path' = '{folder}')"
    lab.declare(f"CREATE SOURCE ev (id STRING, n INT) {options}")
    lab.land("ev", "2.json", '{"id": "b", "n": 2}\n')
    follow(lab)
    assert lab.rows("ev") == [{"id": "a", "n": None}, {"id": "b", "n": 2}]
    lab.declare(f"CREATE SOURCE ev (id STRING, n STRING) {options}")
    lab.land("ev", "3.json", '{"id": "c", "n": "3"}\n')
    assert lab.refresh("ev").error.code == "DEFINITION_CHANGED"
    lab.declare(f"CREATE SOURCE ev (id STRING, n INT, PRIMARY KEY (id)) {options}")
    assert "PRIMARY KEY was added" in str(lab.refresh("ev").error)
    assert len(lab.rows("ev")) == 2


@pytest.mark.long
def test_a_log_that_another_wrote_to_stands_still_until_it_is_restored(lab):
    lab.files("ev", "id STRING")
    lab.land("ev", "1.json", '{"id": "a"}\n')
    lab.refresh("ev")
    session = lab.runtime.sessions.root
    session.sql(f"DELETE FROM delta.`{lab.path('ev')}`")
    lab.land("ev", "2.json", '{"id": "b"}\n')

    failed = lab.refresh("ev")

    assert isinstance(failed.error, ForeignWriteError)
    statement = str(failed.error).split("restore it with ")[1].split(", then")[0].rstrip(".")
    session.sql(statement)
    lab.restart()
    assert lab.refresh("ev").rows_out == 1
    assert ids(lab, "ev") == ["a", "b"]


def test_a_landing_folder_that_is_not_there_is_an_error_that_names_it(lab):
    folder = lab.files("ev", "id STRING")
    lab.land("ev", "1.json", '{"id": "a"}\n')
    lab.refresh("ev")
    hidden = folder.rename(folder.with_name("_away"))

    failed = lab.refresh("ev")

    assert isinstance(failed.error, SourceError)
    assert str(folder) in str(failed.error)
    assert failed.error.retry_helps
    hidden.rename(folder)
    assert lab.refresh("ev").reason.startswith("NOTHING_NEW")


@pytest.mark.parametrize("format", long_but(["csv"], ["json", "csv"]))
def test_an_empty_folder_gives_an_empty_table(lab, format):  # noqa: A002 - the name of the option
    lab.files("ev", "id STRING", format=format)
    declare(lab, "SELECT id FROM ev", "(PRIMARY KEY (id)) WITH ('merge' = 'first_row')")

    outcome = lab.refresh("t")

    assert (outcome.state, lab.rows("t")) == ("SUCCEEDED", [])
    assert outcome.data_timestamp >= lab.clock() - timedelta(seconds=1)
    lab.land("ev", f"1.{format}", [{"id": "a"}])
    follow(lab)
    assert lab.rows("t") == [{"id": "a"}]


@pytest.fixture
def taken(monkeypatch):
    """Open the short way to little data too; the sources that took it."""
    sources = []

    def read(spark, spec, root, files):
        sources.append(str(spec.name))
        return plain_json.read_plain(spark, spec, root, files)

    monkeypatch.setattr(plain_json, "SMALL_BYTES", 0)
    monkeypatch.setattr(files_reader, "read_plain", read)
    return sources


@pytest.mark.parametrize("few", few_or_many((1, 3, 7, 8), range(10)))
def test_one_flaw_in_otherwise_plain_lines_is_found(lab, taken, few):
    flaws = [
        (b'{"id": "\xff", "n": 1}', "NOT_UTF8"),
        (b'{"id": "x", "undeclared": "\xff"}', "NOT_UTF8"),
        (b'{"id": "x", "\xc3\x28": 1}', "NOT_UTF8"),
        (b'{"id": "x", "n": "one"}', "NOT_JSON"),
        (b'{"id": "x", "n": 1.5}', "NOT_JSON"),
        (b'{"id": "x" "n": 1}', "NOT_JSON"),
        (b'{"id": "x", "n": }', "NOT_JSON"),
        (b'{"id": "x", "undeclared": [1}', "NOT_JSON"),
        (b'{"id": "x", "ts": "soon"}', "NOT_JSON"),
        (b"{id}", "NOT_JSON"),
    ]
    flaws = [flaws[number] for number in few]
    lab.files("ev", COLUMNS)
    for number, (line, error) in enumerate(flaws):
        lab.land("ev", f"{number}.json", GOOD.encode() + line + b"\n" + GOOD.encode())

        outcome = lab.refresh("ev")

        assert outcome.error is None, outcome.error
        assert errors(lab, "ev")[-1] == (f"{number}.json", 2, error)
        assert (outcome.rows_out, outcome.rejected) == (2, 1)
    # Bytes that are no text are found before Spark reads; each other flaw by its reader.
    assert len(taken) == sum(error != "NOT_UTF8" for _, error in flaws)


def test_plain_lines_and_doubtful_ones_give_the_same_rows(lab, taken):
    lines = [
        '{"id": "a", "n": 1, "ts": "2026-01-01T00:00:00Z"}',
        '{"n": null, "id": "\\u00e9\\n\\"", "ts": "2026-01-01 05:06:07.123456"}',
        '{"id": 5, "ts": "2026-01-01T00:00:00+02:00", "undeclared": [1, "x"]}',
        '{"id": true, "n": 3, "n": 4}',
        "{}",
        '{"ID": "other case"}',
    ]
    for name in ("plain", "doubtful"):
        lab.files(name, COLUMNS + ", r BIGINT METADATA FROM 'record'")
        lab.land(name, "1.json", "\n".join(lines) + "\n" + ('{"undeclared": {}}\n' if name == "doubtful" else ""))
        assert lab.refresh(name).rejected == 0

    assert lab.rows("plain") == [row for row in lab.rows("doubtful") if row["r"] <= len(lines)]
    assert taken == ["plain"]


def test_a_name_that_is_no_utf_8_and_a_header_that_is_none_stop_no_other_file(lab):
    lab.files("ev", "id STRING, n INT", format="csv", header="true")
    folder = lab.settings.root / "landing" / "ev"
    lab.land("ev", "1.csv", "id,n\na,1\n")
    (folder / os.fsdecode(b"caf\xe9.csv")).write_text("id,n\nb,2\n")
    lab.land("ev", "2.csv", "x" * 200_000 + "\nc,3\n")
    lab.land("ev", "3.csv", b"id,n\rd,4\re,5\r")
    lab.land("ev", "4.csv", "id,n\nf,6\n")

    outcome = lab.refresh("ev")

    assert outcome.error is None
    assert ["no UTF-8" in str(problem) for problem in outcome.problems] == [True]
    assert [row["id"] for row in lab.rows("ev")] == ["a", "f"]
    assert outcome.rejected > 0


@pytest.mark.parametrize("restarted", long_but([True], [True, False]))
def test_a_log_that_was_put_back_reads_again_what_it_no_longer_has_each_file_once(lab, restarted):
    lab.files("ev", "id STRING")
    folder = lab.settings.root / "landing" / "ev"

    def land(numbers):
        for number in numbers:
            (folder / f"{number:04d}.json").write_text(f'{{"id": "{number}"}}\n')

    def ids():
        return sorted(int(row["id"]) for row in lab.rows("ev"))

    land(range(150))
    lab.refresh("ev")
    version = newest_version(lab.path("ev"))
    # Past 200 names, and again: they are noted beside the log.
    for begin in (150, 300, 450):
        land(range(begin, begin + 150))
        lab.refresh("ev")
    assert ids() == list(range(600))
    lab.runtime.sessions.root.sql(f"RESTORE TABLE delta.`{lab.path('ev')}` TO VERSION AS OF {version}")
    for begin in (600, 750, 900, 1050):
        land(range(begin, begin + 150))
        if restarted:
            lab.restart()
        assert lab.refresh("ev").error is None

    assert ids() == list(range(1200))


@pytest.mark.long
def test_a_log_that_was_put_back_takes_numbers_that_nothing_had_before(lab):
    """A reader knows a log by the number of its newest batch: the same number twice would be nothing new."""
    lab.files("ev", "id STRING, v INT")
    lab.declare("CREATE MATERIALIZED TABLE t FRESHNESS = INTERVAL '1' MINUTE AS SELECT id, v + 1 AS w FROM ev")
    for number in range(3):
        lab.land("ev", f"{number}.json", f'{{"id": "{number}", "v": 1}}\n')
        assert lab.refresh("ev").error is None
    assert lab.refresh("t").error is None
    back = read_newest(lab.path("ev"))
    assert back is not None
    root = lab.runtime.sessions.root
    root.sql(f"RESTORE TABLE delta.`{lab.path('ev')}` TO VERSION AS OF {back.version - 2}")
    for number in range(1, 3):
        (lab.settings.root / "landing" / "ev" / f"{number}.json").unlink()
    # As many batches as were taken away, with other rows.
    for number in range(1, 3):
        lab.land("ev", f"again{number}.json", f'{{"id": "again{number}", "v": 2}}\n')
        assert lab.refresh("ev").error is None
    follow(lab)
    assert sorted(row["id"] for row in lab.rows("t")) == ["0", "again1", "again2"]
    assert last_seq(lab.path("ev")) == 5

    root.sql(f"RESTORE TABLE delta.`{lab.path('t')}` TO VERSION AS OF 1")
    lab.land("ev", "one_more.json", '{"id": "one more", "v": 3}\n')
    assert lab.refresh("ev").error is None
    follow(lab)
    assert sorted(row["id"] for row in lab.rows("t")) == ["0", "again1", "again2", "one more"]
