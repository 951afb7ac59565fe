"""Pictures for the page: re-encoded, few at a time, and cached within a limit."""

import io
import threading
from pathlib import Path

from PIL import Image, ImageChops

from unknot.files import Cache

WIDTHS = {"small": 480, "large": 1600}
MAX_PIXELS = 12_000_000
"""Of a picture of a checkpoint: 36 MB while it is encoded again; at most two are processed at a time."""
_drawn: Cache[tuple[str, int, int, int | None], bytes] = Cache(64 << 20)
_drawing = threading.Semaphore(2)


def read_picture(path: Path, width: int, changed: int, colours: int | None = None) -> bytes:
    """Return a picture re-encoded as PNG, whatever the file was, no wider than ``width``.

    Args:
        path: path of the file.
        width: maximum width in pixels.
        changed: modification time of the file, so that a new version is read again.
        colours: maximum number of colours, for a smaller file.
    """
    return _drawn.get((str(path), width, changed, colours), lambda: _draw(path, width, colours), len)


def _draw(path: Path, width: int, colours: int | None) -> bytes:
    with _drawing:
        try:
            with Image.open(path, formats=("PNG",)) as image:
                if image.width * image.height > MAX_PIXELS:
                    raise ValueError("too many pixels")
                whole = image.convert("RGB")
        except Exception as error:  # Pillow raises many kinds of errors
            raise ValueError("This picture cannot be shown: it is not a whole PNG of reasonable size.") from error
        if width <= WIDTHS["small"]:  # crop the margins of a small picture
            corner = Image.new("RGB", whole.size, whole.getpixel((0, whole.height - 1)))
            whole = whole.crop(ImageChops.difference(whole, corner).getbbox())
        if whole.width > width:
            size = width, max(1, round(whole.height * width / whole.width))
            whole = whole.resize(size, Image.Resampling.LANCZOS, reducing_gap=2.0)
        buffer = io.BytesIO()
        (whole.quantize(colours) if colours else whole).save(buffer, "PNG", optimize=colours is not None)
        return buffer.getvalue()
