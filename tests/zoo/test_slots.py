"""Slot Attention: the algorithm box once more, the proposition, gradients, and calls of every size."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from unknot.zoo import SlotAttention, SlotAutoEncoder, SlotSetPredictor, register_network
from unknot.zoo.slot_encoders import ImageTokens, PositionEmbedding, SameConv2d, SameConvTranspose2d, warm_up_then_decay


def module(num_slots=4, input_dim=12, slot_dim=8, seed=0, **options):
    torch.manual_seed(seed)
    built = SlotAttention(num_slots, input_dim, slot_dim, hidden_dim=16, **options)
    with torch.no_grad():  # away from what initialisation makes zero or one
        for parameter in built.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return built


def inputs(b=3, n=20, d=12, seed=1):
    return torch.randn(b, n, d, generator=torch.Generator().manual_seed(seed))


def algorithm(m, x, slots, iterations):
    """Line by line as in the thesis, with k and v of every input and an explicit GRU; no batch."""

    def norm(layer, y):
        mean, var = y.mean(-1, keepdim=True), y.var(-1, unbiased=False, keepdim=True)
        return (y - mean) / torch.sqrt(var + layer.eps) * layer.weight + layer.bias

    def gru(state, update):
        r_i, z_i, n_i = (update @ m.gru.weight_ih.T + m.gru.bias_ih).chunk(3, -1)
        r_h, z_h, n_h = (state @ m.gru.weight_hh.T + m.gru.bias_hh).chunk(3, -1)
        z = torch.sigmoid(z_i + z_h)
        return (1 - z) * torch.tanh(n_i + torch.sigmoid(r_i + r_h) * n_h) + z * state

    x = norm(m.norm_inputs, x)
    k, v = x @ m.k.weight.T, x @ m.v.weight.T
    for _ in range(iterations):
        before = slots
        q = norm(m.norm_slots, slots) @ m.q.weight.T
        scores = k @ q.T / math.sqrt(m.slot_dim)
        attn = scores.exp() / scores.exp().sum(1, keepdim=True)
        weights = attn + 1e-8
        updates = (weights / weights.sum(0)).T @ v
        slots = gru(before, updates)
        hidden = torch.relu(norm(m.norm_mlp, slots) @ m.mlp[0].weight.T + m.mlp[0].bias)
        slots = slots + hidden @ m.mlp[2].weight.T + m.mlp[2].bias
    return slots, attn.T


@pytest.mark.parametrize("iterations", [1, 3, 7])
def test_is_the_algorithm_of_the_thesis(iterations):
    m, x = module().double(), inputs().double()
    slots = torch.randn(3, 5, 8).double()
    found = m(x, num_iterations=iterations, slots=slots)
    for b in range(3):
        expected, attention = algorithm(m, x[b], slots[b], iterations)
        torch.testing.assert_close(found.slots[b], expected, rtol=0, atol=1e-12)
        torch.testing.assert_close(found.attention[b], attention, rtol=0, atol=1e-12)


def test_gradients_are_those_of_the_algorithm():
    m, x = module().double(), inputs(b=1).double().requires_grad_()
    slots = torch.randn(1, 4, 8).double()
    parameters = [p for name, p in m.named_parameters() if name not in ("mu", "log_sigma")]
    ours = torch.autograd.grad(m(x, slots=slots).slots.pow(2).sum(), [x, *parameters])
    theirs = torch.autograd.grad(algorithm(m, x[0], slots[0], 3)[0].pow(2).sum(), [x, *parameters])
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-10)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 20), st.integers(1, 30), st.integers(1, 4))
def test_proposition(seed, num_slots, num_inputs, iterations):
    """SlotAttention(π_i inputs, π_s slots) = π_s SlotAttention(inputs, slots)."""
    m, x = module(seed=seed % 5), inputs(b=2, n=num_inputs, seed=seed)
    slots = torch.randn(2, num_slots, 8, generator=torch.Generator().manual_seed(seed))
    order, places = torch.randperm(num_slots), torch.randperm(num_inputs)
    plain = m(x, num_iterations=iterations, slots=slots)
    permuted = m(x[:, places], num_iterations=iterations, slots=slots[:, order])
    torch.testing.assert_close(permuted.slots, plain.slots[:, order], rtol=0, atol=1e-5)
    torch.testing.assert_close(permuted.attention, plain.attention[:, order][:, :, places], rtol=0, atol=1e-5)


@pytest.mark.parametrize("num_slots", [1, 2, 7, 20])
@pytest.mark.parametrize("num_iterations", [1, 4, 10])
def test_slots_and_iterations_of_a_call(num_slots, num_iterations):
    m = module()
    slots, attention, history = m(inputs(), num_slots, num_iterations, return_history=True)
    assert slots.shape == (3, num_slots, 8)
    assert attention.shape == (3, num_slots, 20)
    assert history.shape == (num_iterations, 3, num_slots, 8)
    assert torch.equal(history[-1], slots)
    assert slots.isfinite().all()
    assert (attention >= 0).all()
    torch.testing.assert_close(attention.sum(1), torch.ones(3, 20), rtol=0, atol=1e-6)


def test_history_is_every_iterations_slots():
    m, x, start = module(), inputs(), torch.randn(3, 4, 8)
    history = m(x, num_iterations=4, slots=start, return_history=True).history
    for t in range(4):
        torch.testing.assert_close(history[t], m(x, num_iterations=t + 1, slots=start).slots)
    assert m(x).history is None


def test_defaults_are_those_of_the_module():
    m = module(num_slots=6, num_iterations=2)
    torch.manual_seed(5)
    plain = m(inputs(), return_history=True)
    assert plain.history.shape[:3] == (2, 3, 6)
    torch.manual_seed(5)
    assert torch.equal(m(inputs(), num_slots=6, num_iterations=2).slots, plain.slots)


def test_gradients_reach_mu_and_sigma():
    """The commonest defect of other implementations: torch.normal(mu, sigma) has no gradient."""
    m = module()
    torch.manual_seed(0)
    m(inputs()).slots.pow(2).sum().backward()
    for name, parameter in m.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


def test_initial_slots_are_the_learned_gaussian():
    m = module()
    torch.manual_seed(0)
    slots = m.initial_slots(4000, 5).flatten(0, 1)
    torch.testing.assert_close(slots.mean(0), m.mu, rtol=0, atol=0.05)
    torch.testing.assert_close(slots.std(0), m.log_sigma.exp(), rtol=0.03, atol=0)
    torch.manual_seed(0)
    noise = torch.randn(2, 4, 8)
    torch.manual_seed(0)
    torch.testing.assert_close(m.initial_slots(2), m.mu + m.log_sigma.exp() * noise)


def test_initialisation_is_the_references():
    m = SlotAttention(input_dim=64)
    bound = math.sqrt(6 / 65)
    for vector in (m.mu, m.log_sigma):
        assert vector.abs().max() <= bound
        assert vector.abs().max() > 0.8 * bound
    assert m.q.bias is m.k.bias is m.v.bias is None
    assert not m.gru.bias_ih.any()
    assert not m.gru.bias_hh.any()
    torch.testing.assert_close(m.gru.weight_hh.T @ m.gru.weight_hh, torch.eye(64), rtol=0, atol=1e-5)
    assert sum(p.numel() for p in m.parameters()) == 2 * 64 + 3 * 128 + 3 * 4096 + 2 * 3 * 64 * 65 + 129 * 64 + 65 * 128


def test_a_slot_that_attends_to_nothing_stays_finite():
    m = module()
    with torch.no_grad():
        m.q.weight *= 1e4
    slots = m(inputs(), num_slots=6, num_iterations=5)
    assert (slots.attention.sum(2) == 0).any()  # there is one
    assert slots.slots.isfinite().all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"inputs": torch.zeros(2, 12)}, r"inputs must have shape \[B, N, 12\]"),
        ({"inputs": torch.zeros(2, 5, 11)}, r"got \[2, 5, 11\]"),
        ({"inputs": torch.zeros(2, 0, 12)}, "N >= 1"),
        ({"num_slots": 0}, "num_slots must be a whole number of at least 1, got 0"),
        ({"num_slots": 2.0}, "num_slots must be a whole number"),
        ({"num_iterations": 0}, "num_iterations must be a whole number"),
        ({"num_iterations": True}, "num_iterations must be a whole number"),
        ({"slots": torch.zeros(3, 4, 7)}, r"\[2, K, 8\], got \[3, 4, 7\]"),
        ({"slots": torch.zeros(2, 0, 8)}, r"\[2, K, 8\], got \[2, 0, 8\]"),
        ({"slots": torch.zeros(4, 8)}, r"\[2, K, 8\]"),
        ({"slots": torch.zeros(2, 4, 8), "num_slots": 5}, r"\[2, 5, 8\], got \[2, 4, 8\]"),
    ],
)
def test_bad_calls(arguments, message):
    with pytest.raises(ValueError, match=message):
        module()(**{"inputs": inputs(b=2)} | arguments)


@pytest.mark.parametrize("name", ["num_slots", "input_dim", "slot_dim", "num_iterations", "hidden_dim"])
def test_bad_sizes(name):
    with pytest.raises(ValueError, match=f"{name} must be a whole number of at least 1, got -1"):
        SlotAttention(**{name: -1})


def test_position_embedding_is_the_grid_of_the_reference():
    embedding = PositionEmbedding(4)
    with torch.no_grad():
        embedding.project.weight.copy_(torch.eye(4))
        embedding.project.bias.zero_()
    grid = embedding(torch.zeros(1, 4, 3, 5))[0]
    assert grid[:, 0, 0].tolist() == [0, 0, 1, 1]
    assert grid[:, 2, 0].tolist() == [1, 0, 0, 1]
    assert grid[:, 1, 4].tolist() == [0.5, 1, 0.5, 0]


def test_tokens_are_the_places_of_the_map_row_by_row():
    torch.manual_seed(0)
    encoder = ImageTokens((3, 32, 32), channels=8, strides=(1, 2, 2, 1))
    images = torch.rand(2, 3, 32, 48)
    tokens, places = encoder(images)
    assert places == (8, 12)
    assert tokens.shape == (2, 96, 8)
    changed = images.clone()
    changed[:, :, 30:, 44:] = 1 - changed[:, :, 30:, 44:]  # bottom right
    moved = (encoder(changed)[0] - tokens).abs().sum((0, 2)).unflatten(0, places) > 1e-6
    assert moved[-1, -1]
    assert not moved[:4, :6].any()
    assert not moved[-1, :6].any()


def test_images_go_from_minus_one_to_one():
    encoder = ImageTokens((1, 32, 32), channels=4, strides=(1,))
    seen = []
    encoder.convolutions.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    encoder(torch.tensor([0.0, 0.5, 1.0]).reshape(1, 1, 1, 3))
    assert seen[0].flatten().tolist() == [-1, 0, 1]


def test_learning_rate_is_the_references():
    rates = [4e-4 * warm_up_then_decay(t, 1000, 50_000) for t in (0, 1, 1000, 50_000, 150_000)]
    expected = [0, 4e-7 * 0.5 ** (1 / 50_000), 4e-4 * 0.5**0.02, 2e-4, 5e-5]
    assert rates == pytest.approx(expected, rel=1e-12)
    assert warm_up_then_decay(0, 0, 10) == 1


def test_under_autocast():
    m = module()
    with torch.autocast("cpu", torch.bfloat16):
        found = m(inputs())
        found.slots.float().pow(2).sum().backward()
    assert found.slots.isfinite().all()
    assert m.mu.grad.isfinite().all()
    torch.testing.assert_close(found.attention.float().sum(1), torch.ones(3, 20), rtol=0, atol=0.02)
    assert isinstance(m, nn.Module)


# Your own networks, and the reference's padding


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("side", [8, 9])
def test_padding_of_the_reference(stride, side):
    """TensorFlow's SAME: the output at place i sees the inputs from stride * i minus the smaller half of the margin."""
    layer = SameConv2d(1, 1, kernel_size=5, stride=stride, bias=False)
    image = torch.rand(1, 1, side, side, dtype=torch.float64)
    layer.double()
    found = layer(image)[0, 0]
    places = math.ceil(side / stride)
    assert found.shape == (places, places)
    total = max(0, (places - 1) * stride + 5 - side)
    padded = np.pad(image[0, 0].numpy(), (total // 2, total - total // 2))
    kernel = layer.weight[0, 0].detach().numpy()
    expected = [
        [(padded[i * stride : i * stride + 5, j * stride : j * stride + 5] * kernel).sum() for j in range(places)]
        for i in range(places)
    ]
    np.testing.assert_allclose(found.detach().numpy(), expected)


def test_the_transposed_convolution_is_the_transpose_of_the_convolution():
    up = SameConvTranspose2d(2, 3).double()
    down = SameConv2d(3, 2, kernel_size=5, stride=2, bias=False).double()
    with torch.no_grad():
        down.weight.copy_(up.weight)
        up.bias.zero_()
    small, large = torch.rand(1, 2, 4, 4).double(), torch.rand(1, 3, 8, 8).double()
    torch.testing.assert_close((up(small) * large).sum(), (small * down(large)).sum())


def test_a_backbone_of_ones_own_gives_the_tokens(tmp_path):
    @register_network
    def small_backbone(image_shape, width=12):
        return torch.nn.Conv2d(image_shape[0], width, kernel_size=4, stride=4)

    model = SlotSetPredictor(image_shape=(3, 32, 32), num_slots=4, encoder={"name": "small_backbone", "width": 6})
    images = torch.rand(2, 3, 32, 32)
    assert model.predict_sets(images).attention.shape == (2, 4, 8, 8)
    loaded = SlotSetPredictor.from_pretrained(model.save_pretrained(tmp_path))
    torch.manual_seed(0)
    expected = model(images)
    torch.manual_seed(0)
    assert torch.equal(loaded(images), expected)
    with pytest.raises(ValueError, match="needs a map of features"):
        SlotSetPredictor(image_shape=(3, 32, 32), encoder="MLPEncoder")


@pytest.mark.parametrize("padding", ["symmetric", "tensorflow"])
def test_images_of_any_size(padding):
    model = SlotAutoEncoder(
        image_shape=(3, 28, 35), num_slots=2, channels=4, strides=(2, 2), slot_dim=4, padding=padding
    )
    assert model.losses(torch.rand(2, 3, 28, 35))["loss"].isfinite()


# Options of later work


@pytest.mark.parametrize("gradient", ["implicit", "bilevel"])
def test_gradients_of_the_last_iteration(gradient):
    """Values stay; the gradient is that of one iteration; bilevel hands the one of its slots to the initial slots."""
    full, x, start = module().double(), inputs().double(), torch.randn(3, 4, 8).double().requires_grad_()
    m = module(gradient=gradient).double()
    m.load_state_dict(full.state_dict())
    result = m(x, slots=start, return_history=True)
    assert torch.equal(result.slots, full(x, slots=start).slots)
    assert torch.equal(result.history, full(x, slots=start, return_history=True).history)
    result.slots.square().sum().backward()
    before = result.history[-2].detach().requires_grad_()
    once = full.iterate(full.norm_inputs(x), before)[0]
    once.square().sum().backward()
    if gradient == "bilevel":
        torch.testing.assert_close(start.grad, before.grad)
    else:
        assert start.grad is None
    for name, parameter in full.named_parameters():
        if name not in ("mu", "log_sigma"):
            torch.testing.assert_close(m.get_parameter(name).grad, parameter.grad)


def test_learned_slots():
    m = module(initial="learned", gradient="bilevel")
    assert set(dict(m.named_parameters())) - set(dict(module().named_parameters())) == set()
    assert m.mu.shape == (4, 8)
    assert torch.equal(m.initial_slots(3), m.mu.expand(3, -1, -1))
    m.noise.fill_(0.5)
    torch.manual_seed(0)
    noisy = m.initial_slots(3)
    torch.manual_seed(0)
    torch.testing.assert_close(noisy, m.mu * (1 + 0.5 * torch.randn(3, 4, 8)))
    noisy.sum().backward()
    assert torch.equal(m.mu.grad, torch.full((4, 8), 3.0))  # none through the noise
    assert torch.equal(m.eval().initial_slots(3), m.mu.expand(3, -1, -1))
    m.zero_grad()
    m(inputs()).slots.square().sum().backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in m.parameters())
    with pytest.raises(ValueError, match="These 4 slots are learned, so num_slots cannot become 5"):
        m(inputs(), num_slots=5)


def test_the_offset_holds_back_slots_of_little_attention():
    m, x = module(), inputs()
    slots = torch.randn(3, 4, 8)
    attention = m(x, slots=slots, num_iterations=1).attention
    m.offset = 1.0
    weights = attention + 1e-8
    updates = m.v(weights @ m.norm_inputs(x) / (weights.sum(2, keepdim=True) + 1))
    state = m.gru(updates.flatten(0, 1), slots.flatten(0, 1)).view_as(slots)
    torch.testing.assert_close(m(x, slots=slots, num_iterations=1).slots, state + m.mlp(m.norm_mlp(state)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"initial": "fixed"}, "initial must be 'gaussian' or 'learned', got 'fixed'"),
        ({"gradient": "none"}, "gradient must be 'full', 'implicit' or 'bilevel', got 'none'"),
        ({"initial": "learned", "gradient": "implicit"}, "never trains learned initial slots: take 'bilevel'"),
        ({"offset": -1.0}, "offset must be finite and not negative"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        SlotAttention(4, 8, **options)
