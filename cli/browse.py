"""``unknot browse``: look through trained checkpoints in a browser."""

import argparse


def browse_command(arguments: argparse.Namespace) -> int:
    """Serve the page, or write it to a file."""
    from unknot.hub.browsing import browse, export

    def say(text: str) -> None:
        print(text, flush=True)

    if arguments.export:
        export(arguments.export, arguments.folders, arguments.endpoint, say)
    else:
        browse(arguments.folders, arguments.endpoint, arguments.host, arguments.port, not arguments.no_open, say)
    return 0
