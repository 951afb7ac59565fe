"""Set prediction and object discovery: matching, loss, training, saving, resuming, and bad input."""

import itertools
import json
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from unknot.datamodules.scenes.clevr_scenes import ClevrScenes
from unknot.datamodules.sets import SetDataModule
from unknot.hub import load
from unknot.lightning import pl
from unknot.metrics import SetScores
from unknot.zoo import MODELS, DSPNSetPredictor, SlotAutoEncoder, SlotMLPSetPredictor, SlotSetPredictor
from unknot.zoo.dspn import SetEncoder, rank_weights
from unknot.zoo.object_pictures import draw_attention, draw_decomposition, draw_sets
from unknot.zoo.pictures import Pictures
from unknot.zoo.pretrained import arguments_of
from unknot.zoo.set_prediction import huber, match_sets, set_loss

SHAPE = (3, 32, 32)
# No value is a default.
COMMON = {"image_shape": SHAPE, "channels": 8, "strides": (2, 2), "lr": 1e-3, "warmup_steps": 2, "decay_steps": 500}
COMMON |= {"padding": "tensorflow", "batch_norm": True}
ARGUMENTS = {
    "SlotSetPredictor": {
        **{"num_slots": 5, "num_iterations": 2, "slot_dim": 12},
        **{"loss_at_every_iteration": True, "coordinate_scale": 3.0, "attribute_loss": "cross_entropy"},
    },
    "SlotMLPSetPredictor": {
        "num_slots": 5,
        "slot_dim": 12,
        "pooled": 4,
        "hidden_dim": 16,
        "coordinate_scale": 3.0,
        "loss_at_every_iteration": True,
        "attribute_loss": "cross_entropy",
    },
    "DSPNSetPredictor": {
        **{"num_slots": 5, "num_iterations": 2, "inner_lr": 20.0, "hidden_dim": 16, "representation_weight": 0.2},
        **{"loss_at_every_iteration": True, "coordinate_scale": 3.0, "attribute_loss": "cross_entropy"},
    },
    "SlotAutoEncoder": {
        **{"num_slots": 3, "num_iterations": 2, "slot_dim": 12},
        **{"initial": "learned", "gradient": "bilevel", "offset": 1.0, "noise_steps": 9},
    },
}
PREDICTORS = ["SlotSetPredictor", "SlotMLPSetPredictor", "DSPNSetPredictor"]
every_model = pytest.mark.parametrize("name", sorted(ARGUMENTS))
every_predictor = pytest.mark.parametrize("name", PREDICTORS)


def build(name, seed=0, **arguments):
    torch.manual_seed(seed)
    return MODELS[name](**{**COMMON, **ARGUMENTS[name], **arguments})


def batch(n=4, rows=5, seed=0):
    """Images and targets with between one and ``rows`` objects."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.rand(n, *SHAPE, generator=generator)
    targets = torch.zeros(n, rows, 19)
    targets[..., :3] = torch.rand(n, rows, 3, generator=generator)
    for first, classes in ((3, 2), (5, 2), (7, 3), (10, 8)):
        drawn = torch.randint(classes, (n, rows), generator=generator)
        targets[..., first : first + classes] = F.one_hot(drawn, classes)
    targets[..., 18] = 1
    real = torch.arange(rows) < torch.randint(1, rows + 1, (n, 1), generator=generator)
    return images, targets * real[..., None]


def trainer(tmp_path, **settings):
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    return pl.Trainer(default_root_dir=tmp_path, accelerator="cpu", enable_model_summary=False, **{**quiet, **settings})


def scenes(**options):
    return SetDataModule(
        ClevrScenes(image_size=32, max_objects=5, samples=1), batch_size=3, num_val_batches=1, **options
    )


# Matching and loss


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 5))
def test_matching_is_the_best_of_all(seed, slots, rows):
    generator = torch.Generator().manual_seed(seed)
    predictions, targets = torch.rand(2, slots, 19, generator=generator), torch.rand(2, rows, 19, generator=generator)
    slot, target = match_sets(predictions, targets)
    pairs = min(slots, rows)
    assert slot.shape == target.shape == (2, pairs)
    for b in range(2):
        assert len(set(slot[b].tolist())) == len(set(target[b].tolist())) == pairs
        cost = torch.stack(
            [torch.stack([huber(p - t).mean() for t in targets[b]]) for p in predictions[b]]
        )  # [slots, rows]
        if slots <= rows:
            best = min(sum(cost[i, j] for i, j in enumerate(p)) for p in itertools.permutations(range(rows), slots))
        else:
            best = min(sum(cost[i, j] for j, i in enumerate(p)) for p in itertools.permutations(range(slots), rows))
        torch.testing.assert_close(cost[slot[b], target[b]].sum(), best)
        torch.testing.assert_close(set_loss(predictions, targets)[b].sum(), best)


def test_order_changes_nothing():
    predictions, targets = torch.rand(3, 6, 19), batch(3, 6)[1]
    expected = set_loss(predictions, targets).sum(1)
    shuffled = set_loss(predictions[:, torch.randperm(6)], targets[:, torch.randperm(6)]).sum(1)
    torch.testing.assert_close(shuffled, expected)


def test_the_loss_is_half_the_squared_error_of_the_pairs():
    """Between numbers in [0, 1] no error exceeds 1, where Huber's loss would become linear."""
    targets = batch(3, 4)[1]
    noise = 0.05 * torch.rand(3, 4, 19)
    predictions = (targets * 0.9 + noise)[:, [2, 0, 3, 1]]
    expected = ((targets * 0.9 + noise - targets) ** 2).sum((1, 2)) / 38
    torch.testing.assert_close(set_loss(predictions, targets).sum(1), expected)


