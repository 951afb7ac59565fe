"""WReN: its arithmetic, its symmetries, what it learns, and what it refuses."""

import pytest
import torch
from torch import Tensor

from unknot.datamodules import AbstractDSprites, Coarse, MatrixDataModule, sample_matrices
from unknot.hub import load
from unknot.lightning import pl
from unknot.zoo import BetaVAE, WReN

SIZES = (5, 6, 3, 3, 4, 4)


def panels(n: int = 4, dim: int = 10) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(n, 8, dim, generator=generator), torch.randn(n, 6, dim, generator=generator)


@pytest.fixture
def model() -> WReN:
    torch.manual_seed(0)
    return WReN("codes").eval()


def all_pairs(model: WReN, context: Tensor, answers: Tensor) -> Tensor:
    """The definition: 81 pairs for each of the six answers."""
    logits = []
    for a in range(answers.shape[1]):
        nodes = torch.cat([context, answers[:, a : a + 1]], dim=1)
        nodes = torch.cat([nodes, torch.eye(9).expand(len(nodes), -1, -1)], dim=2)
        pairs = torch.cat([nodes[:, :, None].expand(-1, -1, 9, -1), nodes[:, None].expand(-1, 9, -1, -1)], dim=3)
        logits.append(model.score(model.graph(model.edge(pairs).sum((1, 2)))))
    return torch.cat(logits, dim=1)


@pytest.mark.parametrize(("edge", "graph"), [((256, 256), (128,)), ((64, 64, 64), (32, 32)), ((16,), (8,))])
def test_shared_edges_are_all_edges(edge, graph) -> None:
    model = WReN("codes", edge_sizes=edge, graph_sizes=graph).eval()
    context, answers = panels()
    torch.testing.assert_close(model(context, answers), all_pairs(model, context, answers), rtol=1e-5, atol=1e-5)


def test_answers_permute_with_logits(model) -> None:
    context, answers = panels()
    order = torch.tensor([3, 1, 5, 0, 2, 4])
    torch.testing.assert_close(model(context, answers[:, order]), model(context, answers)[:, order])


def test_only_places_tell_the_panels_of_the_context_apart(model) -> None:
    context, answers = panels()
    order = torch.tensor([7, 2, 5, 0, 1, 3, 6, 4])
    assert (model(context, answers) - model(context[:, order], answers)).abs().max() > 1e-4
    with torch.no_grad():
        for start in (10, 29):  # the one-hot places in both halves of the first edge layer
            model.edge[0].weight[:, start : start + 9] = 0
    torch.testing.assert_close(model(context, answers), model(context[:, order], answers), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("dim", "edge", "graph", "count"),
    [
        (10, [256] * 2, [128], 108_801),
        (10, [512] * 4, [256, 256], 1_005_313),
        (1024, [512] * 4, [256, 256], 2_043_649),
    ],
)
def test_parameter_counts_of_the_reference(dim, edge, graph, count) -> None:
    model = WReN("codes", code_dim=dim, edge_sizes=edge, graph_sizes=graph)
    assert sum(parameter.numel() for parameter in model.parameters()) == count


def test_weights_start_as_lecun_normal() -> None:
    torch.manual_seed(0)
    layer = WReN("codes", edge_sizes=(512, 512)).edge[2]
    assert layer.weight.var().item() == pytest.approx(1 / 512, rel=0.02)
    assert layer.weight.abs().max() <= 2 * (1 / 512) ** 0.5 / 0.8796 + 1e-6
    assert (layer.bias == 0).all()


def test_dropout_has_one_mask_for_the_batch() -> None:
    torch.manual_seed(0)
    model = WReN("codes", dropout=0.5)
    context, answers = panels()
    torch.manual_seed(1)
    whole = model(context, answers)
    torch.manual_seed(1)
    one = model(context[2:3], answers[2:3])
    torch.testing.assert_close(whole[2:3], one)
    assert not torch.equal(whole, model(context, answers))


def train(model: WReN, steps: int, alternatives: str = "easy", blind: bool = False) -> float:
    """Accuracy on fixed matrices after so many steps of batch 32."""
    generator = torch.Generator().manual_seed(0)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def batch(n: int) -> tuple[Tensor, Tensor, Tensor]:
        context, answers, position, _ = sample_matrices(SIZES, n, generator, "mixed", alternatives)
        return (torch.zeros_like(context) if blind else context), answers, position

    test = batch(3200)
    for _ in range(steps):
        optimizer.zero_grad()
        model.losses(batch(32))["loss"].backward()
        optimizer.step()
    with torch.no_grad():
        return float(model.eval().losses(test)["accuracy"])


@pytest.mark.slow
def test_one_hot_factors_are_learned_to_the_level_of_row_matching() -> None:
    torch.manual_seed(0)
    assert train(WReN("onehot", sizes=SIZES), 1000) >= 0.70


@pytest.mark.slow
def test_without_context_nothing_is_learned() -> None:
    torch.manual_seed(0)
    assert train(WReN("onehot", sizes=SIZES), 1000, "hard", blind=True) == pytest.approx(1 / 6, abs=0.02)


def test_untrained_it_guesses_and_soon_it_does_not() -> None:
    torch.manual_seed(0)
    assert train(WReN("values", sizes=SIZES), 0) == pytest.approx(1 / 6, abs=0.03)
    torch.manual_seed(0)
    assert train(WReN("onehot", sizes=SIZES, edge_sizes=(64, 64), graph_sizes=(64,)), 150) > 0.19


