"""Where the values of keys lie."""

from __future__ import annotations

import pytest

from freshline.compute.keys import keys_of

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("collation", "span"), [("UTF8_BINARY", ("B0001", "a0600")), ("UTF8_LCASE", None)])
def test_many_texts_of_a_collation_have_no_least_and_greatest(spark, collation, span):
    texts = spark.range(1, 601).selectExpr(
        f"inline(array(struct(format_string('B%04d', id) COLLATE {collation} AS k), "
        f"struct(format_string('a%04d', id) COLLATE {collation} AS k)))"
    )

    keys = keys_of(texts)

    found = keys.spans["k"]
    assert (found and found.values) == span
    assert keys.restrict(texts).count() == 1_200
