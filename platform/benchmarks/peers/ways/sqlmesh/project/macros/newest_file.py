"""When the newest file was written of which the model has rows. As a literal it lets Spark skip the older files."""

from sqlmesh import macro
from sqlmesh.core.macros import RuntimeStage


@macro()
def newest_file(evaluator):
    newest = "1970-01-01 00:00:00"
    if evaluator.runtime_stage == RuntimeStage.EVALUATING.value:
        query = f"SELECT CAST(max(loaded_at) AS STRING) FROM {evaluator.this_model}"
        newest = evaluator.engine_adapter.fetchone(query)[0] or newest
    return f"CAST('{newest}' AS TIMESTAMP)"
