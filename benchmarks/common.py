"""What the benchmarks share: two sides measured in turn in one process, by processor time and by the clock.

A script yields rows from ``entries()`` and ends in ``run(entries, main)``: with ``--table`` it prints them as JSON, for
``benchmarks/table.py`` to gather; without, it prints its own, longer report.
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
    """How long ours takes beside theirs: ratios above one mean that ours is faster."""

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
    """Seconds of a call by processor time and by the clock."""
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
    """Medians of alternating rounds, where there are several after one that is not counted."""
    if rounds > 1:
        measure(ours), measure(theirs)
    pairs = [(measure(ours), measure(theirs)) for _ in range(rounds)]
    mine, other = ([statistics.median(side[i] for side in sides) for i in (0, 1)] for sides in zip(*pairs, strict=True))
    return Row(name, against, other[0] / mine[0], other[1] / mine[1], mine[0], rounds, threads)


def run(entries: Callable[[], Iterable[Row]], main: Callable[[], None]) -> None:
    """Rows as JSON for the table, or the report of the script."""
    if sys.argv[1:] != ["--table"]:
        main()
        return
    for row in entries():
        print(json.dumps(asdict(row)), flush=True)


def fill(page: str, source: str, text: str) -> str:
    """A page with the text between the marks of what it is made from."""
    begin, end = f"<!-- from {source} -->", f"<!-- end of {source} -->"
    before, first, rest = page.partition(begin)
    _, last, after = rest.partition(end)
    if not first or not last:
        raise ValueError(f"The page has no place for the table: {begin} ... {end}")
    return f"{before}{begin}\n{text}\n{end}{after}" if text else f"{before}{begin}\n{end}{after}"
