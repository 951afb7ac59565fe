"""Set prediction: from an image to the set of objects in it.

Chapter "Learning About Multiple Objects", section "Set Prediction". An object is 19 numbers in [0, 1]: coordinates 3 |
size 2 | material 2 | shape 3 | color 8 | 1 for a real object, the rows of ``SetBatch.targets``. All models predict K
such rows, the Hungarian algorithm pairs them with the targets, and the loss is Huber's of the pairs:

    loss = mean over images, sum over pairs, mean over the 19 numbers of Huber(prediction - target)

They differ in how they come to K vectors: ``SlotSetPredictor`` by Slot Attention, ``SlotMLPSetPredictor`` by an MLP
with ordered outputs, ``DSPNSetPredictor`` by gradient descent on a set.
"""

import math
from pathlib import Path
from typing import Any, NamedTuple

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn
from torch.nn import functional as F

from unknot.zoo.base import Model, first_of
from unknot.zoo.networks import channels_last, check_image_shape, check_images, glorot
from unknot.zoo.slots import ImageTokens, SlotAttention, WarmUpThenDecay, check_schedule, check_strides, positive

OBJECT_SIZE = 19
COORDINATES = slice(0, 3)
REAL = 18


@torch.compiler.disable  # SciPy has no place in a graph
def match_sets(predictions: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Pair rows of predictions ``[B, K, F]`` and targets ``[B, M, F]`` so that the sum of the costs is least.

    The cost of a pair is Huber's loss, averaged over the F numbers. With K ≠ M there are min(K, M) pairs: surplus slots
    go without a target. With K < M, rows of padding (last number 0) are left out first, so that they take no slot
    from an object. (The reference has no case for this: its matching would let them.)

    Returns:
        Numbers of the slots and of the targets, each ``[B, min(K, M)]``. Nothing here has a gradient.
    """
    with torch.no_grad():
        cost = huber(predictions.float()[:, None] - targets.float()[:, :, None]).mean(-1)  # [B, M, K]
        cost = cost.nan_to_num()  # the loss will be NaN, which is reported better than SciPy would
        slots, rows = cost.shape[2], cost.shape[1]
        if rows > slots:
            padding = targets[..., -1] == 0
            room = slots - (~padding).sum(1, keepdim=True)
            surplus = padding & (padding.cumsum(1) > room)
            cost = cost.masked_fill(surplus[..., None], 1 + float(cost.max()) * 2 * rows)
        # SciPy's is compiled but takes one matrix at a time: some microseconds for each image.
        pairs = [linear_sum_assignment(matrix) for matrix in cost.cpu().double().numpy()]
    shape = (len(pairs), min(rows, slots))
    target, slot = (
        torch.tensor([pair[side].tolist() for pair in pairs], dtype=torch.long).reshape(shape) for side in (0, 1)
    )
    return slot.to(predictions.device), target.to(predictions.device)


def huber(difference: Tensor) -> Tensor:
    """½ d² for |d| ≤ 1, and |d| - ½ beyond, of each entry."""
    return F.huber_loss(difference, torch.zeros_like(difference), reduction="none")


def set_loss(predictions: Tensor, targets: Tensor) -> Tensor:
    """Huber's loss of each matched pair ``[B, min(K, M)]``, averaged over the numbers of an object."""
    slot, target = match_sets(predictions, targets)
    matched = predictions.gather(1, slot[..., None].expand(-1, -1, predictions.shape[2]))
    wanted = targets.gather(1, target[..., None].expand(-1, -1, targets.shape[2]))
    return huber(matched.float() - wanted.float()).mean(-1)


class PredictedSets(NamedTuple):
    """Predictions for a batch.

    Args:
        sets: ``[B, K, 19]``.
        attention: which slot each place of the image went to, ``[B, K, h, w]``, or ``None`` for models without.
        history: sets after every iteration ``[T, B, K, 19]``; the last one is ``sets``.
    """

    sets: Tensor
    attention: Tensor | None
    history: Tensor


class SetPredictor(Model):
    """What the models for set prediction share; a subclass says how to come to a set in :meth:`predict_sets`.

    Args:
        image_shape: (channels, height, width).
        num_slots: K, the number of rows of a predicted set.
        lr: learning rate of Adam after the warm-up.
        warmup_steps: steps over which the learning rate rises from 0.
        decay_steps: steps in which it halves, smoothly.
        loss_at_every_iteration: average the loss over the sets after each iteration instead of taking the last one.
        coordinate_scale: coordinates count in the loss and in the matching as if they were in [0, scale], the
            chapter's way to weigh position.
    """

    family = "set-prediction"
    batch = "sets"
    capabilities = frozenset({"sets"})

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        num_slots: int,
        lr: float,
        warmup_steps: int,
        decay_steps: int,
        loss_at_every_iteration: bool,
        coordinate_scale: float,
    ) -> None:
        super().__init__(lr)
        positive(num_slots=num_slots)
        check_schedule(warmup_steps, decay_steps)
        if not 0 < coordinate_scale < math.inf:
            raise ValueError(f"coordinate_scale must be positive and finite, got {coordinate_scale}.")
        self.image_shape = check_image_shape(image_shape)
        self.num_slots = num_slots
        self.warmup_steps, self.decay_steps = warmup_steps, decay_steps
        self.loss_at_every_iteration = loss_at_every_iteration
        self.coordinate_scale = coordinate_scale

    def predict_sets(
        self, images: Tensor, num_slots: int | None = None, num_iterations: int | None = None
    ) -> PredictedSets:
        """Sets for images ``[B, C, H, W]`` in [0, 1], where the model can with other numbers than in training.

        Args:
            images: ``[B, C, H, W]``.
            num_slots: K of this call.
            num_iterations: T of this call.
        """
        raise NotImplementedError

    def forward(self, images: Tensor) -> Tensor:
        """Predicted sets ``[B, K, 19]``."""
        return self.predict_sets(images).sets

    def losses(self, batch: Any) -> dict[str, Tensor]:
        """All terms for a batch (images, targets, ...): ``loss``, and ``matched``, the part of the last iteration."""
        images, targets = check_targets(batch)
        return self.objective(self.predict_sets(images), targets)

    def objective(self, predicted: PredictedSets, targets: Tensor) -> dict[str, Tensor]:
        """The terms of :meth:`losses` for sets that were predicted."""
        history = predicted.history if self.loss_at_every_iteration else predicted.history[-1:]
        steps, images = history.shape[:2]
        scale = torch.ones(OBJECT_SIZE, device=targets.device)
        scale[COORDINATES] = self.coordinate_scale
        pairs = set_loss((history * scale).flatten(0, 1), (targets * scale).repeat(steps, 1, 1))
        each = pairs.sum(1).view(steps, images).mean(1)
        return {"loss": each.mean(), "matched": each[-1].detach()}

    def draw(self, batch: Any, folder: Path, suffix: str = "", num_images: int = 6) -> list[Path]:
        """Images and plans of their scenes, true and predicted."""
        from unknot.zoo.set_pictures import draw_sets  # Matplotlib takes a while

        images, targets = (part[: min(6, num_images)] for part in batch[:2])
        return [draw_sets(self, images, targets, folder / f"sets{suffix}.png")]

    def predict_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Predicted sets of a batch."""
        return self(first_of(batch))

    def own_schedule(self, optimizer: torch.optim.Optimizer) -> WarmUpThenDecay:
        """The reference's warm-up and decay."""
        return WarmUpThenDecay(optimizer, self.warmup_steps, self.decay_steps)

    def _check_images(self, images: Tensor) -> None:
        check_images(images, self.image_shape, values=images.is_cpu and not torch.compiler.is_compiling())


