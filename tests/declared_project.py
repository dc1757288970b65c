"""A project on disk that a test fills with declarations."""

from __future__ import annotations

from pathlib import Path

import pytest

from freshline.declare.graph import Graph
from freshline.declare.project import read_project
from freshline.declare.project_settings import read_settings
from freshline.errors import DeclarationErrors, SettingsError
from freshline.values.settings import Settings

ORDERS = """\
CREATE SOURCE orders (
  id BIGINT, customer STRING, amount DECIMAL(10,2), day DATE, at TIMESTAMP, address STRUCT<city: STRING>,
  tags ARRAY<STRING>,
  PRIMARY KEY (id)
) WITH ('connector' = 'files', 'format' = 'json', 'path' = 'landing/orders');
"""
CUSTOMERS = """\
CREATE SOURCE customers (id STRING, name STRING, region STRING)
WITH ('connector' = 'delta', 'path' = 'landing/customers');
"""


class Project:
    """A folder with a pyproject.toml and declarations under assets/."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.environ: dict[str, str] = {}
        self.settings("")

    def settings(self, text: str) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        (self.root / "pyproject.toml").write_text(f"[tool.freshline]\n{text}\n", encoding="utf-8")

    def write(self, path: str, text: str) -> Path:
        """A file below the root, with its folders."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return file

    def declare(self, path: str, text: str) -> Path:
        """A declaration below assets/."""
        return self.write(f"assets/{path}", text)

    def table(self, name: str, query: str, *, header: str = "", keys: str = "") -> Path:
        """A table in SQL, its query on line 3."""
        listed = f" ({keys})" if keys else ""
        return self.declare(
            f"{name.replace('.', '/')}.sql", f"CREATE MATERIALIZED TABLE {name}{listed}\n{header}\nAS {query}"
        )

    def inputs(self) -> None:
        """The sources orders and customers."""
        self.declare("orders.sql", ORDERS)
        self.declare("customers.sql", CUSTOMERS)

    def read(self) -> Graph:
        return read_project(read_settings(self.root, self.environ), self.environ)

    def errors(self) -> list[tuple[str, str, str]]:
        """Rule, place and message of everything that is wrong, none if nothing is."""
        try:
            self.read()
        except DeclarationErrors as errors:
            return [(error.rule, str(error.where), error.message) for error in errors.errors]
        return []

    def error(self) -> tuple[str, str, str]:
        """The one thing that is wrong."""
        errors = self.errors()
        assert len(errors) == 1, errors
        return errors[0]

    def check_error(self, rule: str, *said: str, at: str | None = None) -> str:
        """Check that one thing is wrong: the rule, what its message says, and its place if that is given."""
        found, where, message = self.error()
        assert (found, where) == (rule, where if at is None else at), message
        for each in said:
            assert each in message
        return message

    def rules(self) -> list[str]:
        return [rule for rule, _, _ in self.errors()]


def settings_of(project: Project, text: str = "", **environ: str) -> Settings:
    """The settings of a project that are read of a text."""
    project.settings(text)
    return read_settings(project.root, environ)


def settings_refused(project: Project, text: str = "", **environ: str) -> str:
    """The sentence with which settings are refused."""
    with pytest.raises(SettingsError) as raised:
        settings_of(project, text, **environ)
    return str(raised.value)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "project")


@pytest.fixture
def shop(project: Project) -> Project:
    """A project with two sources."""
    project.inputs()
    return project