def test_cross_entropy_of_attributes_is_that_of_objects_and_of_whether_there_is_one():
    targets = batch(3, 4)[1]
    predictions = targets * 0.8 + 0.1 + 0.05 * torch.rand(3, 4, 19)
    attributes, real = slice(3, 18), targets[..., 18]
    expected = (0.5 * (predictions - targets)[..., :3] ** 2).sum(2) * real
    expected += F.binary_cross_entropy(predictions, targets, reduction="none")[..., attributes].sum(2) * real
    expected += F.binary_cross_entropy(predictions, targets, reduction="none")[..., 18]
    found = set_loss(predictions[:, [2, 0, 3, 1]], targets, "cross_entropy").sum(1)
    torch.testing.assert_close(found, expected.sum(1) / 19)


def test_cross_entropy_of_a_prediction_that_is_sure_is_finite():
    targets = batch(2, 4)[1]
    predictions = (1 - targets).requires_grad_()
    loss = set_loss(predictions, targets, "cross_entropy").sum()
    (slope,) = torch.autograd.grad(loss, predictions)
    assert loss.isfinite()
    assert slope.isfinite().all()


def test_the_loss_has_gradients_and_the_matching_none():
    predictions, targets = torch.rand(2, 4, 19, requires_grad=True), batch(2, 4)[1]
    slot, target = match_sets(predictions, targets)
    assert not slot.requires_grad
    (slope,) = torch.autograd.grad(set_loss(predictions, targets).sum(), predictions)
    paired = torch.stack([targets[b, target[b][slot[b].argsort()]] for b in range(2)])
    torch.testing.assert_close(slope, (predictions.detach() - paired) / 19)


def test_surplus_slots_have_no_loss():
    predictions, targets = torch.rand(2, 7, 19, requires_grad=True), batch(2, 3)[1]
    assert set_loss(predictions, targets).shape == (2, 3)
    (slope,) = torch.autograd.grad(set_loss(predictions, targets).sum(), predictions)
    assert (slope.abs().sum(2) > 0).sum(1).tolist() == [3, 3]


def test_with_fewer_slots_than_rows_padding_goes_first():
    """Three objects and seven rows of padding for four slots: predicting nothing must not be free."""
    targets = torch.zeros(1, 10, 19)
    targets[:, ::4] = batch(1, 3, seed=1)[1][:, :1].clone()
    targets[:, ::4, 18] = 1
    _, target = match_sets(torch.zeros(1, 4, 19), targets)
    assert {0, 4, 8} < set(target[0].tolist())
    more = torch.ones(1, 6, 19)
    more[0, 3] = 0
    slot, target = match_sets(torch.zeros(1, 4, 19), more)  # five objects for four slots
    assert slot.shape == (1, 4)
    assert 3 not in target[0].tolist()


