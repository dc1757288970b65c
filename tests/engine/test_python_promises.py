"""A table in Python that promises keys, or rows by themselves, follows changes; a broken promise is reported."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from freshline.errors import DeclarationErrors
from freshline.testing import Lab
from tests.engine.conftest import error_of
from tests.engine.test_process import declare
from tests.lanes import few_or_many

pytestmark = pytest.mark.slow

PER_CUSTOMER = """
    import freshline
    from pyspark.sql import functions as F


    @freshline.table(keys={"orders": "customer", "visit": "who"})
    def per_customer(orders, visit, rate):
        spent = orders.join(rate, "currency", "left").groupBy("customer").agg(
            F.sum(F.col("amount") * F.coalesce("euros", F.lit(1))).alias("spent")
        )
        seen = visit.groupBy(F.col("who").alias("customer")).agg(F.count("*").alias("visits"))
        return spent.join(seen, ["customer"], "full_outer").select("customer", "spent", "visits")
"""


def function(promise: str, *body: str, name: str = "t", reads: str = "orders") -> str:
    """The code of a table in Python: what it promises, and the lines of its function."""
    imports = "\nimport freshline\nfrom pyspark.sql import Window\nfrom pyspark.sql import functions as F\n\n\n"
    lines = "".join(f"    {line}\n" for line in body)
    return f"{imports}@freshline.table({promise})\ndef {name}({reads}):\n{lines}"


def sources(lab: Lab) -> None:
    lab.source("orders", "id BIGINT, customer STRING, amount INT, currency STRING", primary_key=["id"])
    lab.source("visit", "who STRING, page STRING")
    lab.source("rate", "currency STRING, euros INT")
    lab.sql("INSERT INTO rate VALUES ('eur', 1), ('usd', 2)")
    lab.sql("INSERT INTO orders VALUES (1, 'a', 10, 'eur'), (2, 'b', 5, 'usd'), (3, NULL, 7, 'eur')")
    lab.sql("INSERT INTO visit VALUES ('a', 'x'), ('c', 'x'), (NULL, 'y')")


def computed(lab: Lab) -> Counter[tuple[object, ...]]:
    rows = lab.sql(
        """SELECT coalesce(o.customer, v.who) AS customer, spent, visits FROM
        (SELECT customer, sum(amount * coalesce(euros, 1)) AS spent FROM orders LEFT JOIN rate USING (currency)
         GROUP BY customer) o
        FULL JOIN (SELECT who, count(*) AS visits FROM visit GROUP BY who) v ON o.customer = v.who"""
    )
    return Counter(tuple(row.values()) for row in rows)


def stored(lab: Lab) -> Counter[tuple[object, ...]]:
    return Counter(tuple(row.values()) for row in lab.rows("per_customer"))


@pytest.mark.parametrize("steps", few_or_many(3, 6))
def test_the_function_gets_the_rows_of_affected_keys_only(python_lab: Lab, steps: int) -> None:
    lab = python_lab
    sources(lab)
    declare(lab, "per_customer", PER_CUSTOMER)
    assert lab.refresh("per_customer").error is None
    assert stored(lab) == computed(lab)
    assert "keys" in lab.explain("per_customer").strategies
    chance = random.Random(7)
    for step in range(steps):
        number = step + 10
        lab.sql(
            chance.choice(
                (
                    f"INSERT INTO orders VALUES ({number}, 'b', {step}, 'usd'), ({number + 99}, 'n{step}', 1, 'eur')",
                    "UPDATE orders SET amount = amount + 1, customer = 'moved' WHERE customer = 'b'",
                    "DELETE FROM orders WHERE customer = 'a'",
                    "UPDATE visit SET who = 'd' WHERE who IS NULL",
                    "INSERT INTO visit VALUES (NULL, 'z'), ('a', 'z')",
                )
            )
        )
        result = lab.refresh("per_customer")
        assert result.error is None, result.error
        assert result.strategy in ("keys", "noop"), result.reason
        assert stored(lab) == computed(lab)
    assert lab.verify("per_customer").equal
    # The declaration names no key of the rates.
    lab.sql("UPDATE rate SET euros = 3 WHERE currency = 'usd'")
    result = lab.refresh("per_customer")
    assert (result.strategy, result.error) == ("full", None)
    assert stored(lab) == computed(lab)


def test_each_new_row_gives_rows_by_itself(python_lab: Lab) -> None:
    lab = python_lab
    lab.source("word", "id INT, text STRING")
    letters = 'return word.select("id", F.explode(F.split("text", "")).alias("letter"))'
    declare(lab, "letter", function('append="word"', letters, name="letter", reads="word"))
    lab.sql("INSERT INTO word VALUES (1, 'ab'), (2, ''), (3, NULL)")
    assert lab.refresh("letter").error is None
    lab.sql("INSERT INTO word VALUES (4, 'cc')")
    result = lab.refresh("letter")
    assert (result.strategy, result.rows_in, result.rows_out) == ("append", 1, 2)
    assert lab.verify("letter").equal
    lab.sql("DELETE FROM word WHERE id = 1")
    assert lab.refresh("letter").strategy == "full"
    assert [row["id"] for row in lab.rows("letter") if row["letter"]] == [4, 4]


@pytest.mark.parametrize(
    ("promise", "body", "said"),
    [
        ("keys={'orders': 'customer'}", "rank().over(Window.orderBy('amount', 'id'))", "for half of its keys"),
        ("keys={'orders': 'customer'}", "count('*').over(Window.partitionBy())", "for half of its keys"),
        ("append='orders'", "count('*').over(Window.partitionBy('customer'))", "for two halves"),
    ],
)
def test_a_promise_that_is_not_kept_is_found_at_creation(python_lab: Lab, promise: str, body: str, said: str) -> None:
    lab = python_lab
    lab.source("orders", "id BIGINT, customer STRING, amount INT", primary_key=["id"])
    rows = ", ".join(f"({n}, 'c{n % 7}', {n * 37 % 11})" for n in range(40))
    lab.sql(f"INSERT INTO orders VALUES {rows}")
    declare(lab, "t", function(promise, f'return orders.select("id", "customer", F.{body}.alias("n"))'))
    error = error_of(lab, "t")
    assert (error.code, error.where) == ("PROMISE_BROKEN", "assets/t.py:7")
    assert said in error.message
    assert lab.receipt("t") is None


@pytest.mark.long
def test_a_function_that_takes_away_equal_rows_is_found_at_creation(python_lab: Lab) -> None:
    lab = python_lab
    lab.source("word", "id BIGINT, word STRING")
    lab.sql("INSERT INTO word VALUES (1, 'a'), (1, 'a'), (2, NULL), (2, NULL), (3, 'c')")
    for name, body in (("once", "return word.distinct()"), ("each", "return word")):
        declare(lab, name, function('append="word"', body, name=name, reads="word"))
    error = error_of(lab, "once")
    assert (error.code, "for two halves" in error.message) == ("PROMISE_BROKEN", True)
    assert lab.refresh("each").error is None
    assert len(lab.rows("each")) == 5


@pytest.mark.long
def test_a_key_that_the_rows_have_in_a_narrower_type_is_found_at_creation(python_lab: Lab) -> None:
    lab = python_lab
    lab.source("orders", "k FLOAT, n INT")
    lab.sql("INSERT INTO orders VALUES (0.1, 1), (0.7, 1)")
    text = function('keys={"orders": "k"}', 'return orders.select(F.col("k").cast("KIND").alias("k"), "n")')
    declare(lab, "t", text.replace("KIND", "decimal(2, 1)"))
    error = error_of(lab, "t")
    assert error.code == "PROMISE_BROKEN"
    assert "the key is FLOAT in the input (k) and DECIMAL(2,1) in its rows (k)" in error.message
    assert lab.receipt("t") is None
    # A wider type has each value as it is.
    declare(lab, "t", text.replace("KIND", "double"))
    assert lab.refresh("t").error is None
    lab.sql("INSERT INTO orders VALUES (0.1, 2)")
    assert lab.refresh("t").strategy == "keys"
    assert sorted(row["n"] for row in lab.rows("t")) == [1, 1, 2]


@pytest.mark.long
def test_verify_tries_the_promise_on_the_rows_there_are(python_lab: Lab) -> None:
    lab = python_lab
    lab.source("orders", "id BIGINT, customer STRING", primary_key=["id"])
    counted = 'every = orders.agg(F.count("*").alias("n"))'
    crossed = 'return orders.select("customer").distinct().crossJoin(every)'
    declare(lab, "t", function('keys={"orders": "customer"}', counted, crossed))
    # With one row there is nothing to be compared with.
    lab.sql("INSERT INTO orders VALUES (1, 'a')")
    assert lab.refresh("t").error is None
    assert lab.verify("t").equal
    lab.sql("INSERT INTO orders VALUES (2, 'b'), (3, 'c'), (4, 'd'), (5, 'e')")
    assert lab.refresh("t").error is None
    assert "does not keep its promise" in str(lab.verify("t").error)


@pytest.mark.long
def test_a_promise_that_comes_later_is_tried_before_it_counts(python_lab: Lab) -> None:
    lab = python_lab
    lab.source("orders", "id BIGINT, customer STRING", primary_key=["id"])
    counted = 'return orders.groupBy("customer").agg(F.count("*").alias("n"))'
    declare(lab, "t", function("", counted))
    lab.sql("INSERT INTO orders VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    assert lab.refresh("t").error is None
    declare(lab, "t", function("append='orders'", counted))
    lab.sql("INSERT INTO orders VALUES (4, 'a'), (5, 'b'), (6, 'c'), (7, 'a')")
    assert error_of(lab, "t").code == "PROMISE_BROKEN"
    declare(lab, "t", function("keys={'orders': 'customer'}", counted))
    assert lab.refresh("t").strategy == "full"
    lab.sql("INSERT INTO orders VALUES (8, 'a')")
    assert lab.refresh("t").strategy == "keys"
    assert {row["customer"]: row["n"] for row in lab.rows("t")} == {"a": 4, "b": 2, "c": 2}


@pytest.mark.long
def test_rows_of_other_keys_are_never_written(python_lab: Lab) -> None:
    lab = python_lab
    lab.source("orders", "id BIGINT, customer STRING", primary_key=["id"])
    lab.sql("INSERT INTO orders VALUES (1, 'a'), (2, 'b')")
    customer = 'customer = F.when(F.col("id") < 10, F.col("customer")).otherwise(F.lit("a"))'
    body = (customer, 'return orders.select(customer.alias("customer"), "id")')
    declare(lab, "t", function('keys={"orders": "customer"}', *body))
    assert lab.refresh("t").error is None
    lab.sql("INSERT INTO orders VALUES (11, 'c')")
    assert error_of(lab, "t").code == "PROMISE_BROKEN"
    assert [row["id"] for row in lab.rows("t")] == [1, 2]


@pytest.mark.long
@pytest.mark.parametrize("promise", ["keys={'orders': 'id'}", "append='orders'"])
def test_a_column_that_an_input_is_declared_with_later_is_taken_up_once(python_lab: Lab, promise: str) -> None:
    lab = python_lab
    lab.source("orders", "id BIGINT, amount INT, note STRING")
    file = lab.settings.declarations / "orders.sql"
    whole = file.read_text()
    file.write_text(whole.replace(", note STRING", ""))
    text = function(promise, "return orders")
    declare(lab, "t", text)
    lab.sql("INSERT INTO orders VALUES (1, 10, 'a')")
    assert lab.refresh("t").error is None
    assert lab.rows("t") == [{"id": 1, "amount": 10}]

    file.write_text(whole)
    declare(lab, "t", text)
    lab.sql("INSERT INTO orders VALUES (2, 20, 'b')")
    result = lab.refresh("t")
    assert (result.strategy, result.error) == ("full", None)
    assert result.reason.startswith("DEFINITION_CHANGED(new column note)")
    assert {row["id"]: row["note"] for row in lab.rows("t")} == {1: "a", 2: "b"}
    lab.sql("INSERT INTO orders VALUES (3, 30, 'c')")
    assert lab.refresh("t").strategy == promise.partition("=")[0]
    assert lab.verify("t").equal

    # Changed code is computed whole, so a start that keeps rows is refused.
    declare(lab, "t", text.replace("return orders", "return orders.where('id > 1')"))
    refused = error_of(lab, "t", start="now")
    assert refused.code == "DEFINITION_CHANGED"
    assert "--from beginning" in str(refused)
    assert len(lab.rows("t")) == 3


@pytest.mark.long
@pytest.mark.parametrize("promise", ["keys={'orders': 'id'}", "append='orders'"])
def test_rows_are_joined_with_one_version_of_a_dimension(python_lab: Lab, promise: str) -> None:
    lab = python_lab
    sources(lab)
    joined = 'return orders.join(rate, "currency", "left").select("id", "amount", "euros")'
    declare(lab, "t", function(promise, joined, reads='orders, rate=freshline.lookup("rate")'))
    assert lab.refresh("t").error is None
    lab.sql("INSERT INTO orders VALUES (4, 'b', 5, 'usd')")
    result = lab.refresh("t")
    assert (result.strategy, result.error) == (promise.partition("=")[0], None)

    # A check notes the newer version, and an empty commit the position of the orders.
    lab.sql("UPDATE rate SET euros = 3 WHERE currency = 'usd'")
    assert lab.refresh("t").strategy == "noop"
    lab.sql("ALTER TABLE orders SET TBLPROPERTIES ('a.note' = 'x')")
    lab.clock.advance(hours=2)
    before = lab.receipt("t")
    assert lab.refresh("t").strategy == "noop"
    after = lab.receipt("t")
    assert before is not None
    assert after is not None
    assert after.positions != before.positions
    assert lab.verify("t").equal

    lab.sql("INSERT INTO orders VALUES (5, 'b', 5, 'usd')")
    result = lab.refresh("t")
    assert (result.strategy, result.error) == ("full", None)
    assert {row["id"]: row["euros"] for row in lab.rows("t")} == {1: 1, 2: 3, 3: 1, 4: 3, 5: 3}
    assert lab.verify("t").equal


@pytest.mark.parametrize(
    ("promise", "said"),
    [
        ("keys={'nothing': 'customer'}", "does not read"),
        ("keys={}", "mapping"),
        ("keys={'orders': ['a', 'b'], 'visit': 'c'}", "as many columns"),
        ("keys={'orders': 'a'}, append='orders'", "not both"),
        ("append='rate'", "does not read"),
        ("keys={'orders': 3}", "a column"),
    ],
)
def test_promises_that_make_no_sense_are_refused(lab: Lab, promise: str, said: str) -> None:
    sources(lab)
    text = function(promise, "return orders", reads='orders, visit, rate=freshline.lookup("rate")')
    with pytest.raises(DeclarationErrors) as refused:
        declare(lab, "t", text)
    assert said in str(refused.value)
