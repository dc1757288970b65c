"""The two files in the state directory by which a Prometheus that is configured once finds an engine.

`metrics/targets.json` has the address of the running engine (the file of `file_sd_configs`), and is an empty list
after an engine has ended in order. After a `kill -9` the old address stays, so that Prometheus reports a target that
is down. `metrics/token` has the token that opens `/metrics` and nothing else, one for each engine.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from freshline.engine.whole_file import write_whole
from freshline.errors import UNREADABLE_FILE, SettingsError, StorageError
from freshline.values.secret import resolve_token
from freshline.values.settings import Settings

LOG = logging.getLogger(__name__)

FOLDER = "metrics"
JOB = "freshline"
_PRIVATE = 0o600


def token_file(settings: Settings) -> Path:
    """The file of the token, where the setting `metrics-token` names no other."""
    return settings.state / FOLDER / "token"


def targets_file(settings: Settings) -> Path:
    """The file with the address of the running engine."""
    return settings.state / FOLDER / "targets.json"


def chosen_token(settings: Settings, environ: Mapping[str, str]) -> str | None:
    """The token that the setting `metrics-token` refers to, None without it. Raises SettingsError."""
    if settings.metrics_token is None:
        return None
    try:
        return resolve_token(settings.metrics_token, settings.root, environ)
    except ValueError as error:
        raise SettingsError(f"metrics-token: {error}") from error


def write_token(settings: Settings, token: str) -> None:
    """Put the token of this engine in the place of the one before, for the owner only. Raises StorageError."""
    _write(token_file(settings), token, _PRIVATE)


def write_target(settings: Settings, port: int) -> None:
    """Write the port of this engine on loopback for Prometheus. Raises StorageError."""
    _write_targets(settings, [target_of(settings, port)])


def forget_target(settings: Settings, port: int) -> None:
    """Remove the target of the engine at this port, which has ended. Where that cannot be written, it is shown as down.

    The target of another engine stays, and nothing is made where the state has gone from.
    """
    try:
        if json.loads(targets_file(settings).read_bytes()) == [target_of(settings, port)]:
            _write_targets(settings, [])
    except UNREADABLE_FILE:
        return
    except StorageError as error:
        LOG.warning("Prometheus goes on asking for this engine: %s", error)


def _write_targets(settings: Settings, targets: list[dict[str, Any]]) -> None:
    # No secret: a group that may read the state may follow the engine.
    _write(targets_file(settings), json.dumps(targets), 0o666 & ~settings.umask)


def target_of(settings: Settings, port: int) -> dict[str, Any]:
    """The engine at a port, as configurations of Prometheus name it.

    The rules select the job `freshline`, whatever the configuration is named.
    """
    return {"targets": [f"127.0.0.1:{port}"], "labels": {"job": JOB, "instance": instance(settings)}}


def instance(settings: Settings) -> str:
    """The name of an engine, which stays when its port changes: that of the project's folder and of the environment."""
    name = f"{settings.root.name}/{settings.environment}"
    return name.encode("utf-8", "replace").decode()


def _write(file: Path, text: str, mode: int) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, text, mode=mode)
    except OSError as error:
        raise StorageError(
            f"the state directory cannot be written: {error.strerror or error}. Free some space or make it writable.",
            where=str(file.parent),
        ) from error
