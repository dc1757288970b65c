"""The document of a sink in the index `freshline_sink`: its position, and the attempt that is under way.

It is changed only as it was read (`if_seq_no`), so of two engines one is refused. An attempt is noted before its first
row. Rows are either changes in the index that there is, or all rows in an index of their own: then the alias, which is
moved in one request, says whether the attempt was finished.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, Self

from freshline.values.sink_position import SinkPosition

POSITIONS = "freshline_sink"


@dataclass(frozen=True)
class SinkState:
    """The content of the document, and the numbers by which it is changed, None where there is none.

    `index` has the rows of `position`. `attempt` is the position that is being written: into the index `into`, or into
    `index` where that is None.
    """

    position: SinkPosition | None = None
    index: str | None = None
    attempt: SinkPosition | None = None
    into: str | None = None
    read_as: tuple[int, int] | None = None

    def effective(self, targets: Collection[str]) -> Self:
        """The state when the alias has these indices: an attempt is finished once the alias has its index."""
        if self.attempt is not None and self.into is not None and set(targets) == {self.into}:
            return replace(self, position=self.attempt, index=self.into, attempt=None, into=None)
        return self

    @property
    def held(self) -> SinkPosition | None:
        """The position with what is known of an attempt at changes that was not finished."""
        if self.position is None or self.attempt is None:
            return self.position
        held = self.position.after_attempts(self.attempt)
        # Nobody sees the rows of an index of its own.
        return replace(held, unfinished=None) if self.into else held

    def to_json(self) -> str:
        """The text of the document."""
        return json.dumps(
            {
                "position": None if self.position is None else self.position.to_json(),
                "index": self.index,
                "attempt": None if self.attempt is None else self.attempt.to_json(),
                "into": self.into,
            },
            sort_keys=True,
        )

    @classmethod
    def from_answer(cls, answer: Any) -> Self:
        """The state of a document as the system gives it. Raises ValueError, KeyError or TypeError for another one."""
        source = answer["_source"]

        def position(name: str) -> SinkPosition | None:
            return None if source[name] is None else SinkPosition.from_json(source[name])

        return cls(
            position("position"),
            source["index"],
            position("attempt"),
            source["into"],
            (int(answer["_seq_no"]), int(answer["_primary_term"])),
        )
