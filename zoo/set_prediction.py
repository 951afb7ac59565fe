"""Set prediction: from an image to the set of objects in it.

Chapter "Learning About Multiple Objects", section "Set Prediction". An object is 19 numbers in [0, 1]: coordinates 3 |
size 2 | material 2 | shape 3 | color 8 | 1 for a real object, the rows of ``SetBatch.targets``. All models predict K
such rows, the Hungarian algorithm matches them with the targets, and the loss is the Huber loss of the pairs:

    loss = mean over images, sum over pairs, mean over the 19 numbers of Huber(prediction - target)

They differ in how they compute K vectors: ``SlotSetPredictor`` by Slot Attention, ``SlotMLPSetPredictor`` by an MLP
with ordered outputs, ``DSPNSetPredictor`` (``dspn.py``) by gradient descent on a set.
"""

from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from unknot.arguments import counts, positive
from unknot.clevr_objects import COORDINATES, OBJECT_SIZE, REAL
from unknot.zoo.base import first_of
from unknot.zoo.likelihoods import at_least_float
from unknot.zoo.networks import channels_last, glorot
from unknot.zoo.slot_attention import SlotAttention
from unknot.zoo.slot_encoders import TokenModel


@torch.compiler.disable  # SciPy cannot be part of a compiled graph
def match_sets(predictions: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Match rows of predictions ``[B, K, F]`` with rows of targets ``[B, M, F]`` at the least total cost.

    The cost of a pair is the Huber loss, averaged over the F numbers. With K ≠ M there are min(K, M) pairs: surplus
    slots have no target. With K < M, rows of padding (last number 0) are left out first, so that they take no slot from
    an object. (The reference does not handle this case.)

    Returns:
        Indices of the slots and of the targets, each ``[B, min(K, M)]``, without gradient.
    """
    from scipy.optimize import linear_sum_assignment  # importing SciPy takes a tenth of a second

    with torch.no_grad():
        cost = huber(predictions.float()[:, None] - targets.float()[:, :, None]).mean(-1)  # [B, M, K]
        cost = cost.nan_to_num()  # the loss will be NaN, which is reported more clearly than by SciPy
        slots, rows = cost.shape[2], cost.shape[1]
        if rows > slots:
            padding = targets[..., -1] == 0
            room = slots - (~padding).sum(1, keepdim=True)
            surplus = padding & (padding.cumsum(1) > room)
            cost = cost.masked_fill(surplus[..., None], 1 + float(cost.max()) * 2 * rows)
        # SciPy's solver is compiled but takes one matrix at a time: some microseconds for each image.
        pairs = [linear_sum_assignment(matrix) for matrix in cost.cpu().double().numpy()]
    shape = (len(pairs), min(rows, slots))
    target, slot = (
        torch.tensor([pair[side].tolist() for pair in pairs], dtype=torch.long).reshape(shape) for side in (0, 1)
    )
    return slot.to(predictions.device), target.to(predictions.device)


def huber(difference: Tensor) -> Tensor:
    """Elementwise Huber loss: ½ d² for |d| ≤ 1, and |d| - ½ beyond."""
    return F.huber_loss(difference, torch.zeros_like(difference), reduction="none")


def set_loss(predictions: Tensor, targets: Tensor, attribute_loss: str = "huber") -> Tensor:
    """Return the loss of each matched pair ``[B, min(K, M)]``, averaged over the numbers of an object.

    Args:
        predictions: ``[B, K, 19]``, or rows of any length for the Huber loss.
        targets: ``[B, M, 19]``.
        attribute_loss: ``"huber"`` for all numbers, or ``"cross_entropy"`` for all but the coordinates. Of a row of
            padding only the last number counts then.
    """
    slot, target = match_sets(predictions, targets)
    matched = predictions.gather(1, slot[..., None].expand(-1, -1, predictions.shape[2]))
    matched_targets = targets.gather(1, target[..., None].expand(-1, -1, targets.shape[2]))
    matched, matched_targets = at_least_float(matched), at_least_float(matched_targets)
    each = huber(matched - matched_targets)
    if attribute_loss == "cross_entropy":
        numbers = slice(COORDINATES.stop, None)
        logits = torch.logit(matched[..., numbers], eps=1e-6)
        surprise = F.binary_cross_entropy_with_logits(logits, matched_targets[..., numbers], reduction="none")
        each = torch.cat([each[..., COORDINATES], surprise], dim=-1)
        each = torch.cat([each[..., :REAL] * matched_targets[..., REAL:], each[..., REAL:]], dim=-1)
    return each.mean(-1)


class PredictedSets(NamedTuple):
    """Predictions for a batch.

    Args:
        sets: ``[B, K, 19]``.
        attention: share of each image position that each slot receives, ``[B, K, h, w]``, or ``None`` without
            attention.
        history: sets after every iteration ``[T, B, K, 19]``; the last one is ``sets``.
    """

    sets: Tensor
    attention: Tensor | None
    history: Tensor


class SetPredictor(TokenModel):
    r"""Base class of models that predict sets; a subclass implements :meth:`predict_sets`.

    .. math:: \min\; \min_{\pi}\, \sum_{k} \mathrm{Huber}\left(\hat y_{\pi(k)} - y_k\right)

    .. math:: \pi \text{ by the Hungarian algorithm}

    Thesis: section "Example Application: Set Prediction".

    Args:
        num_slots: number K of rows of a predicted set.
        loss_at_every_iteration: average the loss over the sets after each iteration instead of taking the last one.
        coordinate_scale: coordinates are scaled to [0, scale] in the loss and in the matching, the chapter's way to
            weigh position.
        attribute_loss: ``"huber"``, as in the chapter; or ``"cross_entropy"`` for all but the coordinates, which
            penalises confident errors more and learns shapes sooner. Predictions are matched by the Huber loss either
            way.
        tokens: arguments of :class:`~unknot.zoo.slot_encoders.TokenModel`: ``image_shape``, ``channels``, ``strides``,
            ``lr``, ``warmup_steps``, ``decay_steps``, ``encoder``, ``padding`` and ``batch_norm``.
    """

    family = "set-prediction"
    batch = "sets"
    capabilities = frozenset({"sets"})

    def __init__(
        self,
        num_slots: int = 10,
        loss_at_every_iteration: bool = False,
        coordinate_scale: float = 1.0,
        attribute_loss: str = "huber",
        **tokens: Any,
    ) -> None:
        super().__init__(**tokens)
        if attribute_loss not in ("huber", "cross_entropy"):
            raise ValueError(f"attribute_loss must be 'huber' or 'cross_entropy', got {attribute_loss!r}.")
        counts(num_slots=num_slots)
        positive(coordinate_scale=coordinate_scale)
        self.num_slots = num_slots
        self.loss_at_every_iteration = loss_at_every_iteration
        self.coordinate_scale = coordinate_scale
        self.attribute_loss = attribute_loss

    def predict_sets(
        self, images: Tensor, num_slots: int | None = None, num_iterations: int | None = None
    ) -> PredictedSets:
        """Predict sets for images ``[B, C, H, W]`` in [0, 1].

        Args:
            images: ``[B, C, H, W]``.
            num_slots: number of slots, if the model allows other numbers than in training.
            num_iterations: number of iterations, if the model allows other numbers than in training.
        """
        raise NotImplementedError

    def forward(self, images: Tensor) -> Tensor:
        """Return predicted sets ``[B, K, 19]``."""
        return self.predict_sets(images).sets

    def losses(self, batch: Any) -> dict[str, Tensor]:
        """Return all terms for a batch (images, targets, ...): ``loss``, and ``matched``, the part of the last
        iteration.
        """
        return self.predict_and_compare(batch)[1]

    def predict_and_compare(self, batch: Any) -> tuple[PredictedSets, dict[str, Tensor]]:
        """Return the predicted sets of a batch and the terms of :meth:`losses`."""
        images, targets = check_targets(batch)
        predicted = self.predict_sets(images)
        return predicted, self.objective(predicted, targets)

    def validation_step(self, batch: Any, batch_idx: int) -> dict[str, Tensor]:
        """Log all terms as ``val/...`` and return the predicted ``sets``, so that metrics need not predict again."""
        images = first_of(batch)
        self._look_at(images, batch_idx)
        predicted, terms = self.predict_and_compare(batch)
        self._report("val", terms, batch_idx, len(images))
        return {"sets": predicted.sets.detach()}

    def objective(self, predicted: PredictedSets, targets: Tensor) -> dict[str, Tensor]:
        """Return the terms of :meth:`losses` for predicted sets."""
        history = predicted.history if self.loss_at_every_iteration else predicted.history[-1:]
        steps, images = history.shape[:2]
        targets = targets.to(history)
        scale = history.new_ones(OBJECT_SIZE)
        scale[COORDINATES] = self.coordinate_scale
        pairs = set_loss((history * scale).flatten(0, 1), (targets * scale).repeat(steps, 1, 1), self.attribute_loss)
        each = pairs.sum(1).view(steps, images).mean(1)
        return {"loss": each.mean(), "matched": each[-1].detach()}

    def draw(self, batch: Any, folder: Path, suffix: str = "", num_images: int = 6) -> list[Path]:
        """Draw images and floor plans of their true and predicted scenes."""
        from unknot.zoo.object_pictures import draw_sets  # Matplotlib takes a while

        images, targets = (part[: min(6, num_images)] for part in batch[:2])
        return [draw_sets(self, images, targets, folder / f"sets{suffix}.png")]

    def predict_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Return the predicted sets of a batch."""
        return self(first_of(batch))


class SlotSetPredictor(SetPredictor):
    r"""Slot Attention for set prediction: a CNN with position embedding, slots, and one MLP shared by all slots.

    .. math:: \min\; \min_{\pi}\, \sum_{k} \mathrm{Huber}\left(\hat y_{\pi(k)} - y_k\right)

    .. math:: \pi \text{ by the Hungarian algorithm}

    Thesis: section "Example Application: Set Prediction".

    Initial slots are random, in evaluation too: seed torch for reproducible predictions.

    Args:
        num_iterations: number T of iterations.
        slot_dim: size of a slot.
        predictor: arguments of :class:`SetPredictor`.

    >>> model = SlotSetPredictor(image_shape=(3, 32, 32))
    >>> images, targets = torch.rand(2, 3, 32, 32), torch.zeros(2, 10, 19)
    >>> model(images).shape, sorted(model.losses((images, targets)))
    (torch.Size([2, 10, 19]), ['loss', 'matched'])
    >>> model.predict_sets(images, num_slots=12, num_iterations=5).attention.shape
    torch.Size([2, 12, 8, 8])
    """

    def __init__(self, num_iterations: int = 3, slot_dim: int = 64, **predictor: Any) -> None:
        super().__init__(**predictor)
        counts(num_iterations=num_iterations, slot_dim=slot_dim)
        self.num_iterations = num_iterations
        self.slot_attention = SlotAttention(self.num_slots, self.encoder.channels, slot_dim, num_iterations)
        self.head = object_head(slot_dim)
        channels_last(self)

    def represent(self, images: Tensor) -> Tensor:
        """Return the slots ``[B, K, D]``."""
        self.check_images(images)
        return self.slot_attention(self.encoder(images)[0]).slots

    def draw(self, batch: Any, folder: Path, suffix: str = "", num_images: int = 6) -> list[Path]:
        """Draw also the attention of each slot."""
        from unknot.zoo.object_pictures import draw_attention

        images = first_of(batch)[: min(6, num_images)]
        attention = draw_attention(self, images, folder / f"attention{suffix}.png")
        return [*super().draw(batch, folder, suffix, num_images), attention]

    def predict_sets(
        self, images: Tensor, num_slots: int | None = None, num_iterations: int | None = None
    ) -> PredictedSets:
        """Predict sets, with the attention of the last iteration, for any number of slots and iterations."""
        self.check_images(images)
        tokens, places = self.encoder(images)
        _, attention, history = self.slot_attention(tokens, num_slots, num_iterations, return_history=True)
        sets = at_least_float(self.head(history))
        return PredictedSets(sets[-1], attention.unflatten(2, places), sets)


class SlotMLPSetPredictor(SetPredictor):
    r"""Slot MLP baseline: an MLP from the whole feature map to K ordered slots in place of Slot Attention.

    .. math:: \min\; \min_{\pi}\, \sum_{k} \mathrm{Huber}\left(\hat y_{\pi(k)} - y_k\right)

    .. math:: \pi \text{ by the Hungarian algorithm}

    Thesis: section "Example Application: Set Prediction", the baseline.

    CNN, head, matching and loss are those of :class:`SlotSetPredictor`. The map is averaged down to ``pooled`` x
    ``pooled`` before it is flattened. The chapter does not state the sizes of the baseline, and its code is not public,
    so they are arguments.

    Args:
        slot_dim: size of a slot.
        pooled: side of the map that is flattened.
        hidden_dim: width of the two hidden layers of the MLP.
        predictor: arguments of :class:`SetPredictor`; ``num_slots`` cannot change later.

    >>> model = SlotMLPSetPredictor(image_shape=(3, 32, 32))
    >>> model(torch.rand(2, 3, 32, 32)).shape
    torch.Size([2, 10, 19])
    """

    def __init__(self, slot_dim: int = 64, pooled: int = 8, hidden_dim: int = 512, **predictor: Any) -> None:
        super().__init__(**predictor)
        counts(slot_dim=slot_dim, pooled=pooled, hidden_dim=hidden_dim)
        self.slot_dim, self.pooled = slot_dim, pooled
        self.mlp = nn.Sequential(
            nn.Linear(self.encoder.channels * pooled**2, hidden_dim),
            nn.ReLU(),
            nn.Linear(hidden_dim, hidden_dim),
            nn.ReLU(),
            nn.Linear(hidden_dim, self.num_slots * slot_dim),
        )
        self.mlp.apply(glorot)
        self.head = object_head(slot_dim)
        channels_last(self)

    def represent(self, images: Tensor) -> Tensor:
        """Return the ordered slots ``[B, K, D]``."""
        self.check_images(images)
        tokens, places = self.encoder(images)
        features = F.adaptive_avg_pool2d(tokens.transpose(1, 2).unflatten(2, places), self.pooled)
        return self.mlp(features.flatten(1)).view(-1, self.num_slots, self.slot_dim)

    def predict_sets(
        self, images: Tensor, num_slots: int | None = None, num_iterations: int | None = None
    ) -> PredictedSets:
        """Predict sets; the number of slots is fixed and there are no iterations."""
        if num_slots not in (None, self.num_slots) or num_iterations is not None:
            raise ValueError(
                f"An MLP has no iterations and always {self.num_slots} slots, got num_slots={num_slots} and "
                f"num_iterations={num_iterations}."
            )
        sets = at_least_float(self.head(self.represent(images)))
        return PredictedSets(sets, None, sets[None])


def object_head(slot_dim: int) -> nn.Sequential:
    """Return the MLP from a slot to the 19 numbers of an object, each in [0, 1]; shared by all slots."""
    head = nn.Sequential(nn.Linear(slot_dim, 64), nn.ReLU(), nn.Linear(64, OBJECT_SIZE), nn.Sigmoid())
    return head.apply(glorot)


def check_targets(batch: Any) -> tuple[Tensor, Tensor]:
    """Return images and targets of a batch after checking both."""
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
                f"Target values reach from {low:.4g} to {high:.4g}, expected [0, 1], the range of "
                "predictions: coordinates are (x + 3) / 6, classes are one-hot, and NaN is not allowed."
            )
    return images, targets
