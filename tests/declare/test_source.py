"""Sources: columns, options and references."""

from __future__ import annotations

import time

import pytest

from freshline.errors import DeclarationErrors
from freshline.sources.delta.connector import Delta
from freshline.sources.files.connector import Files
from freshline.sources.formats.avro import Avro
from freshline.sources.formats.csv import Csv
from freshline.sources.formats.rows_in_files import Orc, Parquet
from freshline.sources.formats.text import Text
from freshline.sources.formats.xml import Xml
from freshline.sources.kafka.connector import Kafka
from freshline.values.column_types import normalise_type
from freshline.values.names import TableName
from freshline.values.spec import Column, SourceSpec

S = TableName(None, "s")
KAFKA = "'connector' = 'kafka', 'format' = 'json', 'topic' = 't', 'bootstrap.servers' = 'h:1'"
SCHEMA = '{"type": "record", "name": "r", "fields": [{"name": "id", "type": "int", "default": 0}]}'
FILES = "'connector' = 'files', 'format' = 'json', 'path' = 'landing/s'"
XML = "'connector' = 'files', 'format' = 'xml', 'row-tag' = 'r', 'path' = 'x'"
AVRO = "'connector' = 'files', 'format' = 'avro', 'path' = 'x'"
CSV = "'connector' = 'files', 'format' = 'csv', 'path' = 'x'"
PARQUET = "'connector' = 'files', 'format' = 'parquet', 'path' = 'x'"


def declare(project, options: str, columns: str = "id INT, a STRING", clauses: str = "") -> None:
    project.declare("s.sql", f"CREATE SOURCE s (\n{columns}\n) {clauses}\nWITH ({options})")


def spec(project) -> SourceSpec:
    found = project.read().spec(S)
    assert isinstance(found, SourceSpec)
    return found


def path_of(source: SourceSpec) -> str:
    """The path of a source that has one: a landing folder or a table."""
    assert isinstance(source.connection, Files | Delta)
    return source.connection.path


def test_a_source_of_files_has_its_defaults(project):
    declare(project, FILES, columns="id INT, a STRING, PRIMARY KEY (ID)")
    source = spec(project)

    assert source.columns == (Column("id", "INT"), Column("a", "STRING"))
    assert isinstance(source.connection, Files)
    assert source.connection.path == str(project.root / "landing/s")
    assert source.format is not None
    assert (source.connector, source.format.name, source.is_log) == ("files", "json", True)
    assert (source.connection.settle_seconds, source.deduplicate_seconds) == (2.0, 7 * 86400.0)
    assert source.primary_key == ("id",)
    assert source.freshness is None


def test_every_option_of_a_source_of_files(project):
    declare(
        project,
        "'connector' = 'files', 'format' = 'csv', 'path' = '/abs/x', 'settle' = '0 seconds', 'header' = 'false', "
        "'null-value' = '', 'deduplicate' = 'forever', 'max-record-bytes' = '1000', 'history' = '1 day', "
        "'owner' = 'o', "
        "'group' = 'g'",
        columns="id INT, PRIMARY KEY (id)",
        clauses="COMMENT 'c' FRESHNESS = INTERVAL '1' DAY",
    )
    source = spec(project)

    assert source.connection == Files("/abs/x", settle_seconds=0.0)
    assert source.format == Csv(header=False, null_value="")
    assert source.max_record_bytes == 1000
    assert source.deduplicate_seconds is None
    assert (source.history_seconds, source.owner, source.group) == (86_400, "o", "g")
    assert source.comment == "c"
    assert source.freshness is not None
    assert source.freshness.seconds == 86_400


