"""The projects that `freshline init` can make: the files of each template, as texts by their paths.

Each of them plans without a mistake as it is, and its README says how to run it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

PYPROJECT = """\
[project]
name = "{name}"
version = "0.1.0"
requires-python = ">=3.11,<3.14"
dependencies = ["freshline"]

[tool.freshline]
# Where the declarations are, one a file; every other setting has a default.
declarations = "assets"

# For Dagster's `dg`: it finds the same definitions as workspace.yaml.
[tool.dg]
directory_type = "project"

[tool.dg.project]
root_module = "assets"
code_location_target_module = "assets.definitions"
"""

WORKSPACE = """\
load_from:
  - python_module:
      module_name: assets.definitions
      working_directory: .
      location_name: freshline
"""

GITIGNORE = """\
# Warehouse, control store, logs and Dagster's home of every environment.
.freshline/
__pycache__/
"""

DEFINITIONS = '''\
"""The definitions that Dagster loads: every table and source that is declared beside this file."""

from pathlib import Path

from freshline.dagster import FreshlineProject, build_definitions

defs = build_definitions(FreshlineProject(Path(__file__).resolve().parent.parent))
'''

COMPONENTS = '''\
"""Components of Dagster's `dg`, a folder each: `dg scaffold defs freshline.dagster.FreshlineProjectComponent shop`."""
'''

ORDERS = """\
-- Files of this folder are read once each, as they arrive; their rows stand in the log table `orders`.
CREATE SOURCE orders (
  order_id STRING,
  customer STRING,
  amount DECIMAL(10,2),
  ordered_at TIMESTAMP,
  PRIMARY KEY (order_id)
)
COMMENT 'Orders of the shop, one CSV file after another'
WITH (
  'connector' = 'files',
  'format' = 'csv',
  'path' = 'landing/orders'
);
"""

SPEND = """\
CREATE MATERIALIZED TABLE spend (
  PRIMARY KEY (customer)
)
COMMENT 'Spending of each customer'
FRESHNESS = INTERVAL '5' MINUTE
AS SELECT
  customer,
  count(*) AS order_count,
  sum(amount) AS total
FROM orders
GROUP BY customer;
"""

FIRST_FILE = """\
order_id,customer,amount,ordered_at
o-1,ada,19.90,2026-11-01 09:12:00
o-2,grace,5.00,2026-11-01 10:30:00
o-3,ada,7.35,2026-11-01 17:45:00
o-4,alan,120.00,2026-11-01 21:03:00
"""

FILES_README = """\
# {name}

Tables kept fresh by freshline. `assets/orders.sql` names a folder of CSV files as a source, and `assets/spend.sql` is
a table over it that may lag behind by five minutes.

    freshline plan                       # the declarations, and their changes
    freshline refresh                    # read the files, compute the table
    freshline sql "SELECT * FROM spend ORDER BY customer"

`freshline up` keeps the table fresh from then on, with the Dagster UI, and `freshline down` ends it. Put another CSV
file with the same header into `landing/orders/`, or refresh yourself.
"""

KAFKA_ORDERS = """\
-- Each record of the topic is read once; its row stands in the log table `orders`.
CREATE SOURCE orders (
  order_id STRING,
  customer STRING,
  amount DECIMAL(10,2),
  ordered_at TIMESTAMP,
  PRIMARY KEY (order_id)
)
COMMENT 'Orders of the shop, one JSON object a record'
WITH (
  'connector' = 'kafka',
  'format' = 'json',
  'topic' = 'orders',
  'bootstrap.servers' = 'localhost:9092'
);
"""

KAFKA_README = """\
# {name}

Tables kept fresh by freshline. `assets/orders.sql` names a Kafka topic as a source, and `assets/spend.sql` is a table
over it that may lag behind by five minutes.

Write the address of your brokers to `bootstrap.servers` in `assets/orders.sql`, and the options of their security: a
password is a reference such as `${{file:secrets/kafka-jaas}}`. A record of the topic `orders` is like this one:

    {{"order_id": "o-1", "customer": "ada", "amount": 19.90, "ordered_at": "2026-11-01T09:12:00Z"}}

Then:

    freshline plan                       # the declarations, and their changes
    freshline refresh                    # read the topic, compute the table
    freshline sql "SELECT * FROM spend ORDER BY customer"

`freshline up` keeps the table fresh from then on, with the Dagster UI, and `freshline down` ends it. Records that
cannot be rows are in `orders__quarantine`, with the reason.
"""

DELTA_ORDERS = """\
-- The Delta table of another job, which is read in place with its updates and deletes.
CREATE SOURCE orders (
  order_id STRING,
  customer STRING,
  amount DECIMAL(10,2),
  ordered_at TIMESTAMP
)
COMMENT 'Orders of the shop, as another job writes them'
WITH (
  'connector' = 'delta',
  'path' = 'landing/orders'
);
"""

DELTA_JOB = '''\
"""Stands in for the job that writes the Delta table `landing/orders`: each run adds four orders."""

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

