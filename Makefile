# Everything here needs only Python 3.11 or newer and make; the rest is fetched, by lock, on first use.
#
#   make demo             the reference deployment, live, until Ctrl-C;  ARGS=--once: a fixed amount, then verify
#   make test             lint, format, types, and all tests but the long lane
#   make test-fast        the tests without Spark, under a minute;  make test-long: the ones that take minutes
#   make security         who may do, read and reach what; also INPUTS=10000000 for a night, PLANTED=1: does it find holes?
#   make bill             a bill of materials (CycloneDX) in build/bill.json, and an audit of what is installed
#   make example          a month of real flights, compared with DuckDB; also NAME=analytics, alerting, enrichment, etl
#   make chaos            attack a living project, and compare all tables with what was sent; SEED=n MINUTES=m;  PLANTED=1:
#                         the bugs that it must find
#   make load             more of everything than usual: tables, requests, files, one large file, one key; ARGS=NAME
#   make night            hours of all three: 10,000 random refreshes of new seeds, 10,000,000 inputs, 240 minutes of chaos
#   make bench            speed and memory, beside hand-written Spark
#   make docs             the documentation as a site, in build/docs
#
# Behind a mirror: FRESHLINE_MAVEN_MIRROR=https://maven.example.com/central   Without a network: FRESHLINE_JAR_DIRECTORY

# Images of containers often set this. Then every process compiles all that it imports anew: a collection of the tests takes
# 18 CPU-seconds instead of 7, and the start of Dagster 3 instead of 1.
unexport PYTHONDONTWRITEBYTECODE

# A pin, so that two clones of one commit are set up alike. An installed uv is taken as it is.
UV_VERSION = 0.13.8
ARGS =
# How much the security lane reads, and whether it looks for planted holes instead.
INPUTS = 30000
PLANTED =
SECURITY = tests/security
# What the lane runs: its folder, and the claims of its mark wherever they are. `make test` runs those elsewhere too.
CLAIMS = $(SECURITY) tests

BIN = .venv/bin
SETUP = .venv/.freshline-setup
TOOL = .uv-tool
# For a test whose process hears no signal (pyproject.toml has the other limit); in seconds, of a test outside the long lane.
LIMIT = -o faulthandler_timeout=1200
# The names of Python to look for, the best first. The upper bound is the one of pyproject.toml.
PYTHONS = python3.11 python3.12 python3.13 python3 python
IS_SERVED = import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))
IS_NEW_ENOUGH = import sys; sys.exit(sys.version_info[:2] < (3, 11))

.PHONY: setup demo test test-fast test-long security bill lint types example chaos load night bench docs
.DEFAULT_GOAL = setup

setup: $(SETUP)

# The stamp is newer than what it was made from, or the steps run again; each of them is quick when nothing changed.
$(SETUP): uv.lock pyproject.toml platform/freshline/engine/jars_lock.json Makefile
	@set -e; unset VIRTUAL_ENV PYTHONHOME PYTHONPATH; \
	python=; newer=; \
	for name in $(PYTHON) $(PYTHONS); do \
	    if "$$name" -c '$(IS_SERVED)' 2>/dev/null; then python=$$(command -v "$$name"); break; fi; \
	    if [ -z "$$newer" ] && "$$name" -c '$(IS_NEW_ENOUGH)' 2>/dev/null; then newer=$$(command -v "$$name"); fi; \
	done; \
	if [ -z "$$python$$newer" ]; then \
	    found=$$(python3 --version 2>/dev/null || python --version 2>&1 | grep ^Python || echo none); \
	    echo "freshline needs Python 3.11 or newer, and found: $$found." \
	        "Install one, or name one with: make PYTHON=/path/to/python3.11" >&2; exit 1; \
	fi; \
	if uv --version >/dev/null 2>&1; then uv=uv; else \
	    uv=$(TOOL)/bin/uv; \
	    if [ "$$($$uv --version 2>/dev/null | cut -d' ' -f2)" != "$(UV_VERSION)" ]; then \
	        echo "fetching uv $(UV_VERSION) into $(TOOL)"; \
	        "$${python:-$$newer}" -m venv --clear $(TOOL) || { \
	            echo "This Python cannot make environments (on Debian: apt-get install python3-venv)." >&2; exit 1; }; \
	        $(TOOL)/bin/python -m pip install --quiet --disable-pip-version-check "uv==$(UV_VERSION)"; \
	    fi; \
	fi; \
	if [ -n "$$python" ]; then UV_PYTHON_DOWNLOADS=never; export UV_PYTHON_DOWNLOADS; \
	else echo "$$newer is newer than what Spark is pinned for: uv fetches Python 3.13 beside it"; python=3.13; fi; \
	"$$uv" sync --frozen --quiet --python "$$python"; \
	UV_PROJECT_ENVIRONMENT=.venv-views "$$uv" sync --frozen --quiet --python "$$python" --only-group views; \
	$(BIN)/python -m freshline.engine.java >/dev/null 2>&1 || { \
	    echo "no Java 17 or newer here: taking the one of the extra 'java'"; \
	    "$$uv" sync --frozen --quiet --python "$$python" --extra java; }; \
	$(BIN)/python -m freshline.engine.java; \
	$(BIN)/python -m freshline.engine.jars; \
	$(BIN)/python -m freshline.engine.spark
	@touch $@

