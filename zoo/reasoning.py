"""Abstract visual reasoning: a relation network that completes matrices (chapter "Weakly-Supervised Disentanglement").

The Wild Relation Network of Barrett et al. (2018), as used in the study of van Steenkiste et al. (2019).
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from unknot.arguments import counts, is_number
from unknot.files import replacing
from unknot.zoo.base import Model
from unknot.zoo.networks import channels_last, check_image_shape, check_images, output_shape
from unknot.zoo.registry import Network, make_network
from unknot.zoo.vae import VAE

CONTEXT, PANELS = 8, 9
TRUNCATED = 0.8796256610342398
"""Standard deviation of a standard normal truncated at two."""


def lecun_normal(module: nn.Module) -> None:
    """Initialise linear layers as Keras' ``lecun_normal``: truncated normal of variance 1/fan_in, biases 0."""
    if isinstance(module, nn.Linear):
        std = math.sqrt(1 / module.in_features) / TRUNCATED
        nn.init.trunc_normal_(module.weight, std=std, a=-2 * std, b=2 * std)
        nn.init.zeros_(module.bias)


class PanelCNN(nn.Sequential):
    """Panel embedding that the study trains from scratch: four convolutions of stride 2, flattened.

    >>> PanelCNN((3, 64, 64))(torch.rand(2, 3, 64, 64)).shape
    torch.Size([2, 1024])
    """

    def __init__(self, image_shape: tuple[int, int, int]) -> None:
        channels, _, _ = check_image_shape(image_shape)
        layers: list[nn.Module] = []
        for before, after in pairwise([channels, 32, 32, 64, 64]):
            layers += [nn.Conv2d(before, after, kernel_size=4, stride=2, padding=1), nn.ReLU()]
        super().__init__(*layers, nn.Flatten())


class MeanEncoder(nn.Module):
    """Mean of a VAE's posterior as a panel embedding; see :meth:`WReN.on_encoder`.

    Args:
        image_shape: (channels, height, width) of a panel.
        latent_dim: number of latents of the VAE.
        body: encoder of the VAE.
    """

    def __init__(self, image_shape: tuple[int, int, int], latent_dim: int = 10, body: Network = None) -> None:
        super().__init__()
        self.body, _ = make_network(body, "body", "ConvEncoder", image_shape=tuple(image_shape))
        features = math.prod(output_shape(self.body, tuple(image_shape), "body", "features [N, F]"))
        self.mean = nn.Linear(features, latent_dim)

    def forward(self, images: Tensor) -> Tensor:
        """Return latent means ``[N, D]``."""
        codes: Tensor = self.mean(self.body(images).flatten(1))
        return codes


