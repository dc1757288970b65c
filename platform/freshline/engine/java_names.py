"""Names of the JVM that PySpark asks for again and again, asked once."""

from __future__ import annotations

from typing import Any

from py4j.java_gateway import JavaClass, JavaMember

# PySpark 4.2 keeps none of them. `F.col("a")` asks for `functions`, which is no class by itself, so that the JVM opens
# the directory of each of some three hundred jars before it searches the imports; then for its member `col`.
# A refresh of two small tables made a quarter of its calls for that. A test checks that none are left.
NAMES = (
    "functions",
    "PythonUtils",
    "PythonSQLUtils",
    "SparkSession",
    "Dataset",
    "org.apache.spark.sql.functions",
    "org.apache.spark.sql.classic.SparkSession",
    "org.apache.spark.sql.types.Metadata",
)


class _KeptClass(JavaClass):  # type: ignore[misc]  # py4j has no types
    """A class of the JVM that asks for each of its methods once. Values of static fields are asked for each time."""

    def __getattr__(self, name: str) -> Any:
        member = super().__getattr__(name)
        if type(member) is JavaMember:
            self.__dict__[name] = member
        return member


def keep_names(jvm: Any) -> None:
    """Let this view of a JVM, as `SparkContext` has it, answer for `NAMES` by itself.

    They are classes, or imported ones, which stay what they are while the JVM lives.
    """
    for name in NAMES:
        found = getattr(jvm, name)
        # An attribute of the view's own comes before it asks the JVM, whatever its name has in it.
        jvm.__dict__[name] = _KeptClass(found._fqn, found._gateway_client)
