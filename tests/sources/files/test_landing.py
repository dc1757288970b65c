"""The files that count as complete, and those that were read before."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta

import pytest

from freshline.errors import SourceError
from freshline.sources.files.landing import find_unread, list_landing
from freshline.sources.files.position import FileMark

pytestmark = pytest.mark.security


def now():
    return datetime.now(UTC)


def paths(marks):
    return [mark.path for mark in marks]


def test_hidden_names_and_what_is_no_file_are_not_data(tmp_path):
    (tmp_path / "deep" / "_er").mkdir(parents=True)
    for name in ("a.json", "deep/b.json", ".a", "_b", "deep/.c", "deep/_er/d"):
        (tmp_path / name).write_text("x")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")

    assert sorted(paths(list_landing(tmp_path, 0, now()).complete)) == ["a.json", "deep/b.json"]


def test_files_come_in_the_order_of_their_times_and_then_of_their_names(tmp_path):
    for name, stamp in (("c", 1), ("b", 2), ("a", 2)):
        (tmp_path / name).write_text("x")
        os.utime(tmp_path / name, (stamp, stamp))

    assert paths(list_landing(tmp_path, 0, now()).complete) == ["c", "a", "b"]


def test_a_file_that_was_touched_or_moved_lately_is_not_complete(tmp_path):
    (tmp_path / "a").write_text("x")
    # A copy that keeps its times, or a rename, is known by the time at which the system noted it.
    os.utime(tmp_path / "a", (1, 1))

    assert paths(list_landing(tmp_path, 60, now()).unsettled) == ["a"]
    assert paths(list_landing(tmp_path, 60, now() + timedelta(minutes=2)).complete) == ["a"]


def test_a_file_that_was_read_is_known_by_path_size_and_time(tmp_path):
    known = {"a": FileMark("a", 1, 10), "b": FileMark("b", 1, 10), "gone": FileMark("gone", 1, 10)}
    listed = (FileMark("a", 1, 10), FileMark("b", 2, time.time_ns()), FileMark("c", 1, 5))

    unread = find_unread(tmp_path, listed, known)

    assert unread.new == (FileMark("c", 1, 5),)
    (problem,) = unread.changed
    assert problem.where == str(tmp_path / "b")
    assert not problem.retry_helps


def test_a_folder_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(SourceError, match="nowhere does not exist"):
        list_landing(tmp_path / "nowhere", 0, now())


def test_a_time_that_is_yet_to_come_is_of_another_clock_and_hides_no_file(tmp_path):
    (tmp_path / "a").write_text("x")
    later = time.time() + 7200
    os.utime(tmp_path / "a", (later, later))

    assert paths(list_landing(tmp_path, 60, now()).unsettled) == ["a"]
    assert paths(list_landing(tmp_path, 60, now() + timedelta(minutes=2)).complete) == ["a"]


def test_a_name_that_is_no_utf_8_is_passed_over_and_stops_no_other(tmp_path):
    (tmp_path / "a").write_text("x")
    (tmp_path / os.fsdecode(b"caf\xe9.json")).write_text("x")

    found = list_landing(tmp_path, 0, now())

    assert paths(found.complete) == ["a"]
    assert [name for name, _ in found.passed_over] == ["caf\\xe9.json"]


def test_links_are_passed_over_unless_they_are_allowed_and_then_loops_end(tmp_path):
    root, other = tmp_path / "root", tmp_path / "other"
    (root / "deep").mkdir(parents=True)
    other.mkdir()
    (other / "b").write_text("x")
    (root / "a").write_text("x")
    links = {"itself": root, "deep/up": root, "other": other, "file": other / "b", "nowhere": root / "gone"}
    for name, target in links.items():
        (root / name).symlink_to(target)
    (root / "circle").symlink_to("circle")
    (other / "back").symlink_to(root)

    alone = list_landing(root, 0, now())
    followed = list_landing(root, 0, now(), follow_links=True)

    assert paths(alone.complete) == ["a"]
    assert [name for name, _ in alone.passed_over] == sorted([*links, "circle"])
    assert sorted(paths(followed.complete)) == ["a", "file", "other/b"]
    assert [name for name, _ in followed.passed_over] == ["circle", "deep/up", "itself", "other/back"]
