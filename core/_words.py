"""Words for error messages."""

import difflib
import re
from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A sentence that helps someone who misspelt a name: the nearest one, or all of them.

    >>> did_you_mean("Dsprites", ["dsprites", "cars3d"])
    "Did you mean 'dsprites'?"
    >>> did_you_mean("x", ["dsprites", "cars3d"])
    'There are cars3d, dsprites.'
    """
    names = {other.lower(): other for other in known}
    close = difflib.get_close_matches(name.lower(), names, n=1)
    return f"Did you mean {names[close[0]]!r}?" if close else f"There are {', '.join(sorted(names.values()))}."


def with_article(name: str) -> str:
    """A class with the article that its sound asks for.

    >>> [with_article(name) for name in ("AdaGVAE", "BetaVAE", "MLVAE", "S2BetaVAE", "SlotSetPredictor")]
    ['an AdaGVAE', 'a BetaVAE', 'an MLVAE', 'an S2BetaVAE', 'a SlotSetPredictor']
    """
    return f"{'an' if re.match(r'[AEIO]|[FHLMNRSX][A-Z0-9]', name) else 'a'} {name}"