@pytest.mark.parametrize(
    ("options", "columns", "expected"),
    [
        ("'format' = 'parquet'", "id INT", Parquet()),
        ("'format' = 'orc'", "id INT", Orc()),
        ("'format' = 'avro'", "id INT", Avro()),
        ("'format' = 'avro', 'avro.schema' = '" + SCHEMA + "'", "id INT", Avro(SCHEMA)),
        ("'format' = 'xml', 'row-tag' = 'a:order'", "id INT", Xml("a:order")),
        ("'format' = 'text'", "line STRING, f STRING METADATA FROM 'file'", Text()),
        ("'format' = 'text', 'whole-file' = 'true'", "line STRING", Text(whole_file=True)),
        ("'format' = 'csv', 'multi-line' = 'true'", "id INT", Csv(multi_line=True)),
        ("'format' = 'csv', 'separator' = 'tab', 'escape' = '\\\\'", "id INT", Csv(separator="\t", escape="\\")),
    ],
)
def test_each_format_of_files_has_its_options(project, options, columns, expected):
    declare(project, f"'connector' = 'files', 'path' = 'x', {options}", columns=columns)

    assert spec(project).format == expected


def test_another_way_to_find_records_is_another_meaning(project):
    seen = set()
    for options in (
        "'csv'",
        "'csv', 'multi-line' = 'true'",
        "'parquet'",
        "'xml', 'row-tag' = 'a'",
        "'xml', 'row-tag' = 'b'",
    ):
        declare(project, f"'connector' = 'files', 'path' = 'x', 'format' = {options}")
        seen.add(spec(project).fingerprint)
    declare(project, "'connector' = 'files', 'path' = 'x', 'format' = 'csv', 'multi-line' = 'false'")

    assert len(seen) == 5
    assert spec(project).fingerprint in seen


def test_a_delta_table_is_read_in_place(project):
    declare(project, "'connector' = 'delta', 'path' = '../other/table'")
    source = spec(project)

    assert not source.is_log
    assert path_of(source) == str(project.root.parent / "other/table")


def test_a_path_with_a_scheme_is_kept(project):
    declare(project, "'connector' = 'delta', 'path' = 's3://bucket/table'")
    assert path_of(spec(project)) == "s3://bucket/table"


def test_a_source_of_a_topic_has_its_defaults(project):
    declare(project, KAFKA)
    source = spec(project)

    assert (source.connector, source.is_log) == ("kafka", True)
    assert source.connection == Kafka("t", "h:1")


def test_every_option_of_a_source_of_a_topic(project):
    declare(
        project,
        "'connector' = 'kafka', 'format' = 'json', 'topic' = '${env:TOPIC}', 'bootstrap.servers' = '${file:brokers}', "
        "'starting' = '2026-11-01 02:00:00+02:00', 'rate-limit' = '500', 'accept-gap' = '0:5-9, 3:0-12', "
        "'accept-topic' = 'abc', 'deduplicate' = '1 day', 'max-record-bytes' = '1000', 'history' = '1 day', "
        "'kafka.security.protocol' = 'SASL_SSL', 'kafka.sasl.jaas.config' = '${file:secret}'",
        columns="id INT, PRIMARY KEY (id), o BIGINT METADATA FROM 'offset', p INT METADATA FROM 'partition', "
        "t STRING METADATA FROM 'topic', at TIMESTAMP METADATA FROM 'timestamp', k BINARY METADATA FROM 'key', "
        "h ARRAY<STRUCT<key: STRING, value: BINARY>> METADATA FROM 'headers'",
    )

    # Nothing of what the references stand for is in the declaration.
    assert spec(project).connection == Kafka(
        topic="${env:TOPIC}",
        servers="${file:brokers}",
        starting="2026-11-01T00:00:00+00:00",
        rate_limit=500,
        accepted_gaps=((0, 5, 9), (3, 0, 12)),
        accepted_topic="abc",
        client={"security.protocol": "SASL_SSL", "sasl.jaas.config": "${file:secret}"},
    )


def test_metadata_columns_are_distinguished_from_those_of_the_record(project):
    declare(
        project,
        FILES,
        columns="id INT, at TIMESTAMP METADATA FROM 'ingested_at', f STRING METADATA FROM 'FILE', "
        "n BIGINT METADATA FROM 'record'",
    )
    source = spec(project)

    assert [column.metadata for column in source.columns] == [None, "ingested_at", "file", "record"]
    assert source.record_columns == (Column("id", "INT"),)


