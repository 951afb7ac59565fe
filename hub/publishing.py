"""Publish a model: weights, configuration, pictures and a card with its scores, in one commit that loses nothing."""

import hashlib
import json
import math
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
import yaml
from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, get_token
from torch import Tensor

from unknot._files import replacing
from unknot._modes import evaluation_mode
from unknot.hub import client
from unknot.hub.cards import Card, digest, facts_of, label, model_index, plain, read_card, scores_of, write_card
from unknot.hub.errors import AccessError, ConflictError, MissingError
from unknot.hub.live import data_of, family_of
from unknot.hub.loading import load
from unknot.hub.refs import shipped_folder, shipped_names
from unknot.hub.storage import COMMIT, check_repo_id
from unknot.metrics.scores import Scores
from unknot.zoo import VAE, Model
from unknot.zoo.pictures import draw_reconstructions, draw_traversals
from unknot.zoo.pretrained import CONFIG, WEIGHTS

AnyModel = VAE | Model
CARD = "README.md"
OURS = ("method:", "zoo-dataset:", "family:")
"""Beginnings of the tags that a push sets anew; all others are left as they are."""
GENERATED = {"pictures/traversals.png", "pictures/reconstructions.png", "training.yaml", "training.csv"}
"""Files that go with old weights."""
CAPTIONS = {
    "traversals": "What each code does: one row per code, from -2 to 2",
    "reconstructions": "Reconstructions",
    "factor_code": "Which code tells of which factor",
}


@dataclass(frozen=True)
class Facts:
    """What a card tells about a checkpoint besides its weights."""

    scores: Scores = field(default_factory=Scores)
    seed: int | None = None
    command: str | None = None
    license: str | None = None


def push(
    model: AnyModel,
    repo: str,
    scores: Mapping[str, float] | None = None,
    private: bool | None = None,
    *,
    protocol: Mapping[str, Any] | None = None,
    seed: int | None = None,
    command: str | None = None,
    license: str | None = None,
    images: Tensor | None = None,
    extras: Mapping[str, Path] | None = None,
    message: str | None = None,
    endpoint: str | None = None,
    token: str | None = None,
    force: bool = False,
    dry_run: bool = False,
    say: Callable[[str], None] = print,
) -> str:
    """Publish a model with its card and give the address of the commit.

    A README.md that somebody has edited keeps its text; only its metadata are brought up to date. If the repository
    changes while we look at it, the push is refused.

    Args:
        model: what to publish.
        repo: ``USER/NAME``; made if it does not exist.
        scores: from ``evaluate``; they go into the card as numbers, with how they were measured, without details.
        private: whether a new repository is private, which it is unless this is False. One that exists stays as it is.
        protocol: how the scores were measured, where they are a plain dict, e.g. ``{"num_train": 10_000, "seed": 0}``.
        seed: of the training.
        command: that trained it.
        license: of the weights, by its identifier, e.g. ``"apache-2.0"``.
        images: ``[N, C, H, W]`` to draw pictures of; by default draws of the data set, where it is at hand.
        extras: more files by their name in the repository: pictures, ``training.yaml`` or ``training.csv``.
        message: of the commit.
        endpoint: address of the hub; by default ``HF_ENDPOINT`` or the public one.
        token: by default ``HF_TOKEN`` or the saved login.
        force: overwrite what others changed in the meantime.
        dry_run: say what would be published, and send nothing.
        say: where messages go.

    >>> from unknot.zoo import BetaVAE
    >>> push(BetaVAE(image_shape=(1, 32, 32)), "me/model", endpoint="http://127.0.0.1:8000", dry_run=True)
    ... # doctest: +ELLIPSIS
    Publishing BetaVAE as me/model to http://127.0.0.1:8000 (private if it is new): README.md ..., config.json ...
    Dry run: nothing was sent.
    ''
    """
    check_repo_id(repo)
    address = client.endpoint_of(endpoint)
    if not dry_run and not (token := token or get_token()):
        raise AccessError(f"{address} wants a token for writing: set HF_TOKEN, or log in with `hf auth login`.")
    facts = Facts(check_scores(scores or {}, protocol), seed, command, license)
    with tempfile.TemporaryDirectory() as folder:
        files = assemble(model, folder, repo, facts, images, extras)
        visible = "public" if private is False else "private"
        what = ", ".join(f"{name} {size(path.stat().st_size)}" for name, path in sorted(files.items()))
        say(f"Publishing {type(model).__name__} as {repo} to {address} ({visible} if it is new): {what}")
        if dry_run:
            say("Dry run: nothing was sent.")
            return ""
        return _send(model, repo, facts, files, address, token, private is not False, message, force, say)


