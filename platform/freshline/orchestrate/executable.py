"""The asset that a person can materialize.

Without `from __future__ import annotations`: Dagster looks at the annotation of a step's context, and does not read it
from text.
"""

from typing import Any

from dagster import AssetExecutionContext, AssetsDefinition, AssetSpec, In, MaterializeResult, Nothing, Out, op

from freshline.orchestrate.asset import step_name
from freshline.orchestrate.materialize import Connect, Materialization, materialize

OUTPUT = "result"


def executable_asset(spec: AssetSpec, asked: Materialization, connect: Connect) -> AssetsDefinition:
    """One asset with one step of its own.

    Built from an op, because the asset decorators would name step, inputs and outputs after the tables, and Dagster
    forbids some names and takes `a.b_c` and `a_b.c` for one.
    """
    inputs = {f"reads_{number}": dep.asset_key for number, dep in enumerate(spec.deps)}

    @op(
        name=step_name(asked.name),
        description=spec.description,
        ins={name: In(Nothing) for name in inputs},
        out={OUTPUT: Out(Nothing)},
        code_version=spec.code_version,
    )
    def refresh(context: AssetExecutionContext) -> MaterializeResult[Any]:
        return materialize(asked, connect, context)

    return AssetsDefinition(
        specs=[spec],
        node_def=refresh,
        keys_by_input_name=inputs,
        keys_by_output_name={OUTPUT: spec.key},
    )
