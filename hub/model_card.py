"""Content of model cards: metadata, text (``model_card.md.jinja``) and ``.eval_results`` of a checkpoint."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
import yaml
from jinja2 import Environment, StrictUndefined, Template
from torch import Tensor

from unknot.checkpoints.card import Card, digest, facts_of, finite, plain, write_card
from unknot.checkpoints.names import CONFIG, WEIGHTS
from unknot.hub.model_index import model_index, scores_of
from unknot.metrics.scores import Scores
from unknot.zoo import MODELS

TEMPLATE = Path(__file__).with_name("model_card.md.jinja")
RESULTS = ".eval_results/unknot.yaml"
MAX_NOTE, MAX_NOTES = 500, 10
OURS = ("method:", "zoo-dataset:", "family:")
"""Prefixes of the tags that a push replaces; all others stay."""
THROUGH_VALUES = "Latent traversals: one row per latent, through its values"
CAPTIONS = {
    "traversals": "Latent traversals: one row per latent, from -2 to 2",
    "reconstructions": "Reconstructions",
    "factor_code": "Mutual information of latents and factors",
    "sets": "Predicted sets of objects",
    "attention": "Attention of the slots",
    "decomposition": "Images, their reconstructions, and the part of each slot",
    "matrix": "A matrix, its answers, and the one that the model picks",
}


@dataclass(frozen=True)
class Facts:
    """Facts that a card states in addition to the weights."""

    scores: Scores = field(default_factory=Scores)
    seed: int | None = None
    command: str | None = None
    license: str | None = None
    commit: str | None = None
    """Commit of the code that trained the model."""
    core_hours: float | None = None
    """Processor time of the training, summed over cores."""
    notes: tuple[str, ...] = ()
    """Sentences on how it was trained or chosen."""


@dataclass(frozen=True)
class Content:
    """File to publish, read once."""

    path: Path
    size: int
    sha256: str
    sha1: str


def card_text(model: Any, repo: str, facts: Facts, files: Mapping[str, Content], old: Card | None = None) -> str:
    """Return the card. Edited text and metadata added by others are kept."""
    old = old or Card()
    body = body_of(model, repo, facts, files)
    metadata = metadata_of(model, repo, facts, files)
    metadata["unknot"]["body"] = digest(body)
    edited = bool(old.body.strip()) and digest(old.body) != facts_of(old.metadata).get("body")
    return write_card(merged(old.metadata, metadata), old.body if edited else body)


def metadata_of(model: Any, repo: str, facts: Facts, files: Mapping[str, Content]) -> dict[str, Any]:
    """Return the metadata of the card."""
    method, dataset, family = type(model).__name__, model.trained_on, type(model).family
    tags = ["unknot", _task(type(model)), f"method:{method.lower()}", f"family:{family}"]
    if dataset:
        tags.append(f"zoo-dataset:{plain(dataset, 50).replace(' ', '-').lower()}")
    metadata: dict[str, Any] = {"library_name": "unknot", "tags": tags}
    if facts.license:
        metadata["license"] = facts.license
    if facts.scores:
        metadata["model-index"] = model_index(repo, dataset or "unknown", facts.scores, {}, _task(type(model)))
    block = {
        "schema": 1,
        "version": version("unknot"),
        "torch": str(torch.__version__),
        "model": method,
        "dataset": dataset,
        "family": family,
        "seed": facts.seed,
        "command": facts.command,
        "commit": facts.commit,
        "core_hours": facts.core_hours,
        "notes": list(facts.notes) or None,
        "arguments": _arguments(files),
        "bytes": files[WEIGHTS].size,
        "weights": files[WEIGHTS].sha256,
        "scores": (facts.scores.described() or None) if facts.scores else None,
    }
    metadata["unknot"] = {key: value for key, value in block.items() if value is not None}
    return metadata


def eval_results(dataset: str | None, scores: Scores) -> str:
    """Return scores in the format of ``.eval_results/*.yaml`` for leaderboards, with the protocol as notes.

    >>> print(eval_results("dsprites", Scores({"mig": 0.3}, {"mig": 0.01}, protocol={"num_train": 10_000})), end="")
    - dataset:
        id: unknot/dsprites
        task_id: mig
      value: 0.3
      notes: ± 0.01; num_train 10000
    """
    name = plain(dataset or "unknown", 50).replace(" ", "-").lower()
    how = [f"{key} {plain(value)}" for key, value in scores.protocol.items()]
    entries = []
    for score, value in scores.items():
        spread = [f"± {scores.std[score]:.4g}"] if score in scores.std else []
        notes = "; ".join([*spread, ", ".join(how)]).strip("; ")
        entry = {"dataset": {"id": f"unknot/{name}", "task_id": score}, "value": value}
        entries.append(entry | ({"notes": notes} if notes else {}))
    return yaml.safe_dump(entries, sort_keys=False, allow_unicode=True, width=1000)


def body_of(model: Any, repo: str, facts: Facts, files: Mapping[str, Content]) -> str:
    """Fill in the template ``model_card.md.jinja``. Text by others is passed as plain values only."""
    stems = {name: Path(name).stem for name in sorted(files, reverse=True) if name.startswith("pictures/")}
    spread = {name: f" ± {value:.4f}" for name, value in facts.scores.std.items()}
    arguments = {name: json.dumps(value, ensure_ascii=False) for name, value in _arguments(files).items()}
    cost = [
        f"Random seed {facts.seed}" if facts.seed is not None else "",
        f"{facts.core_hours:.2g} core-hours" if facts.core_hours is not None else "",
        f"code of commit `{_cell(facts.commit, 60)}`" if facts.commit else "",
    ]
    command = plain(facts.command or "", 2000).replace("`", "")
    captions = CAPTIONS | ({"traversals": THROUGH_VALUES} if "levels" in model.capabilities else {})
    return _template(TEMPLATE).render(
        name=repo.partition("/")[2],
        model=type(model).__name__,
        dataset=plain(model.trained_on or ""),
        of_the_zoo=_is_of_the_zoo(type(model)),
        pictures=[
            {"file": name, "caption": captions.get(stem, stem.replace("_", " "))} for name, stem in stems.items()
        ],
        snippet=snippet(model, repo),
        scores=[
            {"title": _cell(facts.scores.about(name).title), "value": f"{value:.4f}{spread.get(name, '')}"}
            for name, value in facts.scores.items()
        ],
        protocol=[f"{_cell(key)} {_cell(value)}" for key, value in facts.scores.protocol.items()],
        arguments=[{"name": _cell(name), "value": _cell(value)} for name, value in arguments.items()],
        annealed=[{"name": name, "geometric": False} | plan for name, plan in model.annealed.items()],
        origin=_cell(model.fine_tuned_from or ""),
        command=command,
        runs_settings="training.yaml" in command,
        notes=[plain(note, MAX_NOTE) for note in facts.notes],
        cost=[part for part in cost if part],
    )


@lru_cache(maxsize=1)
def _template(path: Path) -> Template:
    options: dict[str, Any] = {"trim_blocks": True, "lstrip_blocks": True, "keep_trailing_newline": True}
    return Environment(undefined=StrictUndefined, **options).from_string(path.read_text(encoding="utf-8"))


def _cell(text: Any, length: int = 500) -> str:
    """Format text for a table cell or inline code.

    >>> _cell("a|b`c")
    'a\\\\|bc'
    """
    return plain(text, length).replace("`", "").replace("|", "\\|")


USES = {
    "codes": "codes = model.represent(images)  # images: float [N, {shape}] in [0, 1]",
    "sets": "sets = model.predict_sets(images).sets  # images: float [N, {shape}] in [0, 1]",
    "slots": "parts = model.decompose(images)  # images: float [N, {shape}] in [0, 1]",
    "reasoning": "answer = model(context, answers).argmax(1)  # panels [B, 8, ...] and [B, 6, ...]",
}
"""Line of code that uses a model, by its capability."""


def snippet(model: Any, repo: str) -> str:
    """Return the lines of code that load a model. The module of a user's class is imported, which registers it."""
    cls = type(model)
    if _is_of_the_zoo(cls):
        lines = [f"from unknot.zoo import {cls.__name__}", "", f'model = {cls.__name__}.from_pretrained("{repo}")']
    else:
        module = cls.__module__ if cls.__module__ != "__main__" else f"the_module_of_{cls.__name__.lower()}"
        lines = ["from unknot.hub import load", f"import {module}  # which registers {cls.__name__}", ""]
        lines.append(f'model = load("{repo}")')
    shape = ", ".join(map(str, model.image_shape))
    lines += [line.format(shape=shape) for capability, line in USES.items() if capability in model.capabilities][:1]
    return "\n".join(lines)


def _task(cls: type[Any]) -> str:
    """Return the task of the Hub: disentanglement for models with latents, otherwise the family."""
    return "disentanglement" if "codes" in cls.capabilities or not cls.capabilities else str(cls.family)


def _arguments(files: Mapping[str, Content]) -> dict[str, Any]:
    arguments: dict[str, Any] = json.loads(files[CONFIG].path.read_text(encoding="utf-8"))["arguments"]
    return arguments


def _is_of_the_zoo(cls: type[Any]) -> bool:
    return cls.__module__.startswith("unknot.zoo.") and MODELS.get(cls.__name__) is cls


def merged(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Merge metadata: additions by others are kept, scores of other weights are not.

    >>> merged({"tags": ["mine", "method:vae"], "language": "en"}, {"tags": ["unknot"]})
    {'tags': ['mine', 'unknot'], 'language': 'en'}
    """
    kept = {key: value for key, value in old.items() if key not in ("model-index", "unknot")}
    tags = [tag for tag in kept.get("tags") or [] if isinstance(tag, str) and not tag.startswith(OURS)]
    both = {**kept, **new}
    both["tags"] = list(dict.fromkeys([*tags, *new["tags"]]))
    return both


def facts_from(card: Card) -> Facts:
    """Read the facts of a card written by :func:`card_text`."""
    block, notes = facts_of(card.metadata), facts_of(card.metadata).get("notes")

    def typed(value: Any, kind: type[Any]) -> Any:
        return value if isinstance(value, kind) and not isinstance(value, bool) else None

    return Facts(
        scores_of(card.metadata),
        typed(block.get("seed"), int),
        typed(block.get("command"), str),
        typed(card.metadata.get("license"), str),
        typed(block.get("commit"), str),
        finite(block.get("core_hours")),
        tuple(plain(note, MAX_NOTE) for note in notes[:MAX_NOTES] if isinstance(note, str))
        if isinstance(notes, list)
        else (),
    )


def filled(facts: Facts, old: Facts) -> Facts:
    """Complete facts by those of a card of the same weights."""
    missing = {
        field.name: getattr(old, field.name) for field in fields(Facts) if not _tells(getattr(facts, field.name))
    }
    return replace(facts, **missing)


def _tells(value: Any) -> bool:
    return value is not None and value not in ({}, ())


def check_scores(scores: Mapping[str, float], protocol: Mapping[str, Any] | None = None) -> Scores:
    """Return scores as plain finite numbers, without details, and their protocol.

    >>> check_scores({"mig": 0.25, "mig/shape": 0.1})
    Scores({'mig': 0.25})
    """
    for name, value in scores.items():
        if isinstance(value, bool) or not isinstance(value, int | float | Tensor) or not math.isfinite(float(value)):
            raise ValueError(f"The score {name!r} is {value!r}; a card holds finite numbers. Leave it out.")
    known = Scores.from_flat(scores, protocol)
    return Scores(known, known.std, protocol=known.protocol, facts=known.facts)
