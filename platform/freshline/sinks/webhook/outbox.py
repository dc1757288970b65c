"""The notes of a webhook's sink: the position that the service has, and posts that it has not confirmed yet.

A service cannot say which rows it has. So all posts of a delivery are written here first, and a delivery that was
stopped goes on with the same bytes at the first post that was not confirmed. Files are replaced by renames.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from freshline.sinks.writer import RejectedRow
from freshline.values.sink_position import SinkPosition

_REJECTED = "rejected.json"


@dataclass(frozen=True)
class Notes:
    """The position that the service has, None where it is not known, and the number of the newest delivery."""

    position: SinkPosition | None = None
    number: int = 0


@dataclass(frozen=True)
class Sending:
    """A delivery on its way: the position after it, its number, and how many posts there are and were confirmed.

    `rejected` are the rows that are in no post.
    """

    after: SinkPosition
    number: int
    posts: int
    confirmed: int
    rejected: tuple[RejectedRow, ...] = ()


class Outbox:
    """The folder of one sink. Of two processes, the engine lets one at a time use it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._sending = folder / "sending"

    def read_notes(self) -> Notes:
        """Raises ValueError, KeyError or TypeError for a file that is damaged."""
        text = _read(self.folder / "position.json")
        if text is None:
            return Notes()
        values = json.loads(text)
        held = values["position"]
        return Notes(None if held is None else SinkPosition.from_json(json.dumps(held)), int(values["number"]))

    def write_notes(self, notes: Notes) -> None:
        held = None if notes.position is None else json.loads(notes.position.to_json())
        _write(self.folder / "position.json", json.dumps({"position": held, "number": notes.number}).encode())

    def begin(
        self,
        after: SinkPosition,
        number: int,
        posts: Iterable[list[bytes]],
        rejected: Sequence[RejectedRow],
    ) -> None:
        """Keep the posts of a delivery, all of them or none.

        `rejected` has the rows that no post can have, when all posts have been read.
        """
        written = self.folder / "writing"
        shutil.rmtree(written, ignore_errors=True)
        written.mkdir(parents=True, mode=0o700)
        count = 0
        for lines in posts:
            (written / f"{count}.ndjson").write_bytes(b"\n".join(lines) + b"\n")
            count += 1
        facts = {"after": json.loads(after.to_json()), "number": number, "posts": count}
        facts["rejected"] = [asdict(row) for row in rejected]
        (written / "delivery.json").write_text(json.dumps(facts), encoding="utf-8")
        for file in written.iterdir():
            _flush(file)
        written.rename(self._sending)
        _flush(self.folder)

    def sending(self) -> Sending | None:
        """The delivery that was begun and has not ended."""
        text = _read(self._sending / "delivery.json")
        if text is None:
            return None
        facts = json.loads(text)
        after = SinkPosition.from_json(json.dumps(facts["after"]))
        confirmed = int(_read(self._sending / "confirmed") or b"0")
        rejected = tuple(RejectedRow(**each) for each in facts.get("rejected", ()))
        return Sending(after, int(facts["number"]), int(facts["posts"]), confirmed, rejected)

    def lines(self, post: int) -> list[bytes]:
        """The lines of a post."""
        return (self._sending / f"{post}.ndjson").read_bytes().removesuffix(b"\n").split(b"\n")

    def confirm(self, post: int) -> None:
        """Note that the service has this post, and all before it."""
        _write(self._sending / "confirmed", str(post + 1).encode())

    def reject(self, seq: int, post: int, rows: Sequence[RejectedRow]) -> None:
        """Keep rows of a post that the service refused until somebody takes them. A post that comes again counts once.

        `seq` is the number of the refresh, and `post` is -1 for rows that are in no post.
        """
        others = [each for each in self._rejections() if (each["seq"], each["post"]) != (seq, post)]
        self._write_rejections([*others, {"seq": seq, "post": post, "rows": [asdict(row) for row in rows]}])

    def rejected(self) -> dict[int, tuple[RejectedRow, ...]]:
        """The rows that nobody has taken yet, by the number of the refresh that sent them."""
        found: dict[int, tuple[RejectedRow, ...]] = {}
        for each in self._rejections():
            rows = tuple(RejectedRow(**row) for row in each["rows"])
            found[each["seq"]] = found.get(each["seq"], ()) + rows
        return found

    def forget_rejected(self, seqs: Collection[int]) -> None:
        """Forget the rows of these refreshes."""
        left = [each for each in self._rejections() if each["seq"] not in seqs]
        if left:
            self._write_rejections(left)
        else:
            (self.folder / _REJECTED).unlink(missing_ok=True)

    def _rejections(self) -> list[dict[str, Any]]:
        text = _read(self.folder / _REJECTED)
        found: list[dict[str, Any]] = [] if text is None else json.loads(text)
        return found

    def _write_rejections(self, rejections: Sequence[Mapping[str, Any]]) -> None:
        _write(self.folder / _REJECTED, json.dumps(rejections).encode())

    def end(self) -> None:
        """Forget the posts of a delivery, which has ended."""
        done = self.folder / "ended"
        shutil.rmtree(done, ignore_errors=True)
        if self._sending.exists():
            # First as a whole, so that a half of it is never sent.
            self._sending.rename(done)
            shutil.rmtree(done)


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    written = path.with_suffix(".writing")
    written.write_bytes(content)
    _flush(written)
    written.replace(path)
    _flush(path.parent)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
