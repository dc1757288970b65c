"""Each option, code, rule and setting that a person may see has a paragraph, and the docs name no other.

A paragraph defines what stands at its beginning in bold and backquotes. Examples are read as the declarations, settings
and receipts that they are; links lead somewhere; the commands of the README exist.
"""

from __future__ import annotations

import ast
import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from freshline import errors
from freshline.cli.main import COMMANDS, run
from freshline.cli.templates import project_files
from freshline.dagster.webserver.access import REFUSALS
from freshline.declare.project import read_project
from freshline.declare.project_settings import KEYS, VARIABLES, read_settings
from freshline.errors import FreshlineError
from freshline.report.metrics.families import families_of
from freshline.testing.models import linear_model
from freshline.values.alert_settings import ALERT_KEYS, CHANNEL_OPTIONS
from freshline.values.catalog_settings import CATALOG_KEYS
from freshline.values.destination_settings import OPENLINEAGE_KEYS, OTEL_KEYS
from freshline.values.options import TABLE_OPTIONS
from freshline.values.reason import CODES
from freshline.values.receipt import Receipt
from freshline.values.registry import (
    CONNECTORS_NOT_BUILT,
    FORMATS_NOT_BUILT,
    REGISTRARS,
    find_registrar,
    merge_options,
    shipped_connectors,
    shipped_formats,
    shipped_merges,
    shipped_options,
    shipped_sinks,
)
from freshline.values.rules import RULES
from freshline.values.sink import Sink
from tests.report.metrics.figures import figures

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "platform" / "docs"
LIBRARY = ROOT / "platform" / "freshline"
PAGES = sorted(
    page
    for page in [*ROOT.glob("*.md"), *(ROOT / "platform").rglob("*.md"), *(ROOT / "resources").rglob("*.md")]
    if not any(part.startswith(".") for part in page.relative_to(ROOT).parts)
)

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^(#+) (.+)$", re.MULTILINE)
# Written out for a heading that had another name, so that links from elsewhere keep working.
ANCHOR = re.compile(r"""<a id="([^"]+)"></a>""")
DEFINED = re.compile(r"\*\*`([^`]+)`\*\*(?:,\s+|\s+and\s+)?")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def prose(page: Path) -> str:
    """The page without its examples."""
    return FENCE.sub("", text_of(page))


def examples(page: Path, language: str) -> list[str]:
    return [code for kind, code in FENCE.findall(text_of(page)) if kind == language]


def section(page: Path, title: str) -> str:
    """The text below a heading, up to the next heading of its rank."""
    text = prose(page)
    found = [(match.end(), len(match[1]), match[2], match.start()) for match in HEADING.finditer(text)]
    for number, (begin, rank, name, _) in enumerate(found):
        if name == title:
            return text[begin : next((start for _, other, _, start in found[number + 1 :] if other <= rank), len(text))]
    raise AssertionError(f"{page.name} has no section {title}")


def definitions(text: str) -> list[str]:
    """The words that the paragraphs of a text define, each at its beginning."""
    found: list[str] = []
    for paragraph in re.split(r"\n\s*\n", text):
        place = paragraph.lstrip()
        while match := DEFINED.match(place):
            found.append(match[1])
            place = place[match.end() :].lstrip()
    return found


def targets_of(assignment: ast.Assign | ast.AnnAssign) -> list[ast.expr]:
    """Everything that an assignment gives its value to."""
    return assignment.targets if isinstance(assignment, ast.Assign) else [assignment.target]


def nodes_near(word: str) -> Iterator[ast.AST]:
    """The syntax of each file of the library that has the word: to parse the others takes most of the time."""
    for file in LIBRARY.rglob("*.py"):
        if word in (text := text_of(file)):
            yield from ast.walk(ast.parse(text, str(file)))


def error_codes() -> set[str]:
    """Every code that an error of freshline can have: of a class, or written where an error is made."""
    found = set()
    for node in nodes_near("code"):
        if isinstance(node, ast.ClassDef):
            found |= {
                item.value.value
                for item in node.body
                if isinstance(item, (ast.Assign, ast.AnnAssign))
                and isinstance(item.value, ast.Constant)
                and isinstance(item.value.value, str)
                and "code" in {getattr(target, "id", "") for target in targets_of(item)}
            }
        elif isinstance(node, ast.Dict):
            found |= {
                value.value
                for key, value in zip(node.keys, node.values, strict=True)
                if isinstance(key, ast.Constant)
                and key.value == "code"
                and isinstance(value, ast.Constant)
                and isinstance(value.value, str)
            }
    return found


def rejections() -> set[str]:
    """The keys of REJECTIONS, read from the file, since importing it would load Spark, those of formats and merges."""
    own = {code for each in shipped_formats() for code in each.rejections}
    own |= {code for each in shipped_merges() for code in each.rejections}
    for node in ast.parse(text_of(LIBRARY / "sources" / "records.py")).body:
        if isinstance(node, ast.AnnAssign) and getattr(node.target, "id", "") == "REJECTIONS" and node.value:
            return own | set(ast.literal_eval(node.value))
    raise AssertionError("sources/records.py has no REJECTIONS")


def of_merges() -> set[str]:
    """The options of merges; of those with only a beginning, with NAME for the rest."""
    return {f"{option.name}NAME" if option.is_beginning else option.name for option in merge_options()}


def failpoints() -> set[str]:
    """The names with which `failpoint` is called in the library."""
    return {
        node.args[0].value
        for node in nodes_near("failpoint")
        if isinstance(node, ast.Call)
        and (getattr(node.func, "attr", "") or getattr(node.func, "id", "")) == "failpoint"
        and node.args
        and isinstance(node.args[0], ast.Constant)
        and isinstance(node.args[0].value, str)
    }


REFUSED = "Refused for now"
DEFINITIONS = {
    "options of tables": ("declarations.md", "Options of tables", {*TABLE_OPTIONS, *of_merges()}),
    "options of sources": ("declarations.md", "Options of sources", set(shipped_options())),
    "options not built": ("declarations.md", REFUSED, set()),
    "reason codes": ("refresh.md", "Reason codes", set(CODES)),
    "quarantine codes": ("refresh.md", "Quarantine codes", rejections()),
    "error codes": ("errors.md", "Error codes", error_codes()),
    "declaration rules": ("errors.md", "Declaration rules", set(RULES)),
    "failpoints": ("testing.md", "Failpoints", failpoints()),
    "metrics": ("metrics.md", "Metrics", {family.name for family in families_of(figures())}),
    "settings": ("operations.md", "Settings", {*KEYS, "environments"}),
    "settings of alerts": ("operations.md", "Alerts", set(ALERT_KEYS)),
    "settings of channels": (
        "operations.md",
        "Alert channels",
        {"type", *(option for options in CHANNEL_OPTIONS.values() for option in options)},
    ),
    "refusals of the guard": ("operations.md", "The guard", set(REFUSALS)),
    "settings of lineage events": ("lineage_traces.md", "Settings of lineage events", set(OPENLINEAGE_KEYS)),
    "settings of traces": ("lineage_traces.md", "Settings of traces", set(OTEL_KEYS)),
    "settings of catalogs": (
        "catalogs.md",
        "Settings",
        {*CATALOG_KEYS, *(option.name for name in REGISTRARS for option in find_registrar(name).options)},
    ),
    "variables": ("operations.md", "Variables", {*VARIABLES, "FRESHLINE_ENV"}),
}


@pytest.mark.parametrize("what", DEFINITIONS)
def test_each_has_one_paragraph(what: str) -> None:
    page, title, expected = DEFINITIONS[what]
    defined = definitions(section(DOCS / page, title))

    missing, unknown = sorted(expected - set(defined)), sorted(set(defined) - expected)
    assert missing == []
    assert unknown == []
    assert len(defined) == len(set(defined))


def test_an_error_says_whether_a_retry_can_help() -> None:
    text = section(DOCS / "errors.md", "Error codes")
    marked = set(re.findall(r"^\*\*`(\w+)`\*\* \(a retry can help\)", text, re.MULTILINE))
    classes = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, FreshlineError)]

    # NO_VERSION is raised where inputs are pinned, in a module that loads Spark.
    assert marked == {each.code for each in classes if each.retry_helps} | {"NO_VERSION"}


