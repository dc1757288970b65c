"""The one Spark session of a process: how it is configured, started, recognised and ended.

A classic session in this process's own JVM, with Delta from the jar lock, bound to loopback, quiet on stderr. With a
token it serves Spark Connect clients from the same JVM. Everything that it writes beside tables is in the state
folder; only the class-data archive, which makes the next start faster, is in the user's cache.

Callers should know about threads: PySpark's pinned mode is on, so each Python thread has its own JVM thread. The
scheduler pool and the job group belong to the thread that sets them (`use_pool`, `setJobGroup`), not to the session,
and a new Python thread starts without them. Two threads may use one session at the same time.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import shlex
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from subprocess import STDOUT, TimeoutExpired
from typing import Any, Literal
from xml.sax.saxutils import quoteattr

import pyspark
from py4j.protocol import Py4JError
from pyspark.conf import SparkConf
from pyspark.core.context import SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from freshline.declare.project_settings import find_project, read_settings
from freshline.engine.class_archive import ClassArchive
from freshline.engine.jars import Progress, provide_jars
from freshline.engine.java import find_java, launcher_home
from freshline.engine.process import ProcessId
from freshline.engine.py4j_requests import keep_names, release_together
from freshline.engine.session_folders import SessionFolders, write_private
from freshline.engine.spark_confs import (
    hide_values,
    is_local,
    properties,
    referenced_values,
    resolve_confs,
    session_confs,
)
from freshline.errors import EngineError, FreshlineError, StorageError
from freshline.values.settings import Settings

LOG = logging.getLogger(__name__)

Pool = Literal["live", "manual", "backfill", "maintenance"]

# Measured on two cores: a live query took 9.4 s beside a backfill under FIFO, 0.8 to 1.3 s under FAIR. The weights say
# who waits for whom: a person and a continuous table before a backfill, upkeep last.
POOL_WEIGHTS: Mapping[Pool, int] = {"live": 8, "manual": 8, "backfill": 2, "maintenance": 1}

# Whether Spark's errors name the line of Python that a call came from.
CALLS_ARE_TRACED = "spark.python.sql.dataFrameDebugging.enabled"

# A refresh runs most of Spark's code a few thousand times, and the JVM's second compiler took a third of the CPU of
# small refreshes to compile what was then hardly called. It comes at twenty times the calls of the JVM's defaults, and
# full refreshes of TPC-H at scale 1 are no slower.
_LATER = 20
_COMPILED_LATER = (
    f"-XX:Tier4InvocationThreshold={5_000 * _LATER}",
    f"-XX:Tier4MinInvocationThreshold={600 * _LATER}",
    f"-XX:Tier4CompileThreshold={15_000 * _LATER}",
    f"-XX:Tier4BackEdgeThreshold={40_000 * _LATER}",
    "-XX:ReservedCodeCacheSize=480m",
)
# Variables in which a JVM, or Spark's launcher of one, finds options too.
_OPTIONS_OF_JAVA = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")
_COLLECTOR = re.compile(r"-XX:\+Use\w*GC\b")

# The queries of the first refreshes of a project beside writing: records of JSON, the first row of a key, joins.
_FIRST_QUERIES = (
    """
    SELECT a.*, b.id IS NULL AS alone
    FROM (SELECT *, row_number() OVER (PARTITION BY text ORDER BY id DESC) AS place, xxhash64(text) FROM first) AS a
    LEFT JOIN (SELECT DISTINCT id FROM first WHERE id > 5) AS b ON a.id = b.id
    """,
    """
    SELECT from_json(line, 'id BIGINT, text STRING, at TIMESTAMP, amount DECIMAL(10, 2)'), is_valid_utf8(line),
           regexp_extract(line, '[0-9]+', 0)
    FROM (SELECT to_json(struct(id, text, timestamp_seconds(id) AS at, id / 3 AS amount)) AS line FROM first)
    """,
    "SELECT * FROM first AS a WHERE NOT EXISTS (SELECT 1 FROM first AS b WHERE b.id = a.id + 1)",
)

_STOP_SECONDS = 30.0
_ARCHIVE_SECONDS = 60.0


def build_session(
    settings: Settings,
    *,
    app_name: str = "freshline",
    connect_token: str | None = None,
    connect_port: int | None = None,
    quick_start: bool = False,
    record_classes: bool = False,
    progress: Progress | None = None,
) -> SparkSession:
    """Start a JVM and a session in it.

    With `connect_token`, clients that know it can attach to `sc://localhost:PORT`; the port is `connect_port`, or the
    one of the settings, or any free one for 0, and `connect_port(session)` returns it.
    `quick_start` is for tests and short commands: compiled code stays at the first tier and memory is collected by one
    thread, which saves seconds at the start and costs speed in a session that works for minutes.
    `record_classes` lets the session write the class-data archive when it is stopped, if there is none yet. It costs
    this session about five seconds at its start and ten at its end, and saves each later one about five.
    `progress` is called for jars that are fetched.

    Raises JarError, JavaError, SettingsError, StorageError or EngineError; no process is left over then.
    """
    if SparkContext._active_spark_context is not None:
        raise EngineError("this process has a Spark session already. End it with stop_session first.")
    java = find_java(settings)
    given = resolve_confs(settings, os.environ)
    jars = provide_jars(settings, progress=progress)
    folders = SessionFolders(settings.state)
    port = None
    if connect_token is not None:
        port = settings.connect_port if connect_port is None else connect_port
        _check_port_is_free(port)
    try:
        folders.make()
        _write(folders.pools, pools_xml(POOL_WEIGHTS))
        _write(folders.log4j, _LOG4J.replace("{file}", str(folders.spark_log).replace("\\", "\\\\")))
        home = launcher_home(java, settings.state)
    except OSError as error:
        raise StorageError(
            f"the state folder cannot be written: {error.strerror or error}. Free some space or make it writable.",
            where=str(settings.state),
        ) from error
    archive = ClassArchive.find(java, record=record_classes)
    confs = session_confs(
        replace(settings, spark_confs=given), app_name=app_name, jars=jars, connect_port=port, folders=folders
    )
    java_options = given.get("spark.driver.extraJavaOptions", "")
    told = " ".join([java_options, *(os.environ.get(name, "") for name in _OPTIONS_OF_JAVA)])
    confs["spark.driver.extraJavaOptions"] = " ".join(
        [*_java_options(folders, archive, quick_start, told), java_options]
    ).strip()
    environment = _environment(settings, home, connect_token, folders.confs)
    return _start(settings, confs, folders, archive, environment, referenced_values(settings, given))


def connect_port(session: SparkSession) -> int:
    """The port on which Connect clients reach this session's JVM. Raises EngineError if it serves none."""
    if session.conf.get("spark.connect.grpc.binding.port", None) is None:
        raise EngineError("this session does not serve Spark Connect: it was started without a token.")
    services = session._jvm.org.apache.spark.sql.connect.service  # type: ignore[union-attr]
    # The object of Scala, by the name it has in the JVM: the class beside it takes the plain name.
    service = getattr(getattr(services, "SparkConnectService$"), "MODULE$")
    return int(service.localPort())


