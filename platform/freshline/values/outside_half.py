"""The half of an extension that talks to its system: the reader of a source, the writer of a sink."""

from __future__ import annotations

import os
from typing import Any, ClassVar

from freshline.errors import FreshlineError
from freshline.values.extension import Extension
from freshline.values.secret import resolve_reference

_OF_THE_ENGINE = (
    "An engine has the variables of its start: `freshline engine stop` ends it, and the next command starts it."
)


class OutsideHalf(Extension):
    """Bound to one declaration, `spec`, and to the part of the engine that it may use, `host`.

    `failure` is the class of its errors.
    """

    failure: ClassVar[type[FreshlineError]]
    spec: Any
    host: Any

    @property
    def where(self) -> str:
        """The place that errors name."""
        return str(self.spec.name)

    def secret(self, option: str, text: str) -> str:
        """The value of an option that is a reference. Keep it nowhere, and show it to nobody.

        Raises SourceError or SinkRefusedError, as the half is of a source or a sink, with a sentence without secrets.
        """
        try:
            return resolve_reference(text, self.host.root, os.environ)
        except ValueError as error:
            # A person who has just set it in a terminal has not set it for an engine that runs.
            more = f" {_OF_THE_ENGINE}" if text.startswith("${env:") else ""
            raise self.failure(f"option '{option}': {error}{more}", where=self.where) from error
