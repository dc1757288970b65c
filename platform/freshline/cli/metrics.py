"""`freshline metrics`: the engine's metrics, and the files with which Prometheus and Grafana show them."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import click

from freshline.cli.ask import running_engine
from freshline.cli.options import json_option, open_settings, project_option
from freshline.engine.scrape_files import JOB, instance, target_of, targets_file, token_file
from freshline.errors import EngineError, SettingsError
from freshline.report.table_text import printable
from freshline.values.secret import FILE_REFERENCE
from freshline.values.settings import Settings

_REFRESH_SECONDS = 15
# Read as a pattern by Prometheus, in all but these as they are.
_PATTERN_SIGNS = re.compile(r"[\\?\[]")


@click.command(epilog="\b\nExample:\n  freshline metrics --rules > freshline.rules.yml")
@click.option("--scrape-config", is_flag=True, help="Print the configuration with which Prometheus finds the engine.")
@click.option("--rules", is_flag=True, help="Print alert rules for Prometheus.")
@click.option("--dashboard", is_flag=True, help="Print a dashboard for Grafana.")
@project_option
@json_option
def command(scrape_config: bool, rules: bool, dashboard: bool, project: Path | None, as_json: bool) -> None:
    """Show the metrics of the running engine, as Prometheus reads them from /metrics.

    With an option, print a file for Prometheus or Grafana instead. --rules and --dashboard need no project.
    """
    if scrape_config + rules + dashboard > 1:
        raise click.UsageError("--scrape-config, --rules and --dashboard are three files. Name one of them.")
    if dashboard:
        click.echo(shipped("dashboard.json"), nl=False)
    elif rules:
        _print_yaml(shipped("alerts.yml"), as_json)
    elif scrape_config:
        _print_yaml(scrape_configuration(open_settings(project)), as_json)
    else:
        _print_metrics(open_settings(project), as_json)


def shipped(name: str) -> str:
    """The text of a file that comes with freshline."""
    return files("freshline.report.metrics").joinpath(name).read_text(encoding="utf-8")


def scrape_configuration(settings: Settings) -> str:
    """The part of a configuration of Prometheus that scrapes the engine of this environment, as YAML.

    With a fixed port it names that. Otherwise it names the file that each engine writes. Raises SettingsError where
    Prometheus cannot read a path.
    """
    # Libraries are loaded when they are used: a command line is typed.
    import yaml

    # Each part of a configuration has a name of its own.
    job: dict[str, Any] = {"job_name": f"{JOB} {instance(settings)}"}
    job["authorization"] = {"credentials_file": str(_credentials_file(settings))}
    if settings.engine_port:
        job["static_configs"] = [target_of(settings, settings.engine_port)]
    else:
        # Where the folder is made later, Prometheus hears of no change in it, and reads the file again only this often.
        found = {"files": [_pattern_of(targets_file(settings))], "refresh_interval": f"{_REFRESH_SECONDS}s"}
        job["file_sd_configs"] = [found]
    text: str = yaml.safe_dump({"scrape_configs": [job]}, sort_keys=False, allow_unicode=False, width=10_000)
    return text


def _credentials_file(settings: Settings) -> Path:
    if settings.metrics_token is None:
        return token_file(settings)
    named = FILE_REFERENCE.match(settings.metrics_token)
    if named is None:
        raise SettingsError(
            "metrics-token is a variable, and Prometheus reads a file. Name the file with ${file:path}, or write the "
            "configuration by hand."
        )
    return (settings.root / Path(named[1]).expanduser()).absolute()


def _pattern_of(file: Path) -> str:
    """The pattern of `file_sd_configs` that is this file. A folder cannot have an asterisk in its name there."""
    if "*" in str(file):
        raise SettingsError(
            f"Prometheus finds no file in {file.parent}, because of the asterisk. Set `state` to another folder, or "
            "engine-port to a fixed port."
        )
    return _PATTERN_SIGNS.sub(lambda sign: f"\\{sign[0]}", str(file))


def _print_yaml(text: str, as_json: bool) -> None:
    if as_json:
        import yaml

        text = json.dumps(yaml.safe_load(text), indent=2) + "\n"
    click.echo(text, nl=False)


def _print_metrics(settings: Settings, as_json: bool) -> None:
    # The reader of the status is imported when it is used, like all that is heavy.
    from freshline.report.metrics.exposition import Family, text_of

    engine = running_engine(settings)
    if engine is None:
        raise EngineError("no engine is running. Start it with `freshline engine start`.")
    found = engine.metrics()
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    text = text_of(Family.from_json(each) for each in found)
    click.echo("\n".join(printable(line) for line in text.split("\n")), nl=False)