def assemble(
    model: AnyModel,
    folder: str | Path,
    repo: str,
    facts: Facts,
    images: Tensor | None = None,
    extras: Mapping[str, Path] | None = None,
    dtype: torch.dtype | None = None,
) -> dict[str, Path]:
    """Write all that is published into ``folder``, with a fresh card, and give the files by name.

    This is also how a shipped checkpoint is made: ``repo`` is then ``unknot/NAME``, and ``dtype`` half precision.
    """
    folder = model.save_pretrained(folder, dtype)
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
            beside.write_bytes(path.read_bytes())
        names.append(name)
    if isinstance(model, VAE) and "pictures/traversals.png" not in names:
        names += _draw(model, folder, images)
    files = {name: folder / name for name in names}
    metadata = metadata_of(model, repo, facts, files)
    body = body_of(model, repo, facts, files, None)
    metadata["unknot"]["body"] = digest(body)
    with replacing(folder / CARD) as beside:
        beside.write_text(write_card(metadata, body), encoding="utf-8")
    return files | {CARD: folder / CARD}


def publish_shipped(organisation: str, **options: Any) -> list[str]:
    """Publish every shipped checkpoint as ``ORGANISATION/NAME``; options are those of :func:`push`."""
    addresses = []
    for name in shipped_names():
        folder = shipped_folder(name)
        assert folder is not None
        repo = f"{organisation}/{name.partition('/')[2]}"
        addresses.append(push(load(name), repo, **known_about(folder), **options))
    return addresses


def known_about(folder: Path) -> dict[str, Any]:
    """Options for :func:`push` that a folder tells: of a saved model with a card, or of a run of `unknot fit`."""
    known: dict[str, Any] = {"extras": {}}
    if (folder / CARD).is_file():
        facts = facts_from(read_card((folder / CARD).read_bytes()))
        known |= {name: getattr(facts, name) for name in ("scores", "seed", "command", "license")}
    for name in ("training.yaml", "training.csv"):
        if (folder / name).is_file():
            known["extras"][name] = folder / name
    for path in sorted(folder.glob("pictures/*.png")):
        if client.PICTURE.fullmatch(f"pictures/{path.name}") and (folder / CONFIG).is_file():
            known["extras"][f"pictures/{path.name}"] = path
    run = folder if (folder / "model" / CONFIG).is_file() else folder.parent
    if (run / "config.yaml").is_file() and (run / "model" / CONFIG).is_file():
        known["extras"]["training.yaml"] = run / "config.yaml"
        known["command"] = known.get("command") or "unknot fit --config training.yaml"
        settings = yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))
        if (
            known.get("seed") is None
            and isinstance(settings, dict)
            and isinstance(settings.get("seed_everything"), int)
        ):
            known["seed"] = settings["seed_everything"]
        if (run / "metrics.csv").is_file():
            known["extras"]["training.csv"] = run / "metrics.csv"
        for kind in ("traversals", "reconstructions"):
            for path in sorted(run.glob(f"pictures/{kind}-*.png"))[-1:]:
                known["extras"].setdefault(f"pictures/{kind}.png", path)
    return known


