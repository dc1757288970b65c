"""Finding a project, and reading its settings.

`[tool.freshline]` of pyproject.toml says what a project runs on; `[tool.freshline.environments.<name>]` says what is
different in one environment. Keys are written in kebab-case. Some can be given by the machine, in variables that
begin with FRESHLINE_.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from freshline.errors import SettingsError
from freshline.values.alert_settings import merged_alerts, read_alerts
from freshline.values.catalog_settings import merged_catalogs, read_catalogs
from freshline.values.destination_settings import read_openlineage, read_otel
from freshline.values.folders import unfit
from freshline.values.freshness import Freshness
from freshline.values.rules import nearest
from freshline.values.secret import require_reference
from freshline.values.settings import Settings, check_keys

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
FOLLOWED = ("changes-token",)
LOOKS = ("sample-rows", "masked-columns", "declaration-link")
TRAVEL = ("openlineage", "otel", "catalogs")
OTHERS = ("spark-confs", "idle-seconds", "parallel-refreshes", *PYTHON, "umask", "log-format", "alerts")
KEYS = (*PATHS, *FRESHNESSES, *TEXTS, *PORTS, *GUARD, *METRICS, *FOLLOWED, *LOOKS, *TRAVEL, *OTHERS)
LOG_FORMATS = ("text", "json")
# The fields of Settings that are not called like their keys.
FIELDS = {"python-time-limit": "python_seconds"}
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
    check_keys(section, (*KEYS, "environments"), "[tool.freshline]", where)
    for name, own in environments.items():
        check_keys(own, KEYS, f"[tool.freshline.environments.{name}]", where)
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
    if "catalogs" in section and "catalogs" in own:
        values["catalogs"] = merged_catalogs(section["catalogs"], own["catalogs"])
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
        readers: dict[str, Callable[[str], Any]] = {
            **dict.fromkeys(("spark-master", "driver-memory", "maven-mirror"), self.text),
            **dict.fromkeys(WHOLES, self.whole),
            "idle-seconds": self.seconds,
            "umask": self.umask,
            "spark-confs": self.confs,
            "dagster-url": self.web_address,
            "alerts": lambda key: read_alerts(self.values[key], self.where),
            "dagster-hosts": self.hosts,
            "dagster-token": self.reference,
            "metrics-token": self.reference,
            "changes-token": self.reference,
            "dagster-read-only": self.flag,
            "python-time-limit": lambda key: float(self.freshness(key, DEFAULT_FRESHNESS).seconds),
            "python-memory": self.memory,
            "masked-columns": self.columns,
            "declaration-link": self.link,
            "log-format": self.log_format,
            "openlineage": lambda key: read_openlineage(self.values[key], self.root, self.where),
            "otel": lambda key: read_otel(self.values[key], self.where),
            "catalogs": lambda key: read_catalogs(self.values[key], self.where),
        }
        return {
            FIELDS.get(key, key.replace("-", "_")): read(key) for key, read in readers.items() if key in self.values
        }

    def seconds(self, key: str) -> float:
        value = self.values[key]
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e9:
            raise self.refuse(key, "a positive number of seconds")
        return float(value)

    def flag(self, key: str) -> bool:
        value = self.values[key]
        if not isinstance(value, bool):
            raise self.refuse(key, "true or false")
        return value

    def columns(self, key: str) -> tuple[str, ...]:
        value = self.values[key]
        if not isinstance(value, list) or not all(isinstance(each, str) and COLUMN.match(each) for each in value):
            raise self.refuse(key, 'a list of columns such as ["email", "shop.customer.phone"]')
        return tuple(value)

    def link(self, key: str) -> str | None:
        text = self.text(key) or ""
        if text != "none" and not (LINK.match(text) and ("{path}" in text or "{file}" in text)):
            raise self.refuse(key, '"none", or an address such as https://git.example.com/main/{path}#L{line}')
        return None if text == "none" else text

    def log_format(self, key: str) -> str:
        value = self.values[key]
        if value not in LOG_FORMATS:
            raise self.refuse(key, " or ".join(LOG_FORMATS))
        return str(value)

    def reference(self, key: str) -> str:
        return require_reference(self.values[key], key, self.where)

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

    def umask(self, key: str) -> int:
        value = self.values[key]
        if not isinstance(value, str) or not UMASK.match(value):
            raise self.refuse(key, 'three octal digits in quotes that leave the owner everything, such as "027"')
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

    def confs(self, setting: str) -> dict[str, str]:
        value = self.values[setting]
        if not isinstance(value, dict):
            raise self.refuse(setting, "a table of names and values")
        found: dict[str, str] = {}
        for key, item in value.items():
            if isinstance(item, bool):
                found[key] = str(item).lower()
            elif isinstance(item, (str, int, float)):
                found[key] = str(item)
            else:
                raise SettingsError(
                    f"{setting}: {key} is {item!r}. Write the name in quotes ('spark.x.y' = ..) and one value.",
                    where=self.where,
                )
            if key.lower() == "spark.sql.session.timezone" and found[key] != "UTC":
                raise SettingsError(
                    f"{setting}: {key} is {item!r}. freshline computes days and dates in UTC. For days of another "
                    "zone write TIME_ZONE => '..' in a window, or from_utc_timestamp(ts, '..') in a query.",
                    where=self.where,
                )
            if key.lower() == "spark.sql.parser.escapedstringliterals" and found[key].lower() != "false":
                raise SettingsError(
                    f"{setting}: {key} is {item!r}. freshline writes values with a quote or a backslash as Spark "
                    "reads them by default. For a text as it stands write r'..' in a query.",
                    where=self.where,
                )
        return found
