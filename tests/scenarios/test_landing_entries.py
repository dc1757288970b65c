"""Nothing that lies in a landing folder multiplies rows, or stops what lies beside it."""

from __future__ import annotations

import bz2
import errno
import gzip
import itertools
import os
import re

import pyarrow as pa
import pytest

from freshline.errors import FilesMisreadError
from freshline.sources.files import lines, plain_json
from freshline.sources.files import reader as files_reader
from freshline.sources.files.lines import inspect_files, pieces_of
from freshline.sources.files.position import FileMark
from freshline.values.names import TableName
from tests.lanes import long_but

# Every character that is printed, but the one that parts folders; and others that a name may have.
CHARACTERS = [chr(code) for code in range(32, 127) if chr(code) != "/"] + ["ü", "✓", "\n", "\t", "\u2028", "\x7f"]
# Names that other programs take for patterns, escapes, schemes or folders.
MIXED = [
    "plain",
    "star*",
    "q?x",
    "[b]",
    "{c,d}",
    "back\\slash",
    "sp ace",
    "per%20cent",
    "#h",
    "plus+",
    "co:lon",
    "quo'te",
    'dou"ble',
    "ba`ck",
    "a=1",
    "${env:HOME}",
    "*",
    "**",
    "%",
    "%2F",
    "+",
    "file:",
    "~",
    "x._COPYING_",
    "tail ",
    "c.gz.json",
    "[!a-z]*{x,?}\\*",
]


def names(count):
    """So many names: each character in front, in the middle and at the end, and pairs of the odd ones."""
    alone = [f"{front}{char}{end}" for char in CHARACTERS for front, end in (("x", "y"), ("x", ""), ("", "y"))]
    pairs = ["".join(pair) for pair in itertools.product("*?[]{}\\%#:+ ", repeat=2)]
    # Names that begin so are no data.
    found = [name for name in [*MIXED, *alone, *pairs] if not name.startswith((".", "_")) and name not in (".", "..")]
    return list(dict.fromkeys(found))[:count]


def fill(lab, folder, wanted, row, suffix=""):
    for number, name in enumerate(wanted):
        # Every fourth lies in a folder with such a name.
        place = folder / f"{name}d" / f"{name}{suffix}" if number % 4 == 3 else folder / f"{name}{suffix}"
        place.parent.mkdir(exist_ok=True)
        place.write_text(row(number))


@pytest.mark.parametrize(
    ("key", "count", "kind"),
    long_but(
        [(False, 400, "csv"), (True, 400, "json"), (True, 20, "csv")],
        itertools.product((False, True), (20, 400), ("json", "csv")),
    ),
)
def test_each_row_is_in_the_log_once_whatever_its_file_is_called(lab, key, count, kind):
    folder = lab.files("ev", "id STRING", format=kind, primary_key=["id"] if key else [])
    wanted = names(count)
    row = '{{"id": "{}"}}\n'.format if kind == "json" else "id\n{}\n".format
    fill(lab, folder, wanted, row, f".{kind}")

    outcome = lab.refresh("ev")

    assert outcome.error is None, outcome.error
    assert sorted(row["id"] for row in lab.rows("ev")) == sorted(str(number) for number in range(len(wanted)))
    assert outcome.rejected == 0
    assert lab.refresh("ev").reason.startswith("NOTHING_NEW")


def test_much_data_in_files_with_odd_names_is_read_once_too(lab, monkeypatch):
    # Above this size Spark's tasks read.
    monkeypatch.setattr(files_reader, "SMALL_BYTES", 100)
    monkeypatch.setattr(files_reader, "LEAST_TASK_BYTES", 64)
    folder = lab.files("ev", "id STRING, f STRING METADATA FROM 'file', r BIGINT METADATA FROM 'record'")
    wanted = names(120)
    fill(lab, folder, wanted, lambda number: f'{{"id": "{number}"}}\n\n{{"id": "{number}b"}}\n')

    outcome = lab.refresh("ev")

    assert outcome.error is None, outcome.error
    rows = lab.rows("ev")
    assert len(rows) == len({row["id"] for row in rows}) == 2 * len(wanted)
    assert {row["r"] for row in rows} == {1, 3}
    assert {str(folder / row["f"]) for row in rows} == {str(file) for file in folder.rglob("*") if file.is_file()}


def test_a_union_read_has_each_row_of_files_with_odd_names_once(lab):
    folder = lab.files("ev", "id STRING")
    lab.land("ev", "first.json", [{"id": "first"}])
    lab.refresh("ev")
    wanted = names(70)
    fill(lab, folder, wanted, '{{"id": "{}"}}\n'.format)

    rows, _ = lab.union("ev")

    assert sorted(row["id"] for row in rows) == sorted(["first", *(str(number) for number in range(len(wanted)))])


