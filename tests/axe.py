"""axe-core finds what keeps people with a screen reader or a keyboard from a page, in the browser of the tests."""

from __future__ import annotations

import zipfile
from typing import Any

from freshline.engine.jars import Jar, provide_jars
from freshline.values.settings import Settings

# Published by npm, and on Maven Central as a WebJar, where everything else that is fetched by lock comes from. MPL-2.0.
AXE_CORE = Jar(
    "org.webjars.npm:axe-core:4.6.3", 437_569, "c339ddad238886211644ff2b58f8c395bf42de4a1d7742c98af7aa01a9675ac3"
)
FIND = """return axe.run(document).then(found => found.violations.map(
  each => [each.id, each.nodes.map(node => node.html.slice(0, 200)).slice(0, 4)]))"""


def read_axe(settings: Settings) -> str:
    """The program, which a page is given to run."""
    (jar,) = provide_jars(settings, lock=[AXE_CORE])
    with zipfile.ZipFile(jar) as files:
        return files.read("META-INF/resources/webjars/axe-core/4.6.3/axe.min.js").decode()


def violations(window: Any, axe: str) -> list[Any]:
    """Rules that the open page breaks, each with the elements that break it."""
    window.run(axe)
    found: list[Any] = window.run(FIND)
    return found
