"""How a training is asked to end: by Ctrl-C or SIGTERM, between two steps, with everything saved."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Stopped(BaseException):
    """A training that was asked to stop, and did; what it resumes from is saved."""

    def __init__(self, signum: int = signal.SIGTERM) -> None:
        super().__init__(signum)
        self.signum = signum


class Stop:
    """A request to stop. While there is something to save first it is only noted; otherwise it stops at once.

    A second Ctrl-C always stops at once.

    Args:
        held: begin by only noting it.
        quiet: print nothing.
    """

    def __init__(self, held: bool = False, quiet: bool = False) -> None:
        self.signum: int | None = None
        self.held, self.quiet = held, quiet
        self._signals: tuple[int, ...] = ()

    @property
    def asked(self) -> bool:
        """Return whether somebody asked."""
        return self.signum is not None

    @contextmanager
    def listening(self, *signals: int) -> Iterator[None]:
        """Take signals meanwhile; Python lets only the main thread do so."""
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
        """From here on, only note it."""
        self.held = True

    def allow(self) -> None:
        """From here on, stop at once, also if it was asked before."""
        self.held = False
        if self.signum is not None:
            raise Stopped(self.signum)
