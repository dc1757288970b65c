"""The archive of classes belongs to the jars that are there, and a JVM uses the one that is there."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from freshline.engine.class_archive import ClassArchive
from freshline.engine.java import Java, find_java
from freshline.engine.spark import jvm_process

JAVA = Java(home=Path("/java"), version=17, version_text="17.0.1", found_by="a test", has_vector_module=True)


@pytest.fixture
def spark_home(tmp_path: Path) -> Path:
    for name in ("catalyst.jar", "core.jar"):
        jar = tmp_path / "pyspark" / "jars" / name
        jar.parent.mkdir(parents=True, exist_ok=True)
        jar.write_bytes(b"classes")
    return tmp_path / "pyspark"


def recorded(folder: Path, spark: Path, java: Java = JAVA) -> ClassArchive:
    """An archive that a session has recorded and kept."""
    found = ClassArchive.find(java, record=True, folder=folder, spark=spark)
    assert found.is_recorded
    found.part.write_bytes(b"archive")
    found.keep()
    return found


def test_spark_that_is_installed_again_in_its_place_has_another_archive(tmp_path, spark_home):
    before = recorded(tmp_path, spark_home)
    same = ClassArchive.find(JAVA, record=True, folder=tmp_path, spark=spark_home)
    assert (same.file, same.is_recorded) == (before.file, False)
    # The content is the same. The JVM checks the time, and would do without the archive and say nothing.
    jar = spark_home / "jars" / "core.jar"
    os.utime(jar, ns=(0, jar.stat().st_mtime_ns + 1_000_000_000))

    after = recorded(tmp_path, spark_home)

    assert after.file != before.file
    assert [file.name for file in tmp_path.glob("*.jsa")] == [after.file.name]


def test_archives_of_other_places_and_other_java_stay_and_what_a_dead_process_left_goes(tmp_path, spark_home):
    kept = [
        recorded(tmp_path, spark_home, replace(JAVA, version_text="17.0.2")).file,
        recorded(tmp_path, tmp_path / "elsewhere").file,
    ]
    first = recorded(tmp_path, spark_home)
    # One of an earlier freshline has no jars in its name.
    earlier = first.file.with_name(first.file.name.rsplit("-", 1)[0] + ".jsa")
    earlier.write_bytes(b"archive")
    (tmp_path / f".{first.file.name}.{2**22 + 1}").write_bytes(b"half")
    first.file.unlink()

    again = recorded(tmp_path, spark_home)

    assert sorted(tmp_path.glob("*")) == sorted([again.file, *kept, spark_home])


@pytest.mark.spark
def test_the_jvm_of_a_session_uses_the_archive_that_is_there(spark, settings):
    archive = ClassArchive.find(find_java(settings), record=False).file
    mapped = {one.path for one in psutil.Process(jvm_process(spark).pid).memory_maps()}

    assert (str(archive) in mapped) == archive.exists()
