"""List, show and pull checkpoints: bundled, cached and remote together. Nothing here imports torch."""

import json
import re
import shutil
import time
import warnings
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from unknot.checkpoints import cache, client
from unknot.checkpoints.card import MAX_CARD, Card, facts_of, plain, read_card
from unknot.checkpoints.errors import UnreachableError
from unknot.checkpoints.locate import Remote, resolve
from unknot.checkpoints.names import CARD, CONFIG, WEIGHTS, bundled_folder, bundled_names, parse_ref
from unknot.files import read_limited, replacing
from unknot.hub.model_index import scores_of
from unknot.metrics.scores import Scores

MAX_REMOTE = 5000
MAX_FILES = 1000
SOURCES = ("bundled", "cached", "remote")
COMMON = {"unknot", "disentanglement", "pytorch"}
"""Tags of all checkpoints."""


@dataclass(frozen=True)
class Checkpoint:
    """Row of the list of checkpoints. All fields but ``ref``, ``sources``, ``commit`` and ``bytes`` come from its
    author.

    ``problem`` is the reason why its card or configuration could not be read, if any.
    """

    ref: str
    sources: tuple[str, ...]
    commit: str | None = None
    model: str | None = None
    dataset: str | None = None
    family: str | None = None
    seed: int | None = None
    scores: Scores = field(default_factory=Scores)
    bytes: int | None = None
    modified: str | None = None
    license: str | None = None
    problem: str | None = None
    arguments: dict[str, Any] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    pictures: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self) | {"scores": self.scores.flat(details=False)}


@dataclass(frozen=True)
class Description:
    """Full description of a checkpoint: its row, its files with their sizes, and the text of its card (untrusted)."""

    checkpoint: Checkpoint
    files: dict[str, int]
    body: str
    metadata: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return self.checkpoint.to_dict() | {"files": self.files, "card": self.body, "metadata": self.metadata}


def list_checkpoints(
    dataset: str | None = None,
    method: str | None = None,
    family: str | None = None,
    search: str | None = None,
    sort: str | None = None,
    limit: int | None = None,
    sources: Iterable[str] = SOURCES,
    endpoint: str | None = None,
    token: str | bool | None = None,
    cache_dir: str | Path | None = None,
    **bounds: float,
) -> list[Checkpoint]:
    """List bundled, cached and remote checkpoints, filtered and sorted by any of their scores.

    A hub that cannot be reached within a few seconds is left out with a warning; offline mode leaves it out silently.

    Args:
        dataset: only those trained on this data set.
        method: only those of this model, e.g. ``"AdaGVAE"``; case, ``-`` and ``_`` do not matter.
        family: only those of this family, e.g. ``"weak"``.
        search: part of the name.
        sort: a score (best first, those without it last), ``"modified"`` (newest first), ``"ref"`` or ``"bytes"``;
            ``"-mig"`` reverses the order.
        limit: maximum number of rows.
        sources: any of ``"bundled"``, ``"cached"`` and ``"remote"``.
        endpoint: address of the hub; by default ``HF_ENDPOINT`` or the public one.
        token: token for private repositories; False sends none.
        cache_dir: the client's cache; by default its own.
        bounds: ``min_SCORE`` and ``max_SCORE`` for any score, e.g. ``min_dci=0.5``.

    >>> [row.ref for row in list_checkpoints(sources=["bundled"], search="no such name")]
    []
    """
    rows, notes = gather(sources, endpoint, token, cache_dir)
    for note in notes:
        warnings.warn(note, stacklevel=2)
    return select(rows, dataset, method, family, search, sort, limit, bounds)


