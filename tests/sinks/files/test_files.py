"""Files as a sink, on a disk: whole versions, the one that a reader finds, and folders that are swept."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from freshline.errors import SinkError, SinkFencedError, SinkHistoryError, SinkRefusedError, SinkSchemaError
from freshline.sinks.files.folder import LocalFolder
from freshline.sinks.files.sink import FilesSink
from freshline.values.sink_position import SinkPosition
from tests.sinks.delivering import Host, Rows, Sending, position, sink_spec

LOCAL = datetime.fromisoformat("2026-03-29 02:30:00.000001")


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "out"


@pytest.fixture
def send(tmp_path, folder):
    def make(**options):
        return Sending(sink_spec(FilesSink(path=str(folder), **options)), Host(tmp_path))

    return make


def numbers(*values):
    return pa.table({"id": pa.array(values, pa.int32()), "v": [f"v{value}" for value in values]})


def names(folder):
    return sorted(str(each.relative_to(folder)) for each in folder.rglob("*") if each.is_file())


def current(folder):
    return json.loads((folder / "CURRENT").read_text())


def rows_of_current(folder):
    """As another program reads it."""
    return pq.read_table(folder / current(folder)["folder"])["id"].to_pylist()


def test_each_version_is_a_whole_folder_and_current_names_the_newest(send, folder):
    out = send(keep=2, rows_per_file=2)
    assert out.writer.position() is None
    assert not folder.exists()
    sent = out.whole(numbers(1, 2, 3), 1)
    assert (sent.written, sent.deleted) == (3, 0)
    assert names(folder) == [
        ".freshline-lock",
        "CURRENT",
        "v=1/_SUCCESS",
        "v=1/part-00000.parquet",
        "v=1/part-00001.parquet",
    ]
    assert SinkPosition.from_json((folder / "CURRENT").read_text()) == position(1)
    assert rows_of_current(folder) == [1, 2, 3]
    out.whole(numbers(4), 2)
    out.whole(numbers(), 3)
    assert out.writer.position() == position(3)
    assert [name for name in names(folder) if name.startswith("v=")] == [
        "v=2/_SUCCESS",
        "v=2/part-00000.parquet",
        "v=3/_SUCCESS",
        "v=3/part-00000.parquet",
    ]
    # No row, and still the columns.
    assert pq.read_table(folder / "v=3").schema.names == ["id", "v"]
    assert rows_of_current(folder) == []
    assert out.read(numbers().schema).num_rows == 0


@pytest.mark.parametrize("point", ["sink-before-commit", "sink-committed"])
def test_a_stop_leaves_the_version_before_or_the_one_after(send, folder, point):
    out = send()
    out.whole(numbers(1), 1)
    with out.stopping_at(point):
        out.whole(numbers(2), 2)
    # Nobody has looked since, and a reader has a whole version.
    assert rows_of_current(folder) == [1]
    done = point == "sink-committed"
    assert out.writer.position() == position(2 if done else 1)
    assert rows_of_current(folder) == [2 if done else 1]
    out.whole(numbers(3), 3)
    assert [each.name for each in sorted(folder.iterdir()) if not each.name.startswith((".", "C"))] == (
        ["v=1", "v=2", "v=3"] if done else ["v=1", "v=2"]
    )
    assert rows_of_current(folder) == [3]


def test_folders_that_a_killed_process_left_are_swept(send, folder):
    out = send()
    out.whole(numbers(1), 1)
    for name in ("_writing-1", "_removing-2", "v=7"):
        (folder / name).mkdir()
        (folder / name / "part-00000.parquet").write_bytes(b"half")
    out.whole(numbers(2), 2)
    assert {each.name for each in folder.iterdir()} == {".freshline-lock", "CURRENT", "v=1", "v=2"}
    assert rows_of_current(folder) == [2]


def test_an_engine_that_wakes_up_late_writes_nothing(send, folder):
    out, zombie = send(keep=1), send(keep=1)
    out.whole(numbers(1), 1)

    class Late(Rows):
        def read_upserts(self):
            out.whole(numbers(2), 2)
            out.whole(numbers(3), 3)
            yield from super().read_upserts()

    # Its folder was swept, so another try looks again.
    with pytest.raises(SinkError):
        zombie.whole(Late(numbers(66)), 2)
    assert rows_of_current(folder) == [3]
    with pytest.raises(SinkHistoryError):
        zombie.whole(numbers(66), 2)


@pytest.mark.parametrize("others", [[2], [2, 3], [3]])
def test_an_engine_that_sleeps_after_its_last_look_is_below_the_others_or_refused(send, folder, tmp_path, others):
    out = send()
    out.whole(numbers(1), 1)

    class Sleeping(Host):
        def failpoint(self, name):
            if name == "sink-before-commit":
                for number in others:
                    shutil.copytree(folder / "v=1", folder / f"v={number}")
                    (folder / f"v={number}" / "_SUCCESS").write_text(
                        json.dumps({**json.loads(position(number).to_json()), "files": ["part-00000.parquet"]})
                    )

    with pytest.raises(SinkFencedError):
        Sending(out.spec, Sleeping(tmp_path)).whole(numbers(66), 2)
    assert {each.name for each in folder.iterdir() if each.name.startswith(("v", "_"))} == {
        "v=1",
        *(f"v={number}" for number in others),
    }
    assert out.writer.position() == position(others[-1])
    assert rows_of_current(folder) == [1]


def test_current_never_points_back(send, folder):
    out = send()
    out.whole(numbers(1), 1)
    before = (folder / "CURRENT").read_bytes()
    out.whole(numbers(2), 2)
    (folder / "CURRENT").write_bytes(before)
    # Whoever looks points to the newest.
    LocalFolder(str(folder)).point()
    assert rows_of_current(folder) == [2]
    (folder / "CURRENT").unlink()
    assert out.writer.position() == position(2)
    assert rows_of_current(folder) == [2]


def test_other_owners_epochs_and_versions_are_refused(send, folder):
    out = send()
    out.whole(numbers(1), 5, epoch=2)
    with pytest.raises(SinkFencedError):
        out.whole(numbers(2), 6, epoch=1)
    with pytest.raises(SinkFencedError):
        out.whole(numbers(2), 6, epoch=2, owner="other 1")
    with pytest.raises(SinkHistoryError):
        out.whole(numbers(2), 4, epoch=2)
    assert rows_of_current(folder) == [1]
    # Of a sink that is new, and counts from 1.
    out.whole(numbers(2), 1, epoch=2, owner="other 1", takes_over=True)
    assert (rows_of_current(folder), current(folder)["folder"]) == ([2], "v=2")


def test_files_of_others_are_never_touched(send, folder):
    (folder / "v=3").mkdir(parents=True)
    (folder / "v=3" / "part-0.parquet").write_bytes(b"theirs")
    (folder / "v=3" / "_SUCCESS").write_bytes(b"")
    (folder / "readme").write_bytes(b"theirs")
    out = send(keep=1)
    with pytest.raises(SinkSchemaError, match="has not written"):
        out.whole(numbers(1), 1)
    for version in (1, 2):
        out.whole(numbers(version), version, takes_over=True)
    assert current(folder)["folder"] == "v=5"
    assert (folder / "v=3" / "part-0.parquet").read_bytes() == (folder / "readme").read_bytes() == b"theirs"
    assert (folder / "v=3" / "_SUCCESS").read_bytes() == b""


def test_a_folder_without_rights_is_refused(send, folder):
    folder.write_bytes(b"a file")
    with pytest.raises(SinkRefusedError, match="cannot be written"):
        send().whole(numbers(1), 1)


KINDS = {
    "flag": (pa.bool_(), [True, False, None]),
    "tiny": (pa.int8(), [-128, 127, None]),
    "large": (pa.int64(), [-(2**63), 2**63 - 1, None]),
    "real": (pa.float32(), [1.5, 3.4028234663852886e38, float("-inf")]),
    "double": (pa.float64(), [0.1, float("inf"), 5e-324]),
    "money": (pa.decimal128(38, 20), [Decimal("0.00000000000000000001"), Decimal("-123456789012345678.5"), None]),
    "day": (pa.date32(), [date(1, 1, 1), date(9999, 12, 31), None]),
    "moment": (
        pa.timestamp("us", "UTC"),
        [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999999, UTC), None],
    ),
    "time": (pa.timestamp("us"), [LOCAL.replace(year=1582), LOCAL, None]),
    "text": (pa.string(), ['"\U0001f600",\r\n\t\x00\\', "", None]),
    "bytes": (pa.binary(), [bytes(range(256)), b"", None]),
    'n,"\n': (pa.string(), ["NULL", None, " a "]),
}


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_names_types_and_values_come_back_as_they_are(send, kind):
    schema = pa.schema([pa.field(name, of) for name, (of, _) in KINDS.items()])
    rows = pa.table([values for _, values in KINDS.values()], schema=schema)
    out = send(format=kind)
    out.whole(rows, 1)
    assert out.read(schema).to_pylist() == rows.to_pylist()


def test_parquet_has_values_within_values(send):
    within = pa.struct([("a", pa.list_(pa.int32())), ("m", pa.map_(pa.string(), pa.timestamp("us", "UTC")))])
    rows = pa.table({"id": [1, 2], "s": pa.array([{"a": [1, None], "m": [("k", None)]}, None], within)})
    out = send()
    out.whole(rows, 1)
    assert out.read(rows.schema).to_pylist() == rows.to_pylist()


def test_csv_is_as_rfc_4180_has_it(send, folder):
    rows = pa.table({"a b": ['x, "y"\n', None, ""], "n": pa.array([1.0, None, float("nan")])})
    send(format="csv").whole(rows, 1)
    assert (folder / "v=1" / "part-00000.csv").read_bytes() == (b'"a b","n"\r\n"x, ""y""\n",1\r\n,\r\n"",NaN\r\n')


def test_types_and_paths_that_files_have_not_are_refused():
    parquet, csv = FilesSink(path="/x"), FilesSink(path="/x", format="csv")
    assert parquet.refuses("STRUCT<VARIANT: INT>", is_key=False) is None
    assert parquet.refuses("STRUCT<A: VARIANT>", is_key=False) is not None
    assert parquet.refuses("VARIANT", is_key=False) is not None
    assert csv.refuses("VARIANT", is_key=False) is None
    assert csv.refuses("INTERVAL DAY TO SECOND", is_key=False) is not None
    assert csv.find_column_problems(["a"]) is not None
    assert parquet.find_column_problems(["a"]) is None
    assert FilesSink(path="hdfs://name:8020/a/b").dataset == ("hdfs://name:8020", "/a/b")