demo: $(SETUP)
	@$(BIN)/freshline demo $(ARGS)

lint: $(SETUP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(SETUP)
	$(BIN)/mypy

# A session with one JVM keeps less than one core busy, because most of its time is one thread that plans, or a process that
# is waited for. So there are three, each with the next file when it has done one, and what needs no Spark beside them.
# With ARGS: one session.
ifeq ($(strip $(ARGS)),)
test: lint $(SETUP)
	@fast=$$(mktemp); trap 'rm -f "$$fast"' EXIT; trap 'kill $$quick 2>/dev/null' INT TERM; \
	echo "three sessions with Spark, and beside them types and the tests that need none, whose lines follow"; \
	{ $(BIN)/mypy; typed=$$?; \
	$(BIN)/pytest -m "not long and not spark and not slow" $(LIMIT) --ignore=$(SECURITY) && [ $$typed -eq 0 ]; \
	} >"$$fast" 2>&1 & quick=$$!; \
	$(BIN)/pytest -n 3 --dist loadfile --no-loadscope-reorder -m "not long and (spark or slow)" $(LIMIT) \
	    --ignore=$(SECURITY); sessions=$$?; \
	wait $$quick; rest=$$?; cat "$$fast"; \
	[ $$sessions -eq 0 ] && [ $$rest -eq 0 ]
else
test: lint types
	$(BIN)/pytest -m "not long" $(ARGS)
endif

test-fast: $(SETUP)
	$(BIN)/pytest -n 2 --dist loadfile -m "not spark and not slow and not seconds and not long" $(ARGS)

test-long: $(SETUP)
	$(BIN)/pytest -m long $(ARGS)

# What is too much for every change: random cases that nobody had before, hours of chaos, millions of damaged inputs.
night: $(SETUP)
	FRESHLINE_GENERATED=5000 FRESHLINE_GENERATED_EVENT_TIME=4000 $(BIN)/pytest -m long -k many_random \
	    tests/scenarios/test_generated.py tests/scenarios/test_generated_graphs.py; generated=$$?; \
	$(MAKE) --no-print-directory security INPUTS=10000000; secure=$$?; \
	$(MAKE) --no-print-directory chaos MINUTES=$(or $(MINUTES),240) && [ $$generated -eq 0 ] && [ $$secure -eq 0 ]

# The folder comes first, so that its summary is printed, and then all claims of the mark, wherever they are.
security: $(SETUP)
ifeq ($(strip $(PLANTED)),)
	$(BIN)/python -m tests.security.bill build/bill.json
	FRESHLINE_INPUTS=$(INPUTS) $(BIN)/pytest -n 2 --dist loadfile -m "security and not long" $(CLAIMS) $(ARGS)
else
	$(BIN)/pytest -m long $(SECURITY)/test_plants.py $(ARGS)
endif

bill: $(SETUP)
	$(BIN)/python -m tests.security.bill build/bill.json $(ARGS)

example: $(SETUP)
	@$(BIN)/python platform/examples/$(or $(NAME),flights)/run.py $(ARGS)

chaos: $(SETUP)
ifneq ($(strip $(PLANTED)),)
	@$(BIN)/python -m tests.chaos.planted $(if $(MINUTES),--minutes $(MINUTES)) $(ARGS)
else
	@$(BIN)/python -m tests.chaos $(if $(SEED),--seed $(SEED)) $(if $(MINUTES),--minutes $(MINUTES)) \
	    $(if $(RESUME),--folder $(RESUME)) $(ARGS)
endif

load: $(SETUP)
	@$(BIN)/python -m tests.load $(ARGS)

bench: $(SETUP)
	@$(BIN)/python platform/benchmarks/run.py $(ARGS)

# The variable silences a notice of the theme about its successor, which --strict does not count anyway.
docs: $(SETUP)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict $(ARGS)
