"""Model cards: ``README.md`` with YAML front matter. They are untrusted, and read as plain data within limits."""

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

MAX_CARD = 1 << 20
MAX_METADATA = 1 << 17
MAX_DEPTH = 20

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """YAML dumper with short lists and objects on one line and without aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_sequence(self, tag: str, sequence: Any, flow_style: bool | None = None) -> yaml.Node:
        return super().represent_sequence(tag, sequence, _fits_a_line(sequence))

    def represent_mapping(self, tag: str, mapping: Any, flow_style: bool | None = None) -> yaml.Node:
        pairs = mapping.items() if isinstance(mapping, dict) else mapping
        return super().represent_mapping(tag, mapping, _fits_a_line([part for pair in pairs for part in pair]))


def _fits_a_line(values: Iterable[Any]) -> bool:
    shown = [str(value) for value in values if not isinstance(value, list | tuple | dict)]
    return len(shown) == len(list(values)) and sum(map(len, shown)) <= 100


@dataclass(frozen=True)
class Card:
    """Metadata and text of a card; ``problem`` is the reason why the metadata could not be read, if any."""

    metadata: dict[str, Any] = field(default_factory=dict)
    body: str = ""
    problem: str | None = None


def read_card(text: str | bytes) -> Card:
    """Read a card; one that cannot be read becomes a card without metadata and with a problem.

    >>> read_card("---\\ntags: [unknot]\\n---\\n# A model\\n")
    Card(metadata={'tags': ['unknot']}, body='# A model\\n', problem=None)
    >>> read_card("---\\na: &a [1]\\nb: *a\\n---\\n").problem
    'YAML aliases are not read'
    """
    if len(text) > MAX_CARD:
        return Card(problem=f"longer than {MAX_CARD} bytes")
    if isinstance(text, bytes):
        text = text.decode("utf-8", errors="replace")
    text = text.removeprefix("\ufeff")
    if not re.match(r"---[ \t]*\r?\n", text):
        return Card(body=text)
    match = re.match(r"---[ \t]*\r?\n(.*?)^---[ \t]*(?:\r?\n|\Z)(?:\r?\n)?", text, re.DOTALL | re.MULTILINE)
    if not match:
        return Card(body=text, problem="metadata without an end")
    top, body = match[1], text[match.end() :]
    if len(top) > MAX_METADATA:
        return Card(body=body, problem=f"metadata longer than {MAX_METADATA} bytes")
    try:
        _check_plain(top)
        loaded = yaml.load(top, Loader=_Loader)  # a SafeLoader: no objects, no code
        # To JSON and back: dates become strings, numbers finite, as for any client.
        encoded = json.dumps({} if loaded is None else loaded, default=str, ensure_ascii=False)
        metadata = json.loads(encoded.encode(errors="replace"), parse_constant=lambda name: None)
    except Exception as error:  # constructors of YAML raise many kinds of errors for `!!bool x`, `!!int ''`, ...
        reason = str(getattr(error, "problem", None) or error).partition("\n")[0]
        return Card(body=body, problem=reason[:200] or "not YAML")
    if not isinstance(metadata, dict):
        return Card(body=body, problem="metadata is not a mapping")
    return Card(metadata, body)


def write_card(metadata: Mapping[str, Any], body: str) -> str:
    """Return the text of a card.

    >>> print(write_card({"tags": ["unknot"]}, "# A model\\n"), end="")
    ---
    tags: [unknot]
    ---
    <BLANKLINE>
    # A model
    """
    top = yaml.dump(dict(metadata), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
    return f"---\n{top}---\n\n{body}"


def finite(value: Any) -> float | None:
    """Return an untrusted number, if it is a number and finite.

    >>> finite(1), finite(10**400), finite(True), finite("1")
    (1.0, None, None, None)
    """
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def facts_of(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return unknot's block of the metadata, completed by the tags: model, data set, family, seed, ..."""
    facts = metadata.get("unknot")
    facts = {str(key): value for key, value in facts.items()} if isinstance(facts, dict) else {}
    for tag in list_of(metadata.get("tags")):
        prefix, colon, value = tag.partition(":") if isinstance(tag, str) else ("", "", "")
        key = {"method": "model", "zoo-dataset": "dataset", "family": "family"}.get(prefix)
        if colon and key and value:
            facts.setdefault(key, value)
    return facts


def digest(text: str) -> str:
    """Return the sha256 of a text, to detect later changes."""
    return hashlib.sha256(text.encode()).hexdigest()


def plain(text: Any, length: int = 200) -> str:
    """Format untrusted text for a terminal: one line, without control characters.

    >>> plain("a\\x1b[31m\\nb")
    'a[31m b'
    """
    joined = " ".join(str(text).split())
    return "".join(letter for letter in joined if letter.isprintable())[:length]


def _check_plain(text: str) -> None:
    """Raise an error for aliases, which can fill any memory, and for nesting deep enough to overflow the stack."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.AliasEvent):
            raise ValueError("YAML aliases are not read")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise ValueError(f"nested deeper than {MAX_DEPTH} levels")


def list_of(value: Any) -> list[Any]:
    """Return a list unchanged, and an empty list for anything else."""
    return value if isinstance(value, list) else []


def dict_of(value: Any) -> dict[str, Any]:
    """Return a mapping unchanged, and an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def get(value: Any, key: str) -> Any:
    """Return the value of a key of a mapping; None for anything else."""
    return value.get(key) if isinstance(value, dict) else None
