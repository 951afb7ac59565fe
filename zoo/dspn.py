"""Deep Set Prediction Network, a baseline for set prediction that optimises a set by gradient descent."""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from unknot.arguments import counts, not_negative, positive
from unknot.clevr_objects import COORDINATES, OBJECT_SIZE, REAL
from unknot.zoo.likelihoods import at_least_float
from unknot.zoo.networks import channels_last, glorot
from unknot.zoo.set_prediction import PredictedSets, SetPredictor, check_targets


class DSPNSetPredictor(SetPredictor):
    """Deep Set Prediction Network (Zhang et al., 2019): find the set whose encoding is closest to that of the image.

    Thesis: section "Example Application: Set Prediction", the baseline.

    From a learned start, T steps of gradient descent on the set y:

        y ← y - η ∂/∂y Huber(encode(y), encode(image))

    where sets are encoded by an MLP on all pairs of rows and featurewise sort pooling. The loss is that of the last
    set, averaged over pairs, plus ``representation_weight`` · Huber(encode(targets), encode(image)).

    As in DSPN, internal coordinates are in [-1, 1] and unbounded, which is ``coordinate_scale`` 2. Instead of a
    ResNet-34, the image encoder is the CNN of :class:`SlotSetPredictor`, averaged down to 4 x 4.

    Args:
        num_iterations: T; the paper trains with 10 and tests with 10, 20 and 30.
        inner_lr: η. The reference's 800 is for a mean over its batch of 32; ours is a sum, so that one image's set does
            not depend on the others', and 800 / 32 the same step.
        hidden_dim: width of the set encoder, and size of an encoding.
        representation_weight: weight of the second term of the loss.
        lr: learning rate of Adam, constant in the paper.
        warmup_steps: steps over which the learning rate rises from 0.
        coordinate_scale: weight of position in the loss.
        predictor: arguments of :class:`~unknot.zoo.SetPredictor`; the start is learned, so that ``num_slots`` cannot
            change later.

    >>> model = DSPNSetPredictor(image_shape=(3, 32, 32), hidden_dim=32, num_iterations=2)
    >>> model(torch.rand(2, 3, 32, 32)).shape
    torch.Size([2, 10, 19])
    """

    def __init__(
        self,
        num_iterations: int = 10,
        inner_lr: float = 25.0,
        hidden_dim: int = 512,
        representation_weight: float = 0.1,
        lr: float = 3e-4,
        warmup_steps: int = 0,
        coordinate_scale: float = 2.0,
        **predictor: Any,
    ) -> None:
        super().__init__(lr=lr, warmup_steps=warmup_steps, coordinate_scale=coordinate_scale, **predictor)
        counts(num_iterations=num_iterations, hidden_dim=hidden_dim)
        positive(inner_lr=inner_lr)
        not_negative(representation_weight=representation_weight)
        self.num_iterations, self.inner_lr = num_iterations, inner_lr
        self.representation_weight = representation_weight
        self.encode_image = nn.Sequential(
            nn.AdaptiveAvgPool2d(4),
            nn.Flatten(),
            nn.Linear(16 * self.encoder.channels, hidden_dim),
            nn.ReLU(),
            nn.Linear(hidden_dim, hidden_dim),
        )
        self.encode_image.apply(glorot)
        self.encode_set = SetEncoder(OBJECT_SIZE, hidden_dim)
        self.start = nn.Parameter(
            torch.cat([torch.rand(self.num_slots, REAL), torch.full((self.num_slots, 1), 0.5)], dim=1)
        )
        channels_last(self)

    def represent(self, images: Tensor) -> Tensor:
        """Return the encoding of each image, ``[B, hidden_dim]``."""
        self.check_images(images)
        tokens, places = self.encoder(images)
        return self.encode_image(tokens.transpose(1, 2).unflatten(2, places))

    def predict_sets(
        self, images: Tensor, num_slots: int | None = None, num_iterations: int | None = None
    ) -> PredictedSets:
        """Predict sets. ``num_iterations`` may differ from training, ``num_slots`` may not."""
        if num_slots not in (None, self.num_slots):
            raise ValueError(f"DSPN learns {self.num_slots} rows to start from; num_slots cannot become {num_slots}.")
        num_iterations = self.num_iterations if num_iterations is None else num_iterations
        counts(num_iterations=num_iterations)
        return self._descend(self.represent(images), num_iterations)

    def predict_and_compare(self, batch: Any) -> tuple[PredictedSets, dict[str, Tensor]]:
        """Return the predicted sets and the terms of :meth:`SetPredictor.losses`, with ``representation`` added."""
        images, targets = check_targets(batch)
        goal = self.represent(images)
        predicted = self._descend(goal, self.num_iterations)
        terms = self.objective(predicted, targets)
        pairs = max(1, min(self.num_slots, targets.shape[1]))
        terms["representation"] = F.smooth_l1_loss(
            at_least_float(self.encode_set(inner_coordinates(targets.to(goal)))), at_least_float(goal)
        )
        terms["loss"] = terms["loss"] / pairs + self.representation_weight * terms["representation"]
        return predicted, terms

    def _descend(self, goal: Tensor, num_iterations: int) -> PredictedSets:
        # Gradients with respect to the set are needed in evaluation too, where Lightning switches autograd off.
        training = torch.is_grad_enabled()
        with torch.inference_mode(False), torch.enable_grad():
            goal = goal if training else goal.clone()
            sets = self.start.expand(len(goal), -1, -1)
            sets = sets if sets.requires_grad else sets.clone().requires_grad_()
            history = []
            for _ in range(num_iterations):
                distance = F.smooth_l1_loss(
                    at_least_float(self.encode_set(sets)), at_least_float(goal), reduction="none"
                )
                (slope,) = torch.autograd.grad(distance.mean(1).sum(), sets, create_graph=training)
                sets = sets - self.inner_lr * slope
                sets = torch.cat([sets[..., :REAL], sets[..., REAL:].clamp(0, 1)], dim=2)
                sets = sets if training else sets.detach().requires_grad_()
                history.append(sets)
            steps = at_least_float(outer_coordinates(torch.stack(history)))
        steps = steps if training else steps.detach()
        return PredictedSets(steps[-1], None, steps)