def test_a_file_that_was_read_twice_or_never_fails_the_batch_and_nothing_is_committed(lab, monkeypatch):
    lab.files("ev", "id STRING")
    for name in "abc":
        lab.land("ev", f"{name}.json", [{"id": name}, {"id": name}])

    def twice_and_never(*given, **more):
        a, _, c = pieces_of(*given, **more)
        return [a, a, c]

    with monkeypatch.context() as patch:
        patch.setattr(files_reader, "pieces_of", twice_and_never)
        outcome = lab.refresh("ev")
    assert outcome.error is not None
    assert outcome.error.code == "FILES_MISREAD"
    assert outcome.error.retry_helps
    assert lab.rows("ev") == []

    assert lab.refresh("ev").rows_out == 6


def test_a_name_that_spark_takes_for_a_pattern_fails_the_batch_before_it_is_committed(lab, monkeypatch):
    # As if names that Spark mistakes were handed to it.
    monkeypatch.setattr(plain_json, "PLAIN_PATH", re.compile(".+"))
    monkeypatch.setattr(plain_json, "SMALL_BYTES", 0)
    lab.files("ev", "id STRING")
    for name in ("star*", "b"):
        lab.land("ev", f"{name}.json", [{"id": name}])

    outcome = lab.refresh("ev")

    assert (outcome.error.code, lab.rows("ev")) == ("FILES_MISREAD", [])
    monkeypatch.undo()
    assert lab.refresh("ev").rows_out == 2


def test_a_line_of_two_hundred_megabytes_is_cut_before_it_is_in_memory(lab):
    folder = lab.files("ev", "id STRING", max_record_bytes="1000")
    block = b'"' + b"x" * (1 << 20)
    with (folder / "long.json").open("wb") as plain, gzip.open(folder / "long.json.gz", "wb", 1) as packed:
        for file in (plain, packed):
            file.write(b'{"id": "before"}\n{"id": ')
            for _ in range(200):
                file.write(block)
            file.write(b'"}\n{"id": "behind"}\n')

    outcome = lab.refresh("ev")

    assert outcome.error is None, outcome.error
    assert sorted(row["id"] for row in lab.rows("ev")) == ["before", "before", "behind", "behind"]
    found = lab.quarantine("ev")
    assert [(row["file"], row["line"], row["error"]) for row in found] == [
        ("long.json", 2, "TOO_LARGE"),
        ("long.json.gz", 2, "TOO_LARGE"),
    ]
    assert {len(row["raw"]) for row in found} == {64 << 10}


def test_links_are_not_followed_and_each_is_a_problem_that_says_what_to_do(lab, tmp_path):
    folder = lab.files("ev", "id STRING")
    lab.land("ev", "good.json", [{"id": "good"}])
    (tmp_path / "secret.json").write_text('{"id": "secret"}\n')
    (folder / "itself").symlink_to(".")
    (folder / "up").symlink_to("..")
    (folder / "file.json").symlink_to(tmp_path / "secret.json")
    (folder / "nowhere.json").symlink_to(tmp_path / "nothing")

    outcome = lab.refresh("ev")

    assert outcome.error is None, outcome.error
    assert [row["id"] for row in lab.rows("ev")] == ["good"]
    assert sorted(problem.where.rpartition("/")[2] for problem in outcome.problems) == [
        "file.json",
        "itself",
        "nowhere.json",
        "up",
    ]
    assert all("follow-links" in problem.message for problem in outcome.problems)


def test_links_that_are_allowed_are_followed_and_loops_are_not(lab, tmp_path):
    folder = lab.files("ev", "id STRING", follow_links="true")
    other = tmp_path / "other"
    other.mkdir()
    (other / "there.json").write_text('{"id": "there"}\n')
    (other / "back").symlink_to(folder)
    (folder / "itself").symlink_to(".")
    (folder / "other").symlink_to(other)
    (folder / "linked.json").symlink_to(other / "there.json")

    outcome = lab.refresh("ev")

    assert outcome.error is None, outcome.error
    assert [row["id"] for row in lab.rows("ev")] == ["there", "there"]
    assert {problem.where.rpartition("/")[2] for problem in outcome.problems} == {"itself", "back"}


