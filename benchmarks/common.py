"""Measure two sides in turn in one process, by processor time and by the clock.

A script yields rows from ``entries()`` and ends in ``run(entries)``: with ``--table`` it prints them as JSON, for
``benchmarks/table.py`` to gather; without, as text.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any


@dataclass
class Row:
    """Ratio of their time to ours: above one, ours is faster."""

    name: str
    against: str
    processor: float
    """Theirs / ours by processor time; of all threads together."""

    clock: float
    """Theirs / ours by the clock."""

    seconds: float
    """Of ours, by processor time."""

    rounds: int
    threads: int = 1


def measured(function: Callable[[], Any]) -> tuple[float, float]:
    """Return the seconds of a call by processor time and by the clock."""
    clock, processor = time.perf_counter(), time.process_time()
    function()
    return time.process_time() - processor, time.perf_counter() - clock


def compare(
    name: str,
    ours: Callable[..., Any],
    against: str,
    theirs: Callable[..., Any],
    rounds: int = 5,
    threads: int = 1,
    measure: Callable[[Callable[..., Any]], tuple[float, float]] = measured,
) -> Row:
    """Return medians of alternating rounds. With several rounds, a first one is not counted."""
    if rounds > 1:
        measure(ours), measure(theirs)
    pairs = [(measure(ours), measure(theirs)) for _ in range(rounds)]
    mine, other = ([statistics.median(side[i] for side in sides) for i in (0, 1)] for sides in zip(*pairs, strict=True))
    return Row(name, against, other[0] / mine[0], other[1] / mine[1], mine[0], rounds, threads)


def run(entries: Callable[[], Iterable[Row]], main: Callable[[], None] | None = None) -> None:
    """Print the rows: as JSON for the table with ``--table``, else as text, or the report of the script."""
    if sys.argv[1:] == ["--table"]:
        for row in entries():
            print(json.dumps(asdict(row)), flush=True)
    elif main:
        main()
    else:
        for row in entries():
            times = f"{row.processor:6.2f} (processor) {row.clock:6.2f} (clock)"
            print(f"{row.name:<64} {times} times as fast as {row.against}", flush=True)
