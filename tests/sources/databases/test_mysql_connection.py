"""How an address of MySQL or MariaDB is read, and what an error of the server means."""

from __future__ import annotations

import ssl

import pymysql
import pytest

from freshline.errors import DatabaseRefusedError
from freshline.sources.databases.mysql_connection import MysqlConnection, read_address, source_error
from freshline.sources.jdbc.connector import Jdbc, Name

WHERE = "assets/feed.sql:1"


def test_an_address_has_its_parts_and_does_not_show_them():
    found = read_address("mysql://us%40er:p%C3%A4%2Fss@db.example.com:3307/shop%20a", where=WHERE)

    assert (found.host, found.port, found.user, found.password) == ("db.example.com", 3307, "us@er", "pä/ss")
    assert (found.database, found.socket, found.is_verified) == ("shop a", None, True)
    assert "ss" not in repr(found).replace("Address", "")


@pytest.mark.security
@pytest.mark.parametrize(
    ("place", "is_verified", "is_plain"),
    [
        ("db/x", True, False),
        ("db/x?ssl-mode=disabled", False, True),
        ("db/x?ssl-mode=verify-identity", True, False),
        ("localhost/x", False, False),
        ("127.0.0.1/x", False, False),
        ("localhost/x?ssl-mode=VERIFY_IDENTITY", True, False),
        ("localhost.example.com/x", True, False),
        ("127.example.com/x", True, False),
        ("[::1]/x", False, False),
        ("db/x?unix_socket=/run/mysqld/mysqld.sock", False, False),
    ],
)
def test_a_server_on_another_machine_is_verified_unless_the_address_says_otherwise(place, is_verified, is_plain):
    found = read_address(f"mysql://u:p@{place}", where=WHERE)

    assert (found.is_verified, found.is_plain) == (is_verified, is_plain)


@pytest.mark.security
@pytest.mark.parametrize(
    "url",
    [
        "mysql://u:hunter2@db",
        "mysql://u:hunter2@db/",
        "mysql://u:hunter2@db/a/b",
        "mysql://db/x",
        "mysql://u:hunter2@db:hunter2/x",
        "mysql://u:hunter2@db/x?ssl-mode=hunter2",
        "mysql://u:hunter2@db/x?hunter2=true",
        "mysql://u:hunter2@db/x?hunter2",
        "mysql://u:hunter2@[db/x",
    ],
)
def test_a_text_that_is_no_address_is_refused_and_not_shown(url):
    with pytest.raises(DatabaseRefusedError) as raised:
        read_address(url, where=WHERE)

    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(
    ("number", "retry_helps"),
    [
        *((number, True) for number in (1040, 1053, 1205, 1213, 1317, 1412, 1927, 2002, 2003, 2006, 2013)),
        *((number, False) for number in (1044, 1045, 1049, 1054, 1064, 1142, 1146, 1698)),
    ],
)
def test_errors_of_a_server_that_is_away_are_tried_again(number, retry_helps):
    assert source_error(pymysql.OperationalError(number, "said."), where=WHERE).retry_helps == retry_helps


@pytest.mark.security
def test_the_message_of_a_client_is_not_shown_and_a_certificate_is_not_tried_again():
    assert "hunter2" not in str(source_error(pymysql.OperationalError(2003, "at hunter2"), where=WHERE))
    error = pymysql.OperationalError(2003, "at hunter2")
    error.original_exception = ssl.SSLCertVerificationError("certificate verify failed")
    found = source_error(error, where=WHERE)

    assert (found.code, found.retry_helps, "hunter2" in str(found)) == ("DATABASE_REFUSED", False, False)


def test_a_file_of_tls_that_is_none_is_refused(tmp_path):
    file = tmp_path / "ca.pem"
    file.write_text("no certificate", encoding="utf-8")
    connection = MysqlConnection(Jdbc("", None, Name("t", False), "snapshot", tls_ca=str(file)), WHERE)

    with pytest.raises(DatabaseRefusedError, match="a file of `tls`"), connection.explained():
        connection.connect("mysql://user:hunter2@db.example.com/x")
