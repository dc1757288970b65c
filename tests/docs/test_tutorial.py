"""The tutorial, typed: its commands in their order, in an empty folder, and what it says that is to be seen."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

TUTORIAL = Path(__file__).parents[2] / "platform" / "docs" / "tutorial.md"
SECTION = re.compile(r"^## (.+?)$(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CHECKS = """query ($key: AssetKeyInput!) { assetNodeOrError(assetKey: $key) { ... on AssetNode {
  assetChecksOrError { ... on AssetChecks { checks { name executionForLatestMaterialization {
    evaluation { success description } } } } } } } }"""
SEEN_SECONDS = 120.0


class Shell:
    """One shell session of a person, who stays where she went."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir()
        command = self.bin / "freshline"
        command.write_text(f'#!/bin/sh\nexec {sys.executable} -m freshline.cli.main "$@"\n')
        command.chmod(0o755)

    def type(self, block: str) -> str:
        environ = {**os.environ, "PATH": f"{self.bin}:{os.environ['PATH']}"}
        script = f"set -euo pipefail\n{block}\npwd > {self.bin / 'pwd'}"
        told = subprocess.run(
            ["bash", "-c", script], cwd=self.folder, env=environ, capture_output=True, text=True, timeout=600
        )
        assert told.returncode == 0, f"{block}\n{told.stdout[-3000:]}{told.stderr[-3000:]}"
        self.folder = Path((self.bin / "pwd").read_text().strip())
        return told.stdout


def sections() -> dict[str, list[str]]:
    return {title: BLOCK.findall(text) for title, text in SECTION.findall(TUTORIAL.read_text(encoding="utf-8"))}


def test_every_block_of_commands_is_typed_by_the_long_test() -> None:
    found = sections()

    assert list(found) == [
        "A project", "The first refresh", "Everything on", "A materialization", "An expectation", "An alert", "The end",
    ]  # fmt: skip
    assert all(found.values())
    assert "freshline" in "".join(block for blocks in found.values() for block in blocks)


def checks(url: str, table: str) -> dict[str, dict[str, Any]]:
    body = json.dumps({"query": CHECKS, "variables": {"key": {"path": [table]}}}).encode()
    request = urllib.request.Request(f"{url}/graphql", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        told = json.load(answer)["data"]["assetNodeOrError"]["assetChecksOrError"]["checks"]
    return {
        check["name"]: check["executionForLatestMaterialization"]["evaluation"]
        for check in told
        if check["executionForLatestMaterialization"] and check["executionForLatestMaterialization"]["evaluation"]
    }


@pytest.mark.spark
@pytest.mark.long
def test_the_tutorial_can_be_typed(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    said: dict[str, list[str]] = {}
    try:
        for title, blocks in sections().items():
            if title == "The end":
                break
            said[title] = [shell.type(block) for block in blocks]
            if title == "A project":
                # Other tests may have the port.
                with (shell.folder / "pyproject.toml").open("a") as file:
                    file.write("dagster-port = 0\n")
            if title == "An alert":
                # The last block has resumed it; what the UI showed before is in its history, the check passes again.
                assert "spend" in said[title][1]
                assert "suspended" in said[title][1].lower()
        assert "ada" in said["The first refresh"][0]
        assert "edsger" in said["A materialization"][0]
        assert "o-5" in said["An expectation"][0]
        assert "o-4" not in said["An expectation"][0]
        url = json.loads((shell.folder / ".freshline" / "local" / "up.json").read_text())["url"]
        deadline = time.monotonic() + SEEN_SECONDS
        while not checks(url, "spend").get("freshness", {}).get("success"):
            assert time.monotonic() < deadline, checks(url, "spend")
            time.sleep(1)
    finally:
        shell.type(sections()["The end"][0])
