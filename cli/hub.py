"""``unknot hub list | show | pull | push | publish-bundled | serve``. Listing must answer without importing torch."""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from unknot.cli.parsing import Commands, command

if TYPE_CHECKING:
    from unknot.hub.listing import Checkpoint

COLUMNS = 6
WIDTH = 100
"""Characters per line; columns that do not fit are left out, the least important first. --json has all."""
LONGEST_DATASET = 15
"""Scores that the table shows at most."""


def add_to(commands: Commands) -> None:
    """Add the options of ``unknot hub``."""
    parser = command(
        commands,
        "hub",
        "list, publish and fetch checkpoints, or serve a hub of your own",
        "unknot hub list --dataset dsprites --sort dci",
        "unknot hub pull me/my-model",
        "unknot hub push runs/beta_vae_dsprites/version_0 me/my-model --scores scores.json",
        "unknot hub serve lab-hub",
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="action")

    listing = command(
        actions,
        "list",
        "bundled, cached and remote checkpoints",
        "unknot hub list --dataset dsprites --method AdaGVAE --sort dci",
        "unknot hub list --min mig=0.3 --json",
        "HF_HUB_OFFLINE=1 unknot hub list",
    )
    listing.add_argument("--dataset", metavar="NAME", help="only models trained on this data set")
    listing.add_argument("--method", metavar="NAME", help="only this model, e.g. AdaGVAE")
    listing.add_argument("--family", metavar="NAME", help="only this family, e.g. weak")
    listing.add_argument("--search", metavar="TEXT", help="part of the name")
    listing.add_argument(
        "--min", action="append", default=[], metavar="SCORE=X", help="minimum of a score; may be repeated"
    )
    listing.add_argument(
        "--max", action="append", default=[], metavar="SCORE=X", help="maximum of a score; may be repeated"
    )
    listing.add_argument(
        "--sort", metavar="KEY", help="a score, modified, ref or bytes; --sort=-KEY reverses the order"
    )
    listing.add_argument("--limit", type=int, metavar="N", help="maximum number of checkpoints")
    sources = ["bundled", "cached", "remote"]
    listing.add_argument(
        "--source",
        action="append",
        choices=[*sources, "shipped"],  # the former name of bundled
        metavar="{" + ",".join(sources) + "}",
        help="may be repeated",
    )
    listing.add_argument("--json", action="store_true", help="print JSON instead of a table")

    show = command(actions, "show", "card, scores and files of a checkpoint", "unknot hub show me/my-model@v1 --json")
    show.add_argument("ref", help="a bundled name, USER/REPO[@REVISION], or a folder")
    show.add_argument("--json", action="store_true", help="print JSON")

    pull = command(
        actions,
        "pull",
        "download a checkpoint, for use without a network",
        "unknot hub pull me/my-model",
        "unknot hub pull me/my-model@v1 models/mine",
    )
    pull.add_argument("ref", help="USER/REPO[@REVISION], or a bundled name")
    pull.add_argument("folder", nargs="?", help="destination (default: the client's cache)")

    push = command(
        actions,
        "push",
        "publish a model with its card, scores and pictures",
        "unknot hub push runs/beta_vae_dsprites/version_0 me/my-model --scores scores.json",
        "unknot hub push my-model me/my-model --public --dry-run",
    )
    push.add_argument("source", help="a run's folder, or a folder of a saved model, or any name that loads")
    push.add_argument("repo", help="USER/NAME")
    push.add_argument("--scores", metavar="FILE", help="JSON of `unknot evaluate --json` (default: those of the run)")
    push.add_argument("--seed", type=int, help="seed of the training (default: that of the run)")
    push.add_argument("--train-command", metavar="TEXT", help="command of the training (default: that of the run)")
    push.add_argument("--license", metavar="ID", help="license of the weights, e.g. apache-2.0")
    push.add_argument("--message", metavar="TEXT", help="message of the commit")
    push.add_argument("--force", action="store_true", help="overwrite changes that others made in the meantime")

    bundled = command(
        actions,
        "publish-bundled",
        "publish all checkpoints and tables of results of the package; again, what is not there yet",
        "unknot hub publish-bundled my-lab --dry-run",
        "unknot hub publish-bundled my-lab --only adagvae-dsprites",
        "unknot hub publish-bundled my-lab --space models --public",
        former=["publish-shipped"],
    )
    bundled.add_argument("organisation", help="USER or organisation to publish them under")
    bundled.add_argument("--only", nargs="+", metavar="NAME", help="only these checkpoints (default: all)")
    bundled.add_argument("--space", metavar="NAME", help="also publish them as a page: a static Space of this name")
    for action in (push, bundled):
        action.add_argument("--public", action="store_true", help="make a new repository public (default: private)")
        action.add_argument("--dry-run", action="store_true", help="print what would be sent, without sending it")
    for action in (listing, show, pull, push, bundled):
        action.add_argument(
            "--endpoint", metavar="URL", help="address of the hub (default: HF_ENDPOINT or the public one)"
        )

    serve = command(
        actions,
        "serve",
        "serve a folder as a hub for unknot and any huggingface_hub client",
        "unknot hub serve lab-hub",
        "unknot hub serve lab-hub --host 0.0.0.0 --port 8000 --tokens tokens.txt",
    )
    serve.add_argument("folder", help="folder of the repositories; created if it does not exist")
    serve.add_argument("--host", default="127.0.0.1", help="address to listen on (default: this machine only)")
    serve.add_argument("--port", type=int, default=8000, help="0 for any free port (default: 8000)")
    serve.add_argument(
        "--tokens", metavar="FILE", help="a line `USER TOKEN [admin]` for each user (default: made in the folder)"
    )
    serve.add_argument("--name", action="append", default=[], help="further host name of the hub")
    serve.add_argument(
        "--max-file", type=int, default=2048, metavar="MB", help="maximum size of a file (default: 2048)"
    )
    serve.add_argument(
        "--quota",
        type=float,
        default=100,
        metavar="GB",
        help="storage limit of each namespace; 0 for no limit (default: 100)",
    )
    parser.set_defaults(run=hub_command)