def test_a_file_that_cannot_be_read_goes_to_quarantine_with_its_reason_and_the_rest_is_read(lab):
    lab.files("ev", "id STRING")
    text = b"".join(b'{"id": "%d"}\n' % number for number in range(2000))
    zstd, lz4 = (pa.compress(text, codec=codec, asbytes=True) for codec in ("zstd", "lz4"))
    whole = {".gz": gzip.compress(text), ".bz2": bz2.compress(text), ".zst": zstd, ".lz4": lz4}
    for ending, packed in whole.items():
        lab.land("ev", f"good.json{ending}", packed)
        lab.land("ev", f"garbage.json{ending}", b"\x00garbage\n" * 50)
        lab.land("ev", f"cut.json{ending}", packed[: len(packed) // 2])
        lab.land("ev", f"upper.JSON{ending.upper()}", packed)
    for ending in (".snappy", ".deflate", ".xz"):
        lab.land("ev", f"other.json{ending}", b"garbage\n")
    lab.land("ev", "plain.json", text)

    outcome = lab.refresh("ev")

    assert outcome.error is None, outcome.error
    assert outcome.rows_out == 9 * 2000
    found = lab.quarantine("ev")
    broken = [f"{name}.json{ending}" for ending in whole for name in ("garbage", "cut")]
    assert sorted(row["file"] for row in found) == sorted(
        [*broken, *(f"other.json{ending}" for ending in (".snappy", ".deflate", ".xz"))]
    )
    assert {(row["line"], row["error"], row["raw"]) for row in found} == {(None, "UNREADABLE", b"")}
    assert all(row["message"].startswith("the file cannot be read: ") for row in found)
    assert lab.refresh("ev").reason.startswith("NOTHING_NEW")


def test_a_file_that_is_taken_away_and_comes_back_is_read(lab, monkeypatch):
    folder = lab.files("ev", "id STRING")
    for name in ("moved", "good"):
        lab.land("ev", f"{name}.json", [{"id": name}])

    def meanwhile(*given):
        (folder / "moved.json").rename(folder.parent / "moved")
        return inspect_files(*given)

    with monkeypatch.context() as patch:
        patch.setattr(files_reader, "inspect_files", meanwhile)
        error = lab.refresh("ev").error
    assert error is not None
    assert (error.code, error.retry_helps, lab.rows("ev")) == ("FILES_MISREAD", True, [])
    assert lab.refresh("ev").rows_out == 1
    (folder.parent / "moved").rename(folder / "moved.json")

    assert lab.refresh("ev").rows_out == 1
    assert lab.quarantine("ev") == []


@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE, errno.ESTALE, errno.ENOTCONN])
def test_an_error_that_is_not_of_the_file_commits_nothing_and_the_file_is_read_later(lab, monkeypatch, number):
    lab.files("ev", "id STRING")
    for name in ("bad", "good"):
        lab.land("ev", f"{name}.json", [{"id": name}])
    open_file = lines.open_file

    def failing(path, reading):
        if b"bad" in path:
            raise OSError(number, os.strerror(number))
        return open_file(path, reading)

    with monkeypatch.context() as patch:
        patch.setattr(lines, "open_file", failing)
        error = lab.refresh("ev").error
    assert error is not None
    assert (error.code, error.retry_helps, lab.rows("ev")) == ("SOURCE", True, [])
    assert f"({os.strerror(number)})" in error.message
    assert "bad.json" in error.where

    assert lab.refresh("ev").rows_out == 2
    assert lab.quarantine("ev") == []


@pytest.mark.slow
@pytest.mark.parametrize("more", [{}, {"multi_line": "true"}], ids=["lines", "records over lines"])
def test_a_file_that_is_cut_behind_the_plan_of_a_union_read_fails_the_query(lab, monkeypatch, more):
    folder = lab.files("ev", "id STRING, note STRING", format="csv", **more)
    lab.land("ev", "first.csv", "id,note\n0,a\n")
    assert lab.refresh("ev").rows_out == 1
    # Too much for the engine's own process, so that each query reads it again.
    lab.land("ev", "large.csv", "id,note\n" + "".join(f"{number:05},{'x' * 93}\n" for number in range(60_000)))
    confirm = files_reader.FilesReader.confirm

    def then_cut(reader, portion, found):
        confirm(reader, portion, found)
        with (folder / "large.csv").open("r+b") as file:
            # Between two records.
            file.truncate(8 + 100 * 50_000)

    assert len(lab.union("ev")[0]) == 60_001
    monkeypatch.setattr(files_reader.FilesReader, "confirm", then_cut)
    with pytest.raises(Exception, match=lines.ENDED):
        lab.union("ev")


