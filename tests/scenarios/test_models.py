"""Tables that ask a model: each row has the prediction of the file that its receipt names, by another computation."""

from __future__ import annotations

import math
from datetime import timedelta

import pytest

from freshline.commit.models import model_file
from freshline.errors import DeclarationError, ModelError
from freshline.testing.models import Node, Values, linear_model, onnx_model
from tests.scenarios.tables import follow

TRIPS = "id BIGINT, miles DOUBLE, wind INT, at TIMESTAMP"
FIRST, SECOND = ([2.0, 0.5], 1.0), ([-1.0, 4.0], 0.25)
PREDICTED = """CREATE MATERIALIZED TABLE predicted{header} FRESHNESS = INTERVAL '5' MINUTE
AS SELECT id, ml_predict(delay, miles, wind) AS minutes, model_version_of(delay) AS made_by FROM trip"""


def model(parts: tuple[list[float], float]) -> bytes:
    return linear_model(*parts)


def minutes(parts: tuple[list[float], float], miles: float | None, wind: float | None) -> float | None:
    (first, second), constant = parts
    return None if miles is None or wind is None else first * miles + second * wind + constant


def stored(lab, name: str = "predicted") -> dict[int, tuple[float | None, str]]:
    return {row["id"]: (row["minutes"], row["made_by"]) for row in lab.rows(name)}


def check(lab, parts: dict[int, tuple[list[float], float]]) -> None:
    """Require that each row has the prediction that Python computes by the model that made it."""
    trips = {row["id"]: row for row in lab.sql("SELECT * FROM trip")}
    found = stored(lab)
    assert found.keys() == trips.keys()
    for number, (given, _) in found.items():
        expected = minutes(parts[number], trips[number]["miles"], trips[number]["wind"])
        if given is None or expected is None:
            assert given is expected
        else:
            assert math.isclose(given, expected, rel_tol=1e-6, abs_tol=1e-4), number


@pytest.mark.long
def test_rows_follow_the_model_through_every_change(lab):
    lab.source("trip", TRIPS)
    file = lab.model("delay", model(FIRST))
    lab.declare(PREDICTED.format(header=" (PRIMARY KEY (id))"))
    lab.sql("INSERT INTO trip VALUES (1, 10.5, 3, NULL), (2, NULL, 3, NULL), (3, 1.0, NULL, NULL)")
    assert lab.refresh("predicted").strategy == "full"
    check(lab, dict.fromkeys((1, 2, 3), FIRST))

    # More rows than a block, and one that is computed alone later, must not differ in the last digits.
    lab.sql("INSERT INTO trip SELECT id, id * 0.37, pmod(id, 17), NULL FROM range(4, 600)")
    follow(lab, name="predicted", by="append")
    lab.sql("UPDATE trip SET miles = 7.25 WHERE id IN (2, 5)")
    follow(lab, "DELETE FROM trip WHERE id = 3", name="predicted", by="keys")
    numbers = [1, 2, *range(4, 600)]
    check(lab, dict.fromkeys(numbers, FIRST))
    before = lab.receipt("predicted").models["delay"]
    assert {made_by for _, made_by in stored(lab).values()} == {before[-1]}

    # Another file: all rows are computed, also where nothing else has changed.
    lab.model("delay", model(SECOND))
    found = lab.refresh("predicted")
    assert (found.strategy, found.reason.split("(")[0]) == ("full", "MODEL_CHANGED")
    assert {"delay": lab.receipt("predicted").models["delay"][-1]} == found.models
    check(lab, dict.fromkeys(numbers, SECOND))
    assert lab.diff("predicted") == []
    assert lab.receipt("predicted").models["delay"] != before
    # The same bytes under another time are the same model.
    lab.model("delay", model(SECOND))
    assert lab.refresh("predicted").strategy == "noop"

    # A file that is gone: the kept one is asked as long as its declaration was read before.
    file.unlink()
    follow(lab, "INSERT INTO trip VALUES (1000, 1.0, 1, NULL)", name="predicted", by="append")
    with pytest.raises(DeclarationError, match=r"declared\.sql:1|delay\.sql:1.*cannot be read: No such file"):
        lab.restart()
    lab.model("delay", model(SECOND))
    lab.restart(lose_control_store=True)
    assert lab.refresh("predicted").strategy == "noop"