class SlotSetPredictor(SetPredictor):
    """Slot Attention for set prediction: CNN with position embedding, slots, and one MLP for all slots.

    The slots start from random draws, in evaluation too: seed torch for predictions that repeat.

    Args:
        image_shape: (channels, height, width).
        num_slots: K.
        num_iterations: T.
        slot_dim: size of a slot.
        channels: of the CNN.
        strides: of its convolutions; (1, 2, 2, 1) makes 32 x 32 tokens of an image of 128 x 128.
        lr: learning rate of Adam.
        warmup_steps: steps over which it rises from 0.
        decay_steps: steps in which it halves.
        loss_at_every_iteration: compute the loss at every iteration.
        coordinate_scale: weight of position in the loss.

    >>> model = SlotSetPredictor(image_shape=(3, 32, 32))
    >>> images, targets = torch.rand(2, 3, 32, 32), torch.zeros(2, 10, 19)
    >>> model(images).shape, sorted(model.losses((images, targets)))
    (torch.Size([2, 10, 19]), ['loss', 'matched'])
    >>> model.predict_sets(images, num_slots=12, num_iterations=5).attention.shape
    torch.Size([2, 12, 8, 8])
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int] = (3, 128, 128),
        num_slots: int = 10,
        num_iterations: int = 3,
        slot_dim: int = 64,
        channels: int = 64,
        strides: tuple[int, ...] = (1, 2, 2, 1),
        lr: float = 4e-4,
        warmup_steps: int = 1000,
        decay_steps: int = 50_000,
        loss_at_every_iteration: bool = False,
        coordinate_scale: float = 1.0,
    ) -> None:
        super().__init__(
            image_shape, num_slots, lr, warmup_steps, decay_steps, loss_at_every_iteration, coordinate_scale
        )
        positive(num_iterations=num_iterations, slot_dim=slot_dim, channels=channels)
        self.save_hyperparameters()
        self.num_iterations = num_iterations
        self.encoder = ImageTokens(self.image_shape[0], channels, check_strides(strides, self.image_shape))
        self.slot_attention = SlotAttention(num_slots, channels, slot_dim, num_iterations)
        self.head = object_head(slot_dim)
        channels_last(self)

    def represent(self, images: Tensor) -> Tensor:
        """The slots ``[B, K, D]``."""
        self._check_images(images)
        return self.slot_attention(self.encoder(images)[0]).slots

    def draw(self, batch: Any, folder: Path, suffix: str = "", num_images: int = 6) -> list[Path]:
        """Also where each slot attends."""
        from unknot.zoo.set_pictures import draw_attention

        images = first_of(batch)[: min(6, num_images)]
        attention = draw_attention(self, images, folder / f"attention{suffix}.png")
        return [*super().draw(batch, folder, suffix, num_images), attention]

    def predict_sets(
        self, images: Tensor, num_slots: int | None = None, num_iterations: int | None = None
    ) -> PredictedSets:
        """Sets, and the attention of the last iteration, for any number of slots and iterations."""
        self._check_images(images)
        tokens, places = self.encoder(images)
        _, attention, history = self.slot_attention(tokens, num_slots, num_iterations, return_history=True)
        sets = self.head(history).float()
        return PredictedSets(sets[-1], attention.unflatten(2, places), sets)


class SlotMLPSetPredictor(SetPredictor):
    """The baseline "Slot MLP": an MLP from the whole map of features to K ordered slots in place of Slot Attention.

    CNN, head, matching and loss are those of :class:`SlotSetPredictor`. The map is averaged down to ``pooled`` x
    ``pooled`` before it is flattened. The chapter leaves the sizes of the baseline open, and no code was published, so
    they are arguments.

    Args:
        image_shape: (channels, height, width).
        num_slots: K; it cannot change later.
        slot_dim: size of a slot.
        channels: of the CNN.
        strides: of its convolutions.
        pooled: side of the map that is flattened.
        hidden_dim: width of the two hidden layers of the MLP.
        lr: learning rate of Adam.
        warmup_steps: steps over which it rises from 0.
        decay_steps: steps in which it halves.
        coordinate_scale: weight of position in the loss.

    >>> model = SlotMLPSetPredictor(image_shape=(3, 32, 32))
    >>> model(torch.rand(2, 3, 32, 32)).shape
    torch.Size([2, 10, 19])
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int] = (3, 128, 128),
        num_slots: int = 10,
        slot_dim: int = 64,
        channels: int = 64,
        strides: tuple[int, ...] = (1, 2, 2, 1),
        pooled: int = 8,
        hidden_dim: int = 512,
        lr: float = 4e-4,
        warmup_steps: int = 1000,
        decay_steps: int = 50_000,
        coordinate_scale: float = 1.0,
    ) -> None:
        super().__init__(image_shape, num_slots, lr, warmup_steps, decay_steps, False, coordinate_scale)
        positive(slot_dim=slot_dim, channels=channels, pooled=pooled, hidden_dim=hidden_dim)
        self.save_hyperparameters()
        self.slot_dim, self.pooled = slot_dim, pooled
        self.encoder = ImageTokens(self.image_shape[0], channels, check_strides(strides, self.image_shape))
        self.mlp = nn.Sequential(
            nn.Linear(channels * pooled**2, hidden_dim),
            nn.ReLU(),
            nn.Linear(hidden_dim, hidden_dim),
            nn.ReLU(),
            nn.Linear(hidden_dim, num_slots * slot_dim),
        )
        self.mlp.apply(glorot)
        self.head = object_head(slot_dim)
        channels_last(self)

    def represent(self, images: Tensor) -> Tensor:
        """The ordered slots ``[B, K, D]``."""
        self._check_images(images)
        tokens, places = self.encoder(images)
        features = F.adaptive_avg_pool2d(tokens.transpose(1, 2).unflatten(2, places), self.pooled)
        return self.mlp(features.flatten(1)).view(-1, self.num_slots, self.slot_dim)

    def predict_sets(
        self, images: Tensor, num_slots: int | None = None, num_iterations: int | None = None
    ) -> PredictedSets:
        """Sets; K is fixed and there are no iterations."""
        if num_slots not in (None, self.num_slots) or num_iterations is not None:
            raise ValueError(
                f"An MLP has no iterations and always {self.num_slots} slots, got num_slots={num_slots} and "
                f"num_iterations={num_iterations}."
            )
        sets = self.head(self.represent(images)).float()
        return PredictedSets(sets, None, sets[None])


