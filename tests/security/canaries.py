"""Canaries: a secret of its own for each place that takes one, and a search for them everywhere.

A canary is a random word. It is searched for as it is, in Base64 at each of the three places in a group, and in hex.
The search covers files of any content, names, arguments and environments of processes, and texts that a command or a
page showed. It reads Parquet and gzip files both as they are and unpacked.
"""

from __future__ import annotations

import base64
import gzip
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import psutil
import pyarrow as pa
import pyarrow.parquet as pq

# Bytes of a file that are read at once; a canary may stand across two such blocks.
BLOCK = 1 << 20


@dataclass
class Canaries:
    """The canaries by the name of their secret, and where each was found although it must not be."""

    words: dict[str, str] = field(default_factory=dict)
    found: list[str] = field(default_factory=list)
    searched: dict[str, int] = field(default_factory=dict)

    def make(self, name: str) -> str:
        """A new canary."""
        self.words[name] = f"canary{secrets.token_hex(16)}"
        return self.words[name]

    def add(self, name: str, word: str) -> None:
        """A secret that somebody else has made."""
        self.words[name] = word

    def search(self, data: bytes, place: str, allowed: Iterable[str] = ()) -> None:
        """Note each canary in the data but for those that are allowed there."""
        for name, word in self.words.items():
            if name not in allowed and any(form in data for form in forms(word)):
                self.found.append(f"the secret of {name} is in {place}")

    def search_text(self, text: str, place: str) -> None:
        self._count("texts")
        self.search(text.encode("utf-8", "surrogatepass"), place)

    def search_files(self, folder: Path, allowed: Mapping[Path, tuple[str, ...]]) -> None:
        """All files of a folder with their names; links are named, and not followed."""
        for path in sorted(folder.rglob("*")):
            self.search(str(path).encode("utf-8", "surrogateescape"), f"the name of {path}")
            if path.is_file() and not path.is_symlink():
                self._count("files")
                try:
                    self._search_file(path, allowed.get(path, ()))
                except FileNotFoundError:
                    continue  # a process removed it meanwhile

    def _search_file(self, path: Path, allowed: tuple[str, ...]) -> None:
        with path.open("rb") as file:
            begins = file.peek(4)[:4]
            self._search_blocks(file, str(path), allowed)
            file.seek(0)
            if begins[:2] == b"\x1f\x8b":
                self._count("unpacked")
                try:
                    with gzip.open(file) as unpacked:
                        self._search_blocks(unpacked, f"{path}, unpacked", allowed)
                except EOFError:
                    return  # as with Parquet: one that is being written, whose beginning was searched
            elif begins == b"PAR1":
                self._search_parquet(file, str(path), allowed)

    def _search_blocks(self, file: IO[bytes] | gzip.GzipFile, place: str, allowed: tuple[str, ...]) -> None:
        before = b""
        while block := file.read(BLOCK):
            self.search(before + block, place, allowed)
            before = block[-200:]

    def _search_parquet(self, file: IO[bytes], place: str, allowed: tuple[str, ...]) -> None:
        try:
            rows = pq.ParquetFile(file)
        except pa.ArrowInvalid:
            return  # one that a killed process has begun and nobody reads; it was searched as it is
        self._count("unpacked")
        self.search(repr(rows.schema_arrow.metadata).encode(), f"what describes {place}", allowed)
        for batch in rows.iter_batches():
            values = repr(batch.to_pylist()).encode("utf-8", "surrogatepass")
            self.search(values, f"the rows of {place}", allowed)

    def search_processes(self, processes: Iterable[psutil.Process], allowed: Mapping[str, tuple[str, ...]]) -> None:
        """Arguments and environments; `allowed` are names of secrets by the variable that may have them."""
        for process in processes:
            try:
                arguments, environ = process.cmdline(), process.environ()
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue  # it has ended
            self._count("processes")
            shown = f"process {process.pid} ({' '.join(arguments)[:120]})"
            self.search("\0".join(arguments).encode(), f"the arguments of {shown}")
            for name, value in environ.items():
                self.search(value.encode(), f"the variable {name} of {shown}", allowed.get(name, ()))

    def _count(self, what: str) -> None:
        self.searched[what] = self.searched.get(what, 0) + 1


def forms(word: str) -> list[bytes]:
    """The ways in which a word may stand in data.

    >>> [any(form in base64.b64encode(before + b"canary-of-mine!") for form in forms("canary-of-mine")) for before in
    ...  (b"", b"u:", b"user:", b"name:")]
    [True, True, True, True]
    """
    data = word.encode()
    found = [data, data.hex().encode()]
    for offset in range(3):
        # The groups of four that come from the word alone, wherever it begins in a group of three.
        encoded = base64.b64encode(b"\0" * offset + data)
        whole = len(data) - (len(data) + offset) % 3 + offset
        found.append(encoded[4 if offset else 0 : whole // 3 * 4])
    return found
