"""The files of models that rows were predicted with: kept beside the tables, each under its SHA-256.

A kept file never changes, so `verify` and a full refresh of an earlier time find what there was, whatever became of the
file in the project. It is written under another name and renamed, so whoever is stopped in between leaves a file that
nobody reads.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from freshline.commit.notes import keep_file
from freshline.errors import ModelChangedError, ModelError
from freshline.values.query import KnownModel

FOLDER = "_freshline_models"


def model_file(warehouse: Path, sha256: str) -> Path:
    """Where the file of a model is kept."""
    return warehouse / FOLDER / f"{sha256}.onnx"


def keep_model(warehouse: Path, model: KnownModel) -> Path:
    """Keep the file of a model, and return where.

    Raises ModelError for a file that is not there, and ModelChangedError for one that is another by now.
    """
    kept = model_file(warehouse, model.sha256)
    if kept.exists():
        return kept
    try:
        content = Path(model.path).read_bytes()
    except OSError as error:
        raise ModelError(
            f"model {model.name}: {model.path} cannot be read ({error.strerror or error}), and version "
            f"{model.sha256[:12]} was never kept. Put the file back.",
            where=str(model.name),
        ) from error
    if hashlib.sha256(content).hexdigest() != model.sha256:
        raise ModelChangedError(
            f"model {model.name}: version {model.sha256[:12]} is not kept, and {model.path} is another one by now. Ask "
            "again, which reads the declarations anew.",
            where=str(model.name),
        )
    keep_file(kept, content)
    return kept
