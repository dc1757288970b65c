"""The command `freshline`: finds the subcommand, runs it, and turns every mistake into one line and an exit code.

Starting must be quick, because a command line is typed: a subcommand's module is imported when it is called, and the
list of commands is known without importing any of them. Spark and Dagster are never imported by the command line
itself; the engine and Dagster's own processes have them.
"""

from __future__ import annotations

import difflib
import errno
import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from freshline.cli.failures import CANCELLED, FAILED, MISUSED, CommandError, report, usage_failure
from freshline.errors import CancelledError, FreshlineError

# In the order in which a new user needs them; the module is imported when the command is called.
COMMANDS: dict[str, tuple[str, str]] = {
    "init": ("freshline.cli.init", "Create a new project in a folder."),
    "new": ("freshline.cli.new", "Write the declaration of a source or table."),
    "plan": ("freshline.cli.plan", "Show declarations, modes and changes."),
    "apply": ("freshline.cli.apply", "Apply changed declarations."),
    "refresh": ("freshline.cli.refresh", "Bring tables up to date."),
    "backfill": ("freshline.cli.backfill", "Refresh partitions of a table, one by one."),
    "status": ("freshline.cli.status", "Show how fresh every table is."),
    "quarantine": ("freshline.cli.quarantine", "Show rejected records, and decode them again."),
    "refreshes": ("freshline.cli.refreshes", "Show past refreshes and decisions, with their reasons."),
    "alter": ("freshline.cli.alter", "Override the freshness of a table."),
    "suspend": ("freshline.cli.suspend", "Stop the refreshes of a table."),
    "resume": ("freshline.cli.resume", "Refresh a suspended table again."),
    "sql": ("freshline.cli.sql", "Query tables: one statement, or a shell."),
    "verify": ("freshline.cli.verify", "Compute tables again and compare the rows."),
    "savepoint": ("freshline.cli.savepoint", "Keep the state of all tables, and restore it."),
    "snapshot": ("freshline.cli.snapshot", "Show the newest versions that agree with each other."),
    "consumers": ("freshline.cli.consumers", "Retain changes of tables for their consumers."),
    "catalog": ("freshline.cli.catalog", "Enter tables in catalogs, where others find them."),
    "explain": ("freshline.cli.explain", "Show the strategies of refreshes, and why."),
    "tick": ("freshline.cli.tick", "Refresh the tables that are due now, once."),
    "watch": ("freshline.cli.watch", "Send alerts about late and failing tables."),
    "alerts": ("freshline.cli.alerts", "List open and past alerts."),
    "metrics": ("freshline.cli.metrics", "Show metrics, and set up Prometheus and Grafana."),
    "report": ("freshline.cli.report", "Write the freshness board to one HTML file."),
    "up": ("freshline.cli.up", "Start the engine and the Dagster UI."),
    "down": ("freshline.cli.down", "End all processes of up and engine start."),
    "logs": ("freshline.cli.logs", "Show the logs of the engine, Dagster and the watch."),
    "engine": ("freshline.cli.engine", "Start, stop or show the engine."),
    "doctor": ("freshline.cli.doctor", "Check the requirements of freshline on this machine."),
    "completion": ("freshline.cli.completion", "Complete commands in bash, zsh or fish."),
    "schema": ("freshline.cli.schema", "Print JSON schemas for editors."),
    "demo": ("resources.demo.command", "Run the reference deployment on generated events."),
}
# Of these the modules are in a clone of the repository alone, beside the deployment that they run.
OF_A_CLONE = frozenset({"demo"})
_ROOT = Path(__file__).resolve().parents[3]


class Commands(click.Group):
    """The subcommands, each imported when it is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name in COMMANDS if _is_here(name)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        if not _is_here(cmd_name):
            raise click.UsageError(
                f"`freshline {cmd_name}` runs the reference deployment of freshline's repository, and is in a clone of "
                "it alone. Clone it and run make, or try `freshline init`.",
                ctx,
            )
        command = importlib.import_module(COMMANDS[cmd_name][0]).command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        # click offers what it has imported, which here is nothing, and its older versions offer nothing at all.
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            similar = difflib.get_close_matches(args[0], self.list_commands(ctx))
            offer = f" Did you mean {' or '.join(repr(name) for name in similar)}?" if similar else ""
            raise click.UsageError(f"No such command {args[0]!r}.{offer}", ctx)
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        # click would import every module that fits for its first line, while somebody waits with a finger on Tab.
        fitting = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        named = [CompletionItem(name, help=COMMANDS[name][1]) for name in fitting]
        return [*named, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        # click would import every module for its first line.
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in self.list_commands(ctx)])


def _is_here(command: str) -> bool:
    return command not in OF_A_CLONE or _ROOT.joinpath(*COMMANDS[command][0].split(".")).with_suffix(".py").is_file()


def _print_version(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if not value or ctx.resilient_parsing:
        return
    from importlib.metadata import version

    click.echo(f"freshline {version('freshline')}")
    ctx.exit()


@click.command(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="\b\nExample:\n  freshline init shop && cd shop && freshline refresh",
)
@click.option(
    "--version", is_flag=True, expose_value=False, is_eager=True, callback=_print_version, help="Show the version."
)
def cli() -> None:
    """Materialized tables for Dagster, on Spark and Delta Lake.

    You declare a table as a query and a freshness, and freshline keeps the table that fresh.
    """


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code: 0, 1 for a failure, 2 if it cannot be read, 130 when cancelled."""
    as_json = "--json" in arguments
    try:
        answer = cli.main(args=list(arguments), prog_name="freshline", standalone_mode=False)
        sys.stdout.flush()
        return answer if isinstance(answer, int) else 0
    except (click.Abort, KeyboardInterrupt):
        return report(CommandError.of(CancelledError("cancelled.")), as_json, CANCELLED)
    except click.ClickException as error:
        return report(usage_failure(error), as_json, MISUSED)
    except CommandError as failure:
        return report(failure, as_json, FAILED)
    except CancelledError as error:
        return report(CommandError.of(error), as_json, CANCELLED)
    except FreshlineError as error:
        return report(CommandError.of(error), as_json, FAILED)
    except OSError as error:
        if error.errno == errno.EPIPE:
            # The reader of our output has what it wanted (`| head`); Python's own flush at exit must not fail again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            return FAILED
        return report(CommandError.system(error), as_json, FAILED)


def main() -> None:
    """The console script."""
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