@pytest.mark.long
def test_new_rows_keep_the_prediction_of_their_time(lab):
    lab.source("trip", TRIPS)
    lab.model("delay", model(FIRST), on_change="new-rows")
    lab.declare(PREDICTED.format(header=""))
    lab.sql("INSERT INTO trip VALUES (1, 10.5, 3, NULL), (2, 3.0, 1, NULL)")
    lab.refresh("predicted")
    lab.sql("UPDATE trip SET wind = 9 WHERE id = 2")
    found = lab.refresh("predicted")
    assert found.strategy == "keys", found.reason

    lab.model("delay", model(SECOND), on_change="new-rows")
    follow(lab, name="predicted", by="noop")
    lab.sql("INSERT INTO trip VALUES (3, 5.0, 2, NULL)")
    assert lab.refresh("predicted").strategy == "append"
    check(lab, {1: FIRST, 2: FIRST, 3: SECOND})
    assert lab.diff("predicted") == []
    assert len(lab.receipt("predicted").models["delay"]) == 2
    lab.restart()
    follow(lab, "INSERT INTO trip VALUES (4, NULL, 2, NULL)", name="predicted", by="append")

    kept = model_file(lab.settings.warehouse, lab.receipt("predicted").models["delay"][0])
    content = kept.read_bytes()
    kept.unlink()
    assert lab.verify("predicted").unverified == 4, "what cannot be recomputed is not called equal"
    kept.write_bytes(content)

    lab.sql("UPDATE trip SET wind = 1 WHERE id = 1")
    found = lab.refresh("predicted")
    assert found.strategy == "full"
    assert "earlier model" in found.reason
    check(lab, dict.fromkeys((1, 2, 3, 4), SECOND))
    assert lab.diff("predicted") == []


@pytest.mark.long
def test_predictions_over_a_join_are_verified_by_what_each_append_added(lab):
    lab.source("trip", TRIPS)
    lab.source("airport", "id BIGINT, wind INT")
    lab.model("delay", model(FIRST), on_change="new-rows")
    lab.declare(
        "CREATE MATERIALIZED TABLE predicted FRESHNESS = INTERVAL '5' MINUTE AS SELECT t.id, "
        "ml_predict(delay, t.miles, a.wind) AS minutes, model_version_of(delay) AS made_by "
        "FROM trip AS t JOIN airport AS a ON a.id = t.id"
    )
    lab.sql("INSERT INTO trip VALUES (1, 10.5, 3, NULL), (2, 3.0, 1, NULL)")
    lab.sql("INSERT INTO airport VALUES (1, 3), (3, 2)")
    lab.refresh("predicted")
    lab.model("delay", model(SECOND), on_change="new-rows")
    for statement in ("INSERT INTO trip VALUES (3, 5.0, 2, NULL)", "INSERT INTO airport VALUES (2, 1)"):
        follow(lab, statement, name="predicted", by="append")
    check(lab, {1: FIRST, 2: SECOND, 3: SECOND})


@pytest.mark.long
def test_models_predict_around_a_graph_function(lab):
    lab.source("edge", "src BIGINT, dst BIGINT")
    lab.model("delay", model(FIRST))
    lab.declare("""CREATE MATERIALIZED TABLE reached (PRIMARY KEY (node)) FRESHNESS = INTERVAL '5' MINUTE AS
    SELECT node, component, ml_predict(delay, node, component) AS minutes, model_version_of(delay) AS made_by,
      ml_predict(delay, node, NULL) AS nothing
    FROM CONNECTED_COMPONENTS(TABLE edge, DESCRIPTOR(src, dst)) WHERE ml_predict(delay, node, 0) > 3""")

    def expect(parts):
        rows = lab.rows("reached")
        found = {row["node"]: (row["minutes"], row["made_by"]) for row in rows}
        sha = lab.receipt("reached").models["delay"][-1]
        assert found == {
            row["node"]: (pytest.approx(minutes(parts, row["node"], row["component"])), sha) for row in rows
        }
        assert {row["nothing"] for row in rows} == {None}
        assert lab.verify("reached").equal
        return set(found)

    lab.sql("INSERT INTO edge VALUES (1, 2), (2, 3), (10, 11)")
    assert lab.refresh("reached").error is None
    assert expect(FIRST) == {2, 3, 10, 11}
    lab.sql("INSERT INTO edge VALUES (3, 4)")
    found = lab.refresh("reached")
    assert (found.strategy, found.error) == ("keys", None)
    assert expect(FIRST) == {2, 3, 4, 10, 11}

    lab.model("delay", model(([3.0, 0.5], 1.0)))
    found = lab.refresh("reached")
    assert found.strategy == "full"
    assert found.reason.startswith("MODEL_CHANGED")
    assert expect(([3.0, 0.5], 1.0)) == {1, 2, 3, 4, 10, 11}


