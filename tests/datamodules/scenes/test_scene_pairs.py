"""Pairs of scenes, scenes of one object, and walks."""

import pytest
import torch
from torch import Tensor

from unknot.datamodules import (
    ClevrObject,
    ClevrScenes,
    Coarse,
    FactorSpace,
    GroundTruthDataset,
    ScenePairDataModule,
    WalkDataModule,
)
from unknot.datamodules.scenes.clevr_scenes import MIN_VISIBLE, draw_scenes, sample_scenes, visible_pixels
from unknot.datamodules.scenes.scene_pairs import PROPERTIES, choose_properties, resample_scenes
from unknot.datamodules.walks import next_factors, transition_law
from unknot.metrics import evaluate

TARGETS = {"place": (0, 2), "size": (3, 5), "material": (5, 7), "shape": (7, 10), "color": (10, 18)}


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def differences(first: Tensor, second: Tensor) -> Tensor:
    """Which properties of sets ``[B, M, 19]`` differ: ``[B, M, 5]`` in the order of PROPERTIES."""
    return torch.stack(
        [(first[..., slice(*TARGETS[name])] != second[..., slice(*TARGETS[name])]).any(-1) for name in PROPERTIES], -1
    )


def pairs(k: int | str, **options: object) -> ScenePairDataModule:
    scenes = ClevrScenes(32, max_objects=3, min_objects=2, samples=1)
    return ScenePairDataModule(scenes, k, **{"batch_size": 64, "seed": 0, "with_targets": True} | options)  # type: ignore[arg-type]


@pytest.mark.parametrize("k", [1, 3, 9, "rnd"])
def test_at_most_k_properties_change_and_the_label_is_among_those_drawn(k: int | str) -> None:
    data = pairs(k, exactly_k=True)
    first, second, label, before, after = data.train_batch(0, data._share(0))
    assert first.shape == second.shape == (64, 3, *data.dataset.image_size)
    changed = differences(before, after).flatten(1)
    assert torch.equal(before[..., 18], after[..., 18])
    assert changed.sum(1).max() <= (9 if k == "rnd" else k)
    same = ~changed.any(1)
    assert torch.equal(first[same], second[same])
    assert (first != second).flatten(1).any(1).sum() >= 0.8 * (~same).sum()  # a small object may hide at 32 pixels
    if k == 1:
        rows = changed.any(1)
        assert torch.equal(changed[rows].int().argmax(1), label[rows])
    if k == 9:
        assert changed.sum(1).double().mean() > 5


def probabilities(k: int | str, objects: int) -> Tensor:
    """Probability of 0, 1, ... changed properties, if resampled properties ignored each other and CLEVR's rules."""
    stays = {"size": 1 / 2, "material": 1 / 2, "shape": 1 / 3, "color": 1 / 8, "place": 0.0}  # keeps its value
    properties = len(stays) * objects
    weights = torch.zeros(properties + 1)
    chosen = range(1, properties) if k == "rnd" else [int(k)]
    weights[list(chosen)] = 0.5 / len(chosen)
    weights[1] += 0.5
    ways = torch.zeros(properties + 1, properties + 1)  # [chosen, changed]
    ways[0, 0] = 1
    for probability in [value for value in stays.values() for _ in range(objects)]:
        more = ways.clone()
        more[1:] += ways[:-1] * probability
        more[1:, 1:] += ways[:-1, :-1] * (1 - probability)
        ways = more
    return weights @ (ways / ways.sum(1, keepdim=True))


@pytest.mark.slow
@pytest.mark.parametrize("k", [1, 3, "rnd"])
def test_the_number_of_changed_properties_follows_its_law(k: int | str) -> None:
    scenes = ClevrScenes(32, max_objects=3, min_objects=3, samples=1)
    data = ScenePairDataModule(scenes, k, batch_size=500, seed=0, with_targets=True)
    share = data._share(0)
    batches = [data.train_batch(number, share)[-2:] for number in range(4)]
    changed = torch.cat([differences(before, after).sum((1, 2)) for before, after in batches])
    counts = changed.bincount(minlength=16) / len(changed)
    # CLEVR's rules leave little room for some changes, so the law holds approximately.
    assert torch.allclose(counts, probabilities(k, 3), atol=0.04)


