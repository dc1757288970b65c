"""The protocol of a channel, for those of freshline and for one of your own.

A channel of your own is a class that the setting `type = "module:Class"` names. It is called once, with the options of
its table in pyproject.toml and with `resolve`; its `deliver` is called from one thread, one message after the other:

```python
class Pager:
    def __init__(self, options, resolve):
        self.number, self.key, self.resolve = options["number"], options["key"], resolve

    def deliver(self, message):
        answer = page(self.number, self.resolve(self.key), message.headline)
        if not answer.ok:
            raise DeliveryError(f"the pager answered {answer.status}")
```

A message that was not taken is tried again later. One that was taken may come again when the watch was killed at that
moment: it has the same `id`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from freshline.errors import DeliveryError
from freshline.report.alerts.message import Message
from freshline.values.secret import resolve_reference

# Replaces a reference such as ${env:NAME} by what it stands for; other texts are returned as they are.
Resolve = Callable[[str], str]


class Channel(Protocol):
    """One way to notify people."""

    def deliver(self, message: Message) -> None:
        """Return when the message was taken; raise DeliveryError, whose sentence has no secret, when it was not."""


def resolver(root: Path, environ: Mapping[str, str]) -> Resolve:
    """A function that resolves references: paths are relative to the project, what it returns is not kept."""

    def resolve(text: str) -> str:
        try:
            return resolve_reference(text, root, environ)
        except ValueError as error:
            raise DeliveryError(str(error)) from error

    return resolve
