"""Curves of a training run, readable while it grows, reduced to a few hundred points."""

import contextlib
import csv
import math
from itertools import islice
from pathlib import Path
from typing import Any

from unknot.files import Cache, open_regular

POINTS = 500
MAX_COLUMNS = 60
MAX_LINE = 1 << 14
PARSED = 4 << 20
"""Maximum bytes to parse; of a longer file, only every second, third, ... line is read."""
READ = 256 << 20

Curves = dict[str, list[list[float]]]
_read: Cache[tuple[str, int, int], Curves] = Cache(200_000)


def curves(path: Path | None) -> Curves:
    """Return the columns of a CSV file of Lightning's logger, each as ``[[step, value], ...]``."""
    try:
        if path is None or not path.is_file():
            return {}
        about = path.stat()
        key = str(path), about.st_mtime_ns, about.st_size
        return _read.get(key, lambda: _curves(path, about.st_size), lambda made: sum(map(len, made.values())) + 1)
    except OSError:
        return {}


def _curves(path: Path, size: int) -> Curves:
    stride = max(1, -(-min(size, READ) // PARSED))
    columns: Curves = {}
    with path.open(encoding="utf-8", errors="replace", newline="") as file, contextlib.suppress(csv.Error):
        head = next(csv.reader([file.readline(MAX_LINE)]), [])[:MAX_COLUMNS]
        names = [name.strip()[:100] for name in head]
        place = names.index("step") if "step" in names else None
        lines = (line for line in islice(_lines(file), 0, None, stride))
        for number, cells in enumerate(csv.reader(lines)):
            step = _number(cells[place]) if place is not None and place < len(cells) else None
            for name, text in zip(names, cells, strict=False):
                if text and name and name not in ("step", "epoch") and (value := _number(text)) is not None:
                    columns.setdefault(name, []).append([number * stride if step is None else step, value])
    return {name: values[:: -(-len(values) // POINTS)] for name, values in columns.items()}


def _lines(file: Any) -> Any:
    read = 0
    while (line := file.readline(MAX_LINE)) and read < READ:
        read += len(line)
        if line.endswith("\n"):  # a partial line may contain a partial number
            yield line.replace("\0", "")


def check_whole(path: Path) -> None:
    """Raise a ``ValueError`` that names the file if a curve is truncated or not a curve."""
    with open_regular(path) as file:
        head = file.readline(MAX_LINE)
        file.seek(max(0, path.stat().st_size - 1))
        end = file.read(1)
    if b"step" not in head or end != b"\n":
        raise ValueError(f"{path}: damaged; expected a table of losses by step. Delete it to leave the curve out.")


def _number(text: Any) -> float | None:
    try:
        value = float(text)
    except (TypeError, ValueError):
        return None
    return value if math.isfinite(value) else None