@every_predictor
def test_zero_objects(name):
    model = build(name)
    images = batch(2)[0]
    for targets in (torch.zeros(2, 5, 19), torch.zeros(2, 0, 19)):
        terms = model.losses((images, targets))
        assert all(value.isfinite() for value in terms.values())
        terms["loss"].backward()
    assert model.losses((images, torch.zeros(2, 0, 19)))["matched"] == 0


@every_predictor
@pytest.mark.parametrize("rows", [1, 5, 9])
def test_sets_of_any_size(name, rows):
    terms = build(name).losses(batch(3, rows))
    terms["loss"].backward()
    assert terms["loss"].isfinite()


def test_loss_at_every_iteration_is_the_mean_over_them():
    model = build("SlotSetPredictor", num_iterations=3)
    images, targets = batch()
    torch.manual_seed(1)
    terms = model.losses((images, targets))
    torch.manual_seed(1)
    history = model.predict_sets(images).history
    scale = torch.tensor([3.0] * 3 + [1.0] * 16)
    each = torch.stack([set_loss(sets * scale, targets * scale, "cross_entropy").sum(1).mean() for sets in history])
    torch.testing.assert_close(terms["loss"], each.mean())
    torch.testing.assert_close(terms["matched"], each[-1])
    model.loss_at_every_iteration = False
    torch.manual_seed(1)
    torch.testing.assert_close(model.losses((images, targets))["loss"], each[-1])


def test_coordinates_weigh_by_the_square_of_their_scale():
    """Below an error of 1 / scale, where Huber's loss is quadratic."""
    images, targets = batch(1, 1)
    predicted = targets.clone()
    predicted[..., 0] += 0.1
    for scale in (1.0, 2.0, 4.0):
        model = build("SlotMLPSetPredictor", coordinate_scale=scale, attribute_loss="huber")
        model.predict_sets = lambda *_: type("P", (), {"history": predicted[None]})
        assert model.losses((images, targets))["loss"].item() == pytest.approx((0.1 * scale) ** 2 / 38, rel=1e-4)


# The models


def test_batch_normalisation_follows_every_convolution():
    plain, normalised = (SlotSetPredictor(image_shape=SHAPE, batch_norm=wanted) for wanted in (False, True))
    kinds = [type(layer).__name__ for layer in normalised.encoder.convolutions]
    assert kinds == ["Conv2d", "BatchNorm2d", "ReLU"] * 4
    assert "BatchNorm2d" not in {type(layer).__name__ for layer in plain.encoder.convolutions}


def test_parameters_of_the_reference():
    assert sum(p.numel() for p in SlotSetPredictor().parameters()) == 380_755


@every_model
def test_saved_and_loaded(name, tmp_path):
    model = build(name).eval()
    default = dict(MODELS[name]().hparams)
    arguments = {**COMMON, **ARGUMENTS[name]}
    assert not {key for key, value in arguments.items() if default[key] == value}
    assert arguments.keys() == set(arguments_of(MODELS[name])) - {"encoder", "decoder"}
    networks = dict.fromkeys({"encoder", "decoder"} & set(arguments_of(MODELS[name])))
    folder = model.save_pretrained(tmp_path)
    saved = json.loads((folder / "config.json").read_text())["arguments"]
    assert saved == {**arguments, **networks, "image_shape": [3, 32, 32], "strides": [2, 2]}
    for loaded in (MODELS[name].from_pretrained(folder), load(folder)):
        assert type(loaded) is MODELS[name]
        assert dict(loaded.hparams) == dict(model.hparams) == arguments | networks
        terms, outputs = [], []
        for one in (model, loaded):
            torch.manual_seed(1)
            terms.append(one.losses(batch()))
            torch.manual_seed(1)
            outputs.append(one(batch()[0]))
        assert torch.equal(*outputs)
        assert all(torch.equal(terms[0][key], terms[1][key]) for key in terms[0])


@every_model
def test_gradients_reach_everything(name):
    model = build(name)
    terms = model.losses(batch())
    terms["loss"].backward()
    for key, parameter in model.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.abs().sum() > 0, key


