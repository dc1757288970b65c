"""The settings of a project: `[tool.freshline]` of its pyproject.toml and one environment of it.

`FRESHLINE_ENV` names the environment (default `local`). Each environment has its own warehouse, control store and
state directory, so that a developer's run never touches production's tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from freshline.declare.freshness import Freshness


@dataclass(frozen=True)
class Settings:
    """What a project runs on. All paths are absolute.

    `declarations` is the folder with one declaration a file. `continuous_below` and `incremental_below` are the two
    thresholds of rule 3. `spark_confs` are passed to the session as they are and win over freshline's own defaults.
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
    connect_port: int = 0
    dagster_port: int = 3000
    idle_seconds: float = 300.0  # an engine started by a one-off command ends after this long without a request
    parallel_refreshes: int = 2
