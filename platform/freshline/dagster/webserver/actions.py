"""The buttons of the board: decisions about a table, made by the functions that the commands call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from freshline.errors import RequestError
from freshline.manage.decide import who
from freshline.manage.freshness import reset_freshness, set_freshness
from freshline.manage.suspension import resume, suspend
from freshline.values.names import TableName
from freshline.values.settings import Settings

_LONGEST = 300


@dataclass(frozen=True)
class BoardAction:
    """The wish of a button: `kind` of ACTIONS, the table, and the fields of its form; empty ones are as if absent."""

    kind: str
    table: str
    fields: Mapping[str, str]

    @classmethod
    def read(cls, content: Mapping[str, object]) -> BoardAction:
        """The action of a posted object. Raises RequestError for any other object."""
        fields: dict[str, str] = {}
        for name, value in content.items():
            if name not in ("action", "table", "freshness", "for", "because"):
                raise RequestError(f"{name[:40]!r} is not a field of an action.")
            if not isinstance(value, str) or len(value) > _LONGEST:
                raise RequestError(f"{name} is a text of at most {_LONGEST} characters.")
            if value.strip():
                fields[name] = value.strip()
        kind, table = fields.pop("action", ""), fields.pop("table", "")
        if kind not in ACTIONS:
            raise RequestError(f"an action is one of {', '.join(ACTIONS)}.")
        return cls(kind, table, fields)


@dataclass(frozen=True)
class Acting:
    """Who acts: the project's `settings`, a `clock`, and `refresh`, which asks the engine for a refresh of a table."""

    settings: Settings
    clock: Callable[[], datetime]
    refresh: Callable[[TableName], str]


def act(action: BoardAction, acting: Acting) -> str:
    """Do it; what is true now, as a sentence. Raises what the command would, and then nothing was changed."""
    return ACTIONS[action.kind](action, acting)


def _refresh(action: BoardAction, acting: Acting) -> str:
    try:
        return acting.refresh(TableName.parse(action.table))
    except ValueError as error:
        raise RequestError(str(error)) from error


def _suspend(action: BoardAction, acting: Acting) -> str:
    because, lasts = action.fields.get("because"), action.fields.get("for")
    return suspend(
        action.table, for_=lasts, because=because, by=_by(), project=acting.settings, clock=acting.clock
    ).sentence


def _resume(action: BoardAction, acting: Acting) -> str:
    return resume(action.table, by=_by(), project=acting.settings, clock=acting.clock).sentence


def _set_freshness(action: BoardAction, acting: Acting) -> str:
    if "freshness" not in action.fields:
        raise RequestError("the new freshness is missing, such as 30 seconds.")
    wanted, lasts = action.fields["freshness"], action.fields.get("for")
    decided = set_freshness(action.table, wanted, for_=lasts, by=_by(), project=acting.settings, clock=acting.clock)
    return " ".join([decided.sentence, *decided.warnings])


def _reset_freshness(action: BoardAction, acting: Acting) -> str:
    return reset_freshness(action.table, by=_by(), project=acting.settings, clock=acting.clock).sentence


def _by() -> str:
    """Whoever may use the UI may decide, and the UI knows no names."""
    return f"{who(None)} (UI)"


ACTIONS: Mapping[str, Callable[[BoardAction, Acting], str]] = {
    "refresh": _refresh,
    "suspend": _suspend,
    "resume": _resume,
    "freshness": _set_freshness,
    "reset": _reset_freshness,
}
