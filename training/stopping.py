"""Stop a training run on Ctrl-C or SIGTERM, between two steps, with its state saved."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Stopped(BaseException):
    """Raised when a training run is stopped on request, with its state saved."""

    def __init__(self, signum: int = signal.SIGTERM) -> None:
        super().__init__(signum)
        self.signum = signum


class Stop:
    """Request to stop: deferred while a state has to be saved first, otherwise immediate.

    A second Ctrl-C always stops immediately.

    Args:
        held: defer requests until :meth:`allow` is called.
        quiet: do not print messages.
    """

    def __init__(self, held: bool = False, quiet: bool = False) -> None:
        self.signum: int | None = None
        self.held, self.quiet = held, quiet
        self._signals: tuple[int, ...] = ()

    @property
    def asked(self) -> bool:
        """True once a stop was requested."""
        return self.signum is not None

    @contextmanager
    def listening(self, *signals: int) -> Iterator[None]:
        """Handle signals during the block. Python allows it in the main thread only."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {signum: signal.getsignal(signum) for signum in signals}
        self._signals = signals
        self.listen()
        try:
            yield
        finally:
            self._signals = ()
            for signum, handler in before.items():
                signal.signal(signum, handler)

    def listen(self) -> None:
        """Replace Lightning's signal handlers, which stop training without saving its state."""
        for signum in self._signals:
            signal.signal(signum, self._receive)

    def _receive(self, signum: int, frame: Any) -> None:
        again = self.asked and signum == signal.SIGINT
        self.signum = signum
        if again or not self.held:
            raise Stopped(signum)
        if not self.quiet:
            print("Stopping after this step; press Ctrl-C to stop at once.", file=sys.stderr, flush=True)

    def hold(self) -> None:
        """Defer requests from now on."""
        self.held = True

    def allow(self) -> None:
        """Stop immediately from now on, also for a deferred request."""
        self.held = False
        if self.signum is not None:
            raise Stopped(self.signum)
