"""A secret is found wherever it was packed away, or the search for secrets proves nothing."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.security.canaries import BLOCK, Canaries

pytestmark = pytest.mark.security


def _plain(path: Path, word: str) -> None:
    # Across the end of what is read at once.
    path.write_bytes(b"-" * (BLOCK - 5) + word.encode() + b"-" * BLOCK)


def _base64(path: Path, word: str) -> None:
    path.write_bytes(base64.b64encode(b"user:" + word.encode()))


def _gzip(path: Path, word: str) -> None:
    path.write_bytes(gzip.compress(b"log\n" * 1_000 + word.encode()))


def _parquet(path: Path, word: str) -> None:
    rows = [{"error": None, "raw": {"text": f"{word[:9]}{n}{word}"}} for n in range(3)]
    pq.write_table(pa.Table.from_pylist(rows), path, compression="zstd")


def _described(path: Path, word: str) -> None:
    table = pa.table({"a": [1]}).replace_schema_metadata({"made with": word})
    pq.write_table(table, path, compression="zstd")


@pytest.mark.parametrize("hide", [_plain, _base64, _gzip, _parquet, _described])
def test_a_secret_is_found_in_a_file(tmp_path: Path, hide: Callable[[Path, str], None]) -> None:
    canaries = Canaries()
    word, other = canaries.make("mail"), canaries.make("store")
    hide(tmp_path / "file", word)
    hide(tmp_path / "allowed", other)

    canaries.search_files(tmp_path, {tmp_path / "allowed": ("store",)})

    assert {line.split(" is in ")[0] for line in canaries.found} == {"the secret of mail"}, canaries.found
    assert canaries.searched["files"] == 2


@pytest.mark.seconds
def test_files_that_were_begun_are_searched_as_far_as_they_go(tmp_path: Path) -> None:
    canaries = Canaries()
    (tmp_path / "begun").write_bytes(b"PAR1" + canaries.make("mail").encode())
    packed = gzip.compress(canaries.make("store").encode() + bytes(100) * BLOCK)
    (tmp_path / "log.gz").write_bytes(packed[:-50])

    canaries.search_files(tmp_path, {})

    assert {line.split(" is in ")[0] for line in canaries.found} == {"the secret of mail", "the secret of store"}
