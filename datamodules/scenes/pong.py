"""Interventional Pong: a rendered game with interventions on its five causal variables."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from unknot.arguments import whole
from unknot.datamodules.stream import StreamDataModule

SIDE = 32
BORDER = 2
TOP, BOTTOM = BORDER, SIDE - BORDER  # walls
LEFT_X, RIGHT_X = 5.0, 27.0  # half height of paddles
PADDLE_WIDTH, PADDLE_HEIGHT = 2.0, 6.0
RADIUS, SPEED = 1.2, 2.0
BALL_NOISE, ANGLE_NOISE, PADDLE_NOISE, PADDLE_STEP, PADDLE_JUMP = 0.2, 0.1, 0.5, 1.5, 1.5
NO_TARGET = 0.85**5  # probability of a step without an intervention
SAMPLES = 3  # samples per pixel along each side
VARIABLES = ("ball_x", "ball_y", "ball_direction", "left_paddle", "right_paddle", "score_left", "score_right")
TARGETS = VARIABLES[:5]
DIGITS = {  # 3 x 5 cells
    0: "111101101101111",
    1: "010110010010111",
    2: "111001111100111",
    3: "111001111001111",
    4: "101101111001001",
}
MOST_POINTS = 4


class PongBatch(NamedTuple):
    """Frames before and after a step of the game.

    Args:
        first: images float32 ``[N, 3, 32, 32]`` in [0, 1].
        second: images one step later.
        targets: the intervened variable, float32 ``[N, 5]`` in the order of ``TARGETS``: at most one 1.
        first_factors: float32 ``[N, 7]``, in the order of ``VARIABLES``.
        second_factors: factors one step later.
    """

    first: Tensor
    second: Tensor
    targets: Tensor
    first_factors: Tensor
    second_factors: Tensor


class InterventionalPong(StreamDataModule):
    """Pairs of neighbouring frames of Pong with known interventions (Lippe et al., 2022), images ``[3, 32, 32]``.

    Position x, y and direction of the ball and the heights of both paddles are the causal variables. Paddles follow the
    ball; the ball is reflected by walls and paddles; after a point it returns to the middle. At each step, at most one
    variable is the target of an intervention: a paddle jumps, or the ball gets a new position or direction. A frame
    shows the next noise-free position of the ball as a black disc, which makes its direction visible. The rules and
    sizes are those of the authors' generator, the pixels are not. The scores, 0 to 4 points each, are shown as digits
    and are not targets.

    A batch is a :class:`PongBatch`. :func:`play` returns videos of games.

    Args:
        warm_up: steps of each game before the pair.
        stream: arguments of :class:`~unknot.datamodules.StreamDataModule`.

    >>> data = InterventionalPong(batch_size=4, seed=0)
    >>> batch = next(iter(data.train_dataloader()))
    >>> batch.first.shape, batch.targets.shape
    (torch.Size([4, 3, 32, 32]), torch.Size([4, 5]))
    """

    image_shape = (3, SIDE, SIDE)

    def __init__(self, warm_up: int = 12, **stream: Any) -> None:
        super().__init__(**stream)
        self.warm_up = whole("warm_up", warm_up, least=0)

    def draw(self, generator: torch.Generator) -> PongBatch:
        """Draw one batch of pairs, each from a game of its own."""
        states, targets = play(self.batch_size, self.warm_up + 2, generator)
        before, after = states[:, -2], states[:, -1]
        first, second = draw_pong(torch.cat([before, after])).chunk(2)
        return PongBatch(first, second, targets[:, -1], before, after)


def play(n: int, steps: int, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
    """Play ``n`` games: states ``[n, steps, 7]`` in the order of ``VARIABLES``, and targets ``[n, steps, 5]``.

    The target of a step led to its state; the first state has none.

    >>> states, targets = play(2, 5, torch.Generator().manual_seed(0))
    >>> states.shape, bool((targets.sum(-1) <= 1).all())
    (torch.Size([2, 5, 7]), True)
    """
    whole("n", n)
    whole("steps", steps)
    state = torch.zeros(n, len(VARIABLES))
    state[:, 0] = SIDE / 2
    state[:, 1] = _between(TOP + 4, BOTTOM - 4, n, generator)
    state[:, 2] = _angles(n, generator)
    state[:, 3:5] = _between(TOP + PADDLE_HEIGHT / 2, BOTTOM - PADDLE_HEIGHT / 2, (n, 2), generator)
    states, targets = [state], [torch.zeros(n, len(TARGETS))]
    for _ in range(steps - 1):
        state, target = step(state, generator)
        states.append(state)
        targets.append(target)
    return torch.stack(states, dim=1), torch.stack(targets, dim=1)


def step(state: Tensor, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
    """Return states ``[n, 7]`` one step later, and the intervention targets ``[n, 5]``."""
    n = len(state)
    x, y, angle, left, right, *_ = state.unbind(1)
    points = state[:, 5:]

    chosen = torch.randint(len(TARGETS), (n,), generator=generator)
    chosen = torch.where(torch.rand(n, generator=generator) < NO_TARGET, -1, chosen)
    target = torch.nn.functional.one_hot(chosen + 1, len(TARGETS) + 1)[:, 1:].float()

    # The ball moves and is reflected by walls and paddles.
    new_x = x + SPEED * angle.cos() + BALL_NOISE * _normal(n, generator)
    new_y = y + SPEED * angle.sin() + BALL_NOISE * _normal(n, generator)
    new_angle = angle + ANGLE_NOISE * _normal(n, generator)
    low, high = TOP + RADIUS, BOTTOM - RADIUS
    at_wall = (new_y < low) | (new_y > high)
    new_y = torch.where(new_y < low, 2 * low - new_y, torch.where(new_y > high, 2 * high - new_y, new_y))
    new_angle = torch.where(at_wall, -new_angle, new_angle)
    for paddle, at, side in ((left, LEFT_X, -1.0), (right, RIGHT_X, 1.0)):
        face = at - side * (PADDLE_WIDTH / 2 + RADIUS)
        passes = ((x - face) * side <= 0) & ((new_x - face) * side > 0)
        hits = passes & ((new_y - paddle).abs() <= PADDLE_HEIGHT / 2 + RADIUS)
        new_x = torch.where(hits, 2 * face - new_x, new_x)
        new_angle = torch.where(hits, torch.pi - new_angle, new_angle)

    # Paddles follow the ball.
    reach = PADDLE_STEP
    new_left = left + (y - left).clamp(-reach, reach) + PADDLE_NOISE * _normal(n, generator)
    new_right = right + (y - right).clamp(-reach, reach) + PADDLE_NOISE * _normal(n, generator)

    # Interventions do not depend on the previous step, except for paddles, which jump.
    jump = PADDLE_JUMP * torch.where(torch.rand(n, generator=generator) < 0.5, -1.0, 1.0)
    new_x = torch.where(target[:, 0] > 0, _between(LEFT_X + 4, RIGHT_X - 4, n, generator), new_x)
    new_y = torch.where(target[:, 1] > 0, _between(low, high, n, generator), new_y)
    new_angle = torch.where(target[:, 2] > 0, _angles(n, generator), new_angle)
    new_left = torch.where(target[:, 3] > 0, left + jump, new_left)
    new_right = torch.where(target[:, 4] > 0, right + jump, new_right)

    # After a point, the ball is in the middle and both paddles at random heights.
    won = torch.stack([new_x > SIDE - BORDER, new_x < BORDER], dim=1)
    over = won.any(1)
    lowest, highest = TOP + PADDLE_HEIGHT / 2, BOTTOM - PADDLE_HEIGHT / 2
    new_x = torch.where(over, torch.tensor(SIDE / 2), new_x)
    new_y = torch.where(over, _between(TOP + 4, BOTTOM - 4, n, generator), new_y)
    new_angle = torch.where(over, _angles(n, generator), new_angle)
    new_left = torch.where(over, _between(lowest, highest, n, generator), new_left).clamp(lowest, highest)
    new_right = torch.where(over, _between(lowest, highest, n, generator), new_right).clamp(lowest, highest)
    points = points + won
    points = torch.where((points > MOST_POINTS).any(1, keepdim=True), 0.0, points)  # a new game

    columns = [new_x, new_y.clamp(low, high), torch.remainder(new_angle, 2 * torch.pi), new_left, new_right]
    return torch.cat([torch.stack(columns, dim=1), points], dim=1), target * ~over[:, None]


def draw_pong(states: Tensor) -> Tensor:
    """Render states ``[n, 7]``: images float32 ``[n, 3, 32, 32]`` in [0, 1]."""
    n = len(states)
    x, y, angle, left, right, *_ = states.unbind(1)
    offset = (torch.arange(SIDE * SAMPLES) + 0.5) / SAMPLES
    rows, columns = offset[:, None], offset[None]
    image = torch.full((n, 3, SIDE * SAMPLES, SIDE * SAMPLES), 0.9)
    border = ((offset < BORDER) | (offset >= SIDE - BORDER))[:, None].expand(-1, SIDE * SAMPLES)
    image[:, :, border] = 0.1
    _paint(image, _digits(states[:, 5:]), (0.5, 0.5, 0.5))
    for height, at, color in ((left, LEFT_X, (0.1, 0.1, 0.9)), (right, RIGHT_X, (0.1, 0.7, 0.1))):
        inside = (columns - at).abs() <= PADDLE_WIDTH / 2
        _paint(image, inside & ((rows - height[:, None, None]).abs() <= PADDLE_HEIGHT / 2), color)
    ahead = (x + SPEED * angle.cos(), y + SPEED * angle.sin())
    for (at_x, at_y), radius, color in (
        (ahead, RADIUS, (0.0, 0.0, 0.0)),
        ((x, y), RADIUS, (0.9, 0.1, 0.1)),
    ):
        apart = (columns - at_x[:, None, None]).square() + (rows - at_y[:, None, None]).square()
        _paint(image, apart <= radius**2, color)
    return torch.nn.functional.avg_pool2d(image, SAMPLES)


def _paint(image: Tensor, inside: Tensor, color: tuple[float, float, float]) -> None:
    """Paint pixels ``[n, H, W]`` of images in a colour."""
    image.copy_(torch.where(inside[:, None], torch.tensor(color)[:, None, None], image))


def _digits(points: Tensor) -> Tensor:
    """Return the pixels of both scores: bool ``[n, H, W]``."""
    glyphs = torch.tensor([[cell == "1" for cell in DIGITS[digit]] for digit in DIGITS]).view(-1, 5, 3)
    shown = torch.zeros(len(points), SIDE, SIDE, dtype=torch.bool)
    for side, start in enumerate((11, 18)):
        shown[:, 4:9, start : start + 3] = glyphs[points[:, side].long()]
    return shown.repeat_interleave(SAMPLES, 1).repeat_interleave(SAMPLES, 2)


def _normal(n: int, generator: torch.Generator | None) -> Tensor:
    return torch.randn(n, generator=generator)


def _between(low: float, high: float, shape: int | tuple[int, ...], generator: torch.Generator | None) -> Tensor:
    size = (shape,) if isinstance(shape, int) else shape
    return low + (high - low) * torch.rand(size, generator=generator)


def _angles(n: int, generator: torch.Generator | None) -> Tensor:
    """Draw directions of the ball uniformly from [0, 2π)."""
    return 2 * torch.pi * torch.rand(n, generator=generator)