def test_the_effect_of_idle_partitions_on_a_watermark_is_declared(project):
    columns = "id INT, ts TIMESTAMP, WATERMARK FOR ts AS ts"
    declare(project, FILES, columns=columns)
    by_default = spec(project)
    declare(project, FILES + ", 'watermark.idle' = '5 seconds', 'watermark.when-idle' = 'advance'", columns=columns)
    stated = spec(project)

    assert (by_default.idle_seconds, by_default.follows_clock) == (60, False)
    assert (stated.idle_seconds, stated.follows_clock) == (5, True)
    assert by_default.fingerprint == stated.fingerprint
    declare(project, FILES + ", 'watermark.when-idle' = 'wait'", columns=columns)
    assert "Accepted is stand or advance" in project.error()[2]


def test_references_are_resolved_in_the_path_and_never_kept_in_the_options(project):
    project.environ["LANDING"] = "/data/landing"
    project.write("where.txt", "inner\n")
    declare(project, "'connector' = 'delta', 'path' = '${env:LANDING}/${file:where.txt}/${environment}'")
    source = spec(project)

    assert path_of(source) == "/data/landing/inner/local"
    assert source.options["path"] == "${env:LANDING}/${file:where.txt}/${environment}"

    project.environ["LANDING"] = "/elsewhere"
    assert path_of(spec(project)) == "/elsewhere/inner/local"


def test_the_value_of_a_reference_is_not_in_the_cache(project):
    project.environ["LANDING"] = "/a-secret-place"
    declare(project, "'connector' = 'delta', 'path' = '${env:LANDING}/t'")
    spec(project)

    cached = list((project.root / ".freshline").rglob("*"))
    assert any(file.is_file() for file in cached)
    assert not any(b"a-secret-place" in file.read_bytes() for file in cached if file.is_file())


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("${env:NOT_THERE}", "there is no environment variable NOT_THERE"),
        ("${file:not/there}", "cannot be read"),
        ("${secret:x}", "${secret:x} is not a reference"),
        ("${env:}", "is not a reference"),
    ],
)
def test_a_reference_to_nothing_is_reported_with_its_line(project, path, said):
    declare(project, f"'connector' = 'delta', 'path' = '{path}'")
    project.check_error("REFERENCE", said, at="assets/s.sql:4")


