"""Bugs of connectors that the tests of sources must find. Each is one replacement, and the tests that fail with it."""

from __future__ import annotations

from functools import partial

from tests.plants import Planted, plant

_bug = partial(plant, slow=True)

FEEDS = "tests/scenarios/test_change_feeds.py"
LANDING = "tests/sources/http/test_landing.py"
CONFORMANCE = "tests/sources/test_conformance.py"
KNOWN = "tests/scenarios/test_known_keys.py"
SHARDS = "tests/sources/kinesis/test_shards.py"

BUGS: tuple[Planted, ...] = (
    _bug(
        "advanced before the commit", "sources/postgres/reader.py",
        "        found = rows.read(spark, self._schema())\n",
        "        if isinstance(portion.after, WalPosition):\n"
        "            self._server.advance(self._url, portion.after.lsn)\n"
        "        found = rows.read(spark, self._schema())\n",
        "what was read is lost where the engine is killed before it is committed",
        f"{CONFORMANCE}::TestPostgres::test_stopped_at_each_point_it_loses_and_repeats_nothing",
    ),
    _bug(
        "acknowledged before the commit", "sources/rabbitmq/queue.py",
        "        rows = held.rows.messages(spark, self._rabbit.queue)\n",
        "        rows = held.rows.messages(spark, self._rabbit.queue)\n"
        "        held.channel.basic_ack(held.tag, multiple=True)\n",
        "what was read is lost where the engine is killed before it is committed",
        f"{CONFORMANCE}::TestRabbitQueue::test_stopped_at_each_point_it_loses_and_repeats_nothing",
    ),
    _bug(
        "a key change without a delete", "sources/postgres/events.py",
        "            self._made(before, DELETE, lsn, begin, (), broken_before, change, image),\n", "",
        "the row stays under its old key", "tests/sources/postgres/test_events.py", slow=False,
    ),
    _bug(
        "a delete takes the key of another row", "sources/rows_of_key.py",
        "        if event.op == DELETE and event.is_asked:", "        if False:",
        "rows whose keys change places in a transaction are lost",
        "tests/sources/test_random_feeds.py",
    ),
    _bug(
        "a row that is sent before another leaves is the only one", "sources/rows_of_key.py",
        "            rows.append(_Row(event.image, event.place, True))",
        "            rows[:] = [_Row(event.image, event.place, True)]",
        "a row whose key another one had for a moment is lost", "tests/sources/test_random_feeds.py",
    ),
    _bug(
        "a column is known by its name", "sources/postgres/position.py",
        "        if column.number != self.number:", "        if False:",
        "rows keep the values of a column that was dropped",
        "tests/sources/postgres/test_reader.py::test_another_column_of_the_same_name_is_not_read_on",
    ),
    _bug(
        "the older value stands where the newer one is in quarantine", "sources/changes.py",
        "F.count_if(rejected | F.col(OP).isin(DELETE, INSERT))", "F.count_if(F.col(OP).isin(DELETE, INSERT))",
        "a row is stored that the database never had",
        f"{FEEDS}::test_a_value_that_was_not_sent_is_unknown_behind_what_ends_its_row",
    ),
    _bug(
        "what was not sent is NULL", "sources/changes.py",
        "F.when(good & lacks, known).otherwise(column)", "F.when(good & lacks & F.lit(False), known).otherwise(column)",
        "a large value is lost at the next update that leaves it",
        f"{FEEDS}::test_a_value_that_was_not_sent_is_the_last_known_one",
    ),
    _bug(
        "an event that comes again is applied again", "sources/changes.py",
        "    again: Column = known_by & (", "    again: Column = F.lit(False) & (",
        "an old state of a row comes back", f"{FEEDS}::test_an_event_that_is_delivered_again_is_dropped",
    ),
    _bug(
        "the events of a batch are not kept with those of the log", "ingest/duplicates.py",
        "bits=bits[~known], seq=log.seq, last",
        "bits=bits[:0], seq=log.seq, last",
        "an event that comes again is taken for a new one",
        f"{FEEDS}::test_events_are_looked_for_in_the_log_only_if_they_may_be_there",
    ),
    _bug(
        "the keys of a small batch are not kept with those of the log", "ingest/duplicates_in_memory.py",
        "    return marked, partial(before.after, bits=bits[stay], seq=log.seq)",
        "    return marked, partial(before.after, bits=bits[stay][:0], seq=log.seq)",
        "a record that comes again is taken for a new one", KNOWN,
    ),
    _bug(
        "keys of the log are forgotten within a small batch", "ingest/duplicates_in_memory.py",
        "    first = dict(known)\n", "    first: dict[_Key, int] = {}\n",
        "a record that comes again is taken for a new one", KNOWN,
    ),
    _bug(
        "batches at the end of a file are passed over", "compute/small_tables.py",
        "ordered[after] <= last", "ordered[after] < last",
        "a record that comes again is taken for a new one", KNOWN,
    ),
    _bug(
        "a child shard before its parent", "sources/kinesis/shards.py",
        "if name in shards or not all(parent is not None and parent.is_closed for parent in parents):",
        "if name in shards:",
        "the newest record of a key is stored before older ones, which then win",
        f"{SHARDS}::test_children_begin_in_a_later_commit_than_their_parent_ends", slow=False,
    ),
    _bug(
        "records that expired unread are passed over", "sources/kinesis/shards.py",
        "if shard.until is not None and shard.until < state.horizon:", "if False:",
        "records are lost without an error",
        f"{SHARDS}::test_records_that_expired_unread_are_an_error_and_a_clause", slow=False,
    ),
    _bug(
        "one schema for all ids", "sources/formats/registry_client.py",
        "return {each: self._found[each] for each in wanted if each in self._found}",
        "return {each: self._found[max(self._found)] for each in wanted if each in self._found}",
        "records are decoded by the newest schema, not by that which they were written with",
        "tests/sources/formats/test_registry.py", slow=False,
    ),
    _bug(
        "a post is answered before its name is durable", "sources/http/landing.py",
        "        _flush(folder)\n        self.failpoint", "        self.failpoint",
        "a power cut takes away what was answered", LANDING, slow=False,
    ),
    _bug(
        "a post has its name before its bytes", "sources/http/landing.py",
        "            os.fsync(file.fileno())\n", "",
        "a power cut leaves an empty file that is read", LANDING, slow=False,
    ),
    _bug(
        "a key is not known", "sources/http/landing.py",
        "            stored = _stored(file)\n", "            stored = None\n",
        "a post that is sent again replaces its file, which was read", LANDING, slow=False,
    ),
    _bug(
        "posts are as old as their file system says", "sources/http/landing.py",
        "            os.utime(handle, ns=(moment, moment))\n", "",
        "posts are read in the order of their names", LANDING, slow=False,
    ),
    _bug(
        "a log of posts is one of files", "ingest/batch.py",
        "and position.kind != of.kind:", "and not isinstance(position, of):",
        "files of another folder arrive in the log of a source that was posted to",
        f"{CONFORMANCE}::TestHttp::test_a_log_of_another_connector_is_not_written",
    ),
)  # fmt: skip