@pytest.mark.parametrize("num_slots", [1, 3, 20])
@pytest.mark.parametrize("num_iterations", [1, 10])
def test_other_slots_and_iterations_at_test_time(num_slots, num_iterations):
    model = build("SlotSetPredictor")
    sets, attention, history = model.predict_sets(batch()[0], num_slots, num_iterations)
    assert sets.shape == (4, num_slots, 19)
    assert attention.shape == (4, num_slots, 8, 8)
    assert history.shape == (num_iterations, 4, num_slots, 19)
    assert torch.equal(history[-1], sets)
    assert ((sets >= 0) & (sets <= 1)).all()
    torch.testing.assert_close(attention.sum(1), torch.ones(4, 8, 8))
    auto = build("SlotAutoEncoder", initial="gaussian").decompose(batch()[0], num_slots, num_iterations)
    assert auto.masks.shape == (4, num_slots, 32, 32)


def test_slots_of_the_mlp_and_of_dspn_are_fixed():
    images = batch()[0]
    with pytest.raises(ValueError, match="always 5 slots, got num_slots=6"):
        build("SlotMLPSetPredictor").predict_sets(images, num_slots=6)
    with pytest.raises(ValueError, match="num_slots cannot become 6"):
        build("DSPNSetPredictor").predict_sets(images, num_slots=6)
    assert build("DSPNSetPredictor").predict_sets(images, num_iterations=4).history.shape[0] == 4


@every_model
def test_one_image_does_not_depend_on_the_others(name):
    model = build(name).eval()
    images, start = batch()[0], torch.randn(4, 5, 12)
    if hasattr(model, "slot_attention"):
        model.slot_attention.initial_slots = lambda n, k=None: start[:n]
    torch.testing.assert_close(model(images[:1]), model(images)[:1], rtol=1e-4, atol=1e-5)


def test_learned_slots_lose_their_noise_as_training_goes_on():
    """Along a cosine; a model that is not trained has none."""
    model, seen = build("SlotAutoEncoder", noise_steps=4), []
    assert model.slot_attention.noise == 0

    class Seen(pl.Callback):
        def on_before_backward(self, trainer, module, loss):
            seen.append(module.slot_attention.noise.item())

    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "accelerator": "cpu"}
    run = pl.Trainer(max_steps=6, max_epochs=-1, callbacks=[Seen()], enable_model_summary=False, **quiet)
    run.fit(model, DataLoader(TensorDataset(*batch()), batch_size=4))
    assert seen == pytest.approx([(1 + math.cos(math.pi * min(1, step / 4))) / 2 for step in range(6)])
    images = batch()[0]
    assert torch.equal(model.eval()(images), model(images))
    model.slot_attention.noise.fill_(1.0)
    assert torch.equal(model(images), model(images))
    assert not torch.equal(model.train()(images), model(images))


def test_the_autoencoder_mixes_its_parts():
    model = build("SlotAutoEncoder")
    images = batch()[0]
    torch.manual_seed(0)
    reconstruction, parts, masks = model.decompose(images)
    assert parts.shape == (4, 3, 3, 32, 32)
    torch.testing.assert_close(masks.sum(1), torch.ones(4, 32, 32))
    torch.testing.assert_close(reconstruction, torch.einsum("bkhw,bkchw->bchw", masks, parts))
    torch.manual_seed(0)
    expected = ((2 * reconstruction - 1) - (2 * images - 1)).pow(2).mean()  # the reference's range
    torch.testing.assert_close(model.losses((images,))["loss"], expected)


# DSPN


def test_a_set_encoding_ignores_order_and_nothing_else():
    torch.manual_seed(0)
    encoder = SetEncoder(19, 16)
    sets = torch.rand(2, 5, 19)
    expected = encoder(sets)
    torch.testing.assert_close(encoder(sets[:, torch.randperm(5)]), expected, rtol=0, atol=1e-5)
    assert (encoder(sets.flip(2)) - expected).abs().max() > 1e-3


def test_a_set_encoding_is_the_mlp_of_all_pairs():
    torch.manual_seed(0)
    encoder, rows = SetEncoder(3, 4, pieces=2), torch.rand(1, 3, 3)
    pairs = torch.stack([torch.cat([a, b]) for a in rows[0] for b in rows[0]])
    weight = torch.cat([encoder.first.weight, encoder.second.weight], dim=1)
    hidden = torch.relu(pairs @ weight.T + encoder.first.bias)
    features = (hidden @ encoder.out.weight.T + encoder.out.bias) / 9
    positions = torch.linspace(0, 2, 9)
    left = positions.floor().clamp(max=1).long()
    knots = encoder.knots
    between = knots[:, left] + (knots[:, left + 1] - knots[:, left]) * (positions - left)
    expected = (features.sort(0, descending=True).values * between.T).sum(0)
    torch.testing.assert_close(encoder(rows)[0], expected)
    torch.testing.assert_close(rank_weights(knots, 9), between)


