"""A project made by `init`, and an engine that answers as a test asks it to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from freshline.cli import ask, doctor, engine, metrics, status, supervisor
from freshline.cli.main import run
from freshline.engine.client import EngineClient
from freshline.errors import EngineError
from freshline.report.metrics.exposition import Family


@dataclass
class FakeEngine:
    """Stands in for the engine and its client: answers requests from `answers`, and remembers what was asked."""

    answers: dict[str, Sequence[Mapping[str, Any] | BaseException]] = field(default_factory=dict)
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    running: bool = False
    loops: bool = False
    cancelled: int = 0
    statuses: list[dict[str, Any]] = field(default_factory=list)
    families: Sequence[Family] = ()

    def connect(
        self,
        settings: object,
        *,
        start: bool = True,
        loops: bool = False,
        progress: Callable[[str], None] = lambda message: None,
    ) -> FakeEngine:
        if not self.running:
            if not start:
                raise EngineError("no engine is running")
            self.running = True
        self.loops = self.loops or loops
        return self

    def run(self, kind: str, **arguments: Any) -> Iterator[Mapping[str, Any]]:
        self.asked.append((kind, arguments))
        ended = False
        try:
            for event in (*self.answers.get(kind, ()), {"type": "done", "state": "SUCCEEDED", "error": None}):
                if isinstance(event, BaseException):
                    raise event
                ended = event["type"] == "done"
                yield event
        finally:
            self.cancelled += not ended

    def health(self) -> dict[str, Any]:
        if not self.running:
            raise EngineError("no engine is running")
        return {"version": "0", "pid": 1, "warehouse": "/w", "loops": self.loops}

    def status(self) -> list[dict[str, Any]]:
        return self.statuses

    def metrics(self) -> list[dict[str, Any]]:
        return [family.as_json() for family in self.families]

    def stop(self, timeout: float = 60) -> None:
        self.running = False


@pytest.fixture
def fake_engine(monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    fake = FakeEngine()
    monkeypatch.setattr(EngineClient, "connect", fake.connect)
    for module in (ask, doctor, engine, metrics, status, supervisor):
        monkeypatch.setattr(module, "running_engine", lambda settings: fake if fake.running else None)
    return fake


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """The project of `freshline init`; the current folder is one below it."""
    root = tmp_path / "shop"
    assert run(["init", str(root)]) == 0
    capsys.readouterr()
    monkeypatch.chdir(root / "landing")
    monkeypatch.delenv("FRESHLINE_ENV", raising=False)
    return root
