"""A project in which every secret is a canary, really running, with everything that wants a secret failing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from freshline.declare.project_settings import read_settings
from freshline.engine.state_file import EngineState, read_state
from freshline.engine.up_record import UpRecord, record_file
from freshline.values.settings import Settings
from tests.report.alerts.servers import MailServer, WebServer, mail_server, make_certificate, web_server
from tests.security.canaries import Canaries
from tests.security.servers import PostgresListener, refusing_postgres

COMMAND_SECONDS = 240
ORDERS = """CREATE SOURCE orders (id STRING, customer STRING, amount DECIMAL(10,2), PRIMARY KEY (id))
WITH ('connector' = 'files', 'format' = 'json', 'path' = 'landing/orders', 'settle' = '0 seconds')"""
SPEND = """CREATE MATERIALIZED TABLE spend (PRIMARY KEY (customer)) FRESHNESS = INTERVAL '5' SECOND
AS SELECT customer, count(*) AS n, sum(amount) AS total FROM orders GROUP BY customer"""
TOPIC = """CREATE SOURCE {name} (id STRING)
WITH ('connector' = 'kafka', 'format' = 'json', 'topic' = 't', 'bootstrap.servers' = '127.0.0.1:9',
  'kafka.security.protocol' = 'SASL_PLAINTEXT', 'kafka.sasl.mechanism' = 'PLAIN',
  'kafka.sasl.jaas.config' = '${{file:secrets/{name}}}', 'kafka.ssl.truststore.password' = '${{env:CANARY_KAFKA}}')"""
POSTED = """CREATE SOURCE posted (id STRING)
WITH ('connector' = 'http', 'format' = 'json', 'path' = 'posts', 'token' = '${file:secrets/posts}')"""
READER = """CREATE MATERIALIZED TABLE of_{name} FRESHNESS = INTERVAL '5' SECOND AS SELECT id FROM {name}"""
# A table in Python, so that there is a worker.
PYTHON = '''"""A table in Python."""
import freshline


@freshline.table(freshness="5 seconds")
def by_hand(spend):
    return spend.select("customer", "n")
'''
SETTINGS = """[tool.freshline]
declarations = "assets"
default-freshness = "5 seconds"
driver-memory = "1g"
dagster-port = 0
dagster-token = "${file:secrets/ui}"
changes-token = "${file:secrets/follow}"
parallel-refreshes = 2
[tool.freshline.spark-confs]
"spark.hadoop.fs.s3a.secret.key" = "${file:secrets/s3}"
"spark.freshline.canary" = "${env:CANARY_CONF}"
"spark.ssl.keyPassword" = "${file:secrets/key}"
[tool.freshline.environments.away]
control-store = "postgresql+psycopg://freshline:CONTROL@127.0.0.1:PORT/freshline?connect_timeout=5"
[tool.freshline.alerts.channels.hook]
type = "webhook"
url = "${file:secrets/hook}"
secret = "${env:CANARY_SIGNATURE}"
private-addresses = true
[tool.freshline.alerts.channels.slack]
type = "slack"
url = "${file:secrets/slack}"
[tool.freshline.alerts.channels.mail]
type = "email"
host = "localhost"
port = MAIL
username = "freshline"
password = "${file:secrets/mail}"
from = "freshline@example.com"
to = ["data@example.com"]
"""
# The variables of the user's own environment that have a secret. All processes of freshline inherit them.
VARIABLES = {"CANARY_KAFKA": "kafka", "CANARY_CONF": "conf", "CANARY_SIGNATURE": "signature"}


@dataclass
class Living:
    """The running project. `texts` are what commands and pages showed, by what was asked."""

    root: Path
    canaries: Canaries
    environ: dict[str, str]
    temporary: Path
    web: WebServer
    mail: MailServer
    postgres: PostgresListener
    texts: dict[str, str] = field(default_factory=dict)

    @property
    def settings(self) -> Settings:
        return read_settings(self.root, {})

    @property
    def engine(self) -> EngineState:
        found = read_state(self.settings.state)
        assert found is not None, "there is no engine"
        return found

    @property
    def url(self) -> str:
        found = UpRecord.read(record_file(self.settings))
        assert found is not None
        assert found.url is not None
        return found.url

    def run(self, *arguments: str, environment: str = "local", ok: bool | None = None) -> str:
        """Run a command of freshline; all that it shows is kept, and returned."""
        done = subprocess.run(
            [sys.executable, "-m", "freshline.cli.main", *arguments],
            cwd=self.root,
            env={**self.environ, "FRESHLINE_ENV": environment},
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )
        shown = done.stdout + done.stderr
        self.texts[f"{environment}: {' '.join(arguments)}"] = shown
        assert ok is None or (done.returncode == 0) == ok, shown
        return shown

    def processes(self) -> list[psutil.Process]:
        """All processes that belong to the project: they have its mark, its folder, or a parent that has."""
        found: dict[int, psutil.Process] = {}
        for process in psutil.process_iter():
            try:
                ours = process.environ().get("FRESHLINE_SECURITY_LANE") == str(self.root)
            except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
                continue
            if ours:
                found[process.pid] = process
        return list(found.values())

    def folders(self) -> Sequence[Path]:
        """Where files of the project may be, but for the folder of the secrets."""
        return [self.root, self.temporary]


def make_project(root: Path, canaries: Canaries, ports: dict[str, int]) -> None:
    """Write the declarations, settings and secrets."""
    secrets_folder = root / "secrets"
    for folder in (root / "assets", root / "landing" / "orders", root / "posts", secrets_folder):
        folder.mkdir(parents=True)
    plain = "org.apache.kafka.common.security.plain.PlainLoginModule"
    texts = {
        "topic": f'{plain} required username="u" password="{canaries.make("kafka login")}";',
        # Somebody wrote the password alone, or forgot its quotes, its end, or the word behind the class.
        "bare": canaries.make("kafka login written bare"),
        "endless": f"{plain} required username=u password={canaries.make('kafka login without an end')}",
        "flagless": f"{plain} {canaries.make('kafka login without a flag')} password=x;",
        "ui": canaries.make("ui"),
        "posts": canaries.make("posts"),
        "follow": canaries.make("follow"),
        "s3": canaries.make("s3"),
        "key": canaries.make("key"),
        "hook": f"http://localhost:{ports['web']}/{canaries.make('hook')}",
        "slack": f"https://localhost:{ports['web']}/services/{canaries.make('slack')}",
        "mail": canaries.make("mail"),
    }
    for name, text in texts.items():
        (secrets_folder / name).write_text(text + "\n")
    control = canaries.make("control store")
    settings = SETTINGS.replace("CONTROL", control).replace("PORT", str(ports["postgres"]))
    (root / "pyproject.toml").write_text(settings.replace("MAIL", str(ports["mail"])))
    declarations = {"orders.sql": ORDERS, "spend.sql": SPEND, "by_hand.py": PYTHON, "posted.sql": POSTED}
    for name in ("topic", "bare", "endless", "flagless"):
        declarations[f"{name}.sql"] = TOPIC.format(name=name)
        declarations[f"of_{name}.sql"] = READER.format(name=name)
    for file, text in declarations.items():
        (root / "assets" / file).write_text(text)
    (root / "assets" / "definitions.py").write_text(
        "from pathlib import Path\n\nfrom freshline.dagster import FreshlineProject, build_definitions\n\n"
        "defs = build_definitions(FreshlineProject(Path(__file__).resolve().parent.parent))\n"
    )
    (root / "workspace.yaml").write_text(
        "load_from:\n  - python_module:\n      module_name: assets.definitions\n      working_directory: .\n"
    )
    rows = [{"id": str(number), "customer": f"c{number % 3}", "amount": "1.50"} for number in range(20)]
    (root / "landing" / "orders" / "a.json").write_text("".join(f"{json.dumps(row)}\n" for row in rows) + "no json\n")


@contextmanager
def living_project(folder: Path) -> Iterator[Living]:
    """Start a project by `freshline up`, let everything fail that can, and end it."""
    root, temporary = folder / "project", folder / "tmp"
    temporary.mkdir(mode=0o777)
    canaries = Canaries()
    variables = {variable: canaries.make(name) for variable, name in VARIABLES.items()}
    with ExitStack() as stack:
        web = stack.enter_context(web_server(WebServer(status=500)))
        certificate = make_certificate(folder)
        mail = stack.enter_context(mail_server(MailServer(certificate=certificate, answer=451)))
        postgres = stack.enter_context(refusing_postgres())
        make_project(root, canaries, {"web": web.port, "mail": mail.port, "postgres": postgres.port})
        environ: dict[str, str] = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("FRESHLINE_", "PYTEST"))},
            **{name: value for name, value in os.environ.items() if name in KEPT},
            **variables,
            "FRESHLINE_SECURITY_LANE": str(root),
            "TMPDIR": str(temporary),
            "SSL_CERT_FILE": str(certificate[0]),
        }
        found = Living(root, canaries, environ, temporary, web, mail, postgres)
        # As most machines have it: what freshline makes must be private all the same.
        before = os.umask(0o022)
        stack.callback(os.umask, before)
        stack.callback(found.run, "down")
        found.run("up", "--detach", "--json", ok=True)
        canaries.add("engine", found.engine.token)
        yield found


KEPT = ("FRESHLINE_MAVEN_MIRROR", "FRESHLINE_JAR_DIRECTORY", "FRESHLINE_JAR_CACHE")


def ask(url: str, query: str, token: str) -> Any:
    """A query of GraphQL to the UI of a project."""
    import urllib.request

    request = urllib.request.Request(
        f"{url}/graphql",
        json.dumps({"query": query}).encode(),
        {"Content-Type": "application/json", "Authorization": f"Bearer {token}"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read())
