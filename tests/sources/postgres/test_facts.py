"""Whether a source goes on from its position, as values: each loss, each mistake, and its error."""

from __future__ import annotations

from dataclasses import replace

import pytest

from freshline.errors import (
    DatabaseError,
    DatabaseRefusedError,
    FreshlineError,
    PublicationError,
    ReplicaIdentityError,
    SlotForeignError,
    SlotLostError,
    SourceTypeError,
)
from freshline.sources.databases.postgres_values import BUILT_IN
from freshline.sources.postgres.connector import Postgres
from freshline.sources.postgres.facts import (
    DatabaseColumn,
    PostgresServerFacts,
    PublicationFacts,
    SlotFacts,
    SlotStep,
    TableFacts,
    find_step,
    require_publication,
    require_server,
    require_table,
)
from freshline.sources.postgres.position import WalPosition
from freshline.values.position import position_from_json

DECLARED = Postgres("${env:URL}", "public", "orders", "shop", "shop")
SLOT = SlotFacts("pgoutput", "db", None, 900, 100)
SERVER = PostgresServerFacts("77", 1, "db", 150_000, "logical", False, 2_000, SLOT)
COLUMNS = (DatabaseColumn("id", 20, False), DatabaseColumn("Amount", 1700, False), DatabaseColumn("twice", 23, True))
TABLE = TableFacts(5, "r", "d", True, COLUMNS, ("id",), (("id",),), BUILT_IN)
DECLARED_COLUMNS = [("id", "BIGINT"), ("amount", "DECIMAL(10,2)")]
POSITION = WalPosition("shop", "77", 1, "db", "public.orders", 5, 1_000, 3)
WHERE = "assets/feed.sql:1"


def table(found: TableFacts | None = TABLE, columns=DECLARED_COLUMNS, key=("id",)):
    return require_table(DECLARED, found, columns, key, 1_000, where=WHERE)


def step(server=SERVER, position: WalPosition | None = POSITION, declared=DECLARED, *, is_begun=False):
    return find_step(declared, server, table(), position, is_begun=is_begun, where=WHERE)


def test_a_position_is_what_its_json_says():
    assert POSITION.as_json()["lsn"] == "0/3E8"
    assert position_from_json(POSITION.as_json()) == POSITION


def test_a_source_begins_without_a_slot_and_goes_on_with_it():
    assert step(replace(SERVER, slot=None), None) is SlotStep.BEGIN
    assert step() is SlotStep.CONTINUE
    assert step(replace(SERVER, slot=replace(SLOT, confirmed=1_000))) is SlotStep.CONTINUE


def test_a_slot_that_was_there_before_is_somebody_elses_unless_a_note_says_otherwise():
    with pytest.raises(SlotForeignError, match="did not make it") as raised:
        step(position=None)
    assert "pg_drop_replication_slot('shop')" in str(raised.value)
    assert step(position=None, is_begun=True) is SlotStep.BEGIN


@pytest.mark.parametrize("position", [POSITION, None])
def test_a_slot_that_is_in_use_is_not_read(position):
    with pytest.raises(SlotForeignError, match="in use by process 4711"):
        step(replace(SERVER, slot=replace(SLOT, active_pid=4711)), position, is_begun=position is None)


