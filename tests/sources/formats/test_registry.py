"""Requests to a schema registry, and the results of its answers and of their absence."""

from __future__ import annotations

import json
import ssl
from pathlib import Path

import pytest

from freshline.errors import RegistryError, RegistryRefusedError
from freshline.sources.formats import registry_client
from freshline.sources.formats.registry import Registry, RegistryAddress, url_problem
from freshline.sources.formats.registry_client import KnownSchemas, RegisteredSchema, RegistryClient
from tests.registry import basic, running_registry
from tests.report.alerts.servers import make_certificate

ORDER = {"type": "record", "name": "order", "fields": [{"name": "id", "type": "int"}]}
SECRET = "hunter2-is-the-secret"


@pytest.fixture
def registry():
    with running_registry() as found:
        yield found


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(registry_client, "ANSWER_SECONDS", 0.5)


def read(registry, *ids, known=None, **address):
    return (known or KnownSchemas()).read(RegistryAddress(registry.url, **address), ids, where="s")


def refusal(registry, kind, **address):
    with pytest.raises(kind) as found:
        read(registry, 1, **address)
    assert SECRET not in str(found.value)
    assert "s: " in str(found.value)
    return found.value


def test_a_schema_is_asked_for_by_its_id_once_and_for_ever(registry):
    first, second = registry.register(ORDER), registry.register('"string"', kind="JSON")
    known = KnownSchemas()

    assert read(registry, first, second, first, known=known) == {
        1: RegisteredSchema("AVRO", json.dumps(ORDER)),
        2: RegisteredSchema("JSON", '"string"'),
    }
    registry.fail(503)
    assert read(registry, first, known=known).keys() == {1}
    assert registry.paths == ["/schemas/ids/1", "/schemas/ids/2"]


def test_a_subject_that_has_a_newer_schema_changes_nothing(registry):
    old = registry.register(ORDER, "orders-value")
    known = KnownSchemas()
    read(registry, old, known=known)
    new = registry.register({**ORDER, "fields": []}, "orders-value")

    found = read(registry, old, new, known=known)
    assert (json.loads(found[old].text), json.loads(found[new].text)["fields"]) == (ORDER, [])


def test_an_id_that_is_unknown_is_asked_for_again(registry):
    known = KnownSchemas()
    assert read(registry, 7, known=known) == {}
    registry.register(ORDER, as_id=7)

    assert read(registry, 7, known=known).keys() == {7}


def test_schemas_that_one_names_come_before_it(registry):
    registry.register({"type": "enum", "name": "currency", "symbols": ["EUR"]}, "cur/rency ü")
    money = [{"name": "currency", "subject": "cur/rency ü", "version": 1}]
    registry.register({"type": "record", "name": "money", "fields": []}, "money", references=money)
    both = [{"name": "money", "subject": "money", "version": 1}, *money]
    order = registry.register(ORDER, references=both)

    (found,) = read(registry, order).values()
    assert [name for name, _ in found.references] == ["currency", "money"]
    assert registry.paths[1:] == ["/subjects/money/versions/1", "/subjects/cur%2Frency%20%C3%BC/versions/1"]


def test_files_of_protobuf_are_asked_for_as_descriptors(registry):
    registry.register("syntax", "other", kind="PROTOBUF", descriptor=b"other")
    named = [{"name": "other.proto", "subject": "other", "version": 1}]
    file = registry.register("syntax", kind="PROTOBUF", descriptor=b"file", references=named)
    text, avro = registry.register("syntax = ..;", kind="PROTOBUF"), registry.register(ORDER)
    found = read(registry, file, avro, known=KnownSchemas(descriptors=True))

    assert found[file] == RegisteredSchema("PROTOBUF", "ZmlsZQ==", (("other.proto", "b3RoZXI="),))
    assert found[avro].kind == "AVRO"
    assert read(registry, text)[text].text == "syntax = ..;"
    with pytest.raises(RegistryRefusedError, match="as descriptors"):
        read(registry, text, known=KnownSchemas(descriptors=True))


def test_references_that_lead_nowhere_or_to_themselves_are_no_schema(registry):
    registry.register(ORDER, "a", references=[{"name": "a", "subject": "a", "version": 1}])
    assert "refers to itself" in str(refusal(registry, RegistryError))
    registry.register(ORDER, as_id=1, references=[{"name": "a", "subject": "none", "version": 1}])
    assert "has no version 1 of subject none" in str(refusal(registry, RegistryError))
    registry.register(ORDER, as_id=1, references=[{"name": "a"}])
    assert "without a subject and a version" in str(refusal(registry, RegistryError))


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (429, b"", "answers 429"),
        (500, b"", "answers 500"),
        (503, b'{"error_code": 50301}', "answers 503"),
        (200, b"<html>sign in</html>", "no JSON object"),
        (200, b"[]", "no JSON object"),
        (200, b"[" * 100_000, "no JSON object"),
        (200, b"{}", "has no schema"),
        (200, b'{"schema": 5}', "has no schema"),
        (200, b'{"schema": "x", "references": [5]}', "without a subject"),
    ],
)
def test_a_registry_in_trouble_is_asked_again(registry, status, body, said):
    registry.register(ORDER)
    registry.fail(status, body)
    error = refusal(registry, RegistryError)

    assert (said in str(error), error.retry_helps, error.code) == (True, True, "REGISTRY")
    registry.recover()
    assert read(registry, 1).keys() == {1}


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (401, b"", "refuses the request (401)"),
        (403, b'{"error_code": 40301}', "refuses the request (403)"),
        (404, b"<html>nothing here</html>", "not as a schema registry does"),
        (404, b'{"error_code": 404, "message": "HTTP 404 Not Found"}', "with the path of its API"),
        (400, b"", "answers 400"),
        (301, b"", "a redirect, which is not followed"),
        (307, b"", "a redirect, which is not followed"),
    ],
)
def test_a_refusal_that_a_person_has_to_correct_is_not_asked_again(registry, status, body, said):
    registry.register(ORDER)
    registry.fail(status, body, Location="/schemas/ids/2")
    error = refusal(registry, RegistryRefusedError)

    assert (said in str(error), error.retry_helps, error.code) == (True, False, "REGISTRY_REFUSED")
    assert registry.paths == ["/schemas/ids/1"]


