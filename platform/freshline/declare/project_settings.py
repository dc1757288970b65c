"""Finding a project, and reading its settings.

`[tool.freshline]` of pyproject.toml says what a project runs on; `[tool.freshline.environments.<name>]` says what is
different in one environment. Keys are written in kebab-case. Some can be given by the machine, in variables that
begin with FRESHLINE_.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from freshline.errors import SettingsError
from freshline.values.alert_settings import merged_alerts, read_alerts
from freshline.values.destination_settings import read_openlineage, read_otel
from freshline.values.folders import unfit
from freshline.values.freshness import Freshness
from freshline.values.rules import nearest
from freshline.values.secret import REFERENCE
from freshline.values.settings import Settings

LOCAL = "local"
DEFAULT_FRESHNESS = Freshness(3_600)
CONTINUOUS_BELOW = Freshness(60)
INCREMENTAL_BELOW = Freshness(1_800)

ENVIRONMENT = re.compile(r"[A-Za-z0-9_-]+\Z")
HOST = re.compile(r"(?:[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:.]+\])(?::[1-9][0-9]{0,4})?\Z")
COLUMN = re.compile(r"[^\s.`\"][^.`\"]*(\.[^\s.`\"][^.`\"]*){0,2}\Z")
# A link of any other scheme could be a script.
LINK = re.compile(r"(https?|vscode|vscode-insiders|vscodium|cursor|idea|jetbrains|zed)://[^\s\"'<>]+\Z")
UMASK = re.compile(r"0[0-7]{2}\Z")
MEMORY = re.compile(r"([1-9][0-9]{0,5})([mg])\Z")
WEB_ADDRESS = re.compile(r"https?://[^\s/?#@]+(/[^\s?#]*)?\Z")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")

PATHS = ("declarations", "state", "warehouse", "jar-directory", "jar-cache", "java-home")
FRESHNESSES = ("default-freshness", "continuous-below", "incremental-below")
TEXTS = ("control-store", "spark-master", "driver-memory", "maven-mirror", "dagster-url")
PORTS = ("engine-port", "connect-port", "dagster-port")
# Whole numbers, each with the least and the greatest.
WHOLES = {
    **dict.fromkeys(PORTS, (0, 65_535)),
    "parallel-refreshes": (1, 1_000),
    "sample-rows": (0, 100),
}
PYTHON = ("python-time-limit", "python-memory")
GUARD = ("dagster-hosts", "dagster-token", "dagster-read-only")
METRICS = ("metrics-token",)
LOOKS = ("sample-rows", "masked-columns", "declaration-link")
TRAVEL = ("openlineage", "otel")
OTHERS = ("spark-confs", "idle-seconds", "parallel-refreshes", *PYTHON, "umask", "log-format", "alerts")
KEYS = (*PATHS, *FRESHNESSES, *TEXTS, *PORTS, *GUARD, *METRICS, *LOOKS, *TRAVEL, *OTHERS)
LOG_FORMATS = ("text", "json")
# The settings that each environment has of its own.
APART = ("state", "warehouse", "control-store")
VARIABLES = {
    "FRESHLINE_MAVEN_MIRROR": "maven-mirror",
    "FRESHLINE_JAR_DIRECTORY": "jar-directory",
    "FRESHLINE_JAR_CACHE": "jar-cache",
    "FRESHLINE_WAREHOUSE": "warehouse",
    "FRESHLINE_DECLARATIONS": "declarations",
}


def find_project(start: Path | None = None) -> Path:
    """The root of the project that a folder lies in: the nearest one upward whose pyproject.toml has [tool.freshline].

    Raises SettingsError where there is none.
    """
    begin = (start or Path.cwd()).absolute()
    for folder in (begin, *begin.parents):
        file = folder / "pyproject.toml"
        if file.is_file() and _section(file) is not None:
            return folder
    raise SettingsError(
        f"there is no project in {begin} or above it: no pyproject.toml with [tool.freshline]. Go to a project's "
        "folder, name one with --project, or make one with `freshline init DIR`."
    )


def read_settings(root: Path, environ: Mapping[str, str]) -> Settings:
    """The settings of one project in the environment that FRESHLINE_ENV names; raises SettingsError."""
    root = root.absolute()
    file = root / "pyproject.toml"
    section = _section(file) if file.is_file() else None
    if section is None:
        raise SettingsError("there is no pyproject.toml with [tool.freshline] here.", where=str(root))
    where = str(file)
    section = dict(section)
    environments = section.pop("environments", {})
    _check_environments(environments, where)
    _check_keys(section, "[tool.freshline]", where, also=("environments",))
    for name, own in environments.items():
        _check_keys(own, f"[tool.freshline.environments.{name}]", where)
    environment = _environment(environ, environments)
    _check_apart(section, environments, environment, where)
    values = _merged(section, environments.get(environment, {}))
    for variable, key in VARIABLES.items():
        if environ.get(variable):
            values[key] = environ[variable]
    return _Reader(root, environment, values, where).settings()


def _section(file: Path) -> Mapping[str, Any] | None:
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"the file cannot be read: {error.strerror or error}.", where=str(file)) from error
    except UnicodeDecodeError as error:
        raise SettingsError("the file is not UTF-8.", where=str(file)) from error
    except (ValueError, RecursionError) as error:
        # Of numbers with thousands of digits, and of thousands of brackets, it says something else than of others.
        raise SettingsError(f"the file is not TOML: {error}.", where=str(file)) from error
    tool = content.get("tool", {})
    section = tool.get("freshline") if isinstance(tool, dict) else None
    if section is not None and not isinstance(section, dict):
        raise SettingsError("[tool.freshline] is a table of settings.", where=str(file))
    return section


def _check_environments(environments: object, where: str) -> None:
    if not isinstance(environments, dict) or not all(isinstance(own, dict) for own in environments.values()):
        raise SettingsError("environments are tables: [tool.freshline.environments.<name>].", where=where)
    for name in environments:
        if not ENVIRONMENT.match(name):
            raise SettingsError(f"environment {name!r}: a name has letters, digits, _ and - only.", where=where)


def _check_keys(section: Mapping[str, Any], shown: str, where: str, also: tuple[str, ...] = ()) -> None:
    for key in section:
        if key not in KEYS:
            raise SettingsError(
                f"{shown} has no setting {key}.{nearest(key, (*KEYS, *also))} "
                f"Settings are {', '.join((*KEYS, *also))}.",
                where=where,
            )


def _environment(environ: Mapping[str, str], environments: Mapping[str, Any]) -> str:
    name = environ.get("FRESHLINE_ENV") or LOCAL
    if not ENVIRONMENT.match(name):
        raise SettingsError(f"FRESHLINE_ENV is {name!r}. A name has letters, digits, _ and - only.")
    if name != LOCAL and name not in environments:
        known = (LOCAL, *environments)
        raise SettingsError(
            f"FRESHLINE_ENV is {name}, which is not an environment of this project.{nearest(name, known)} Declare it "
            f"as [tool.freshline.environments.{name}]; there are {', '.join(dict.fromkeys(known))}."
        )
    return name


def _check_apart(
    section: Mapping[str, Any], environments: Mapping[str, Mapping[str, Any]], environment: str, where: str
) -> None:
    """Two environments that would write to one place are refused, whichever of them is in use."""
    names = dict.fromkeys((LOCAL, *environments))
    for key in APART:
        places: dict[str, str] = {}
        for name in names:
            place = environments.get(name, {}).get(key, section.get(key))
            if not isinstance(place, str):
                continue  # the default has the environment's name in it
            if place in places and environment in (name, places[place]):
                raise SettingsError(
                    f"environments {places[place]} and {name} have the same {key}, {place}. Give each its own in "
                    f"[tool.freshline.environments.<name>].",
                    where=where,
                )
            places.setdefault(place, name)


def _merged(section: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    values = {**section, **own}
    if isinstance(section.get("spark-confs"), dict) and isinstance(own.get("spark-confs"), dict):
        values["spark-confs"] = {**section["spark-confs"], **own["spark-confs"]}
    if "alerts" in section and "alerts" in own:
        values["alerts"] = merged_alerts(section["alerts"], own["alerts"])
    return values


class _Reader:
    """Turns the values of TOML into typed ones."""

    def __init__(self, root: Path, environment: str, values: Mapping[str, Any], where: str) -> None:
        self.root = root
        self.environment = environment
        self.values = values
        self.where = where

    def settings(self) -> Settings:
        state = self.path("state") or self.root / ".freshline" / self.environment
        settings = Settings(
            root=self.root,
            environment=self.environment,
            declarations=self.path("declarations") or self.root / "assets",
            state=state,
            warehouse=self.path("warehouse") or state / "warehouse",
            control_store=self.text("control-store") or f"sqlite:///{state / 'control.db'}",
            default_freshness=self.freshness("default-freshness", DEFAULT_FRESHNESS),
            continuous_below=self.freshness("continuous-below", CONTINUOUS_BELOW),
            incremental_below=self.freshness("incremental-below", INCREMENTAL_BELOW),
            jar_directory=self.path("jar-directory"),
            jar_cache=self.path("jar-cache"),
            java_home=self.path("java-home"),
        )
        character = unfit(settings.warehouse, written=True)
        if character is not None:
            raise SettingsError(
                f"the warehouse {settings.warehouse} has {character!r} in its path, with which tables cannot be "
                "written. Set `warehouse` to a folder without it, or move the project.",
                where=self.where,
            )
        if settings.continuous_below > settings.incremental_below:
            raise self.refuse("continuous-below", "a freshness that is not above incremental-below")
        return replace(settings, **self.others())

    def others(self) -> dict[str, Any]:
        """The settings whose defaults are those of Settings."""
        found: dict[str, Any] = {}
        for key in ("spark-master", "driver-memory", "maven-mirror"):
            if key in self.values:
                found[_field(key)] = self.text(key)
        for key in WHOLES:
            if key in self.values:
                found[_field(key)] = self.whole(key)
        if "idle-seconds" in self.values:
            value = self.values["idle-seconds"]
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e9:
                raise self.refuse("idle-seconds", "a positive number of seconds")
            found["idle_seconds"] = float(value)
        if "umask" in self.values:
            found["umask"] = self.umask()
        if "spark-confs" in self.values:
            found["spark_confs"] = self.confs()
        if "dagster-url" in self.values:
            found["dagster_url"] = self.web_address("dagster-url")
        if "alerts" in self.values:
            found["alerts"] = read_alerts(self.values["alerts"], self.where)
        return found | self.doors() | self.python() | self.looks() | self.travel()

    def travel(self) -> dict[str, Any]:
        """The destinations of lineage events and traces, and the form of logs."""
        found: dict[str, Any] = {}
        if "log-format" in self.values:
            found["log_format"] = self.one_of("log-format", LOG_FORMATS)
        if "openlineage" in self.values:
            found["openlineage"] = read_openlineage(self.values["openlineage"], self.root, self.where)
        if "otel" in self.values:
            found["otel"] = read_otel(self.values["otel"], self.where)
        return found

    def python(self) -> dict[str, Any]:
        """The limits of loading a Python file and of calling its function."""
        found: dict[str, Any] = {}
        if "python-time-limit" in self.values:
            found["python_seconds"] = float(self.freshness("python-time-limit", DEFAULT_FRESHNESS).seconds)
        if "python-memory" in self.values:
            found["python_memory"] = self.memory("python-memory")
        return found

    def doors(self) -> dict[str, Any]:
        """Who may use the Dagster UI, and who may read the metrics."""
        found: dict[str, Any] = {}
        if "dagster-hosts" in self.values:
            found["dagster_hosts"] = self.hosts("dagster-hosts")
        if "dagster-token" in self.values:
            found["dagster_token"] = self.reference("dagster-token")
        if "metrics-token" in self.values:
            found["metrics_token"] = self.reference("metrics-token")
        if "dagster-read-only" in self.values:
            if not isinstance(self.values["dagster-read-only"], bool):
                raise self.refuse("dagster-read-only", "true or false")
            found["dagster_read_only"] = self.values["dagster-read-only"]
        return found

    def looks(self) -> dict[str, Any]:
        """The settings of what people see of tables."""
        found: dict[str, Any] = {}
        if "masked-columns" in self.values:
            value = self.values["masked-columns"]
            if not isinstance(value, list) or not all(isinstance(each, str) and COLUMN.match(each) for each in value):
                raise self.refuse("masked-columns", 'a list of columns such as ["email", "shop.customer.phone"]')
            found["masked_columns"] = tuple(value)
        if "declaration-link" in self.values:
            text = self.text("declaration-link") or ""
            if text != "none" and not (LINK.match(text) and ("{path}" in text or "{file}" in text)):
                raise self.refuse(
                    "declaration-link", '"none", or an address such as https://git.example.com/main/{path}#L{line}'
                )
            found["declaration_link"] = None if text == "none" else text
        return found

    def one_of(self, key: str, accepted: tuple[str, ...]) -> str:
        value = self.values[key]
        if value not in accepted:
            raise self.refuse(key, " or ".join(accepted))
        return str(value)

    def reference(self, key: str) -> str:
        value = self.values[key]
        if not isinstance(value, str) or not REFERENCE.match(value):
            # The value is not shown: it may be the secret itself.
            raise SettingsError(
                f"{key} is not a reference. Secrets are not written here: give ${{env:NAME}} or ${{file:path}}.",
                where=self.where,
            )
        return value

    def refuse(self, key: str, expected: str) -> SettingsError:
        return SettingsError(f"{key} is {self.values.get(key)!r}. Accepted is {expected}.", where=self.where)

    def text(self, key: str) -> str | None:
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, str) or not value.strip():
            raise self.refuse(key, "a text that is not empty")
        return value.strip()

    def path(self, key: str) -> Path | None:
        text = self.text(key)
        if text is None:
            return None
        if _SCHEME.match(text):
            raise SettingsError(
                f"{key} is {text}. Shared storage is not built yet: name a folder of this machine.", where=self.where
            )
        return Path(self.root / Path(text).expanduser()).absolute()

    def freshness(self, key: str, default: Freshness) -> Freshness:
        if key not in self.values:
            return default
        try:
            return Freshness.parse(self.values[key])
        except ValueError as error:
            raise SettingsError(f"{key}: {error}", where=self.where) from error

    def whole(self, key: str) -> int:
        value, (least, greatest) = self.values[key], WHOLES[key]
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= greatest:
            raise self.refuse(key, f"a whole number from {least} to {greatest}")
        return value

    def umask(self) -> int:
        value = self.values["umask"]
        if not isinstance(value, str) or not UMASK.match(value):
            raise self.refuse("umask", 'three octal digits in quotes that leave the owner everything, such as "027"')
        return int(value, 8)

    def memory(self, key: str) -> int:
        written = MEMORY.match(self.text(key) or "")
        if written is None:
            raise self.refuse(key, "a whole number of megabytes or gigabytes, such as 512m or 2g")
        return int(written[1]) * (2**20 if written[2] == "m" else 2**30)

    def web_address(self, key: str) -> str:
        text = self.text(key)
        assert text is not None
        if not WEB_ADDRESS.match(text):
            raise self.refuse(key, "an address such as https://dagster.example.com")
        return text.rstrip("/")

    def hosts(self, key: str) -> tuple[str, ...]:
        value = self.values[key]
        if not isinstance(value, list):
            raise self.refuse(key, 'a list of names such as ["dagster.example.com"]')
        names = [item.lower() if isinstance(item, str) else "" for item in value]
        for item, name in zip(value, names, strict=True):
            if not HOST.match(name):
                raise SettingsError(
                    f"{key}: {item!r} is no host. Write a name as browsers send it, such as dagster.example.com or "
                    "localhost:8000, without http://; there are no wildcards.",
                    where=self.where,
                )
        return tuple(dict.fromkeys(names))

    def confs(self) -> dict[str, str]:
        value = self.values["spark-confs"]
        if not isinstance(value, dict):
            raise self.refuse("spark-confs", "a table of names and values")
        found: dict[str, str] = {}
        for key, item in value.items():
            if isinstance(item, bool):
                found[key] = str(item).lower()
            elif isinstance(item, (str, int, float)):
                found[key] = str(item)
            else:
                raise SettingsError(
                    f"spark-confs: {key} is {item!r}. Write the name in quotes ('spark.x.y' = ..) and one value.",
                    where=self.where,
                )
            if key.lower() == "spark.sql.session.timezone" and found[key] != "UTC":
                raise SettingsError(
                    f"spark-confs: {key} is {item!r}. freshline computes days and dates in UTC. For days of another "
                    "zone write TIME_ZONE => '..' in a window, or from_utc_timestamp(ts, '..') in a query.",
                    where=self.where,
                )
            if key.lower() == "spark.sql.parser.escapedstringliterals" and found[key].lower() != "false":
                raise SettingsError(
                    f"spark-confs: {key} is {item!r}. freshline writes values with a quote or a backslash as Spark "
                    "reads them by default. For a text as it stands write r'..' in a query.",
                    where=self.where,
                )
        return found


def _field(key: str) -> str:
    return key.replace("-", "_")