def test_dspn_descends():
    """Every step lowers the distance between the encodings, for steps that are small enough."""
    model = build("DSPNSetPredictor", inner_lr=0.1, num_iterations=20)
    images = batch()[0]
    wanted = model.represent(images)
    history = model.predict_sets(images).history
    inner = torch.cat([2 * history[..., :3] - 1, history[..., 3:]], dim=-1)
    distance = torch.stack([F.smooth_l1_loss(model.encode_set(sets), wanted) for sets in inner])
    assert (distance.diff() < 0).all()
    assert ((history[..., 18] >= 0) & (history[..., 18] <= 1)).all()


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_dspn_predicts_without_autograd(mode):
    model, images = build("DSPNSetPredictor"), batch()[0]
    expected = model(images)
    with mode():
        found = model(images)
    assert not found.requires_grad
    torch.testing.assert_close(found.clone(), expected.detach())


# Training


@every_model
def test_fits_plain_loaders_with_a_last_batch_of_one(name, tmp_path):
    model = build(name)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    loaders = [DataLoader(TensorDataset(*batch(n, seed=n)), batch_size=4) for n in (9, 5)]
    run = trainer(tmp_path, max_epochs=2)
    run.fit(model, *loaders)
    assert run.global_step == 6
    assert all(value.isfinite() for value in run.callback_metrics.values())
    assert {"train/loss", "val/loss"} <= run.callback_metrics.keys()
    assert all(not torch.equal(value, before[key]) for key, value in model.state_dict().items())
    predicted = torch.cat(run.predict(model, loaders[1]))
    assert len(predicted) == 5
    assert torch.equal(predicted, torch.cat(run.predict(model, loaders[1])))  # slots are seeded


@pytest.mark.parametrize("clip", [None, 1.0])
@every_model
def test_mixed_precision(name, clip, tmp_path):
    model = build(name)
    run = trainer(tmp_path, max_steps=3, precision="bf16-mixed", gradient_clip_val=clip)
    run.fit(model, datamodule=scenes())
    assert all(value.isfinite() for value in run.callback_metrics.values())
    numbers = [value for value in model.state_dict().values() if value.is_floating_point()]  # not how many batches
    assert all(value.dtype == torch.float32 and value.isfinite().all() for value in numbers)


def test_learns_one_scene(tmp_path):
    """The loss of a fixed batch falls far, and with it the initial slots learn."""
    model = build("SlotSetPredictor", lr=5e-3, coordinate_scale=1.0, num_iterations=3)
    before = model.slot_attention.mu.clone(), model.slot_attention.log_sigma.clone()
    loading = DataLoader(TensorDataset(*batch(2)), batch_size=2)
    first = model.losses(batch(2))["loss"].item()
    trainer(tmp_path, max_steps=60, max_epochs=-1).fit(model, loading)
    assert model.losses(batch(2))["loss"].item() < 0.5 * first
    assert not torch.equal(model.slot_attention.mu, before[0])
    assert not torch.equal(model.slot_attention.log_sigma, before[1])


def test_the_schedule_is_stepped(tmp_path):
    rates = []

    class Watch(pl.Callback):
        def on_train_batch_start(self, trainer, model, batch, batch_idx):
            rates.append(trainer.optimizers[0].param_groups[0]["lr"])

    model = build("SlotSetPredictor", lr=1.0, warmup_steps=2, decay_steps=2)
    model.losses = lambda batch: {"loss": model.head[0].bias.sum()}
    loading = DataLoader(TensorDataset(*batch(5)), batch_size=1)
    trainer(tmp_path, max_steps=5, callbacks=[Watch()]).fit(model, loading)
    assert rates == pytest.approx([0.0, 0.5 * 0.5**0.5, 0.5, 0.5**1.5, 0.25])


