"""An index of OpenSearch or Elasticsearch as a sink: each row is a document, whose version is that of the refresh."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from freshline.sinks.http_sink import USER_OPTIONS, HttpSink
from freshline.sources.tls import TLS_OPTIONS
from freshline.values.options import Kind, Option, Options, Reference
from freshline.values.sink import refuse_type

# Names of indices and columns that the system has no place for.
_INDEX = re.compile(r"(?![-_+.])[^A-Z\\/*?\"<>| ,#:\x00-\x1f\x7f]+\Z")
_MOST_BYTES = 200
_METADATA = (
    *("_id", "_index", "_source", "_type", "_version", "_seq_no", "_primary_term", "_routing", "_field_names"),
    *("_ignored", "_size", "_nested_path", "_doc_count", "_tier", "_data_stream_timestamp", "_feature", "_tsid"),
    *("_ignored_source", "_inference_fields"),
)


@dataclass(frozen=True, kw_only=True)
class OpenSearchSink(HttpSink):
    """An index of OpenSearch, as it is declared.

    `api_key` is a reference. `mapping` is a JSON object of the fields that are mapped otherwise.
    """

    index: str
    api_key: str | None = None
    mapping: str | None = None

    name: ClassVar[str] = "opensearch"
    title: ClassVar[str] = "OpenSearch"
    ports: ClassVar[Mapping[str, int]] = {"http": 9200, "https": 9200}
    # Each system has this user from the beginning.
    first_user: ClassVar[str] = "admin"
    delivery: ClassVar[str] = "effectively once: rows that were written are written again without effect"
    writer: ClassVar[str] = "freshline.sinks.opensearch.writer:OpenSearchWriter"
    options: ClassVar[tuple[Option, ...]] = (
        Option(
            "url",
            "the addresses, with commas between them",
            required="the address of the system, such as https://search:9200",
            reference=Reference.PART,
        ),
        Option("index", "the name by which documents are searched", required="the name of the index"),
        *USER_OPTIONS,
        Option("api-key", "a key in the place of user and password", secret=True),
        Option("mapping", "a JSON object of fields that are mapped in another way", Kind.RAW),
        *TLS_OPTIONS,
    )

    @classmethod
    def declare(cls, options: Options) -> Self:
        declared = super().declare(options)
        index = declared.index
        if index and not (_INDEX.match(index) and len(index.encode()) <= _MOST_BYTES):
            options.reject(
                "index", "a name of lower case letters, digits, - and _, which begins with a letter or digit"
            )
        if "api-key" in options:
            for other in ("username", "password"):
                options.require(other, "no 'api-key' beside it", False)
        else:
            options.require("username", "a 'password'", "password" in options)
        if declared.mapping is not None and _fields(declared.mapping) is None:
            options.reject("mapping", 'a JSON object of fields, such as {"note": {"type": "keyword"}}')
        return declared

    @property
    def fields(self) -> Mapping[str, Any]:
        """The mappings that are declared, by the names of columns."""
        return {} if self.mapping is None else _fields(self.mapping) or {}

    @property
    def meaning(self) -> tuple[object, ...]:
        return (self.index, self.mapping)

    @property
    def shown(self) -> Mapping[str, str]:
        return {"url": self.url, "index": self.index}

    @property
    def left_behind(self) -> str:
        return f"The index {self.index} stays as it is, and its document in freshline_sink."

    def refuses(self, column_type: str, *, is_key: bool) -> str | None:
        return refuse_type(column_type, is_key=is_key)

    def find_column_problems(self, columns: Sequence[str]) -> str | None:
        for column in columns:
            if column in _METADATA:
                return f"{column} is of {self.title} itself in each document. Give it another name with AS"
            if not all(part.strip() for part in column.split(".")):
                return f"{column!r} has an empty part between dots, or is blank"
            above = [other for other in columns if column.startswith(f"{other}.")]
            if above:
                return f"{column} would be within {above[0]}: a dot separates the parts of a document"
        missing = [field for field in self.fields if field not in columns]
        return f"option 'mapping' has {missing[0]}, which is no column" if missing else None


@dataclass(frozen=True, kw_only=True)
class ElasticsearchSink(OpenSearchSink):
    """An index of Elasticsearch: the same requests, and another first user."""

    name: ClassVar[str] = "elasticsearch"
    title: ClassVar[str] = "Elasticsearch"
    first_user: ClassVar[str] = "elastic"


def _fields(text: str) -> Mapping[str, Any] | None:
    try:
        found = json.loads(text)
    except ValueError:
        return None
    is_mapping = isinstance(found, dict) and all(isinstance(value, dict) for value in found.values())
    return found if is_mapping else None
