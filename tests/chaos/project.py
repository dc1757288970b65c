"""The project that is attacked: a table of every kind, over files, a table without keys and a topic."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

FILES = "'connector' = 'files', 'format' = '{format}', 'path' = '{path}', 'settle' = '0 seconds'"
FRESH = "FRESHNESS = INTERVAL '5' SECOND"
KAFKA_TABLES = ("paid", "paid_total")
TABLES = (
    "event",
    "plain",
    "paid",
    "earliest",
    "latest",
    "daily",
    "monthly",
    "archived",
    "scaled",
    "per_key",
    "paid_total",
    "found",
    "joined",
    "extremes",
    "spanned",
    "overall",
    "per_minute",
    "scored",
)

_DECLARATIONS: Mapping[str, str] = {
    "event": "CREATE SOURCE event (event_id STRING, k STRING, op STRING, n BIGINT, ts TIMESTAMP, "
    "PRIMARY KEY (event_id), WATERMARK FOR ts AS ts - INTERVAL '2' MINUTES) {fresh} WITH ({event})",
    "plain": "CREATE SOURCE plain (plain_id STRING, k STRING, n BIGINT, ts TIMESTAMP) {fresh} WITH ({plain})",
    "paid": "CREATE SOURCE paid (paid_id STRING, k STRING, n BIGINT, ts TIMESTAMP, PRIMARY KEY (paid_id)) {fresh} "
    "WITH ('connector' = 'kafka', 'format' = 'json', 'topic' = 'paid', 'bootstrap.servers' = '{servers}')",
    "earliest": "CREATE MATERIALIZED TABLE earliest (PRIMARY KEY (k)) WITH ('merge' = 'first_row', "
    # `op` has two values, so every batch has ties. The table does not store the order that decides them.
    "'merge.order' = 'op', 'merge.tie-breaker' = 'reverse(event_id)') {fresh} AS SELECT k, event_id, op, n FROM event",
    "latest": "CREATE MATERIALIZED TABLE latest (PRIMARY KEY (k)) WITH ('merge' = 'last_row', "
    "'merge.sequence' = 'ts', 'merge.tie-breaker' = 'event_id', 'merge.delete-when' = 'op = ''d''') {fresh} "
    "AS SELECT k, event_id, op, n, ts FROM event",
    "daily": "CREATE MATERIALIZED TABLE daily PARTITIONED BY (day) {fresh} AS SELECT CAST(ts AS DATE) AS day, k, "
    "count(*) AS rows, sum(n) AS total FROM plain GROUP BY CAST(ts AS DATE), k",
    "monthly": "CREATE MATERIALIZED TABLE monthly PARTITIONED BY (day) WITH ('partition.unit' = 'month', "
    "'partition.start' = '2025-12-01') {fresh} AS SELECT CAST(ts AS DATE) AS day, k, count(*) AS rows, "
    "sum(n) AS total FROM plain GROUP BY CAST(ts AS DATE), k",
    # Single partitions of this slow table are replaced while its inputs have rows that it has not read.
    "archived": "CREATE MATERIALIZED TABLE archived PARTITIONED BY (day) WITH ('partition.unit' = 'month', "
    "'partition.start' = '2025-12-01') FRESHNESS = INTERVAL '30' MINUTE AS SELECT CAST(ts AS DATE) AS day, k, "
    "count(*) AS rows, sum(n) AS total FROM plain GROUP BY CAST(ts AS DATE), k",
    "scaled": "CREATE MATERIALIZED TABLE scaled {fresh} AS SELECT event_id, n * 1 AS scaled FROM event",
    "per_key": "CREATE MATERIALIZED TABLE per_key {fresh} AS SELECT k, count(*) AS rows, sum(n) AS total, "
    "max(ts) AS newest FROM event GROUP BY k",
    "paid_total": "CREATE MATERIALIZED TABLE paid_total {fresh} AS SELECT k, count(*) AS rows, sum(n) AS total "
    "FROM paid GROUP BY k",
    "found": "CREATE MATERIALIZED TABLE found {fresh} AS SELECT p.plain_id, p.k, e.event_id AS first_id, "
    "version_of(e) AS seen FROM plain p LEFT JOIN earliest FOR SYSTEM_TIME AS OF PROCTIME() AS e ON p.k = e.k",
    "joined": "CREATE MATERIALIZED TABLE joined {fresh} AS SELECT p.plain_id, p.k, p.n, l.event_id, "
    "l.n AS latest_n FROM plain p LEFT JOIN latest l ON p.k = l.k",
    # The input of this slower table has several commits between two refreshes, in which values come and go.
    "extremes": "CREATE MATERIALIZED TABLE extremes FRESHNESS = INTERVAL '20' SECOND AS SELECT k, count(*) AS rows, "
    "min(n) AS least, max(n) AS greatest FROM latest GROUP BY k",
    # Two ways to one source, one longer and slower than the other, which seldom brings a row: the first events stay.
    "spanned": "CREATE MATERIALIZED TABLE spanned FRESHNESS = INTERVAL '20' SECOND AS SELECT x.k, x.greatest, "
    "e.event_id AS first_id FROM extremes x LEFT JOIN earliest e ON x.k = e.k",
    "overall": "CREATE MATERIALIZED TABLE overall {fresh} AS SELECT count(*) AS rows, sum(n) AS total, "
    "min(n) AS least, max(n) AS greatest FROM latest",
    "per_minute": "CREATE MATERIALIZED TABLE per_minute {fresh} EMIT FINAL ALLOWED LATENESS INTERVAL '1' MINUTE AS "
    "SELECT window_start, window_end, k, count(*) AS rows, sum(n) AS total "
    "FROM TABLE(TUMBLE(TABLE event, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY window_start, window_end, k",
}
_SCORED = '''\
import freshline


@freshline.table(freshness="5 seconds")
def scored(event):
    """Twice the number of each event."""
    return event.selectExpr("event_id", "n * 2 AS score")
'''
_DEFINITIONS = """\
from pathlib import Path

from freshline.dagster import FreshlineProject, build_definitions

defs = build_definitions(FreshlineProject(Path(__file__).resolve().parent.parent))
"""
_WORKSPACE = """\
load_from:
  - python_module:
      module_name: assets.definitions
      working_directory: .
      location_name: freshline
"""


def write_project(root: Path, *, landing: Path, servers: str | None, store: str | None) -> None:
    """Write the project into an empty folder. Without `servers` it has no topic; `store` is Postgres, None SQLite."""
    assets = root / "assets"
    assets.mkdir(parents=True)
    settings = ["[tool.freshline]", "dagster-port = 0", 'driver-memory = "1500m"']
    if store is not None:
        settings.append(f'control-store = "{store}"')
    (root / "pyproject.toml").write_text("\n".join(settings) + "\n", encoding="utf-8")
    (root / "workspace.yaml").write_text(_WORKSPACE, encoding="utf-8")
    (assets / "definitions.py").write_text(_DEFINITIONS, encoding="utf-8")
    (assets / "scored.py").write_text(_SCORED, encoding="utf-8")
    for source in ("event", "plain"):
        (landing / source).mkdir(parents=True)
    for name, text in _DECLARATIONS.items():
        if servers is None and name in KAFKA_TABLES:
            continue
        statement = text.format(
            fresh=FRESH,
            event=FILES.format(format="json", path=landing / "event"),
            plain=FILES.format(format="csv", path=landing / "plain"),
            servers=servers,
        )
        (assets / f"{name}.sql").write_text(statement + "\n", encoding="utf-8")
