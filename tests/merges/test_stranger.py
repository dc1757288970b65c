"""A merge that exists only on the page of extensions: refreshed, union read, explained and verified."""

from __future__ import annotations

import pytest

from freshline.errors import DeclarationErrors
from tests.sources.stranger import code_of_page, on_the_path, write_package

ENTRIES = {"freshline.merges": {"majority": "majority:Majority"}}
MODULES = ("majority", "majority_rows")


@pytest.fixture
def installed(tmp_path):
    """The package `freshline-majority` is installed."""
    folder = tmp_path / "site"
    folder.mkdir()
    code = code_of_page("extending.md")
    for module in MODULES:
        (folder / f"{module}.py").write_text(code[module], encoding="utf-8")
    write_package(folder, "freshline-majority", ENTRIES)
    with on_the_path(folder, MODULES):
        yield


def declared(options="", constraint=""):
    return f"""CREATE MATERIALIZED TABLE m (PRIMARY KEY (k){constraint}) WITH ('merge' = 'majority'{options})
FRESHNESS = INTERVAL '1' MINUTE AS SELECT k, v FROM s"""


def rows(*pairs):
    return [{"k": k, "v": v} for k, v in pairs]


def require_folded(lab, *pairs):
    assert lab.rows("m") == rows(*pairs)
    assert lab.diff("m") == []


@pytest.mark.long
def test_over_a_table_keys_of_changed_rows_are_folded_again(lab, installed):
    lab.source("s", "k INT, v STRING")
    lab.declare(declared())
    lab.sql("INSERT INTO s VALUES (1, 'a'), (1, 'b'), (1, 'b'), (2, 'z'), (NULL, 'n')")
    assert lab.refresh("m").strategy == "full"
    require_folded(lab, (1, "b"), (2, "z"))

    lab.sql("INSERT INTO s VALUES (1, 'a'), (1, 'a'), (3, NULL)")
    outcome = lab.refresh("m")
    assert (outcome.strategy, outcome.reason.split(":")[0]) == ("keys", "AFFECTED_KEYS(k)")
    require_folded(lab, (1, "a"), (2, "z"), (3, None))

    lab.sql("DELETE FROM s WHERE v = 'a'")
    assert lab.refresh("m").strategy == "keys"
    require_folded(lab, (1, "b"), (2, "z"), (3, None))

    lab.sql("DELETE FROM s WHERE k IN (2, 3)")
    assert lab.refresh("m").strategy == "keys"
    require_folded(lab, (1, "b"))


@pytest.mark.long
def test_over_a_log_older_rows_of_the_key_count_too(lab, installed):
    lab.files("s", "k INT, v STRING")
    lab.declare(declared(", 'majority.at-least' = '2'", ", CONSTRAINT known EXPECT (v <> 'bad') ON VIOLATION DROP ROW"))
    lab.land("s", "1.json", rows((1, "a"), (1, "b"), (2, "c"), (None, "n")))
    outcome = lab.refresh("m")
    assert (outcome.strategy, outcome.rejected) == ("full", 1)
    require_folded(lab)

    lab.land("s", "2.json", rows((1, "b"), (2, "bad"), (2, "bad"), (None, "n")))
    outcome = lab.refresh("m")
    assert (outcome.strategy, outcome.rejected) == ("keys", 1)
    require_folded(lab, (1, "b"))

    lab.land("s", "3.json", rows((1, "a"), (1, "a"), (2, "c")))
    assert lab.refresh("m").strategy == "keys"
    require_folded(lab, (1, "a"), (2, "c"))


@pytest.mark.long
def test_a_union_read_is_the_table_that_a_refresh_would_make(lab, installed):
    lab.files("s", "k INT, v STRING")
    lab.declare(declared(", 'majority.at-least' = '2'"))
    lab.land("s", "1.json", rows((1, "a"), (1, "a"), (2, "c"), (4, "x"), (4, "x")))
    lab.refresh("m")
    # Part of what the table has not folded is in the log, the rest in the folder.
    lab.land("s", "2.json", rows((1, "b"), (2, "c"), (3, "d")))
    lab.refresh("s")
    lab.land("s", "3.json", rows((1, "b"), (1, "b"), (3, "d")))
    found, token = lab.union("m")
    lab.refresh("m")

    assert found == rows((1, "b"), (2, "c"), (3, "d"), (4, "x"))
    assert lab.rows("m") == found
    assert lab.union("m", token) == (found, token)


def test_explain_shows_how_it_is_kept(lab, installed):
    lab.files("s", "k INT, v STRING")
    lab.declare(declared())

    (case,) = lab.explain("m").cases
    assert (case.strategy, case.refused["merge"].about) == ("keys", "majority folds whole keys")


def test_its_options_mean_another_table(lab, installed):
    lab.files("s", "k INT, v STRING")
    once, twice = ", 'majority.at-least' = '1'", ", 'majority.at-least' = '2'"
    fingerprints = set()
    for options in ("", once, twice, ", 'upstream-deletes' = 'error'"):
        name = lab.declare(declared(options))
        fingerprints.add(lab.runtime.graph.table(name).fingerprint)

    assert len(fingerprints) == 3


@pytest.mark.parametrize(
    ("options", "rule", "said"),
    [
        (", 'majority.at-least' = '0'", "OPTION_VALUE", "a whole number from 1 to 1000"),
        (", 'merge.order' = 'v'", "OPTION_NEEDS", "needs 'merge' = 'first_row'"),
        (", 'majority.most' = '2'", "UNKNOWN_OPTION", "Did you mean majority.at-least"),
        (", 'upstream-deletes' = 'ignore'", "OPTION_NEEDS", "a merge other than majority"),
    ],
)
def test_its_options_are_checked(lab, installed, options, rule, said):
    lab.source("s", "k INT, v STRING")

    with pytest.raises(DeclarationErrors) as raised:
        lab.declare(declared(options))

    assert [error.rule for error in raised.value.errors] == [rule]
    assert said in str(raised.value)


def test_a_name_that_no_package_has_is_an_error_of_the_declaration(lab):
    lab.source("s", "k INT, v STRING")

    with pytest.raises(DeclarationErrors, match="There are first_row, last_row, partial_update, aggregate") as raised:
        lab.declare(declared())

    assert "'majority' does not come with freshline, and no installed package has it" in str(raised.value)
