"""`freshline metrics`: what it shows, and the files that Prometheus and Grafana read."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from freshline.cli.main import run
from freshline.cli.metrics import scrape_configuration, shipped
from freshline.engine.scrape_files import targets_file, token_file, write_target, write_token
from freshline.errors import SettingsError
from freshline.report.metrics.exposition import COUNTER, Family, MetricSample, labels, text_of
from freshline.report.metrics.families import families_of
from freshline.values.settings import Settings
from tests.cli.conftest import FakeEngine
from tests.report.metrics.figures import HOSTILE, alert, figures
from tests.report.metrics.promtool import check_config


def test_metrics_are_shown_as_a_scrape_shows_them(
    shop: Path, fake_engine: FakeEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_engine.running, fake_engine.families = True, families_of(figures())

    assert run(["metrics"]) == 0

    assert capsys.readouterr().out == text_of(families_of(figures()))


def test_metrics_as_json_have_each_sample(
    shop: Path, fake_engine: FakeEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    family = Family("freshline_x_total", COUNTER, "How many.", (MetricSample(labels(table="orders"), 2),))
    fake_engine.running, fake_engine.families = True, [family]

    assert run(["metrics", "--json"]) == 0

    (shown,) = json.loads(capsys.readouterr().out)
    assert shown["samples"] == [{"name": "freshline_x_total", "labels": {"table": "orders"}, "value": 2}]


@pytest.mark.security
def test_no_name_reaches_a_terminal_as_a_command(
    shop: Path, fake_engine: FakeEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_engine.running = True
    fake_engine.families = families_of(figures(alerts=tuple(alert(name) for name in HOSTILE)))

    assert run(["metrics"]) == 0

    shown = capsys.readouterr().out
    assert not re.search("[\x00-\x09\x0b-\x1f\u202e]", shown)
    assert shown.count("\n") == text_of(fake_engine.families).count("\n")


def test_without_an_engine_there_are_no_metrics(
    shop: Path, fake_engine: FakeEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["metrics"]) == 1

    assert "freshline engine start" in capsys.readouterr().err
    assert not fake_engine.running


@pytest.mark.parametrize("option", ["--rules", "--dashboard"])
def test_files_need_no_project(
    option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    assert run(["metrics", option]) == 0
    text = capsys.readouterr().out
    assert run(["metrics", option, "--json"]) == 0

    assert text == shipped("alerts.yml" if option == "--rules" else "dashboard.json")
    assert json.loads(capsys.readouterr().out) == yaml.safe_load(text)


def test_one_file_at_a_time(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["metrics", "--rules", "--dashboard"]) == 2


def test_the_configuration_for_prometheus_says_where_the_engine_is(
    shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["metrics", "--scrape-config"]) == 0

    (job,) = yaml.safe_load(capsys.readouterr().out)["scrape_configs"]
    state = (shop / ".freshline" / "local").absolute()
    assert job["job_name"] == f"freshline {shop.name}/local"
    assert job["authorization"] == {"credentials_file": str(state / "metrics" / "token")}
    found = {"files": [str(state / "metrics" / "targets.json")], "refresh_interval": "15s"}
    assert job["file_sd_configs"] == [found]


def test_a_fixed_port_and_a_token_of_ones_own_are_named(settings: Settings) -> None:
    chosen = replace(settings, engine_port=8700, metrics_token="${file:secrets/token}")

    (job,) = yaml.safe_load(scrape_configuration(chosen))["scrape_configs"]

    assert job["authorization"] == {"credentials_file": str(settings.root / "secrets" / "token")}
    assert job["static_configs"] == [
        {"targets": ["127.0.0.1:8700"], "labels": {"job": "freshline", "instance": f"{settings.root.name}/local"}}
    ]


def test_a_token_in_a_variable_is_no_file(settings: Settings) -> None:
    with pytest.raises(SettingsError, match="metrics-token is a variable"):
        scrape_configuration(replace(settings, metrics_token="${env:TOKEN}"))


def test_a_folder_that_prometheus_cannot_name_is_refused(settings: Settings) -> None:
    with pytest.raises(SettingsError, match="asterisk"):
        scrape_configuration(replace(settings, state=settings.root / "a*b"))


@pytest.mark.parametrize("name", ["plain", "a b: c #d", 'it\'s "quoted"', "[x] {y} ?", "{{ .Value }}", "ümläut", "-x"])
def test_promtool_finds_the_files_whatever_the_name_of_the_folder_is(settings: Settings, name: str) -> None:
    there = replace(settings, state=settings.root / name)
    write_token(there, "0123456789abcdef")
    write_target(there, 1234)
    file = settings.root / "prometheus.yml"
    file.write_text(scrape_configuration(there), encoding="utf-8")

    (job,) = yaml.safe_load(file.read_text(encoding="utf-8"))["scrape_configs"]
    assert job["authorization"]["credentials_file"] == str(token_file(there))
    assert targets_file(there).exists()
    assert check_config(file) == ""
