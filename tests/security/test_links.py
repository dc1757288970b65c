"""Links that are laid where files land lead nowhere, also those that come between listing and reading."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from freshline.engine.session_folders import SessionFolders, write_private
from freshline.sources.files.contained import inspect_contained, read_contained
from freshline.sources.files.landing import list_landing
from freshline.sources.files.lines import ENDED, LineReading, inspect_files, pieces_of, read_pieces
from freshline.sources.files.position import FileMark
from freshline.sources.formats.text_files import WholeFile

pytestmark = pytest.mark.security

SECRET = '{"a": "hunter2"}\n'
LATER = datetime.now(UTC) + timedelta(days=1)


@pytest.fixture
def landing(tmp_path: Path) -> Path:
    """A landing folder with a file in it and one in a folder, and beside it a folder of secrets of the same names."""
    for folder, text in (("landing", SECRET.replace("hunter2", "fine  1")), ("secrets", SECRET)):
        inner = tmp_path / folder / "day" / "hour"
        inner.mkdir(parents=True)
        for place in (tmp_path / folder, inner):
            (place / "a.json").write_text(text)
            # Whoever lays a link knows size and time of what it leads to.
            os.utime(place / "a.json", ns=(10**18, 10**18))
    return tmp_path / "landing"


def reading(landing: Path, *, follow: bool = False) -> LineReading:
    return LineReading("json", 1000, follow, os.fsencode(landing))


def listed(landing: Path) -> tuple[FileMark, ...]:
    return list_landing(landing, 0, LATER).complete


def read(landing: Path, marks: tuple[FileMark, ...], between: Callable[[], None], *, follow: bool = False) -> bytes:
    """All that is read of these files, as lines and as whole files, when something happens after the inspection."""
    how = reading(landing, follow=follow)
    whole = WholeFile(1000)
    found = tuple(inspect_files(landing, marks, how))
    contained = tuple(inspect_contained(landing, marks, whole, how))
    between()
    batches: list[pa.RecordBatch] = []
    for piece in pieces_of(landing, found, range(len(found))):
        batches += until_it_ends(read_pieces([piece], how))
    for piece in pieces_of(landing, contained, range(len(contained))):
        batches += until_it_ends(read_contained([piece], whole, how))
    values = (value.as_py() for batch in batches for column in batch.columns for value in column)
    return b"".join(value for value in values if isinstance(value, bytes))


def until_it_ends(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches that are read before a file that is not what it was ends the task."""
    try:
        yield from batches
    except OSError as error:
        if not str(error).startswith(ENDED):
            raise


def nothing() -> None:
    return


def lay(link: Path, target: Path) -> None:
    """Put a link in the place of a file or a folder."""
    link.rename(link.with_name(f".{link.name}"))
    link.symlink_to(target)


def test_without_links_all_files_are_read(landing: Path) -> None:
    assert read(landing, listed(landing), nothing).count(b"fine") == 4


@pytest.mark.parametrize("place", ["a.json", "day", "day/hour", "day/hour/a.json"])
def test_a_link_that_is_there_is_passed_over_with_a_reason(landing: Path, place: str) -> None:
    lay(landing / place, landing.parent / "secrets" / place)
    found = list_landing(landing, 0, LATER)

    assert [name for name, _ in found.passed_over] == [place]
    assert b"hunter2" not in read(landing, found.complete, nothing)


@pytest.mark.parametrize("place", ["a.json", "day", "day/hour", "day/hour/a.json"])
def test_a_link_that_comes_after_the_listing_is_not_followed(landing: Path, place: str) -> None:
    marks = listed(landing)
    lay(landing / place, landing.parent / "secrets" / place)

    assert b"hunter2" not in read(landing, marks, nothing)


@pytest.mark.parametrize("place", ["a.json", "day", "day/hour", "day/hour/a.json"])
def test_a_link_that_comes_after_the_inspection_is_not_followed(landing: Path, place: str) -> None:
    secret = landing.parent / "secrets" / place

    assert b"hunter2" not in read(landing, listed(landing), lambda: lay(landing / place, secret))


@pytest.mark.parametrize("follow", [False, True])
@pytest.mark.parametrize(
    "path", ["../secrets/a.json", "day/../../secrets/a.json", "{secrets}/a.json", "./../secrets/a.json"]
)
def test_a_path_that_leads_out_of_the_folder_is_not_opened(landing: Path, path: str, follow: bool) -> None:
    secret = landing.parent / "secrets" / "a.json"
    named = FileMark(path.format(secrets=secret.parent), secret.stat().st_size, secret.stat().st_mtime_ns)

    assert b"hunter2" not in read(landing, (named,), nothing, follow=follow)


def test_links_are_followed_where_the_source_says_so(landing: Path) -> None:
    lay(landing / "day", landing.parent / "secrets" / "day")
    marks = list_landing(landing, 0, LATER, follow_links=True).complete

    assert read(landing, marks, nothing, follow=True).count(b"hunter2") == 2


def test_a_landing_folder_may_be_a_link_itself(landing: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").symlink_to(landing)

    assert read(tmp_path / "elsewhere", listed(tmp_path / "elsewhere"), nothing).count(b"fine") == 4


def test_a_private_file_is_not_written_through_a_link(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    (tmp_path / "confs").symlink_to(victim)
    with pytest.raises(FileExistsError):
        write_private(tmp_path / "confs", "secret")
    write_private(tmp_path / "other", "secret")

    assert victim.read_text() == "untouched"
    assert stat.S_IMODE((tmp_path / "other").stat().st_mode) == 0o600


def test_the_target_of_a_link_in_the_scratch_folder_stays(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "file").touch()
    folders = SessionFolders(tmp_path / "state")
    folders.scratch_of_all.mkdir(parents=True)
    # As a session that was killed leaves it: the process is no more.
    (folders.scratch_of_all / "4194304-0123456789abcdef").symlink_to(victim)
    folders.make()
    folders.remove_scratch()

    assert (victim / "file").exists()
    assert list(folders.scratch_of_all.iterdir()) == []