def inner_coordinates(sets: Tensor) -> Tensor:
    """Map coordinates from [0, 1] to DSPN's range [-1, 1]."""
    return torch.cat([2 * sets[..., COORDINATES] - 1, sets[..., 3:]], dim=-1)


def outer_coordinates(sets: Tensor) -> Tensor:
    """Map coordinates from DSPN's range [-1, 1] back to [0, 1]."""
    return torch.cat([(sets[..., COORDINATES] + 1) / 2, sets[..., 3:]], dim=-1)


class SetEncoder(nn.Module):
    """Encode sets ``[B, n, F]`` as vectors ``[B, dim]`` that do not depend on the order of the rows.

    A relation network with featurewise sort pooling (Zhang et al., 2019 and 2020): an MLP of all n² pairs of rows,
    divided by n²; each feature is sorted over the pairs and weighted by a learned piecewise linear function of the
    rank.
    """

    def __init__(self, features: int, dim: int, pieces: int = 20) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(features, dim), nn.Linear(features, dim, bias=False)
        self.out = nn.Linear(dim, dim)
        # The two halves of one layer on pairs, initialised with the bounds of the whole layer.
        bound = math.sqrt(6 / (2 * features + dim))
        nn.init.uniform_(self.first.weight, -bound, bound)
        nn.init.uniform_(self.second.weight, -bound, bound)
        nn.init.zeros_(self.first.bias)
        glorot(self.out)
        self.knots = nn.Parameter(torch.randn(dim, pieces + 1))

    def forward(self, sets: Tensor) -> Tensor:
        """Return one vector for each set."""
        n = sets.shape[1]
        if n == 0:
            return sets.new_zeros(len(sets), self.out.out_features)
        pairs = self.first(sets)[:, :, None] + self.second(sets)[:, None]
        pairs = self.out(torch.relu(pairs)).flatten(1, 2) / n**2  # [B, n², dim]
        ordered = pairs.sort(dim=1, descending=True).values
        return (ordered * rank_weights(self.knots, n**2).T).sum(1)


def rank_weights(knots: Tensor, n: int) -> Tensor:
    """Evaluate piecewise linear functions with ``knots`` ``[dim, pieces + 1]`` at n evenly spaced ranks: ``[dim, n]``.

    >>> rank_weights(torch.tensor([[0.0, 1.0, 0.0]]), 5)
    tensor([[0.0000, 0.5000, 1.0000, 0.5000, 0.0000]])
    """
    return F.interpolate(knots[None], n, mode="linear", align_corners=True)[0] if n > 1 else knots[:, :1]
