"""The classes that a connector needs, for a session that is running already.

Their jars are not among those that every session starts with: they are fetched, checked and made known to the JVM when
the first source of the connector is read. A project without such a source does not wait for them.
"""

from __future__ import annotations

import threading

from pyspark.sql import SparkSession

from freshline.engine.jars import Progress, provide_jars, read_kafka_lock
from freshline.values.settings import Settings

_LOCK = threading.Lock()


# The jars by the name of the connector.
LOCKS = {"kafka": read_kafka_lock}


def provide_connector_jars(
    name: str, settings: Settings, session: SparkSession, *, progress: Progress | None = None
) -> None:
    """Make a connector's classes known to the JVM of a classic session; doing it again changes nothing.

    Raises JarError where a jar is missing and cannot be fetched, or is another than the lock says.
    """
    with _LOCK:
        jvm = session._jvm
        assert jvm is not None
        # The loader of `spark.jars`, which the threads of the JVM inherit.
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        known = {url.toString() for url in loader.getURLs()}
        for jar in provide_jars(settings, lock=LOCKS[name](), progress=progress):
            url = jvm.java.io.File(str(jar)).toURI().toURL()
            if url.toString() in known:
                continue
            loader.addURL(url)
            if not str(session.sparkContext.master).startswith("local"):
                # The executors of a cluster have class paths of their own.
                session.sparkContext._jsc.sc().addJar(url.toString())
