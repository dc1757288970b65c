"""The asset that a person can materialize, and the check that she can run.

Without `from __future__ import annotations`: Dagster inspects the annotation of a step's context, and does not read it
from text.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from dagster import (
    AssetCheckExecutionContext,
    AssetCheckKey,
    AssetCheckResult,
    AssetChecksDefinition,
    AssetCheckSpec,
    AssetExecutionContext,
    AssetsDefinition,
    AssetSpec,
    BackfillPolicy,
    In,
    MaterializeResult,
    Nothing,
    Out,
    Output,
    op,
)

from freshline.dagster.asset import step_name
from freshline.dagster.materialize import Connect, Materialization, materialize

OUTPUT = "result"


def executable_asset(spec: AssetSpec, asked: Materialization, connect: Connect) -> AssetsDefinition:
    """One asset with one step of its own.

    Built from an op, because the asset decorators would name step, inputs and outputs after the tables, and Dagster
    forbids some names and takes `a.b_c` and `a_b.c` for one.
    """
    apart = set(asked.behind.values())
    keys = [dep.asset_key for dep in spec.deps if dep.asset_key not in apart]
    inputs = {f"reads_{number}": key for number, key in enumerate(keys)}

    @op(
        name=step_name(asked.name),
        description=spec.description,
        ins={name: In(Nothing) for name in inputs},
        out={OUTPUT: Out(Nothing)},
        code_version=spec.code_version,
        # The steps of tables above begin first, also where they are no inputs.
        tags={"dagster/priority": str(-asked.place)},
    )
    def refresh(context: AssetExecutionContext) -> MaterializeResult[Any]:
        return materialize(asked, connect, context)

    return AssetsDefinition(
        specs=[spec],
        node_def=refresh,
        keys_by_input_name=inputs,
        keys_by_output_name={OUTPUT: spec.key},
        # The engine has the chunks: a run for each partition would cost more than the partition.
        backfill_policy=BackfillPolicy.single_run() if spec.partitions_def is not None else None,
    )


def executable_checks(
    specs: Sequence[AssetCheckSpec],
    name: str,
    description: str,
    evaluate: Callable[[AssetCheckExecutionContext], Iterator[AssetCheckResult]],
) -> AssetChecksDefinition:
    """One step that evaluates any of the checks; in a run that materializes their tables too, it comes after them.

    Built from an op for the reason that an asset is.
    """
    inputs = {f"checks_{number}": key for number, key in enumerate(dict.fromkeys(spec.asset_key for spec in specs))}
    outputs = {f"check_{number}": spec for number, spec in enumerate(specs)}

    @op(
        name=name,
        description=description,
        ins={input_name: In(Nothing) for input_name in inputs},
        out={output: Out(None, is_required=False) for output in outputs},
    )
    def check(context: AssetCheckExecutionContext) -> Any:
        left = set(context.selected_asset_check_keys)
        for result in evaluate(context):
            left -= {AssetCheckKey(key, name) for key, name in [(result.asset_key, result.check_name)] if key and name}
            yield result
        # Checks that this run leaves to others have no verdict. Without an output Dagster would log a missing one.
        for output, spec in outputs.items():
            if spec.key in left:
                yield Output(None, output)

    made: AssetChecksDefinition = AssetChecksDefinition.create(
        keys_by_input_name=inputs, node_def=check, check_specs_by_output_name=outputs, can_subset=True
    )
    return made
