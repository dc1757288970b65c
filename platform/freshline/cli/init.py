"""`freshline init`: a small working project, to be changed into one's own."""

from __future__ import annotations

import json
from pathlib import Path

import click

from freshline.cli.options import json_option
from freshline.cli.templates import TEMPLATES, project_files
from freshline.errors import SettingsError


@click.command(epilog="\b\nExample:\n  freshline init shop --template delta")
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--template",
    type=click.Choice(tuple(TEMPLATES)),
    default="files",
    show_default=True,
    help=f"How it reads its orders: {', '.join(f'{name}, {each.about}' for name, each in TEMPLATES.items())}.",
)
@json_option
def command(directory: Path, template: str, as_json: bool) -> None:
    """Create a new project in DIR: a source of orders, a table over it, and the files for Dagster.

    Existing files are never overwritten. If a file with the name of a new one exists, nothing is written.
    """
    chosen = TEMPLATES[template]
    files = project_files(directory.absolute().name, chosen)
    clashes = [name for name in files if (directory / name).exists()]
    if clashes:
        raise SettingsError(
            f"there is {', '.join(clashes)} already; nothing was written. Name a new folder, or move what is there.",
            where=str(directory),
        )
    for name, text in files.items():
        file = directory / name
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("x", encoding="utf-8") as stream:
            stream.write(text)
    if as_json:
        click.echo(json.dumps({"project": str(directory.absolute()), "files": list(files), "next": list(chosen.next)}))
        return
    click.echo(f"Made the project {directory}. Next:")
    if directory.absolute() != Path.cwd():
        click.echo(f"  cd {directory}")
    for line in chosen.next:
        click.echo(f"  {line}")
