"""The bill of materials as CycloneDX, and an audit of what is in it.

`python -m tests.security.bill FILE` writes each pinned package of uv.lock and each jar of the locks with its hashes and
licence, and checks what can be checked on this machine: everything is pinned with a hash, what is installed is what is
locked and has not been changed since, and each licence is one that is known and permitted. Whether a vulnerability is
known is asked of PyPI with `--vulnerabilities` only, for the pinned versions. The last lines say what was not checked.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import http.client
import importlib.metadata
import json
import os
import re
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from freshline.engine.jars import Jar, jar_cache, parse_lock

ROOT = Path(__file__).parents[2]
LOCK = ROOT / "uv.lock"
JAR_LOCKS = (
    ROOT / "platform/freshline/engine/jars_lock.json",
    ROOT / "platform/freshline/engine/kafka_jars_lock.json",
    ROOT / "resources/broker_jars_lock.json",
    ROOT / "resources/search_node_jars_lock.json",
    ROOT / "tests/servers/hdfs_jars_lock.json",
)
OWN = "freshline"
# Everything that is linked with a program may be under these without a word about the program.
PERMITTED = frozenset(
    {
        "0BSD",
        "Apache-2.0",
        "BSD-2-Clause",
        "BSD-3-Clause",
        "CC0-1.0",
        "ISC",
        "MIT",
        "MIT-0",
        "PSF-2.0",
        "Unlicense",
        "Zlib",
    }
)
# The reason why each package under another licence may be used. Files of it must not be copied into ours.
WITH_REASON: Mapping[str, str] = {
    "certifi": "MPL-2.0: data that is read, unchanged",
    "hypothesis": "MPL-2.0: a tool of the tests",
    "orjson": "MPL-2.0 AND (Apache-2.0 OR MIT): unchanged",
    "pathspec": "MPL-2.0: a tool of the documentation",
    "psycopg": "LGPL-3.0: an extra, imported unchanged and replaceable",
    "psycopg-binary": "LGPL-3.0: an extra, imported unchanged and replaceable",
    "pytest-timeout": "MIT: `DFSG approved` beside it is Debian's opinion of that",
    "tqdm": "MPL-2.0 AND MIT: unchanged",
}
# How packages that do not use the words of SPDX call theirs.
CALLED: Mapping[str, str] = {
    "Apache": "Apache-2.0",
    "Apache 2.0": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "3-Clause BSD License": "BSD-3-Clause",
    "BSD": "BSD-3-Clause",
    "BSD 3-Clause OR Apache-2.0": "BSD-3-Clause OR Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "CC0": "CC0-1.0",
    "CC0 1.0 Universal (CC0 1.0) Public Domain Dedication": "CC0-1.0",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "PSF": "PSF-2.0",
    "Python Software Foundation License": "PSF-2.0",
    "The Unlicense (Unlicense)": "Unlicense",
}
_VULNERABILITY_SECONDS = 20.0


@dataclass(frozen=True)
class Package:
    """A pinned package: SHA-256 of each file that may be installed, the licence where it is installed here, and the
    names of those that it depends on."""

    name: str
    version: str
    hashes: tuple[str, ...]
    registry: str
    licence: str | None = None
    reads: tuple[str, ...] = ()


@dataclass
class Audit:
    """The findings of the audit: `problems` fail it, `unchecked` are said aloud."""

    problems: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)
    checked: list[str] = field(default_factory=list)


def read_packages(text: str) -> list[Package]:
    """The packages of a uv.lock, but for freshline itself, with their licences where they are installed."""
    found = []
    for each in tomllib.loads(text)["package"]:
        if each["name"] == OWN:
            continue
        files = [*each.get("wheels", []), *([each["sdist"]] if "sdist" in each else [])]
        hashes = tuple(sorted(str(file.get("hash", "")).removeprefix("sha256:") for file in files))
        registry = str(each["source"].get("registry", each["source"]))
        reads = tuple(dependency["name"] for dependency in each.get("dependencies", []))
        found.append(Package(each["name"], each["version"], hashes, registry, licence_of(each["name"]), reads))
    return found


def licence_of(name: str) -> str | None:
    """The licence of an installed package in the words of SPDX, None where it is not installed or says nothing."""
    try:
        metadata = importlib.metadata.metadata(name)
    except importlib.metadata.PackageNotFoundError:
        return None
    expression = (metadata.get_all("License-Expression") or [""])[0]
    if expression:
        return str(expression)
    words = [text.rpartition(" :: ")[2] for text in metadata.get_all("Classifier") or [] if text.startswith("License")]
    if not words:
        words = [(metadata.get_all("License") or [""])[0].strip().split("\n")[0]]
    known = sorted({CALLED.get(word, word) for word in words if word and word != "OSI Approved"})
    return " AND ".join(known) or None


def read_jars() -> list[Jar]:
    """The jars of all locks, each once."""
    found = {jar.coordinate: jar for lock in JAR_LOCKS for jar in parse_lock(lock.read_text(encoding="utf-8"))}
    return list(found.values())


def bill_of(packages: Iterable[Package], jars: Iterable[Jar]) -> str:
    """The bill as JSON."""
    bom = Bom()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    bom.metadata.component = Component(
        name=OWN, version=project["version"], type=ComponentType.LIBRARY, bom_ref=OWN,
        licenses=[LicenseFactory().make_from_string(project["license"])],
    )  # fmt: skip
    of_name: dict[str, list[Component]] = {}
    for package in packages:
        address = PackageURL("pypi", None, package.name, package.version)
        component = Component(
            name=package.name,
            version=package.version,
            type=ComponentType.LIBRARY,
            purl=address,
            bom_ref=str(address),
            hashes=[_sha256(each) for each in package.hashes],
            licenses=[LicenseFactory().make_from_string(package.licence)] if package.licence else None,
        )
        bom.components.add(component)
        of_name.setdefault(package.name, []).append(component)
    for jar in jars:
        group, name, version = jar.coordinate.split(":")
        address = PackageURL("maven", group, name, version)
        component = Component(
            name=name,
            group=group,
            version=version,
            type=ComponentType.LIBRARY,
            purl=address,
            bom_ref=str(address),
            hashes=[_sha256(jar.sha256)],
        )
        bom.components.add(component)
    # A package has several versions in the lock where it differs by Python or system: all of them may be the one.
    of_package = {(package.name, package.version): package.reads for package in packages}
    for components in of_name.values():
        for component in components:
            reads = of_package[component.name, str(component.version)]
            bom.register_dependency(component, [each for name in reads for each in of_name.get(name, [])])
    bom.register_dependency(bom.metadata.component, bom.components)
    return JsonV1Dot6(bom).output_as_string(indent=1)


def _sha256(text: str) -> HashType:
    return HashType(alg=HashAlgorithm.SHA_256, content=text)


def audit_pins(packages: Sequence[Package], jars: Sequence[Jar], audit: Audit) -> None:
    """Everything is from PyPI or Maven Central, with a version and the hash of each file."""
    digest = re.compile(r"[0-9a-f]{64}")
    for package in packages:
        if package.registry != "https://pypi.org/simple":
            audit.problems.append(f"{package.name} is not from PyPI but from {package.registry}")
        if not package.hashes or not all(digest.fullmatch(each) for each in package.hashes):
            audit.problems.append(f"{package.name} {package.version} has a file without a hash")
    audit.problems += [f"{jar.coordinate} has no hash" for jar in jars if not digest.fullmatch(jar.sha256)]
    audit.checked.append(f"{len(packages)} packages and {len(jars)} jars are pinned with hashes")


def audit_installed(packages: Sequence[Package], audit: Audit) -> None:
    """Each installed package is locked, in the locked version, and its files are those that were installed."""
    # By Python and system a package may have several versions.
    locked: dict[str, set[str]] = {}
    for package in packages:
        locked.setdefault(_plain(package.name), set()).add(package.version)
    count = files = 0
    for found in importlib.metadata.distributions():
        name = _plain(found.metadata["Name"])
        if name == OWN:
            continue
        count += 1
        if name not in locked:
            audit.problems.append(f"{name} {found.version} is installed and not locked")
        elif found.version not in locked[name]:
            audit.problems.append(f"{name} {found.version} is installed, and {', '.join(sorted(locked[name]))} locked")
        files += _audit_files(name, found, audit)
    audit.checked.append(f"{count} installed packages are those of the lock, and {files:,} of their files unchanged")


def _audit_files(name: str, found: importlib.metadata.Distribution, audit: Audit) -> int:
    count = 0
    for file in found.files or []:
        if file.hash is None or file.hash.mode != "sha256":
            continue
        count += 1
        try:
            with open(str(file.locate()), "rb") as stream:  # noqa: PTH123 - a path of the distribution
                digest = hashlib.file_digest(stream, "sha256").digest()
        except OSError as error:
            audit.problems.append(f"{name}: {file} cannot be read: {error.strerror}")
            continue
        if base64.urlsafe_b64encode(digest).rstrip(b"=").decode() != file.hash.value:
            audit.problems.append(f"{name}: {file} was changed after it was installed")
    return count


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def audit_jars(jars: Sequence[Jar], audit: Audit) -> None:
    """The jars that are here are those of the lock; the others are fetched, and checked, when they are needed."""
    cache, here = jar_cache(os.environ), 0
    for jar in jars:
        file = cache / jar.file_name
        if not file.exists():
            continue
        here += 1
        with file.open("rb") as stream:
            if hashlib.file_digest(stream, "sha256").hexdigest() != jar.sha256:
                audit.problems.append(f"{file} is not the jar of the lock")
    audit.checked.append(f"{here} of {len(jars)} jars are in the cache, with the hashes of the lock")
    if here < len(jars):
        audit.unchecked.append(f"{len(jars) - here} jars that were never fetched here")
    audit.unchecked.append("licences of jars, which the locks do not have")


def audit_licences(packages: Sequence[Package], audit: Audit) -> None:
    """Each licence is permitted, or the package has a reason."""
    unknown = []
    for package in packages:
        if package.licence is None:
            unknown.append(package.name)
        elif package.name not in WITH_REASON and not is_permitted(package.licence):
            audit.problems.append(
                f"{package.name} is under {package.licence}, which is neither permitted nor has a reason"
            )
    audit.checked.append(f"the licences of {len(packages) - len(unknown)} packages are permitted")
    if unknown:
        audit.unchecked.append(f"licences of {len(unknown)} packages that are not installed here: {', '.join(unknown)}")


def is_permitted(expression: str) -> bool:
    """Whether an expression of SPDX leaves a way through permitted licences.

    >>> is_permitted("MIT"), is_permitted("GPL-3.0-only OR MIT"), is_permitted("MPL-2.0 AND MIT"), is_permitted("?")
    (True, True, False, False)
    """
    alternatives = re.split(r"\s+OR\s+", expression.replace("(", " ").replace(")", " ").strip())
    return any(all(part.strip() in PERMITTED for part in re.split(r"\s+AND\s+", way)) for way in alternatives)


def audit_vulnerabilities(packages: Sequence[Package], audit: Audit) -> None:
    """Ask PyPI what is known of each pinned version; stops at the first that is not answered."""
    asked = 0
    index = urlsplit(os.environ.get("FRESHLINE_PYPI", "https://pypi.org"))
    for package in packages:
        connection = http.client.HTTPSConnection(index.hostname or "", index.port, timeout=_VULNERABILITY_SECONDS)
        try:
            connection.request("GET", f"/pypi/{package.name}/{package.version}/json")
            answer = connection.getresponse()
            value = json.loads(answer.read()) if answer.status == 200 else None
        except (OSError, http.client.HTTPException, ValueError) as error:
            value = None
            audit.unchecked.append(f"PyPI does not answer: {type(error).__name__}")
        finally:
            connection.close()
        if value is None:
            audit.unchecked.append(f"known vulnerabilities of {len(packages) - asked} packages")
            break
        asked += 1
        audit.problems += [
            f"{package.name} {package.version} has {found.get('id')}, fixed in {', '.join(found.get('fixed_in', []))}"
            for found in value.get("vulnerabilities", [])
            if not found.get("withdrawn")
        ]
    audit.checked.append(f"known vulnerabilities of {asked} packages were asked for")


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the bill, and say how the audit went; 1 if it found a problem."""
    parser = argparse.ArgumentParser(prog="python -m tests.security.bill", description=__doc__)
    parser.add_argument("file", type=Path, help="where the bill is written")
    parser.add_argument("--vulnerabilities", action="store_true", help="ask PyPI for known vulnerabilities")
    given = parser.parse_args(arguments)
    packages, jars, audit = read_packages(LOCK.read_text(encoding="utf-8")), read_jars(), Audit()
    given.file.parent.mkdir(parents=True, exist_ok=True)
    given.file.write_text(bill_of(packages, jars) + "\n", encoding="utf-8")
    audit_pins(packages, jars, audit)
    audit_installed(packages, audit)
    audit_jars(jars, audit)
    audit_licences(packages, audit)
    if given.vulnerabilities:
        audit_vulnerabilities(packages, audit)
    else:
        audit.unchecked.append("known vulnerabilities: --vulnerabilities asks PyPI")
    print(f"bill of materials: {given.file}, {len(packages) + len(jars)} components")
    for line in audit.checked:
        print(f"checked: {line}")
    for line in audit.unchecked:
        print(f"not checked: {line}")
    for line in audit.problems:
        print(f"problem: {line}", file=sys.stderr)
    return 1 if audit.problems else 0


if __name__ == "__main__":
    sys.exit(main())