@pytest.mark.parametrize(
    ("options", "rule", "said"),
    [
        ("'format' = 'json', 'path' = 'x'", "OPTION_NEEDS", "needs WITH ('connector'"),
        ("'connector' = 'files', 'format' = 'json'", "OPTION_NEEDS", "needs the option 'path'"),
        ("'connector' = 'files', 'path' = 'x'", "OPTION_NEEDS", "needs the option 'format'"),
        ("'connector' = 'mysql', 'url' = 'x'", "NOT_BUILT", "not built yet"),
        (
            "'connector' = 'file', 'path' = 'x'",
            "EXTENSION",
            "files, delta, kafka, postgres, jdbc, rabbitmq, kinesis or http",
        ),
        ("'connector' = 'files', 'format' = 'debezium', 'path' = 'x'", "NOT_BUILT", "not built yet"),
        (
            "'connector' = 'files', 'format' = 'yaml', 'path' = 'x'",
            "EXTENSION",
            "There are json, csv, parquet, orc, avro, xml, text, protobuf, json-schema, debezium-json or ",
        ),
        ("'connector' = 'files', 'format' = 'json', 'path' = ''", "OPTION_VALUE", "not empty"),
        (FILES + ", 'settle' = 'soon'", "OPTION_VALUE", "soon is not a length of time"),
        (FILES + ", 'settle' = '-1 seconds'", "OPTION_VALUE", "-1 seconds is not a length of time"),
        (FILES + ", 'header' = 'true'", "OPTION_NEEDS", "needs format = csv"),
        (FILES + ", 'null-value' = 'NA'", "OPTION_NEEDS", "needs format = csv"),
        (FILES + ", 'deduplicate' = '1 day'", "OPTION_NEEDS", "a PRIMARY KEY, which names the event"),
        (FILES + ", 'max-record-bytes' = '0'", "OPTION_VALUE", "a whole number from 1"),
        (FILES + ", 'max-record-bytes' = '1e6'", "OPTION_VALUE", "a whole number from 1"),
        (FILES + ", 'rate-limit' = '5'", "OPTION_NEEDS", "needs connector = kafka"),
        (FILES + ", 'kafka.client.id' = 'x'", "OPTION_NEEDS", "needs connector = kafka"),
        (KAFKA + ", 'path' = 'x'", "OPTION_NEEDS", "needs connector = files or delta"),
        (KAFKA + ", 'settle' = '1 second'", "OPTION_NEEDS", "needs connector = files"),
        (KAFKA.replace("'topic' = 't', ", ""), "OPTION_NEEDS", "needs the option 'topic'"),
        (
            KAFKA.replace("'json'", "'csv'"),
            "NOT_BUILT",
            "Built for Kafka is json, avro, text, protobuf, json-schema, debezium-json or debezium-avro",
        ),
        (KAFKA.replace("'json'", "'orc'"), "NOT_BUILT", "'format' = 'orc' is of files"),
        (FILES + ", 'multi-line' = 'true'", "OPTION_NEEDS", "needs format = csv"),
        (FILES + ", 'whole-file' = 'true'", "OPTION_NEEDS", "needs format = text"),
        (FILES + ", 'row-tag' = 'row'", "OPTION_NEEDS", "needs format = xml"),
        (FILES + ", 'avro.schema' = '{}'", "OPTION_NEEDS", "needs format = avro"),
        (FILES.replace("'json'", "'xml'"), "OPTION_NEEDS", "needs the option 'row-tag'"),
        (FILES.replace("'json'", "'xml'") + ", 'row-tag' = '<row>'", "OPTION_VALUE", "the name of an element"),
        (FILES.replace("'json'", "'text'"), "OPTION_NEEDS", "needs one column of the record, a STRING"),
        (AVRO + ", 'avro.schema' = 'x'", "OPTION_VALUE", "the JSON of an Avro record"),
        (AVRO + """, 'avro.schema' = '{"type": "string"}'""", "OPTION_VALUE", "it is no record"),
        (KAFKA + ", 'starting' = 'yesterday'", "OPTION_VALUE", "earliest, latest or a time"),
        (KAFKA + ", 'rate-limit' = '0'", "OPTION_VALUE", "a whole number from 1"),
        (KAFKA + ", 'accept-gap' = '0:9-3'", "OPTION_VALUE", "partition:from-to"),
        (KAFKA + ", 'kafka.group.id' = 'x'", "OPTION_VALUE", "freshline sets group.id itself"),
        (KAFKA + ", 'kafka.ssl.key.password' = 'geheim'", "REFERENCE", "is a secret"),
        (KAFKA + ", 'kafka.sasl.jaas.config' = 'a b password=x'", "REFERENCE", "is a secret"),
        (KAFKA + ", 'kafka.client.id' = 'a-${env:X}'", "REFERENCE", "a reference is the whole value"),
        (FILES + ", 'watermark.idle' = '1 minute'", "OPTION_NEEDS", "needs a WATERMARK, which names the column"),
        (FILES + ", 'watermark.when-idle' = 'stand'", "OPTION_NEEDS", "needs a WATERMARK, which names the column"),
        (FILES + ", 'watermark.max-ahead' = '1 day'", "OPTION_NEEDS", "needs a WATERMARK, which names the column"),
        (FILES + ", 'pth' = '5'", "UNKNOWN_OPTION", "Did you mean path?"),
        (FILES + ", 'merge' = 'first_row'", "UNKNOWN_OPTION", "there is no option 'merge'"),
        (FILES + ", 'owner' = '${env:X}'", "REFERENCE", "cannot take a reference"),
        ("'connector' = 'delta', 'path' = 'x', 'format' = 'json'", "OPTION_NEEDS", "needs connector = files or kafka"),
        ("'connector' = 'delta', 'path' = 'x', 'settle' = '1 second'", "OPTION_NEEDS", "needs connector = files"),
        (CSV + ", 'header' = 'yes'", "OPTION_VALUE", "true or false"),
        (CSV + ", 'separator' = ';;'", "OPTION_VALUE", "'separator'"),
        (CSV + ", 'separator' = '\"'", "OPTION_VALUE", "'separator'"),
        (CSV + ", 'escape' = ','", "OPTION_VALUE", "nor the separator"),
    ],
)
def test_an_option_that_cannot_be_is_reported(project, options, rule, said):
    declare(project, options)
    project.check_error(rule, said)


