"""The rules and the dashboard that come with freshline: what they ask for is what a scrape shows."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from freshline.cli.metrics import shipped
from freshline.report.metrics.families import families_of
from tests.report.metrics.figures import figures
from tests.report.metrics.promtool import check_rules, run_rule_tests

RULES: dict[str, Any] = yaml.safe_load(shipped("alerts.yml"))
DASHBOARD: dict[str, Any] = json.loads(shipped("dashboard.json"))
TESTS = Path(__file__).with_name("rules_test.yml")

# With the suffixes that a histogram has. `up` is made by Prometheus, and the recorded share by the rules.
SHOWN = {family.name + sample.suffix for family in families_of(figures()) for sample in family.samples}
RECORDED = {rule["record"] for group in RULES["groups"] for rule in group["rules"] if "record" in rule}
METRIC = re.compile(r"(?<![\w:.$])(?:freshline|process)[\w:]*|\bup(?=\{)")


def rules() -> list[dict[str, Any]]:
    return [rule for group in RULES["groups"] for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = DASHBOARD["panels"]
    return found


def queries() -> Iterator[str]:
    for panel in panels():
        yield from (target["expr"] for target in panel.get("targets", ()))
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"]["query"]


def metrics_in(expression: str) -> set[str]:
    """The metrics that an expression reads, without what stands in quotes."""
    return set(METRIC.findall(re.sub(r'"[^"]*"', '""', expression)))


def test_every_metric_that_the_rules_name_is_shown() -> None:
    named = {name for rule in rules() for name in metrics_in(rule["expr"])}

    assert len(named) > 10
    assert named - RECORDED - {"up"} <= SHOWN


def test_every_metric_that_the_dashboard_asks_for_is_shown() -> None:
    named = {name for query in queries() for name in metrics_in(query)}

    assert len(named) > 25
    assert named - RECORDED <= SHOWN


def test_every_label_that_a_rule_or_a_query_names_is_one() -> None:
    known = {name for family in families_of(figures()) for sample in family.samples for name, _ in sample.labels.pairs}
    known |= {"job", "instance"}
    texts = [*queries(), *(rule["expr"] for rule in rules())]
    named = {
        label
        for text in texts
        for labels in re.findall(r"\{([^}]*)\}", text)
        for label in re.findall(r"(\w+)=", labels)
    }
    named |= {
        label.strip()
        for text in texts
        for labels in re.findall(r"\b(?:by|on) \(([^)]*)\)", text)
        for label in labels.split(",")
    }
    for rule in rules():
        named |= set(re.findall(r"\$labels\.(\w+)", str(rule.get("annotations", ""))))

    assert named <= known


@pytest.mark.parametrize("rule", [rule for rule in rules() if "alert" in rule], ids=lambda rule: rule["alert"])
def test_an_alert_waits_and_says_of_which_and_what_to_do(rule: dict[str, Any]) -> None:
    described = rule["annotations"]["description"]

    assert rule["alert"].startswith("Freshline")
    assert rule["for"]
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert "$labels.instance" in described + rule["annotations"]["summary"]
    assert "`" in described, "the command or setting that helps"
    if "freshline_table" in rule["expr"] or "freshline_refresh_rows" in rule["expr"]:
        assert "$labels.table" in described
        assert "$labels.table" in rule["annotations"]["summary"]


def test_each_panel_says_what_it_shows_and_has_a_place_of_its_own() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
        assert panel["type"] == "row" or panel["description"]

    assert max(x for x, _ in taken) < 24
    assert len({panel["id"] for panel in panels()}) == len(panels())


def test_a_name_is_shown_as_text() -> None:
    """Grafana shows HTML and Markdown in text panels, and in tables where a field is made a link or HTML."""
    assert {panel["type"] for panel in panels()} <= {"row", "stat", "timeseries", "table"}
    assert not re.search(r"html|markdown|dataLink|\"links\": \[\s*\{|__html", json.dumps(DASHBOARD))


def test_promtool_accepts_the_rules(tmp_path: Path) -> None:
    file = tmp_path / "alerts.yml"
    file.write_text(shipped("alerts.yml"), encoding="utf-8")

    assert check_rules(file) == ""


@pytest.mark.seconds
def test_the_rules_fire_when_they_should_and_not_before(tmp_path: Path) -> None:
    (tmp_path / "alerts.yml").write_text(shipped("alerts.yml"), encoding="utf-8")
    shutil.copy(TESTS, tmp_path)

    assert run_rule_tests(tmp_path / TESTS.name) == ""


def test_each_alert_has_a_test_in_which_it_fires() -> None:
    tests = yaml.safe_load(TESTS.read_text(encoding="utf-8"))["tests"]
    fired = {each["alertname"] for test in tests for each in test.get("alert_rule_test", ()) if each["exp_alerts"]}

    assert fired == {rule["alert"] for rule in rules() if "alert" in rule}


@pytest.mark.seconds
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('unless on (job, instance, table) freshline_table_state{state=~"SUSPENDED|BLOCKED|PAUSED"}', ""),
        ("> on (job, instance, table)", "> on (table)"),
        ("freshline_table_consecutive_failures > 0\n        for: 15m", "freshline_table_consecutive_failures > 0"),
        ("> 0.05", "> 0.5"),
    ],
)
def test_a_rule_that_is_wrong_is_found(tmp_path: Path, old: str, new: str) -> None:
    text = shipped("alerts.yml")
    assert old in text
    (tmp_path / "alerts.yml").write_text(text.replace(old, new), encoding="utf-8")
    shutil.copy(TESTS, tmp_path)

    assert "FAILED" in run_rule_tests(tmp_path / TESTS.name)
