"""Files as a sink in a real HDFS, by pyarrow's client, in a process of its own because it has a JVM."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers.hdfs import HdfsServer

STORY = """
import json, sys
from pathlib import Path
import pyarrow as pa
from pyarrow import fs
from freshline.errors import SinkFencedError
from freshline.sinks.files.folder import open_folder
from freshline.sinks.files.sink import FilesSink
from tests.sinks.delivering import Host, Sending, position, sink_spec

url = sys.argv[1] + "/a b/orders"
spec = sink_spec(FilesSink(path=url, keep=2, format=sys.argv[2]))
folder = open_folder(url, is_remote=True)
out = Sending(spec, Host(Path(".")))
def rows(*ids):
    return pa.table({"id": pa.array(ids, pa.int32()), "note": pa.array([f"n{n}" for n in ids], pa.string())})
def state():
    version = out.writer.position().table.version
    return version, json.loads(folder.read("CURRENT"))["folder"], out.read(rows().schema)["id"].to_pylist()
said = [out.writer.position()]
out.whole(rows(1, 2), 1)
said.append(state())
for point in ("sink-before-commit", "sink-committed"):
    with out.stopping_at(point):
        out.whole(rows(3), 2 if point == "sink-before-commit" else 3)
    said.append(state())
out.whole(rows(4), 4)
said.append(state())
class Sleeping(Host):
    def failpoint(self, name):
        if name == "sink-before-commit":
            for number in others:
                folder.system.create_dir(folder.at(f"v={number}"))
                note = {**json.loads(position(number + 1).to_json()), "files": []}
                folder.write(f"v={number}/_SUCCESS", json.dumps(note).encode())
for others in ([4], [6]):
    try:
        Sending(spec, Sleeping(Path("."))).whole(rows(66), 4 if others == [4] else 6)
        said.append("written")
    except SinkFencedError:
        said.append(state())
said.append(sorted(info.base_name for info in folder.system.get_file_info(
    fs.FileSelector(folder.path))))
print(json.dumps(said))
"""

REFUSED = """
from pathlib import Path
from freshline.errors import SinkRefusedError
from freshline.sinks.files.sink import FilesSink
from tests.sinks.delivering import Host, Sending, sink_spec
try:
    Sending(sink_spec(FilesSink(path="hdfs://127.0.0.1:1/x")), Host(Path("."))).writer.position()
except SinkRefusedError as error:
    print(error)
"""

AWAY = """
import sys
from pathlib import Path
from freshline.errors import SinkError
from freshline.sinks.files.sink import FilesSink
from tests.sinks.delivering import Host, Sending, sink_spec
try:
    Sending(sink_spec(FilesSink(path="hdfs://127.0.0.1:1/x")), Host(Path("."))).writer.position()
except SinkError as error:
    print(error.code, error)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_versions_in_hdfs_are_whole_and_an_engine_that_wakes_up_late_is_refused(hdfs: HdfsServer, kind):
    url = f"{hdfs.url}/{kind}"
    done = subprocess.run(
        [sys.executable, "-c", STORY, url, kind],
        env={**os.environ, **hdfs.client_environment, "PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads(done.stdout)
    assert said == [
        None,
        [1, "v=1", [1, 2]],
        [1, "v=1", [1, 2]],
        [3, "v=2", [3]],
        [4, "v=3", [4]],
        [5, "v=4", []],
        [7, "v=6", []],
        ["CURRENT", "v=2", "v=3", "v=4", "v=6"],
    ]


def test_hdfs_without_its_library_is_refused_with_a_remedy():
    """In a process that has none of its variables."""
    left_out = ("ARROW_LIBHDFS_DIR", "HADOOP_HOME", "CLASSPATH")
    environment = {name: value for name, value in os.environ.items() if name not in left_out}
    done = subprocess.run(
        [sys.executable, "-c", REFUSED],
        env={**environment, "PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert "ARROW_LIBHDFS_DIR" in done.stdout, done.stderr[-2000:]


@pytest.mark.slow
def test_a_name_node_that_is_away_is_no_folder_without_versions(hdfs: HdfsServer):
    done = subprocess.run(
        [sys.executable, "-c", AWAY],
        env={**os.environ, **hdfs.client_environment, "PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.stdout.startswith("SINK out: hdfs://127.0.0.1:1/x cannot be written: HDFS does not answer"), done.stderr