@pytest.mark.parametrize(
    ("columns", "rule", "line", "said"),
    [
        ("id INT,\nPRIMARY KEY (ident)", "PRIMARY_KEY", 3, "ident, which is not a column. Columns are id."),
        ("id INT, at TIMESTAMP METADATA FROM 'ingested_at',\nPRIMARY KEY (at)", "PRIMARY_KEY", 3, "which is METADATA"),
        ("m MAP<STRING, INT>,\nPRIMARY KEY (m)", "PRIMARY_KEY", 3, "a MAP"),
        ("id INT,\n_freshline_x INT", "RESERVED_NAME", 3, "freshline's own"),
        ("id INT,\n_change_type STRING", "RESERVED_NAME", 3, "what is read of changes"),
        ("id INT,\n`a\tb` INT", "COLUMN_NAME", 3, "a tab or a line end"),
        ("id INT,\nat TIMESTAMP METADATA FROM 'time'", "METADATA", 3, "there is no METADATA 'time'"),
        ("id INT,\nat STRING METADATA FROM 'ingested_at'", "METADATA", 3, "is TIMESTAMP, not STRING"),
        ("id INT,\nat BIGINT METADATA FROM 'offset'", "METADATA", 3, "A source of files has ingested_at, file, record"),
        ("at TIMESTAMP METADATA FROM 'ingested_at'", "METADATA", 1, "all columns are METADATA"),
        ("id INT,\nw TIMESTAMP METADATA FROM 'watermark'", "METADATA", 3, "Add WATERMARK FOR a column"),
        (
            "t TIMESTAMP, w TIMESTAMP METADATA FROM 'watermark',\nWATERMARK FOR w AS w",
            "WATERMARK",
            3,
            "which is the watermark itself",
        ),
    ],
)
def test_a_column_that_cannot_be_is_reported_with_its_line(project, columns, rule, line, said):
    declare(project, FILES, columns=columns)
    project.check_error(rule, said, at=f"assets/s.sql:{line}")


def test_a_delta_source_knows_nothing_beside_the_record(project):
    declare(project, "'connector' = 'delta', 'path' = 'x'", columns="id INT, f STRING METADATA FROM 'file'")
    assert project.error()[0] == "METADATA"


def test_a_fingerprint_changes_with_the_columns_and_not_with_the_place(project):
    declare(project, FILES)
    first = spec(project).fingerprint
    declare(project, FILES.replace("landing/s", "elsewhere"))
    moved = spec(project).fingerprint
    declare(project, FILES, columns="id BIGINT, a STRING")

    assert moved == first
    assert spec(project).fingerprint != first


