"""The claims that every format must fulfil, whoever wrote it.

`check_format` tries all of them on a `System` that brings records of the format: a `LandingFolder`, or another one for
a format of topics. With pytest, a class that derives from `FormatClaims` and has the fixtures `lab` and `system` has a
test of each.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from pyspark.sql import SparkSession

from freshline.errors import DeclarationErrors
from freshline.sources.records import REJECTIONS
from freshline.testing.claims import require, require_that, run_claims
from freshline.testing.connectors import FormatConformance, LandingFolder, System
from freshline.testing.lab import Lab
from freshline.values.registry import find_format
from freshline.values.spec import SourceSpec

# One of each kind of type that a column may have.
TYPES = (
    "BOOLEAN",
    "TINYINT",
    "SMALLINT",
    "INT",
    "BIGINT",
    "FLOAT",
    "DOUBLE",
    "DECIMAL(38,10)",
    "STRING",
    "BINARY",
    "DATE",
    "TIMESTAMP",
    "TIMESTAMP_NTZ",
    "ARRAY<INT>",
    "ARRAY<STRUCT<a: INT>>",
    "MAP<STRING, INT>",
    "MAP<INT, STRING>",
    "STRUCT<a: INT, b: ARRAY<STRING>>",
)


def check_format(
    system: Callable[[Lab], System], *, spark: SparkSession | None = None, leave_out: Collection[str] = ()
) -> None:
    """Try on a format every claim about formats, each with a system and a Lab of its own.

    `system` makes the system that brings its records. `leave_out` has the names of claims that are not tried. Takes
    about half a minute. Raises ClaimsError with all claims that fail.
    """
    name = getattr(system, "format", "of this system")
    run_claims(FormatClaims, system, f"the format '{name}'", spark=spark, leave_out=leave_out)


class FormatClaims(FormatConformance):
    """The claims about every format: the rows that records become, and what the format says of itself."""

    def test_every_code_of_quarantine_is_one_that_it_declares(self, lab: Lab, system: System) -> None:
        declared = {*find_format(system.format).rejections, *REJECTIONS}
        system.declare()
        system.send(system.broken, *system.odd, {"id": 1, "a": "x"})
        outcome = lab.refresh("s")

        require(outcome.error, None, "the error of a refresh of odd records")
        found = {row["error"]: row["message"] for row in lab.quarantine("s")}
        unknown = sorted(code for code in found if code.partition("(")[0] not in declared)
        require(unknown, [], "codes in quarantine that are not in `rejections`")
        require([code for code, message in found.items() if not message], [], "codes in quarantine without a message")
        require_that(any(row["id"] == 1 for row in lab.rows("s")), "the good record beside odd ones is missing")

    def test_each_type_is_given_or_refused_when_it_is_declared(self, lab: Lab, system: System) -> None:
        given = []
        for number, kind in enumerate(TYPES):
            column = f"x{number} {kind}"
            try:
                system.declare(f"id INT, a STRING, {column}")
            except DeclarationErrors:
                continue
            given.append(column)
        system.declare(", ".join(["id INT", "a STRING", *given]))
        system.send({"id": 1, "a": "x"})
        outcome = lab.refresh("s")

        said = f"the error of a refresh with columns that it did not refuse ({', '.join(given)})"
        require(outcome.error, None, f"{said}. Refuse the others in `find_problems`")
        (row,) = lab.rows("s")
        absent = {name: value for name, value in row.items() if name not in ("id", "a")}
        require((row["id"], row["a"]), (1, "x"), "the values of a record that has two of the columns")
        require({name for name, value in absent.items() if value is not None}, set(), "columns that no record has")

    def test_a_file_that_it_encodes_is_read_back(self, lab: Lab, system: System) -> None:
        if not isinstance(system, LandingFolder):
            return
        system.declare()
        source = lab.runtime.graph.sources[0]
        rows = [{"id": 1, "a": "x"}, {"id": 2, "a": "y"}]
        encoded = _encoded(source, rows)
        if encoded is None:
            return
        (system.folder / "encoded").write_bytes(encoded.encode() if isinstance(encoded, str) else encoded)
        outcome = lab.refresh("s")

        require((outcome.error, outcome.rejected), (None, 0), "the error and the rejected records of an encoded file")
        require(lab.rows("s"), rows, "the rows of an encoded file")


def _encoded(source: SourceSpec, rows: list[dict[str, object]]) -> str | bytes | None:
    """The file that the format writes; None where it writes none."""
    if source.format is None:
        return None
    try:
        return source.format.encode(rows)
    except NotImplementedError:
        return None