def hub_command(arguments: argparse.Namespace) -> int:
    """Run one of the actions."""
    return {
        "list": _list,
        "show": _show,
        "pull": _pull,
        "push": _push,
        "publish-bundled": _publish_bundled,
        "publish-shipped": _publish_bundled,
        "serve": _serve,
    }[arguments.action](arguments)


def _list(arguments: argparse.Namespace) -> int:
    from unknot.checkpoints.card import plain
    from unknot.hub.listing import SOURCES, gather, select

    bounds = {}
    for side in ("min", "max"):
        for text in getattr(arguments, side):
            score, _, value = text.partition("=")
            try:
                bounds[f"{side}_{score}"] = float(value)
            except ValueError:
                raise ValueError(f"--{side} {text}: expected SCORE=NUMBER, e.g. --{side} mig=0.3.") from None
    rows, notes = gather(arguments.source or SOURCES, arguments.endpoint)
    rows = select(
        rows,
        arguments.dataset,
        arguments.method,
        arguments.family,
        arguments.search,
        arguments.sort,
        arguments.limit,
        bounds,
    )
    if arguments.json:
        print(json.dumps([row.to_dict() for row in rows], indent=2))
    else:
        asked = [bound.partition("_")[2] for bound in bounds]
        print_table(rows, [*asked, *([arguments.sort.removeprefix("-")] if arguments.sort else [])])
    for note in notes:
        print(f"unknot: note: {plain(note, 500)}", file=sys.stderr)
    return 0


def print_table(rows: "list[Checkpoint]", first: list[str]) -> None:
    """Print one line for each checkpoint, with requested scores first, then the most common ones."""
    from unknot.checkpoints.card import plain
    from unknot.metrics.registry import about

    if not rows:
        print("No checkpoints. `unknot hub pull USER/REPO` fetches one; `unknot hub list --help` shows the filters.")
        return
    counts: dict[str, int] = {}
    for row in rows:
        for score in row.scores:
            counts[score] = counts.get(score, 0) + 1
    common = sorted(counts, key=lambda score: (-counts[score], about(score).rank, score))
    scores = list(dict.fromkeys([score for score in [*first, *common] if score in counts]))[:COLUMNS]
    columns = {
        "name": [row.ref for row in rows],
        "model": [row.model or "-" for row in rows],
        "data set": [_shortened(row.dataset or "-") for row in rows],
        **{name: [f"{row.scores[name]:.3f}" if name in row.scores else "-" for row in rows] for name in scores},
        "size": [f"{row.bytes / 1e6:.1f} MB" if row.bytes is not None else "-" for row in rows],
        "where": ["+".join(row.sources) for row in rows],
        "commit": [row.commit[:7] if row.commit else "-" for row in rows],
    }
    lines = {name: [plain(cell, 60) for cell in [name, *cells]] for name, cells in columns.items()}
    widths = {name: max(map(len, cells)) for name, cells in lines.items()}
    for spare in ("commit", "where", *reversed([name for name in scores if name not in first]), "size"):
        if sum(widths.values()) + 2 * (len(widths) - 1) > WIDTH:
            del widths[spare]
    numbers = {*scores, "size"}
    for place, problem in enumerate(["", *(row.problem or "" for row in rows)]):
        cells = [(lines[name][place], name, width) for name, width in widths.items()]
        shown = [cell.rjust(width) if name in numbers else cell.ljust(width) for cell, name, width in cells]
        print("  ".join([*shown, *([plain(problem, 100)] if problem else [])]).rstrip())


