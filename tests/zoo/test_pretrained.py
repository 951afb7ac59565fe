"""save_pretrained and from_pretrained: exact round trips, and one clear line for everything that can be wrong."""

import itertools
import json
import os
import pickle
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from unknot.zoo import VAE, BetaVAE, pretrained

SHAPE = (1, 32, 32)


def images(shape=SHAPE):
    return torch.rand(3, *shape, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    model = BetaVAE(beta=2.5, image_shape=SHAPE, latent_dim=3, lr=3e-4, likelihood="gaussian")
    model.trained_on = "dsprites"
    return model.eval()


@pytest.fixture
def folder(model, tmp_path):
    return model.save_pretrained(tmp_path / "saved")


def edit_config(folder, **changes):
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["arguments"].update(changes.pop("arguments", {}))
    path.write_text(json.dumps(config | changes))


def refused(folder, file, message, error=ValueError):
    """Loading fails with one line that starts with the file's path."""
    with pytest.raises(error, match=message) as caught:
        BetaVAE.from_pretrained(folder)
    text = str(caught.value)
    assert text.startswith(f"{folder / file}: ")
    assert "\n" not in text
    return text


# Round trips


def test_round_trip_is_exact(model, folder):
    loaded, x = BetaVAE.from_pretrained(folder), images()
    assert type(loaded) is BetaVAE
    assert dict(loaded.hparams) == dict(model.hparams)
    assert (loaded.beta, loaded.lr, loaded.hparams.likelihood) == (2.5, 3e-4, "gaussian")
    assert (loaded.image_shape, loaded.latent_dim) == (SHAPE, 3)
    for one, other in zip(model.encode(x), loaded.encode(x), strict=True):
        assert torch.equal(one, other)
    assert torch.equal(model.reconstruct(x), loaded.reconstruct(x))


def test_a_second_round_trip_writes_the_same_bytes(folder, tmp_path):
    again = BetaVAE.from_pretrained(folder).save_pretrained(tmp_path / "again")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        path.name: path.read_bytes() for path in again.iterdir()
    }


def test_numbers_of_numpy_are_numbers(tmp_path):
    BetaVAE(beta=np.float32(2.5), lr=np.float64(1e-3)).save_pretrained(tmp_path)
    loaded = BetaVAE.from_pretrained(tmp_path)
    assert (loaded.beta, loaded.lr) == (2.5, 1e-3)


def test_defaults_and_other_shapes(tmp_path):
    for model in (BetaVAE(), VAE(image_shape=(3, 32, 48), latent_dim=1)):
        loaded = type(model).from_pretrained(model.save_pretrained(tmp_path / type(model).__name__))
        assert dict(loaded.hparams) == dict(model.hparams)
        assert torch.equal(loaded(images(model.image_shape)), model(images(model.image_shape)))


def test_loads_ready_to_use_and_to_train(folder):
    loaded = BetaVAE.from_pretrained(folder)
    assert not any(module.training for module in loaded.modules())
    assert all(parameter.requires_grad and parameter.is_leaf for parameter in loaded.parameters())
    loaded.losses(images())["loss"].backward()
    optimizer = loaded.configure_optimizers()
    before = loaded.encoder.mean.weight.detach().clone()
    optimizer.step()
    assert not torch.equal(loaded.encoder.mean.weight, before)


@pytest.mark.parametrize("name", ["dsprites", "my own", None])
def test_the_data_set_is_remembered(folder, name):
    model = BetaVAE.from_pretrained(folder)
    model.trained_on = name
    assert BetaVAE.from_pretrained(model.save_pretrained(folder)).trained_on == name


def test_paths_may_be_strings(model, tmp_path):
    folder = model.save_pretrained(str(tmp_path / "a" / "b"))
    assert folder == tmp_path / "a" / "b"
    assert BetaVAE.from_pretrained(str(folder)).beta == 2.5


def test_the_files_are_data(folder):
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors"]
    config = json.loads((folder / "config.json").read_text())
    assert config["model"] == "BetaVAE"
    assert config["dataset"] == "dsprites"
    assert config["arguments"] == {
        "beta": 2.5,
        "image_shape": [1, 32, 32],
        "latent_dim": 3,
        "lr": 3e-4,
        "likelihood": "gaussian",
        "encoder": None,
        "decoder": None,
        "reconstruction_weight": 1.0,
    }


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_precisions_load_as_float32(folder, model, dtype):
    model.save_pretrained(folder, dtype=dtype)
    loaded = BetaVAE.from_pretrained(folder)
    assert {value.dtype for value in loaded.state_dict().values()} == {torch.float32}
    for name, value in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], value.to(dtype).float())


