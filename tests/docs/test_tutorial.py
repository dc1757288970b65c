"""The tutorial, typed: its commands in their order, in an empty folder, and the output that it shows."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

TUTORIAL = Path(__file__).parents[2] / "platform" / "docs" / "tutorial.md"
SECTION = re.compile(r"^## (.+?)$(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SHOWN = re.compile(r"^```sh\n((?:(?!^```).)*?)^```\n\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# Another run takes another time, is at another time of day, and by another user. Sensors may be quicker than `plan`.
VARIES = re.compile(
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d|\b\d+(\.\d+)? (s|ms|min|h)\b|\bby [\w-]+|(?<= )(new|unchanged)(?= )"
)
# The blocks whose output depends on how far the engine is by itself, or that print none.
UNSHOWN = {"freshline up --detach\nfreshline status\n", "freshline status\n", "freshline down\n"}
CHECKS = """query ($key: AssetKeyInput!) { assetNodeOrError(assetKey: $key) { ... on AssetNode {
  assetChecksOrError { ... on AssetChecks { checks { name executionForLatestMaterialization {
    evaluation { success description } } } } } } } }"""
BACKFILL = """mutation ($asset: [AssetKeyInput!]!, $keys: [String!]!) { launchPartitionBackfill(backfillParams: {
  assetSelection: $asset, partitionNames: $keys }) { ... on LaunchBackfillSuccess { backfillId } } }"""
BACKFILL_STATE = """query ($id: String!) { partitionBackfillOrError(backfillId: $id) { ... on PartitionBackfill {
  status runs { runId } } } }"""
BAR = """query ($key: AssetKeyInput!) { assetNodeOrError(assetKey: $key) { ... on AssetNode {
  partitionStats { numMaterialized numPartitions } } } }"""
# The range of the text.
DAYS = ["2026-10-28", "2026-10-29", "2026-10-30", "2026-10-31", "2026-11-01", "2026-11-02", "2026-11-03"]
SEEN_SECONDS = 240.0


class Shell:
    """One shell session of a person: a change of the folder stays."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir()
        # As in an environment with freshline, where its own Python is found first.
        for name, arguments in (("freshline", " -m freshline.cli.main"), ("python", "")):
            command = self.bin / name
            command.write_text(f'#!/bin/sh\nexec {sys.executable}{arguments} "$@"\n')
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
        "A project", "The first refresh", "Everything on", "A materialization", "An expectation", "A backfill",
        "An alert", "The end",
    ]  # fmt: skip
    assert all(found.values())
    assert "freshline" in "".join(block for blocks in found.values() for block in blocks)


def lines_of(text: str) -> list[str]:
    """The lines of an output without the parts that differ each time, and without the width of its columns."""
    lines = (" ".join(VARIES.sub("VARIES", line).split()) for line in text.split("\n"))
    return [line for line in lines if line]


def missing(shown: str, said: str) -> list[str]:
    """The lines of the page that the commands did not print, in the order of the page."""
    said_lines = iter(lines_of(said))
    return [line for line in lines_of(shown) if not any(line == each for each in said_lines)]


def test_the_output_of_commands_is_shown_below_them() -> None:
    text = TUTORIAL.read_text(encoding="utf-8")
    shown = {commands for commands, _ in SHOWN.findall(text)}

    assert set(BLOCK.findall(text)) - shown == UNSHOWN


def test_a_line_that_a_command_did_not_print_is_found() -> None:
    said = "customer  total\nada       30.00\ntook 3.1 s at 2026-11-27 08:00:00\n"

    assert missing("customer total\nada  30.00\ntook 12 s at 2026-12-01 09:00:00\n", said) == []
    assert missing("ada 31.00\n", said) == ["ada 31.00"]
    assert missing("ada 30.00\ncustomer total\n", said) == ["customer total"]


def ask(url: str, query: str, **variables: Any) -> Any:
    body = json.dumps({"query": query, "variables": variables}).encode()
    request = urllib.request.Request(f"{url}/graphql", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)["data"]


def see(met: Callable[[], bool], told: Callable[[], object]) -> None:
    deadline = time.monotonic() + SEEN_SECONDS
    while not met():
        assert time.monotonic() < deadline, told()
        time.sleep(1)


def backfill_as_in_the_ui(url: str) -> None:
    """The steps of the text in the UI: the table and its missing days arrive, and a backfill of a range."""
    key = {"path": ["daily_revenue"]}

    def bar() -> dict[str, int]:
        found: dict[str, int] = ask(url, BAR, key=key)["assetNodeOrError"]["partitionStats"]
        return found

    see(lambda: "partitionStats" in ask(url, BAR, key=key)["assetNodeOrError"], lambda: "the table is not shown")
    see(lambda: bar()["numMaterialized"] == bar()["numPartitions"] > len(DAYS), bar)
    asked = ask(url, BACKFILL, asset=[key], keys=DAYS)["launchPartitionBackfill"]["backfillId"]

    def backfill() -> dict[str, Any]:
        found: dict[str, Any] = ask(url, BACKFILL_STATE, id=asked)["partitionBackfillOrError"]
        return found

    see(lambda: backfill()["status"] == "COMPLETED_SUCCESS", backfill)
    assert len(backfill()["runs"]) == 1


def checks(url: str, table: str) -> dict[str, dict[str, Any]]:
    told = ask(url, CHECKS, key={"path": [table]})["assetNodeOrError"]["assetChecksOrError"]["checks"]
    return {
        check["name"]: check["executionForLatestMaterialization"]["evaluation"]
        for check in told
        if check["executionForLatestMaterialization"] and check["executionForLatestMaterialization"]["evaluation"]
    }


def address(shell: Shell) -> str:
    """Where the UI is, as `up` prints it."""
    return str(json.loads((shell.folder / ".freshline" / "local" / "up.json").read_text())["url"])


@pytest.mark.spark
@pytest.mark.long
def test_the_tutorial_can_be_typed(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    said: dict[str, list[str]] = {}
    shown = dict(SHOWN.findall(TUTORIAL.read_text(encoding="utf-8")))
    try:
        for title, blocks in sections().items():
            if title == "The end":
                break
            said[title] = []
            for number, block in enumerate(blocks):
                if title == "A backfill" and number == 1:
                    backfill_as_in_the_ui(address(shell))
                said[title].append(shell.type(block))
                if block in shown:
                    assert missing(shown[block], said[title][-1]) == [], f"{block}\n{said[title][-1]}"
            if title == "A project":
                # Other tests may have the port.
                file = shell.folder / "pyproject.toml"
                file.write_text(file.read_text().replace("[tool.freshline]\n", "[tool.freshline]\ndagster-port = 0\n"))
            if title == "An alert":
                # The last block has resumed it; what the UI showed before is in its history, the check passes again.
                assert "spend" in said[title][1]
                assert "suspended" in said[title][1].lower()
        assert "ada" in said["The first refresh"][0]
        assert "edsger" in said["A materialization"][0]
        assert "o-5" in said["An expectation"][0]
        assert "o-4" not in said["An expectation"][0]
        assert "7 done, 0 failed, 0 left" in said["A backfill"][1]
        assert "2026-11-02" in said["A backfill"][1]
        url = address(shell)
        see(lambda: bool(checks(url, "spend").get("freshness", {}).get("success")), lambda: checks(url, "spend"))
    finally:
        shell.type(sections()["The end"][0])
