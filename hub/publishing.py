"""Publish a model: weights, configuration, pictures and a card with its scores, in one commit that keeps others'
changes.
"""

import hashlib
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

import safetensors
import torch
from huggingface_hub import CommitInfo, CommitOperationAdd, CommitOperationDelete, HfApi, get_token
from torch import Tensor

from unknot.checkpoints import client
from unknot.checkpoints.cache import Announced
from unknot.checkpoints.card import MAX_CARD, Card, plain, read_card
from unknot.checkpoints.errors import AccessError, MissingError
from unknot.checkpoints.names import CARD, CONFIG, WEIGHTS, check_repo_id
from unknot.datamodules import available_dataset
from unknot.files import read_limited, replacing
from unknot.hub.listing import pull, read_config
from unknot.hub.model_card import RESULTS, Content, Facts, card_text, check_scores, eval_results, facts_from, filled
from unknot.inference import evaluation_mode
from unknot.training import RunFolder
from unknot.training.score_file import ScoreFile
from unknot.zoo import Model
from unknot.zoo.pictures import draw_reconstructions, draw_traversals

GENERATED = {"pictures/traversals.png", "pictures/reconstructions.png", "training.yaml", "training.csv", RESULTS}
"""Files that are removed with old weights."""


def push(
    model: Model,
    repo: str,
    scores: Mapping[str, float] | None = None,
    private: bool | None = None,
    *,
    protocol: Mapping[str, Any] | None = None,
    seed: int | None = None,
    command: str | None = None,
    license: str | None = None,
    commit: str | None = None,
    core_hours: float | None = None,
    notes: Sequence[str] = (),
    images: Tensor | None = None,
    extras: Mapping[str, Path] | None = None,
    dtype: torch.dtype | None = None,
    revision: str | None = None,
    commit_message: str | None = None,
    endpoint: str | None = None,
    token: str | None = None,
    force: bool = False,
    dry_run: bool = False,
    say: Callable[[str], None] = print,
) -> str:
    """Publish a model with its card in one commit, and return the address of the commit.

    An edited README.md keeps its text; only its metadata are updated. If the repository changes in the meantime, the
    push fails. A model that was loaded and not changed since keeps its card: the scores, seed, settings, curve and
    pictures of its checkpoint are published with it, unless others are passed here.

    Args:
        model: model to publish.
        repo: ``USER/NAME``; created if it does not exist.
        scores: scores from ``evaluate``, listed in the card with their protocol, without details.
        private: whether a new repository is private (the default). An existing one is not changed.
        protocol: protocol of the scores, if they do not include it.
        seed: seed of the training.
        command: command of the training.
        license: license identifier of the weights, e.g. ``"apache-2.0"``.
        commit: commit of the code that trained the model.
        core_hours: processor time of the training, summed over cores.
        notes: sentences on how it was trained or chosen.
        images: images ``[N, C, H, W]`` for the pictures; by default samples of the data set, if it is available
            locally.
        extras: further files by their name in the repository: pictures, ``training.yaml`` or ``training.csv``.
        dtype: precision to publish the weights in, as in ``save_pretrained``.
        revision: branch to publish to, created if it does not exist; ``main`` by default.
        commit_message: message of the commit.
        endpoint: address of the hub; by default ``HF_ENDPOINT`` or the public one.
        token: by default ``HF_TOKEN`` or the saved login.
        force: overwrite changes that others made in the meantime, and send files again that seem to exist.
        dry_run: print what would be published, without sending it.
        say: function called with each message.

    >>> from unknot.zoo import BetaVAE
    >>> push(BetaVAE(image_shape=(1, 32, 32)), "me/model", endpoint="http://127.0.0.1:8000", dry_run=True)
    ... # doctest: +ELLIPSIS
    Publishing BetaVAE as me/model to http://127.0.0.1:8000 (private if it is new): config.json ...
    Dry run: nothing was sent.
    ''
    """
    check_repo_id(repo)
    address = client.endpoint_of(endpoint)
    if not dry_run:
        token = writing_token(address, token)
    facts = Facts(check_scores(scores or {}, protocol), seed, command, license, commit, core_hours, tuple(notes))
    origin = _origin_of(model, address, token, say)
    if origin is not None:
        known, dtype = known_about(origin), dtype or stored_in(origin)
        extras = known["extras"] | dict(extras or {})
        facts = filled(facts, facts_from(_card_of(origin)))
    with tempfile.TemporaryDirectory() as folder:
        files = prepare(model, folder, facts, images, extras, dtype)
        visible = "public" if private is False else "private"
        what = ", ".join(f"{name} {size(file.size)}" for name, file in sorted(files.items()))
        say(f"Publishing {type(model).__name__} as {repo} to {address} ({visible} if it is new): {what}, and a card")
        if dry_run:
            say("Dry run: nothing was sent.")
            return ""
        say(f"Your token is sent to {address} alone.")
        api = HfApi(endpoint=address, token=token)
        before = repository(api, repo, revision, private is not False, address, token)
        visible = "private" if before.private else "public"
        say(f"{repo} is {visible} and at {before.commit[:7]}.")
        there = card_in(before, address, token)
        card = _card_of(origin) if there is None else read_card(there)
        if card.problem and there is not None and not force:
            raise ValueError(f"{repo}/{CARD}: {card.problem}. Fix it there, or overwrite it with force=True.")
        changed = {name for name, file in files.items() if not same(file, before.files.get(name))}
        has_new_weights = bool({CONFIG, WEIGHTS} & changed)
        if not has_new_weights:
            facts = filled(facts, facts_from(card))
        text = card_text(model, repo, facts, files, card).encode()
        if not changed and text == there and not force:
            say(f"Nothing to do: {repo}@{before.commit[:7]} holds all of this already.")
            return f"{address}/{repo}"
        contents: dict[str, str | bytes] = {name: str(files[name].path) for name in (files if force else changed)}
        stale = sorted(GENERATED & before.files.keys() - files.keys()) if has_new_weights else []
        message = commit_message or f"Publish {type(model).__name__} with unknot {version('unknot')}"
        done = send(api, before, contents | {CARD: text}, message, stale, revision, force)
    say(f"Published {repo}@{done.oid[:7]} ({visible}). Load it with unknot.hub.load({f'{repo}@{done.oid}'!r})")
    say(f"Look at it: {address}/{repo}")
    return str(done.commit_url)


