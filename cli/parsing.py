"""Help of every command: a summary, its options, and examples to copy."""

import argparse
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]
else:
    Commands = argparse._SubParsersAction


def command(
    commands: Commands, name: str, summary: str, *lines: str, former: Sequence[str] = ()
) -> argparse.ArgumentParser:
    """Return a parser for a command, with its summary and examples; options cannot be abbreviated.

    ``former`` names of the command work too.
    """
    return commands.add_parser(
        name,
        aliases=former,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=examples(*lines),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def examples(*lines: str) -> str:
    """Return the end of a help text."""
    return "examples:\n" + textwrap.indent("\n".join(lines), "  ")
