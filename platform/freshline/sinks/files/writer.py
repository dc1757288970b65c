"""Files as a sink: a folder for each version, which is there as a whole or not at all.

The note `_SUCCESS` of a version has the position, so the newest complete folder says which state the sink has. A
process that is killed leaves a hidden folder, which the next refresh removes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from freshline.errors import SinkError, SinkFencedError, SinkRefusedError, SinkSchemaError
from freshline.sinks.files.csv_rows import csv_header, csv_lines, read_csv
from freshline.sinks.files.folder import SUCCESS, Folder, Found, Version, open_folder
from freshline.sinks.files.sink import FileFormat, FilesSink
from freshline.sinks.writer import Delivered, Delivery, KeepRejected, OutgoingRows, SinkHost, SinkWriter
from freshline.values.sink_position import SinkPosition
from freshline.values.spec import TableSpec

_READ_ROWS = 20_000
# Parts of what libhdfs and pyarrow say where something of Hadoop is not installed.
_NOT_INSTALLED = ("libhdfs", "libjvm", "CLASSPATH")


class FilesWriter(SinkWriter):
    """Writes the versions of a table into a folder."""

    def __init__(self, spec: TableSpec, host: SinkHost) -> None:
        super().__init__(spec, host)
        assert isinstance(spec.sink, FilesSink)
        self._sink = spec.sink
        self._opened: Folder | None = None

    def close(self) -> None:
        self._opened = None

    def position(self) -> SinkPosition | None:
        with self._folder() as folder:
            newest = folder.look().newest
            if newest is None:
                return None
            # Of a refresh that was killed between the two.
            folder.point()
            return newest.position

    def apply(self, rows: OutgoingRows, delivery: Delivery, keep_rejected: KeepRejected) -> Delivered:
        raise NotImplementedError("files are given whole versions: see takes_changes")

    def compare(self, rows: OutgoingRows, delivery: Delivery, keep_rejected: KeepRejected) -> Delivered:
        with self._folder() as folder:
            found = self._checked(folder, delivery)
            for name in (*found.left_over, *found.incomplete):
                folder.remove(name)
            written = folder.begin()
            try:
                names, count = self._write_parts(folder, written, rows)
                note = {**json.loads(delivery.after.to_json()), "files": names, "rows": count}
                folder.write(f"{written}/{SUCCESS}", json.dumps(note, sort_keys=True).encode() + b"\n")
                # While it was written, another engine may have come.
                found = self._checked(folder, delivery, since=found)
                self.host.failpoint("sink-before-commit")
                version = Version(found.next_number, note, delivery.after)
                if not folder.publish(written, version.name):
                    raise self._overtaken()
            except Exception:
                folder.remove(written)
                raise
            self.host.failpoint("sink-committed")
            newest = folder.look().newest
            if newest is None or newest.number != version.number:
                # It went below one that came after the check. Nobody is pointed to it.
                folder.take_away(version.name)
                raise self._overtaken()
            folder.point()
            for old in folder.look().versions[: -self._sink.keep]:
                folder.take_away(old.name)
        return Delivered(count, 0)

    def read(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        with self._folder() as folder:
            newest = folder.look().newest
            for name in () if newest is None else newest.note["files"]:
                assert newest is not None
                with folder.system.open_input_file(folder.at(f"{newest.name}/{name}")) as file:
                    yield from self._read_part(file, schema)

    def _read_part(self, file: Any, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        if self._sink.format == FileFormat.CSV:
            yield from read_csv(file, schema)
            return
        for batch in pq.ParquetFile(file).iter_batches(_READ_ROWS, columns=schema.names, use_threads=False):
            yield from pa.Table.from_batches([batch]).select(schema.names).cast(schema).to_batches()

    def _checked(self, folder: Folder, delivery: Delivery, *, since: Found | None = None) -> Found:
        """The folder as it is now, where this delivery may be written. Raises the errors of sinks."""
        found = folder.look()
        newest = found.newest
        self.require_position(None if newest is None else newest.position, delivery)
        if since is not None and (None if since.newest is None else since.newest.number) != (
            None if newest is None else newest.number
        ):
            raise self._overtaken()
        if newest is None and not delivery.takes_over and (found.others or found.incomplete):
            raise SinkSchemaError(
                f"{self._sink.path} has {(*found.others, *found.incomplete)[0]}, which freshline has not written. Name "
                f"an empty folder; or with `freshline refresh {self.spec.name} --full` versions stand beside it.",
                where=self.where,
            )
        return found

    def _overtaken(self) -> SinkFencedError:
        return SinkFencedError(
            "another engine has written a version in the meantime. This one was removed. Ask again.", where=self.where
        )

    def _write_parts(self, folder: Folder, written: str, rows: OutgoingRows) -> tuple[list[str], int]:
        """The names of the files, at least one, and the number of rows."""
        names: list[str] = []
        count, left = 0, 0
        part: _Part | None = None
        try:
            for batch in rows.read_upserts():
                start = 0
                while start < batch.num_rows:
                    if part is None or left == 0:
                        if part is not None:
                            part.close()
                        part, left = self._begin_part(folder, written, names, rows.schema), self._sink.rows_per_file
                    some = batch.slice(start, left)
                    part.write(some)
                    start, left, count = start + some.num_rows, left - some.num_rows, count + some.num_rows
            if part is None:
                part = self._begin_part(folder, written, names, rows.schema)
        finally:
            if part is not None:
                part.close()
        return names, count

    def _begin_part(self, folder: Folder, written: str, names: list[str], schema: pa.Schema) -> _Part:
        names.append(f"part-{len(names):05}.{self._sink.format}")
        return _Part(folder.system.open_output_stream(folder.at(f"{written}/{names[-1]}")), schema, self._sink.format)

    @contextmanager
    def _folder(self) -> Iterator[Folder]:
        """The folder. Errors of its system become errors of sinks."""
        try:
            if self._opened is None:
                self._opened = self._open()
            yield self._opened
        except OSError as error:
            self._opened = None
            raise self._explained(error) from error

    def _open(self) -> Folder:
        try:
            return open_folder(self._sink.path, is_remote=self._sink.is_remote)
        except ValueError as error:
            raise SinkRefusedError(
                f"option 'path': {self._sink.path} is no address of HDFS, such as hdfs://name:8020/folder.",
                where=self.where,
            ) from error

    def _explained(self, error: OSError) -> SinkError:
        said = str(error).partition("\n")[0]
        if any(part in said for part in _NOT_INSTALLED):
            return SinkRefusedError(
                f"HDFS is reached by Hadoop's libhdfs, which cannot be loaded ({said}). Set JAVA_HOME, "
                "ARROW_LIBHDFS_DIR and CLASSPATH, as the page on sinks has it.",
                where=self.where,
            )
        if isinstance(error, PermissionError | NotADirectoryError | IsADirectoryError):
            return SinkRefusedError(
                f"{self._sink.path} cannot be written: {said}. Correct the folder or its rights.", where=self.where
            )
        return SinkError(f"{self._sink.path} cannot be written: {said}. It is tried again.", where=self.where)


class _Part:
    """A file that is being written."""

    def __init__(self, stream: Any, schema: pa.Schema, file_format: str) -> None:
        self._stream = stream
        self._parquet: pq.ParquetWriter | None = None
        self._write: Callable[[pa.RecordBatch], object]
        if file_format == FileFormat.CSV:
            stream.write(csv_header(schema))
            self._write = lambda batch: stream.write(csv_lines(batch))
        else:
            self._parquet = pq.ParquetWriter(stream, schema, compression="zstd", coerce_timestamps="us")
            self._write = self._parquet.write_batch

    def write(self, batch: pa.RecordBatch) -> None:
        self._write(batch)

    def close(self) -> None:
        if self._parquet is not None:
            self._parquet.close()
        self._stream.close()
