#!/usr/bin/env bash
# Makes tests/upgrade/warehouse.tar.xz: the reference deployment after `make demo ARGS=--once`, with a savepoint.
#
#   git worktree add /tmp/before ecd55fb && cd /tmp/before
#   bash PATH/TO/tests/upgrade/make_warehouse.sh && mv warehouse.tar.xz PATH/TO/tests/upgrade/
#
# Run it in a checkout of the commit that the next one must be able to follow, not in this one.
set -euo pipefail
make demo ARGS=--once
export FRESHLINE_ENV=demo
.venv/bin/freshline savepoint create before_the_upgrade
.venv/bin/freshline engine stop
# Files are known by their times to the nanosecond, which an archive does not keep.
.venv/bin/python - <<'PYTHON'
import json, pathlib
landing = pathlib.Path(".freshline/demo/landing")
times = {str(file): file.stat().st_mtime_ns for file in sorted(landing.rglob("*")) if file.is_file()}
pathlib.Path(".freshline/demo/times.json").write_text(json.dumps(times))
PYTHON
# The lock names an engine of the machine that made it.
rm .freshline/demo/warehouse/_freshline_engine.lock
tar --sort=name --owner=0 --group=0 -cJf warehouse.tar.xz \
    --exclude=definitions.py assets .freshline/demo/{warehouse,control.db,landing,times.json}
