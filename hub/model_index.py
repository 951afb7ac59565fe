"""Scores in the metadata of a model card, in the Hub's format."""

from collections.abc import Mapping
from typing import Any

from unknot.checkpoints.card import dict_of, finite, get, list_of
from unknot.metrics.registry import is_described
from unknot.metrics.scores import Scores, read_facts


def model_index(
    name: str, dataset: str, scores: Mapping[str, float], protocol: Mapping[str, Any], task: str = "disentanglement"
) -> list[Any]:
    """Return scores, and their standard deviations as ``score_std``, in the Hub's format.

    The protocol is stated once, as ``args`` of the data set.

    >>> model_index("me/model", "dsprites", {"mig": 0.3}, {})[0]["results"][0]["metrics"]
    [{'type': 'mig', 'name': 'MIG', 'value': 0.3}]
    """
    known = Scores.from_flat(scores, protocol)
    result = {
        "task": {"type": task, "name": task.replace("-", " ").capitalize()},
        "dataset": {"type": dataset, "name": dataset} | ({"args": known.protocol} if known.protocol else {}),
        "metrics": [
            {"type": metric, "name": known.about(metric).title, "value": value}
            for metric, value in known.flat(details=False).items()
        ],
    }
    return [{"name": name, "results": [result]}]


def scores_of(metadata: Mapping[str, Any]) -> Scores:
    """Return all finite numbers of ``model-index`` and their protocol; anything else is ignored.

    The protocol is ``dataset.args`` of a result. Earlier versions repeated it as ``args`` of every metric.

    >>> scores_of({"model-index": [{"results": [{"metrics": [{"type": "mig", "value": 0.3}, {"type": 3}]}]}]})
    Scores({'mig': 0.3})
    """
    scores: dict[str, float] = {}
    protocol: dict[str, Any] = {}
    titles: dict[str, Any] = {}
    for model in list_of(metadata.get("model-index")):
        for result in list_of(get(model, "results")):
            for metric in list_of(get(result, "metrics")):
                name, value = get(metric, "type"), get(metric, "value")
                number = finite(value)
                if isinstance(name, str) and number is not None:
                    scores.setdefault(name[:100], number)
                    titles.setdefault(name[:100], {"title": get(metric, "name")})
                    protocol = protocol or dict_of(get(get(result, "dataset"), "args")) or dict_of(get(metric, "args"))
    known = Scores.from_flat(scores, protocol)
    directions = dict_of(dict_of(metadata.get("unknot")).get("scores"))
    own = {name: titles.get(name, {}) | dict_of(directions.get(name)) for name in known if not is_described(name)}
    known.facts = read_facts(own)
    return known
