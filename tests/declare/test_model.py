"""CREATE MODEL and the calls of models, as far as declarations are judged; a file that changes is another table."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from freshline.errors import DeclarationError
from freshline.plan.definition import ChangeClass, classify_change, definition_of
from freshline.testing.models import linear_model
from freshline.values.names import TableName
from tests.declared_project import Project

TRIP = "CREATE SOURCE trip (id BIGINT, miles DOUBLE, wind INT, at TIMESTAMP) WITH ('connector' = 'delta', 'path' = 'x')"
TABLE = "CREATE MATERIALIZED TABLE t{} FRESHNESS = INTERVAL '5' MINUTE AS\nSELECT id, {} AS p FROM trip"


@pytest.fixture
def project(project: Project) -> Project:
    (project.root / "delay.onnx").write_bytes(linear_model([2.0, 0.5], 1.0))
    project.declare("trip.sql", TRIP)
    project.declare("delay.sql", "CREATE MODEL delay WITH ('path' = 'delay.onnx')")
    return project


def refusal(project: Project, name: str, text: str) -> str:
    file = project.declare(f"{name}.sql", text)
    with pytest.raises(DeclarationError) as raised:
        project.read()
    file.unlink()
    return str(raised.value)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            "ml_predict(delay, miles)",
            "t.sql:2: ml_predict(delay, ..) is given 1 values of a row, and the model takes 2",
        ),
        ("ml_predict(delay)", "is given 0 values"),
        ("ml_predict('delay', miles, wind)", "t.sql:2: ml_predict(..) begins with the name of a declared model"),
        ("ml_predict(a.b.c, miles, wind)", "begins with the name of a declared model"),
        ("ml_predict(dealy, miles, wind)", "ml_predict names dealy, which is no declared model. Did you mean delay?"),
        ("ml_predict(delay, miles, gust)", "gust"),
        ("model_version_of(delay, 1)", "Write it as model_version_of(model)"),
        ("freshline_predict_00(miles)", "is for freshline alone"),
    ],
)
def test_a_call_that_does_not_fit_is_reported_at_its_line(project: Project, call: str, said: str) -> None:
    assert said in refusal(project, "t", TABLE.format("", call))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("'path' = 'pickled.onnx'", "other.sql:2: model other: {root}/pickled.onnx is a pickle, which runs code"),
        ("'path' = 'assets'", "Is a directory"),
        ("'path' = '/dev/null'", "is no file"),
        ("'path' = 'gone.onnx'", "gone.onnx cannot be read: No such file"),
        ("'path' = '${env:NOBODY}/a.onnx'", "there is no environment variable NOBODY"),
        ("'on-change' = 'new-rows'", "a model needs WITH ('path' = '..onnx')"),
        ("'path' = 'delay.onnx', 'on-change' = 'never'", "Accepted is recompute"),
        ("'path' = 'delay.onnx', 'on-chance' = 'recompute'", "Did you mean on-change?"),
    ],
)
def test_a_model_that_cannot_be_read_is_reported_at_its_line(project: Project, options: str, said: str) -> None:
    (project.root / "pickled.onnx").write_bytes(b"\x80\x04K\x01.")

    assert said.format(root=project.root) in refusal(project, "other", f"CREATE MODEL other\nWITH ({options})")


def test_a_name_is_that_of_a_table_or_of_a_model(project: Project) -> None:
    (project.root / "assets" / "trip.py").write_text("")
    said = refusal(project, "trip", "CREATE MODEL trip WITH ('path' = 'delay.onnx') FRESHNESS = INTERVAL '1' DAY")
    assert "one of COMMENT, WITH is expected where FRESHNESS stands" in said
    (project.root / "assets" / "trip.py").unlink()
    project.declare("trip.sql", TRIP)
    assert "declares model2. Rename the model" in refusal(
        project, "m", "CREATE MODEL model2 WITH ('path' = 'delay.onnx')"
    )


MERGE = " (PRIMARY KEY (id)) WITH ('merge' = 'first_row', 'merge.order' = 'at', 'merge.tie-breaker' = 'id')"


@pytest.mark.parametrize(
    ("clauses", "condition", "what"),
    [(MERGE, "", "a merge"), ("", " WHERE at > now() - INTERVAL '7' DAYS", "a temporal filter")],
)
def test_rows_that_keep_their_prediction_are_only_added(
    project: Project, clauses: str, condition: str, what: str
) -> None:
    project.declare("kept.sql", "CREATE MODEL kept WITH ('path' = 'delay.onnx', 'on-change' = 'new-rows')")

    said = refusal(project, "t", TABLE.format(clauses, "at, ml_predict(kept, miles, wind)") + condition)

    assert f"t has {what}, and model kept has 'on-change' = 'new-rows'" in said


def test_rows_that_keep_their_prediction_are_not_divided_by_side_outputs(project: Project) -> None:
    # Each table asks the file that is there when it is refreshed, so a row would be in both, or in none.
    project.declare("kept.sql", "CREATE MODEL kept WITH ('path' = 'delay.onnx', 'on-change' = 'new-rows')")

    said = refusal(project, "t", TABLE.format(" SIDE OUTPUT late WHERE (p > 10)", "ml_predict(kept, miles, wind)"))
    assert "t has SIDE OUTPUT, and model kept has 'on-change' = 'new-rows'" in said
    said = refusal(project, "t", TABLE.format(" SIDE OUTPUT late WHERE (ml_predict(kept, p, 1) > 10)", "miles"))
    assert "t has SIDE OUTPUT, and model kept has 'on-change' = 'new-rows'" in said

    project.declare("t.sql", TABLE.format(" SIDE OUTPUT late WHERE (p > 10)", "ml_predict(delay, miles, wind)"))
    assert TableName.parse("late") in project.read()


def test_a_model_whose_rows_are_computed_again_goes_with_temporal_filters(project: Project) -> None:
    project.declare(
        "t.sql", TABLE.format("", "ml_predict(delay, miles, wind)") + " WHERE at > now() - INTERVAL '7' DAYS"
    )

    spec = project.read().table(TableName.parse("t"))
    assert spec.is_temporal
    # The kept definition of the declaration has not the time of the refresh that kept it.
    assert definition_of(spec.at_clock(datetime(2026, 1, 1, tzinfo=UTC))) == definition_of(spec)


def test_another_file_is_another_table_that_asks_nobody(project: Project) -> None:
    name = TableName.parse("t")
    project.declare("t.sql", TABLE.format("", "ml_predict(delay, miles, wind)"))
    before = project.read().table(name)
    (project.root / "moved.onnx").write_bytes((project.root / "delay.onnx").read_bytes())
    project.declare("delay.sql", "CREATE MODEL delay COMMENT 'moved' WITH ('path' = 'moved.onnx')")
    assert project.read().table(name).fingerprint == before.fingerprint

    (project.root / "moved.onnx").write_bytes(linear_model([3.0, 0.5], 1.0))
    after = project.read().table(name)
    assert after.fingerprint != before.fingerprint
    change = classify_change(definition_of(before), definition_of(after))
    assert (change.kind, change.text) == (ChangeClass.ADDITIVE, "model delay has another file")

    # Rows that keep their prediction follow any file, and that they do is part of what they mean.
    project.declare("delay.sql", "CREATE MODEL delay WITH ('path' = 'moved.onnx', 'on-change' = 'new-rows')")
    kept = project.read().table(name)
    (project.root / "moved.onnx").write_bytes(linear_model([4.0, 0.5], 1.0))
    assert project.read().table(name).fingerprint == kept.fingerprint
    assert project.read().table(name) != kept
    assert classify_change(definition_of(after), definition_of(kept)).kind is ChangeClass.BREAKING


def test_another_model_is_another_query(project: Project) -> None:
    name = TableName.parse("t")
    project.declare("t.sql", TABLE.format("", "ml_predict(delay, miles, wind)"))
    before = project.read().table(name)
    project.declare("twin.sql", "CREATE MODEL twin WITH ('path' = 'delay.onnx')")
    project.declare("t.sql", TABLE.format("", "ml_predict(twin, miles, wind)"))
    after = project.read().table(name)

    assert classify_change(definition_of(before), definition_of(after)).kind is ChangeClass.BREAKING