@pytest.mark.parametrize("word", [*CONNECTORS_NOT_BUILT, *FORMATS_NOT_BUILT])
def test_a_connector_or_format_that_is_refused_is_named(word: str) -> None:
    assert re.search(rf"\b{re.escape(word)}\b", section(DOCS / "declarations.md", REFUSED))


@pytest.mark.parametrize("name", sorted({name for each in shipped_connectors() for name in each.metadata}))
def test_metadata_is_described(name: str) -> None:
    assert f"`{name}`" in section(DOCS / "declarations.md", "CREATE SOURCE")


@pytest.mark.parametrize("kind", shipped_sinks(), ids=lambda kind: kind.name)
def test_the_options_of_a_sink_are_in_its_section(kind: type[Sink]) -> None:
    # One that derives from another one has its options.
    base = next(each for each in kind.__mro__ if each in shipped_sinks() and each.__base__ not in shipped_sinks())
    text = section(DOCS / "sinks.md", base.name)
    assert f"'{kind.name}'" in (DOCS / "sinks.md").read_text(encoding="utf-8")
    assert [option.name for option in kind.options if f"`{option.name}`" not in text] == []


# -- examples


@pytest.mark.seconds
@pytest.mark.parametrize(
    "page",
    [
        ROOT / "README.md",
        *(DOCS / f"{name}.md" for name in ("declarations", "event_time", "gallery", "graphs_and_models")),
    ],
    ids=lambda page: page.name,
)
def test_the_declarations_of_a_page_are_a_project(page: Path, tmp_path: Path) -> None:
    """All of a page's together, so that what one reads must be declared beside it."""
    folder = tmp_path / "assets"
    folder.mkdir()
    (tmp_path / "pyproject.toml").write_text("[tool.freshline]\n", encoding="utf-8")
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "delay.onnx").write_bytes(linear_model([1.0, 1.0], 0.0))
    for code in examples(page, "sql"):
        named = re.search(r"CREATE (?:MATERIALIZED TABLE|SOURCE|MODEL) (\w+)", code)
        assert named, code
        (folder / f"{named[1]}.sql").write_text(code, encoding="utf-8")
    for code in examples(page, "python"):
        if "freshline.table" in code:
            named = re.search(r'name="(\w+)"|^def (\w+)', code, re.MULTILINE)
            assert named, code
            (folder / f"{named[1] or named[2]}.py").write_text(code, encoding="utf-8")

    graph = read_project(read_settings(tmp_path, {}), {})

    declared = {str(spec.name) for spec in graph.specs.values() if getattr(spec, "declared_with", None) is None}
    models = {str(name) for name in graph.models}
    assert declared | models == {file.stem for file in folder.iterdir() if file.is_file()}