class WReN(Model):
    """Wild Relation Network: score each answer by relating all pairs of the nine panels of the completed matrix.

    Thesis: section "Are weakly-supervised representations useful?", "Abstract visual reasoning".

        logit(a) = graph(Σ_ij edge([p_i, p_j]))      p_i = (embedding of panel i, one-hot of its place)

    Answers are scored independently. Of the 6 · 81 pairs of a matrix, the 64 within its context are the same for all
    answers and are computed once. This leaves 166 edges instead of 486.

    Args:
        embedding: embedding of a panel. ``"images"``: by ``encoder``, trained from scratch, frozen or fine-tuned;
            ``"codes"``: as given, such as a table of a frozen representation; ``"values"``: factor values scaled to
            [-½, ½]; ``"onehot"``: factor values, each one-hot.
        image_shape: (channels, height, width) of panels that are images.
        code_dim: size of a code, for ``"codes"``.
        sizes: number of values of each factor, for ``"values"`` and ``"onehot"``.
        encoder: for images: a registered name with arguments, or a module to features ``[N, D]``; the study's CNN if
            ``None``.
        freeze: do not train the encoder.
        edge_sizes: widths of the edge network; every layer has a ReLU.
        graph_sizes: widths of the graph network; a last layer gives the logit.
        dropout: rate after the graph network. One mask is shared by the batch, as in the reference, whose argument is
            the share that is *kept*.
        lr: learning rate of Adam.

    >>> model = WReN("onehot", sizes=(5, 6, 3, 3, 4, 4))
    >>> context, answers = torch.zeros(2, 8, 6, dtype=torch.long), torch.zeros(2, 6, 6, dtype=torch.long)
    >>> model(context, answers).shape
    torch.Size([2, 6])
    """

    family = "reasoning"
    batch = "matrices"
    capabilities = frozenset({"reasoning"})

    def __init__(
        self,
        embedding: Literal["images", "codes", "values", "onehot"] = "images",
        image_shape: tuple[int, int, int] = (3, 64, 64),
        code_dim: int = 10,
        sizes: Sequence[int] = (),
        encoder: Network = None,
        freeze: bool = False,
        edge_sizes: Sequence[int] = (256, 256),
        graph_sizes: Sequence[int] = (128,),
        dropout: float = 0.0,
        lr: float = 1e-3,
    ) -> None:
        super().__init__(lr)
        if embedding not in ("images", "codes", "values", "onehot"):
            raise ValueError(f"embedding must be 'images', 'codes', 'values' or 'onehot', got {embedding!r}.")
        if embedding in ("values", "onehot") and (not len(sizes) or min(sizes) < 2):
            raise ValueError(
                f"embedding {embedding!r} needs the sizes of all factors, each at least 2, got {tuple(sizes)}."
            )
        if not (is_number(dropout) and 0 <= dropout < 1):
            raise ValueError(f"dropout must lie in [0, 1), got {dropout!r}.")
        if not edge_sizes or not graph_sizes or min(*edge_sizes, *graph_sizes) < 1:
            raise ValueError("edge_sizes and graph_sizes need at least one width each.")
        counts(code_dim=code_dim)
        self.embedding, self.image_shape = embedding, check_image_shape(image_shape)
        self.sizes, self.frozen, self.dropout = tuple(int(size) for size in sizes), freeze, dropout
        self.encoder: nn.Module | None = None
        recipe: Any = encoder
        if embedding == "images":
            self.encoder, recipe = make_network(encoder, "encoder", "PanelCNN", image_shape=self.image_shape)
            shape = output_shape(self.encoder, self.image_shape, "encoder", "features [N, D]")
            self.code_dim = math.prod(shape)
            self.encoder.requires_grad_(not freeze)
        elif embedding == "codes":
            self.code_dim = code_dim
        else:
            self.code_dim = len(self.sizes) if embedding == "values" else sum(self.sizes)
        node = self.code_dim + PANELS
        self.edge = _perceptron([2 * node, *edge_sizes])
        self.graph = _perceptron([edge_sizes[-1], *graph_sizes])
        self.score = nn.Linear(graph_sizes[-1], 1)
        for part in (self.edge, self.graph, self.score):
            part.apply(lecun_normal)
        self.save_hyperparameters(ignore=["encoder"])
        self.keep_recipes({"encoder": recipe})
        channels_last(self)

    @classmethod
    def on_encoder(cls, model: VAE, freeze: bool = True, **arguments: Any) -> "WReN":
        """Build a WReN on the mean representation of a trained VAE, frozen or to be fine-tuned.

        >>> from unknot.zoo import BetaVAE
        >>> vae = BetaVAE(image_shape=(3, 32, 32))
        >>> wren, images = WReN.on_encoder(vae), torch.rand(2, 3, 32, 32)
        >>> torch.equal(wren.represent(images), vae.represent(images))
        True
        """
        if not isinstance(model, VAE):
            raise ValueError(f"on_encoder needs a VAE of the zoo, got {type(model).__name__}.")
        recipe = {"name": "MeanEncoder", "latent_dim": model.latent_dim, "body": model.hparams.get("encoder")}
        wren = cls("images", model.image_shape, encoder=recipe, freeze=freeze, **arguments)
        weights = {name: value for name, value in model.encoder.state_dict().items() if not name.startswith("logvar")}
        assert wren.encoder is not None
        wren.encoder.load_state_dict(weights)
        return wren

    @property
    def example_input_array(self) -> Any:
        """Example input: two contexts of eight panels, and six answers each."""
        if self._example_input_array is not None:
            return self._example_input_array
        shape = self.image_shape if self.embedding == "images" else (len(self.sizes) or self.code_dim,)
        kind: Any = torch.long if self.embedding in ("values", "onehot") else self.dtype
        return tuple(torch.zeros(2, count, *shape, dtype=kind, device=self.device) for count in (CONTEXT, 6))

    @example_input_array.setter
    def example_input_array(self, example: Any) -> None:
        self._example_input_array = example

    # Inference

    def represent(self, images: Tensor) -> Tensor:
        """Return embeddings ``[N, D]`` of images ``[N, C, H, W]``."""
        if self.encoder is None:
            raise ValueError(f"This WReN reads {self.embedding}, not images; it has no encoder.")
        check_images(images, self.image_shape, values=False)
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            features: Tensor = self.encoder(images)
        return features.flatten(1)

    def embed(self, panels: Tensor) -> Tensor:
        """Embed panels ``[B, P, ...]`` as ``[B, P, D]``."""
        if self.embedding == "images":
            return self.represent(panels.flatten(0, 1)).unflatten(0, panels.shape[:2])
        if self.embedding == "codes":
            return panels.to(self.dtype)
        size = torch.tensor(self.sizes, device=panels.device)
        if self.embedding == "values":
            return panels / (size - 1).to(self.dtype) - 0.5
        parts = [F.one_hot(panels[..., i], n) for i, n in enumerate(self.sizes)]
        return torch.cat(parts, dim=-1).to(self.dtype)

    def forward(self, context: Tensor, answers: Tensor) -> Tensor:
        """Return logits ``[B, A]`` of answers ``[B, A, ...]`` for contexts ``[B, 8, ...]``."""
        self.check_panels(context, answers)
        panels = self.embed(torch.cat([context, answers], dim=1))
        return self.logits(panels[:, :CONTEXT], panels[:, CONTEXT:])

    def logits(self, context: Tensor, answers: Tensor) -> Tensor:
        """Return logits ``[B, A]`` from embeddings ``[B, 8, D]`` and ``[B, A, D]``."""
        count = answers.shape[1]
        place = torch.eye(PANELS, dtype=context.dtype, device=context.device)
        shown = torch.cat([context, place[:CONTEXT].expand(len(context), -1, -1)], dim=2)
        asked = torch.cat([answers, place[CONTEXT:].expand(len(answers), count, -1)], dim=2)
        first: nn.Linear = self.edge[0]  # type: ignore[assignment]
        half = first.in_features // 2
        nodes = torch.cat([shown, asked], dim=1)
        left = F.linear(nodes, first.weight[:, :half], first.bias)
        right = F.linear(nodes, first.weight[:, half:])
        known, other = slice(0, CONTEXT), slice(CONTEXT, None)
        among = (left[:, known, None] + right[:, None, known]).flatten(1, 2)  # 64 pairs of the context
        with_answer = torch.cat(
            [
                left[:, other, None] + right[:, None, known],  # answer and context, 8 for each
                left[:, None, known] + right[:, other, None],  # context and answer
                (left[:, other] + right[:, other])[:, :, None],  # the answer with itself
            ],
            dim=2,
        )
        edges = self.edge[1:](torch.cat([among, with_answer.flatten(1, 2)], dim=1))
        total = edges[:, : among.shape[1]].sum(1, keepdim=True)
        total = total + edges[:, among.shape[1] :].unflatten(1, (count, -1)).sum(2)
        features = self.graph(total)
        if self.dropout and self.training:
            features = features * F.dropout(torch.ones_like(features[:1, :1]), self.dropout)
        return self.score(features).squeeze(2)

    def check_panels(self, context: Tensor, answers: Tensor) -> None:
        """Raise an error for panels that the model cannot take."""
        shape = self.image_shape if self.embedding == "images" else (len(self.sizes) or self.code_dim,)
        expected = ", ".join(map(str, shape))
        for name, panels, count in (("context", context, CONTEXT), ("answers", answers, None)):
            fits = panels.ndim == 2 + len(shape) and tuple(panels.shape[2:]) == shape
            if not fits or panels.shape[1] < 1 or (count and panels.shape[1] != count):
                raise ValueError(
                    f"The {name} has shape {list(panels.shape)}; a WReN on {self.embedding} expects "
                    f"[B, {count or 'answers'}, {expected}]. Build the model for these panels, or give it others."
                )

    # Training

    def losses(self, batch: Any) -> dict[str, Tensor]:
        """Return the cross-entropy over the answers, and the accuracy."""
        if not isinstance(batch, tuple | list) or len(batch) < 3:
            raise ValueError("A WReN needs batches (context, answers, position): use MatrixDataModule.")
        context, answers, position = batch[:3]
        logits = self(context, answers)
        if position.numel() and not 0 <= int(position.min()) <= int(position.max()) < logits.shape[1]:
            raise ValueError(f"Positions reach to {int(position.max())}, but there are {logits.shape[1]} answers.")
        accuracy = (logits.detach().argmax(1) == position).to(logits.dtype).mean()
        return {"loss": F.cross_entropy(logits, position), "accuracy": accuracy}

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Return all parameters except those of a frozen encoder."""
        return [{"params": [parameter for parameter in self.parameters() if parameter.requires_grad]}]

    def check_images(self, images: Tensor, values: bool | None = None) -> None:
        """Raise an error for panels with NaN or infinite values; :meth:`check_panels` checks shapes."""
        look = images.device.type == "cpu" if values is None else values
        if look and images.is_floating_point() and not torch.isfinite(images).all():
            raise ValueError("Panels hold NaN or infinite values.")

    def draw(self, batch: Any, folder: Path, suffix: str = "", num_images: int = 10) -> list[Path]:
        """Draw a matrix with its answers, marking the correct and the chosen one; factors and codes become bars."""
        context, answers, position = batch
        with torch.no_grad():
            picked = int(self(context[:1], answers[:1]).argmax())
        shown, asked = (self._as_images(panels[0]) for panels in (context, answers))
        path = Path(folder) / f"matrix{suffix}.png"
        draw_matrix(shown, asked, int(position[0]), picked, path)
        return [path]

    def _as_images(self, panels: Tensor) -> Tensor:
        """Return images unchanged; draw factors and codes ``[N, D]`` as bars, each code by its quantile in a standard
        normal.
        """
        if self.embedding == "images":
            return panels
        if self.embedding == "codes":
            heights = torch.special.ndtr(panels)
        else:
            heights = (panels + 1) / torch.tensor(self.sizes, device=panels.device)
        levels = torch.linspace(1, 0.05, 20, device=panels.device)[:, None]
        bars = (heights[:, None] >= levels - 1e-6).float()
        gap = torch.tensor([0.0, 1.0, 1.0, 0.0], device=panels.device)
        return torch.kron(bars, gap)[:, None]

    def predict_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Return the chosen answers ``[B]``."""
        return self(batch[0], batch[1]).argmax(1)


