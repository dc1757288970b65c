"""Spark Declarative Pipelines: a run of the pipeline for each step, on a server of Spark Connect that is kept.

Two streaming tables read only what has landed since, and four materialized views are computed again.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pyspark
from pyspark.pipelines.cli import run

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from serve import folders, serve  # noqa: E402 - by the path above


def main() -> None:
    landing, folder = folders()
    project = Path(shutil.copytree(HERE / "project", folder / "project"))
    specification = project / "spark-pipeline.yml"
    specification.write_text(specification.read_text().format(folder=folder, landing=landing))
    with (Path(os.environ["SPARK_CONF_DIR"]) / "spark-defaults.conf").open("a") as defaults:
        defaults.write((HERE / "spark-defaults.conf").read_text())
    servers: list[subprocess.Popen[bytes]] = []

    def step() -> None:
        if not servers:
            servers.append(_start_server())
        run(specification, full_refresh=[], full_refresh_all=False, refresh=[], dry=False)

    def close() -> None:
        for server in servers:
            server.terminate()
            server.wait()

    serve(step, close)


def _start_server() -> subprocess.Popen[bytes]:
    """A server of Spark Connect that accepts sessions; this process is made a client of it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = free.getsockname()
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    named = ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    server = subprocess.Popen([submit, *named, "--conf", f"spark.connect.grpc.binding.port={address[1]}"])
    while server.poll() is None:
        with socket.socket() as attempt:
            if attempt.connect_ex(address) == 0:
                os.environ["SPARK_REMOTE"] = f"sc://{address[0]}:{address[1]}"
                return server
        time.sleep(0.1)
    raise RuntimeError(f"the server ended with {server.returncode}")


if __name__ == "__main__":
    main()