def test_a_file_that_is_locked_between_the_listing_and_the_reading_is_unreadable(lab, monkeypatch):
    folder = lab.files("ev", "id STRING")
    for name in ("locked", "pipe", "good"):
        lab.land("ev", f"{name}.json", [{"id": name}])

    def meanwhile(*given):
        # The superuser may read what nobody may, so a loop of links stands for what cannot be opened.
        (folder / "locked.json").unlink()
        (folder / "locked.json").symlink_to("locked.json")
        (folder / "pipe.json").unlink()
        os.mkfifo(folder / "pipe.json")
        return inspect_files(*given)

    monkeypatch.setattr(files_reader, "inspect_files", meanwhile)
    outcome = lab.refresh("ev")

    assert outcome.error is None, outcome.error
    assert [row["id"] for row in lab.rows("ev")] == ["good"]
    assert {(row["file"], row["error"]) for row in lab.quarantine("ev")} == {
        (f"{name}.json", "UNREADABLE") for name in ("locked", "pipe")
    }


def test_a_file_that_grows_while_it_is_read_fails_the_batch_and_is_read_when_it_is_complete(lab, monkeypatch):
    lab.files("ev", "id STRING")
    lab.land("ev", "a.json", [{"id": "a"}])

    def growing(root, *given, **more):
        pieces = pieces_of(root, *given, **more)
        with (root / "a.json").open("a") as file:
            file.write('{"id": "b"}\n')
        return pieces

    with monkeypatch.context() as patch:
        patch.setattr(files_reader, "pieces_of", growing)
        outcome = lab.refresh("ev")
    assert (outcome.error.code, lab.rows("ev")) == (FilesMisreadError.code, [])

    assert [row["id"] for row in lab.refresh("ev") and lab.rows("ev")] == ["a", "b"]


def test_a_folder_that_cannot_be_listed_is_a_problem_and_the_rest_is_read(lab, monkeypatch):
    folder = lab.files("ev", "id STRING")
    lab.land("ev", "good.json", [{"id": "good"}])
    deep = folder
    # Deeper than the system takes a path: every folder is there, the last ones have no path.
    handle = os.open(folder, os.O_RDONLY)
    for _ in range(30):
        os.mkdir("d" * 200, dir_fd=handle)
        inner = os.open("d" * 200, os.O_RDONLY, dir_fd=handle)
        os.close(handle)
        handle, deep = inner, deep / ("d" * 200)
    os.close(handle)

    outcome = lab.refresh("ev")

    assert outcome.error is None, outcome.error
    assert [row["id"] for row in lab.rows("ev")] == ["good"]
    assert len(outcome.problems) == 1


@pytest.mark.long
@pytest.mark.slow
def test_wide_csv_ends_in_a_bounded_time(lab):
    lab.files("wide", "c7 INT, c19999 STRING", format="csv")
    header = ",".join(f"c{number}" for number in range(20_000))
    line = ",".join(str(number) for number in range(20_000))
    lab.land("wide", "a.csv", f"{header}\n" + f"{line}\n" * 50 + f"{line},{line}\n")
    lab.files("narrow", "id STRING, shape STRING", format="csv", header="false")
    points = ",".join("1 2" for _ in range(30_000))
    lab.land("narrow", "a.csv", f'a,"{points}"\nb,"{points}",c\n{points}\nd,x"{points}"\ne,f\n')

    for name in ("wide", "narrow"):
        outcome = lab.refresh(name)
        assert outcome.error is None, outcome.error

    assert lab.rows("wide") == [{"c7": 7, "c19999": "19999"}] * 50
    assert [(row["line"], row["error"]) for row in lab.quarantine("wide")] == [(52, "NOT_CSV")]
    assert [row["id"] for row in lab.rows("narrow")] == ["a", "e"]
    assert [(row["line"], row["error"]) for row in lab.quarantine("narrow")] == [
        (2, "NOT_CSV"),
        (3, "NOT_CSV"),
        (4, "NOT_CSV"),
    ]


def test_the_marks_of_odd_names_come_back_from_the_receipt(lab):
    folder = lab.files("ev", "id STRING")
    for name in ("a\nb.json", "ü'\"\\.json"):
        (folder / name).write_text('{"id": "x"}\n')
    lab.refresh("ev")
    lab.restart(lose_control_store=True)

    assert lab.refresh("ev").reason.startswith("NOTHING_NEW")
    spec = lab.runtime.graph.spec(TableName.parse("ev"))
    names = {"a\nb.json", "ü'\"\\.json"}
    known = lab.runtime.reader(spec).known(lab.receipt("ev").positions[spec.name], {*names, "another.json"})
    assert set(known) == names
    assert all(isinstance(mark, FileMark) for mark in known.values())