class DSPNSetPredictor(SetPredictor):
    """Deep Set Prediction Network (Zhang et al., 2019): the set whose encoding is closest to that of the image.

    From a learned start, T steps of gradient descent on the set y:

        y ← y - η ∂/∂y Huber(encode(y), encode(image))

    where sets are encoded by an MLP of all pairs of rows and featurewise sort pooling. The loss is that of the last
    set, averaged over pairs, and ``representation_weight`` · Huber(encode(targets), encode(image)).

    As in DSPN coordinates are in [-1, 1] within and not bounded, which is ``coordinate_scale`` 2. Instead of a
    ResNet-34 the encoder of images is the CNN of :class:`SlotSetPredictor`, averaged down to 4 x 4.

    Args:
        image_shape: (channels, height, width).
        num_slots: rows of the set; the start is learned, so it cannot change later.
        num_iterations: T; the paper trains with 10 and tests with 10, 20 and 30.
        inner_lr: η. The reference's 800 is for a mean over its batch of 32; ours is a sum, so that one image's set does
            not depend on the others', and 800 / 32 the same step.
        channels: of the CNN.
        strides: of its convolutions.
        hidden_dim: width of the encoder of sets, and size of an encoding.
        representation_weight: of the second term of the loss.
        lr: learning rate of Adam; the paper's is constant.
        warmup_steps: steps over which it rises from 0.
        decay_steps: steps in which it halves.
        loss_at_every_iteration: average the loss over all sets on the way.
        coordinate_scale: weight of position in the loss.

    >>> model = DSPNSetPredictor(image_shape=(3, 32, 32), hidden_dim=32, num_iterations=2)
    >>> model(torch.rand(2, 3, 32, 32)).shape
    torch.Size([2, 10, 19])
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int] = (3, 128, 128),
        num_slots: int = 10,
        num_iterations: int = 10,
        inner_lr: float = 25.0,
        channels: int = 64,
        strides: tuple[int, ...] = (1, 2, 2, 1),
        hidden_dim: int = 512,
        representation_weight: float = 0.1,
        lr: float = 3e-4,
        warmup_steps: int = 0,
        decay_steps: int = 50_000,
        loss_at_every_iteration: bool = False,
        coordinate_scale: float = 2.0,
    ) -> None:
        super().__init__(
            image_shape, num_slots, lr, warmup_steps, decay_steps, loss_at_every_iteration, coordinate_scale
        )
        positive(num_iterations=num_iterations, channels=channels, hidden_dim=hidden_dim)
        if not 0 < inner_lr < math.inf or not 0 <= representation_weight < math.inf:
            raise ValueError(
                f"inner_lr must be positive and representation_weight not negative, got {inner_lr} and "
                f"{representation_weight}."
            )
        self.save_hyperparameters()
        self.num_iterations, self.inner_lr = num_iterations, inner_lr
        self.representation_weight = representation_weight
        self.encoder = ImageTokens(self.image_shape[0], channels, check_strides(strides, self.image_shape))
        self.encode_image = nn.Sequential(
            nn.AdaptiveAvgPool2d(4),
            nn.Flatten(),
            nn.Linear(16 * channels, hidden_dim),
            nn.ReLU(),
            nn.Linear(hidden_dim, hidden_dim),
        )
        self.encode_image.apply(glorot)
        self.encode_set = SetEncoder(OBJECT_SIZE, hidden_dim)
        self.start = nn.Parameter(torch.cat([torch.rand(num_slots, REAL), torch.full((num_slots, 1), 0.5)], dim=1))
        channels_last(self)

    def represent(self, images: Tensor) -> Tensor:
        """The encoding of each image, ``[B, hidden_dim]``."""
        self._check_images(images)
        tokens, places = self.encoder(images)
        return self.encode_image(tokens.transpose(1, 2).unflatten(2, places))

    def predict_sets(
        self, images: Tensor, num_slots: int | None = None, num_iterations: int | None = None
    ) -> PredictedSets:
        """Sets; T may change, K may not."""
        if num_slots not in (None, self.num_slots):
            raise ValueError(f"DSPN learns {self.num_slots} rows to start from; num_slots cannot become {num_slots}.")
        num_iterations = self.num_iterations if num_iterations is None else num_iterations
        positive(num_iterations=num_iterations)
        return self._descend(self.represent(images), num_iterations)

    def losses(self, batch: Any) -> dict[str, Tensor]:
        """Besides the terms of :meth:`SetPredictor.losses`: ``representation``."""
        images, targets = check_targets(batch)
        wanted = self.represent(images)
        terms = self.objective(self._descend(wanted, self.num_iterations), targets)
        pairs = max(1, min(self.num_slots, targets.shape[1]))
        terms["representation"] = F.smooth_l1_loss(self.encode_set(inner_coordinates(targets)).float(), wanted.float())
        terms["loss"] = terms["loss"] / pairs + self.representation_weight * terms["representation"]
        return terms

    def _descend(self, wanted: Tensor, num_iterations: int) -> PredictedSets:
        # Gradients with respect to the set are needed in evaluation too, where Lightning switches autograd off.
        training = torch.is_grad_enabled()
        with torch.inference_mode(False), torch.enable_grad():
            wanted = wanted if training else wanted.clone()
            sets = self.start.expand(len(wanted), -1, -1)
            sets = sets if sets.requires_grad else sets.clone().requires_grad_()
            history = []
            for _ in range(num_iterations):
                distance = F.smooth_l1_loss(self.encode_set(sets).float(), wanted.float(), reduction="none")
                (slope,) = torch.autograd.grad(distance.mean(1).sum(), sets, create_graph=training)
                sets = sets - self.inner_lr * slope
                sets = torch.cat([sets[..., :REAL], sets[..., REAL:].clamp(0, 1)], dim=2)
                sets = sets if training else sets.detach().requires_grad_()
                history.append(sets)
            steps = outer_coordinates(torch.stack(history))
        steps = steps if training else steps.detach()
        return PredictedSets(steps[-1], None, steps)


def inner_coordinates(sets: Tensor) -> Tensor:
    """Coordinates from [0, 1] to DSPN's [-1, 1]."""
    return torch.cat([2 * sets[..., COORDINATES] - 1, sets[..., 3:]], dim=-1)


