"""Result of ``evaluate`` and ``score``: numbers by name, with their spread, details and protocol.

This module needs neither torch nor NumPy, so that listing checkpoints is fast.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from unknot.files import replacing
from unknot.metrics.registry import About, about, facts_to_store

PARTS = ("std", "details", "protocol", "reasons", "facts")
MOST_NUMBERS = 10_000  # limits for files from untrusted sources
LONGEST_NAME = 200
MOST_DESCRIBED = 200

OLD_NAMES = {
    "disentanglement": "dci",
    "dci_disentanglement": "dci",
    "completeness": "dci_completeness",
    "informativeness_train": "dci_informativeness_train",
    "informativeness_test": "dci_informativeness_test",
}
"""Former names of scores, accepted for lookup and reading, but never written."""


class Scores(dict[str, float]):
    """Scores by name, as :func:`unknot.metrics.evaluate` returns them: a dictionary with further attributes.

    Each number has one name. Lookup also accepts older names: ``scores["dci_disentanglement"]`` for ``scores["dci"]``,
    ``scores["mig_std"]`` for ``scores.std["mig"]``, and ``scores["downstream_gbt_100/shape"]`` for
    ``scores.details["downstream_gbt_100"]["shape"]``.

    Args:
        values: the scores.
        std: standard deviation over repetitions, by name; for details, under ``"score/part"``. Empty for a single
            repetition, and without scores that were not finite in every repetition.
        details: values that a score averages, by name and part, such as each factor.
        protocol: data set, numbers of samples, seed, repetitions and other settings of the measurement.
        reasons: why a requested score could not be computed, by name.
        facts: title and direction of scores that are not part of unknot, by name; see :meth:`about`.

    >>> scores = Scores({"mig": 0.3}, std={"mig": 0.01}, protocol={"dataset": "dsprites", "num_train": 10_000})
    >>> scores["mig"], scores.std["mig"], dict(scores)
    (0.3, 0.01, {'mig': 0.3})
    >>> print(scores)
    MIG  0.3000 ± 0.0100
    >>> Scores.from_json(scores.to_json()).protocol["num_train"]
    10000
    """

    def __init__(
        self,
        values: Mapping[str, float] | Iterable[tuple[str, float]] = (),
        std: Mapping[str, float] | None = None,
        details: Mapping[str, Mapping[str, float]] | None = None,
        protocol: Mapping[str, Any] | None = None,
        reasons: Mapping[str, str] | None = None,
        facts: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        super().__init__(values)
        self.std: dict[str, float] = dict(std or {})
        self.details: dict[str, dict[str, float]] = {name: dict(parts) for name, parts in (details or {}).items()}
        self.protocol: dict[str, Any] = dict(protocol or {})
        self.reasons: dict[str, str] = dict(reasons or {})
        self.facts: dict[str, dict[str, Any]] = {name: dict(known) for name, known in (facts or {}).items()}

    def about(self, name: str) -> About:
        """Title, direction and rank of one of the scores; see :func:`unknot.metrics.about`."""
        return about(name, self.facts)

    def described(self) -> dict[str, dict[str, Any]]:
        """Return title and direction of those scores that are not part of unknot, to store with them."""
        return self.facts | facts_to_store(self)

    def merged(self, other: "Scores") -> "Scores":
        """Merge with another measurement, whose values and protocol take precedence.

        >>> Scores({"mig": 0.3}, reasons={"dci": "no factors"}).merged(Scores({"dci": 0.5})).reasons
        {}
        """
        return Scores(
            {**self, **other},
            self.std | other.std,
            self.details | other.details,
            other.protocol,
            {name: why for name, why in self.reasons.items() if name not in other} | other.reasons,
            self.facts | other.facts,
        )

    @classmethod
    def of_draws(cls, draws: Sequence[Mapping[str, float]], protocol: Mapping[str, Any] | None = None) -> "Scores":
        """Mean and spread of the numbers of one repetition or several, with details as ``score/part``.

        >>> scores = Scores.of_draws([{"mig": 0.2, "mig/shape": 0.1}, {"mig": 0.4, "mig/shape": 0.3}])
        >>> round(scores["mig"], 2), round(scores.std["mig"], 2), round(scores.details["mig"]["shape"], 2)
        (0.3, 0.14, 0.2)
        """
        columns = {name: [float(draw[name]) for draw in draws] for name in draws[0]}
        finite = {name: column for name, column in columns.items() if all(map(math.isfinite, column))}
        spread = {f"{name}_std": stdev(column) for name, column in finite.items()} if len(draws) > 1 else {}
        means = {name: fmean(column) if len(column) > 1 else column[0] for name, column in columns.items()}
        return cls.from_flat(means | spread, protocol)

    @classmethod
    def from_flat(cls, values: Mapping[str, float], protocol: Mapping[str, Any] | None = None) -> "Scores":
        """Build scores from a flat mapping whose names encode the structure, as in cards and older files.

        If given Scores, keep them and add ``protocol``.

        >>> Scores.from_flat({"disentanglement": 0.5, "disentanglement_std": 0.1}).std
        {'dci': 0.1}
        """
        if isinstance(values, Scores):
            return cls(
                values,
                values.std,
                values.details,
                values.protocol | dict(protocol or {}),
                values.reasons,
                values.facts,
            )
        scores = cls(protocol=protocol)
        for name, value in values.items():
            of = name.removesuffix("_std")
            spread = of != name and of in values
            score, slash, part = of.partition("/") if spread else name.partition("/")
            score = OLD_NAMES.get(score, score)
            if spread:
                scores.std[score + slash + part] = float(value)
            elif slash:
                scores.details.setdefault(score, {})[part] = float(value)
            else:
                scores[score] = float(value)
        return scores

    def flat(self, details: bool = True) -> dict[str, float]:
        """Return one mapping of all numbers: each score, then ``score_std``, and details as ``score/part``."""
        values = dict(self)
        if details:
            values |= {f"{name}/{part}": value for name, parts in self.details.items() for part, value in parts.items()}
        return {
            name: number
            for score, value in values.items()
            for name, number in ((score, value), (f"{score}_std", self.std.get(score)))
            if number is not None
        }

    def __missing__(self, name: str) -> float:
        score, slash, part = name.removesuffix("_std").partition("/")
        now = OLD_NAMES.get(score, score) + slash + part + name[len(name.removesuffix("_std")) :]
        known = self.flat()
        if now in known:
            return known[now]
        if score in self.reasons:
            raise KeyError(f"{name!r} was not computed: {self.reasons[score]}")
        raise KeyError(f"{name!r}; there are {', '.join(self) or 'no scores'}")

    def get(self, name: str, default: Any = None) -> Any:
        """Return a score, or the default; older names are accepted."""
        try:
            return self[name]
        except KeyError:
            return default

    def __str__(self) -> str:
        """Format a line for each score with its title and spread, and a line for each that could not be computed."""
        titles = {name: self.about(name).title for name in (*self, *self.reasons)}
        width = max(map(len, titles.values()), default=0)
        spread = {name: f" ± {value:.4f}" for name, value in self.std.items()}
        lines = [f"{titles[name]:<{width}}  {value:.4f}{spread.get(name, '')}" for name, value in self.items()]
        return "\n".join(
            [*lines, *(f"{titles[name]:<{width}}  not computed: {why}" for name, why in self.reasons.items())]
        )

    def __repr__(self) -> str:
        more = [f"{name}={getattr(self, name)!r}" for name in ("std", "protocol", "reasons") if getattr(self, name)]
        return f"Scores({', '.join([dict.__repr__(self), *more])})"

    def to_json(self) -> str:
        """Return a standard JSON object: the scores, with ``std``, ``details`` and ``protocol``.

        Numbers that are not finite are written as text, ``"Infinity"``, ``"-Infinity"`` or ``"NaN"``.
        """
        parts = {name: getattr(self, name) for name in PARTS} | {"facts": self.described()}
        document = dict(self) | {name: part for name, part in parts.items() if part or name in PARTS[:3]}
        return json.dumps(_without_constants(document), indent=2, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> "Scores":
        """Read the output of :meth:`to_json`, or the flat files of earlier versions; raise ``ValueError`` for anything
        else.
        """
        try:
            document = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"Not JSON: {error}") from None
        if not isinstance(document, dict):
            raise ValueError(f"Expected an object of scores, got {type(document).__name__}.")
        if not any(isinstance(document.get(name), dict) for name in PARTS):
            return cls.from_flat(_numbers(document, "scores"))
        std, details, protocol, reasons, facts = (document.pop(name, {}) for name in PARTS)
        if not all(isinstance(part, dict) for part in (details, protocol, reasons, facts)):
            raise ValueError("details, protocol, reasons and facts must be objects.")
        return cls(
            {OLD_NAMES.get(name, name): value for name, value in _numbers(document, "scores").items()},
            _numbers(std, "std"),
            {name: _numbers(parts, f"details of {name}") for name, parts in details.items()},
            protocol,
            {name[:LONGEST_NAME]: str(reason)[:1000] for name, reason in reasons.items()},
            read_facts(facts),
        )

    def write(self, path: str | Path) -> Path:
        """Write :meth:`to_json` to a file atomically."""
        path = Path(path)
        with replacing(path) as beside:
            beside.write_text(self.to_json(), encoding="utf-8")
        return path

    @classmethod
    def read(cls, path: str | Path) -> "Scores":
        """Read a file written by :meth:`write` or ``unknot evaluate --json``."""
        try:
            return cls.from_json(Path(path).read_bytes())
        except ValueError as error:
            raise ValueError(f"{path}: expected scores, as `unknot evaluate --json` writes them. {error}") from None


def read_facts(stored: Any) -> dict[str, dict[str, Any]]:
    """Return title and direction of scores by name from a file or card; ignore anything else.

    >>> read_facts({"fid": {"title": "FID", "better": "lower", "more": 1}, "x": 3})
    {'fid': {'title': 'FID', 'better': 'lower'}}
    """
    facts: dict[str, dict[str, Any]] = {}
    for name, entry in list(stored.items())[:MOST_DESCRIBED] if isinstance(stored, dict) else []:
        if isinstance(name, str) and isinstance(entry, dict):
            title, better = entry.get("title"), entry.get("better")
            title = title[:LONGEST_NAME] if isinstance(title, str) else None
            better = better if better in ("higher", "lower") else None
            facts[name[:LONGEST_NAME]] = {"title": title, "better": better}
    return facts


def _without_constants(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {str(key): _without_constants(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_without_constants(part) for part in value]
    return value


def _numbers(values: Any, what: str) -> dict[str, float]:
    if not isinstance(values, dict) or len(values) > MOST_NUMBERS:
        raise ValueError(f"{what} must be an object of at most {MOST_NUMBERS:,} numbers.")
    numbers = {}
    for name, value in values.items():
        constant = value if value in ("NaN", "Infinity", "-Infinity") else None
        if constant is None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise ValueError(f"{what} must be numbers, got {str(value)[:40]!r} for {name[:LONGEST_NAME]!r}.")
        if len(name) > LONGEST_NAME:
            raise ValueError(f"{what}: a name is longer than {LONGEST_NAME} characters.")
        try:
            numbers[name] = float(value)
        except OverflowError:
            raise ValueError(f"{what}: the number {name!r} is too large.") from None
    return numbers
