"""Stop a training run by Ctrl-C or SIGTERM, between two steps, with everything saved."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Stopped(BaseException):
    """Raised when a training run was stopped on request; its state is saved."""

    def __init__(self, signum: int = signal.SIGTERM) -> None:
        super().__init__(signum)
        self.signum = signum


class Stop:
    """Request to stop. While a state has to be saved first it is only noted; otherwise it stops at once.

    A second Ctrl-C always stops at once.

    Args:
        held: only note a request, until :meth:`allow` is called.
        quiet: print nothing.
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
        """Handle signals during the block; Python allows it in the main thread only."""
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
        """Take the signals back from Lightning, whose handler stops a training without saving its state."""
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
        """Only note requests from now on."""
        self.held = True

    def allow(self) -> None:
        """Stop at once from now on, also for an earlier request."""
        self.held = False
        if self.signum is not None:
            raise Stopped(self.signum)
