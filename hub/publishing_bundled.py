"""Publish the bundled checkpoints, tables of results and their page to a hub, each once."""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi

from unknot.checkpoints import client
from unknot.checkpoints.card import write_card
from unknot.checkpoints.names import CARD, bundled_folder, bundled_names, check_repo_id
from unknot.hub.browser.export import export
from unknot.hub.loading import load
from unknot.hub.publishing import (
    card_in,
    content_of,
    known_about,
    push,
    repository,
    same,
    send,
    stored_in,
    writing_token,
)
from unknot.hub.publishing_site import publish_site

RESULTS_REPO = "results"


def publish_bundled(
    organisation: str,
    names: Sequence[str] | None = None,
    *,
    space: str | None = None,
    private: bool | None = None,
    endpoint: str | None = None,
    token: str | None = None,
    dry_run: bool = False,
    say: Callable[[str], None] = print,
) -> list[str]:
    """Publish every bundled checkpoint as ``ORGANISATION/NAME`` and the tables of results as ``ORGANISATION/results``.

    Weights go as they are bundled, in half precision where they are. Interrupted, run it again: what a repository has
    already is neither sent nor committed again.

    Args:
        organisation: user or organisation to publish under.
        names: of bundled checkpoints, as in ``unknot/NAME``; all of them by default.
        space: name of a static Space to publish too, where visitors move the latents of these checkpoints in their
            browser.
        private: whether new repositories are private, which they are unless this is False.
        endpoint: address of the hub; by default ``HF_ENDPOINT`` or the public one.
        token: by default ``HF_TOKEN`` or the saved login.
        dry_run: say what would be published, and send nothing.
        say: where messages go.

    Returns:
        The address of each commit, or of the repository where there was nothing to do.
    """
    where: dict[str, Any] = {"private": private, "endpoint": endpoint, "token": token, "dry_run": dry_run}
    chosen = [f"unknot/{name.removeprefix('unknot/')}" for name in names or bundled_names()]
    folders = {name: bundled_folder(name) for name in chosen}
    if unknown := [name for name, folder in folders.items() if folder is None]:
        raise ValueError(f"{', '.join(unknown)}: not bundled; there are {', '.join(bundled_names())}.")
    addresses: list[str] = []
    total = len(chosen) + (1 if space is None else 2)
    try:
        for place, (name, folder) in enumerate(folders.items(), 1):
            assert folder is not None
            repo = f"{organisation}/{name.partition('/')[2]}"
            say(f"{place} of {total}: {repo}")
            addresses.append(push(load(name), repo, dtype=stored_in(folder), say=say, **known_about(folder), **where))
        say(f"{len(chosen) + 1} of {total}: {organisation}/{RESULTS_REPO}")
        addresses.append(publish_tables(f"{organisation}/{RESULTS_REPO}", say=say, **where))
        if space is not None:
            say(f"{total} of {total}: the Space {organisation}/{space}")
            with tempfile.TemporaryDirectory() as temporary:
                site = export(Path(temporary) / "site", endpoint=endpoint, say=say, only=chosen)
                addresses.append(publish_site(site, f"{organisation}/{space}", say=say, **where))
    except BaseException:
        say(f"Stopped after {len(addresses)} of {total}. Run it again to resume: what is there is not sent again.")
        raise
    if not dry_run:
        sent = sum("/commit/" in address for address in addresses)
        say(f"{sent} published, {total - sent} were there already or have nothing to publish.")
    return addresses


def publish_tables(
    repo: str,
    *,
    private: bool | None = None,
    endpoint: str | None = None,
    token: str | None = None,
    dry_run: bool = False,
    say: Callable[[str], None] = print,
) -> str:
    """Publish the tables of results of the package in one repository, and give the address of the commit."""
    from unknot.studies import bundled_tables

    check_repo_id(repo)
    address = client.endpoint_of(endpoint)
    paths = [path for name in bundled_tables.names() for path in sorted(bundled_tables.FOLDER.glob(f"{name}.*"))]
    if not paths:
        say("No tables of results come with this package.")
        return ""
    files = {path.name: content_of(path) for path in paths}
    say(f"Publishing tables of results as {repo} to {address}: {', '.join(files)}")
    if dry_run:
        say("Dry run: nothing was sent.")
        return ""
    token = writing_token(address, token)
    api = HfApi(endpoint=address, token=token)
    before = repository(api, repo, None, private is not False, address, token)
    card = _card(bundled_tables.names()).encode()
    contents: dict[str, str | bytes] = {
        name: str(file.path) for name, file in files.items() if not same(file, before.files.get(name))
    }
    if not contents and card_in(before, address, token) == card:
        say(f"Nothing to do: {repo}@{before.commit[:7]} holds all of this already.")
        return f"{address}/{repo}"
    done = send(api, before, contents | {CARD: card}, "Publish tables of results")
    say(f"Published {repo}@{done.oid[:7]}")
    return str(done.commit_url)


def _card(names: Sequence[str]) -> str:
    from unknot.studies import bundled_tables

    rows = ["| table | models | planned | core-hours | description |", "|---|---|---|---|---|"]
    for name in names:
        about = bundled_tables.about(name)
        rows.append(
            "| `{name}.csv` | {models} | {planned} | {core_hours:g} | {description} |".format(name=name, **about)
        )
    text = (
        "# Tables of results\n\nRaw results of trained populations, a row for each model: settings, seed, scores, "
        "losses, processor time. `NAME.json` says how the scores were drawn.\n\n" + "\n".join(rows) + "\n\n"
        '```python\nfrom unknot.studies import load_results\n\ntable = load_results("' + names[0] + '")\n```\n'
    )
    return write_card({"tags": ["unknot-results"], "license": "apache-2.0"}, text)