def test_a_loaded_model_does_not_depend_on_the_file(folder, model):
    loaded = BetaVAE.from_pretrained(folder)
    size = (folder / "model.safetensors").stat().st_size
    with open(folder / "model.safetensors", "r+b") as file:  # in place, as a copy over it would
        file.seek(size // 2)
        file.write(bytes(size - size // 2))
    for name, value in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], value)


def test_loading_does_not_move_the_random_state(folder):
    state = torch.get_rng_state()
    BetaVAE.from_pretrained(folder)
    assert torch.equal(torch.get_rng_state(), state)


# Saving


def test_an_existing_checkpoint_is_replaced(folder):
    BetaVAE(beta=7.0, image_shape=(3, 32, 32)).save_pretrained(folder)
    assert BetaVAE.from_pretrained(folder).beta == 7.0


def fail(*_args, **_kwargs):
    raise OSError("No space left on device")


def fail_half_way(tensors, filename, metadata=None):
    Path(filename).write_bytes(b"half")
    fail()


@pytest.mark.parametrize(
    ("target", "name", "failure"),
    [
        (pretrained, "save_file", fail),
        (pretrained, "save_file", fail_half_way),
        (Path, "write_text", fail),
        (os, "replace", fail),
    ],
    ids=["weights", "half of the weights", "config", "rename"],
)
def test_an_interrupted_save_leaves_the_old_checkpoint(folder, monkeypatch, target, name, failure):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with monkeypatch.context() as patch:
        patch.setattr(target, name, failure)
        with pytest.raises(OSError, match="No space left"):
            BetaVAE(beta=9.0, image_shape=SHAPE, latent_dim=3).save_pretrained(folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize("point", range(10))
@pytest.mark.parametrize("recorded", [True, False], ids=["hash", "no hash"])
def test_a_save_that_is_killed_leaves_the_old_pair_or_the_new_one(folder, model, point, recorded):
    if not recorded:  # as earlier versions saved it
        config = json.loads((folder / "config.json").read_text())
        del config["weights"]
        (folder / "config.json").write_text(json.dumps(config))
    old, new = model, BetaVAE(beta=9.0, image_shape=SHAPE, latent_dim=3)
    if os.fork() == 0:  # a real kill at each call that changes the folder
        count = itertools.count()

        def counting(call):
            def counted(*arguments):
                if next(count) == point:
                    os.kill(os.getpid(), signal.SIGKILL)
                return call(*arguments)

            return counted

        for name in ("link", "fsync", "replace", "unlink"):
            setattr(os, name, counting(getattr(os, name)))
        new.save_pretrained(folder)
        os._exit(0)
    os.wait()
    loaded = BetaVAE.from_pretrained(folder)
    expected = {old.beta: old, new.beta: new}[loaded.beta]
    for name, value in expected.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], value)
    new.save_pretrained(folder)
    assert {path.name for path in folder.iterdir() if not path.name.endswith(".part")} == {
        "config.json",
        "model.safetensors",
    }


def test_weights_that_the_configuration_does_not_know_are_refused(folder, model):
    other = BetaVAE(image_shape=SHAPE, latent_dim=3)
    save_file({name: value.contiguous() for name, value in other.state_dict().items()}, folder / "model.safetensors")
    with pytest.raises(ValueError, match=r"not the weights that config\.json belongs to.*remove \"weights\""):
        BetaVAE.from_pretrained(folder)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
@pytest.mark.parametrize("kind", ["fifo", "device"])
def test_files_that_are_not_regular_are_refused_at_once(folder, name, kind):
    (folder / name).unlink()
    os.mkfifo(folder / name) if kind == "fifo" else (folder / name).symlink_to("/dev/zero")
    with pytest.raises(ValueError, match="not a regular file"):
        BetaVAE.from_pretrained(folder)


def test_an_interrupted_first_save_leaves_nothing(model, tmp_path, monkeypatch):
    monkeypatch.setattr(pretrained, "save_file", fail_half_way)
    with pytest.raises(OSError, match="No space left"):
        model.save_pretrained(tmp_path / "new")
    assert not list((tmp_path / "new").iterdir())


def test_a_file_is_no_folder_to_save_into(model, tmp_path):
    path = tmp_path / "file"
    path.write_text("mine")
    with pytest.raises(FileExistsError, match="file is a file; save_pretrained needs a folder"):
        model.save_pretrained(path)
    assert path.read_text() == "mine"


# Loading what is not there, or not ours


