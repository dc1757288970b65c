"""A real HDFS takes files by WebHDFS and by pyarrow's own client, and keeps them when it is killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
from pathlib import Path

import pytest

from freshline.engine.jars import parse_lock
from tests.servers.hdfs import LOCK, HdfsServer, hadoop_jars

pytestmark = pytest.mark.slow

CLIENT = """
import json, sys
import pyarrow as pa, pyarrow.fs as fs, pyarrow.parquet as pq
system, _ = fs.FileSystem.from_uri(sys.argv[1] + "/")
system.create_dir("/table/v=1")
pq.write_table(pa.table({"id": [1, 2]}), "/table/v=1/part-0.parquet", filesystem=system)
with system.open_output_stream("/table/CURRENT.new") as out:
    out.write(b"v=1")
system.move("/table/CURRENT.new", "/table/CURRENT")
found = [each.path for each in system.get_file_info(fs.FileSelector("/table", recursive=True)) if each.is_file]
print(json.dumps([sorted(found), pq.read_table("/table/v=1", filesystem=system)["id"].to_pylist()]))
"""


def test_a_file_is_written_read_and_there_after_a_power_cut(hdfs: HdfsServer):
    assert hdfs.ask("PUT", "/folder/file", "CREATE", b"some bytes")[0] == 201
    assert hdfs.ask("GET", "/folder/file", "OPEN") == (200, b"some bytes")

    hdfs.process.kill()
    with pytest.raises(urllib.error.URLError, match="refused"):
        hdfs.ask("GET", "/folder/file", "OPEN")
    hdfs.start()

    assert hdfs.ask("GET", "/folder/file", "OPEN") == (200, b"some bytes")
    assert hdfs.ask("GET", "/folder/other", "OPEN")[0] == 404


def test_pyarrow_writes_moves_and_reads_files(hdfs: HdfsServer):
    done = subprocess.run(
        [sys.executable, "-c", CLIENT, hdfs.url],
        env={**os.environ, **hdfs.client_environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )

    assert done.returncode == 0, done.stderr
    files, rows = json.loads(done.stdout)
    assert [Path(file).name for file in files] == ["CURRENT", "part-0.parquet"]
    assert rows == [1, 2]
    assert hdfs.ask("GET", "/table/CURRENT", "OPEN") == (200, b"v=1")


def test_the_cluster_is_of_the_version_of_the_client_that_pyspark_has():
    of_pyspark = next(jar for jar in hadoop_jars() if jar.name.startswith("hadoop-client-api-"))
    (cluster,) = [
        jar for jar in parse_lock(LOCK.read_text(encoding="utf-8")) if jar.coordinate.startswith("org.apache.hadoop:")
    ]
    assert of_pyspark.stem.rpartition("-")[2] == cluster.coordinate.rpartition(":")[2]
