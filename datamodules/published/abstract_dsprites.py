"""Abstract dSprites: coloured sprites on grey, for abstract visual reasoning."""

from pathlib import Path

import torch
from torch import Tensor

from unknot.datamodules.factors import FactorSpace, GroundTruthDataset
from unknot.datamodules.published.dsprites import SIDE, DSprites

BACKGROUNDS = torch.linspace(0, 1, 5)
COLORS = torch.tensor(
    [
        (0.910, 0.588, 0.366),
        (0.635, 0.693, 0.363),
        (0.376, 0.728, 0.596),
        (0.395, 0.707, 0.787),
        (0.696, 0.622, 0.900),
        (0.908, 0.551, 0.749),
    ]
)


class AbstractDSprites(GroundTruthDataset):
    """dSprites with colours on grey backgrounds (van Steenkiste et al., 2019): six factors, images ``[3, 64, 64]``.

    Orientation is not a factor: it is random for every image. The study of abstract visual reasoning trains
    representations on this grid and draws its matrices from ``Coarse(AbstractDSprites(), (5, 6, 3, 3, 4, 4))``.

    Args:
        source: source of the sprites, as for :class:`DSprites`.

    >>> dataset = AbstractDSprites()
    >>> dataset.factor_space.sizes
    (5, 6, 3, 6, 32, 32)
    >>> dataset.observe(dataset.factor_space.sample(8)).shape
    torch.Size([8, 3, 64, 64])
    """

    name = "abstract_dsprites"
    license = DSprites.license
    factor_space = FactorSpace(
        names=("background", "color", "shape", "scale", "pos_x", "pos_y"),
        sizes=(5, 6, 3, 6, 32, 32),
        kinds=("categorical", "categorical", "categorical", "ordered", "ordered", "ordered"),
    )
    image_shape = (3, SIDE, SIDE)

    def __init__(self, source: str | Path | None = None) -> None:
        self.sprites = DSprites(source)

    @property
    def download_size(self) -> int:
        """Bytes to download: nothing, unless requested."""
        return self.sprites.download_size

    @property
    def disk_size(self) -> int:
        """Bytes of the cached sprites."""
        return self.sprites.disk_size

    def prepare(self) -> None:
        """Draw the sprites."""
        self.sprites.prepare()

    def is_prepared(self) -> bool:
        """Return whether the sprites are cached."""
        return self.sprites.is_prepared()

    def observe(self, factors: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Return images for factors ``[N, 6]``, each at a random orientation: float32 ``[N, 3, 64, 64]`` in [0, 1]."""
        factors = self.factor_space.factors(self.factor_space.index(factors))  # checked, and int64
        orientation = torch.randint(DSprites.factor_space.sizes[2], (len(factors),), generator=generator)
        shape, scale, pos_x, pos_y = factors[:, 2:].T
        masks = self.sprites.observe(torch.stack([shape, scale, orientation, pos_x, pos_y], dim=1))
        background = BACKGROUNDS[factors[:, 0]][:, None, None, None]
        color = COLORS[factors[:, 1]][:, :, None, None]
        return torch.where(masks > 0, color, background)