def test_wrong_class(folder):
    with pytest.raises(ValueError, match=r"config.json: this is a BetaVAE, not a VAE. Load it with BetaVAE") as error:
        VAE.from_pretrained(folder)
    assert "unknot.hub.load" in str(error.value)


@pytest.mark.parametrize("make", [lambda path: None, lambda path: path.write_text("")], ids=["missing", "file"])
def test_no_folder(tmp_path, make):
    make(tmp_path / "none")
    with pytest.raises(FileNotFoundError, match=r"none: no such folder. Give a folder that save_pretrained"):
        BetaVAE.from_pretrained(tmp_path / "none")


def test_no_config(folder):
    (folder / "config.json").unlink()
    refused(folder, "config.json", "no such file in .*; it does not hold a saved model", FileNotFoundError)


def test_no_weights(folder):
    (folder / "model.safetensors").unlink()
    refused(folder, "model.safetensors", "no such file; the folder holds a config but no weights", FileNotFoundError)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not valid JSON .* Save the model again"),
        (b"{", "not valid JSON"),
        (b'{"model": "BetaVAE", "arguments": {}', "not valid JSON"),
        (b"\xff\xfe\x00", "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
        (b'{"arguments": ' + b"1" * 10_000 + b"}", "not valid JSON"),
        (b"[]", "expected an object with 'model' and 'arguments'"),
        (b"null", "expected an object with 'model' and 'arguments'"),
        (b'"BetaVAE"', "expected an object with 'model' and 'arguments'"),
        (b"{}", "expected an object with 'model' and 'arguments'"),
        (b'{"model": "BetaVAE", "arguments": [1]}', "expected an object with 'model' and 'arguments'"),
        (b'{"model": "BetaVAE", "arguments": {}, "code": "x", "b": 1}', r"unknown keys \['b', 'code'\]; known are .*"),
        (b'{"arguments": {}}', "'model' must be a name"),
        (b'{"model": 3, "arguments": {}}', "'model' must be a name"),
        (b'{"model": "BetaVAE", "arguments": {}, "dataset": 3}', "'dataset' a name or null"),
        (b'{"model": "BetaVAE", "arguments": {}, "annealed": 3}', "'annealed' must be an object"),
        (
            b'{"model": "BetaVAE", "arguments": {}, "annealed": {"beta": {"start": "x"}}}',
            "'annealed' must be an object",
        ),
        (
            b'{"model": "BetaVAE", "arguments": {"gamma": 1}}',
            r"BetaVAE has no arguments \['gamma'\]; it takes .*'beta'",
        ),
        (b'{"model": "BetaVAE", "arguments": {"self": 1}}', r"no arguments \['self'\]"),
    ],
)
def test_unusable_configs(folder, content, message):
    (folder / "config.json").write_bytes(content)
    refused(folder, "config.json", message)


@pytest.mark.parametrize(
    "arguments",
    [
        {"latent_dim": 10**30},
        {"latent_dim": 2**63 - 1},
        {"latent_dim": 0},
        {"latent_dim": 2.5},
        {"latent_dim": "3"},
        {"latent_dim": None},
        {"latent_dim": [3]},
        {"image_shape": ["1", "32", "32"]},
        {"image_shape": [32, 32]},
        {"image_shape": [1, 32, 32, 32]},
        {"image_shape": [1, 32.0, 32.0]},
        {"image_shape": [1, 16 * 10**9, 16 * 10**9]},
        {"image_shape": [10**18, 32, 32]},
        {"image_shape": {"a": 1}},
        {"image_shape": 64},
        {"image_shape": None},
        {"likelihood": "bernoulli", "reconstruction": "l1"},
        {"likelihood": "bernoulli", "reconstruction": ["bernoulli"]},
        {"likelihood": "os.system"},
        {"likelihood": "ConvEncoder"},
        {"encoder": "bernoulli"},
        {"encoder": {"name": "os.system"}},
        {"encoder": {"name": "ConvEncoder", "strange": 1}},
        {"encoder": {"name": "ResidualEncoder", "blocks": 10**9}},
        {"encoder": {"name": "ResidualEncoder", "image_shape": [2, 32, 32]}},
        {"decoder": {"name": "MLPDecoder", "latent_dim": 4}},
        {"decoder": {"name": "MLPDecoder", "image_shape": [1, 16, 16]}},
        {"decoder": {"name": "MLPDecoder", "hidden": "many"}},
    ],
    ids=str,
)
def test_arguments_that_build_nothing(folder, arguments):
    edit_config(folder, arguments=arguments)
    refused(folder, "config.json", "these arguments do not build a BetaVAE: .")


