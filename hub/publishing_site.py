"""Publish a static site of checkpoints as a Space of a hub."""

from collections.abc import Callable
from pathlib import Path

from huggingface_hub import HfApi

from unknot.checkpoints import client
from unknot.checkpoints.card import write_card
from unknot.checkpoints.names import CARD, check_repo_id
from unknot.hub.publishing import writing_token


def publish_site(
    site: str | Path,
    repo: str,
    *,
    private: bool | None = None,
    endpoint: str | None = None,
    token: str | None = None,
    dry_run: bool = False,
    say: Callable[[str], None] = print,
) -> str:
    """Publish a folder that ``unknot browse --export`` wrote as a static Space, in one commit.

    Files that the Space has and the folder has not are deleted; files that are the same are not sent again.

    Args:
        site: the folder.
        repo: ``USER/NAME`` of the Space; made if it does not exist.
        private: whether a new Space is private, which it is unless this is False.
        endpoint: address of the hub; by default ``HF_ENDPOINT`` or the public one.
        token: by default ``HF_TOKEN`` or the saved login.
        dry_run: say what would be published, and send nothing.
        say: where messages go.

    Returns:
        The address of the commit; nothing after a dry run.
    """
    check_repo_id(repo)
    site, address = Path(site), client.endpoint_of(endpoint)
    if not (site / "index.html").is_file():
        raise ValueError(f"{site} has no index.html. Write the folder with `unknot browse --export {site}`.")
    (site / CARD).write_text(_card(repo.partition("/")[2]), encoding="utf-8")
    sizes = [path.stat().st_size for path in site.rglob("*") if path.is_file()]
    say(f"Publishing {len(sizes)} files ({sum(sizes) / 1e6:.1f} MB) as the Space {repo} to {address}")
    if dry_run:
        say("Dry run: nothing was sent.")
        return ""
    api = HfApi(endpoint=address, token=writing_token(address, token))
    make = {"repo_type": "space", "space_sdk": "static", "private": private is not False, "exist_ok": True}
    client.ask(address, repo, lambda: api.create_repo(repo, **make))  # type: ignore[arg-type]
    done = client.ask(
        address,
        repo,
        lambda: api.upload_folder(
            repo_id=repo,
            repo_type="space",
            folder_path=site,
            commit_message="Publish the page of checkpoints",
            delete_patterns="*",
        ),
        deadline=None,
    )
    say(f"Published the Space {repo}@{done.oid[:7]}: {address}/spaces/{repo}")
    return str(done.commit_url)


def _card(title: str) -> str:
    text = "Latents of disentangled representations, moved in your browser. Written by `unknot browse --export`.\n"
    return write_card({"title": title, "sdk": "static", "app_file": "index.html", "license": "apache-2.0"}, text)