def test_scenes_that_were_resampled_keep_clevrs_rules() -> None:
    first = sample_scenes(200, seeded(), 2, 4, 48)
    chosen, _ = choose_properties(first.real, 3, True, 2, seeded())
    assert (chosen.flatten(1).sum(1) == 3).all()
    assert not chosen[~first.real].any()
    second, images = resample_scenes(first, chosen, (48, 48), 1, seeded())
    drawn, masks = draw_scenes(second, 48, 1)
    assert torch.equal(drawn, images)
    assert (visible_pixels(masks, 4)[first.real] >= MIN_VISIBLE * 48 * 48).all()
    for name in ("camera", "lamps", "rotation", "real"):
        assert torch.equal(getattr(first, name), getattr(second, name))
    radius = second.coords[..., 2]
    distance = (second.coords[:, :, None, :2] - second.coords[:, None, :, :2]).norm(dim=-1)
    gap = distance - radius[:, :, None] - radius[:, None]
    both = second.real[:, :, None] & second.real[:, None] & ~torch.eye(4, dtype=torch.bool)
    assert gap[both].min() >= 0.25 - 1e-5
    unchanged = ~chosen[..., 4] & first.real
    assert torch.equal(first.coords[unchanged][:, :2], second.coords[unchanged][:, :2])


def test_a_batch_of_pairs_is_a_function_of_its_number() -> None:
    one, other = pairs(2), pairs(2)
    share = one._share(0)
    for left, right in zip(one.train_batch(5, share), other.train_batch(5, share), strict=True):
        assert torch.equal(left, right)
    assert len(next(iter(pairs(2, with_targets=False).train_dataloader()))) == 2
    assert len(next(iter(pairs(2, with_targets=False, group_label=True).train_dataloader()))) == 3
    with pytest.raises(ValueError, match="k must be 'rnd' or an integer from 1 to 9"):
        pairs(10)
    with pytest.raises(ValueError, match="dataset must be endless ClevrScenes"):
        ScenePairDataModule(ClevrScenes(32, num_scenes=10))


@pytest.mark.usefixtures("empty_cache")
def test_scenes_of_one_object_are_a_ground_truth_data_set() -> None:
    dataset = ClevrObject(24)
    factors = dataset.factor_space.sample(300, seeded())
    images = dataset.observe(factors)
    drawn, masks = draw_scenes(dataset.scenes(factors), 24)
    assert torch.equal((images * 255).round().to(torch.uint8), drawn)
    assert (visible_pixels(masks, 1) > 0).all()
    assert len(images.flatten(1).unique(dim=0)) == len(factors.unique(dim=0))
    scores = evaluate(lambda x: x.mean((2, 3)), dataset, metrics=["mig", "factor_vae"], num_train=200, num_test=100)
    assert set(scores) == {"mig", "factor_vae"}


class Shifts(GroundTruthDataset):
    """Images whose pixels are the factors: one that is categorical, one on a line and one on a circle."""

    name = "shifts"
    factor_space = FactorSpace(("kind", "place", "angle"), (3, 7, 5), kinds=("categorical", "ordered", "circular"))
    image_shape = (1, 1, 3)

    def observe(self, factors: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return factors[:, None, None, :] / 7


def test_walks_take_small_steps() -> None:
    data = WalkDataModule(Shifts(), steps="uniform", length=5, batch_size=256, with_factors=True, seed=0)
    frames, factors = next(iter(data.train_dataloader()))
    assert frames.shape == (256, 5, 1, 1, 3)
    assert torch.equal((frames[:, :, 0, 0] * 7).round().long(), factors)
    step = (factors[:, 1:] - factors[:, :-1]).abs()
    assert step[..., 0].max() == 0  # categorical
    assert step[..., 1].max() == 1
    assert set(step[..., 2].unique().tolist()) == {0, 1, 4}  # the circle closes
    assert step.any(-1).all()
    pair = next(iter(WalkDataModule(Shifts(), batch_size=4, with_factors=True, seed=0).train_dataloader()))
    assert [part.shape[0] for part in pair] == [4] * 4
    with pytest.raises(ValueError, match="All factors of shifts_3x1x1 are categorical"):
        WalkDataModule(Coarse(Shifts(), (3, 1, 1)))
    with pytest.raises(ValueError, match="steps must be 'laplace' or 'uniform'"):
        WalkDataModule(Shifts(), steps="cauchy")  # type: ignore[arg-type]


def test_laplace_steps_follow_their_law() -> None:
    law = transition_law(7, False, "laplace", 1.0, 1)
    start = torch.full((40_000, 2), 3)
    after = next_factors(FactorSpace(("x",), (7,)), start, {0: law}, seeded())[:, 0]
    seen = after.bincount(minlength=7) / len(after)
    expected = law[3].clone()
    expected[3] = 0  # something changes
    assert torch.allclose(seen.double(), expected / expected.sum(), atol=0.01)
    ratio = law[3, 4] / law[3, 5]
    assert ratio.item() == pytest.approx(torch.exp(1 / torch.tensor(7.0).log()).item())