@pytest.mark.parametrize("arguments", [{"latent_dim": 10**12}, {"image_shape": [1, 16 * 10**5, 16 * 10**5]}], ids=str)
def test_hostile_sizes_are_refused_before_they_are_allocated(folder, arguments):
    edit_config(folder, arguments=arguments)  # terabytes: allocating would fail, with another message
    refused(folder, "model.safetensors", "not the weights of this BetaVAE .* must come from the same model")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: {"other": torch.zeros(2)}, r"no decoder.0.bias; .* and 24 more"),
        (lambda w: w | {"extra": torch.zeros(2)}, r"\(unexpected extra\)"),
        (lambda w: {n: v for n, v in w.items() if n != "encoder.mean.bias"}, r"\(no encoder.mean.bias\)"),
        (lambda w: w | {"encoder.mean.bias": torch.zeros(4)}, r"\(encoder.mean.bias is \(4,\) and not \(3,\)\)"),
        (lambda w: w | {"encoder.mean.bias": torch.zeros(3, 1)}, r"is \(3, 1\) and not \(3,\)"),
        (lambda w: w | {"encoder.mean.bias": torch.zeros(())}, r"is \(\) and not \(3,\)"),
        (lambda w: w | {"encoder.mean.bias": torch.zeros(3, dtype=torch.int32)}, r"\(encoder.mean.bias is I32\)"),
        (lambda w: {}, "no decoder.0.bias"),
    ],
)
def test_foreign_weights(folder, change, message):
    path = folder / "model.safetensors"
    save_file(change(load_file(path)), path)
    refused(folder, "model.safetensors", message)


def test_weights_of_another_size_of_model(folder, tmp_path):
    other = BetaVAE(image_shape=SHAPE, latent_dim=4).save_pretrained(tmp_path / "other")
    (other / "model.safetensors").rename(folder / "model.safetensors")
    refused(folder, "model.safetensors", r"encoder.mean.weight is \(4, 256\) and not \(3, 256\)")


# Broken and hostile files


def header_size(data):
    return 8 + int.from_bytes(data[:8], "little")


def test_weights_cut_short_anywhere(folder):
    path = folder / "model.safetensors"
    data = path.read_bytes()
    header = header_size(data)
    near = [0, 1, 7, 8, 9, header - 1, header, header + 1, len(data) - 4, len(data) - 1]
    for length in sorted({*near, *range(0, len(data), len(data) // 40)}):
        path.write_bytes(data[:length])
        refused(folder, "model.safetensors", "not a whole safetensors file .* Copy or save it again")


def test_weights_with_something_after_them(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes() + b"more")
    refused(folder, "model.safetensors", "not a whole safetensors file")


@pytest.mark.parametrize("length", [0, 1, 2**31, 2**63, 2**64 - 1])
def test_false_header_lengths(folder, length):
    path = folder / "model.safetensors"
    path.write_bytes(length.to_bytes(8, "little") + path.read_bytes()[8:])
    refused(folder, "model.safetensors", "not a whole safetensors file")


@settings(
    max_examples=200, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(choice=st.data())
def test_damaged_headers_are_refused_or_harmless(folder, model, choice):
    good = (folder / "model.safetensors").read_bytes()
    positions = st.integers(0, header_size(good) - 1)
    data = bytearray(good)
    for position, byte in choice.draw(st.dictionaries(positions, st.integers(0, 255), min_size=1, max_size=3)).items():
        data[position] = byte
    damaged = folder.with_name("damaged")
    damaged.mkdir(exist_ok=True)
    (damaged / "config.json").write_bytes((folder / "config.json").read_bytes())
    (damaged / "model.safetensors").write_bytes(data)
    loaded, message = None, ""
    try:
        loaded = BetaVAE.from_pretrained(damaged)
    except ValueError as error:
        message = str(error)
    if loaded is None:
        assert message.startswith(f"{damaged / 'model.safetensors'}: not ")
    else:
        expected = {name: (value.shape, torch.float32) for name, value in model.state_dict().items()}
        assert {name: (value.shape, value.dtype) for name, value in loaded.state_dict().items()} == expected


class Bomb:
    """Leaves a mark when it is unpickled."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return Path.touch, (self.mark,)


@pytest.mark.parametrize("write", [lambda bomb, path: path.write_bytes(pickle.dumps(bomb)), torch.save])
def test_pickles_are_refused_and_never_run(folder, tmp_path, write):
    mark = tmp_path / "mark"
    write(Bomb(mark), folder / "model.safetensors")
    refused(folder, "model.safetensors", "not a whole safetensors file")
    assert not mark.exists()
    pickle.loads(pickle.dumps(Bomb(mark)))
    assert mark.exists()  # the bomb works
