"""Errors of requests to a hub and of checkpoints. Each message says what to do."""


class UnreachableError(ConnectionError):
    """The hub did not answer in time, or not at all."""


class OfflineError(ConnectionError):
    """Offline mode is on, and the cache does not hold what was asked for."""


class MissingError(FileNotFoundError):
    """There is no such repository, revision or file, or it is private."""


class AccessError(PermissionError):
    """The hub refused the token, or requires one."""


class UnsafeCheckpointError(ValueError):
    """A repository holds no weights in a format that can be read without running code."""


class TooLargeError(ValueError):
    """A file is larger than the limit for its kind."""


class IntegrityError(ValueError):
    """A file is not the one that the hub announced."""


class ConflictError(ValueError):
    """Somebody else changed the repository in the meantime."""


class FullError(OSError):
    """The hub has no room for what was sent."""
