"""The jars: fetched once, checked at every start, and never replaced in silence."""

from __future__ import annotations

import hashlib
import io
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from email.message import Message
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from freshline.engine.jars import Jar, jar_cache, main, provide_jars, read_kafka_lock, read_lock
from freshline.errors import JarError
from freshline.values.settings import Settings

CONTENT = b"not really a jar" * 1_000
JAR = Jar("com.example:small_2.13:1.2.3", len(CONTENT), hashlib.sha256(CONTENT).hexdigest())
URL = "https://mirror.example.com/maven/com/example/small_2.13/1.2.3/small_2.13-1.2.3.jar"


class Answer(io.BytesIO):
    """The answer of urlopen, as far as it is used."""

    def __init__(self, content: bytes, url: str) -> None:
        super().__init__(content)
        self.url = url

    def geturl(self) -> str:
        return self.url


class Mirror:
    """A Maven repository in memory that counts what is asked of it."""

    def __init__(self, content: bytes | Exception = CONTENT, leads_to: str | None = None) -> None:
        self.content = content
        self.leads_to = leads_to
        self.asked: list[str] = []

    def open(self, request: urllib.request.Request, timeout: float) -> Answer:
        assert timeout > 0
        self.asked.append(request.full_url)
        if isinstance(self.content, Exception):
            raise self.content
        return Answer(self.content, self.leads_to or request.full_url)


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Callable[[Mirror], Mirror]:
    def use(mirror: Mirror) -> Mirror:
        monkeypatch.setattr(urllib.request, "urlopen", mirror.open)
        return mirror

    return use


@pytest.fixture
def fetching(settings: Settings, tmp_path: Path) -> Settings:
    return replace(settings, maven_mirror="https://mirror.example.com/maven/", jar_cache=tmp_path / "cache" / "jars")


def names(folder: Path | None) -> list[str]:
    assert folder is not None
    return sorted(file.name for file in folder.iterdir() if not file.name.endswith(".lock"))


def test_the_lock_names_the_two_jars_of_delta_and_nothing_else():
    assert [jar.coordinate for jar in read_lock()] == [
        "io.delta:delta-spark_4.2_2.13:4.4.0",
        "io.delta:delta-storage:4.4.0",
    ]
    assert all(len(jar.sha256) == 64 and jar.size > 0 for jar in read_lock())


def test_the_lock_is_part_of_the_package():
    assert resources.files("freshline.engine").joinpath("jars_lock.json").is_file()


def test_a_missing_jar_is_fetched_once(fetching, use):
    mirror = use(Mirror())
    seen: list[Any] = []

    (first,) = provide_jars(fetching, lock=[JAR], progress=lambda *step: seen.append(step))
    (second,) = provide_jars(fetching, lock=[JAR])

    assert first == second
    assert first.read_bytes() == CONTENT
    assert mirror.asked == [URL]
    assert seen == [(JAR.file_name, JAR.size, JAR.size)]
    assert names(fetching.jar_cache) == [JAR.file_name]


def test_a_download_with_another_sum_is_refused_and_not_kept(fetching, use):
    use(Mirror(CONTENT[:-1] + b"X"))

    with pytest.raises(JarError, match=r"delivers is not the jar.*expected SHA-256 \w+, found \w+"):
        provide_jars(fetching, lock=[JAR])
    assert names(fetching.jar_cache) == []


@pytest.mark.parametrize("content", [b"", CONTENT[:-5], CONTENT + b"more", CONTENT * 500])
def test_a_download_of_another_size_is_refused_and_not_kept(fetching, use, content):
    use(Mirror(content))

    with pytest.raises(JarError, match=f"expected {JAR.size} bytes, found"):
        provide_jars(fetching, lock=[JAR])
    assert names(fetching.jar_cache) == []


