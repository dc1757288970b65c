"""A test of a server that is not there is skipped with the name of what is missing, or fails where it is required."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.servers.hdfs import LOCK
from tests.servers.missing import require_jars


def test_a_missing_jar_skips_by_name_and_fails_where_the_server_is_required(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("FRESHLINE_JAR_DIRECTORY", str(tmp_path))
    monkeypatch.delenv("FRESHLINE_REQUIRE_HDFS", raising=False)
    with pytest.raises(pytest.skip.Exception, match=r"hdfs is missing .*commons-logging-1.3.2.jar is missing"):
        require_jars("hdfs", LOCK, tmp_path)

    monkeypatch.setenv("FRESHLINE_REQUIRE_HDFS", "1")
    with pytest.raises(pytest.fail.Exception, match=r"hdfs is required here and missing"):
        require_jars("hdfs", LOCK, tmp_path)