def connect_address(session: SparkSession) -> str:
    """The address that a client passes to `SparkSession.builder.remote`, without the token.

    The host is the literal `localhost`: for any other, the client insists on TLS as soon as it has a token, and hangs.
    """
    return f"sc://localhost:{connect_port(session)}"


def jvm_process(session: SparkSession) -> ProcessId:
    """The JVM behind a classic session, as a state file records it. Raises EngineError if it has died."""
    pid = int(session._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]
    process = ProcessId.of(pid)
    if process is None:
        raise EngineError(f"the JVM {pid} of this session has ended. Start the engine again.")
    return process


def heap_of(session: SparkSession) -> tuple[int, int]:
    """The used heap of the JVM behind a classic session and the most that it may use, in bytes. Runs no job.

    Raises Py4JError or OSError where the JVM does not answer.
    """
    usage = session._jvm.java.lang.management.ManagementFactory.getMemoryMXBean().getHeapMemoryUsage()  # type: ignore[union-attr]
    return int(usage.getUsed()), int(usage.getMax())


def use_pool(session: SparkSession, pool: Pool | None) -> None:
    """Let the jobs of the calling thread run in this pool; None is the default pool."""
    session.sparkContext.setLocalProperty("spark.scheduler.pool", pool)  # type: ignore[arg-type]