def _send(
    model: AnyModel,
    repo: str,
    facts: Facts,
    files: dict[str, Path],
    address: str,
    token: str | None,
    private: bool,
    message: str | None,
    force: bool,
    say: Callable[[str], None],
) -> str:
    say(f"Your token is sent to {address} alone.")
    api = HfApi(endpoint=address, token=token)
    try:
        before = client.look_up(repo, None, address, token)
    except MissingError:
        client.ask(address, repo, lambda: api.create_repo(repo, private=private, exist_ok=True))
        before = client.look_up(repo, None, address, token)
    say(f"{repo} is {'private' if before.private else 'public'} and at {before.commit[:7]}.")
    old, existing = Card(), None
    if CARD in before.files:
        existing = client.download(before, CARD, address, token).read_bytes()
        old = read_card(existing)
        if old.problem and not force:
            raise ValueError(f"{repo}/{CARD}: {old.problem}. Mend it there, or replace it with force=True.")
    changed = {name: path for name, path in files.items() if name != CARD and not _same(path, before.files.get(name))}
    stale: list[str] = []
    if {CONFIG, WEIGHTS} & changed.keys():
        stale = [name for name in sorted(GENERATED & before.files.keys()) if name not in files]
    else:
        facts = _filled(facts, facts_from(old))

    def card(commit: str | None) -> str:
        metadata = metadata_of(model, repo, facts, files)
        body = body_of(model, repo, facts, files, commit)
        block = metadata["unknot"] | ({"commit": commit} if commit else {}) | {"body": digest(body)}
        edited = bool(old.body.strip()) and digest(old.body) != facts_of(old.metadata).get("body")
        return write_card(merged(old.metadata, metadata | {"unknot": block}), old.body if edited else body)

    def commit(contents: Mapping[str, Path | str], gone: list[str], parent: str, summary: str) -> Any:
        operations: list[Any] = [
            CommitOperationAdd(name, content.encode() if isinstance(content, str) else str(content))
            for name, content in sorted(contents.items())
        ]
        operations += [CommitOperationDelete(name) for name in gone]
        parent_commit = None if force else parent
        return client.ask(
            address,
            repo,
            lambda: api.create_commit(repo, operations, commit_message=summary, parent_commit=parent_commit),
            deadline=None,
        )

    head, url = before.commit, f"{address}/{repo}"
    told = facts_of(old.metadata)
    same = told.get("weights") == hashlib.sha256(files[WEIGHTS].read_bytes()).hexdigest()
    weights_at = str(told["commit"]) if same and COMMIT.fullmatch(str(told.get("commit"))) else head
    if changed:
        summary = message or f"Publish {type(model).__name__} with unknot {version('unknot')}"
        done = commit({**changed, CARD: card(None)}, stale, head, summary)
        head, url = done.oid, done.commit_url
        weights_at = head
    text = card(weights_at)
    # The card names the commit of the weights, which is known only now.
    if changed or text.encode() != existing:
        try:
            commit({CARD: text}, [], head, f"Name the commit {weights_at[:7]} in the card")
        except ConflictError:
            if not changed:
                raise
            say("Somebody changed the repository right after; the card does not name the commit.")
    elif not changed:
        say(f"Nothing to do: {repo}@{head[:7]} holds all of this already.")
        return url
    shown = "private" if before.private else "public"
    say(f"Published {repo}@{weights_at[:7]} ({shown}). Load it with unknot.hub.load({f'{repo}@{weights_at}'!r})")
    return str(url)


def metadata_of(model: AnyModel, repo: str, facts: Facts, files: Mapping[str, Path]) -> dict[str, Any]:
    """What the card tells machines."""
    method, dataset, family = type(model).__name__, model.trained_on, family_of(type(model))
    tags = ["unknot", "disentanglement", f"method:{method.lower()}", f"family:{family}"]
    if dataset:
        tags.append(f"zoo-dataset:{plain(dataset, 50).replace(' ', '-').lower()}")
    metadata: dict[str, Any] = {"library_name": "unknot", "tags": tags}
    if facts.license:
        metadata["license"] = facts.license
    if facts.scores:
        scored_on = plain(facts.scores.protocol.get("dataset") or dataset or "unknown", 50)
        metadata["model-index"] = model_index(repo, scored_on, facts.scores, {})
    block = {
        "schema": 1,
        "version": version("unknot"),
        "torch": str(torch.__version__),
        "model": method,
        "dataset": dataset,
        "family": family,
        "seed": facts.seed,
        "command": facts.command,
        "bytes": files[WEIGHTS].stat().st_size,
        "weights": hashlib.sha256(files[WEIGHTS].read_bytes()).hexdigest(),
    }
    metadata["unknot"] = {key: value for key, value in block.items() if value is not None}
    return metadata


