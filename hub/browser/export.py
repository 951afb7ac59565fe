"""Static export of the page: one HTML file, or a folder for any web host."""

import base64
import json
import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from unknot.checkpoints.card import plain
from unknot.checkpoints.errors import UnreachableError
from unknot.checkpoints.names import CONFIG, WEIGHTS
from unknot.files import replacing
from unknot.hub.browser import in_browser
from unknot.hub.browser.index import Entry, Index
from unknot.hub.browser.thumbnails import WIDTHS, read_picture
from unknot.hub.web.pages import PAGE, bundle, modules, static_page

MAX_EMBEDDED = 24 << 20
"""Bytes of weights inside one HTML file; models beyond are shown by pictures."""
COLOURS = 48


def export(
    path: str | Path,
    folders: Iterable[str | Path] = (),
    endpoint: str | None = None,
    say: Callable[[str], None] = print,
    only: Sequence[str] = (),
) -> Path:
    """Write the page as one file, or as a folder of static files, which needs no server.

    Models of the zoo run in the visitor's browser; for others there are pictures of the effect of each latent. In a
    folder, weights are loaded when a model is opened. One file holds up to 24 MB of weights, those of ``folders``
    first.

    Args:
        path: path of the file if it ends in ``.html``, else of the folder.
        folders: folders with saved models, in addition to bundled, cached and remote checkpoints.
        endpoint: address of the hub.
        say: function called with each message.
        only: names of the checkpoints to write, such as ``"unknot/adagvae-dsprites"``; by default all.
    """
    index, path = Index(folders, endpoint), Path(path)
    index.refresh()
    index.learn()
    if index.remote != "listed":
        say(index.note)
    if only:
        index.keep(only)
    if path.suffix in (".html", ".htm"):
        _write_file(index, path)
        size = path.stat().st_size
    else:
        size = _write_site(index, path)
    say(f"Wrote {len(index.entries)} checkpoints to {path} ({size / 1e6:.1f} MB)")
    return path


def _details(
    index: Index, picture: Callable[..., str | None], files: Callable[[Entry], dict[str, Any] | None]
) -> Iterable[tuple[Entry, dict[str, Any]]]:
    """Yield the details of each checkpoint. An error is shown on its page, as by the server."""
    silent: UnreachableError | None = None  # after the hub fails once, it is not contacted again
    for entry in tqdm(list(index.entries.values()), desc="drawing", unit="checkpoint", disable=None, leave=False):
        try:
            if silent and entry.folder is None:
                raise silent
            detail = index.detail(entry, picture, served=False) | {"curves": index.training(entry)}
            model = files(entry) if in_browser.can_run(entry.folder) else None
            yield entry, detail | {"live": model} | ({} if model else _drawn(entry))
        except (ValueError, OSError) as error:
            silent = error if isinstance(error, UnreachableError) else silent
            yield entry, {"error": plain(error, 1000)}


def _write_file(index: Index, path: Path) -> None:
    room, parts = MAX_EMBEDDED, dict[str, str]()

    def picture(entry: Entry, name: str, source: Path, size: str) -> str | None:
        content = _picture(source, min(WIDTHS[size], 1000))
        return _data_uri(content) if content else None

    def files(entry: Entry) -> dict[str, Any] | None:
        nonlocal room
        assert entry.folder is not None
        weights = entry.folder / WEIGHTS
        if weights.stat().st_size > room:
            return None
        room -= weights.stat().st_size
        names = {"config": f"config-{entry.id}", "weights": f"weights-{entry.id}"}
        parts[names["config"]] = _base64((entry.folder / CONFIG).read_bytes())
        parts[names["weights"]] = _base64(weights.read_bytes())
        images = _sheet(entry)
        return names | {"images": images and _data_uri(images)}

    # The user's own models first: space is limited.
    index.entries = dict(sorted(index.entries.items(), key=lambda item: item[1].home is None))
    details = {entry.id: detail for entry, detail in _details(index, picture, files)}
    with replacing(path) as beside:
        page = bundle(index.listed(picture, served=False) | {"details": details}, parts)
        beside.write_text(page, encoding="utf-8")


def _write_site(index: Index, path: Path) -> int:
    """Write a folder under a temporary name and rename it; do not touch a folder that is not an export."""
    if path.exists() and (not path.is_dir() or (any(path.iterdir()) and not (path / "page" / "browse.js").is_file())):
        raise FileExistsError(f"{path} exists and is not an exported page. Choose another folder, or delete it.")
    site = path.with_name(f".{path.name}.writing")
    shutil.rmtree(site, ignore_errors=True)
    (site / "page").mkdir(parents=True)
    for name in {*modules("browse.js"), *modules("worker.js"), "page.css"}:
        shutil.copyfile(PAGE / name, site / "page" / name)

    def write(name: str, content: bytes) -> str:
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_bytes(content)
        return name

    def picture(entry: Entry, name: str, source: Path, size: str) -> str | None:
        content = _picture(source, min(WIDTHS[size], 1000))
        return write(f"models/{entry.id}/{size}-{source.stem[:40]}.png", content) if content else None

    def files(entry: Entry) -> dict[str, Any] | None:
        assert entry.folder is not None
        place, images = f"models/{entry.id}", _sheet(entry)
        weights = f"{place}/{WEIGHTS}"
        config = write(f"{place}/{CONFIG}", (entry.folder / CONFIG).read_bytes())
        shutil.copyfile(entry.folder / WEIGHTS, site / weights)
        sheet = write(f"{place}/images.png", images) if images else None
        return {"config": config, "weights": weights, "images": sheet}

    try:
        for entry, detail in _details(index, picture, files):
            write(f"models/{entry.id}/detail.json", json.dumps(detail, separators=(",", ":")).encode())
        listed = index.listed(picture, served=False)
        (site / "index.html").write_text(static_page(listed), encoding="utf-8")
        (site / ".nojekyll").touch()  # keep hosts that use Jekyll from processing the files
        size = sum(file.stat().st_size for file in site.rglob("*") if file.is_file())
        if path.exists():
            shutil.rmtree(path)
        site.rename(path)
        return size
    finally:
        shutil.rmtree(site, ignore_errors=True)


def _picture(source: Path, width: int) -> bytes | None:
    """Return a re-encoded, size-limited picture, or None for a damaged one."""
    try:
        return read_picture(source, width, source.stat().st_mtime_ns, colours=COLOURS)
    except (ValueError, OSError):
        return None


def _sheet(entry: Entry) -> bytes | None:
    assert entry.folder is not None
    try:
        return in_browser.sheet(entry.folder)
    except (ValueError, OSError):
        return None


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _data_uri(content: bytes) -> str:
    return "data:image/png;base64," + _base64(content)


def _drawn(entry: Entry) -> dict[str, Any]:
    """Return pictures of a model that cannot run in a browser, or the reason for a failure."""
    if entry.folder is None:
        return {}
    from unknot.hub.browser.players import ACTION, Deadline, player_of
    from unknot.hub.loading import load

    try:
        with Deadline(ACTION):
            player: Any = player_of(load(entry.ref, local_files_only=True))
            if "look" in player.actions:
                return {"seen": player.look("data", 0, None, None)}
            return {"drawn": player.start("data" if player.dataset else "prior", 0)}
    except (ValueError, OSError) as error:
        return {"undrawn": plain(error, 1000)}
