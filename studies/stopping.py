"""How the process of a job is asked to end."""

import signal
from typing import Any


class Stopped(BaseException):
    """The job was asked to stop; what it resumes from is saved."""


class Stop:
    """Whether a job was asked to stop. Where there is something to save first it is only noted, elsewhere it stops on
    the spot."""

    asked = listening = at_once = False

    def listen(self) -> None:
        """Be asked by SIGTERM."""
        self.listening = True
        signal.signal(signal.SIGTERM, self.ask)

    def ask(self, *_: Any) -> None:
        """A signal handler."""
        self.asked = True
        if self.at_once:
            self.at_once = False
            raise Stopped

    def hold(self) -> None:
        """From here on it is only noted."""
        self.at_once = False

    def allow(self) -> None:
        """From here on stop on the spot, also if it was asked before."""
        if self.asked:
            raise Stopped
        self.at_once = True
