"""Selection of the scores to compute, with reasons for those that cannot be computed."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from unknot.arguments import did_you_mean
from unknot.metrics.registry import GROUPS, METRICS, list_scores
from unknot.metrics.scores import Scores


def select(metrics: str | Iterable[str]) -> dict[str, bool]:
    """Return the names of the requested scores, and whether each was requested by its own name.

    >>> select(["mig", "unsupervised"])
    {'mig': True, 'total_correlation': False, 'elbo': False, 'weak_reconstruction': False}
    """
    selected: dict[str, bool] = {}
    for name in [metrics] if isinstance(metrics, str) else list(metrics):
        if name in METRICS:
            selected[name] = True
        elif name in ("all", "default", *GROUPS):
            selected |= {each: selected.get(each, False) for each in list_scores(name)}
        else:
            known = [*METRICS, "all", "default", *GROUPS]
            raise ValueError(
                f"Unknown metrics {[name]}. {did_you_mean(str(name), known)} There are {', '.join(sorted(METRICS))}, "
                f"and the groups 'all', 'default', {', '.join(map(repr, GROUPS[:3]))}."
            )
    if not selected:
        raise ValueError("metrics is empty: name at least one score, or 'default'.")
    return selected


def possible(
    selected: Mapping[str, bool], model: Any, restricted: str | None = None, given: bool = False
) -> tuple[list[str], dict[str, str]]:
    """Return the scores that a model and its data allow, and reasons for named scores that are not possible.

    Args:
        selected: result of :func:`select`.
        model: the model or function.
        restricted: reason why factors cannot be chosen freely, if there is one.
        given: whether only codes are given, and neither model nor data set.
    """
    names, reasons = [], {}
    for name, is_named in selected.items():
        entry = METRICS[name]
        reason = None
        if given and entry.needs:
            reason = "it needs the model and its images, and there are only codes and factors"
        elif needs := entry.lacks(model):
            reason = (
                f"{name!r} requires a model with {needs!r} in its `capabilities` or as its `batch`, as the zoo's "
                "VAEs have (for 'pairs', the weakly-supervised ones)"
            )
        elif restricted and (entry.intervenes or entry.needs == "pairs"):
            reason = f"it chooses factors of its own, and {restricted}"
        if reason is None:
            names.append(name)
        elif is_named:
            reasons[name] = reason
    if not names:
        raise ValueError("; ".join(f"{name}: {reason}" for name, reason in reasons.items()) or "Nothing to compute.")
    return names, reasons


def compute(names: Sequence[str], draws: Any, reasons: dict[str, str], bar: Any = None) -> dict[str, float]:
    """Compute scores by name; add to ``reasons`` why one cannot be computed.

    If no score can be computed at all, the first error is raised.
    """
    numbers: dict[str, float] = {}
    first: Exception | None = None
    for name in names:
        if bar is not None:
            bar.set_postfix_str(name)
        if name not in reasons:
            try:
                numbers |= METRICS[name].of(draws)
            except Exception as error:  # a user's own score may raise any error
                text = " ".join(str(error).split())[:500]
                reasons[name] = text if isinstance(error, ValueError) and text else f"{type(error).__name__}: {text}"
                first = first or error
        if bar is not None:
            bar.update()
    if not numbers and first is not None:
        raise first
    return numbers


def collected(drawn: Sequence[Mapping[str, float]], protocol: Mapping[str, Any], reasons: Mapping[str, str]) -> Scores:
    """Combine one repetition or several, with reasons for missing scores; a score that failed in one is left out."""
    common = [name for name in drawn[0] if all(name in draw for draw in drawn)]
    scores = Scores.of_draws([{name: draw[name] for name in common} for draw in drawn], protocol)
    scores.reasons = dict(reasons)
    return scores
