"""`freshline completion`: completion of commands and options in a shell."""

from __future__ import annotations

import json

import click
from click.shell_completion import get_completion_class

from freshline.cli.options import json_option

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_FRESHLINE_COMPLETE"


@click.command(epilog="\b\nExample:\n  freshline completion bash >> ~/.bashrc")
@click.argument("shell", type=click.Choice(SHELLS))
@json_option
def command(shell: str, as_json: bool) -> None:
    """Print the script that completes commands and options of freshline in a shell.

    Add it to the shell's own start file. For fish write it to ~/.config/fish/completions/freshline.fish.
    """
    made = get_completion_class(shell)
    assert made is not None
    source = made(click.get_current_context().find_root().command, {}, "freshline", VARIABLE).source()
    click.echo(json.dumps({"shell": shell, "script": source}) if as_json else source)