@pytest.mark.long
def test_models_stand_wherever_an_expression_does(lab):
    lab.source("trip", TRIPS)
    lab.model(
        "air.speed",
        onnx_model(
            [Node("Add", ["a", "b"], ["sum"]), Node("Cast", ["a"], ["whole"], {"to": 7})],
            {"a": Values("DOUBLE", [None]), "b": Values("DOUBLE", [None, 1])},
            {"sum": Values("DOUBLE", [None, None]), "whole": Values("BIGINT", [None])},
        ),
    )
    lab.model("delay", model(FIRST))
    lab.declare("""CREATE MATERIALIZED TABLE busy FRESHNESS = INTERVAL '5' MINUTE AS
        WITH asked AS (SELECT id, wind, ml_predict( -- by wind
            delay, miles, CAST(wind AS DECIMAL(5, 1))) AS minutes FROM trip WHERE ml_predict(delay, miles, wind) > 2)
        SELECT wind, count(*) AS trips, max(ml_predict(air.speed, minutes, 1).whole) AS most,
          max(ml_predict(delay, (ml_predict(delay, 1, greatest(1, 2))), 0)) AS constant,
          max(model_version_of(air.speed)) IS NULL AS none
        FROM asked GROUP BY wind""")
    lab.sql("INSERT INTO trip VALUES (1, 0.25, 0, NULL), (2, 3.0, 1, NULL), (3, 4.0, 1, NULL), (4, NULL, 1, NULL)")
    assert lab.refresh("busy").error is None
    lab.sql("UPDATE trip SET miles = 9 WHERE id = 2")
    follow(lab, "INSERT INTO trip VALUES (5, 0.1, 0, NULL), (6, 1.0, NULL, NULL)", name="busy", by="keys")
    assert lab.rows("busy") == [{"wind": 1, "trips": 2, "most": 19, "constant": 9.0, "none": False}]


def test_values_of_another_type_fail_the_refresh(lab):
    lab.source("trip", TRIPS)
    lab.model("delay", model(FIRST))
    lab.declare(
        "CREATE MATERIALIZED TABLE t FRESHNESS = INTERVAL '5' MINUTE "
        "AS SELECT ml_predict(delay, miles, at) AS p FROM trip"
    )
    lab.sql("INSERT INTO trip VALUES (1, 10.5, 3, TIMESTAMP'2026-01-01 00:00:00')")
    error = lab.refresh("t").error
    assert isinstance(error, ModelError)
    assert "input values takes FLOAT, and is given TIMESTAMP" in str(error)


@pytest.mark.long
def test_predicted_rows_enter_and_leave_as_time_passes(lab):
    lab.source("trip", TRIPS)
    lab.model("delay", model(FIRST))
    lab.declare(PREDICTED.format(header="") + " WHERE at > now() - INTERVAL '1' HOUR AND at <= now()")
    start = lab.clock()
    times = [f"TIMESTAMP '{start + timedelta(minutes=minute):%Y-%m-%d %H:%M:%SZ}'" for minute in (-50, -10, 20)]
    lab.sql(f"INSERT INTO trip VALUES (1, 10.5, 3, {times[0]}), (2, 3.0, 1, {times[1]}), (3, 5.0, 2, {times[2]})")
    assert lab.refresh("predicted").strategy == "full"
    assert stored(lab).keys() == {1, 2}
    assert [*lab.refresh("predicted").models] == ["delay"], "also where nothing was computed"

    lab.clock.advance(minutes=30)
    found = follow(lab, name="predicted")
    assert (found.strategy, found.rows_out) == ("keys", 2), found.reason
    assert {number: given for number, (given, _) in stored(lab).items()} == {
        2: minutes(FIRST, 3.0, 1),
        3: minutes(FIRST, 5.0, 2),
    }

    lab.model("delay", model(SECOND))
    lab.clock.advance(minutes=30)
    assert lab.refresh("predicted").reason.startswith("MODEL_CHANGED")
    assert lab.diff("predicted") == []
    assert stored(lab)[3][0] == minutes(SECOND, 5.0, 2)
    assert stored(lab).keys() == {3}