def fit(name, tmp_path, steps, ckpt_path=None, seed=0):
    pl.seed_everything(seed, verbose=False)
    model = MODELS[name](**{**COMMON, **ARGUMENTS[name]})
    run = trainer(tmp_path, max_steps=steps, max_epochs=-1, val_check_interval=3, check_val_every_n_epoch=None)
    run.fit(model, datamodule=scenes(), ckpt_path=ckpt_path, weights_only=True)
    return run, model


@every_model
def test_resume_is_exact(name, tmp_path):
    whole, expected = fit(name, tmp_path, steps=4)
    half, _ = fit(name, tmp_path, steps=2)
    half.save_checkpoint(tmp_path / "half.ckpt", weights_only=False)
    resumed, model = fit(name, tmp_path, steps=4, ckpt_path=tmp_path / "half.ckpt", seed=99)
    assert whole.global_step == resumed.global_step == 4
    assert all(torch.equal(value, model.state_dict()[key]) for key, value in expected.state_dict().items())
    rates = {run.optimizers[0].param_groups[0]["lr"] for run in (whole, resumed)}
    assert len(rates) == 1
    assert rates != {half.optimizers[0].param_groups[0]["lr"]}
    assert model.trained_on == "clevr_scenes"


def test_compiles(tmp_path):
    torch._dynamo.reset()
    model = build("SlotSetPredictor")
    torch.manual_seed(0)
    expected = model.losses(batch())["loss"]
    torch.manual_seed(0)
    compiled = torch.compile(model.losses, backend="aot_eager")(batch())["loss"]
    torch.testing.assert_close(compiled, expected)


# Bad input


@every_predictor
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x, y: x, "batches .images .* targets"),
        (lambda x, y: (x,), "use SetDataModule"),
        (lambda x, y: (x, None), "use SetDataModule"),
        (lambda x, y: (x, y[..., :18]), r"Targets must have shape \[4, M, 19\] .* got \[4, 5, 18\]"),
        (lambda x, y: (x, y[:3]), r"got \[3, 5, 19\]"),
        (lambda x, y: (x, y[:, 0]), r"got \[4, 19\]"),
        (lambda x, y: (x, y * 6 - 3), r"Target values reach from -3 to 3, expected \[0, 1\]"),
        (lambda x, y: (x, y + torch.nan), "Target values reach from nan"),
        (lambda x, y: (x[:, :1], y), r"\[4, 1, 32, 32\], the model expects \[N, 3, 32, 32\]"),
        (lambda x, y: (2 * x - 1, y), r"expected \[0, 1\]"),
    ],
)
def test_bad_batches(name, change, message):
    with pytest.raises(ValueError, match=message):
        build(name).losses(change(*batch()))


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("SlotSetPredictor", {"num_slots": 0}, "num_slots must be"),
        ("SlotSetPredictor", {"num_iterations": 0}, "num_iterations must be"),
        ("SlotSetPredictor", {"slot_dim": 1.5}, "slot_dim must be"),
        ("SlotSetPredictor", {"strides": (2, 0)}, "strides must be a whole number|strides must be whole numbers"),
        ("SlotSetPredictor", {"strides": ()}, "strides must be a whole number|strides must be whole numbers"),
        ("SlotSetPredictor", {"strides": (8, 8)}, "too much for images of 32 x 32"),
        ("SlotSetPredictor", {"image_shape": (3, 32.5, 32)}, "image_shape must be"),
        ("SlotSetPredictor", {"lr": 0.0}, "lr must be positive"),
        ("SlotSetPredictor", {"warmup_steps": -1}, "warmup_steps must be"),
        ("SlotSetPredictor", {"decay_steps": 0}, "decay_steps must be"),
        ("SlotSetPredictor", {"coordinate_scale": 0.0}, "coordinate_scale must be positive"),
        ("SlotSetPredictor", {"attribute_loss": "l2"}, "attribute_loss must be .huber. or .cross_entropy."),
        ("SlotMLPSetPredictor", {"pooled": 0}, "pooled must be"),
        ("DSPNSetPredictor", {"inner_lr": -1.0}, "inner_lr must be positive"),
        ("DSPNSetPredictor", {"representation_weight": -1.0}, "representation_weight must be finite and not negative"),
        ("SlotAutoEncoder", {"num_slots": 0}, "num_slots must be"),
    ],
)
def test_bad_arguments(name, arguments, message):
    with pytest.raises(ValueError, match=message):
        build(name, **arguments)


