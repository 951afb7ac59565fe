"""The file ``.gitattributes`` of a repository, which says by name what git keeps with LFS."""

import re
from collections.abc import Callable
from fnmatch import translate

NAME = ".gitattributes"
MAX_BYTES = 1 << 16
BINARY = (
    "7z arrow bin bz2 ckpt ftz gz h5 joblib model msgpack npy npz onnx parquet pb pickle pkl pt pth rar safetensors "
    "tar tgz xz zip"
)
"""Extensions that git keeps with LFS where a new repository says so, as the Hub's do."""
NEW = "".join(f"*.{extension} filter=lfs diff=lfs merge=lfs -text\n" for extension in BINARY.split()).encode()


def matcher(content: bytes) -> Callable[[str], bool]:
    """Return a function that says of a path whether it is kept with LFS.

    >>> has_lfs = matcher(b"*.bin filter=lfs -text\\ndata/* filter=lfs")
    >>> has_lfs("a/b.bin"), has_lfs("data/x.txt"), has_lfs("a.txt")
    (True, True, False)
    """
    lines = (line.split() for line in content.decode("utf-8", "replace").splitlines())
    patterns = [words[0] for words in lines if "filter=lfs" in words[1:]]
    # A pattern without a slash is of names in any folder.
    anchored = [f"/{pattern.lstrip('/')}" if "/" in pattern else f"*/{pattern}" for pattern in patterns]
    expression = re.compile("|".join(map(translate, anchored)) or r"(?!)")
    return lambda path: expression.match(f"/{path}") is not None