# As they were before connectors and formats had values of their own: a warehouse must be opened as it was left.
FINGERPRINTS = {
    f"a (id INT, a STRING) WITH ({FILES})": "9872bfd70f63b47c",
    "b (id INT, f STRING METADATA FROM 'file', PRIMARY KEY (id)) WITH ('connector' = 'files', 'format' = 'csv', "
    "'path' = 'x', 'header' = 'false', 'null-value' = 'NA', 'deduplicate' = 'forever', 'settle' = '1 second')": (
        "6eb6dc5215f29bab"
    ),
    f"c (id INT, o BIGINT METADATA FROM 'offset') WITH ({KAFKA}, 'rate-limit' = '5')": "dfb7aff53033eafe",
    "d (id INT) WITH ('connector' = 'delta', 'path' = 'x')": "2ef47f8e53964fd5",
    "e (id INT) WITH ('connector' = 'files', 'format' = 'csv', 'path' = 'x')": "3a1b47eeeeb2edf8",
}


@pytest.mark.parametrize("declared", FINGERPRINTS, ids=lambda declared: declared[0])
def test_the_fingerprint_of_a_source_stays_as_it_was(project, declared):
    project.declare(f"{declared[0]}.sql", f"CREATE SOURCE {declared}")

    assert project.read().spec(TableName(None, declared[0])).fingerprint == FINGERPRINTS[declared]


def test_the_lags_that_alert_are_read(project):
    declare(project, f"{FILES}, 'alert.warn-after' = '1 minute', 'alert.fail-after' = '1 hour'")
    found = spec(project)

    assert (found.warn_after_seconds, found.fail_after_seconds) == (60, 3600)


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("s3://bucket/x", "begins with s3:, and files are read from folders of this machine"),
        ("S3A://bucket/x", "the path at which it is mounted"),
        ("file:///var/landing", "Write '/var/landing'"),
        ("file:/var/landing", "Write '/var/landing'"),
        ("FILE://localhost/var/landing", "Write '/var/landing'"),
        ("file:", "the path at which it is mounted"),
        ("hdfs:/x", "begins with hdfs:"),
        ("hdfs://name-node:8020/x", "Write the path at which it is mounted, or move complete files into a folder of"),
        ("HDFS://shop/x", "begins with HDFS:"),
        ("hdfs:x", "begins with hdfs:"),
        ("dbfs:/x", "begins with dbfs:"),
        ("https://host/x", "begins with https:"),
        ("${env:LANDING}", "begins with s3:"),
        ("  ", "not empty"),
        ("~nobody-of-this-name/x", "the home of somebody unknown"),
        (".freshline/local/warehouse", "is in the warehouse"),
        (".freshline/x/../local/warehouse/t", "is in the warehouse"),
        ("a.json", "is a file"),
    ],
)
def test_a_landing_path_that_is_no_folder_of_this_machine_is_refused(project, path, said):
    project.environ["LANDING"] = "s3://secret@bucket/x"
    (project.root / "a.json").write_text("{}")
    declare(project, f"'connector' = 'files', 'format' = 'json', 'path' = '{path}'")
    message = project.check_error("OPTION_VALUE", said, at="assets/s.sql:4")

    assert "secret" not in message


@pytest.mark.parametrize("mistaken", ["%20", "%fF", "\\", "\t"])
def test_a_delta_source_in_a_folder_that_would_be_taken_for_another_is_refused(project, mistaken):
    written = mistaken.replace("\\", "\\\\")
    declare(project, f"'connector' = 'delta', 'path' = 'a{written}b'")
    project.check_error("OPTION_VALUE", f"has {mistaken!r} in it")


def test_a_delta_source_may_be_in_a_folder_that_resembles_a_pattern(project):
    declare(project, "'connector' = 'delta', 'path' = 'a[b]#?*{c}%2%'")

    assert path_of(spec(project)).endswith("/a[b]#?*{c}%2%")


@pytest.mark.parametrize("path", ["a:b/c", "file", "s3/x", "landing/s3:x", "./hdfs:x", "~/x"])
def test_a_landing_path_may_have_a_colon(project, path):
    declare(project, f"'connector' = 'files', 'format' = 'json', 'path' = '{path}'")

    assert path_of(spec(project)).startswith("/")