def stop_session(session: SparkSession) -> None:
    """End the session and its JVM, and wait until the process is gone. Queries that run are given up."""
    gateway = SparkContext._gateway
    process = getattr(gateway, "proc", None)
    archive: ClassArchive | None = getattr(gateway, "freshline_archive", None)
    folders: SessionFolders | None = getattr(gateway, "freshline_folders", None)
    try:
        session.stop()
    finally:
        _trace_calls(None)
        _end_jvm(gateway, process, archive)
        if folders is not None:
            folders.remove_scratch()


def _start(
    settings: Settings,
    confs: Mapping[str, str],
    folders: SessionFolders,
    archive: ClassArchive,
    environment: Mapping[str, str | None],
    secrets: Sequence[str],
) -> SparkSession:
    gateway = None
    conf = SparkConf(loadDefaults=False)
    for name, value in confs.items():
        conf.set(name, value)
    with _environ(environment), folders.jvm_log.open("ab") as output:
        begin = output.tell()
        try:
            write_private(folders.confs, properties(confs))
            # Started here and not by the session's builder, to keep the JVM's own words away from our stderr, and
            # without the confs, which PySpark would put into the command line.
            gateway = launch_gateway(None, {"stdout": output, "stderr": STDOUT})  # type: ignore[no-untyped-call]
            # Kept where PySpark keeps the process: there is one of each, and stop_session needs them together.
            gateway.freshline_archive = archive
            gateway.freshline_folders = folders
            context = SparkContext(conf=conf, gateway=gateway)
            keep_names(context._jvm)
            release_together(gateway)
            # Takes the context that is there. Under SPARK_REMOTE it would make a client instead: see _environment.
            session = SparkSession.builder.getOrCreate()
            _trace_calls(confs.get(CALLS_ARE_TRACED) == "true")
            return session
        except (PySparkException, Py4JError, OSError, ValueError) as error:
            # An error of py4j asks the JVM for its text, so it is read while there is one.
            said = str(error)
            if gateway is not None:
                _end_jvm(gateway, gateway.proc, None)
            archive.drop()
            folders.remove_scratch()
            with folders.jvm_log.open("rb") as log:
                log.seek(begin)
                printed = log.read(200_000).decode("utf-8", "replace")
            # Spark's error about a value that it refuses contains the value.
            reason = _why_not(hide_values(f"{printed}\n{said}", secrets), folders.jvm_log, settings)
            _hide_in_logs(folders, secrets)
            raise EngineError(reason) from (None if secrets else error)
        finally:
            # Read by now. It may have secrets.
            folders.confs.unlink(missing_ok=True)


def _trace_calls(wanted: bool | None) -> None:
    """Say whether PySpark sends the JVM the line of Python that each call comes from, which Spark's errors repeat.

    The lines are freshline's own, and to find them took a third of the Python time of a small refresh: each call
    searched for IPython and asked the JVM three times. The default of the conf stays: Connect clients read it too, and
    the functions of tables in Python are lines of the user.
    """
    pyspark.errors.utils._enable_debugging_cache = wanted  # type: ignore[assignment]


def _end_jvm(gateway: Any, process: Any, archive: ClassArchive | None) -> None:
    if gateway is not None:
        gateway.shutdown()
    # PySpark keeps the gateway for a next context in the same process. Its JVM ends here, so it must be forgotten.
    SparkContext._gateway = None
    SparkContext._jvm = None
    if process is None:
        return
    # The JVM ends by itself at the end of its input, in its own order and with its shutdown hooks.
    process.stdin.close()
    try:
        code = process.wait(_STOP_SECONDS if archive is None or not archive.is_recorded else _ARCHIVE_SECONDS)
    except TimeoutExpired:
        LOG.warning("the JVM %d did not end in time and is killed", process.pid)
        process.kill()
        process.wait()
        return
    if archive is not None and code == 0:
        archive.keep()


