"""The changes of a project after which its assets would differ from those that were loaded."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from freshline.commit.control_store import ControlStore
from freshline.dagster.changes import ProjectChanges
from freshline.declare.project import read_settings
from freshline.freshness.intentions import FreshnessOverride, Suspension
from freshline.values.freshness import Freshness
from freshline.values.names import TableName

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)


class Look:
    """A project that is checked, at a moment that the test sets."""

    def __init__(self, root: Path) -> None:
        (root / "workspace.yaml").write_text("load_from: []\n")
        self.root = root
        self.settings = read_settings(root, {})
        self.now = NOW
        self.changes = ProjectChanges(self.settings, lambda: self.now)

    def found(self) -> bool:
        """Whether a change is found by the second check after it, and nothing is found once it was loaded."""
        first, second = self.changes.found(), self.changes.found()
        assert not first, "what has just changed may go on changing"
        self.changes.loaded()
        assert not self.changes.found()
        return second


@pytest.fixture
def look(project: Callable[..., Path]) -> Look:
    return Look(project())


def test_nothing_has_changed(look):
    (look.root / "landing" / "touch_event").mkdir(parents=True)
    (look.root / "landing" / "touch_event" / "1.json").write_text("{}\n")
    (look.root / ".freshline" / "logs").mkdir(parents=True)
    (look.root / ".freshline" / "logs" / "x.yaml").write_text("a: b\n")

    assert not look.found()


@pytest.mark.parametrize("name", ["assets/first_touch.sql", "assets/sales/new.sql", "pyproject.toml", "shop/rates.py"])
def test_a_file_of_the_project_is_written(look, name):
    file = look.root / name
    file.parent.mkdir(exist_ok=True)
    file.write_text("-- another\n")

    assert look.found()


def test_a_declaration_is_renamed_and_one_is_removed(look):
    (look.root / "assets" / "first_touch.sql").rename(look.root / "assets" / "touch.sql")
    assert look.found()

    (look.root / "assets" / "touch.sql").unlink()
    assert look.found()


def test_a_burst_of_changes_is_one(look):
    for number in range(3):
        (look.root / "assets" / f"table_{number}.sql").write_text("-- a table\n")
        assert not look.changes.found()

    assert look.changes.found()
    look.changes.loaded()
    assert not look.changes.found()


def test_an_override_begins_and_ends_by_itself_and_a_suspension_is_none(look):
    control = ControlStore.open(look.settings.control_store)
    assert not look.found()
    name = TableName.parse("first_touch")
    override = FreshnessOverride(name, Freshness.parse("1 MINUTE"), "a", NOW, NOW + timedelta(minutes=5))

    control.intentions.change(set_overrides=[override])
    assert look.found()

    control.intentions.change(set_suspensions=[Suspension(name, "a", NOW)])
    assert not look.found()

    look.now = NOW + timedelta(minutes=5)
    assert look.found()


def test_a_folder_that_is_moved_away_for_a_moment_has_not_changed(look):
    away = look.root.with_name("away")
    look.root.rename(away)
    assert not look.found()

    away.rename(look.root)
    assert not look.found()


def test_a_control_store_that_does_not_answer_leaves_the_overrides_as_they_were(look):
    control = ControlStore.open(look.settings.control_store)
    control.intentions.change(
        set_overrides=[FreshnessOverride(TableName.parse("first_touch"), Freshness.parse("1 MINUTE"), "a", NOW)]
    )
    assert look.found()
    control.close()
    store = Path(look.settings.control_store.removeprefix("sqlite:///"))
    kept = store.read_bytes()

    store.write_bytes(b"no database" * 1000)
    assert not look.found()

    store.write_bytes(kept)
    assert not look.found()