def draw_matrix(context: Tensor, answers: Tensor, position: int, picked: int | None, path: Path) -> None:
    """Draw one matrix: panels ``[8, C, H, W]`` and answers ``[A, C, H, W]``, the correct answer framed in green.

    Args:
        context: the given panels.
        answers: the candidate answers.
        position: index of the correct answer.
        picked: index of the chosen answer, marked by a dot, or ``None``.
        path: path of the PNG.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.6))
    for place in range(PANELS + len(answers)):
        answer = place - PANELS
        row, column = divmod(place, 3) if answer < 0 else divmod(answer, 3)
        # matrix on the left, answers on the right
        axis = figure.add_axes((0.02 + 0.15 * column + 0.5 * (answer >= 0), 0.66 - 0.32 * row, 0.14, 0.31))
        axis.set_xticks([])
        axis.set_yticks([])
        if place == CONTEXT:
            axis.text(0.5, 0.5, "?", ha="center", va="center", fontsize=32)
            continue
        image = (context[place] if answer < 0 else answers[answer]).detach().float().cpu().clamp(0, 1)
        axis.imshow(image.movedim(0, 2).squeeze(2).numpy(), cmap="gray", vmin=0, vmax=1)
        right = answer == position
        for spine in axis.spines.values():
            spine.set(color="tab:green" if right else "0.6", linewidth=4 if right else 0.8)
        if picked is not None and answer == picked:
            axis.plot(
                0.08, 0.92, "o", color="tab:green" if right else "tab:red", markersize=9, transform=axis.transAxes
            )
    with replacing(path) as beside:
        figure.savefig(beside, dpi=100, format="png")


def _perceptron(widths: Sequence[int]) -> nn.Sequential:
    return nn.Sequential(*[layer for a, b in pairwise(widths) for layer in (nn.Linear(a, b), nn.ReLU())])