def test_a_changed_file_in_the_cache_is_named_with_the_command_and_stays(fetching, use):
    mirror = use(Mirror())
    (file,) = provide_jars(fetching, lock=[JAR])
    file.write_bytes(CONTENT[:-1] + b"X")

    with pytest.raises(JarError) as refused:
        provide_jars(fetching, lock=[JAR])

    assert f"rm {file}" in str(refused.value)
    assert JAR.sha256 in str(refused.value)
    assert hashlib.sha256(file.read_bytes()).hexdigest() in str(refused.value)
    assert len(mirror.asked) == 1
    file.unlink()
    assert provide_jars(fetching, lock=[JAR])[0].read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("failure", "says"),
    [
        (urllib.error.HTTPError(URL, 404, "Not Found", Message(), None), "404 Not Found"),
        (urllib.error.URLError("Name or service not known"), "Name or service not known"),
        (TimeoutError("The read operation timed out"), "timed out"),
        (ConnectionResetError(104, "Connection reset by peer"), "reset"),
    ],
)
def test_a_mirror_that_fails_is_named_with_what_to_do(fetching, use, failure, says):
    use(Mirror(failure))

    with pytest.raises(JarError) as refused:
        provide_jars(fetching, lock=[JAR])

    for words in (URL, says, "maven-mirror", "jar-directory"):
        assert words in str(refused.value)
    assert names(fetching.jar_cache) == []


def test_only_https_is_fetched_from(fetching, use):
    mirror = use(Mirror())

    with pytest.raises(JarError, match="only https"):
        provide_jars(replace(fetching, maven_mirror="http://mirror.example.com"), lock=[JAR])
    with pytest.raises(JarError, match="only https"):
        provide_jars(replace(fetching, maven_mirror="file:///tmp"), lock=[JAR])
    assert mirror.asked == []


def test_a_mirror_that_leads_away_from_https_is_refused(fetching, use):
    use(Mirror(leads_to="http://elsewhere.example.com/x.jar"))

    with pytest.raises(JarError, match="not https"):
        provide_jars(fetching, lock=[JAR])


def test_an_offline_directory_is_all_that_is_searched(fetching, use, tmp_path):
    mirror = use(Mirror())
    offline = replace(fetching, jar_directory=tmp_path / "offline")
    assert offline.jar_directory is not None
    offline.jar_directory.mkdir()

    with pytest.raises(JarError, match=rf"{JAR.file_name} is missing"):
        provide_jars(offline, lock=[JAR])
    (offline.jar_directory / JAR.file_name).write_bytes(CONTENT)
    assert provide_jars(offline, lock=[JAR]) == (offline.jar_directory / JAR.file_name,)
    (offline.jar_directory / JAR.file_name).write_bytes(b"other")
    with pytest.raises(JarError, match="expected 16000 bytes, found 5"):
        provide_jars(offline, lock=[JAR])
    assert mirror.asked == []


def test_several_at_once_fetch_once_and_all_get_it(fetching, use):
    mirror = use(Mirror())
    answers: list[tuple[Path, ...]] = []
    fetchers = [threading.Thread(target=lambda: answers.append(provide_jars(fetching, lock=[JAR]))) for _ in range(8)]
    for fetcher in fetchers:
        fetcher.start()
    for fetcher in fetchers:
        fetcher.join()

    assert len(answers) == 8
    assert len(set(answers)) == 1
    assert mirror.asked == [URL]


def test_a_cache_that_cannot_be_written_is_a_sentence(fetching, use, tmp_path):
    use(Mirror())
    (tmp_path / "cache").write_text("a file where a folder should be")

    with pytest.raises(JarError, match="jar-cache"):
        provide_jars(fetching, lock=[JAR])


def test_the_cache_is_where_the_system_keeps_caches():
    assert jar_cache({"XDG_CACHE_HOME": "/var/cache/me"}) == Path("/var/cache/me/freshline/jars")
    assert jar_cache({}) == Path.home() / ".cache" / "freshline" / "jars"
    assert jar_cache({"XDG_CACHE_HOME": "relative"}) == Path.home() / ".cache" / "freshline" / "jars"


def test_the_command_takes_the_projects_settings_and_ends_with_one_line_on_a_mistake(tmp_path, capsys):
    (tmp_path / "pyproject.toml").write_text('[tool.freshline]\njar-directory = "jars"\n')

    assert main(["--project", str(tmp_path)]) == 1

    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert f"{tmp_path / 'jars' / 'delta-spark_4.2_2.13-4.4.0.jar'} is missing" in said.err


def test_jars_that_only_kafka_sources_need_are_in_a_lock_of_their_own():
    coordinates = [jar.coordinate for jar in read_kafka_lock()]

    assert [text.split(":")[1] for text in coordinates] == [
        "spark-sql-kafka-0-10_2.13",
        "spark-token-provider-kafka-0-10_2.13",
        "kafka-clients",
        "commons-pool2",
    ]
    assert not set(coordinates) & {jar.coordinate for jar in read_lock()}
