"""A small project for Dagster to load."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

DECLARATIONS = {
    "touch_event.sql": """
        CREATE SOURCE touch_event (
          customer_id STRING, event_id STRING, event_ts TIMESTAMP,
          arrived_at TIMESTAMP METADATA FROM 'ingested_at',
          PRIMARY KEY (event_id)
        )
        COMMENT 'Touches of customers'
        WITH ('connector' = 'files', 'format' = 'json', 'path' = 'landing/touch_event');
    """,
    "campaign_load.sql": """
        CREATE SOURCE campaign_load (campaign_id STRING, ds DATE)
        WITH ('connector' = 'delta', 'path' = 'landing/campaign_load');
    """,
    "first_touch.sql": """
        CREATE MATERIALIZED TABLE first_touch (PRIMARY KEY (customer_id))
        COMMENT 'The first touch of each customer'
        WITH ('merge' = 'first_row', 'merge.order' = 'event_ts', 'merge.tie-breaker' = 'event_id')
        FRESHNESS = INTERVAL '10' SECOND
        AS SELECT customer_id, event_id, event_ts FROM Touch_Event;
    """,
    "sales/campaign.sql": """
        CREATE MATERIALIZED TABLE sales.campaign (PRIMARY KEY (campaign_id, ds))
        PARTITIONED BY (ds)
        FRESHNESS = INTERVAL '6' HOUR
        AS SELECT campaign_id, ds FROM campaign_load;
    """,
}


@pytest.fixture(scope="session")
def write_project() -> Callable[..., Path]:
    """Writes a project; a declaration given here adds to the others or takes the place of one."""

    def write(root: Path, **files: str) -> Path:
        (root / "pyproject.toml").write_text('[project]\nname = "shop"\nversion = "0"\n\n[tool.freshline]\n')
        for name, text in {**DECLARATIONS, **{f"{key}.sql": text for key, text in files.items()}}.items():
            file = root / "assets" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(textwrap.dedent(text).strip() + "\n")
        return root

    return write


@pytest.fixture
def project(write_project: Callable[..., Path], tmp_path: Path) -> Callable[..., Path]:
    """Writes the project of this test."""
    return partial(write_project, tmp_path)