def writing_token(address: str, token: str | None) -> str:
    """Return the token to write with; without one, say how to get one."""
    if token := token or get_token():
        return token
    raise AccessError(f"{address} requires a write token: set HF_TOKEN, or log in with `hf auth login`.")


def send(
    api: HfApi,
    before: client.Listing,
    contents: Mapping[str, str | bytes],
    message: str,
    deleted: Sequence[str] = (),
    revision: str | None = None,
    force: bool = False,
) -> CommitInfo:
    """Commit files and deletions onto a state; refused if somebody else has committed since, unless forced."""
    operations: list[Any] = [CommitOperationAdd(*item) for item in sorted(contents.items())]
    operations += [CommitOperationDelete(name) for name in deleted]
    parent = None if force else before.commit
    options: dict[str, Any] = {"commit_message": message, "revision": revision, "parent_commit": parent}
    return client.ask(
        api.endpoint, before.repo, lambda: api.create_commit(before.repo, operations, **options), deadline=None
    )


def card_in(listing: client.Listing, address: str, token: str | None) -> bytes | None:
    """Return the card in a repository, if there is one."""
    return client.download(listing, CARD, address, token).read_bytes() if CARD in listing.files else None


def _origin_of(model: Model, address: str, token: str | bool | None, say: Callable[[str], None]) -> Path | None:
    """Return the folder of the checkpoint with a card that an unchanged model was loaded from."""
    source = model.loaded_from
    if source is None or not _is_stored(model, source.folder):
        return None
    if source.commit is None:
        return source.folder if (source.folder / CARD).is_file() else None
    try:  # the model is cached; its card and curve may not be
        return pull(f"{source.repo}@{source.commit}", endpoint=address, token=token)
    except (OSError, ValueError) as error:
        say(f"Publishing without the card of {source.repo}, which could not be fetched: {plain(error, 500)}")
        return None


def _card_of(folder: Path | None) -> Card:
    """Return the card in a folder, empty if there is none."""
    path = None if folder is None else folder / CARD
    return read_card(read_limited(path, MAX_CARD)) if path and path.is_file() else Card()


def _is_stored(model: Model, folder: Path) -> bool:
    """Return whether a folder has the model's current weights, arguments and data set."""
    try:
        stored, now = read_config(folder), model.configuration()
        arguments = stored["arguments"].items()
        if any(stored.get(key) != now.get(key) for key in ("model", "annealed", "dataset")):
            return False
        state = model.state_dict()
        with safetensors.safe_open(folder / WEIGHTS, framework="pt") as file:
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, ValueError, KeyError, AttributeError, safetensors.SafetensorError):
        return False
    return all(now["arguments"].get(name) == value for name, value in arguments) and all(
        name in state and torch.equal(state[name].cpu(), tensor.to(state[name].dtype))
        for name, tensor in weights.items()
    )