def gather(
    sources: Iterable[str] = SOURCES,
    endpoint: str | None = None,
    token: str | bool | None = None,
    cache_dir: str | Path | None = None,
) -> tuple[list[Checkpoint], list[str]]:
    """Return all checkpoints, each once, and notes about sources that could not be read."""
    requested = set(sources)
    if "shipped" in requested:
        warnings.warn('The source "shipped" is now "bundled".', FutureWarning, stacklevel=3)
        requested = requested - {"shipped"} | {"bundled"}
    if unknown := sorted(requested - set(SOURCES)):
        raise ValueError(f"Unknown sources {unknown}; there are {list(SOURCES)}.")
    described: list[Checkpoint] = []
    notes: list[str] = []
    if "bundled" in requested:
        for name in bundled_names():
            folder = bundled_folder(name)
            assert folder is not None
            described.append(describe_folder(folder, name, "bundled").checkpoint)
    if "cached" in requested:
        described += _cached(cache_dir)
    if "remote" in requested and not client.is_offline():
        try:
            described += _remote(endpoint, token)
        except (OSError, ValueError) as error:  # a failing hub does not hide local checkpoints
            notes.append(plain(error, 500))
    rows: dict[str, Checkpoint] = {}
    for row in described:
        known = rows.get(row.ref)
        if known is None:
            rows[row.ref] = row
        else:  # as `load` would choose: the bundled one, else the newest, which is the hub's
            chosen = known if "bundled" in known.sources else row
            size = chosen.bytes or (known.bytes if known.commit == row.commit else None)
            rows[row.ref] = replace(chosen, sources=(*known.sources, *row.sources), bytes=size)
    return list(rows.values()), notes


def select(
    rows: Iterable[Checkpoint],
    dataset: str | None = None,
    method: str | None = None,
    family: str | None = None,
    search: str | None = None,
    sort: str | None = None,
    limit: int | None = None,
    bounds: Mapping[str, float] | None = None,
) -> list[Checkpoint]:
    """Filter and sort rows, as :func:`list_checkpoints` does."""
    rows = list(rows)
    for wanted, name in ((dataset, "dataset"), (method, "model"), (family, "family")):
        if wanted is not None:
            rows = [row for row in rows if _bare(getattr(row, name) or "") == _bare(wanted)]
    if search is not None:
        rows = [row for row in rows if search.lower() in row.ref.lower()]
    for bound, value in (bounds or {}).items():
        side, _, score = bound.partition("_")
        if side not in ("min", "max") or not score:
            raise TypeError(f"{bound!r} is not an argument; bounds are min_SCORE and max_SCORE, e.g. min_dci.")
        sign = 1 if side == "min" else -1
        rows = [row for row in rows if score in row.scores and sign * row.scores[score] >= sign * value]
    rows.sort(key=lambda row: row.ref)
    if sort is not None:
        name, turned = sort.removeprefix("-"), sort.startswith("-")
        if name in ("ref", "modified", "bytes", "model", "dataset", "family"):
            known = [row for row in rows if getattr(row, name) is not None]
            known.sort(key=lambda row: getattr(row, name), reverse=(name == "modified") != turned)
        else:
            known = [row for row in rows if name in row.scores]
            if rows and not known:
                scores = sorted({score for row in rows for score in row.scores})
                raise ValueError(f"No checkpoint here has a score {name!r}; there are {', '.join(scores) or 'none'}.")
            lower_first = any(row.scores.about(name).better == "lower" for row in known)
            known.sort(key=lambda row: row.scores[name], reverse=lower_first == turned)
        rows = known + [row for row in rows if row not in known]
    return rows[:limit]


def show(
    ref: str | Path,
    endpoint: str | None = None,
    token: str | bool | None = None,
    cache_dir: str | Path | None = None,
) -> Description:
    """Return all facts about one checkpoint, without its weights.

    Args:
        ref: a bundled name, ``USER/REPO``, ``USER/REPO@REVISION``, or a folder.
        endpoint: address of the hub.
        token: token for private repositories.
        cache_dir: the client's cache.
    """
    source = resolve(ref, None, endpoint, token, cache_dir)
    if not isinstance(source, Remote):
        return describe_folder(source.folder, source.repo or str(ref), source.kind, source.commit)
    listing, card = source.listing, Card()
    if CARD in listing.files:
        card = read_card(read_limited(source.path(CARD), MAX_CARD))
    files = {name: size for name, (size, _) in sorted(listing.files.items())}
    row = _row(
        listing.repo, "remote", listing.commit, card.metadata, _unread(card), files.get(WEIGHTS), listing.modified
    )
    return Description(row, files, card.body, card.metadata)


