"""Encoding of an object of a CLEVR scene as 19 numbers; the only place that defines it.

Coordinates 3 | size 2 | material 2 | shape 3 | color 8 | 1 for a real object. Coordinates are (x + 3) / 6, classes
one-hot in the order of :data:`CLASSES`.
"""

from itertools import accumulate, pairwise

SIZES = ("small", "large")
MATERIALS = ("rubber", "metal")
SHAPES = ("cube", "sphere", "cylinder")
RGB = {
    **{"gray": (87, 87, 87), "blue": (42, 75, 215), "brown": (129, 74, 25), "yellow": (255, 238, 51)},
    **{"red": (173, 35, 35), "green": (29, 105, 20), "purple": (129, 38, 192), "cyan": (41, 208, 208)},
}
"""CLEVR's colours, 8 bits per channel."""
COLORS = tuple(RGB)
CLASSES = {"size": SIZES, "material": MATERIALS, "shape": SHAPES, "color": COLORS}
"""Attributes and their classes."""

COORDINATES = slice(0, 3)
PARTS = dict(
    zip(CLASSES, (slice(*ends) for ends in pairwise(accumulate(map(len, CLASSES.values()), initial=3))), strict=True)
)
"""Positions of the classes of each attribute."""
REAL = PARTS["color"].stop
OBJECT_SIZE = REAL + 1
REACH = 3.0
"""Coordinates in [0, 1] stand for [-3, 3]."""
