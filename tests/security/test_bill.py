"""The bill of materials has everything that is pinned, and the audit finds what is not as it should be."""

from __future__ import annotations

import importlib.metadata
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.security.bill import (
    LOCK,
    Audit,
    Package,
    audit_installed,
    audit_jars,
    audit_licences,
    audit_pins,
    bill_of,
    is_permitted,
    read_jars,
    read_packages,
)

pytestmark = pytest.mark.security

PACKAGES = read_packages(LOCK.read_text(encoding="utf-8"))
JARS = read_jars()


@pytest.mark.seconds
def test_the_bill_has_each_package_and_each_jar_with_its_hashes() -> None:
    bill = json.loads(bill_of(PACKAGES, JARS))

    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    found = {component["purl"]: component for component in bill["components"]}
    assert len(found) == len(PACKAGES) + len(JARS) > 200
    for package in PACKAGES:
        hashes = {each["content"] for each in found[f"pkg:pypi/{package.name}@{package.version}"]["hashes"]}
        assert hashes == set(package.hashes)
    delta = next(jar for jar in JARS if "delta-spark" in jar.coordinate)
    (written,) = [each for name, each in found.items() if "/delta-spark_" in name]
    assert written["hashes"] == [{"alg": "SHA-256", "content": delta.sha256}]
    # Each line of the lock that begins a package is in it.
    names = set(re.findall(r'^name = "([^"]+)"', LOCK.read_text(encoding="utf-8"), re.MULTILINE)) - {"freshline"}
    assert names == {package.name for package in PACKAGES}
    assert {each["ref"] for each in bill["dependencies"]} >= set(found)


def test_packages_and_jars_are_locked_and_permitted() -> None:
    audit = Audit()
    audit_pins(PACKAGES, JARS, audit)
    audit_jars(JARS, audit)
    audit_licences(PACKAGES, audit)

    assert audit.problems == []
    assert len(audit.checked) == 3
    assert any("licences of jars" in line for line in audit.unchecked)


@pytest.mark.slow
def test_installed_packages_are_those_that_are_locked() -> None:
    audit = Audit()
    audit_installed(PACKAGES, audit)

    assert audit.problems == []


def test_the_audit_finds_what_is_not_pinned_not_permitted_and_not_from_the_registry() -> None:
    one = Package("one", "1", ("a" * 64,), "https://pypi.org/simple", "MIT")
    audit = Audit()
    several = [
        *(replace(one, hashes=()), replace(one, hashes=("a" * 64, "")), replace(one, registry="https://evil.example")),
        *(
            replace(one, licence="GPL-3.0-only"),
            replace(one, licence="MIT AND GPL-3.0-only"),
            replace(one, licence=None),
        ),
    ]
    audit_pins(several, [], audit)
    audit_licences(several, audit)

    assert [line.partition(" ")[2] for line in audit.problems] == [
        "1 has a file without a hash",
        "1 has a file without a hash",
        "is not from PyPI but from https://evil.example",
        "is under GPL-3.0-only, which is neither permitted nor has a reason",
        "is under MIT AND GPL-3.0-only, which is neither permitted nor has a reason",
    ]
    assert audit.unchecked == ["licences of 1 packages that are not installed here: one"]


def test_the_audit_finds_a_jar_and_a_file_that_were_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.security.bill.jar_cache", lambda _environ: tmp_path)
    (tmp_path / JARS[0].file_name).write_text("not the jar")
    folder = tmp_path / "changed-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: changed\nVersion: 1.0\n")
    (folder / "RECORD").write_text("changed.py,sha256=AAAA,5\n")
    (tmp_path / "changed.py").write_text("x = 1")
    here = [importlib.metadata.Distribution.at(folder)]
    monkeypatch.setattr(importlib.metadata, "distributions", lambda: here)
    audit = Audit()
    audit_jars(JARS, audit)
    audit_installed([Package("changed", "2.0", (), "", None)], audit)
    audit_installed([], audit)

    assert audit.problems[0].endswith(f"{JARS[0].file_name} is not the jar of the lock")
    assert audit.problems[1:3] == [
        "changed 1.0 is installed, and 2.0 locked",
        "changed: changed.py was changed after it was installed",
    ]
    assert "changed 1.0 is installed and not locked" in audit.problems


@pytest.mark.parametrize("expression", ["GPL-3.0-only", "MIT AND GPL-2.0", "?", "", "Proprietary", "MPL-2.0"])
def test_other_licences_are_not_permitted(expression: str) -> None:
    assert not is_permitted(expression)