def _hide_in_logs(folders: SessionFolders, secrets: Sequence[str]) -> None:
    """Take values out of the logs of a JVM that has ended, rotated ones too."""
    if not secrets:
        return
    for log in (folders.jvm_log, *folders.logs.glob(f"{folders.spark_log.name}*")):
        written = log.read_text(encoding="utf-8", errors="surrogateescape")
        hidden = hide_values(written, secrets)
        if hidden != written:
            with log.open("r+b") as file:
                file.write(hidden.encode("utf-8", "surrogateescape"))
                file.truncate()


def _why_not(text: str, log: Path, settings: Settings) -> str:
    if "BindException" in text or "Address already in use" in text:
        return (
            "Spark did not start: a port that it should listen on is in use. "
            "Set connect-port to 0 or to a free port, or end the process that holds it."
        )
    if "Could not reserve enough space" in text or "Initial heap size" in text or "Invalid maximum heap" in text:
        return (
            f"Spark did not start: the machine does not give its JVM {settings.driver_memory} of memory. "
            "Lower the setting driver-memory."
        )
    if "Could not parse Master URL" in text or "Master must either be" in text:
        return (
            f"Spark does not understand spark-master = {settings.spark_master!r}. Write local[*] or spark://HOST:PORT."
        )
    lines = [line.strip() for line in text.split("\n")]
    telling = [line for line in lines if "Exception" in line or line.startswith(("Error", "Caused by"))]
    reason = (telling or [line for line in lines if line] or ["it said nothing"])[-1].lstrip(": ")
    return f"Spark did not start: {reason[:500]}. Its output is in {log}."


def _check_port_is_free(port: int) -> None:
    if port == 0:
        return
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # The server does the same: a port in TIME_WAIT is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise EngineError(
                f"port {port} for Spark Connect cannot be used: {error.strerror or error}. "
                "Set connect-port to 0 or to a free port, or end the process that holds it."
            ) from error


def _environment(settings: Settings, java_home: Path, connect_token: str | None, confs: Path) -> dict[str, str | None]:
    environment: dict[str, str | None] = {
        "JAVA_HOME": str(java_home),
        # Another Spark of this machine must not be started in place of the pinned one.
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        # Each Python thread gets its own JVM thread; pools and job groups depend on it.
        "PYSPARK_PIN_THREAD": "true",
        # The token goes by environment: the command line is readable by everybody on the machine.
        "SPARK_CONNECT_AUTHENTICATE_TOKEN": connect_token,
        # These would turn the session into a client of something else, or add options that we do not know of.
        "SPARK_REMOTE": None,
        "SPARK_LOCAL_REMOTE": None,
        "SPARK_API_MODE": None,
        "SPARK_CONNECT_MODE_ENABLED": None,
        "SPARK_TESTING": None,
        # The confs go by a file for the same reason; spark-defaults.conf still counts for what they do not say.
        "PYSPARK_SUBMIT_ARGS": f"--load-spark-defaults --properties-file {shlex.quote(str(confs))} pyspark-shell",
        "PYSPARK_GATEWAY_PORT": None,
    }
    if is_local(settings.spark_master):
        environment["SPARK_LOCAL_IP"] = "127.0.0.1"
        environment["PYSPARK_PYTHON"] = os.environ.get("PYSPARK_PYTHON", sys.executable)
    return environment


@contextmanager
def _environ(changes: Mapping[str, str | None]) -> Iterator[None]:
    # PySpark hands its own environment to the JVM and offers no other way.
    before = {name: os.environ.get(name) for name in changes}
    _set_environ(changes)
    try:
        yield
    finally:
        _set_environ(before)