def pull(
    ref: str,
    folder: str | Path | None = None,
    endpoint: str | None = None,
    token: str | bool | None = None,
    cache_dir: str | Path | None = None,
    max_bytes: int | None = None,
) -> Path:
    """Download and verify a checkpoint for offline use; return its folder.

    Only the model, its card, its pictures and the record of its training are downloaded; other files of the repository
    are ignored.

    Args:
        ref: ``USER/REPO`` or ``USER/REPO@REVISION``, or a bundled name.
        folder: where to put it; by default it stays in the client's cache, where ``load`` finds it.
        endpoint: address of the hub.
        token: token for private repositories.
        cache_dir: the client's cache.
        max_bytes: maximum size of the weights (default: 2 GB).
    """
    if parse_ref(ref) is None:
        raise ValueError(f"{ref!r} is not USER/REPO or USER/REPO@REVISION.")
    origin = resolve(ref, None, endpoint, token, cache_dir, max_bytes=max_bytes, fresh=True)
    if isinstance(origin, Remote):
        known = sorted(name for name in origin.listing.files if client.limit_of(name))[:200]
        names = [name for name in known if name != WEIGHTS] + [WEIGHTS]
        if CONFIG not in names:
            names.insert(0, CONFIG)  # raises an error if there is none
        source = [origin.path(name) for name in names][-1].parent
    else:
        source, names = origin.folder, [name for name in _files(origin.folder) if client.limit_of(name)]
    if folder is None:
        return source
    target = Path(folder)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise FileExistsError(f"{target} exists and is not an empty folder. Choose another one.")
    for name in names:
        with replacing(target / name) as beside:
            shutil.copyfile(source / name, beside)
    return target


def describe_folder(folder: Path, ref: str, source: str, commit: str | None = None) -> Description:
    """Describe a local checkpoint; an unreadable card or configuration is recorded as a problem."""
    card, problem = Card(), None
    with suppress(FileNotFoundError):
        try:
            card = read_card(read_limited(folder / CARD, MAX_CARD))
        except (OSError, ValueError) as error:
            if isinstance(error, FileNotFoundError):
                raise
            card = Card(problem="card too long" if isinstance(error, ValueError) else plain(error))
    config: dict[str, Any] = {}
    try:
        loaded = read_config(folder)
        config = {key: loaded[key] for key in ("model", "dataset") if isinstance(loaded.get(key), str)}
        config["arguments"] = loaded.get("arguments")
    except (OSError, ValueError) as error:
        problem = f"config.json unreadable: {plain(error)}"
    weights = folder / WEIGHTS
    size = weights.stat().st_size if weights.is_file() else None
    row = _row(ref, source, commit, card.metadata, problem or _unread(card), size, None, config)
    return Description(row, _files(folder), card.body, card.metadata)


def read_config(folder: Path) -> dict[str, Any]:
    """Read ``config.json``; raise ``ValueError`` if it is not an object or too long."""
    try:
        loaded = json.loads(read_limited(folder / CONFIG, client.LIMITS[CONFIG]))
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(loaded, dict):
        raise ValueError("not an object")
    return loaded


def _files(folder: Path) -> dict[str, int]:
    """Return the sizes of files by name, of at most a thousand."""
    paths = (path for path in folder.rglob("*") if path.is_file())
    sizes = {path.relative_to(folder).as_posix(): path.stat().st_size for path in islice(paths, MAX_FILES)}
    return dict(sorted(sizes.items()))


def _cached(cache_dir: str | Path | None) -> list[Checkpoint]:
    rows = []
    for folder in sorted(cache.cache_of(cache_dir).glob("models--*--*")):
        repo = folder.name.removeprefix("models--").replace("--", "/")
        commit = cache.cached_commit(repo, None, cache_dir)
        if commit is None:  # can only be loaded by its commit
            commits = [path.parent for path in folder.glob("snapshots/*/config.json")]
            commits = [path for path in commits if (path / "model.safetensors").is_file()]
            commit = max(commits, key=lambda path: path.stat().st_mtime).name if commits else None
        if commit is None or not parse_ref(repo):
            continue
        description = describe_folder(folder / "snapshots" / commit, repo, "cached", commit)
        if _is_ours(folder / "snapshots" / commit):  # the cache is shared with other libraries
            rows.append(description.checkpoint)
    return rows


