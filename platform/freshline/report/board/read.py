"""Read the board of a project: status, history, alerts and EXPLAIN, without Spark and without an engine.

It only reads. A page of a table reads the receipts of its newest commits and explains it, which takes some tenths of a
second; so pages are read where they are asked for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from urllib.parse import quote

from freshline.commit import delta_log
from freshline.commit.columns import column_types
from freshline.commit.control_store import ControlStore
from freshline.commit.warehouse import Warehouse
from freshline.declare.graph import Graph
from freshline.errors import FreshlineError
from freshline.freshness.alert import Alert, open_alerts
from freshline.freshness.cost import FreshnessExplained, explain_freshness
from freshline.freshness.history import Mark, cut_text
from freshline.freshness.intentions import apply_overrides
from freshline.query.resolved import ColumnLineage, find_lineage
from freshline.report.board.board import Board, BoardRow, ColumnFact, DeclarationPlace, TablePage, board_rows
from freshline.report.board.calendar import Calendar, make_calendar
from freshline.report.descriptions import describe_columns
from freshline.report.explain import explanations, read_measured
from freshline.report.samples import Mask, find_masks, read_quarantine, read_sample
from freshline.report.status import read_status
from freshline.values.names import TableName
from freshline.values.settings import Settings
from freshline.values.spec import SourceSpec, Spec, TableSpec

RECENT = timedelta(hours=3)
SHOWN_RECEIPTS = 25
_MOST_ALERTS = 1_000
_MOST_DECLARED = 64_000
_MOST_RECEIPT = 8_000
_UNKNOWN_TYPE = "known after the first refresh"


class BoardReader:
    """Reads boards of one project.

    `count_rows` may remember counts from one board to the next. `untold` says why alerts are not sent at a moment.
    """

    def __init__(
        self,
        settings: Settings,
        store: ControlStore,
        *,
        running: Callable[[], Collection[TableName]] = tuple,
        count_rows: Callable[[Path, int, str | None], int | None] | None = None,
        untold: Callable[[datetime], Sequence[str]] = lambda _: (),
    ) -> None:
        self._settings = settings
        self._store = store
        self._warehouse = Warehouse(settings.warehouse)
        self._running = running
        self._count_rows = count_rows
        self._untold = untold

    def read(
        self,
        graph: Graph,
        now: datetime,
        since: datetime,
        wanted: Callable[[Sequence[BoardRow]], Sequence[TableName]] = lambda _: (),
        *,
        mistakes: Sequence[str] = (),
    ) -> Board:
        """The board, with the pages of the tables that `wanted` chooses. Raises StorageError.

        `mistakes` are those of declarations that `graph` lacks.
        """
        statuses = read_status(
            graph, self._store, self._warehouse, now, running=self._running(), count_rows=self._count_rows
        )
        history = self._store.history
        rows = board_rows(graph, statuses, history.summaries(now), history.recent_spans(now - RECENT, now))
        alerts = self._store.alerts.alerts(_MOST_ALERTS)
        chosen = wanted(rows)
        pages = self._pages(graph, {row.name: row for row in rows}, chosen, alerts, now, since) if chosen else ()
        settings = self._settings
        return Board(
            settings.root.name,
            settings.environment,
            now,
            since,
            rows,
            tuple(pages),
            tuple(open_alerts(alerts)),
            tuple(mistakes),
            tuple(self._untold(now)),
        )

    def _pages(
        self,
        graph: Graph,
        rows: Mapping[TableName, BoardRow],
        wanted: Sequence[TableName],
        alerts: Sequence[Alert],
        now: datetime,
        since: datetime,
    ) -> Sequence[TablePage]:
        effective = apply_overrides(graph, self._store.intentions.read().at(now))
        measured = read_measured(effective, self._store, self._settings.parallel_refreshes)
        masks = find_masks(graph, self._settings.masked_columns)
        found = []
        for name in wanted:
            page = self._page(graph, rows[name], explain_freshness(effective, name, measured), alerts, now, since)
            near = {*graph.upstream(name), name, *graph.consumers(name)}
            page = self._with_samples(graph, page, masks[name])
            found.append(replace(page, near=tuple(row for each, row in rows.items() if each in near)))
        return found

    def _page(
        self,
        graph: Graph,
        row: BoardRow,
        promise: FreshnessExplained,
        alerts: Sequence[Alert],
        now: datetime,
        since: datetime,
    ) -> TablePage:
        name, spec, history = row.name, graph.spec(row.name), self._store.history
        marks = history.marks(name, since, now)
        return TablePage(
            row=row,
            spans=tuple(history.recent_spans(since, now, name).get(name, ())),
            hours=tuple(history.hours(name, since, now)),
            marks=tuple(marks),
            receipts=self._receipts(graph, name, marks),
            columns=self._columns(graph, name),
            alerts=tuple(alert for alert in alerts if (alert.table or "").lower() == str(name).lower()),
            critical_path=tuple(hop.table for hop in promise.judged.path),
            explained=self._explained(graph, spec) if isinstance(spec, TableSpec) else "",
            promise=str(promise),
            declaration=self._declaration(spec.written_at.path, spec.written_at.line),
            calendar=self._calendar(spec, now),
        )

    def _with_samples(self, graph: Graph, page: TablePage, mask: Mask) -> TablePage:
        name, most = page.row.name, self._settings.sample_rows
        spec = graph.spec(name)
        try:
            return replace(
                page,
                # Those of a sink are in its system.
                sample=None if graph.is_sink(name) else read_sample(self._warehouse.location(spec), most, mask),
                quarantine=read_quarantine(self._warehouse.rejections(spec), most, mask),
            )
        except FreshlineError as error:
            return replace(page, unshown=str(error))

    def _calendar(self, spec: Spec, now: datetime) -> Calendar | None:
        if not isinstance(spec, TableSpec) or spec.time_partitions is None:
            return None
        try:
            newest = delta_log.read_newest(self._warehouse.path(spec.name))
        except FreshlineError:
            # The line of the table says that its log cannot be read.
            return None
        receipt = None if newest is None else newest.receipt
        if receipt is not None and receipt.spans is None:
            return None
        spans = () if receipt is None else receipt.spans or ()
        return make_calendar(spec.time_partitions, spans, spec.fingerprint, now)

    def _receipts(self, graph: Graph, name: TableName, marks: Sequence[Mark]) -> dict[int, str]:
        """The receipts of the newest commits that are still in the log, as indented JSON."""
        path = self._warehouse.location(graph.spec(name))
        versions = [mark.version for mark in reversed(marks) if mark.committed and mark.version is not None]
        found = {}
        for version in versions[:SHOWN_RECEIPTS]:
            try:
                commit = delta_log.read_commit(path, version)
                receipt = None if commit is None else commit.receipt
            except FreshlineError:
                # The line of the table says that its log cannot be read.
                break
            if receipt is not None:
                # A receipt of a log can name hundreds of files.
                shown = json.dumps(json.loads(receipt.to_json()), indent=2, ensure_ascii=False)
                found[version] = cut_text(shown, _MOST_RECEIPT)
        return found

    def _columns(self, graph: Graph, name: TableName) -> tuple[ColumnFact, ...]:
        spec = graph.spec(name)
        key = {column.lower() for column in spec.primary_key}
        if isinstance(spec, SourceSpec):
            return tuple(
                ColumnFact(
                    column.name,
                    column.type,
                    ("key",) if column.name.lower() in key else (),
                    column.comment or (f"METADATA FROM '{column.metadata}'" if column.metadata else ""),
                )
                for column in spec.columns
            )
        parts = {column.lower() for column in spec.partitioned_by}
        path = self._warehouse.path(name)
        types = dict.fromkeys(spec.columns or (), _UNKNOWN_TYPE)
        if delta_log.exists(path):
            # Where its log cannot be read, the line of the table says so.
            with suppress(FreshlineError):
                types = column_types(path)
        # All that it depends on, because a comment travels from a source through any number of tables.
        near = [graph.spec(each) for each in (*graph.upstream(name), name)]
        lineages = {each.name: lineage_of(graph, each) for each in near if isinstance(each, TableSpec)}
        lineage, texts = lineages[spec.name], describe_columns(graph, lineages)[spec.name]
        return tuple(
            ColumnFact(
                column,
                kind,
                tuple(role for role, has in (("key", key), ("partition", parts)) if column.lower() in has),
                description=texts.get(column.lower(), ""),
                origins=lineage.get(column, ()),
            )
            for column, kind in types.items()
        )

    def _explained(self, graph: Graph, spec: TableSpec) -> str:
        try:
            return str(explanations(graph, self._warehouse, [spec])[0])
        except FreshlineError as error:
            return str(error)

    def _declaration(self, path: str, line: int) -> DeclarationPlace:
        file = self._settings.root / path
        try:
            with file.open(encoding="utf-8", errors="replace") as opened:
                text: str | None = opened.read(_MOST_DECLARED)
        except OSError:
            text = None
        written = self._settings.declaration_link
        if written is None:
            return DeclarationPlace(path, line, text)
        parts = {"{file}": quote(str(file)), "{path}": quote(path), "{line}": str(line)}
        link = re.sub("|".join(map(re.escape, parts)), lambda found: parts[found[0]], written)
        return DeclarationPlace(path, line, text, link, is_local="{file}" in written)


def lineage_of(graph: Graph, spec: TableSpec) -> ColumnLineage:
    """From which columns of its inputs each column of a table is computed; empty where that is not known."""
    return find_lineage(spec, {read: columns for read in spec.reads if (columns := graph.columns(read)) is not None})