def _shortened(name: str) -> str:
    return name if len(name) <= LONGEST_DATASET else f"{name[: LONGEST_DATASET - 1]}…"


def _show(arguments: argparse.Namespace) -> int:
    from unknot.checkpoints.card import plain
    from unknot.hub.listing import show

    described = show(arguments.ref, arguments.endpoint)
    if arguments.json:
        print(json.dumps(described.to_dict(), indent=2))
        return 0
    row = described.checkpoint
    pinned = f"{row.ref}@{row.commit}" if row.commit else row.ref
    facts = {
        "name": row.ref,
        "commit": row.commit,
        "where": "+".join(row.sources),
        "model": row.model,
        "data set": row.dataset,
        "family": row.family,
        "seed": row.seed,
        "license": row.license,
        "modified": row.modified,
        "problem": row.problem,
    }
    for name, value in facts.items():
        if value is not None:
            print(f"{name:<9} {plain(value)}")
    print(f"{'load':<9} unknot.hub.load({pinned!r})")
    for title, lines in (
        ("scores", [plain(line, 100) for line in str(row.scores).splitlines()]),
        ("files", [f"{plain(name, 60):<28} {count:,}" for name, count in described.files.items()]),
    ):
        if lines:
            print(f"{title}\n  " + "\n  ".join(lines))
    if described.body.strip():
        print("card")
        for line in described.body.splitlines():
            print(f"  {plain_line(line)}".rstrip())
    return 0


def plain_line(line: str) -> str:
    """Format a line of an untrusted card for the terminal: spaces stay, control characters are removed."""
    return "".join(letter for letter in line.expandtabs(4) if letter.isprintable())[:500]


def _pull(arguments: argparse.Namespace) -> int:
    from unknot.hub.listing import pull

    folder = pull(arguments.ref, arguments.folder, arguments.endpoint)
    print(f"{arguments.ref} is in {folder}")
    if (folder / "training.yaml").is_file():
        print("training.yaml names classes that `unknot fit --config` would run: read it first, as it is untrusted.")
    name = str(folder) if arguments.folder else arguments.ref
    print(f"Load it with unknot.hub.load({name!r}); score it with `unknot evaluate {name}`.")
    return 0


def _push(arguments: argparse.Namespace) -> int:
    from unknot.hub.loading import load
    from unknot.hub.publishing import known_about, push

    folder = Path(arguments.source)
    run = folder / "model" if (folder / "model" / "config.json").is_file() else folder
    model = load(run if run.is_dir() else arguments.source)
    options = known_about(folder) if folder.is_dir() else {}
    if arguments.scores:
        from unknot.metrics.scores import Scores

        options["scores"] = Scores.read(arguments.scores)
        options.pop("protocol", None)  # sorted by other scores
    given = {"seed": arguments.seed, "command": arguments.train_command, "license": arguments.license}
    options |= {name: value for name, value in given.items() if value is not None}
    push(
        model,
        arguments.repo,
        private=not arguments.public,
        commit_message=arguments.message,
        endpoint=arguments.endpoint,
        force=arguments.force,
        dry_run=arguments.dry_run,
        **options,
    )
    return 0


def _publish_bundled(arguments: argparse.Namespace) -> int:
    from unknot.hub.publishing_bundled import publish_bundled

    publish_bundled(
        arguments.organisation,
        arguments.only,
        space=arguments.space,
        private=not arguments.public,
        endpoint=arguments.endpoint,
        dry_run=arguments.dry_run,
    )
    return 0


def _serve(arguments: argparse.Namespace) -> int:
    from unknot.hub.server.app import serve

    serve(
        arguments.folder,
        arguments.host,
        arguments.port,
        arguments.tokens,
        arguments.max_file << 20,
        arguments.name,
        int(arguments.quota * (1 << 30)) or None,
        say=lambda text: print(text, flush=True),
    )
    return 0
