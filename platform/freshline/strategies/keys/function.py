"""The function of a table in Python is called with the rows of affected keys, and what differs is written."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from freshline.commit.delta_log import newest_version
from freshline.compute.inputs import read_net_images, read_version
from freshline.compute.keys import difference_by_bag, difference_by_key, keys_of
from freshline.compute.materialize import materialize_once
from freshline.refresh.attempt import Attempt, Work
from freshline.refresh.computed_rows import check_key, check_key_against
from freshline.refresh.functions import Function
from freshline.strategies.keys.changes import KeyChanges
from freshline.strategies.keys.rule import KeysOfFunction
from freshline.strategies.keys.write import write_of_changes
from freshline.values.names import quoted
from freshline.values.query import PythonQuery


def refresh_keys_of_function(attempt: Attempt, step: KeysOfFunction) -> Work:
    """The write of how the rows of affected keys change. Raises PromiseBrokenError for rows of other keys."""
    spark, spec = attempt.spark, attempt.spec
    assert isinstance(spec.query, PythonQuery)
    function = Function(attempt.runtime, spark, spec, attempt.inputs, attempt.held, attempt.cancellation)
    version = newest_version(attempt.path)
    assert version is not None
    target = read_version(spark, attempt.path, version)
    like = target.select(*[F.col(quoted(name)) for name in function.key_names(target)])
    touched = [
        function.as_keys(read_net_images(spark, attempt.inputs[name], attempt.changes[name]), columns, like)
        for name, columns in spec.query.keys
        if name in step.changed
    ]
    keys = keys_of(reduce(DataFrame.unionAll, touched).distinct())
    rows_in = sum(attempt.changes[name].rows for name in step.changed)
    if keys.count == 0:
        return attempt.nothing(rows_in)
    function.require_stored_keys(keys)
    made = attempt.constraint_check.rows(function.rows_of_keys(keys), again=True)
    attempt.require_stored_columns(made)
    new, _ = materialize_once(made.select(*[F.col(quoted(name)) for name in target.columns]))
    function.require_own_keys(new, keys)
    if spec.primary_key:
        check_key(new, spec)
        if not {column.lower() for column in keys.columns} <= {key.lower() for key in spec.primary_key}:
            check_key_against(new, keys.leave(target), spec)
        changed = difference_by_key(new, keys.restrict(target), spec.primary_key)
    else:
        changed = difference_by_bag(new, keys.restrict(target), keys)
    changed, count = materialize_once(changed)
    found = KeyChanges(keys, changed if count else None, count, step.reason, spec.primary_key)
    return write_of_changes(attempt, found, rows_in)
