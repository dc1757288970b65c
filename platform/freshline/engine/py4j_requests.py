"""Requests to the JVM that py4j need not make: names are asked for once, and objects are released many at a time.

py4j releases each object that Python has let go of by a request of its own, and waits for the answer. Those were two
fifths of the requests of a refresh, some 3,400 of six refreshes. Here those of a moment go in one message.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from queue import SimpleQueue
from typing import Any

from py4j import protocol
from py4j.clientserver import SHUTDOWN_FINALIZER_WORKER
from py4j.java_gateway import JavaClass, JavaMember
from py4j.protocol import Py4JError

LOG = logging.getLogger(__name__)

# PySpark 4.2 keeps none of them. `F.col("a")` asks for `functions`, which is no class by itself, so that the JVM opens
# the directory of each of some three hundred jars before it searches the imports; then for its member `col`.
# A refresh of two small tables made a quarter of its calls for that. A test checks that none are left.
NAMES = (
    "functions",
    "PythonUtils",
    "PythonSQLUtils",
    "SparkSession",
    "Dataset",
    "org.apache.spark.sql.functions",
    "org.apache.spark.sql.classic.SparkSession",
    "org.apache.spark.sql.types.Metadata",
)

# So long the first one waits for others.
GATHER_SECONDS = 0.2
# Their answers, of four bytes each, must fit into the buffer of a socket while nobody reads.
MOST_AT_ONCE = 1_000
_NEVER_RELEASED = (protocol.ENTRY_POINT_OBJECT_ID, protocol.GATEWAY_SERVER_OBJECT_ID)


class _KeptClass(JavaClass):  # type: ignore[misc]  # py4j has no types
    """A class of the JVM that asks for each of its methods once. Values of static fields are asked for each time."""

    def __getattr__(self, name: str) -> Any:
        member = super().__getattr__(name)
        if type(member) is JavaMember:
            self.__dict__[name] = member
        return member


def keep_names(jvm: Any) -> None:
    """Let this view of a JVM, as `SparkContext` has it, answer for `NAMES` by itself.

    They are classes, or imported ones, which stay what they are while the JVM lives.
    """
    for name in NAMES:
        found = getattr(jvm, name)
        # An attribute of the view's own comes before it asks the JVM, whatever its name has in it.
        jvm.__dict__[name] = _KeptClass(found._fqn, found._gateway_client)


class Releases:
    """Takes the place of the queue that py4j's worker empties, and empties it itself until the gateway is shut down."""

    def __init__(self, client: Any) -> None:
        self._client = client
        # py4j itself holds the connection of a thread weakly.
        self._connection: Any = None
        # A collection of garbage may let go of objects in the middle of a `put`, which only this queue allows.
        self._released: SimpleQueue[Any] = SimpleQueue()
        self.thread = threading.Thread(target=self._run, name="py4j-releases", daemon=True)
        self.thread.start()

    def appendleft(self, released: Any) -> None:
        """Take a client of py4j with the id of an object, or its sign that the gateway is shut down."""
        self._released.put(released)

    def _run(self) -> None:
        while True:
            found = [self._released.get()]
            time.sleep(GATHER_SECONDS)
            # All that is there, so that nothing piles up, however fast it comes.
            while not self._released.empty():
                found.append(self._released.get())
            if SHUTDOWN_FINALIZER_WORKER in found:
                return
            targets = [target for _, target in found if target not in _NEVER_RELEASED]
            for begin in range(0, len(targets), MOST_AT_ONCE):
                self._release(targets[begin : begin + MOST_AT_ONCE])

    def _release(self, targets: Sequence[str]) -> None:
        begin = protocol.MEMORY_COMMAND_NAME + protocol.MEMORY_DEL_SUBCOMMAND_NAME
        message = "".join(f"{begin}{target}\n{protocol.END_COMMAND_PART}" for target in targets)
        try:
            self._connection = self._client._get_connection()
            socket, stream = self._connection.socket, self._connection.stream
            if socket is None:
                raise ConnectionResetError("the gateway is being shut down")
            socket.sendall(message.encode())
            for _ in targets:
                if not stream.readline():
                    raise ConnectionResetError("the JVM has ended")
        except (OSError, ValueError, Py4JError) as error:
            # Without a JVM there is nothing to release; calls from other threads say so. A stream that the shutdown has
            # closed is a ValueError.
            LOG.debug("objects of the JVM are not released: %s", error)


def release_together(gateway: Any) -> None:
    """Let a gateway release objects many at a time. Its own worker ends when it has done what it has."""
    client = gateway._gateway_client
    before, client.finalizer_deque = client.finalizer_deque, Releases(client)
    before.appendleft(SHUTDOWN_FINALIZER_WORKER)
