"""The ``unknot`` command. Help must be fast, so nothing here imports torch until it is needed.

Each command is a module with its options and its code: ``add_to(commands)`` adds the options and sets the function to
run. Heavy imports are inside that function.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from unknot.cli import imports
from unknot.cli.parsing import examples
from unknot.machine import avoid_broken_amx, wait_passively

COMMANDS = {
    **dict.fromkeys(("fit", "validate", "test", "predict"), "fit"),
    **{name: name for name in ("evaluate", "score", "export", "convert", "data", "hub", "browse")},
    **{name: name for name in ("slots", "study", "demo")},
}
"""The module of each command."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; errors that a user can fix are printed in one line, without a traceback."""
    if argv is None and "torch" not in sys.modules:  # run as a command, not called from a program
        wait_passively()
        avoid_broken_amx()
    argv = list(sys.argv[1:] if argv is None else argv)
    if os.environ.get("UNKNOT_DEBUG"):
        return _dispatch(argv)
    try:
        return _dispatch(argv)
    except (ValueError, OSError, FloatingPointError, ImportError) as error:
        print(f"unknot: error: {_plain(str(error))} (UNKNOT_DEBUG=1 shows where)", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("unknot: stopped", file=sys.stderr)
        return 130


def _plain(message: str) -> str:
    """Format a message as one line for a terminal: names in it may be untrusted."""
    words = " ".join(message[:10_000].split())
    return "".join(letter if letter.isprintable() else "�" for letter in words)[:2_000]


def _dispatch(argv: list[str]) -> int:
    argv, modules = imports.take_imports(argv)
    parser = argparse.ArgumentParser(
        prog="unknot",
        description="Representations with structure: train, score and look at models that disentangle.",
        epilog=examples(
            "unknot demo                                load a bundled model, score it, draw it",
            "unknot fit --config beta_vae_dsprites      train with a bundled configuration",
            "unknot evaluate runs/beta_vae_dsprites/version_0/model",
            "unknot evaluate my/model --import mymodels  a model of your own class",
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(imports.FLAG, metavar="MODULE", help=f"{imports.HELP}; for every command, in any place")
    commands = parser.add_subparsers(metavar="command", title="commands")
    asked = argv[0] if argv else None
    for module in [COMMANDS[asked]] if asked in COMMANDS else dict.fromkeys(COMMANDS.values()):
        import_module(f"unknot.cli.{module}").add_to(commands)
    if COMMANDS.get(asked or "") == "fit" and not {"-h", "--help"} & set(argv[1:]):
        from unknot.cli.fit import run_command  # these are parsed by LightningCLI

        return run_command(argv, modules)
    arguments = parser.parse_args(argv)
    if not asked:
        parser.print_help()
        return 0
    arguments.imported = modules
    status: int = arguments.run(arguments)
    return status
