"""Every lookup fulfils the claims: those that are shipped, and one of another package."""

from __future__ import annotations

import json
import shutil
from typing import Any

import pytest

from freshline.testing import AskedSystem
from freshline.testing.lookups import LookupConformance
from tests.services import running_service
from tests.sources.stranger import code_of_page, on_the_path, write_package
from tests.valkey import running_valkey

MODULES = ("shelf", "shelf_client")


class ShelfSystem(AskedSystem):
    """The lookup of the page."""

    lookup = "shelf"

    def __init__(self, lab):
        super().__init__(lab)
        self.folder = lab.settings.root / "shelf"
        self.folder.mkdir()

    @property
    def options(self):
        return {"path": "shelf"}

    def put(self, key, row):
        (self.folder / f"{key}.json").write_text(json.dumps(row), encoding="utf-8")

    def take_away(self):
        self.folder.rename(self.folder.with_name("away"))

    def bring_back(self):
        self.folder.with_name("away").rename(self.folder)


class TestAnotherPackage(LookupConformance):
    @pytest.fixture
    def system(self, lab, tmp_path):
        folder = tmp_path / "site-packages"
        folder.mkdir()
        for name, code in code_of_page("lookups.md").items():
            (folder / f"{name}.py").write_text(code, encoding="utf-8")
        write_package(folder, "freshline-shelf", {"freshline.lookups": {"shelf": "shelf:Shelf"}})
        with on_the_path(folder, MODULES):
            yield ShelfSystem(lab)
        shutil.rmtree(folder)


def test_the_lookup_of_the_page_is_small() -> None:
    code = code_of_page("lookups.md")

    assert tuple(code) == MODULES
    assert sum(text.count("\n") for text in code.values()) <= 150


class HttpSystem(AskedSystem):
    lookup = "http"

    def __init__(self, lab, service):
        super().__init__(lab)
        self.service = service

    @property
    def options(self):
        return {"url": f"{self.service.url}/rows/{{k}}"}

    def put(self, key, row):
        self.service.rows[str(key)] = row

    def take_away(self):
        self.service.always = (503, {})

    def bring_back(self):
        self.service.always = None


@pytest.mark.long
class TestHttp(LookupConformance):
    @pytest.fixture
    def system(self, lab):
        with running_service() as service:
            yield HttpSystem(lab, service)


class RedisSystem(AskedSystem):
    lookup = "redis"

    def __init__(self, lab, server):
        super().__init__(lab)
        self.server = server
        self.rows: dict[int, Any] = {}

    @property
    def options(self):
        return {"url": "${env:CACHE_URL}", "key": "s:{k}"}

    def put(self, key, row):
        self.rows[key] = row
        if self.server.process.poll() is None:
            self.server.client.hset(f"s:{key}", mapping=row)

    def take_away(self):
        self.server.stop()

    def bring_back(self):
        self.server.start()
        for key, row in self.rows.items():
            self.put(key, row)


@pytest.mark.long
class TestRedis(LookupConformance):
    @pytest.fixture
    def system(self, lab, monkeypatch):
        with running_valkey() as server:
            monkeypatch.setenv("CACHE_URL", server.url)
            yield RedisSystem(lab, server)
