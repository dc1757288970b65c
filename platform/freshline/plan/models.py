"""The files of models that the rows of a table follow, by its receipt.

A receipt names for each model the SHA-256 of every file that rows may follow, the newest last. With `on-change` =
`recompute` there is one. With `new-rows` rows of earlier files stay, and such a table can only gain rows until it is
computed anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from freshline.values.query import KnownModel, SqlQuery
from freshline.values.receipt import Receipt
from freshline.values.spec import TableSpec

# As many digits as people are shown.
SHOWN = 12


def model_key(model: KnownModel) -> str:
    """The name of a model in receipts."""
    return str(model.name).lower()


def models_text(spec: TableSpec) -> str:
    """The models of a table with the beginnings of their versions, for people; empty for none."""
    return versions_text(model_versions(spec))


def model_versions(spec: TableSpec) -> dict[str, str]:
    """The SHA-256 of the file of each model that the query of a table asks, by the name of the model."""
    return {str(model.name): model.sha256 for model in spec.query.models}


def versions_text(models: Mapping[str, str]) -> str:
    """Models by name with the SHA-256 of each, for people.

    >>> versions_text({"delay": "ab" * 32})
    'delay abababababab'
    """
    return ", ".join(f"{name} {sha256[:SHOWN]}" for name, sha256 in models.items())


def models_after(
    spec: TableSpec, previous: Receipt | None, *, whole: bool, adds: bool
) -> Mapping[str, tuple[str, ...]]:
    """The models that the receipt of a commit names: `whole` that all rows were computed, `adds` that any were."""
    found = {}
    for model in spec.query.models:
        before = () if whole or previous is None else previous.models.get(model_key(model), ())
        found[model_key(model)] = before if before and not adds else (*_without(before, model.sha256), model.sha256)
    return found


def _without(files: tuple[str, ...], file: str) -> tuple[str, ...]:
    return tuple(each for each in files if each != file)


def changed_models(spec: TableSpec, receipt: Receipt) -> str:
    """The models for whose new file all rows are computed, for people; empty for none."""
    names = []
    for model in spec.query.models:
        before = receipt.models.get(model_key(model))
        if before is not None and not model.keeps_rows and before[-1:] != (model.sha256,):
            names.append(f"{model.name} {before[-1][:SHOWN]} to {model.sha256[:SHOWN]}" if before else str(model.name))
    return ", ".join(names)


def has_rows_of_other_models(spec: TableSpec, receipt: Receipt) -> bool:
    """Whether rows may follow another file of a model than those that are computed now."""
    return any(
        receipt.models.get(model_key(model), (model.sha256,)) != (model.sha256,)
        for model in spec.query.models
        if model.keeps_rows
    )


def is_mixed(receipt: Receipt) -> bool:
    """Whether rows may follow several files of one model."""
    return any(len(files) > 1 for files in receipt.models.values())


def at_models(spec: TableSpec, receipt: Receipt) -> TableSpec:
    """The same table with a query that asks the files that the refresh of a receipt asked."""
    if not isinstance(spec.query, SqlQuery) or not spec.query.models:
        return spec
    models = tuple(
        replace(model, sha256=(receipt.models.get(model_key(model)) or (model.sha256,))[-1])
        for model in spec.query.models
    )
    return replace(spec, query=replace(spec.query, models=models))
