"""Slot Attention: from N inputs to K exchangeable slots that compete for them.

Chapter "Learning About Multiple Objects", Algorithm "Slot Attention module". Models that predict sets with it are in
``set_prediction.py``; models that reconstruct images are in ``object_discovery.py``.
"""

import math
from contextlib import nullcontext
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from unknot.arguments import counts, not_negative
from unknot.zoo.networks import glorot

EPSILON = 1e-8  # added to attention, so that the mean is defined for a slot without attention
NORM_EPSILON = 1e-3  # epsilon of LayerNorm in the reference

Initial = Literal["gaussian", "learned"]
Gradient = Literal["full", "implicit", "bilevel"]


class Slots(NamedTuple):
    """Output of Slot Attention.

    Args:
        slots: slots after the last iteration, ``[B, K, D]``.
        attention: attention of the last iteration, ``[B, K, N]``; sums to one over the slots for every input.
        history: slots after every iteration ``[T, B, K, D]``, or ``None`` unless requested.
    """

    slots: Tensor
    attention: Tensor
    history: Tensor | None


class SlotAttention(nn.Module):
    """Slot Attention module.

    Thesis: Algorithm "Slot Attention module", Eqs. "eqn:slot_attention_key_query" and "eqn:slot_attention_value".

        inputs = LayerNorm(inputs);  slots ~ N(μ, diag(σ))
        for t = 1 ... T:
            slots_prev = slots
            slots = LayerNorm(slots)
            attn = Softmax(k(inputs) · q(slots)ᵀ / √D, axis="slots")
            updates = WeightedMean(weights=attn + ε, values=v(inputs))
            slots = GRU(state=slots_prev, inputs=updates)
            slots += MLP(LayerNorm(slots))

    μ and σ are learned, with slots μ + σ · noise. Where the chapter gives no details, the module follows the reference:
    σ is a standard deviation, stored as its logarithm; k, q and v have no biases; Glorot initialisation; LayerNorm with
    1e-3.

    Three options follow later work. With ``gradient="implicit"`` (Chang et al., 2022) only the last iteration is
    differentiated, with its input slots held constant: the gradient at a fixed point, to first order.
    ``gradient="bilevel"`` (Jia et al., 2023, BO-QSA) also passes the gradient of the last iteration's slots to the
    initial ones. Slots have the same values either way. ``initial="learned"`` starts from K learned vectors m instead
    of the same μ for all,

        slots = m + s · noise · stop_gradient(m)

    where s is the buffer ``noise``, 0 unless a model sets it, and used only in training. Such slots are not
    exchangeable. ``offset`` is added to a slot's share of attention in BO-QSA, so that slots with few inputs are
    updated little.

    Args:
        num_slots: default number of slots K.
        input_dim: size D_inputs of an input.
        slot_dim: size D_slots of a slot, also the dimension D of k, q and v; ``None`` is ``input_dim``.
        num_iterations: default number of iterations T.
        hidden_dim: width of the MLP.
        initial: ``"gaussian"``, as in the thesis, or ``"learned"``, which fixes K.
        gradient: ``"full"``, ``"implicit"``, which leaves initial slots without a gradient, or ``"bilevel"``.
        offset: added to the sum of a slot's weights in the weighted mean; 0 in the thesis, 1 in BO-QSA.

    >>> module = SlotAttention(num_slots=5, input_dim=32)
    >>> slots, attention, _ = module(torch.rand(2, 100, 32))
    >>> slots.shape, attention.shape
    (torch.Size([2, 5, 32]), torch.Size([2, 5, 100]))
    >>> module(torch.rand(2, 100, 32), num_slots=8, num_iterations=5).slots.shape
    torch.Size([2, 8, 32])
    """

    noise: Tensor

    def __init__(
        self,
        num_slots: int = 10,
        input_dim: int = 64,
        slot_dim: int | None = None,
        num_iterations: int = 3,
        hidden_dim: int = 128,
        initial: Initial = "gaussian",
        gradient: Gradient = "full",
        offset: float = 0.0,
    ) -> None:
        super().__init__()
        if initial not in ("gaussian", "learned"):
            raise ValueError(f"initial must be 'gaussian' or 'learned', got {initial!r}.")
        if gradient not in ("full", "implicit", "bilevel"):
            raise ValueError(f"gradient must be 'full', 'implicit' or 'bilevel', got {gradient!r}.")
        if initial == "learned" and gradient == "implicit":
            raise ValueError("gradient='implicit' never trains learned initial slots: take 'bilevel' or 'full'.")
        not_negative(offset=offset)
        self.initial, self.gradient, self.offset = initial, gradient, offset
        slot_dim = input_dim if slot_dim is None else slot_dim
        counts(
            num_slots=num_slots,
            input_dim=input_dim,
            slot_dim=slot_dim,
            num_iterations=num_iterations,
            hidden_dim=hidden_dim,
        )
        self.num_slots, self.num_iterations = num_slots, num_iterations
        self.input_dim, self.slot_dim = input_dim, slot_dim
        if initial == "learned":
            self.mu = nn.Parameter(torch.empty(num_slots, slot_dim))
            self.register_buffer("noise", torch.tensor(0.0))
        else:
            self.mu = nn.Parameter(torch.empty(slot_dim))
            self.log_sigma = nn.Parameter(torch.empty(slot_dim))
        self.norm_inputs = nn.LayerNorm(input_dim, eps=NORM_EPSILON)
        self.norm_slots = nn.LayerNorm(slot_dim, eps=NORM_EPSILON)
        self.norm_mlp = nn.LayerNorm(slot_dim, eps=NORM_EPSILON)
        self.q = nn.Linear(slot_dim, slot_dim, bias=False)
        self.k = nn.Linear(input_dim, slot_dim, bias=False)
        self.v = nn.Linear(input_dim, slot_dim, bias=False)
        self.gru = nn.GRUCell(slot_dim, slot_dim)
        self.mlp = nn.Sequential(nn.Linear(slot_dim, hidden_dim), nn.ReLU(), nn.Linear(hidden_dim, slot_dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialise as the reference does; its Glorot bound for μ and log σ counts one input and D outputs."""
        bound = math.sqrt(6 / (1 + self.slot_dim))
        if self.initial == "learned":
            nn.init.xavier_uniform_(self.mu)
        else:
            nn.init.uniform_(self.mu, -bound, bound)
            nn.init.uniform_(self.log_sigma, -bound, bound)
        self.apply(glorot)
        nn.init.xavier_uniform_(self.gru.weight_ih)
        nn.init.orthogonal_(self.gru.weight_hh)
        nn.init.zeros_(self.gru.bias_ih)
        nn.init.zeros_(self.gru.bias_hh)

    def initial_slots(self, batch_size: int, num_slots: int | None = None) -> Tensor:
        """Return the slots before the first iteration: ``[batch_size, num_slots, D]``."""
        num_slots = self.num_slots if num_slots is None else num_slots
        if self.initial == "learned":
            if num_slots != self.num_slots:
                raise ValueError(f"These {self.num_slots} slots are learned, so num_slots cannot become {num_slots}.")
            slots = self.mu.expand(batch_size, -1, -1)
            return slots + self.noise * torch.randn_like(slots) * slots.detach() if self.training else slots
        noise = torch.randn(batch_size, num_slots, self.slot_dim, device=self.mu.device, dtype=self.mu.dtype)
        return self.mu + self.log_sigma.exp() * noise

    def forward(
        self,
        inputs: Tensor,
        num_slots: int | None = None,
        num_iterations: int | None = None,
        slots: Tensor | None = None,
        return_history: bool = False,
    ) -> Slots:
        """Run T iterations.

        Args:
            inputs: ``[B, N, D_inputs]``, with N of at least one.
            num_slots: number of slots of this call.
            num_iterations: number of iterations of this call.
            slots: initial slots ``[B, K, D]`` instead of random ones.
            return_history: also return the slots after every iteration.
        """
        num_iterations = self.num_iterations if num_iterations is None else num_iterations
        self._check(inputs, num_slots, num_iterations, slots)
        if slots is None:
            slots = self.initial_slots(len(inputs), num_slots)
        inputs, initial = self.norm_inputs(inputs), slots
        history = []
        for left in reversed(range(num_iterations)):
            if self.gradient != "full" and not left:
                slots = slots.detach()
                if self.gradient == "bilevel":
                    slots = slots + (initial - initial.detach())  # adds zero
            with torch.no_grad() if self.gradient != "full" and left else nullcontext():
                slots, attention = self.iterate(inputs, slots)
            history.append(slots)
        return Slots(slots, attention, torch.stack(history) if return_history else None)

    def iterate(self, inputs: Tensor, slots: Tensor) -> tuple[Tensor, Tensor]:
        """Run one iteration on normalised inputs: return new slots and their attention ``[B, K, N]``."""
        # k(x) · q(s) = x · (q(s) W_k) and mean(v(x)) = W_v mean(x): projecting K slots instead of N inputs is the same
        # and, with K of 10 and N of 1024, most of the work saved.
        queries = self.q(self.norm_slots(slots)) @ self.k.weight / math.sqrt(self.slot_dim)
        attention = torch.softmax(queries @ inputs.transpose(1, 2), dim=1)
        weights = attention + EPSILON
        updates = self.v(weights @ inputs / (weights.sum(2, keepdim=True) + self.offset))
        slots = self.gru(updates.flatten(0, 1).to(slots.dtype), slots.flatten(0, 1)).view_as(slots)
        return slots + self.mlp(self.norm_mlp(slots)), attention

    def _check(self, inputs: Tensor, num_slots: int | None, num_iterations: int, slots: Tensor | None) -> None:
        if inputs.ndim != 3 or inputs.shape[2] != self.input_dim or not inputs.shape[1]:
            raise ValueError(
                f"inputs must have shape [B, N, {self.input_dim}] with N >= 1, got {list(inputs.shape)}: flatten maps "
                "of features to [B, H * W, C], or build the module with their input_dim."
            )
        counts(num_iterations=num_iterations)
        if num_slots is not None:
            counts(num_slots=num_slots)
        if slots is not None:
            k = slots.shape[1] if slots.ndim == 3 and num_slots is None else num_slots
            if tuple(slots.shape) != (len(inputs), k, self.slot_dim) or not k:
                raise ValueError(
                    f"Given slots must have shape [{len(inputs)}, {'K' if num_slots is None else num_slots}, "
                    f"{self.slot_dim}], got {list(slots.shape)}."
                )
