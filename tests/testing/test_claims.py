"""Claims of extensions: they find what is wrong with one, and are written for those who made it."""

from __future__ import annotations

import re
import sys
from types import ModuleType

import pytest

from freshline.testing import ClaimsError, LandingFolder, check_connector, check_format
from freshline.testing.claims import ClaimError, claims_of, refused, require, require_that
from freshline.testing.connectors import Conformance, LogConformance
from freshline.testing.formats import FormatClaims
from tests.lanes import long_but
from tests.sources.stranger import PAGES, stranger

ALL = list(claims_of(Conformance))
ALL_OF_FORMATS = list(claims_of(FormatClaims))


def of(*names):
    """The claims to leave out, so that only these are tried."""
    return [claim for claim in ALL if claim not in names]


@pytest.fixture
def installed(tmp_path):
    folder = tmp_path / "site-packages"
    folder.mkdir()
    with stranger(folder):
        yield folder


def test_a_check_says_what_was_found_and_what_should_have_been():
    with pytest.raises(ClaimError, match=r"the rows: found \[1\], and it should be \[1, 2\]"):
        require([1], [1, 2], "the rows")
    with pytest.raises(ClaimError, match="it has none"):
        require_that([], "it has none")
    with pytest.raises(ClaimError, match="nothing was refused, where KeyError was expected"), refused(KeyError):
        pass
    with pytest.raises(ClaimError, match="the error does not say 'b': 'a'"), refused(KeyError, "b"):
        raise KeyError("a")


def test_a_claim_that_derives_from_another_is_tried_once():
    assert len(set(ALL)) == len(ALL)
    assert set(claims_of(LogConformance)) < set(ALL)


def test_all_claims_that_are_false_are_reported_and_the_rest_is_tried(spark):
    class Forgetful(LandingFolder):
        """It loses the second of two records, and breaks when it is taken away."""

        closed = 0

        def put(self, records):
            super().put(records[:1])

        def take_away(self):
            raise OSError("no such folder")

        def close(self):
            Forgetful.closed += 1

    once, gone = (
        "test_each_record_is_a_row_once",
        "test_a_system_that_is_gone_is_an_error_with_a_code_and_costs_nothing",
    )
    with pytest.raises(ClaimsError) as raised:
        check_connector(
            Forgetful, spark=spark, leave_out=of(once, gone, "test_an_empty_source_succeeds_and_has_a_version")
        )

    assert raised.value.broken.keys() == {once, gone}
    said = str(raised.value)
    assert said.startswith("2 of 3 claims do not hold for the connector 'files':\n")
    assert re.search(
        r"\n- each record is a row once: the refresh of two records: found \(.*, None, 'append', 1, 1\), and", said
    )
    assert "costs nothing: OSError: no such folder" in said
    # One of them is closed to find its kind.
    assert Forgetful.closed == 4


def test_a_claim_to_be_left_out_has_to_be_one(spark):
    with pytest.raises(ValueError, match="test_nothing is no claim here. The claims are: test_each_record"):
        check_connector(LandingFolder, spark=spark, leave_out=["test_nothing"])


def code_with(page, begin):
    """The code of a page that begins so, as a module has it."""
    text = (PAGES / page).read_text(encoding="utf-8")
    (code,) = re.findall(rf"```python\n({re.escape(begin)}.*?)```", text, re.DOTALL)
    found: dict[str, type] = {}
    exec(compile(code, page, "exec"), found)
    return found


def test_the_check_on_the_page_is_one_of_its_format(spark, installed):
    found = code_with("connectors.md", "from freshline.testing import LandingFolder, check_format")

    check_format(found["PairsInFiles"], spark=spark, leave_out=ALL_OF_FORMATS[:-1])


def test_the_check_on_the_page_is_one_of_its_channel(monkeypatch):
    pager = ModuleType("pager")
    code = """
from freshline.errors import DeliveryError
sent = []

class Pager:
    def __init__(self, options, resolve):
        self.number, self.key, self.resolve = options["number"], options["key"], resolve

    def deliver(self, message):
        self.resolve(self.key)
        sent.append(message.headline)
"""
    exec(compile(code, "pager.py", "exec"), vars(pager))
    monkeypatch.setitem(sys.modules, "pager", pager)
    code_with("testing.md", "from freshline.testing import Service")["test_the_pager_is_a_channel"]()


@pytest.mark.parametrize("claims", long_but([ALL[:1]], [ALL[:1], ALL]), ids=["one", "all"])
def test_the_check_on_the_page_is_one_of_its_connector(spark, installed, monkeypatch, claims):
    found = code_with("connectors.md", "from freshline.testing import System")

    check_connector(found["SpoolFile"], spark=spark, leave_out=of(*claims))