def test_a_loss_that_is_not_finite_stops_training(tmp_path):
    model = build("SlotSetPredictor")
    with torch.no_grad():
        model.head[0].weight.fill_(torch.nan)
    with pytest.raises(FloatingPointError, match="the loss is not finite"):
        trainer(tmp_path, max_steps=1).fit(model, DataLoader(TensorDataset(*batch()), batch_size=4))


# Pictures and scores during training


def picture(path):
    with Image.open(path) as image:
        return image.size


def test_pictures(tmp_path):
    images, targets = batch(2)
    sets = build("SlotSetPredictor")
    assert min(picture(draw_sets(sets, images, targets, tmp_path / "sets.png"))) > 200
    assert min(picture(draw_attention(sets, images, tmp_path / "attention.png"))) > 200
    assert min(picture(draw_decomposition(build("SlotAutoEncoder"), images, tmp_path / "parts.png"))) > 200
    with pytest.raises(ValueError, match="SlotMLPSetPredictor has no attention"):
        draw_attention(build("SlotMLPSetPredictor"), images, tmp_path / "none.png")
    assert not (tmp_path / "none.png").exists()


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("SlotSetPredictor", {"attention", "sets"}),
        ("SlotMLPSetPredictor", {"sets"}),
        ("SlotAutoEncoder", {"decomposition"}),
    ],
)
@pytest.mark.parametrize("validation", [True, False])
def test_callbacks_draw_and_score(name, kinds, validation, tmp_path):
    scored = [SetScores()] if name in PREDICTORS else []
    run = trainer(
        tmp_path, max_steps=3, callbacks=[Pictures(every_n_steps=2, num_images=2), *scored], max_epochs=-1,
        val_check_interval=3, check_val_every_n_epoch=None, limit_val_batches=int(validation),
    )  # fmt: skip
    run.fit(build(name), datamodule=scenes())
    found = sorted(path.name for path in (tmp_path / "pictures").glob("*.png"))
    assert found == sorted(f"{kind}-{step:08d}.png" for kind in kinds for step in (2, 3))
    if scored and validation:
        assert {
            f"val/ap_{threshold}" for threshold in ("inf", "1", "0.5", "0.25", "0.125")
        } <= run.callback_metrics.keys()


@every_predictor
def test_scores_are_of_the_sets_that_the_loss_is_of(name, tmp_path, monkeypatch):
    model, scored, predicted = build(name), SetScores(), []
    objective = model.objective
    monkeypatch.setattr(
        model, "objective", lambda sets, targets: predicted.append(sets.sets) or objective(sets, targets)
    )
    run = trainer(tmp_path, callbacks=[scored])
    run.validate(model, DataLoader(TensorDataset(*batch(6)), batch_size=3), verbose=False)
    assert len(predicted) == 2
    assert torch.equal(torch.cat(scored.metric.left), torch.cat(predicted))


def test_scores_of_a_model_whose_step_gives_no_sets(tmp_path, monkeypatch):
    model, scored = build("SlotMLPSetPredictor"), SetScores()
    monkeypatch.setattr(model, "validation_step", lambda batch, batch_idx: None)
    images, targets = batch(3)
    trainer(tmp_path, callbacks=[scored]).validate(
        model, DataLoader(TensorDataset(images, targets), batch_size=3), verbose=False
    )
    with torch.no_grad():
        torch.testing.assert_close(scored.metric.left[0], model.eval()(images))


def test_pictures_do_not_change_training(tmp_path):
    states = []
    for callbacks in ([], [Pictures(every_n_steps=1, num_images=2), SetScores()]):
        pl.seed_everything(0, verbose=False)
        model = build("SlotSetPredictor")
        run = trainer(
            tmp_path,
            max_steps=3,
            max_epochs=-1,
            callbacks=callbacks,
            val_check_interval=1,
            check_val_every_n_epoch=None,
        )
        run.fit(model, datamodule=scenes())
        states.append(model.state_dict())
    assert all(torch.equal(value, states[1][key]) for key, value in states[0].items())


def test_classes_are_exported():
    exported = {SlotSetPredictor, SlotMLPSetPredictor, DSPNSetPredictor, SlotAutoEncoder}
    assert {MODELS[name] for name in ARGUMENTS} == exported