def _is_ours(folder: Path) -> bool:
    try:
        loaded = read_config(folder)
    except (OSError, ValueError):
        return False
    return isinstance(loaded.get("model"), str) and "arguments" in loaded


def _remote(endpoint: str | None, token: str | bool | None) -> list[Checkpoint]:
    """List the checkpoints with unknot's tag on a hub, page by page; the client's own listing would retry for 23
    seconds.
    """
    address, subject = client.endpoint_of(endpoint), "The list of checkpoints"
    query: dict[str, str] | None = {"filter": "unknot", "full": "true", "cardData": "true", "limit": "1000"}
    listed: list[Any] = []
    url, until = f"{address}/api/models", time.monotonic() + 3 * client.DEADLINE
    while url and len(listed) < MAX_REMOTE and time.monotonic() < until:
        page, following = client.ask_json(address, subject, url, token, query)
        if not isinstance(page, list):
            raise UnreachableError(f"{subject}: {address} did not return a valid Hub response. Check HF_ENDPOINT.")
        listed += page
        url, query = following, None
        if url and not url.startswith(f"{address}/"):
            raise UnreachableError(
                f"{subject}: that of {address} continues at another address, which is not requested."
            )
    rows = []
    for entry in listed[:MAX_REMOTE]:
        if not isinstance(entry, dict) or not isinstance(entry.get("id"), str) or not parse_ref(entry["id"]):
            continue
        metadata = entry.get("cardData") if isinstance(entry.get("cardData"), dict) else {}
        commit = entry.get("sha") if re.fullmatch(r"[0-9a-f]{40}", str(entry.get("sha"))) else None
        modified = entry.get("lastModified") if isinstance(entry.get("lastModified"), str) else None
        siblings: Any = entry.get("siblings")
        siblings = siblings[:200] if isinstance(siblings, list) else []
        names = [file.get("rfilename") for file in siblings if isinstance(file, dict)]
        pictures = tuple(sorted(name for name in names if isinstance(name, str) and client.PICTURE.fullmatch(name)))
        row = _row(entry["id"], "remote", commit, metadata or {}, None, None, modified)
        rows.append(replace(row, pictures=pictures[:20]))
    return rows


def _row(
    ref: str,
    source: str,
    commit: str | None,
    metadata: Mapping[str, Any],
    problem: str | None,
    size: int | None,
    modified: str | None,
    config: Mapping[str, Any] | None = None,
) -> Checkpoint:
    facts = facts_of(metadata) | dict(config or {})
    seed, count = facts.get("seed"), facts.get("bytes")
    return Checkpoint(
        ref=ref,
        sources=(source,),
        commit=commit,
        model=_text(facts.get("model")),
        dataset=_text(facts.get("dataset")),
        family=_text(facts.get("family")),
        seed=_integer(seed),
        scores=scores_of(metadata),
        bytes=size if size is not None else _integer(count),
        modified=modified,
        license=_text(metadata.get("license")),
        problem=problem,
        arguments=_arguments(facts.get("arguments")),
        tags=tuple(tag for tag in _tags(metadata.get("tags")) if ":" not in tag and tag not in COMMON),
    )


def _arguments(arguments: Any) -> dict[str, Any]:
    """Return the arguments of a model that are plain values or short lists."""
    if not isinstance(arguments, dict):
        return {}
    plain_ones = {str(key)[:100]: value for key, value in list(arguments.items())[:64]}
    return {key: value for key, value in plain_ones.items() if len(json.dumps(value)) <= 200}


def _tags(tags: Any) -> list[str]:
    return [tag[:50] for tag in tags[:50] if isinstance(tag, str)] if isinstance(tags, list) else []


def _unread(card: Card) -> str | None:
    return f"card unreadable: {card.problem}" if card.problem else None


def _integer(value: Any) -> int | None:
    """Return an untrusted integer, if it has a plausible size."""
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63 else None


def _text(value: Any) -> str | None:
    return value[:200] if isinstance(value, str) else None


def _bare(name: str) -> str:
    return re.sub(r"[-_ ]", "", name).lower()