def body_of(model: AnyModel, repo: str, facts: Facts, files: Mapping[str, Path], commit: str | None) -> str:
    """What the card tells people."""
    method, ref = type(model).__name__, f"{repo}@{commit}" if commit else repo
    trained = f", trained on {plain(model.trained_on)}" if model.trained_on else ""
    parts = [f"# {repo.partition('/')[2]}", f"`{method}` of the `unknot` zoo{trained}."]
    for name in sorted(files, reverse=True):
        if name.startswith("pictures/"):
            stem = Path(name).stem
            parts.append(f"![{CAPTIONS.get(stem, stem.replace('_', ' '))}]({name})")
    shape = ", ".join(map(str, model.image_shape))
    snippet = (
        f'from unknot.zoo import {method}\n\nmodel = {method}.from_pretrained("{ref}")\n'
        f"codes = model.represent(images)  # images: float [N, {shape}] in [0, 1]"
    )
    parts += ["## Load it", f"```python\n{snippet}\n```"]
    if facts.scores:
        spread = {name: f" ± {value:.4f}" for name, value in facts.scores.std.items()}
        rows = [f"| {label(name)} | {value:.4f}{spread.get(name, '')} |" for name, value in facts.scores.items()]
        parts += ["## Scores", "\n".join(["| score | value |", "|---|---|", *rows])]
        if how := ", ".join(f"{key} {plain(value)}" for key, value in facts.scores.protocol.items()):
            parts.append(f"Measured with {how}.")
    arguments = json.loads(files[CONFIG].read_text(encoding="utf-8"))["arguments"]
    rows = [f"| `{name}` | `{json.dumps(value)}` |" for name, value in arguments.items()]
    parts += ["## How it was trained", "\n".join(["| argument | value |", "|---|---|", *rows])]
    if facts.command:
        parts.append(f"```\n{plain(facts.command, 2000).replace('`', '')}\n```")
    if facts.seed is not None:
        parts.append(f"Seed {facts.seed}.")
    return "\n\n".join(parts) + "\n"


def merged(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """New metadata over old ones; what others added stays, scores of other weights do not.

    >>> merged({"tags": ["mine", "method:vae"], "language": "en"}, {"tags": ["unknot"]})
    {'tags': ['mine', 'unknot'], 'language': 'en'}
    """
    kept = {key: value for key, value in old.items() if key not in ("model-index", "unknot")}
    tags = [tag for tag in kept.get("tags") or [] if isinstance(tag, str) and not tag.startswith(OURS)]
    both = {**kept, **new}
    both["tags"] = list(dict.fromkeys([*tags, *new["tags"]]))
    return both


def facts_from(card: Card) -> Facts:
    """What a card of ours tells."""
    block = facts_of(card.metadata)
    seed, command, licence = block.get("seed"), block.get("command"), card.metadata.get("license")
    return Facts(
        scores_of(card.metadata),
        seed if isinstance(seed, int) else None,
        command if isinstance(command, str) else None,
        licence if isinstance(licence, str) else None,
    )


def _filled(facts: Facts, old: Facts) -> Facts:
    """Facts, and where they are silent those of the card that describes the same weights."""
    missing = {name: getattr(old, name) for name in ("seed", "command", "license") if getattr(facts, name) is None}
    if not facts.scores:
        missing["scores"] = old.scores
    return replace(facts, **missing)


def check_scores(scores: Mapping[str, float], protocol: Mapping[str, Any] | None = None) -> Scores:
    """Scores as plain finite numbers, without details, and how they were measured.

    >>> check_scores({"mig": 0.25, "mig/shape": 0.1})
    Scores({'mig': 0.25})
    """
    for name, value in scores.items():
        if isinstance(value, bool) or not isinstance(value, int | float | Tensor) or not math.isfinite(float(value)):
            raise ValueError(f"The score {name!r} is {value!r}; a card holds finite numbers. Leave it out.")
    known = Scores.from_flat(scores, protocol)
    return Scores(known, known.std, protocol=known.protocol)


def size(count: int) -> str:
    """Bytes for people.

    >>> size(2_100_000)
    '2.1 MB'
    """
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.1f} kB"


def _draw(model: VAE, folder: Path, images: Tensor | None) -> list[str]:
    """Traversals and reconstructions; without images, traversals of what the model itself imagines."""
    dataset = data_of(model.trained_on, model.image_shape)
    if images is None and dataset:
        images = dataset.observe(dataset.factor_space.sample(64, torch.Generator().manual_seed(0)))
    traversals, reconstructions = "pictures/traversals.png", "pictures/reconstructions.png"
    generator = torch.Generator().manual_seed(0)
    with evaluation_mode(model):
        draw_traversals(model, model.sample(16, generator) if images is None else images, folder / traversals)
        if images is None:
            return [traversals]
        draw_reconstructions(model, images[:10], folder / reconstructions)
    return [traversals, reconstructions]


def _same(path: Path, remote: client.RemoteFile | None) -> bool:
    content = path.read_bytes()
    if remote is None or remote.size != len(content):
        return False
    if remote.sha256:
        return remote.sha256 == hashlib.sha256(content).hexdigest()
    return remote.sha1 == hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
