"""Models as ONNX files, run by ONNX Runtime."""

import warnings
from pathlib import Path

import pytest
import torch

from unknot import zoo
from unknot.cli import main
from unknot.lightning import pl
from unknot.zoo.onnx import export_onnx, output_names

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module", autouse=True)
def onnx() -> None:
    """Import what is slow to import when the tests run, not when they are collected."""
    pytest.importorskip("onnxscript")


def largest_difference(model: pl.LightningModule, path: Path, part: str = "encoder") -> float:
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    assert [each.name for each in session.get_inputs()] == ["images" if part == "encoder" else "codes"]
    names = [each.name for each in session.get_outputs()]
    assert names == (output_names(model) if part == "encoder" else ["images"])
    largest = 0.0
    model.eval()
    for batch in (1, 5):
        shape = model.image_shape if part == "encoder" else (model.latent_dim,)
        given = torch.rand(batch, *shape, generator=torch.Generator().manual_seed(batch))
        with torch.no_grad():
            if part == "decoder":
                expected = [model.decode(given)]
            else:
                expected = [*model.encode(given)] if "elbo" in model.capabilities else [model(given)]
        found = session.run(names, {session.get_inputs()[0].name: given.numpy()})
        for ours, theirs in zip(expected, found, strict=True):
            assert ours.shape == theirs.shape
            largest = max(largest, float((ours - torch.from_numpy(theirs)).abs().max()))
    return largest


@pytest.mark.slow
def test_both_parts_of_a_vae_are_exported(tmp_path: Path) -> None:
    model = zoo.BetaVAE(image_shape=(3, 32, 32), latent_dim=4)
    for part in ("encoder", "decoder"):
        path = export_onnx(model, tmp_path / f"{part}.onnx", part)  # type: ignore[arg-type]
        assert largest_difference(model, path, part) < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in zoo.list_models() if name not in ("WReN", "DSPNSetPredictor")])
def test_every_class_is_exported_or_says_why_not(tmp_path: Path, name: str) -> None:
    model = getattr(zoo, name)()
    if name in ("SlotSetPredictor", "SlotAutoEncoder", "DINOSAUR"):
        with pytest.raises(ValueError, match="its slots are random, so that two calls differ"):
            export_onnx(model, tmp_path / "model.onnx")
        return
    difference = largest_difference(model, export_onnx(model, tmp_path / "model.onnx"))
    print(f"{name}: largest difference {difference:.1e}")
    assert difference < 1e-4


def test_what_cannot_be_exported_says_so_and_leaves_no_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    slots = zoo.SlotSetPredictor(image_shape=(3, 32, 32))
    for model, part, reason in (
        (slots, "encoder", "its slots are random"),
        (slots, "decoder", "no decoder of codes"),
        (zoo.WReN(), "encoder", "more than a batch of images"),
        (zoo.DSPNSetPredictor(image_shape=(3, 32, 32)), "encoder", "inference needs gradients"),
    ):
        with pytest.raises(ValueError, match=reason) as caught:
            export_onnx(model, tmp_path / "x.onnx", part)  # type: ignore[arg-type]
        assert "\n" not in str(caught.value)
    assert not any(tmp_path.iterdir())
    (tmp_path / "there.onnx").write_text("mine")
    assert main(["export", "unknot/betavae-dsprites", str(tmp_path / "there.onnx")]) == 1
    assert "already exists" in capsys.readouterr().err
    assert (tmp_path / "there.onnx").read_text() == "mine"


def test_a_network_that_fixes_the_batch_is_refused(tmp_path: Path) -> None:
    class Fixed(torch.nn.Sequential):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return super().forward(images) + torch.zeros(len(images), 1)

    encoder = Fixed(torch.nn.Flatten(), torch.nn.Linear(1024, 4))
    model = zoo.BetaVAE(image_shape=(1, 32, 32), encoder=encoder, latent_dim=2)
    with pytest.raises(ValueError, match="its batch would have a fixed size"):
        export_onnx(model, tmp_path / "x.onnx")
    assert not any(tmp_path.iterdir())


def test_the_command_exports_a_bundled_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "unknot/betavae-dsprites", str(tmp_path / "model.onnx")]) == 0
    assert "BetaVAE, encoder, images to mean and logvar, batches of any size" in capsys.readouterr().out
    assert largest_difference(zoo.BetaVAE.from_pretrained("unknot/betavae-dsprites"), tmp_path / "model.onnx") < 1e-4


@pytest.mark.parametrize("name", zoo.list_models())
def test_every_model_has_an_example_input(name: str) -> None:
    model = getattr(zoo, name)().eval()
    example = model.example_input_array
    outputs = model(*example) if isinstance(example, tuple) else model(example)
    assert len(outputs) == 2
    model.example_input_array = None if isinstance(example, tuple) else example[:1]
    assert isinstance(model.example_input_array, tuple) or len(model.example_input_array) == 1


def test_bfloat16_is_noted() -> None:
    model = zoo.BetaVAE(latent_dim=3).bfloat16()
    assert model.dtype == torch.bfloat16
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert model.represent(torch.rand(2, 1, 64, 64)).shape == (2, 3)
