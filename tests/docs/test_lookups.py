"""The page "Lookups outside": its declarations are a project, which asks a service as the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from freshline.declare.project import read_project
from freshline.declare.project_settings import read_settings
from freshline.plan.project import check_promises
from freshline.sources.http.lookup import HttpLookup
from tests.docs.test_docs import DOCS, examples
from tests.services import running_service

PAGE = DOCS / "lookups.md"


def declarations() -> dict[str, str]:
    found = {}
    for code in examples(PAGE, "sql"):
        named = re.search(r"CREATE (?:MATERIALIZED TABLE|SOURCE) (\w+)", code)
        assert named
        found[named[1]] = code
    return found


def test_the_declarations_of_the_page_are_a_project(tmp_path: Path) -> None:
    (tmp_path / "assets").mkdir()
    (tmp_path / "pyproject.toml").write_text("[tool.freshline]\n", encoding="utf-8")
    for name, code in declarations().items():
        (tmp_path / "assets" / f"{name}.sql").write_text(code, encoding="utf-8")
    graph = read_project(
        read_settings(tmp_path, {}), {"CUSTOMERS": "https://service", "SHOP": "postgresql://h/d", "CACHE": "redis://h"}
    )
    check_promises(graph)
    asked = next(source.connection for source in graph.sources if str(source.name) == "customer")
    assert isinstance(asked, HttpLookup)

    assert asked.url == "https://service/customers/{id}"
    assert asked.headers == {"authorization": "${file:secrets/customers}"}


@pytest.mark.seconds
def test_the_table_of_the_page_asks_a_service_and_is_verified_without_it(lab, monkeypatch) -> None:
    with running_service(rows={"17": {"data": {"name": "Ann", "risk": 0.2}}}) as service:
        monkeypatch.setenv("CUSTOMERS", service.url)
        (lab.settings.root / "secrets").mkdir()
        (lab.settings.root / "secrets" / "customers").write_text("Bearer 0123456789abcdef\n", encoding="utf-8")
        (lab.settings.root / "landing" / "orders").mkdir(parents=True)
        for name in ("orders", "customer", "risky_orders"):
            lab.declare(declarations()[name])
        lab.land("orders", "1.json", [{"id": 1, "customer": 17, "amount": 10.5}])

        assert lab.refresh("risky_orders").error is None
        assert [(row["name"], row["risk"]) for row in lab.rows("risky_orders")] == [("Ann", 0.2)]
        assert service.headers[0]["authorization"] == "Bearer 0123456789abcdef"
        assert lab.verify("risky_orders").equal
        assert service.requests == 1
