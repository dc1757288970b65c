"""The button that refreshes a table: a request to the engine, followed until it ends.

The engine cancels a request that nobody follows. So a thread does, until the table is refreshed or the UI ends, and the
button waits only a moment for it.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from freshline.engine.client import Asks
from freshline.errors import EngineError, FreshlineError, RequestError, error_from_json
from freshline.values.names import TableName

MOST_AT_ONCE = 8
ANSWER_SECONDS = 3.0


class Refreshes:
    """The refreshes that buttons asked for; `connect` is the engine that runs, and raises EngineError for none."""

    def __init__(self, connect: Callable[[], Asks], answer_seconds: float = ANSWER_SECONDS) -> None:
        self._connect = connect
        self._answer_seconds = answer_seconds
        self._lock = threading.Lock()
        self._running: set[TableName] = set()

    def ask(self, table: TableName) -> str:
        """Refresh a table from the inputs as they are; return a sentence about the outcome, or that it still runs.

        Raises EngineError where no engine runs, RequestError where the table is refreshed for a button already or many
        others are, and the error of the refresh.
        """
        engine = self._connect()
        with self._lock:
            if table in self._running:
                raise RequestError(f"{table} is being refreshed for another request of this page already.")
            if len(self._running) >= MOST_AT_ONCE:
                raise RequestError(f"{MOST_AT_ONCE} refreshes of buttons run. Wait until one has ended.")
            self._running.add(table)
        answers: queue.SimpleQueue[str | FreshlineError] = queue.SimpleQueue()
        # The engine takes back what is asked for when the UI ends, so nothing waits for this thread.
        threading.Thread(
            target=self._follow, args=(engine, table, answers), name=f"refresh {table}", daemon=True
        ).start()
        try:
            answer = answers.get(timeout=self._answer_seconds)
        except queue.Empty:
            return f"requested: {table} is being refreshed. The list of its refreshes will have it."
        if isinstance(answer, FreshlineError):
            raise answer
        return answer

    def _follow(self, engine: Asks, table: TableName, answers: queue.SimpleQueue[str | FreshlineError]) -> None:
        said: str | FreshlineError = EngineError(f"the engine ended the request without an outcome for {table}.")
        try:
            for event in engine.run("refresh", tables=[str(table)], full=False, partitions=[], upstreams=False):
                found = event["outcome"] if event["type"] == "outcome" else event
                if found.get("error"):
                    said = error_from_json(found["error"])
                elif event["type"] == "outcome":
                    said = f"{found['table']}: {(found['strategy'] or found['state']).lower()}, {found['reason']}"
        except FreshlineError as error:
            said = error
        finally:
            with self._lock:
                self._running.discard(table)
            answers.put(said)