def outer_coordinates(sets: Tensor) -> Tensor:
    """And back."""
    return torch.cat([(sets[..., COORDINATES] + 1) / 2, sets[..., 3:]], dim=-1)


class SetEncoder(nn.Module):
    """Sets ``[B, n, F]`` to encodings ``[B, dim]`` that do not depend on the order of the rows.

    A relation network with featurewise sort pooling (Zhang et al., 2019 and 2020): an MLP of all n² pairs of rows,
    divided by n²; each feature is sorted over the pairs and weighed by a learned piecewise linear function of the rank.
    """

    def __init__(self, features: int, dim: int, pieces: int = 20) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(features, dim), nn.Linear(features, dim, bias=False)
        self.out = nn.Linear(dim, dim)
        # The two halves of one layer on pairs, with the bounds of the whole.
        bound = math.sqrt(6 / (2 * features + dim))
        nn.init.uniform_(self.first.weight, -bound, bound)
        nn.init.uniform_(self.second.weight, -bound, bound)
        nn.init.zeros_(self.first.bias)
        glorot(self.out)
        self.knots = nn.Parameter(torch.randn(dim, pieces + 1))

    def forward(self, sets: Tensor) -> Tensor:
        """One vector for each set."""
        n = sets.shape[1]
        if n == 0:
            return sets.new_zeros(len(sets), self.out.out_features)
        pairs = self.first(sets)[:, :, None] + self.second(sets)[:, None]
        pairs = self.out(torch.relu(pairs)).flatten(1, 2) / n**2  # [B, n², dim]
        ordered = pairs.sort(dim=1, descending=True).values
        return (ordered * rank_weights(self.knots, n**2).T).sum(1)


