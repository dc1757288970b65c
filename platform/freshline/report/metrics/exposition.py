r"""The text format of Prometheus (0.0.4): families of samples, each with labels.

The library `prometheus-client` writes it too, and takes seven times as long for the 26,000 samples of a thousand
tables. So the format is written here, and the tests read it with that library and with promtool.

>>> samples = (MetricSample(labels(kind='a"b'), 2),)
>>> family = Family("freshline_refreshes_running", GAUGE, "Refreshes that run.", samples)
>>> print(text_of([family]), end="")
# HELP freshline_refreshes_running Refreshes that run.
# TYPE freshline_refreshes_running gauge
freshline_refreshes_running{kind="a\"b"} 2
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"
# A label is read by people, and kept by Prometheus with every sample.
LONGEST_LABEL = 300


@dataclass(frozen=True)
class Labels:
    """Names and values of labels in their order."""

    pairs: tuple[tuple[str, str], ...] = ()

    @cached_property
    def text(self) -> str:
        """The labels in braces, empty without any. Made once, and used by each family that has them."""
        if not self.pairs:
            return ""
        return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in self.pairs) + "}"


class MetricSample(NamedTuple):
    """One value. `suffix` follows the name of the family, as `_bucket` does."""

    labels: Labels
    value: float
    suffix: str = ""


@dataclass(frozen=True)
class Family:
    """A metric: its name, its kind (COUNTER, GAUGE, HISTOGRAM), a sentence, and its samples."""

    name: str
    kind: str
    help: str
    samples: tuple[MetricSample, ...]

    def as_json(self) -> dict[str, Any]:
        """The object that `freshline metrics --json` prints."""
        return {
            "name": self.name,
            "type": self.kind,
            "help": self.help,
            "samples": [
                {"name": self.name + sample.suffix, "labels": dict(sample.labels.pairs), "value": sample.value}
                for sample in self.samples
            ],
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Family:
        """The inverse of `as_json`."""
        name = str(values["name"])
        return cls(
            name,
            str(values["type"]),
            str(values["help"]),
            tuple(
                MetricSample(Labels(tuple(each["labels"].items())), each["value"], str(each["name"]).removeprefix(name))
                for each in values["samples"]
            ),
        )


# The labels of a thousand tables are made once, and not at each scrape.
@lru_cache(maxsize=32_768)
def labels(**values: str) -> Labels:
    """Labels by name, each as a text that any reader takes.

    Half a character becomes a question mark, because the format is UTF-8, and a long text is cut. Two texts can become
    one, so counts by labels are made with the results of this function.
    """
    return Labels(tuple((name, label_text(value)) for name, value in values.items()))


def label_text(value: str) -> str:
    r"""A value of a label: of UTF-8, and not too long.

    >>> label_text("a\ud800b"), len(label_text("x" * 10_000))
    ('a?b', 300)
    """
    if len(value) > LONGEST_LABEL:
        value = value[: LONGEST_LABEL - 1] + "…"
    return value if value.isascii() else value.encode("utf-8", "replace").decode()


def text_of(families: Iterable[Family]) -> str:
    """The families as a scrape shows them; one without samples is left out."""
    lines: list[str] = []
    for family in families:
        if family.samples:
            lines.append(f"# HELP {family.name} {_on_one_line(family.help)}\n# TYPE {family.name} {family.kind}\n")
            name = family.name
            lines += [f"{name}{suffix}{each.text} {value!r}\n" for each, value, suffix in family.samples]
    return "".join(lines)


def samples_of(values: Sequence[tuple[Labels, float | None]]) -> tuple[MetricSample, ...]:
    """A sample for each value that is known: one that is not is absent, and no NaN."""
    return tuple(
        MetricSample(each, value)
        for each, value in values
        if value is not None and (isinstance(value, int) or math.isfinite(value))
    )


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _on_one_line(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")
