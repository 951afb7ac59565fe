"""Properties of objects predicted from slots."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from unknot.datamodules import MultiDSprites, SetBatch, Tetrominoes
from unknot.metrics.object_properties import SHIFTED_PROPERTIES, property_scores, shifted
from unknot.zoo import BetaVAE, SlotAutoEncoder
from unknot.zoo.object_discovery import Decomposition


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class Told(torch.nn.Module):
    """Slots that hold the properties of objects, in a random order, and a slot of the background."""

    capabilities = frozenset({"slots"})
    device = torch.device("cpu")

    def __init__(self, *batches: SetBatch, noise: float = 0.0) -> None:
        super().__init__()
        self.noise, self.known = noise, batches

    def encode(self, images: Tensor) -> Tensor:
        slots = []
        for image in images:
            same = [
                (batch, i) for batch in self.known for i, other in enumerate(batch.images) if torch.equal(image, other)
            ]
            (targets, masks), row = (same[0][0].targets, same[0][0].masks), same[0][1]
            assert masks is not None
            objects = torch.stack([masks[row] == number + 1 for number in range(targets.shape[1])]).float()
            cells = F.avg_pool2d(objects[None], 5)[0].flatten(1)  # [M, 49]
            order = torch.randperm(targets.shape[1], generator=generator(row))
            known = torch.cat([targets[row] + self.noise * torch.randn(targets[row].shape), cells], dim=1)[order]
            slots.append(torch.cat([known, torch.zeros_like(known[:1])]))
        return torch.stack(slots)

    def decode(self, slots: Tensor) -> Decomposition:
        masks = slots[..., -49:].unflatten(-1, (7, 7))
        return Decomposition(masks[:, :1], masks[:, :, None], masks)


@pytest.mark.parametrize("matching", ["loss", "mask"])
@pytest.mark.parametrize("probe", ["linear", "mlp"])
def test_what_slots_hold_is_predicted(probe: Any, matching: Any) -> None:
    data = Tetrominoes()
    train, new = data.draw(160, generator(1)), data.draw(48, generator(2))
    options = {"probe": probe, "matching": matching, "steps": 250, "lr": 2e-2}
    scores = property_scores(Told(train, new), train, {"new": new}, data.properties, **options)
    assert scores["new.color"] > 0.95
    assert scores["new.position"] > 0.9
    noise = property_scores(Told(train, new, noise=50.0), train, {"new": new}, data.properties, **options)
    assert noise["new.color"] < 0.7  # the place is in the masks


def test_shifts_change_what_they_say() -> None:
    data = MultiDSprites("colored_on_colored", min_objects=2)
    scenes = data.draw(64, generator())
    assert scenes.masks is not None
    hidden = shifted(scenes, "occlusion")
    covered = (hidden.images == 0.5).all(1)
    share = covered.double().mean()
    assert 0.06 < share < 0.25
    assert int(hidden.masks[covered].max()) == 0  # type: ignore[index]
    assert torch.equal(
        hidden.images[~covered[:, None].expand(-1, 3, -1, -1)], scenes.images[~covered[:, None].expand(-1, 3, -1, -1)]
    )
    recolored = shifted(scenes, "color")
    different = (recolored.images != scenes.images).any(1)
    for i in range(64):
        assert len(scenes.masks[i][different[i]].unique()) <= 1  # one object of each image
    assert torch.equal(recolored.targets, scenes.targets)
    cropped = shifted(scenes, "crop")
    assert cropped.images.shape == scenes.images.shape
    for batch in (hidden, cropped):
        for i in range(64):
            shown = batch.masks[i].unique()  # type: ignore[index]
            assert set(batch.targets[i, :, -1].nonzero()[:, 0].tolist()) == set((shown[shown > 0].long() - 1).tolist())
    assert {*SHIFTED_PROPERTIES} == {"occlusion", "crop", "color"}


def test_properties_can_be_left_out_of_a_test() -> None:
    data = Tetrominoes()
    train, new = data.draw(32, generator(1)), data.draw(16, generator(2))
    model = SlotAutoEncoder(image_shape=(3, 35, 35), num_slots=4, channels=8)
    tests = {"new": new, "colour": shifted(new, "color")}
    left_out = {"colour": SHIFTED_PROPERTIES["color"]}
    scores = property_scores(model, train, tests, data.properties, left_out=left_out, steps=5)
    assert sorted(scores) == ["colour.position", "colour.shape", "new.color", "new.position", "new.shape"]
    again = property_scores(model, train, tests, data.properties, left_out=left_out, steps=5)
    assert dict(again) == dict(scores)
    assert scores.protocol["matching"] == "loss"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"probe": "forest"}, "probe must be"),
        ({"left_out": {"other": ["color"]}}, "which is not a test"),
        ({"properties": ()}, "no properties"),
        ({"model": BetaVAE(image_shape=(3, 35, 35))}, "has no slots"),
    ],
)
def test_what_cannot_be_scored_is_refused(changes: dict[str, Any], message: str) -> None:
    data = Tetrominoes()
    scenes = data.draw(4, generator())
    model = SlotAutoEncoder(image_shape=(3, 35, 35), num_slots=4, channels=8)
    arguments = {"model": model, "train": scenes, "tests": {"new": scenes}, "properties": data.properties}
    with pytest.raises(ValueError, match=message):
        property_scores(**arguments | changes)
    with pytest.raises(ValueError, match="shift must be"):
        shifted(scenes, "style")  # type: ignore[arg-type]
