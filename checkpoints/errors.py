"""Errors of checkpoints and of requests to a hub. Each message says what to do."""


class UnreachableError(ConnectionError):
    """The hub did not respond, or not in time."""


class OfflineError(ConnectionError):
    """Offline mode is on, and the cache does not contain the requested file."""


class MissingError(FileNotFoundError):
    """The repository, revision or file does not exist, or is private."""


class AccessError(PermissionError):
    """The hub rejected the token, or requires one."""


class UnsafeCheckpointError(ValueError):
    """A repository has no weights in a format that can be read without running code."""


class TooLargeError(ValueError):
    """A file is larger than the limit for its kind."""


class IntegrityError(ValueError):
    """A file differs from the one announced by the hub."""


class ConflictError(ValueError):
    """The repository was changed by another user in the meantime."""


class FullError(OSError):
    """The hub has no space for the upload."""