def test_embeddings_of_factors() -> None:
    values = torch.tensor([[[0, 5, 2]]])
    assert WReN("values", sizes=(3, 6, 3)).embed(values).tolist() == [[[-0.5, 0.5, 0.5]]]
    assert WReN("onehot", sizes=(3, 6, 3)).embed(values)[0, 0].nonzero()[:, 0].tolist() == [0, 8, 11]
    assert WReN("onehot", sizes=SIZES).code_dim == 25


@pytest.mark.parametrize("freeze", [True, False])
def test_encoder_of_a_vae_is_frozen_or_moves(freeze: bool, tmp_path) -> None:
    vae = BetaVAE(image_shape=(3, 32, 32), latent_dim=4)
    model = WReN.on_encoder(vae, freeze=freeze, edge_sizes=(8,), graph_sizes=(8,))
    images = torch.rand(2, 3, 32, 32)
    assert torch.equal(model.represent(images), vae.represent(images))
    before = {name: value.clone() for name, value in model.encoder.state_dict().items()}
    optimizer = model.configure_optimizers()
    batch = torch.rand(2, 8, 3, 32, 32), torch.rand(2, 6, 3, 32, 32), torch.tensor([1, 5])
    model.losses(batch)["loss"].backward()
    optimizer.step()
    moved = [name for name, value in model.encoder.state_dict().items() if not torch.equal(value, before[name])]
    assert bool(moved) is not freeze
    loaded = load(model.save_pretrained(tmp_path))
    torch.testing.assert_close(loaded(*batch[:2]), model.eval()(*batch[:2]))
    assert loaded.frozen is freeze


def test_it_trains_resumes_and_is_saved_as_every_model(tmp_path) -> None:
    data = MatrixDataModule(Coarse(AbstractDSprites(), SIZES), seed=0, num_val_batches=2)
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}

    def fit(steps: int, checkpoint: str | None = None) -> tuple[WReN, pl.Trainer]:
        torch.manual_seed(0)
        model = WReN("onehot", sizes=SIZES, edge_sizes=(16,), graph_sizes=(8,), dropout=0.5)
        trainer = pl.Trainer(max_steps=steps, default_root_dir=tmp_path, enable_checkpointing=False, **quiet)
        trainer.fit(model, datamodule=data, ckpt_path=checkpoint)
        return model, trainer

    _, trainer = fit(3)
    trainer.save_checkpoint(tmp_path / "half.ckpt")
    resumed, _ = fit(6, str(tmp_path / "half.ckpt"))
    whole, trainer = fit(6)
    for name, value in whole.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name
    assert {"val/loss", "val/accuracy"} <= trainer.validate(whole, data, verbose=False)[0].keys()
    loaded = load(whole.save_pretrained(tmp_path / "model"))
    assert loaded.trained_on == data.dataset.name
    context, answers, _ = next(iter(data.val_dataloader()))
    assert torch.equal(loaded(context, answers), whole.eval()(context, answers))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"embedding": "words"}, "embedding must be"),
        ({"embedding": "onehot"}, "needs the sizes of all factors"),
        ({"embedding": "codes", "dropout": 1.0}, "dropout must lie in"),
        ({"embedding": "codes", "edge_sizes": ()}, "at least one width"),
    ],
)
def test_bad_arguments_are_refused(arguments, words) -> None:
    with pytest.raises(ValueError, match=words):
        WReN(**arguments)


def test_bad_panels_are_refused(model) -> None:
    context, answers = panels()
    with pytest.raises(ValueError, match=r"context has shape \[4, 7, 10\].*expects \[B, 8, 10\]"):
        model(context[:, :7], answers)
    with pytest.raises(ValueError, match=r"answers has shape \[4, 6, 9\]"):
        model(context, answers[..., :9])
    with pytest.raises(ValueError, match="Positions reach to 6, but there are 6 answers"):
        model.losses((context, answers, torch.tensor([0, 1, 2, 6])))
    with pytest.raises(ValueError, match="NaN"):
        model.check_images(context * float("nan"))
    with pytest.raises(ValueError, match=r"context has shape .*\[B, 8, 3, 64, 64\]"):
        WReN()(torch.zeros(1, 8, 3, 32, 32), torch.zeros(1, 6, 3, 32, 32))
    with pytest.raises(ValueError, match="reads codes, not images"):
        model.represent(torch.zeros(1, 3, 64, 64))


def test_picture_of_a_matrix(tmp_path) -> None:
    data = MatrixDataModule(Coarse(AbstractDSprites(), SIZES), panels="images", batch_size=2)
    batch = data.draw(torch.Generator().manual_seed(0))
    model = WReN(edge_sizes=(8,), graph_sizes=(8,)).eval()
    (path,) = model.draw(batch, tmp_path, "-1")
    assert path.name == "matrix-1.png"
    assert path.stat().st_size > 5000


@pytest.mark.parametrize("embedding", ["values", "onehot", "codes"])
def test_factors_and_codes_are_drawn_as_bars(embedding, tmp_path) -> None:
    model = WReN(embedding, sizes=SIZES, code_dim=6)
    factors = sample_matrices(SIZES, 1, torch.Generator().manual_seed(0))
    if embedding == "codes":
        bars = model._as_images(torch.tensor([[-9.0, 0.0, 9.0]]))
        heights = [0, 10, 20]
    else:
        bars = model._as_images(torch.tensor([[0, 5, 2, 0, 1, 3]]))
        heights = [4, 20, 20, 6, 10, 20]  # the least value of five is a fifth of twenty
    assert bars[0, 0, :, 1::4].sum(0).tolist() == heights
    seen = (factors.context, factors.answers) if embedding != "codes" else panels(1, 6)
    (path,) = model.draw((*seen, factors.position), tmp_path)
    assert path.name == "matrix.png"
    assert path.stat().st_size > 1000
