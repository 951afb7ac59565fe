"""The active set: weights follow directions, and a drop is a drop whatever rounding leaves."""

import numpy as np
import pytest
import torch

from unknot.solvers.atoms import L1Ball
from unknot.solvers.lines import Direction, along
from unknot.solvers.structured import ActiveSet

ZERO = torch.zeros(5, dtype=torch.float64)
BALL = L1Ball(2.0)
E = [BALL.coordinate(i, 2.0, ZERO) for i in range(5)]


@pytest.mark.parametrize("weight", [0.1, 0.3, 1 / 3, 0.7])
def test_an_away_step_to_the_boundary_deletes_the_atom(weight: float) -> None:
    active = ActiveSet(ZERO, [(weight, E[0]), (1 - weight, E[1])])
    active.move(Direction(1.0, ((-1.0, E[0]),)), weight / (1 - weight), dropped=E[0])
    assert [atom.key for atom in active.atoms] == [1]
    assert active.weights.sum() == pytest.approx(1.0)
    assert not active.knows(E[0])


def test_weights_follow_every_kind_of_step() -> None:
    active = ActiveSet(ZERO, [(0.25, E[0]), (0.75, E[1])])
    for direction, step in [
        (Direction(-1.0, ((1.0, E[2]),)), 0.5),
        (Direction(1.0, ((-1.0, E[1]),)), 0.1),
        (Direction(0.0, ((1.0, E[3]), (-1.0, E[0]))), 0.05),
    ]:
        x = active.combine()
        expected = x + step * direction.dense(x)
        active.move(direction, step)
        torch.testing.assert_close(active.combine(), expected)
        assert active.weights.sum() == pytest.approx(1.0)
    active.move(Direction(-1.0, ((1.0, E[4]),)), 1.0)  # a full step forgets the rest
    assert [atom.key for atom in active.atoms] == [4]
    assert active.weights.tolist() == [1.0]


def test_opposite_atoms_are_one_over_a_span() -> None:
    active = ActiveSet(ZERO, signed=True)
    active.move(along(E[1]), 1.5)
    active.move(along(BALL.coordinate(1, -2.0, ZERO)), 2.0)
    assert len(active) == 1
    assert active.weights.tolist() == [-0.5]
    fields = active.export(True, 5)
    np.testing.assert_array_equal(fields["coefficients"], [0, -1, 0, 0, 0])


def test_many_additions_and_deletions_keep_atoms_and_weights_together() -> None:
    rng = np.random.default_rng(0)
    active, expected = ActiveSet(ZERO), {}
    for _ in range(300):
        i = int(rng.integers(5))
        if i in expected and rng.random() < 0.5:
            active.move(along(E[i], -1.0), expected.pop(i), dropped=E[i])
        else:
            amount = float(rng.random()) + 0.1
            expected[i] = expected.get(i, 0.0) + amount
            active.move(along(E[i]), amount)
        assert {atom.key: weight for atom, weight in zip(active.atoms, active.weights, strict=True)} == pytest.approx(
            expected
        )
