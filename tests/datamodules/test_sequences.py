"""Pairs and videos whose factors take steps, and the game of Pong."""

import math

import pytest
import torch

from unknot.datamodules import DSprites, HeldOut, InterventionalPong, LaplacePairDataModule, WalkDataModule
from unknot.datamodules.factors import FactorSpace
from unknot.datamodules.scenes import pong
from unknot.datamodules.walks import next_factors, transition_law


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def test_steps_follow_the_law_and_something_changes() -> None:
    space = FactorSpace(("shape", "x", "y"), (3, 8, 5), kinds=("categorical", "ordered", "circular"))
    before = torch.tensor([[2, 3, 1]]).expand(100_000, 3)
    laws = {factor: transition_law(space.sizes[factor], False, "laplace", 1.0, 1) for factor in (1, 2)}
    after = next_factors(space, before, laws, generator())
    assert bool((after[:, 0] == 2).all())
    assert bool((after != before).any(1).all())
    x = torch.exp(-(torch.arange(8) - 3).abs() / math.log(8))
    y = torch.exp(-(torch.arange(5) - 1).abs() / math.log(5))
    law = (x / x.sum())[:, None] * (y / y.sum())
    law[3, 1] = 0
    law = law / law.sum()
    seen = torch.zeros(8, 5).index_put((after[:, 1], after[:, 2]), torch.ones(len(after)), accumulate=True) / len(after)
    assert (seen - law).abs().max() < 0.004


def test_pairs_videos_and_held_out_combinations() -> None:
    pairs = WalkDataModule(DSprites(), wraps=False, batch_size=6, seed=0, with_factors=True)
    first, second, before, after = next(iter(pairs.train_dataloader()))
    assert torch.equal(first, DSprites().observe(before))
    assert torch.equal(second, DSprites().observe(after))
    with pytest.warns(FutureWarning, match=r"is now WalkDataModule\(\.\.\., wraps=False\)"):
        former = LaplacePairDataModule(DSprites(), num_frames=4, batch_size=3, seed=0, with_factors=True)
    video, factors = next(iter(former.train_dataloader()))
    assert video.shape == (3, 4, 1, 64, 64)
    assert torch.equal(video[:, 2], DSprites().observe(factors[:, 2]))
    held_out = HeldOut(DSprites(), {"shape": (1, 1), "pos_x": (0.5, 1)})
    *_, before, after = WalkDataModule(held_out, wraps=False, batch_size=2000, with_factors=True).draw(generator())
    for frame in (before, after):
        assert not bool(((frame[:, 0] == 2) & (frame[:, 3] >= 16)).any())
    with pytest.raises(ValueError, match="All factors of"):
        WalkDataModule(OnlyClasses())


class OnlyClasses(DSprites):
    factor_space = FactorSpace(("shape", "color"), (3, 4))


def test_the_game_keeps_to_its_rules() -> None:
    states, targets = pong.play(500, 40, generator())
    x, y, angle, left, right, *_ = states.unbind(-1)
    assert bool((targets.sum(-1) <= 1).all())
    share = targets[:, 1:].sum(-1).mean()
    # Fewer than 1 - 0.85^5 = 0.556, as a step that ends with a point has no target.
    assert 0.5 < share < 0.57
    assert x.min() >= pong.BORDER
    assert x.max() <= pong.SIDE - pong.BORDER
    assert y.min() >= pong.TOP + pong.RADIUS
    assert y.max() <= pong.BOTTOM - pong.RADIUS
    assert bool(((angle >= 0) & (angle < 2 * torch.pi + 1e-5)).all())
    for paddle in (left, right):
        assert paddle.min() >= pong.TOP + 3
        assert paddle.max() <= pong.BOTTOM - 3
    # A ball that no intervention touches moves by its speed, unless something reflects it.
    free = (targets[:, 1:, :3].sum(-1) == 0) & (states[:, 1:, 5:] == states[:, :-1, 5:]).all(-1)
    moved = torch.stack([x.diff(dim=1), y.diff(dim=1)], dim=-1).norm(dim=-1)[free]
    assert abs(float(moved.median()) - pong.SPEED) < 0.1
    assert states[..., 5:].max() <= pong.MOST_POINTS


def test_frames_show_the_state() -> None:
    state = torch.tensor([[16.0, 16.0, 0.0, 10.0, 20.0, 0.0, 3.0]])
    image = pong.draw_pong(state)[0]
    assert torch.allclose(image[:, 10, 4], torch.tensor([0.1, 0.1, 0.9]))  # left paddle
    assert torch.allclose(image[:, 20, 26], torch.tensor([0.1, 0.7, 0.1]))
    ball = image[0] - image[1:].mean(0)
    rows, columns = torch.meshgrid(2 * [torch.arange(32) + 0.5], indexing="ij")
    red = (ball > 0.3).double()
    assert abs(float((columns * red).sum() / red.sum()) - 16) < 0.8
    assert abs(float((rows * red).sum() / red.sum()) - 16) < 0.8
    assert image[:, 16, 18].max() < 0.3  # black, where the ball will be
    batch = next(iter(InterventionalPong(batch_size=4, seed=0).train_dataloader()))
    assert torch.equal(batch.second, pong.draw_pong(batch.second_factors))
    assert batch.first.shape == batch.second.shape == (4, 3, 32, 32)
