"""``unknot browse``: explore trained checkpoints in a browser."""

import argparse

from unknot.cli.parsing import Commands, command


def add_to(commands: Commands) -> None:
    """Add the options of ``unknot browse``."""
    parser = command(
        commands,
        "browse",
        "look through trained checkpoints in a browser, and move their latents",
        "unknot browse",
        "unknot browse runs --no-open",
        "unknot browse runs --export checkpoints.html",
        "unknot browse runs --export site/",
    )
    parser.add_argument(
        "folders", nargs="*", metavar="FOLDER", help="folder with saved models or runs, or a table of results"
    )
    parser.add_argument("--endpoint", metavar="URL", help="address of the hub (default: HF_ENDPOINT or the public one)")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: this machine only)")
    parser.add_argument("--port", type=int, help="0 for any free port (default: 8800, or a free one if it is in use)")
    parser.add_argument("--no-open", action="store_true", help="print the address without opening a browser")
    parser.add_argument(
        "--export", metavar="PATH", help="write one HTML file (FILE.html), or a folder for any web host, instead"
    )
    parser.add_argument("--only", nargs="+", default=(), metavar="NAME", help="export only these checkpoints")
    parser.set_defaults(run=browse_command)


def browse_command(arguments: argparse.Namespace) -> int:
    """Serve the page, or export it."""
    from unknot.hub.browser.app import browse
    from unknot.hub.browser.export import export

    def say(text: str) -> None:
        print(text, flush=True)

    if arguments.export:
        export(arguments.export, arguments.folders, arguments.endpoint, say, arguments.only)
    else:
        browse(arguments.folders, arguments.endpoint, arguments.host, arguments.port, not arguments.no_open, say)
    return 0
