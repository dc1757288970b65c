"""freshline in Dagster: tables and sources as assets, with their checks and sensors.

```python
from freshline.dagster import FreshlineProject, build_definitions

defs = build_definitions(FreshlineProject(path))
```

`build_assets`, `build_checks` and `build_sensors` make the parts of it. `FreshlineTranslator` says how a table is
shown. `FreshlineProjectComponent` is the same as a component of `dg`. `FreshlineResource` and `SparkResource` serve
assets of your own, and `asset_key_for` and `build_asset_selection` name those of freshline. The names load what they
need when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from freshline.dagster.component import FreshlineProjectComponent as FreshlineProjectComponent
    from freshline.dagster.definitions import build_assets as build_assets
    from freshline.dagster.definitions import build_checks as build_checks
    from freshline.dagster.definitions import build_definitions as build_definitions
    from freshline.dagster.definitions import build_sensors as build_sensors
    from freshline.dagster.project import FreshlineProject as FreshlineProject
    from freshline.dagster.project import asset_key_for as asset_key_for
    from freshline.dagster.project import build_asset_selection as build_asset_selection
    from freshline.dagster.resource import FreshlineResource as FreshlineResource
    from freshline.dagster.spark_resource import SparkResource as SparkResource
    from freshline.dagster.translator import FreshlineTable as FreshlineTable
    from freshline.dagster.translator import FreshlineTranslator as FreshlineTranslator

# Loaded on first use: Spark is needed for SparkResource alone, and `freshline watch` asks this room for little.
_MODULES = {
    "FreshlineProject": "freshline.dagster.project",
    "FreshlineProjectComponent": "freshline.dagster.component",
    "FreshlineResource": "freshline.dagster.resource",
    "FreshlineTable": "freshline.dagster.translator",
    "FreshlineTranslator": "freshline.dagster.translator",
    "SparkResource": "freshline.dagster.spark_resource",
    "asset_key_for": "freshline.dagster.project",
    "build_asset_selection": "freshline.dagster.project",
    "build_assets": "freshline.dagster.definitions",
    "build_checks": "freshline.dagster.definitions",
    "build_definitions": "freshline.dagster.definitions",
    "build_sensors": "freshline.dagster.definitions",
}
__all__ = [
    "FreshlineProject",
    "FreshlineProjectComponent",
    "FreshlineResource",
    "FreshlineTable",
    "FreshlineTranslator",
    "SparkResource",
    "asset_key_for",
    "build_asset_selection",
    "build_assets",
    "build_checks",
    "build_definitions",
    "build_sensors",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        import importlib

        return getattr(importlib.import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'freshline.dagster' has no attribute {name!r}")


def __dir__() -> list[str]:
    """The loaded names, and the component: `dg` finds components here by loading every name that this returns."""
    return [*globals(), "FreshlineProjectComponent"]
