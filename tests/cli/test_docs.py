"""Every command and every option has its paragraph in docs/commands.md, and the docs name none that is not there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from freshline.cli.main import COMMANDS, cli

DOCUMENT = Path(__file__).parents[2] / "platform" / "docs" / "commands.md"
COMMON = "Options of every command"


def sections() -> dict[str, str]:
    """The text below each heading, by the heading without its backticks."""
    parts = re.split(r"^## (.+)$", DOCUMENT.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {title.replace("`", "").strip(): text for title, text in zip(parts[1::2], parts[2::2], strict=True)}


def walk(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            yield from walk(child, f"{path} {name}")


TREE = dict(walk(cli, "freshline"))


def options(command: click.Command) -> set[str]:
    return {
        name
        for parameter in command.get_params(click.Context(command))
        if isinstance(parameter, click.Option)
        for name in (*parameter.opts, *parameter.secondary_opts)
    }


def documented_options(text: str) -> set[str]:
    return {
        name for item in re.findall(r"^- (`.+?):", text, re.MULTILINE) for name in re.findall(r"`(--?[\w-]+)", item)
    }


@pytest.mark.parametrize("path", TREE)
def test_every_command_and_option_has_its_paragraph(path: str) -> None:
    found = sections()
    common = documented_options(found[COMMON])
    if path == "freshline":
        assert options(TREE[path]) <= common
        return
    assert path in found, f"docs/commands.md has no section for `{path}`"
    missing = options(TREE[path]) - common - documented_options(found[path])
    assert not missing, f"docs/commands.md, section `{path}`: no paragraph for {', '.join(sorted(missing))}"


def test_the_docs_name_no_command_or_option_that_is_not_there() -> None:
    for title, text in sections().items():
        if title.startswith("freshline"):
            assert title in TREE, f"docs/commands.md: there is no command `{title}`"
            assert documented_options(text) <= options(TREE[title])


@pytest.mark.parametrize("path", TREE)
def test_every_help_ends_with_an_example(path: str) -> None:
    command = TREE[path]
    lines = command.get_help(click.Context(command, info_name=path)).rstrip().splitlines()

    assert lines[-2].strip() == "Example:"
    assert lines[-1].strip().startswith("freshline")


def test_the_list_of_commands_is_the_tree() -> None:
    context = click.Context(cli)

    assert cli.list_commands(context) == list(COMMANDS)
    assert cli.get_command(context, "unknown") is None


@pytest.mark.parametrize("path", [path for path, command in TREE.items() if not isinstance(command, click.Group)])
def test_every_command_takes_json_and_finds_its_project(path: str) -> None:
    named = options(TREE[path])

    assert "--json" in named
    assert path in ("freshline init", "freshline completion", "freshline schema") or "--project" in named
