"""Export of models as ONNX files, for use without torch."""

from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from unknot.files import replacing
from unknot.inference import evaluation_mode
from unknot.randomness import kept_generators
from unknot.zoo.dspn import DSPNSetPredictor

Part = Literal["encoder", "decoder"]
INSTALL = "pip install 'unknot[export]'"


class _Encoder(nn.Module):
    """Map images to mean and log-variance, or to the model's own output."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Any:
        """Return the outputs, in the order of their names."""
        return tuple(self.model.encode(images)) if "elbo" in self.model.capabilities else self.model(images)


class _Decoder(nn.Module):
    """Map latent codes to images."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, codes: Tensor) -> Tensor:
        """Return the mean images."""
        images: Tensor = self.model.decode(codes)
        return images


def export_onnx(model: Any, path: str | Path, part: Part = "encoder") -> Path:
    """Export a model as an ONNX file with a variable batch size.

    Inputs and outputs are named: ``images`` to ``mean`` and ``logvar`` for a VAE, to ``codes``, ``slots`` or ``sets``
    for others; with ``part="decoder"``, ``codes`` to ``images``. A model cannot be exported if its slots start at
    random, if inference needs gradients (``DSPNSetPredictor``), or if it has further inputs (``WReN``).

    Args:
        model: a model of the zoo.
        path: path of the file, which is written atomically.
        part: ``"encoder"`` or ``"decoder"``.
    """
    try:
        import onnx
        import onnxscript  # noqa: F401  (what torch exports with)
    except ImportError:
        raise ImportError(f"Exporting needs onnx and onnxscript: {INSTALL}") from None
    if part not in get_args(Part):
        raise ValueError(f"part must be 'encoder' or 'decoder', got {part!r}.")
    name, path = type(model).__name__, Path(path)
    if part == "decoder" and not ("decode" in model.capabilities and hasattr(model, "latent_dim")):
        raise ValueError(f"{name} has no decoder of codes; export its encoder.")
    if part == "encoder" and not isinstance(model.example_input_array, Tensor):
        raise ValueError(f"{name} cannot be exported: it takes more than a batch of images.")
    if isinstance(model, DSPNSetPredictor):
        raise ValueError(f"{name} cannot be exported: its inference needs gradients, which ONNX cannot express.")
    if part == "decoder":
        wrapped: nn.Module = _Decoder(model)
        sample, inputs, outputs = torch.zeros(2, model.latent_dim, device=model.device), "codes", ["images"]
    else:
        wrapped = _Encoder(model)
        sample, inputs, outputs = model.example_input_array, "images", output_names(model)
    sample = sample.to(next(model.parameters()).dtype)
    with evaluation_mode(model), kept_generators(model.device), torch.no_grad(), replacing(path) as beside:
        first, second = (_all_outputs(wrapped, sample) for _ in range(2))
        if not torch.equal(first, second):
            raise ValueError(f"{name} cannot be exported: its slots are random, so that two calls differ.")
        try:
            torch.onnx.export(
                wrapped.eval(),
                (sample,),
                beside,
                input_names=[inputs],
                output_names=outputs,
                dynamic_shapes={inputs: {0: torch.export.Dim("batch")}},
                external_data=False,
                dynamo=True,
                verbose=False,
            )
        except Exception as error:  # the exporter raises many kinds of errors
            reason = " ".join(str(error).split())[:200]
            raise ValueError(f"{name} cannot be exported: torch's exporter says {reason!r}.") from None
        if not onnx.load(beside).graph.input[0].type.tensor_type.shape.dim[0].dim_param:
            raise ValueError(
                f"{name} cannot be exported: its batch would have a fixed size. A network of your own must not depend "
                "on the size of the batch; take it from images.shape[0] instead of len(images)."
            )
    return path


def _all_outputs(wrapped: nn.Module, sample: Tensor) -> Tensor:
    outputs = wrapped(sample)
    return torch.cat([part.flatten() for part in (outputs if isinstance(outputs, tuple) else (outputs,))])


def output_names(model: Any) -> list[str]:
    """Return the names of the outputs of a model's encoder."""
    if "elbo" in model.capabilities:
        return ["mean", "logvar"]
    return ["sets" if "sets" in model.capabilities else "slots" if "slots" in model.capabilities else "codes"]
