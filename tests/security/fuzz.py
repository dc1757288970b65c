"""Inputs that nobody would write, for all that reads something from outside: a fuzzer with a memory.

A target makes one input from a generator of random numbers and reads it. Each input gives a result, or an error of
freshline with a code that the documentation lists, within the target's time. Anything else is a finding: it is made as
short as it can be, printed with its seed, and kept in `cases/<target>.jsonl`, which every later run tries first.

An input is a text; those of bytes are handed over as Latin-1. The seed of a run and the number of an input make it, so
a finding can be made again without the ones before it.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

from freshline.errors import DeclarationError, DeclarationErrors, FreshlineError

CASES = Path(__file__).parent / "cases"
# Where new cases are kept; by the environment where the library is not the one of the repository.
KEPT = Path(os.environ.get("FRESHLINE_CASES", CASES))
DOCS = Path(__file__).parents[2] / "platform" / "docs"
SHRINK_SECONDS = 20.0
MOST_FINDINGS = 5
MOST_BAD = 200
_WAITED = 20


class HangError(Exception):
    """An input took longer than its target allows."""


@dataclass(frozen=True)
class Target:
    """One reader of input. `share` is its part of the inputs of a run, `seconds` the CPU time that one may take."""

    name: str
    make: Callable[[random.Random], str]
    read: Callable[[str], object]
    share: float
    seconds: float = 5.0


@dataclass(frozen=True)
class Finding:
    """An input that gave neither a result nor a documented error, as short as it was found to be."""

    target: str
    text: str
    what: str

    def __str__(self) -> str:
        return f"{self.target}: {self.what}\n    input: {self.text[:2000]!r}"


@dataclass
class Hunt:
    """How a run went: accepted, and refused by code."""

    inputs: int = 0
    accepted: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    seconds: float = 0.0

    def __str__(self) -> str:
        codes = ", ".join(f"{code} {count}" for code, count in self.refused.most_common(6))
        speed = self.inputs / max(self.seconds, 1e-9)
        return (
            f"{self.inputs:,} inputs, {speed:,.0f} a second, {self.accepted:,} accepted, "
            f"refused: {codes or 'none'}; {len(self.findings)} findings"
        )


@cache
def documented() -> frozenset[str]:
    """The codes that have a paragraph: a line that begins with the code in bold and backquotes."""
    pages = [page.read_text(encoding="utf-8") for page in sorted(DOCS.glob("*.md"))]
    return frozenset(code for page in pages for code in re.findall(r"\*\*`([A-Z][A-Z0-9_]+)`", page))


def problem_of(error: FreshlineError) -> str | None:
    """The problem of an error of ours as the answer to an input, None if it has none."""
    if isinstance(error, DeclarationErrors):
        return next((found for each in error.errors if (found := problem_of(each)) is not None), None)
    code = error.rule if isinstance(error, DeclarationError) else error.code
    if code not in documented():
        return f"the code {code} is not documented"
    said = f"{error.message} {error.where}"
    if "Traceback (most recent call last)" in said:
        return f"{code} shows a stack trace"
    return None


def try_input(target: Target, text: str) -> tuple[str | None, str | None]:
    """Read one input: the code of its refusal (None if it was accepted), and what is wrong (None if nothing is)."""
    try:
        with deadline(target.seconds):
            target.read(text)
    except FreshlineError as error:
        return error.code, problem_of(error)
    except HangError:
        return None, f"it took more than {target.seconds:g} CPU-seconds"
    except Exception as error:  # noqa: BLE001 - such errors are what the fuzzer searches for
        place = traceback.extract_tb(error.__traceback__)[-1]
        return None, f"{type(error).__name__} in {Path(place.filename).name}, {place.name}: {str(error)[:200]}"
    return None, None


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Interrupt the block when it has taken so many CPU-seconds, or has waited for many times as long.

    The time of a clock alone would find what other processes do. Only in the main thread; elsewhere nothing is limited.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def give_up(_number: int, _frame: FrameType | None) -> None:
        raise HangError

    timers = ((signal.ITIMER_PROF, signal.SIGPROF, 1), (signal.ITIMER_REAL, signal.SIGALRM, _WAITED))
    before = [signal.signal(number, give_up) for _, number, _ in timers]
    for timer, _, factor in timers:
        signal.setitimer(timer, factor * seconds)
    try:
        yield
    finally:
        for timer, _, _ in timers:
            signal.setitimer(timer, 0)
        for (_, number, _), handler in zip(timers, before, strict=True):
            signal.signal(number, handler)


def hunt(target: Target, count: int, seed: int, *, keep: bool = True) -> Hunt:
    """Read the kept cases and `count` new inputs; findings are shortened, and with `keep` kept."""
    begun, found = time.monotonic(), Hunt()
    kinds: set[str] = set()
    bad = 0
    for text in _inputs(target, count, seed):
        found.inputs += 1
        code, what = try_input(target, text)
        if what is not None:
            # The text behind the place differs from input to input, and would make many findings of one.
            kind = what.partition(":")[0]
            if kind not in kinds:
                kinds.add(kind)
                found.findings.append(_shortest(target, text, what))
            bad += 1
            # An input that takes too long takes as long again each time.
            if len(found.findings) >= MOST_FINDINGS or bad >= MOST_BAD or what.endswith("CPU-seconds"):
                break
        elif code is None:
            found.accepted += 1
        else:
            found.refused[code] += 1
    found.seconds = time.monotonic() - begun
    if keep:
        keep_cases(target.name, [finding.text for finding in found.findings])
    return found


def _inputs(target: Target, count: int, seed: int) -> Iterator[str]:
    yield from cases_of(target.name)
    for number in range(count):
        yield target.make(random.Random(f"{target.name} {seed} {number}"))


def cases_of(name: str) -> list[str]:
    """The inputs that were findings once."""
    files = dict.fromkeys(folder / f"{name}.jsonl" for folder in (CASES, KEPT))
    return [json.loads(line) for file in files if file.exists() for line in file.read_text("utf-8").splitlines()]


def keep_cases(name: str, texts: Sequence[str]) -> None:
    """Add inputs to the cases of a target, each once."""
    known = cases_of(name)
    new = [text for text in dict.fromkeys(texts) if text not in known]
    if new:
        KEPT.mkdir(parents=True, exist_ok=True)
        with (KEPT / f"{name}.jsonl").open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(text) + "\n" for text in new)


def _shortest(target: Target, text: str, what: str) -> Finding:
    """The input with as much taken away as leaves something wrong of the same type."""
    kind, until = what.split(" ", 1)[0], time.monotonic() + SHRINK_SECONDS
    size = max(1, len(text) // 2)
    while size and time.monotonic() < until:
        at, shorter = 0, False
        while at < len(text) and time.monotonic() < until:
            candidate = text[:at] + text[at + size :]
            said = try_input(target, candidate)[1]
            if said is not None and said.split(" ", 1)[0] == kind:
                text, what, shorter = candidate, said, True
            else:
                at += size
        size = size if shorter and size > 1 else size // 2
    return Finding(target.name, text, what)


# -- what inputs are made of

ODD_TEXTS = (
    *(
        "\x00",
        "\u202e",
        "\ufeff",
        "\u00a0",
        "\u2028",
        "\x85",
        "\r",
        "\n",
        "\t",
        "\x1b[2J",
        "\x7f",
        "é",
        "日",
        "\U0001f600",
    ),
    *("'", '"', "`", "\\", "''", "\\'", "../", "/../../etc/passwd", "%2e%2e%2f", "${env:HOME}", "${file:~x/y}", "~x/y"),
    *("-1", "0", "1e999", "-0.0", "NaN", "Infinity", "9" * 30, "9" * 5000, "1" * 400, "0x1F", "1_0", "²", "٣", "१"),
    *("x" * 300, "x" * 10_240, "a." * 60 + "b", "null", "true", "[]", "{}", "<script>alert(1)</script>", "{{7*7}}"),
    *("2026-11-01", "0000-00-00", "9999-12-31T23:59:59+14:00", "2026-02-30", "1 day", "-1 day", "1e9 days", "PT1H"),
)
DEEP_TEXTS = ("[" * 2000, "{" * 2000, "(" * 1500, '{"a":' * 1500, "- " * 1500, "ARRAY<" * 1500, "not " * 1500)


def mutated(chance: random.Random, parts: Sequence[str], pool: Sequence[str]) -> str:
    """Parts of a correct input with some taken away, doubled, moved, or replaced by those of the pool and odd ones."""
    changed = list(parts)
    for _ in range(chance.choice((1, 1, 1, 2, 3, 5))):
        at = chance.randrange(len(changed) + 1)
        upto = min(len(changed), at + chance.randrange(1, 9))
        match chance.randrange(8):
            case 0:
                del changed[at:upto]
            case 1:
                changed[at:at] = [chance.choice(pool)]
            case 2:
                changed[at : at + 1] = [chance.choice(pool)]
            case 3:
                changed[at:at] = [odd(chance)]
            case 4:
                changed[at : at + 1] = [odd(chance)]
            case 5:
                changed[at:at] = changed[at:upto]
            case 6:
                begin = chance.randrange(len(pool))
                changed[at:at] = pool[begin : begin + chance.randrange(1, 9)]
            case _:
                part = changed[at - 1] if changed and at else ""
                cut = chance.randrange(len(part) + 1)
                changed[max(0, at - 1) : at] = [part[:cut] + odd(chance) + part[cut:]]
    return "".join(changed)


def odd(chance: random.Random) -> str:
    """A text that is rarely written; now and then one that is nested deeply."""
    return chance.choice(DEEP_TEXTS) if chance.random() < 0.01 else chance.choice(ODD_TEXTS)


def odd_value(chance: random.Random, depth: int = 0) -> object:
    """A value of JSON."""
    match chance.randrange(9 if depth < 3 else 7):
        case 0:
            return None
        case 1:
            return chance.choice((True, False))
        case 2:
            return chance.choice((0, -1, 1, 2**31, 2**63, -(2**63), 10**30, 3, 1_000_000_000_000))
        case 3:
            return chance.choice((0.5, -0.0, 1e308, float("nan"), float("inf"), 1e-320))
        case 4:
            return chance.choice(("\ud800", "a\udfffb", ""))
        case 5 | 6:
            return chance.choice(ODD_TEXTS)
        case 7:
            return [odd_value(chance, depth + 1) for _ in range(chance.randrange(4))]
        case _:
            return {chance.choice(ODD_TEXTS)[:50]: odd_value(chance, depth + 1) for _ in range(chance.randrange(4))}


def mutated_json(chance: random.Random, value: object) -> str:
    """The text of a value of JSON in which some inner values are others, gone, doubled or misnamed."""
    copied = json.loads(json.dumps(value))
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        places = list(_places(copied))
        if not places:
            break
        holder, key = chance.choice(places)
        match chance.randrange(5):
            case 0 if isinstance(holder, dict):
                holder[chance.choice((f"{key}_", str(key).upper(), "kind", ""))] = holder.pop(key)
            case 1:
                del holder[key]
            case 2:
                holder[key] = _at(*chance.choice(places))
            case _:
                holder[key] = odd_value(chance)
    text = json.dumps(copied)
    if chance.random() < 0.15:
        at = chance.randrange(len(text) + 1)
        text = text[:at] + odd(chance) + text[at + chance.randrange(3) :]
    return text


def _at(holder: Any, key: Any) -> Any:
    return json.loads(json.dumps(holder[key]))


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place of a value within: the dictionary or list that has it, and its key or number."""
    pending = [value]
    while pending:
        holder = pending.pop()
        keys: Iterable[Any] = (
            holder if isinstance(holder, dict) else range(len(holder)) if isinstance(holder, list) else ()
        )
        for key in list(keys):
            yield holder, key
            pending.append(holder[key])
