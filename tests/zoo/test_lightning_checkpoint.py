"""Lightning checkpoints are loaded like saved models, and state dicts to start from."""

from pathlib import Path

import pytest
import torch

from unknot.hub import load
from unknot.lightning import pl
from unknot.zoo import BetaVAE, FactorVAE, Model
from unknot.zoo.lightning_checkpoint import MODEL


def saved(model: Model, path: Path) -> Path:
    trainer = pl.Trainer(
        max_steps=1, logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False
    )
    trainer.fit(model, torch.utils.data.DataLoader(torch.rand(4, 1, 16, 16), batch_size=2))
    trainer.save_checkpoint(path)
    return path


def test_a_checkpoint_of_the_trainer_is_loaded_by_the_name_of_its_class(tmp_path: Path) -> None:
    model = FactorVAE(gamma=3.0, image_shape=(1, 16, 16), latent_dim=4, encoder="MLPEncoder")
    path = saved(model, tmp_path / "last.ckpt")
    loaded = load(path)
    assert type(loaded) is FactorVAE
    assert loaded.gamma == 3.0
    assert not loaded.training
    images = torch.rand(3, 1, 16, 16)
    assert torch.equal(loaded.represent(images), model.eval().represent(images))
    assert FactorVAE.from_pretrained(path, gamma=5.0).gamma == 5.0
    with pytest.raises(ValueError, match="this is a FactorVAE, not a BetaVAE"):
        BetaVAE.from_pretrained(path)


def test_start_from_takes_a_checkpoint_or_a_state_dict(tmp_path: Path) -> None:
    model = BetaVAE(image_shape=(1, 16, 16), latent_dim=4)
    path = saved(model, tmp_path / "last.ckpt")
    for start in (path, model.state_dict()):
        other = BetaVAE(beta=8.0, image_shape=(1, 16, 16), latent_dim=4).start_from(start)
        assert other.beta == 8.0
        assert all(torch.equal(a, b) for a, b in zip(other.parameters(), model.parameters(), strict=True))
    with pytest.raises(ValueError, match=r"Not the state dict of this BetaVAE \(.* is \[4"):
        BetaVAE(image_shape=(1, 16, 16), latent_dim=3).start_from(model.state_dict())
    with pytest.raises(ValueError, match="no decoder"):
        model.start_from({name: value for name, value in model.state_dict().items() if "decoder" not in name})
    factor = FactorVAE(image_shape=(1, 16, 16), latent_dim=4)
    weights = {name: value for name, value in factor.state_dict().items() if not name.startswith("discriminator")}
    assert FactorVAE(image_shape=(1, 16, 16), latent_dim=4).start_from(weights).reinitialized == ("discriminator",)


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (exec, ("raise SystemExit('code ran')",))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"state_dict": {}, "x": Evil()}, "more than tensors and plain values"),
        ({"weights": {}}, "no state_dict"),
        ({"state_dict": {}}, "does not name its model's class"),
        ({"state_dict": {}, MODEL: "os.system"}, "unknown model 'os.system'"),
        ({"state_dict": {}, MODEL: "BetaVAE", "hyper_parameters": {"latent_dim": -1}}, "do not build"),
        (
            {"state_dict": {}, MODEL: "BetaVAE", "hyper_parameters": {"latent_dim": 2}},
            "not the weights of this BetaVAE",
        ),
    ],
)
def test_other_files_are_refused_in_one_sentence(tmp_path: Path, content: dict[str, object], message: str) -> None:
    torch.save(content, tmp_path / "x.ckpt")
    with pytest.raises(ValueError, match=message) as refused:
        load(tmp_path / "x.ckpt")
    assert "\n" not in str(refused.value)


def test_broken_and_missing_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x.ckpt").write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"not a whole|more than tensors"):
        load(tmp_path / "x.ckpt")
    with pytest.raises(FileNotFoundError, match="no such file"):
        load(tmp_path / "y.ckpt")
