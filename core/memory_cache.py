"""A cache in memory whose values weigh no more than a limit."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Cache(Generic[K, V]):
    """Values that were used last, as many as their weights allow.

    Args:
        limit: sum of the weights. A value that is heavier is given and not kept.

    >>> cache = Cache(limit=10)
    >>> [cache.get(key, lambda: key * 4, len) for key in ("a", "b", "c", "a")]
    ['aaaa', 'bbbb', 'cccc', 'aaaa']
    >>> cache.weight
    8
    """

    def __init__(self, limit: int) -> None:
        self.limit, self.weight = limit, 0
        self._values: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: K, make: Callable[[], V], weigh: Callable[[V], int]) -> V:
        """The value of a key, made if it is not here. Two who ask at once may both make it."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key][0]
        value = make()
        weight = weigh(value)
        with self._lock:
            self.weight -= self._values.pop(key, (None, 0))[1]
            if weight <= self.limit:
                self._values[key] = value, weight
                self.weight += weight
            while self.weight > self.limit:
                self.weight -= self._values.popitem(last=False)[1][1]
        return value

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._values.clear()
            self.weight = 0
