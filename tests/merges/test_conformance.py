"""The merges of freshline, and the one of the page, checked against the claims of `freshline.testing`."""

# ruff: noqa: RUF012 - the class that they derive from says that these are of the class

from __future__ import annotations

import re

import pytest

from freshline.testing import ClaimsError, MergedTable, check_merge
from freshline.testing.claims import claims_of
from freshline.testing.merges import MergeConformance
from tests.lanes import long_but
from tests.merges.test_stranger import ENTRIES, MODULES
from tests.sources.stranger import PAGES, code_of_page, on_the_path, write_package

ALL = claims_of(MergeConformance)
# Those that need the fewest refreshes, and find the mistakes that are made most.
FEW = (
    "test_each_key_has_one_row_with_the_columns_of_the_table",
    "test_the_order_of_rows_does_not_count",
    "test_a_key_is_folded_of_its_own_rows",
    "test_its_options_are_asked_for_and_decide_what_table_it_is",
)


def all_but(*names):
    return [claim for claim in ALL if claim not in names]


class Majority(MergedTable):
    """The merge of the page "Extensions"."""

    merge = "majority"
    options = {"majority.at-least": "2"}
    other = {"majority.at-least": "3", "upstream-deletes": "error"}


class LastRow(MergedTable):
    merge = "last_row"
    columns = "k INT, at TIMESTAMP, v STRING"
    options = {"merge.sequence": "at", "merge.tie-breaker": "v"}
    other = {"merge.delete-when": "v = 'a'"}


class FirstRow(MergedTable):
    merge = "first_row"
    columns = "k INT, at TIMESTAMP, v STRING"
    options = {"merge.order": "at", "merge.tie-breaker": "v"}


class Arrived(MergedTable):
    """The row that arrived first."""

    merge = "first_row"
    options = {"merge.order": "arrival"}
    over_log = True


class Partial(MergedTable):
    merge = "partial_update"
    columns = "k INT, at BIGINT, a STRING, b DOUBLE"
    options = {"merge.sequence": "at", "merge.tie-breaker": "a"}


class Aggregate(MergedTable):
    merge = "aggregate"
    columns = "k INT, n BIGINT, m INT"
    options = {"merge.aggregate.n": "sum", "merge.aggregate.m": "max"}


SHIPPED = [LastRow, FirstRow, Arrived, Partial, Aggregate]


@pytest.mark.parametrize("table", long_but([LastRow], SHIPPED))
def test_a_merge_of_freshline_is_checked_against_the_claims(spark, table):
    check_merge(table, spark=spark, leave_out=all_but(*FEW))


@pytest.mark.long
@pytest.mark.parametrize("table", SHIPPED)
def test_a_merge_of_freshline_is_checked_against_the_other_claims_too(spark, table):
    check_merge(table, spark=spark, leave_out=FEW)


@pytest.fixture
def install(tmp_path):
    """Install the merge of the page, with another body of its `fold` where one is given."""
    folder = tmp_path / "site"
    folder.mkdir()
    code = code_of_page("extending.md")

    def write(fold=""):
        module = code["majority"]
        body = module.index("        from majority_rows")
        (folder / "majority.py").write_text(module[:body] + fold if fold else module, encoding="utf-8")
        (folder / "majority_rows.py").write_text(code["majority_rows"], encoding="utf-8")

    write_package(folder, "freshline-majority", ENTRIES)
    with on_the_path(folder, MODULES):
        yield write


@pytest.mark.long
def test_the_merge_of_the_page_is_checked_against_all_claims(spark, install):
    install()

    check_merge(Majority, spark=spark)


def test_the_check_on_the_page_is_one_of_its_merge(spark, install):
    install()
    text = (PAGES / "extending.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(from freshline.testing import MergedTable.*?)```", text, re.DOTALL)
    found: dict[str, type] = {}
    exec(compile(code, "extending.md", "exec"), found)

    check_merge(found["Measured"], spark=spark, leave_out=all_but(*FEW))


def test_the_mistakes_of_a_merge_are_found(spark, install):
    install(
        """        from pyspark.sql import functions as F
        from freshline.values.names import quoted
        # The first row that comes, of whichever key sorts first: neither depends on the rows of the key alone.
        rows = rows.withColumn("n", F.count(F.lit(1)).over(__import__("pyspark").sql.Window.partitionBy()))
        return rows.groupBy("k").agg(F.first("v").alias("v"), F.max("n").alias("n")).where("n > 40")
"""
    )
    with pytest.raises(ClaimsError) as raised:
        check_merge(Majority, spark=spark, leave_out=all_but(*FEW))

    assert raised.value.broken.keys() == {
        "test_the_order_of_rows_does_not_count",
        "test_a_key_is_folded_of_its_own_rows",
    }
    assert "for the merge 'majority'" in str(raised.value)


def test_two_rows_of_a_key_and_an_option_without_a_meaning_are_found(spark, install):
    install(
        """        return rows.select("k", "v")

    @property
    def meaning(self):
        return (self.name,)
"""
    )
    with pytest.raises(ClaimsError) as raised:
        check_merge(Majority, spark=spark, leave_out=all_but(FEW[0], FEW[3]))

    broken = raised.value.broken
    assert broken.keys() == {FEW[0], FEW[3]}
    assert "FRESHLINE_MERGE_KEY" in str(broken[FEW[0]])
    assert "'majority.at-least' = '3' means the same table" in str(broken[FEW[3]])
