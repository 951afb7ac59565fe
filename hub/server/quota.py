"""Storage quotas of namespaces."""

from collections.abc import Iterable, Mapping
from typing import Any

GB = 1 << 30


class OverQuota(Exception):
    """A namespace would exceed its quota."""


class Quota:
    """Sizes of the contents of each namespace: of all commits, including deleted repositories, each content once.

    Args:
        limit: maximum number of bytes, or None for no limit.

    >>> quota = Quota(limit=10)
    >>> quota.count("me", {"a" * 64: 8})
    >>> quota.check("me", {"a" * 64: 8})
    >>> quota.left("me")
    2
    """

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self.reset({})

    def reset(self, contents: Mapping[str, Mapping[str, int]]) -> None:
        """Reset to the size of each content by its hash, for each namespace."""
        self._contents = {namespace: dict(sizes) for namespace, sizes in contents.items()}
        self._used = {namespace: sum(sizes.values()) for namespace, sizes in contents.items()}

    def count(self, namespace: str, sizes: Mapping[str, int]) -> None:
        """Add contents."""
        known = self._contents.setdefault(namespace, {})
        new = {sha256: size for sha256, size in sizes.items() if sha256 not in known}
        known |= new
        self._used[namespace] = self._used.get(namespace, 0) + sum(new.values())

    def counts(self, sha256: str) -> bool:
        """Return whether a namespace stores this content."""
        return any(sha256 in sizes for sizes in self._contents.values())

    def left(self, namespace: str) -> float:
        """Return the number of remaining bytes."""
        return float("inf") if self.limit is None else self.limit - self._used.get(namespace, 0)

    def check(self, namespace: str, sizes: Mapping[str, int]) -> None:
        """Raise an error for contents that exceed the quota."""
        known = self._contents.get(namespace, {})
        more = sum(size for sha256, size in sizes.items() if sha256 not in known)
        if more and more > self.left(namespace):
            raise OverQuota(
                f"{namespace}/ would store {_shown(self._used.get(namespace, 0) + more)}, more than its quota of "
                f"{_shown(self.limit or 0)}. Delete repositories, squash the history of one with super_squash_history, "
                "or ask whoever runs this hub. Deleted repositories count until they can no longer be restored."
            )


def sizes_of(files: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Return the size of each content by its hash."""
    return {file["sha256"]: file["size"] for file in files}


def _shown(size: int) -> str:
    return f"{size / GB:.2f} GB" if size >= GB // 10 else f"{size:,} bytes"