@pytest.mark.security
def test_a_password_goes_to_no_other_server(registry):
    with running_registry() as other:
        other.register(ORDER)
        registry.fail(302, Location=f"{other.url}/schemas/ids/1")
        refusal(registry, RegistryRefusedError, user="u", password=SECRET)

        assert other.asked == []


@pytest.mark.security
def test_who_asks_is_said_in_one_of_two_ways(registry):
    registry.register(ORDER)
    registry.authorization = basic("ü", SECRET)
    assert read(registry, 1, user="ü", password=SECRET).keys() == {1}
    refusal(registry, RegistryRefusedError, user="ü", password=f"{SECRET}!")
    refusal(registry, RegistryRefusedError)
    registry.authorization = f"Bearer {SECRET}"
    assert read(registry, 1, token=SECRET).keys() == {1}
    assert "registry.token" in str(refusal(registry, RegistryRefusedError, token=f"{SECRET}\r\nX: y"))
    assert SECRET not in repr(RegistryAddress("http://h", "u", SECRET, SECRET))


@pytest.mark.seconds
def test_a_registry_that_is_away_hangs_or_trickles_is_asked_again(registry, quick):
    registry.register(ORDER)
    registry.trickles = True
    assert "does not answer" in str(refusal(registry, RegistryError))
    registry.recover()
    registry.fail(200, b"{", **{"Content-Length": "5"})
    assert "does not answer" in str(refusal(registry, RegistryError))
    registry.recover()
    assert read(registry, 1).keys() == {1}
    with running_registry() as other:
        gone = other
    assert "does not answer: connection refused" in str(refusal(gone, RegistryError))


@pytest.mark.security
def test_an_answer_has_a_size(registry, monkeypatch):
    monkeypatch.setattr(registry_client, "_MOST_BYTES", 1_000)
    registry.register(json.dumps(ORDER) + " " * 1_000)

    assert "larger than 1000 bytes" in str(refusal(registry, RegistryError))


def test_an_address_may_have_a_path(registry):
    registry.prefix = "/apis/ccompat/v7"
    registry.register(ORDER)
    with RegistryClient(RegistryAddress(registry.url + registry.prefix), where="s") as client:
        assert client.schema(1) is not None
    refusal(registry, RegistryRefusedError)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory) -> tuple[Path, Path]:
    return make_certificate(tmp_path_factory.mktemp("certificate"))


@pytest.mark.security
def test_a_certificate_is_checked_and_one_is_shown(certificate, tmp_path):
    made, key = certificate
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made, key)
    with running_registry(context) as registry:
        registry.register(ORDER)
        assert "is not accepted" in str(refusal(registry, RegistryRefusedError))
        assert read(registry, 1, tls_ca=made).keys() == {1}
        assert "cannot be used" in str(refusal(registry, RegistryRefusedError, tls_ca=tmp_path / "none"))
        assert "cannot be used" in str(refusal(registry, RegistryRefusedError, tls_ca=key))
        # Plain text to a server of TLS is nothing that a person has to correct for sure.
        registry.url = registry.url.replace("https", "http")
        refusal(registry, RegistryError)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(made)
    with running_registry(context) as registry:
        registry.register(ORDER)
        refusal(registry, RegistryError, tls_ca=made)
        assert read(registry, 1, tls_ca=made, tls_certificate=made, tls_key=key).keys() == {1}


@pytest.mark.parametrize(
    ("url", "is_right"),
    [
        ("https://registry:8081", True),
        ("http://[::1]:8081/apis/ccompat/v7/", True),
        ("https://user:word@registry", False),
        ("https://registry?x=1", False),
        ("https://registry#x", False),
        ("registry:8081", False),
        ("ftp://registry", False),
        ("https://", False),
        ("https://h:99999", False),
        ("https://h /x", False),
        ("https://h\r\nX: y", False),
    ],
)
def test_an_address_names_a_host_and_no_user(url, is_right):
    assert (url_problem(url) == "") == is_right


@pytest.mark.security
def test_references_are_resolved_where_they_are_used(tmp_path):
    (tmp_path / "token").write_text(f"{SECRET}\n")
    declared = Registry("${env:URL}", token="${file:token}", tls_ca="ca.pem")
    found = declared.resolve(tmp_path, {"URL": "https://h/"})

    assert (found.url, found.token, found.tls_ca) == ("https://h", SECRET, tmp_path / "ca.pem")
    with pytest.raises(ValueError, match="option 'registry.url': there is no environment variable URL"):
        declared.resolve(tmp_path, {})
    with pytest.raises(ValueError, match="does not stand for http") as refused:
        declared.resolve(tmp_path, {"URL": f"https://u:{SECRET}@h"})
    assert SECRET not in str(refused.value)