def test_the_quick_start_shows_what_init_makes() -> None:
    made = [re.sub(r"^--.*\n", "", text) for path, text in project_files("shop").items() if path.endswith(".sql")]

    assert examples(ROOT / "README.md", "sql") == made


def test_the_receipt_shown_is_one() -> None:
    (shown,) = examples(DOCS / "refresh.md", "json")

    receipt = Receipt.from_json(shown)

    assert receipt is not None
    assert json.loads(receipt.to_json()) == json.loads(shown)


def test_every_field_of_a_receipt_is_described() -> None:
    text = section(DOCS / "refresh.md", "Receipt")
    in_rows = "".join(re.findall(r"^\|([^|]+)\|", text, re.M))
    below = "".join(re.findall(r"^- (.*?):", text, re.M)) + "".join(re.findall(r"\. (`\w+`): ", text))
    described = set(re.findall(r"`(\w+)`", in_rows)) | set(re.findall(r"`(\w+)`", below))

    assert {field.name for field in fields(Receipt)} <= described


def test_the_error_shown_is_what_the_command_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (shown,) = examples(DOCS / "errors.md", "json")
    assert run(["init", str(tmp_path / "shop")]) == 0
    capsys.readouterr()

    assert run(["suspend", "spent", "--json", "--project", str(tmp_path / "shop")]) == 1

    assert json.loads(capsys.readouterr().out) == json.loads(shown)


def test_the_settings_shown_can_be_read(tmp_path: Path) -> None:
    shown = examples(DOCS / "operations.md", "toml")
    (tmp_path / "pyproject.toml").write_text("\n".join(shown), encoding="utf-8")

    assert read_settings(tmp_path, {"FRESHLINE_ENV": "production"}).warehouse == Path("/data/freshline/warehouse")


# -- links and commands


def slug(title: str) -> str:
    """The anchor that a heading gets where Markdown is shown."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def links() -> Iterator[tuple[Path, str]]:
    for page in PAGES:
        for target in LINK.findall(prose(page)):
            if not re.match(r"[a-z]+:", target):
                yield page, target


@pytest.mark.parametrize(("page", "target"), list(links()), ids=lambda value: str(value).removeprefix(f"{ROOT}/"))
def test_links_lead_somewhere(page: Path, target: str) -> None:
    path, _, anchor = target.partition("#")
    file = (page.parent / path).resolve() if path else page

    assert file.exists()
    if anchor:
        text = prose(file)
        assert anchor in {*(slug(match[2]) for match in HEADING.finditer(text)), *ANCHOR.findall(text)}


def commands(page: Path) -> Iterator[list[str]]:
    """Command lines in examples without a language, and in backquotes."""
    for line in "\n".join(examples(page, "")).splitlines():
        yield shlex.split(line, comments=True)
    for code in re.findall(r"`((?:make|freshline) [^`]+)`", prose(page)):
        yield shlex.split(code)


@pytest.mark.parametrize("page", [*ROOT.glob("*.md"), *DOCS.glob("*.md")], ids=lambda page: page.name)
def test_commands_that_are_named_exist(page: Path) -> None:
    targets = set(re.findall(r"^([\w-]+):(?!=)", text_of(ROOT / "Makefile"), re.MULTILINE))
    unknown = []
    for words in commands(page):
        match words:
            case ["make", target, *_] if "=" not in target and target not in targets:
                unknown.append(words)
            case ["freshline", command, *_] if not command.startswith("-") and command not in COMMANDS:
                unknown.append(words)

    assert unknown == []