def stored_in(folder: Path) -> torch.dtype | None:
    """Return half precision if weights are stored in it, otherwise None."""
    with safetensors.safe_open(folder / WEIGHTS, framework="pt") as file:
        types = {file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118
    return torch.float16 if "F16" in types else None


def repository(
    api: HfApi, repo: str, revision: str | None, private: bool, address: str, token: str | None
) -> client.Listing:
    """Return the current state of a repository; create repository and branch if they do not exist."""
    try:
        return client.look_up(repo, revision, address, token)
    except MissingError:
        client.ask(address, repo, lambda: api.create_repo(repo, private=private, exist_ok=True))
        if revision is not None:
            client.ask(address, repo, lambda: api.create_branch(repo, branch=revision, exist_ok=True))
        return client.look_up(repo, revision, address, token)


def prepare(
    model: Model,
    folder: str | Path,
    facts: Facts,
    images: Tensor | None = None,
    extras: Mapping[str, Path] | None = None,
    dtype: torch.dtype | None = None,
    inference_only: bool = False,
) -> dict[str, Content]:
    """Write all published files except the card into ``folder``, and return them by name, each read once."""
    folder = model.save_pretrained(folder, dtype, inference_only)
    names = [CONFIG, WEIGHTS]
    for name, path in (extras or {}).items():
        if not client.limit_of(name):
            raise ValueError(
                f"{name} is not published; besides the model only pictures/*.png, training.yaml and .csv are."
            )
        if path.stat().st_size > client.limit_of(name):
            raise ValueError(
                f"{path} has {path.stat().st_size:,} bytes; at most {client.limit_of(name):,} are published."
            )
        with replacing(folder / name) as beside:
            beside.write_bytes(read_limited(path, client.limit_of(name)))
        names.append(name)
    if model.capabilities >= {"codes", "decode"} and "pictures/traversals.png" not in names:
        names += _draw(model, folder, images)
    if facts.scores:
        with replacing(folder / RESULTS) as beside:
            beside.write_text(eval_results(model.trained_on, facts.scores), encoding="utf-8")
        names.append(RESULTS)
    return {name: content_of(folder / name) for name in names}


def assemble(
    model: Model,
    folder: str | Path,
    repo: str,
    facts: Facts,
    extras: Mapping[str, Path] | None = None,
    dtype: torch.dtype | None = None,
) -> Path:
    """Write a checkpoint with its card into a folder, as for bundled ones."""
    files = prepare(model, folder, facts, None, extras, dtype, inference_only=True)
    with replacing(Path(folder) / CARD) as beside:
        beside.write_text(card_text(model, repo, facts, files), encoding="utf-8")
    return Path(folder)


def known_about(folder: Path) -> dict[str, Any]:
    """Return the options of :func:`push` recorded in a folder: a saved model with a card, or a training run."""
    known: dict[str, Any] = {"extras": {}}
    if (folder / CARD).is_file():
        facts = facts_from(read_card((folder / CARD).read_bytes()))
        known |= {field.name: getattr(facts, field.name) for field in fields(Facts)}
    for name in ("training.yaml", "training.csv"):
        if (folder / name).is_file():
            known["extras"][name] = folder / name
    for path in sorted(folder.glob("pictures/*.png")):
        if client.PICTURE.fullmatch(f"pictures/{path.name}") and (folder / CONFIG).is_file():
            known["extras"][f"pictures/{path.name}"] = path
    run = next((run for run in map(RunFolder, (folder, folder.parent)) if run.exists() and run.is_trained()), None)
    if run is not None:
        published = run.publication()
        known["extras"] = published.pop("extras") | known["extras"]
        known |= {name: value for name, value in published.items() if value is not None and not known.get(name)}
    elif not known.get("scores"):
        known["scores"] = ScoreFile.beside(folder).scores(None)
    return known


def size(count: int) -> str:
    """Format a number of bytes.

    >>> size(2_100_000)
    '2.1 MB'
    """
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.1f} kB"


def _draw(model: Any, folder: Path, images: Tensor | None) -> list[str]:
    """Draw traversals and reconstructions; without images, traversals of images decoded from random latents."""
    generator = torch.Generator().manual_seed(0)
    dataset = available_dataset(model.trained_on, model.image_shape)
    if images is None and dataset:
        images = dataset.observe(dataset.factor_space.sample(64, generator))
    traversals, reconstructions = "pictures/traversals.png", "pictures/reconstructions.png"
    with evaluation_mode(model):
        if images is None:
            latents = model.represent(torch.zeros(1, *model.image_shape, device=model.device)).shape[1]
            codes = torch.randn(16, latents, generator=generator)
            draw_traversals(model, model.decode(codes.to(model.device)), folder / traversals)
            return [traversals]
        draw_traversals(model, images, folder / traversals)
        draw_reconstructions(model, images[:10], folder / reconstructions)
    return [traversals, reconstructions]


def content_of(path: Path) -> Content:
    """Return a file with its size and hashes, read once."""
    size = path.stat().st_size
    sha256, sha1 = hashlib.sha256(), hashlib.sha1(b"blob %d\0" % size)
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            sha256.update(chunk)
            sha1.update(chunk)
    return Content(path, size, sha256.hexdigest(), sha1.hexdigest())


def same(file: Content, announced: Announced | None) -> bool:
    """Return whether the hub already has a file."""
    return announced in ((file.size, file.sha256), (file.size, file.sha1))