LOSSES = {
    "gone": (replace(SERVER, slot=None), "the slot shop is gone"),
    "invalid": (replace(SERVER, slot=replace(SLOT, lost_because="its log was removed")), "no longer valid"),
    "moved": (replace(SERVER, slot=replace(SLOT, confirmed=1_001)), "somebody else read it"),
    "other plug-in": (replace(SERVER, slot=replace(SLOT, plugin="wal2json")), "one of wal2json"),
    "other server": (replace(SERVER, system_id="78"), "the server is 78, and 77 was read"),
    "other timeline": (replace(SERVER, timeline=2), "a standby took over"),
    "other database": (replace(SERVER, database="copy"), "the database is copy, and db was read"),
    "put back": (replace(SERVER, flushed=999), "it was put back"),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_a_loss_is_an_error_that_names_both_and_is_accepted_once(loss):
    server, said = LOSSES[loss]
    with pytest.raises(SlotLostError, match=said) as raised:
        step(server)
    assert raised.value.where == WHERE
    assert "'accept-slot' = 'shop@0/3E8'" in str(raised.value)

    accepted = replace(DECLARED, accepted_loss="shop@0/3E8")
    assert step(server, declared=accepted) is SlotStep.BEGIN
    # A loss at another position is another one.
    with pytest.raises(SlotLostError):
        step(server, declared=replace(DECLARED, accepted_loss="shop@0/3E7"))
    # Nothing was lost: the clause does nothing.
    assert step(declared=accepted) is SlotStep.CONTINUE
    # Half done: it goes on, whatever the state of the slot that was made.
    assert step(declared=accepted, is_begun=True) is SlotStep.BEGIN


def test_another_table_or_slot_is_a_loss_too():
    with pytest.raises(SlotLostError, match="is the table 5, and 4 was read"):
        step(position=replace(POSITION, table_id=4))
    with pytest.raises(SlotLostError, match="the slot is shop, and old was read"):
        step(position=replace(POSITION, slot="old"))


def test_a_server_must_keep_changes_and_be_the_primary():
    with pytest.raises(DatabaseRefusedError, match="wal_level = replica"):
        require_server(replace(SERVER, wal_level="replica"), where=WHERE)
    with pytest.raises(DatabaseError, match="standby"):
        require_server(replace(SERVER, is_standby=True), where=WHERE)


def test_columns_are_found_by_their_names_in_any_letter_case():
    assert [(column.name, column.found, column.is_key) for column in table().columns] == [
        ("id", "id", True),
        ("amount", "Amount", False),
    ]


REFUSED: dict[str, tuple[TableFacts | None, list[tuple[str, str]], type[FreshlineError], str]] = {
    "no table": (None, DECLARED_COLUMNS, DatabaseRefusedError, "no table public.orders"),
    "view": (replace(TABLE, kind="v"), DECLARED_COLUMNS, DatabaseRefusedError, "is no table"),
    "right": (replace(TABLE, may_select=False), DECLARED_COLUMNS, DatabaseRefusedError, "GRANT SELECT"),
    "no column": (TABLE, [("id", "BIGINT"), ("amuont", "INT")], DatabaseRefusedError, "has no column amuont"),
    "generated": (TABLE, [("id", "BIGINT"), ("twice", "INT")], DatabaseRefusedError, "is generated"),
    "type": (TABLE, [("id", "BIGINT"), ("amount", "DATE")], SourceTypeError, "Declare BIGINT or DECIMAL"),
    "nothing": (replace(TABLE, identity="n"), DECLARED_COLUMNS, ReplicaIdentityError, "REPLICA IDENTITY DEFAULT"),
    "other key": (replace(TABLE, key=("a", "b")), DECLARED_COLUMNS, ReplicaIdentityError, r"the key \(a, b\)"),
    "no key": (replace(TABLE, key=()), DECLARED_COLUMNS, ReplicaIdentityError, "for want of a PRIMARY KEY"),
    "full": (replace(TABLE, identity="f", unique_keys=()), DECLARED_COLUMNS, ReplicaIdentityError, "no unique index"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_table_that_does_not_fit_its_declaration_is_an_error(case):
    found, columns, error, said = REFUSED[case]
    with pytest.raises(error, match=said) as raised:
        table(found, columns)
    assert (raised.value.where, raised.value.retry_helps) == (WHERE, False)


def test_a_whole_old_image_needs_a_key_that_is_unique():
    assert table(replace(TABLE, identity="f", unique_keys=(("x",), ("id",))))


PUBLICATIONS = {
    "not the table": (PublicationFacts((), None), "ALTER PUBLICATION shop ADD TABLE public.orders"),
    "by partition": (PublicationFacts((), None, by_partition=True), "SET .publish_via_partition_root = true"),
    "not all kinds": (PublicationFacts(("truncate",), ("id", "Amount")), "leaves out: truncate"),
    "not all rows": (PublicationFacts((), ("id", "Amount"), True), "has a condition on rows"),
    "not all columns": (PublicationFacts((), ("id",)), "does not have the columns Amount"),
}


@pytest.mark.parametrize("case", PUBLICATIONS)
def test_a_publication_that_lacks_something_is_an_error(case):
    found, said = PUBLICATIONS[case]
    with pytest.raises(PublicationError, match=said):
        require_publication(DECLARED, found, table(), where=WHERE)
    require_publication(DECLARED, PublicationFacts((), ("id", "Amount", "twice")), table(), where=WHERE)


def test_statements_name_a_table_as_the_database_reads_it():
    lines = replace(DECLARED, schema="Shop", table='Order "Lines"')
    written = r'"Shop"\."Order ""Lines"""'
    with pytest.raises(DatabaseRefusedError, match=f"GRANT SELECT ON {written} TO"):
        require_table(lines, replace(TABLE, may_select=False), DECLARED_COLUMNS, ("id",), 1_000, where=WHERE)
    for found in (replace(TABLE, identity="n"), replace(TABLE, key=())):
        with pytest.raises(ReplicaIdentityError, match=f"ALTER TABLE {written} REPLICA"):
            require_table(lines, found, DECLARED_COLUMNS, ("id",), 1_000, where=WHERE)
    with pytest.raises(PublicationError, match=f"ADD TABLE {written}"):
        require_publication(lines, PublicationFacts((), None), table(), where=WHERE)
