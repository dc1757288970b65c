"""Programs of folders that are no packages, such as the documentation and the examples, loaded by their paths."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def load_script(file: Path) -> ModuleType:
    """The module that a file is, loaded anew."""
    spec = importlib.util.spec_from_file_location(f"{file.parent.name}_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Its dataclasses search for their module there.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
