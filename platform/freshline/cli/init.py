"""`freshline init`: a small working project, to be changed into one's own."""

from __future__ import annotations

import json
import re
from pathlib import Path

import click

from freshline.cli.options import json_option
from freshline.errors import SettingsError

PYPROJECT = """\
[project]
name = "{name}"
version = "0.1.0"
requires-python = ">=3.11,<3.13"
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
"""What Dagster loads: every table and source that is declared beside this file."""

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
COMMENT 'What each customer has spent'
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

README = """\
# {name}

Tables kept fresh by freshline. `assets/orders.sql` names a folder of CSV files as a source; `assets/spend.sql` is a
table over it that may lag behind by five minutes.

    freshline plan                       what is declared, and what has changed
    freshline refresh                    read the files, compute the table
    freshline sql "SELECT * FROM spend ORDER BY customer"
    freshline up                         keep it fresh, with the Dagster UI

Put another CSV file with the same header into `landing/orders/` and refresh again.
"""

NEXT = ("freshline plan", "freshline refresh", 'freshline sql "SELECT * FROM spend ORDER BY customer"', "freshline up")


@click.command(epilog="\b\nExample:\n  freshline init shop")
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@json_option
def command(directory: Path, as_json: bool) -> None:
    """Create a new project in DIR: a source of CSV files, a table over it, and the files for Dagster.

    Existing files are never overwritten. If a file with the name of a new one exists, nothing is written.
    """
    files = project_files(directory.absolute().name)
    clashes = [name for name in files if (directory / name).exists()]
    if clashes:
        raise SettingsError(
            f"there is {', '.join(clashes)} already; nothing was written. Name a new folder, or move what is there.",
            where=str(directory),
        )
    for name, text in files.items():
        file = directory / name
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("x", encoding="utf-8") as stream:
            stream.write(text)
    if as_json:
        click.echo(json.dumps({"project": str(directory.absolute()), "files": list(files), "next": list(NEXT)}))
        return
    click.echo(f"Made the project {directory}. Next:")
    if directory.absolute() != Path.cwd():
        click.echo(f"  cd {directory}")
    for line in NEXT:
        click.echo(f"  {line}")


def project_files(name: str) -> dict[str, str]:
    """The files of a new project by their paths in it."""
    name = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-").lower() or "tables"
    return {
        "pyproject.toml": PYPROJECT.format(name=name),
        "workspace.yaml": WORKSPACE,
        ".gitignore": GITIGNORE,
        "README.md": README.format(name=name),
        "assets/definitions.py": DEFINITIONS,
        "assets/defs/__init__.py": COMPONENTS,
        "assets/orders.sql": ORDERS,
        "assets/spend.sql": SPEND,
        "landing/orders/2026-11-01.csv": FIRST_FILE,
    }