TABLE = str(Path(__file__).parent / "landing" / "orders")
COLUMNS = pa.schema(
    [
        ("order_id", pa.string()),
        ("customer", pa.string()),
        ("amount", pa.decimal128(10, 2)),
        ("ordered_at", pa.timestamp("us", tz="UTC")),
    ]
)
SOLD = (("ada", "19.90"), ("grace", "5.00"), ("ada", "7.35"), ("alan", "120.00"))

run = DeltaTable(TABLE).version() + 2 if DeltaTable.is_deltatable(TABLE) else 1
now = datetime.now(UTC)
orders = [
    {"order_id": f"o-{run}-{number}", "customer": customer, "amount": Decimal(amount), "ordered_at": now}
    for number, (customer, amount) in enumerate(SOLD, 1)
]
write_deltalake(
    TABLE,
    pa.Table.from_pylist(orders, COLUMNS),
    mode="append",
    # Without its change feed, a table that reads this one is computed in full after each change.
    configuration={"delta.enableChangeDataFeed": "true"},
)
print(f"{len(orders)} orders are written to {TABLE}")
'''

DELTA_README = """\
# {name}

Tables kept fresh by freshline. `assets/orders.sql` names the Delta table of another job as a source, and
`assets/spend.sql` is a table over it that may lag behind by five minutes. `job.py` stands in for the other job.

    python job.py                        # four orders
    freshline plan                       # the declarations, and their changes
    freshline refresh                    # compute the table
    freshline sql "SELECT * FROM spend ORDER BY customer"
    python job.py                        # four more, which a refresh adds to the sums
    freshline refresh

`freshline up` keeps the table fresh from then on, with the Dagster UI, and `freshline down` ends it. Write the path
of your own Delta table to `assets/orders.sql`, with its columns, and remove `job.py`.
"""


@dataclass(frozen=True)
class Template:
    """A project to begin with: how it reads its orders, and which commands come next.

    `files` are texts by path, beside those that every project has; `{name}` in a README is the project's.
    """

    about: str
    readme: str
    files: Mapping[str, str]
    next: tuple[str, ...]


_NEXT = ("freshline plan", "freshline refresh", 'freshline sql "SELECT * FROM spend ORDER BY customer"', "freshline up")
TEMPLATES: Mapping[str, Template] = {
    "files": Template(
        "CSV files of a folder",
        FILES_README,
        {"assets/orders.sql": ORDERS, "landing/orders/2026-11-01.csv": FIRST_FILE},
        _NEXT,
    ),
    "kafka": Template("a Kafka topic", KAFKA_README, {"assets/orders.sql": KAFKA_ORDERS}, _NEXT),
    "delta": Template(
        "a Delta table of another job",
        DELTA_README,
        {"assets/orders.sql": DELTA_ORDERS, "job.py": DELTA_JOB},
        ("python job.py", *_NEXT),
    ),
}


def project_files(name: str, template: Template = TEMPLATES["files"]) -> dict[str, str]:
    """The files of a new project by their paths in it."""
    name = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-").lower() or "tables"
    return {
        "pyproject.toml": PYPROJECT.format(name=name),
        "workspace.yaml": WORKSPACE,
        ".gitignore": GITIGNORE,
        "README.md": template.readme.format(name=name),
        "assets/definitions.py": DEFINITIONS,
        "assets/defs/__init__.py": COMPONENTS,
        **template.files,
        "assets/spend.sql": SPEND,
    }
