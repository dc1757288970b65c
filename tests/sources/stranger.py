"""The connector and the format of the page "Connectors", installed as another package would be.

Each is a module in a folder of its own, with the metadata that pip writes; nothing of the product knows of it.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from freshline.values import registry

PAGES = Path(__file__).parents[2] / "platform" / "docs"
MODULES = ("spool", "spool_reader", "pairs")
ENTRIES = {"freshline.connectors": {"spool": "spool:Spool"}, "freshline.formats": {"pairs": "pairs:Pairs"}}


def code_of_page(page: str = "connectors.md") -> dict[str, str]:
    """The modules that a page shows, by their names."""
    text = (PAGES / page).read_text(encoding="utf-8")
    found = re.findall(r"`(\w+)\.py`:\n\n```python\n(.*?)^```$", text, re.M | re.S)
    return dict(found)


def write_package(folder: Path, name: str, entries: dict[str, dict[str, str]], *, version: str = "1.0") -> None:
    """Write the metadata that pip leaves of a package with these entry points."""
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", encoding="utf-8")
    lines = [
        line
        for group, named in entries.items()
        for line in (f"[{group}]", *(f"{entry} = {value}" for entry, value in named.items()))
    ]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


@contextmanager
def on_the_path(folder: Path, modules: tuple[str, ...] = MODULES) -> Iterator[None]:
    """The packages in a folder are installed, as far as this process can see."""
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    registry.forget_outside()
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for module in modules:
            sys.modules.pop(module, None)
        importlib.invalidate_caches()
        registry.forget_outside()


@contextmanager
def stranger(folder: Path) -> Iterator[None]:
    """The package `freshline-spool` is installed."""
    for name, code in code_of_page().items():
        (folder / f"{name}.py").write_text(code, encoding="utf-8")
    write_package(folder, "freshline-spool", ENTRIES)
    with on_the_path(folder):
        yield
