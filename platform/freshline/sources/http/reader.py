"""Posts are read as landing files are. A refresh of the source reports what keeps others from posting to it."""

from __future__ import annotations

import os

from freshline.errors import SourceError
from freshline.sources.files.landing import Listing
from freshline.sources.files.position import FilesPosition
from freshline.sources.files.reader import FilesInspection, FilesReader
from freshline.sources.http.connector import Http
from freshline.sources.reader import Host, ReadRequest
from freshline.values.secret import resolve_token
from freshline.values.spec import SourceSpec


class HttpReader(FilesReader):
    """Reads the files of posts that were not read yet."""

    def __init__(self, spec: SourceSpec, host: Host) -> None:
        super().__init__(spec, host)
        assert isinstance(spec.connection, Http)
        self._http = spec.connection

    def inspect(self, position: FilesPosition | None, asked: ReadRequest) -> FilesInspection:
        try:
            resolve_token(self._http.token, self.host.root, os.environ)
        except ValueError as error:
            raise SourceError(f"option 'token': {error}", where=self.where) from error
        return super().inspect(position, asked)

    def _listing(self, asked: ReadRequest) -> Listing:
        started = self.host.clock()
        base = self._folder.parent
        # The first post makes the source's own folder. The one that was declared must be there: in the place of a disk
        # that is away there would be no post.
        if base.is_dir() and not self._folder.exists():
            return Listing(started, (), ())
        if not base.is_dir():
            raise SourceError(f"the folder {base} does not exist. Create it, or correct `path`.", where=self.where)
        return super()._listing(asked)
