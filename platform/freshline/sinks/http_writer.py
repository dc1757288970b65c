"""The half of a writer that systems with an interface of HTTP share: the client, and the user who asks."""

from __future__ import annotations

import base64
from collections.abc import Mapping

from freshline.errors import SinkError, SinkRefusedError
from freshline.sinks.http_client import PATIENCE, HttpClient, Patience, read_hosts
from freshline.sinks.http_sink import HttpSink
from freshline.sinks.writer import SinkHost, SinkWriter
from freshline.values.spec import TableSpec


class HttpWriter(SinkWriter):
    """Writes to the hosts of an HttpSink. `client` sends its requests."""

    def __init__(self, spec: TableSpec, host: SinkHost, *, patience: Patience = PATIENCE) -> None:
        super().__init__(spec, host)
        assert isinstance(spec.sink, HttpSink)
        self._system = spec.sink
        try:
            hosts = read_hosts(self.secret("url", spec.sink.url), spec.sink.ports)
        except SinkError as error:
            raise SinkRefusedError(error.message, where=self.where) from error
        except ValueError as error:
            raise SinkRefusedError(f"option 'url': {error}.", where=self.where) from error
        self.client = HttpClient(
            hosts, spec.sink, self.headers, title=spec.sink.title, where=self.where, patience=patience
        )

    def close(self) -> None:
        self.client.close()

    def headers(self) -> Mapping[str, str]:
        """The headers that every request has. They have secrets: keep them nowhere."""
        system = self._system
        if system.username is None and system.password is None:
            return {}
        password = "" if system.password is None else self.secret("password", system.password)
        pair = f"{system.username or system.first_user}:{password}".encode()
        return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}

    def is_another(self) -> SinkRefusedError:
        """The error for an answer that this kind of system does not give."""
        return SinkRefusedError(
            f"{self.client.host} does not answer as {self._system.title} does. Correct the option 'url'.",
            where=self.where,
        )
