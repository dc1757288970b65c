"""A sink at brokers that ask for a password and grant rights: what is refused is said, and never with a secret."""

from __future__ import annotations

import os

import pyarrow as pa
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from freshline.declare.project_settings import read_settings
from freshline.errors import SinkRefusedError
from resources.broker import new_broker
from tests.sinks.delivering import Host
from tests.sinks.kafka_topic import Shipped, Topic, declared

pytestmark = pytest.mark.slow

PASSWORD = "secret-of-shop"
LOGIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="%s" password="%s"%s;'
USERS = f' user_admin="secret-of-admin" user_shop="{PASSWORD}"'
PROPERTIES = {
    # The listener keeps its name, which is that of a protocol too.
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": LOGIN % ("admin", "secret-of-admin", USERS),
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin;User:ANONYMOUS",
}
SCHEMA = pa.schema([("id", pa.int32()), ("note", pa.string())])
ADMIN = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """A broker with the users `admin` and `shop`, of whom the second may do nothing yet."""
    folder = tmp_path_factory.mktemp("guarded")
    (folder / "pyproject.toml").write_text("[tool.freshline]\n", encoding="utf-8")
    broker = new_broker(read_settings(folder, os.environ), folder / "broker", more=PROPERTIES)
    broker.start()
    yield broker
    broker.kill()


@pytest.fixture
def out(guarded, settings, tmp_path, monkeypatch):
    monkeypatch.setenv("SHOP_LOGIN", LOGIN % ("shop", PASSWORD, ""))
    topic = Topic(guarded.servers)
    options = {
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": "${env:SHOP_LOGIN}",
    }
    spec = declared(settings, topic, "id INT, note STRING", partitions="1", **options)
    return Shipped(topic, Host(tmp_path), spec, SCHEMA)


def test_a_wrong_password_is_refused_and_not_shown(out, monkeypatch):
    monkeypatch.setenv("SHOP_LOGIN", LOGIN % ("shop", "wrong-secret", ""))
    with pytest.raises(SinkRefusedError, match=r"[Aa]uthentication.*Correct the sink's `kafka\.` options") as found:
        out.writer().position()
    assert not found.value.retry_helps
    assert "secret" not in str(found.value)


def test_rights_that_are_missing_are_named_one_after_the_other(guarded, out):
    admin = AdminClient(
        {"bootstrap.servers": guarded.servers, **ADMIN, "sasl.username": "admin", "sasl.password": "secret-of-admin"}
    )

    def grant(kind, name, *operations):
        given = [
            AclBinding(kind, name, ResourcePatternType.PREFIXED, "User:shop", "*", operation, AclPermissionType.ALLOW)
            for operation in operations
        ]
        for each in admin.create_acls(given).values():
            each.result()

    def refused(said):
        with pytest.raises(SinkRefusedError, match=said) as found:
            out.whole(1, (1, "a"))
        assert PASSWORD not in str(found.value)

    refused("Read of groups whose names begin with freshline-")
    grant(ResourceType.GROUP, "freshline-", AclOperation.READ)
    refused("Read, Write, Describe and DescribeConfigs of the topic, and Create")
    topic = out.topic.name
    of_topic = (AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.CREATE)
    grant(ResourceType.TOPIC, topic, *of_topic)
    refused("DescribeConfigs of the topic")
    grant(ResourceType.TOPIC, topic, AclOperation.DESCRIBE_CONFIGS)
    refused("Write of transactional ids that begin with freshline-")
    grant(ResourceType.TRANSACTIONAL_ID, "freshline-", AclOperation.WRITE)
    assert out.whole(1, (1, "a")).written == 1
    assert out.read() == [{"id": 1, "note": "a"}]
