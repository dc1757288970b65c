"""The settings of a project: `[tool.freshline]` of its pyproject.toml and one environment of it.

`FRESHLINE_ENV` names the environment (default `local`). Each environment has its own warehouse, control store and
state directory, so that a developer's run never touches production's tables.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from freshline.errors import SettingsError
from freshline.values.freshness import Freshness
from freshline.values.rules import nearest


def check_keys(values: Iterable[str], accepted: tuple[str, ...], shown: str, where: str) -> None:
    """Raise SettingsError for a key of a table of settings, `shown`, that is not accepted there."""
    for key in values:
        if key not in accepted:
            raise SettingsError(
                f"{shown} has no setting {key}.{nearest(key, accepted)} Settings are {', '.join(accepted)}.",
                where=where,
            )


@dataclass(frozen=True)
class ChannelSettings:
    """One channel that reports alerts.

    `type` is log, webhook, slack, email, or `module:Class` of a channel of one's own. `options` are as written: secrets
    are references in them, resolved where they are used.
    """

    name: str
    type: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class AlertSettings:
    """The thresholds of alerts, and the channels that report them.

    An open alert is reported again after `remind_after_seconds`. There is one on quarantine when more than the share
    `quarantine_share` (above 0, at most 1) of what arrived in an hour was rejected, of at least `quarantine_rows` rows.
    """

    remind_after_seconds: int = 6 * 3600
    quarantine_share: float = 0.05
    quarantine_rows: int = 20
    channels: tuple[ChannelSettings, ...] = (ChannelSettings("log", "log"),)


@dataclass(frozen=True)
class CatalogSettings:
    """A catalog in which the tables of a project are entered.

    `type` is hive, duckdb, or the name of a registrar of another package. `options` are the texts of its settings:
    secrets are references in them, resolved where they are used.
    """

    name: str
    type: str
    options: Mapping[str, str] = field(default_factory=dict)


# As Dagster opens files of this machine too.
EDITOR_LINK = "vscode://file{file}:{line}"


@dataclass(frozen=True)
class Destination:
    """An address that the engine posts to. `url` may be a reference, and `token` is one, None for no token.

    With `private_addresses` the address may be one that is not of the public internet, and http.
    """

    url: str
    token: str | None = None
    private_addresses: bool = False


@dataclass(frozen=True)
class OpenLineageSettings:
    """The place of the lineage events of refreshes: an address, a file, or both. `namespace` is that of the jobs."""

    destination: Destination | None
    file: Path | None = None
    namespace: str = "freshline"


@dataclass(frozen=True)
class Settings:
    """The settings that a project runs on. All paths are absolute.

    `declarations` is the folder with one declaration a file. `continuous_below` and `incremental_below` are the two
    thresholds of rule 3 of docs/rules.md. `spark_confs` are passed to the session unchanged and override freshline's
    defaults.
    """

    root: Path
    environment: str
    declarations: Path
    state: Path
    warehouse: Path
    control_store: str  # SQLAlchemy URL
    default_freshness: Freshness
    continuous_below: Freshness
    incremental_below: Freshness
    spark_master: str = "local[*]"
    spark_confs: Mapping[str, str] = field(default_factory=dict)
    driver_memory: str = "2g"
    maven_mirror: str = "https://repo1.maven.org/maven2"
    jar_directory: Path | None = None  # offline: take the jars from here, fetch nothing
    jar_cache: Path | None = None  # default: the user's cache folder
    java_home: Path | None = None
    engine_port: int = 0  # 0: any free port
    metrics_token: str | None = None  # a reference; None: each engine makes one and writes it into the state
    changes_token: str | None = None  # a reference; None: nobody follows tables by HTTP
    connect_port: int = 0
    dagster_port: int = 3000
    dagster_hosts: tuple[str, ...] = ()  # what the UI may be called beside loopback, lower case, `name` or `name:port`
    dagster_token: str | None = None  # a reference; None: whoever can open the port may use the UI
    dagster_read_only: bool = False
    idle_seconds: float = 300.0  # an engine started by a one-off command ends after this long without a request
    parallel_refreshes: int = 2
    python_seconds: float = 300.0  # what loading a Python file and calling its function may take
    python_memory: int = 2 * 2**30  # bytes, with all processes that it starts
    dagster_url: str | None = None  # of links in alerts; default: that of the running `freshline up`
    alerts: AlertSettings = AlertSettings()
    sample_rows: int = 20  # of a table, for people who inspect it; 0: none
    masked_columns: tuple[str, ...] = ()  # `column` or `table.column`, never shown
    declaration_link: str | None = EDITOR_LINK  # with {file} or {path}, and {line}; None: no link
    openlineage: OpenLineageSettings | None = None  # None: no lineage events
    otel: Destination | None = None  # None: no traces
    catalogs: tuple[CatalogSettings, ...] = ()
    log_format: str = "text"  # or json, one object a line
    umask: int = 0o077  # the permissions that files and folders of the state and the warehouse lack

    @property
    def has_control_store(self) -> bool:
        """Whether the control store was made already, for those who only read: opening it would make it."""
        prefix = "sqlite:///"
        return not self.control_store.startswith(prefix) or Path(self.control_store.removeprefix(prefix)).exists()


@contextmanager
def as_private(umask: int) -> Iterator[None]:
    """Take the permissions in `umask` from all that the block makes below the state, whatever the mask of the process.

    Other threads of the process have the same mask meanwhile.
    """
    before = os.umask(umask)
    try:
        yield
    finally:
        os.umask(before)


def provide_state(settings: Settings) -> Path:
    """The state folder, made where there is none. It has tokens and logs: only those whom `umask` lets in see it.

    Raises OSError where it cannot be made.
    """
    if not settings.state.is_dir():
        settings.state.parent.mkdir(parents=True, exist_ok=True)
        settings.state.mkdir(mode=0o777 & ~settings.umask, exist_ok=True)
    return settings.state
