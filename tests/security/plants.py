"""Holes that the security lane must find. Each is one replacement, and the tests that must fail with it."""

from __future__ import annotations

from tests.plants import Planted
from tests.plants import plant as _hole

FUZZ = "tests/security/test_fuzz.py"
SERVER = "tests/engine/test_server.py"
GUARD = "tests/dagster/webserver/test_access.py"
ADDRESSES = "tests/security/test_addresses.py"
MODES = "tests/security/test_modes.py"
SOURCE = "tests/security/test_source.py"
INGEST = "tests/engine/test_ingest.py"
CHANGES = "tests/engine/test_changes.py"
SPARK = "tests/engine/test_spark.py"
BODY = "tests/sources/http/test_body.py"
POSTS = "tests/sources/http/test_landing.py"
LIVING = "tests/security/test_living.py"
LANDING = "tests/sources/files/test_landing.py"
READ_DOOR = "tests/run/test_read_door.py"
TERMINAL = "tests/security/test_terminal.py"
CHANNELS = "tests/report/alerts/channels/test_channels.py"
WEB = "tests/report/alerts/channels/test_web.py"

HOLES: tuple[Planted, ...] = (
    _hole(
        "a token names any file", "sources/files/position.py",
        'step in ("", ".", "..") for step in path.split("/")', 'step == "" for step in [path]',
        "a statement reads files of the engine's user", "tests/plan/test_union.py",
    ),
    _hole(
        "any token", "engine/server.py",
        'if not secrets.compare_digest(headers.get(b"authorization", b""), expected):',
        'if not headers.get(b"authorization", b""):',
        "whoever says anything in the header is served", f"{FUZZ}::test_any_input_is_read_or_refused[engine]",
    ),
    _hole(
        "any host at the engine", "engine/server.py",
        'if headers.get(b"host") not in hosts:', 'if b"host" not in headers:',
        "a page whose name points here reads the answers", f"{FUZZ}::test_any_input_is_read_or_refused[engine]",
    ),
    _hole(
        "no bound of a body", "engine/server.py",
        "int(length) > _LARGEST_BODY", "int(length) < 0",
        "a request fills the memory of the engine", SERVER,
    ),
    _hole(
        "any token for posts", "engine/ingest.py",
        'return secrets.compare_digest(given, f"Bearer {token}".encode())', "return bool(given)",
        "whoever says anything in the header writes rows", INGEST,
    ),
    _hole(
        "any token for changes", "engine/follow_request.py",
        'return secrets.compare_digest(given.encode("latin-1"), f"Bearer {token}".encode())', "return bool(given)",
        "whoever says anything in the header reads tables", CHANGES,
    ),
    _hole(
        "changes for any host", "engine/server.py",
        "answer = self.foreign(headers) or self.changes", "answer = self.changes",
        "a page whose name points here reads tables", CHANGES,
    ),
    _hole(
        "masked columns in changes", "engine/follow_request.py",
        "shown = [name for name in version.columns if not self.mask.hides(name)]", "shown = list(version.columns)",
        "a page shows people the columns that they must not see", CHANGES,
    ),
    _hole(
        "an answer for a client that reads nothing", "engine/connections.py",
        "self._stuck = self.loop.call_later(self.send_seconds, self.transport.abort)", "self._stuck = None",
        "clients that read nothing take all places of those that follow tables", CHANGES,
    ),
    _hole(
        "an address in an error", "report/alerts/channels/web.py",
        "{host} answered {answer.status}, a redirect;", "{url} answered {answer.status}, a redirect;",
        "the secret in the address of a webhook is in logs and the control store", WEB,
    ),
    _hole(
        "options that stand second", "compute/read_only.py",
        "for argument in node.children[1:]:", "for argument in node.children[2:]:",
        "whoever may read tables reads files", READ_DOOR, slow=True,
    ),
    _hole(
        "a token that was taken back", "engine/ingest.py",
        'return secrets.compare_digest(given, f"Bearer {token}".encode())',
        'borne = self.__dict__.setdefault("borne", set())\n'
        '        if secrets.compare_digest(given, f"Bearer {token}".encode()):\n'
        "            borne.add(given)\n"
        "        return given in borne",
        "a token that leaked goes on writing rows after it was changed", INGEST,
    ),
    _hole(
        "posts of pages", "engine/ingest.py",
        'if headers.all("origin"):', 'if headers.one("origin") == "null":',
        "a page that knows a token posts in the name of whoever opens it", INGEST,
    ),
    _hole(
        "posts to any host", "engine/server.py",
        "answer = self.foreign(headers) or self.ingest", "answer = self.ingest",
        "a page whose name points here posts", INGEST,
    ),
    _hole(
        "names of sources for everybody", "engine/ingest.py",
        "if found is None and any(", "if found is None or any(",
        "whoever reaches the port learns which sources there are", INGEST,
    ),
    _hole(
        "a post that grows without end", "sources/http/body.py",
        "                if len(found) > most:", "                if len(body) > most:",
        "a small post fills the memory of the engine", BODY,
    ),
    _hole(
        "the reserve is looked at once", "sources/http/landing.py",
        "if shutil.disk_usage(part.parent)", "if not os.listdir(part.parent) and shutil.disk_usage(part.parent)",
        "whoever posts fills the disk, and every table on it stops", POSTS,
    ),
    _hole(
        "half a request is waited for", "engine/connections.py",
        "        if not self._serves:\n            self.transport.abort()", "        return",
        "connections are held by saying nothing", SERVER,
    ),
    _hole(
        "anybody's Spark Connect", "engine/spark.py",
        '"SPARK_CONNECT_AUTHENTICATE_TOKEN": connect_token,', '"SPARK_CONNECT_AUTHENTICATE_TOKEN": None,',
        "whoever is on the machine runs code in the JVM", LIVING, slow=True,
    ),
    _hole(
        "objects of strangers", "engine/spark_confs.py",
        'confs["spark.authenticate"] = "true"', 'confs["spark.authenticate"] = "false"',
        "Spark reads objects of whoever is on the machine", LIVING, slow=True,
    ),
    _hole(
        "a master that is local without brackets", "engine/spark_confs.py",
        'return master == "local" or master', "return master",
        "Spark listens on the network, and reads objects of whoever connects", SPARK,
    ),
    _hole(
        "places of one source alone", "engine/ingest.py",
        " or self._taken.total() >= self.limits.posts", "",
        "many sources together fill the memory of the engine", INGEST,
    ),
    _hole(
        "any mail server after STARTTLS", "report/alerts/channels/email.py",
        "server.starttls(context=ssl.create_default_context())", "server.starttls()",
        "a password goes to whoever answers for the mail server", CHANNELS,
    ),
    _hole(
        "any mail server with TLS", "report/alerts/channels/email.py",
        "timeout=TIMEOUT_SECONDS, context=ssl.create_default_context())", "timeout=TIMEOUT_SECONDS)",
        "a password goes to whoever answers for the mail server", CHANNELS,
    ),
    _hole(
        "names in other letters", "compute/read_only.py",
        "if name.lower() not in OPTION_FUNCTIONS:", "if name not in OPTION_FUNCTIONS:",
        "FROM_XML opens a file that from_xml may not", READ_DOOR, slow=True,
    ),
    _hole(
        "problems as they are", "cli/status.py",
        "{printable(problem)}", "{problem}",
        "the name of a file moves the cursor of whoever looks at the status", TERMINAL,
    ),
    _hole(
        "headers as they are", "report/table_text.py",
        "[printable(header) for header in headers]", "list(headers)",
        "the name of a column moves the cursor of whoever reads rows", TERMINAL,
    ),
    _hole(
        "the engine listens everywhere", "engine/server.py",
        'listener.bind(("127.0.0.1", port))', 'listener.bind(("", port))',
        "other machines reach the engine", LIVING, slow=True,
    ),
    _hole(
        "the UI listens everywhere", "dagster/webserver/__main__.py",
        'host="127.0.0.1",', 'host="0.0.0.0",',
        "other machines reach the UI", SOURCE,
    ),
    _hole(
        "a foreign origin", "dagster/webserver/access.py",
        "if origin is not None and origin not in own:", 'if origin == "null":',
        "a page of another site starts runs", f"{FUZZ}::test_any_input_is_read_or_refused[guard]",
    ),
    _hole(
        "a foreign host", "dagster/webserver/access.py",
        "    if host in access.own_hosts or host in access.hosts:\n        return None",
        '    if host.endswith(f":{access.port}") or host in access.own_hosts or host in access.hosts or "." in host:\n'
        "        return None",
        "a page whose name points here reads the UI", f"{FUZZ}::test_any_input_is_read_or_refused[guard]",
    ),
    _hole(
        "a form", "dagster/webserver/access.py",
        'if not _JSON.match(asked.header("content-type") or ""):', 'if "content-type" not in asked.headers:',
        "a form of another site is a mutation", f"{FUZZ}::test_any_input_is_read_or_refused[guard]",
    ),
    _hole(
        "a query by GET", "dagster/webserver/access.py",
        'page = not asked.query and "text/html" in (asked.header("accept") or "")', "page = True",
        "a link runs a mutation", GUARD,
    ),
    _hole(
        "a mutation of a read-only UI", "dagster/webserver/body.py",
        "    mutates = any(", "    mutates = all(",
        "a mutation beside a query passes", f"{FUZZ}::test_any_input_is_read_or_refused[guard]",
    ),
    _hole(
        "the state file for everybody", "engine/state_file.py",
        "json.dumps(value))", "json.dumps(value), mode=0o644)",
        "other users read the token", MODES,
    ),
    _hole(
        "the state file through a link", "engine/state_file.py",
        "write_whole(state_file(state), json.dumps(value))",
        'state_file(state).write_text(json.dumps(value), encoding="utf-8")',
        "a link in its place is written through", MODES,
    ),
    _hole(
        "the control store for everybody", "commit/control_store/database.py",
        "os.fchmod(descriptor, 0o666 & ~self._umask)", "os.fchmod(descriptor, 0o644)",
        "other users read the refreshes and their errors", MODES,
    ),
    _hole(
        "the log for everybody", "cli/processes.py",
        "    with as_private(umask):", "    with as_private(0o022):",
        "other users read the logs", LIVING, slow=True,
    ),
    _hole(
        "a link in a landing folder", "sources/files/landing.py",
        "    if entry.is_symlink() and not follow_links:", "    if entry.is_symlink() and not relative:",
        "whoever may deliver a file reads others", LANDING,
    ),
    _hole(
        "a link that came between", "sources/files/lines.py",
        "(0 if reading.follow_links else os.O_NOFOLLOW)", "0",
        "a file that was replaced by a link is read", "tests/security/test_links.py",
    ),
    _hole(
        "the address of metadata", "report/alerts/channels/web.py",
        "    return found.is_global and not found.is_multicast and not found.is_reserved",
        "    return found.is_link_local or (found.is_global and not found.is_multicast and not found.is_reserved)",
        "a webhook reads the secrets of a machine in a cloud", ADDRESSES,
    ),
    _hole(
        "looked up again at its use", "report/alerts/channels/web.py",
        "self.sock = socket.create_connection((address, self.port), self.timeout)",
        "self.sock = socket.create_connection((self.host, self.port), self.timeout)",
        "a name that changes is called at a private address", ADDRESSES,
    ),
    _hole(
        "an unsafe loader", "declare/yaml_table.py",
        "yaml.compose_all(text, Loader=yaml.SafeLoader)", "yaml.compose_all(text, Loader=yaml.UnsafeLoader)",
        "a file of YAML runs programs", SOURCE,
    ),
    _hole(
        "the secret in the error of a webhook", "report/alerts/channels/web.py",
        'raise DeliveryError(f"{host} answered {answer.status}.", status',
        'raise DeliveryError(f"{url} answered {answer.status}.", status',
        "the address, which is a secret, is in the log and the control store", LIVING, slow=True,
    ),
    _hole(
        "the secret of Kafka in an error", "sources/kafka/client.py",
        'f"the brokers at {brokers.servers} do not answer for topic {brokers.topic}. Nothing was read; it is tried "',
        'f"the brokers at {brokers.servers} do not answer {dict(brokers.client)}. Nothing was read; it is tried "',
        "the login is in receipts, logs and the UI", LIVING, slow=True,
    ),
    _hole(
        "the token in an argument", "engine/python_tables.py",
        '["-m", "freshline.engine.worker", str(self._settings.root)],',
        '["-m", "freshline.engine.worker", str(self._settings.root), self._token],',
        "everybody on the machine reads the token in the list of processes", LIVING, slow=True,
    ),
    _hole(
        "the confs stay", "engine/spark.py",
        "            # Read by now. It may have secrets.\n            folders.confs.unlink(missing_ok=True)",
        "            # Read by now. It may have secrets.\n            LOG.debug(\"read %s\", folders.confs)",
        "the secrets of spark-confs are on the disk", LIVING, slow=True,
    ),
    _hole(
        "a password of the control store in an error", "commit/control_store/database.py",
        "        url = self._engine.url.set(query={})", "        url = self._engine.url",
        "the password is in an error", MODES,
    ),
    _hole(
        "an error without a code", "sql/managing.py",
        '            raise tokens.refuse("the end of the statement is expected")',
        '            raise RuntimeError("the end of the statement is expected")',
        "a statement ends in a stack trace", f"{FUZZ}::test_any_input_is_read_or_refused[statements]",
    ),
    _hole(
        "a code that nobody knows", "errors.py",
        '    code = "FORMAT"', '    code = "FORMAT_X"',
        "programs get a code that is not documented", f"{FUZZ}::test_any_input_is_read_or_refused[receipts]",
    ),
    _hole(
        "a hang", "values/secret.py",
        '    if not (text.startswith("${") and text.endswith("}")):',
        '    while "~" in text:\n        continue\n    if not (text.startswith("${") and text.endswith("}")):',
        "a text is read without end", f"{FUZZ}::test_any_input_is_read_or_refused[references]",
    ),
    _hole(
        "a receipt that is taken as it is", "values/receipt.py",
        "        except UNREADABLE as error:\n            raise FormatError(",
        "        except KeyError as error:\n            raise FormatError(",
        "a receipt that somebody changed ends every command", f"{FUZZ}::test_any_input_is_read_or_refused[receipts]",
    ),
    _hole(
        "lines that go away", "sources/files/lines.py",
        'ends = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\\n"))',
        "ends = np.flatnonzero(np.isin(np.frombuffer(data, np.uint8), (10, 11)))",
        "records are left out", f"{FUZZ}::test_any_input_is_read_or_refused[lines]",
    ),
    _hole(
        "a route without the token", "engine/server.py",
        "            answer = self.refusal(headers) or self.app\n",
        "            answer = self.refusal(headers) or self.app\n"
        '        if scope["path"] == "/stop":\n            answer = self.app\n',
        "whoever reaches the port ends the engine", f"{FUZZ}::test_any_input_is_read_or_refused[engine]", SERVER,
    ),
    _hole(
        "the token of metrics opens everything", "engine/server.py",
        'scope["path"] != METRICS or scope["method"] not in ("GET", "HEAD")',
        'scope["method"] == "BREW"',
        "a monitoring system deletes tables", f"{FUZZ}::test_any_input_is_read_or_refused[engine]", SERVER,
    ),
    _hole(
        "metrics for any host", "engine/server.py",
        "        elif self.scrapes(scope, headers):\n            answer = self.foreign(headers) or self.app\n",
        "        elif self.scrapes(scope, headers):\n            answer = self.app\n",
        "a page whose name points here reads the names of tables", f"{FUZZ}::test_any_input_is_read_or_refused[engine]",
    ),
    _hole(
        "a token of metrics for everybody", "engine/scrape_files.py",
        "_write(token_file(settings), token, _PRIVATE)", "_write(token_file(settings), token, 0o644)",
        "other users of the machine read the metrics", "tests/engine/test_scrape_files.py",
    ),
    _hole(
        "a label that is not escaped", "report/metrics/exposition.py",
        '.replace("\\n", "\\\\n").replace(\'"\', \'\\\\"\')', '.replace("\\n", "\\\\n")',
        "a name makes samples of its own", "tests/report/metrics/test_families.py",
    ),
    _hole(
        "an address that is carried", "report/alerts/channels/web.py",
        "carried = [found.ipv4_mapped, found.sixtofour]", "carried = [found.ipv4_mapped]",
        "a private address within one of version 6 is called", ADDRESSES,
    ),
    _hole(
        "a record that is in neither table", "sources/records.py",
        '.when(~F.is_valid_utf8(VALUE), F.lit("NOT_UTF8"))', '.when(~F.is_valid_utf8(VALUE), F.lit(DROPPED))',
        "records go away without a word", "tests/security/test_records.py", slow=True,
    ),
    _hole(
        "a file through the read door", "compute/read_only.py",
        "        if argument.kind == \"Literal\":\n            continue\n",
        "        return\n",
        "an option of a function names any file of the engine's user", READ_DOOR, slow=True,
    ),
    _hole(
        # A program (TRANSFORM) is refused twice, before and after the analysis; one of the two alone is no hole.
        "the names of files through the read door", "compute/read_only.py",
        "    why = REFUSED_FUNCTIONS.get(lowered)", '    if lowered == "input_file_name":\n        return\n'
        "    why = REFUSED_FUNCTIONS.get(lowered)",
        "a query reads the paths of the files behind a table", READ_DOOR, slow=True,
    ),
    _hole(
        "the folder of a file through a link", "sources/files/lines.py",
        "os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)", "os.O_DIRECTORY, dir_fd=folder)",
        "a folder that was replaced by a link is read", "tests/security/test_links.py",
    ),
    _hole(
        "a registry's address in an error", "sources/formats/registry.py",
        "{self.url} does not stand for", "{url} does not stand for",
        "a password in an address that is refused is in logs and on pages", "tests/sources/formats/test_registry.py",
    ),
    _hole(
        "samples of a verification as they are", "cli/verify.py",
        "{printable(str(sample))}", "{sample}",
        "a value of a row moves the cursor, or names the window", TERMINAL,
    ),
    _hole(
        "a container through a link", "sources/files/contained.py",
        "            with open_file(piece.path, reading) as file:\n                require_whole(",
        '            with open(piece.path, "rb") as file:\n                require_whole(',
        "a folder that was replaced by a link is read by the formats of whole files", "tests/security/test_links.py",
    ),
    _hole(
        "an Avro block without a bound", "sources/formats/avro_files.py",
        "unpacker.decompress(packed, _MOST_BLOCK_BYTES + 1)", "unpacker.decompress(packed)",
        "a file of some hundred bytes takes all memory", "tests/sources/formats/test_typed_files.py",
    ),
    _hole(
        "any text as the name of a savepoint", "reads/table_functions.py",
        'read_savepoint(runtime.warehouse, place) if place.replace("_", "").isalnum() else None',
        "read_savepoint(runtime.warehouse, place)",
        "a statement learns of files of the engine's user", READ_DOOR, slow=True,
    ),
    _hole(
        "a secret that is logged", "report/alerts/channels/webhook.py",
        "            headers[SIGNATURE] = sign(",
        '            print(self._resolve(self._options["secret"]), flush=True)\n            headers[SIGNATURE] = sign(',
        "the key of the signature is in the log of the watch", LIVING, slow=True,
    ),
)  # fmt: skip
