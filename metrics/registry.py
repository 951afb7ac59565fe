"""Registry of scores: title, better direction, rank and requirements of each.

Cards, lists, the page, reports and studies call :func:`about` and :func:`list_scores`. Nothing here imports torch or
NumPy.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from unknot.arguments import is_number

if TYPE_CHECKING:
    from unknot.metrics.draws import GivenDraws

Better = Literal["higher", "lower"]
Bounds = tuple[float | None, float | None]
Part = str | tuple[str, Better | None]
Compute = Callable[[Any], Any]

UNRANKED = 1000
GROUPS = ("disentanglement", "downstream", "unsupervised", "objects", "loss", "own")
PREFIXES = {"val/": "validation", "val_": "validation", "train/": "training", "score/": "", "validation/": "validation"}


class About(NamedTuple):
    """Facts about one number: its title, which direction is better, its rank in lists, and its bounds."""

    name: str
    title: str
    better: Better | None = None
    rank: int = UNRANKED
    group: str = "own"
    bounds: Bounds = (None, None)


class Entry(NamedTuple):
    """Registered score: facts about it and, if ``evaluate`` computes it, its function."""

    name: str
    function: Compute | None
    title: str
    better: Better | None = None
    rank: int = UNRANKED
    group: str = "own"
    default: bool = False
    needs: str | None = None
    intervenes: bool = False
    on_request: bool = False
    on_labels: Literal["all", "split"] | None = None
    parts: Mapping[str, Part] = MappingProxyType({})
    bounds: Bounds = (None, None)

    @property
    def description(self) -> str:
        """Docstring of the registered function."""
        return inspect.getdoc(self.function) or ""

    @property
    def facts(self) -> About:
        """Return the facts shown by lists and cards."""
        return About(self.name, self.title, self.better, self.rank, self.group, self.bounds)

    def lacks(self, model: Any) -> str | None:
        """Return what the score requires and the model lacks, or None."""
        offered = {*getattr(model, "capabilities", ()), getattr(model, "batch", None)}
        return self.needs if self.needs and self.needs not in offered else None

    def of(self, draws: "GivenDraws") -> dict[str, float]:
        """Compute the score: return its numbers by name."""
        if self.function is None:
            raise ValueError(f"{self.title} is not computed by `evaluate`: it is reported by other functions.")
        computed = self.function(draws)
        numbers = computed if isinstance(computed, Mapping) else {self.name: computed}
        if self.name not in numbers or not all(_is_scalar(value) for value in numbers.values()):
            raise ValueError(
                f"The score {self.name!r} must give a number, or a dictionary of numbers with {self.name!r} among its "
                f"names, got {computed!r:.100}."
            )
        return {name: float(value) for name, value in numbers.items()}

    def part(self, suffix: str) -> About:
        """Return the facts about ``name_suffix``: those of a described part, or else inherited ones."""
        described = self.parts.get(suffix, (f"{self.title} {suffix.replace('_', ' ')}", self.better))
        title, better = (described, self.better) if isinstance(described, str) else described
        return About(f"{self.name}_{suffix}", title, better, UNRANKED, self.group, self.bounds)


def _is_scalar(value: Any) -> bool:
    return is_number(value) or getattr(value, "shape", None) == ()  # numbers of NumPy or torch


METRICS: dict[str, Entry] = {}
"""Scores that ``evaluate`` computes, by name."""
DESCRIBED: dict[str, Entry] = {}
"""Scores that are computed elsewhere, such as losses and scores of object models."""


def register(
    name: str,
    needs: str | None = None,
    intervenes: bool = False,
    on_request: bool = False,
    *,
    title: str | None = None,
    better: Better | None = None,
    rank: int = UNRANKED,
    group: str = "own",
    default: bool = False,
    on_labels: Literal["all", "split"] | None = None,
    parts: Mapping[str, Part] | None = None,
    bounds: Bounds = (None, None),
) -> Callable[[Compute], Compute]:
    """Register a function of :class:`Draws` as the score ``name``, for all commands and pages that compute or show
    scores.

    Args:
        name: name of the score. The function returns its value, or a dictionary with the value under this key, further
            values under ``name_...``, and details such as those of each factor under ``name/...``.
        needs: one of the model's ``capabilities``, such as ``"elbo"``, or its kind of ``batch``, such as ``"pairs"``;
            groups skip the score for other models.
        intervenes: whether it chooses factors itself, and so needs images of all combinations; groups skip it for your
            own images and for given codes.
        on_request: compute it only if it is named, because it takes long; groups skip it.
        title: display name; by default derived from ``name``.
        better: ``"higher"`` or ``"lower"``; None if neither is.
        rank: position in lists, lowest first.
        group: one of ``"disentanglement"``, ``"downstream"``, ``"unsupervised"``, ``"objects"`` and ``"loss"``, by
            which ``evaluate`` can be asked for several scores; ``"own"`` by default.
        default: whether it is computed unless others are requested.
        on_labels: how studies compute it on a few labels: on ``"all"`` of them, or on a ``"split"`` into labels to fit
            on and others to test on; None if they do not.
        parts: titles of further numbers ``name_SUFFIX`` by suffix, or ``(title, better)`` if the direction differs.
            Others inherit title and direction.
        bounds: lowest and highest possible value, None for no bound.

    >>> from unknot.metrics import METRICS, about, register
    >>> @register("num_codes", title="Number of codes", better="lower")
    ... def num_codes(draws):
    ...     return draws.train[0].shape[1]
    >>> about("num_codes").title, about("num_codes@quick").better
    ('Number of codes', 'lower')
    >>> del METRICS["num_codes"]
    """

    def add(function: Compute) -> Compute:
        METRICS[name] = Entry(
            name,
            function,
            _title(name) if title is None else title,
            _better(better),
            rank,
            _group(group),
            default,
            needs,
            intervenes,
            on_request,
            on_labels,
            MappingProxyType(dict(parts or {})),
            bounds,
        )
        return function

    return add


def describe(
    name: str,
    title: str,
    better: Better | None,
    group: str = "loss",
    rank: int = UNRANKED,
    parts: Mapping[str, Part] | None = None,
    bounds: Bounds = (None, None),
) -> None:
    """Describe a score that ``evaluate`` does not compute, for its title and place in lists and cards."""
    DESCRIBED[name] = Entry(
        name,
        None,
        title,
        _better(better),
        rank,
        _group(group),
        parts=MappingProxyType(dict(parts or {})),
        bounds=bounds,
    )


def about(name: str, own: Mapping[str, Mapping[str, Any]] | None = None) -> About:
    """Return the facts about a number by its name, including parts, repetitions and standard deviations of a score.

    Args:
        name: such as ``"mig"``, ``"dci_completeness"``, ``"downstream_gbt_100"``, ``"mig@quick"``, ``"val/loss"`` or
            ``"mig_std"``.
        own: ``title`` and ``better`` of further scores by name, as :class:`unknot.metrics.Scores` stores those of
            scores that are not part of unknot. Registered scores take precedence.

    >>> from unknot.metrics import about
    >>> about("mig").title, about("factor_vae").rank < about("irs").rank
    ('MIG', True)
    >>> about("dci_completeness@quick").title, about("downstream_gbt_100").title
    ('DCI completeness @quick', 'Downstream GBT 100')
    >>> about("unfairness").better, about("elbo_kl").better, about("my_number").better
    ('lower', 'lower', None)
    """
    whole, at, label = name.partition("@")
    facts = _about(whole, own or {})
    return facts._replace(name=name, title=f"{facts.title} @{label}" if at else facts.title)


def _about(name: str, own: Mapping[str, Mapping[str, Any]]) -> About:
    facts = _known(name, own)
    if facts:
        return facts
    score, slash, detail = name.partition("/")
    for prefix, word in PREFIXES.items():
        if name.startswith(prefix) and name != prefix:
            facts = _about(name.removeprefix(prefix), own)
            return facts._replace(title=f"{facts.title} ({word})" if word else facts.title, rank=UNRANKED)
    if slash and (facts := _known(score, own)):
        return facts._replace(title=f"{facts.title}, {detail.replace('_', ' ')}", rank=UNRANKED)
    if name.endswith("_std") and (facts := _known(name.removesuffix("_std"), own)):
        return facts._replace(title=f"{facts.title} std", better=None, rank=UNRANKED, bounds=(0, None))
    return About(name, _title(name))


def _known(name: str, own: Mapping[str, Mapping[str, Any]]) -> About | None:
    """Return the facts about a registered or described score, or about a part of the one with the longest matching
    name.
    """
    if name.endswith("_std"):
        return None
    stem = name
    while stem:
        if entry := METRICS.get(stem) or DESCRIBED.get(stem) or _own(stem, own):
            return entry.facts if stem == name else entry.part(name[len(stem) + 1 :])
        stem = stem.rpartition("_")[0]
    return None


def _own(name: str, own: Mapping[str, Mapping[str, Any]]) -> Entry | None:
    stored = own.get(name)
    if stored is None:
        return None
    title, better = stored.get("title"), stored.get("better")
    return Entry(
        name, None, title if isinstance(title, str) else _title(name), better if better in ("higher", "lower") else None
    )


def is_described(name: str) -> bool:
    """Return whether the registry knows a number: a score, a part of one, or a number computed elsewhere.

    >>> from unknot.metrics.registry import is_described
    >>> is_described("dci_completeness"), is_described("fid")
    (True, False)
    """
    facts = about(name)
    return facts.rank != UNRANKED or facts.better is not None or facts.group != "own"


def list_scores(group: str = "all") -> list[str]:
    """Return the names of the scores of a group: ``"all"``, ``"default"`` or one of :data:`GROUPS`.

    ``"all"`` and the groups skip scores that are computed only on request.

    >>> from unknot.metrics import list_scores
    >>> list_scores("default")
    ['mig', 'dci', 'sap', 'modularity', 'explicitness', 'irs', 'total_correlation', 'elbo']
    """
    if group not in ("all", "default", *GROUPS):
        raise ValueError(f"Unknown group of scores {group!r}; there are 'all', 'default', {', '.join(GROUPS)}.")
    return [
        entry.name
        for entry in METRICS.values()
        if not entry.on_request and (group == "all" or (entry.default if group == "default" else entry.group == group))
    ]


def default_scores(model: Any = None) -> list[str]:
    """Return the names of the default scores that a model allows.

    >>> from unknot.metrics import default_scores
    >>> default_scores(object())[-1]
    'total_correlation'
    """
    return [name for name in list_scores("default") if model is None or not METRICS[name].lacks(model)]


def facts_to_store(scores: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return title and direction of those scores that are not part of unknot, to store with them."""
    stored = {}
    for name in scores:
        entry = METRICS.get(name)
        if entry is not None and not getattr(entry.function, "__module__", "").startswith("unknot.metrics."):
            stored[name] = {"title": entry.title, "better": entry.better}
    return stored


def _title(name: str) -> str:
    words = name.replace("_", " ")
    return words[:1].upper() + words[1:]


def _better(better: Any) -> Better | None:
    if better not in ("higher", "lower", None):
        raise ValueError(f"better must be 'higher', 'lower' or None, got {better!r}.")
    return better  # type: ignore[no-any-return]


def _group(group: str) -> str:
    if group not in GROUPS:
        raise ValueError(f"group must be one of {', '.join(GROUPS)}, got {group!r}.")
    return group


from unknot.metrics import definitions as _definitions  # noqa: E402,F401  registers unknot's own scores
