"""The claims that every lookup must fulfil, whoever wrote it.

`check_lookup` tries all of them on an `AskedSystem`: the system outside, with what the claims need to do to it. With
pytest, a class that derives from `LookupConformance` and has the fixtures `lab` and `system` has a test of each.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from pyspark.sql import SparkSession

from freshline.errors import DeclarationErrors
from freshline.testing.claims import ClaimSubject, refused, require, require_that, run_claims
from freshline.testing.crash import Crash
from freshline.testing.lab import Lab
from freshline.values.names import TableName
from freshline.values.result import RefreshResult

_BEFORE_ASKED = "lookup-before-ask"
LOOKUP_POINTS = (
    _BEFORE_ASKED,
    "lookup-answered",
    "lookup-before-commit",
    "lookup-after-commit",
    "lookup-arrived",
    "table-before-commit",
)
_QUERY = "SELECT o.id, o.k, s.name, s.n FROM o LEFT JOIN s FOR SYSTEM_TIME AS OF PROCTIME() AS s ON s.k = o.k"


class AskedSystem(ClaimSubject, ABC):
    """A system outside with rows by a whole number: the source `s (k INT, name STRING, n INT, PRIMARY KEY (k))`.

    `lookup` is the name of the connector. `gone` is the code of the error when the system is taken away.
    """

    lookup: ClassVar[str]
    gone: ClassVar[str] = "LOOKUP_AWAY"
    secret_variable = "SYSTEM_SECRET"

    def __init__(self, lab: Lab) -> None:
        self.lab = lab

    @property
    @abstractmethod
    def options(self) -> dict[str, str]:
        """The options that every declaration of the source has in WITH, beside `connector` and `lookup`."""

    @abstractmethod
    def put(self, key: int, row: Mapping[str, object]) -> None:
        """Give a key this row, which may have a value that does not fit."""

    @abstractmethod
    def take_away(self) -> None:
        """Let the system give no answers any more."""

    @abstractmethod
    def bring_back(self) -> None:
        """Let it give answers again, with the rows that it had."""

    def declare(self, columns: str = "k INT, name STRING, n INT, PRIMARY KEY (k)", **more: str) -> None:
        """Declare the source; `more` are options with `__` for a dot and `_` for `-`."""
        written = {name.replace("__", ".").replace("_", "-"): text for name, text in more.items()}
        options = {"connector": self.lookup, "lookup": "true", **self.options, **written}
        given = ", ".join(f"'{name}' = '{value}'" for name, value in options.items())
        self.lab.declare(f"CREATE SOURCE s ({columns}) WITH ({given})")

    def begin(self, **more: str) -> None:
        """Two rows in the system, and a table `t` of rows that look up both, one that is not there, and NULL."""
        self.put(1, {"name": "a", "n": 1})
        self.put(2, {"name": "b", "n": 2})
        self.declare(**more)
        self.lab.source("o", "id INT, k INT")
        self.lab.sql("INSERT INTO o VALUES (1, 1), (2, 2), (3, 1), (4, 9), (5, NULL)")
        self.lab.declare(f"CREATE MATERIALIZED TABLE t FRESHNESS = INTERVAL '1' HOUR AS {_QUERY}")


class LookupConformance:
    """The claims. Each is tried on a Lab and a system of its own."""

    def test_rows_have_what_their_key_has_and_each_key_is_asked_once(self, lab: Lab, system: AskedSystem) -> None:
        system.begin()
        _refreshed(lab)
        require(_names(lab), ["a", "b", "a", None, None], "the names that were looked up")
        require(sorted(row["k"] for row in _answers(lab)), [1, 2, 9], "the keys that were asked")
        require_that(lab.verify("t").equal, "verify finds another table")

    def test_full_and_verify_ask_nobody(self, lab: Lab, system: AskedSystem) -> None:
        system.begin()
        _refreshed(lab)
        before = _names(lab)
        system.put(1, {"name": "new", "n": 3})
        system.take_away()
        _refreshed(lab, full=True)
        require(_names(lab), before, "the names after a full refresh")
        require_that(lab.verify("t").equal, "verify finds another table")

    def test_new_rows_have_what_there_is_now_and_stored_ones_keep_theirs(self, lab: Lab, system: AskedSystem) -> None:
        system.begin()
        _refreshed(lab)
        system.put(1, {"name": "new", "n": 3})
        lab.sql("INSERT INTO o VALUES (6, 1)")
        _refreshed(lab)
        require(_names(lab), ["a", "b", "a", None, None, "new"], "the names that were looked up")
        require_that(lab.verify("t").equal, "verify finds another table")

    def test_a_stop_at_each_point_asks_for_no_answer_that_had_arrived(self, lab: Lab, system: AskedSystem) -> None:
        system.begin()
        for number, point in enumerate(LOOKUP_POINTS):
            system.put(100 + number, {"name": point, "n": number})
            lab.sql(f"INSERT INTO o VALUES ({100 + number}, {100 + number})")
            with lab.crash_at(point), refused(Crash):
                lab.refresh("t")
            lab.restart()
            if point != _BEFORE_ASKED:
                # Whoever asks again gets another answer.
                system.put(100 + number, {"name": "asked again", "n": 0})
            _refreshed(lab)
        keys = [row["k"] for row in _answers(lab)]
        require(sorted(keys), sorted({*keys}), "the keys that were asked")
        require(_names(lab)[5:], list(LOOKUP_POINTS), "the names that were looked up")
        require_that(lab.verify("t").equal, "verify finds another table")

    def test_a_system_that_goes_away_comes_back(self, lab: Lab, system: AskedSystem) -> None:
        system.begin(lookup__timeout="1 second")
        system.take_away()
        failed = lab.refresh("t").error
        require(getattr(failed, "code", None), system.gone, "the error without the system")
        require_that(failed is not None and failed.retry_helps, "the error says that no retry helps")
        system.bring_back()
        _refreshed(lab)
        require(_names(lab), ["a", "b", "a", None, None], "the names that were looked up")

    def test_an_answer_that_does_not_fit_fails_or_is_null(self, lab: Lab, system: AskedSystem) -> None:
        system.begin()
        system.put(2, {"name": "b", "n": 1.5})
        require(getattr(lab.refresh("t").error, "code", None), "LOOKUP_ANSWER", "the error of an answer that is none")
        system.declare(lookup__on_error="null")
        _refreshed(lab)
        require(_names(lab), ["a", None, "a", None, None], "the names that were looked up")
        require_that(lab.verify("t").equal, "verify finds another table")

    def test_another_way_to_read_it_is_refused(self, lab: Lab, system: AskedSystem) -> None:
        system.declare()
        with refused(DeclarationErrors, "'lookup' = 'true'"):
            lab.declare("CREATE MATERIALIZED TABLE t FRESHNESS = INTERVAL '1' HOUR AS SELECT * FROM s")


def check_lookup(make: Callable[[Lab], AskedSystem], *, spark: SparkSession | None = None) -> None:
    """Try all claims on a lookup; `make` gives the system for a Lab. Raises ClaimsError with those that failed."""
    run_claims(LookupConformance, make, getattr(make, "lookup", "the lookup"), spark=spark)


def _refreshed(lab: Lab, *, full: bool = False) -> RefreshResult:
    outcome = lab.refresh("t", full=full)
    require(outcome.error, None, "the error of a refresh")
    return outcome


def _names(lab: Lab) -> list[Any]:
    return [row["name"] for row in sorted(lab.rows("t"), key=lambda row: int(row["id"]))]


def _answers(lab: Lab) -> list[Any]:
    path = lab.runtime.warehouse.answers(TableName.parse("s"))
    return lab.runtime.spark.read.format("delta").load(str(path)).collect()