def test_a_path_that_no_system_takes_is_refused(project):
    declare(project, f"'connector' = 'files', 'format' = 'json', 'path' = '{'a/' * 10_000}'")

    with pytest.raises(DeclarationErrors, match="is not a path that can be used here: File name too long"):
        project.read()


@pytest.mark.seconds
def test_a_source_with_very_many_columns_is_read_in_a_time_that_grows_with_their_number(project):
    def seconds(count: int) -> float:
        declare(project, FILES, ", ".join(f"c{number} INT" for number in range(count)))
        begun = time.process_time()
        assert len(spec(project).columns) == count
        return time.process_time() - begun

    # The least of three: a collection of garbage in one of them is no growth.
    few, many = (min(seconds(count) for _ in range(3)) for count in (1_000, 8_000))

    assert many < 24 * few


OF_TOPIC = "'connector' = 'kafka', 'topic' = 't', 'bootstrap.servers' = 'localhost:1', 'format' = "
DEBEZIUM = OF_TOPIC + "'debezium-json'"
PROTOBUF = OF_TOPIC + "'protobuf', 'registry.url' = 'http://localhost:1'"
POSTGRES = "'connector' = 'postgres', 'url' = '${env:URL}', 'table' = 'public.t', 'slot' = 's'"


@pytest.mark.parametrize(
    ("options", "kind", "said"),
    [
        (FILES, "MAP<INT, STRING>", "which records of json do not give: names in a record are texts"),
        (FILES, "ARRAY<STRUCT<`MAP<STRING`: MAP<DATE, INT>>>", "the keys of this MAP are DATE"),
        (XML, "MAP<INT, STRING>", "records of xml do not give"),
        (AVRO, "STRUCT<a: MAP<BINARY, INT>>", "records of avro do not give"),
        (DEBEZIUM, "MAP<BIGINT, STRING>", "records of debezium-json do not give"),
        (PROTOBUF, "MAP<DOUBLE, STRING>", "the keys of a map are texts, whole numbers or booleans, and not DOUBLE"),
        (CSV, "ARRAY<INT>", "a field has no values within. Declare STRING"),
        (CSV, "STRUCT<a: INT>", "records of csv do not give"),
        (CSV, "MAP<STRING, INT>", "records of csv do not give"),
        (POSTGRES, "MAP<STRING, INT>", "no column of a database is read so"),
        (POSTGRES, "ARRAY<ARRAY<INT>>", "no column of a database is read so"),
    ],
)
def test_a_type_that_no_record_of_the_format_gives_is_refused_with_its_line(project, options, kind, said):
    project.environ["URL"] = "postgresql://u@h/d"
    key = "PRIMARY KEY (id)" if options in (DEBEZIUM, POSTGRES) else "other STRING"
    declare(project, options, columns=f"id INT,\nm {kind},\n{key}")
    message = project.check_error("COLUMN_TYPE", said, at="assets/s.sql:3")

    assert message.startswith(f"column m is {normalise_type(kind)}, which")


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        (FILES, "MAP<STRING, STRUCT<a: ARRAY<INT>>>"),
        (PARQUET, "MAP<INT, MAP<DATE, STRING>>"),
        (PROTOBUF, "MAP<BIGINT, STRING>"),
        (CSV, "DECIMAL(10,2)"),
        (POSTGRES, "ARRAY<INT>"),
    ],
)
def test_a_type_that_records_of_the_format_give_is_taken(project, options, kind):
    project.environ["URL"] = "postgresql://u@h/d"
    key = "PRIMARY KEY (id)" if options == POSTGRES else "other STRING"
    declare(project, options, columns=f"id INT,\nm {kind},\n{key}")

    assert spec(project).columns[1].type == normalise_type(kind)


def test_the_key_of_a_record_has_types_of_its_own_format(project):
    declare(
        project,
        OF_TOPIC + "'json', 'key.format' = 'json', 'key.columns' = 'm'",
        columns="id INT,\nm STRUCT<a: MAP<INT, INT>>",
    )

    assert project.error()[:2] == ("COLUMN_TYPE", "assets/s.sql:3")
