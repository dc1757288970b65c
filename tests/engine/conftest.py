"""Labs with what the engine has for code in Python."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from freshline.engine.python_tables import PythonTables
    from freshline.errors import FreshlineError
    from freshline.testing import Lab
    from freshline.values.settings import Settings


def python_tables(settings: Settings, spark: Any) -> PythonTables:
    """The workers for the functions of a project, on the session of this run; they have to be closed."""
    # Imported here because most tests, and the fast lane as a whole, do without Spark.
    from freshline.engine.python_tables import PythonTables
    from freshline.engine.spark import connect_port

    return PythonTables(
        settings,
        connect_port=connect_port(spark),
        token="token-of-the-tests",
        drop_view=spark.catalog.dropGlobalTempView,
    )


@pytest.fixture
def python_lab(lab: Lab, spark: Any) -> Iterator[Lab]:
    """A Lab with the engine's worker for code in Python."""
    tables = python_tables(lab.settings, spark)
    lab.runtime.python_tables = tables
    yield lab
    tables.close()


@pytest.fixture
def collated_tables(spark: Any) -> Iterator[None]:
    """Tables with collations, which Delta writes for a project that has turned its check off in `spark-confs`."""
    confs, check = spark._jsparkSession.sharedState().conf(), "spark.databricks.delta.schema.typeCheck.enabled"
    confs.set(check, "false")
    yield
    confs.remove(check)


def error_of(lab: Lab, name: str, **how: Any) -> FreshlineError:
    """The error of a refresh, which has to fail."""
    error = lab.refresh(name, **how).error
    assert error is not None, name
    return error
