"""A real HDFS on loopback for a run of tests, and the library by which `pyarrow.fs.HadoopFileSystem` reaches it.

One name node and one data node in a process of Java: Hadoop's own MiniDFSCluster, from hadoop-client-minicluster 3.5.0
of Maven (Apache-2.0, 56 MB), the Hadoop of pyspark's jars, and junit-jupiter-api and commons-logging, which it loads.

pyarrow's client needs `libhdfs.so`, which is a part of a Hadoop distribution: Debian, PyPI and Maven do not have it.
The crate hdfs-sys has its C sources of Hadoop 3.3, and with a C compiler and the headers of a JDK it is built here in a
second. WebHDFS (`ask`) needs neither. Another client is hdfs-native of PyPI (Apache-2.0, 6 MB, without Java), which is
used through fsspec; it was not needed here.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path

from freshline.cli.supervisor import free_port
from tests.servers.missing import report_missing, require_jars
from tests.servers.processes import ServerProcess

LOCK = Path(__file__).with_name("hdfs_jars_lock.json")
_CRATE = Path(__file__).with_name("libhdfs")
_START_SECONDS = 180.0
_SOURCES = ("exception.c", "jni_helper.c", "hdfs.c", "jclasses.c")
_BUILT_WITH = "apt-get install cargo gcc libc6-dev default-jdk-headless"


@dataclass
class HdfsServer:
    """A file system at hdfs://127.0.0.1:`port`. It keeps its files when it is killed and started again."""

    process: ServerProcess
    java: Path
    client_jars: list[Path]
    port: int
    web_port: int

    @property
    def url(self) -> str:
        return f"hdfs://127.0.0.1:{self.port}"

    @property
    def _details(self) -> Path:
        return self.process.folder / "details.json"

    def start(self) -> None:
        self._details.unlink(missing_ok=True)
        is_new = not (self.process.folder / "data").exists()
        self.process.command = [each for each in self.process.command if each != "-format"]
        if is_new:
            self.process.command.append("-format")
        self.process.start(self._answers, _START_SECONDS)

    def _answers(self) -> bool:
        # It is written when the name node has left its safe mode and knows the data node.
        try:
            return self._details.stat().st_size > 0 and self.ask("GET", "/", "LISTSTATUS")[0] == 200
        except OSError:
            return False

    def ask(self, method: str, path: str, operation: str, body: bytes | None = None, **more: str) -> tuple[int, bytes]:
        """The status and the body of an answer of WebHDFS, which sends the bytes of files by its data node."""
        parameters = "".join(f"&{name}={value}" for name, value in more.items())
        address = f"http://127.0.0.1:{self.web_port}/webhdfs/v1{path}?op={operation}&user.name=freshline{parameters}"
        try:
            if method == "PUT" and body is not None:
                # The name node says where to send the bytes, and gets none itself.
                with urllib.request.urlopen(urllib.request.Request(f"{address}&noredirect=true", method="PUT")) as said:
                    address = json.loads(said.read())["Location"]
            request = urllib.request.Request(address, body, {"Content-Type": "application/octet-stream"}, method=method)
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    @cached_property
    def client_environment(self) -> dict[str, str]:
        """The variables of a process that opens `pyarrow.fs.HadoopFileSystem`; skips where libhdfs cannot be built.

        pyarrow starts a JVM within that process, which stays until it ends: let it be another one than that of pytest.
        """
        home = self.java.resolve().parent.parent
        return {
            "JAVA_HOME": str(home),
            "ARROW_LIBHDFS_DIR": str(_build_libhdfs(self.process.folder, home)),
            "CLASSPATH": os.pathsep.join(map(str, self.client_jars)),
        }


def _build_libhdfs(folder: Path, java_home: Path) -> Path:
    cargo, compiler = shutil.which("cargo"), shutil.which("cc")
    headers = java_home / "include"
    if cargo is None or compiler is None or not (headers / "jni.h").is_file():
        report_missing("hdfs", f"libhdfs cannot be built: {_BUILT_WITH}")
    fetched = [cargo, "metadata", "--locked", "--format-version", "1", "--manifest-path", str(_CRATE / "Cargo.toml")]
    found = subprocess.run(fetched, capture_output=True, text=True, check=False)
    if found.returncode != 0:
        report_missing("hdfs", f"the crate hdfs-sys cannot be fetched: {found.stderr[-500:]}")
    crate = next(each for each in json.loads(found.stdout)["packages"] if each["name"] == "hdfs-sys")
    libhdfs = Path(crate["manifest_path"]).parent / "libhdfs"
    sources = libhdfs / "hdfs_3_3"
    machine = next(path for path in headers.iterdir() if (path / "jni_md.h").is_file())
    included = [libhdfs, sources, sources / "include", sources / "include" / "hdfs", sources / "os"]
    included += [sources / "os" / "posix", headers, machine]
    of_java = java_home / "lib" / "server"
    command = [compiler, "-shared", "-fPIC", "-O1", "-w", "-fcommon", "-o", str(folder / "libhdfs.so")]
    command += [f"-I{path}" for path in included] + [str(sources / name) for name in _SOURCES]
    command += [str(path) for path in sorted((sources / "os" / "posix").glob("*.c"))]
    command += [f"-L{of_java}", "-ljvm", f"-Wl,-rpath,{of_java}", "-lpthread"]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return folder


def hadoop_jars() -> list[Path]:
    """Hadoop's client as pyspark has it, and what it and libhdfs load."""
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    folder = Path(spec.origin).parent / "jars"
    names = ("hadoop-client-api-*", "hadoop-client-runtime-*", "slf4j-api-*", "log4j-*", "commons-lang3-*")
    return [jar for name in names for jar in sorted(folder.glob(f"{name}.jar"))]


@contextmanager
def running_hdfs() -> Iterator[HdfsServer]:
    """Start an empty file system, and end it and remove its folder afterwards. Skips where its jars are missing."""
    folder = Path(tempfile.mkdtemp(prefix="freshline-hdfs-"))
    try:
        java, jars = require_jars("hdfs", LOCK, folder)
        port, web_port = free_port(), free_port()
        hadoop = hadoop_jars()
        command = [str(java), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx384m"]
        command += [f"-Dtest.build.data={folder / 'data'}", "-Djava.net.preferIPv4Stack=true"]
        command += ["-cp", os.pathsep.join(map(str, [*jars, *hadoop])), "org.apache.hadoop.test.MiniDFSClusterManager"]
        command += ["-datanodes", "1", "-nnport", str(port), "-httpport", str(web_port)]
        command += ["-writeDetails", str(folder / "details.json"), "-D", "dfs.replication=1"]
        # Who writes is not what is tested, and clients have the name of whoever runs the tests.
        command += ["-D", "dfs.permissions.enabled=false"]
        logging = [jar for jar in jars if jar.name.startswith("commons-logging")]
        server = HdfsServer(ServerProcess("HDFS", command, folder), java, [*hadoop, *logging], port, web_port)
        server.start()
        try:
            yield server
        finally:
            server.process.kill()
    finally:
        shutil.rmtree(folder)