def _set_environ(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _java_options(folders: SessionFolders, archive: ClassArchive, quick_start: bool, told: str) -> list[str]:
    """The options of the driver's JVM, beside `told`, the ones of the project and the environment."""
    options = [
        f"-Dlog4j2.configurationFile={folders.log4j.as_uri()}",
        # Files that Spark and its native libraries leave in the temporary folder of a killed JVM are then removed.
        shlex.quote(f"-Djava.io.tmpdir={folders.scratch}"),
        *archive.options(),
        # Spark's classes take more than the first bound, and each time it is reached the whole heap is collected.
        "-XX:MetaspaceSize=256m",
    ]
    # The first tier alone comes with a code cache of 48 MB. Spark fills it within minutes; from then on the JVM throws
    # code away and compiles it again, which was a third of what a long run of small refreshes cost.
    quick = ["-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m"]
    options += quick if quick_start else _COMPILED_LATER
    if _COLLECTOR.search(told) is None:
        # A JVM does not start with the options of two collectors.
        options.append("-XX:+UseSerialGC" if quick_start else "-XX:+UseParallelGC")
    return options


def record_class_archive(settings: Settings) -> Path | None:
    """Start a session that does what every engine does first, and keep its classes for the next starts.

    The archive's path; None where the Java in use cannot make one. An archive that is there is left as it is.
    """
    archive = ClassArchive.find(find_java(settings), record=True)
    if archive.is_recorded:
        session = build_session(
            settings,
            connect_token=secrets.token_hex(16),
            connect_port=0,
            quick_start=True,
            record_classes=True,
        )
        try:
            table = f"delta.`{settings.state / 'first'}`"
            session.range(10).selectExpr("id", "cast(id as string) as text").createOrReplaceTempView("first")
            session.sql(f"CREATE TABLE {table} USING delta AS SELECT * FROM first")
            session.sql(
                f"MERGE INTO {table} t USING (SELECT id + 5 AS id, text FROM first) s ON t.id = s.id "
                "WHEN MATCHED THEN UPDATE SET t.text = s.text WHEN NOT MATCHED THEN INSERT *"
            )
            session.sql(f"SELECT text, count(*) FROM {table} GROUP BY text ORDER BY text").collect()
            for query in _FIRST_QUERIES:
                session.sql(query).toArrow()
        finally:
            stop_session(session)
    return archive.file if archive.file.exists() else None


def pools_xml(weights: Mapping[Pool, int]) -> str:
    """The scheduler pools in the form that `spark.scheduler.allocation.file` takes."""
    pools = "\n".join(
        f"  <pool name={quoteattr(name)}><schedulingMode>FAIR</schedulingMode>"
        f"<weight>{weight}</weight><minShare>0</minShare></pool>"
        for name, weight in weights.items()
    )
    return f'<?xml version="1.0"?>\n<allocations>\n{pools}\n</allocations>\n'


def _write(file: Path, text: str) -> None:
    # Renamed into place: another session of the project may be reading it.
    new = file.with_name(f"{file.name}.{os.getpid()}")
    new.write_text(text, encoding="utf-8")
    new.replace(file)


_LOG4J = """\
rootLogger.level = warn
logger.native.name = org.apache.hadoop.util.NativeCodeLoader
logger.native.level = error
rootLogger.appenderRef.file.ref = file
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {file}
appender.file.filePattern = {file}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{yyyy-MM-dd HH:mm:ss.SSS} %p %c{1}: %m%n%ex
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 10MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 3
"""


def main() -> int:
    """Make the first start of the project of this folder as quick as later ones, for the Makefile and for images."""
    try:
        settings = read_settings(find_project(), os.environ)
        with tempfile.TemporaryDirectory(prefix="freshline-") as folder:
            # Not in the project's own state folder, where an engine may be at work.
            archive = record_class_archive(replace(settings, state=Path(folder)))
    except FreshlineError as error:
        print(f"freshline: {error}", file=sys.stderr)
        return 1
    print(f"class-data archive: {archive or 'this Java makes none, and starts without'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