def rank_weights(knots: Tensor, n: int) -> Tensor:
    """Values at n even ranks of the piecewise linear functions through ``knots`` ``[dim, pieces + 1]``: ``[dim, n]``.

    >>> rank_weights(torch.tensor([[0.0, 1.0, 0.0]]), 5)
    tensor([[0.0000, 0.5000, 1.0000, 0.5000, 0.0000]])
    """
    return F.interpolate(knots[None], n, mode="linear", align_corners=True)[0] if n > 1 else knots[:, :1]


def object_head(slot_dim: int) -> nn.Sequential:
    """A slot to the 19 numbers of an object, each in [0, 1]; the same for every slot."""
    head = nn.Sequential(nn.Linear(slot_dim, 64), nn.ReLU(), nn.Linear(64, OBJECT_SIZE), nn.Sigmoid())
    return head.apply(glorot)


def check_targets(batch: Any) -> tuple[Tensor, Tensor]:
    """Images and targets of a batch, or an error that says what is wrong with them."""
    parts = list(batch) if isinstance(batch, tuple | list) else [batch]
    if len(parts) < 2 or not all(isinstance(part, Tensor) for part in parts[:2]):
        raise ValueError(
            "Set prediction needs batches (images [B, C, H, W], targets [B, M, 19]): use SetDataModule, or a data set "
            "that returns both."
        )
    images, targets = parts[:2]
    if targets.ndim != 3 or targets.shape[2] != OBJECT_SIZE or len(targets) != len(images):
        raise ValueError(
            f"Targets must have shape [{len(images)}, M, {OBJECT_SIZE}] for {len(images)} images, got "
            f"{list(targets.shape)}: coordinates 3 | size 2 | material 2 | shape 3 | color 8 | real 1."
        )
    if targets.is_cpu and targets.numel() and not torch.compiler.is_compiling():
        low, high = torch.aminmax(targets)
        if not (low >= 0 and high <= 1):
            raise ValueError(
                f"Target values reach from {low:.4g} to {high:.4g}, expected [0, 1], which is all that a prediction "
                "can be: coordinates are (x + 3) / 6, classes one-hot, and there is no NaN."
            )
    return images, targets
