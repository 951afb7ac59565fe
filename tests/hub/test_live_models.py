"""Models of the zoo in a real browser: the same numbers as in PyTorch, and bounds against hostile files."""

import base64
import functools
import http.server
import json
import random
import shutil
import threading
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from unknot import checkpoints
from unknot.clevr_objects import CLASSES, PARTS
from unknot.hub.browser import in_browser
from unknot.hub.web.pages import PAGE
from unknot.zoo import MODELS, VAE, BetaVAE, SlotAutoEncoder, SlotMLPSetPredictor, SlotSetPredictor

webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium")

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="needs Debian's chromium and chromium-driver")

RUN = """
const [config, weights, action, given, done] = arguments;
import("./models.js").then(async ({ modelOf }) => {
  const { LiveModel } = await import("./live-model.js");
  const bytes = Uint8Array.from(atob(weights), (letter) => letter.charCodeAt(0)).buffer;
  const start = performance.now();
  try {
    const worker = new LiveModel();
    const model = await worker.ask("load", { config, weights: bytes });
    const arrays = (value) => value.map((row) => Float32Array.from(row));
    const asked = {
      encode: () => ({ images: arrays(given) }),
      decode: () => ({ codes: arrays(given) }),
      look: () => ({ ...given, image: Float32Array.from(given.image), noise: Float64Array.from(given.noise) }),
    };
    const entries = (value) => Object.fromEntries(Object.entries(value).map(([name, part]) => [name, plain(part)]));
    const plain = (value) => ArrayBuffer.isView(value) ? Array.from(value)
      : Array.isArray(value) ? value.map(plain)
      : value && typeof value === "object" ? entries(value) : value;
    const result = action ? plain(await worker.ask(action, asked[action]())) : model;
    worker.close("done");
    done({ result, time: performance.now() - start });
  } catch (error) {
    done({ error: error.message, time: performance.now() - start });
  }
}).catch((error) => done({ error: `page: ${error.message}` }));
"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Files of a folder, without a word."""

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """A page that can import the scripts, under the policy of the static site."""
    folder = tmp_path_factory.mktemp("scripts")
    shutil.copytree(PAGE, folder / "page")
    (folder / "index.html").write_text('<!DOCTYPE html><base href="/"><title>scripts</title>')
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu"):
        options.add_argument(argument)
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    driver.set_script_timeout(60)
    driver.get(f"http://127.0.0.1:{server.server_port}/")
    yield driver
    driver.quit()
    server.shutdown()


def run(browser, folder, action=None, given=None, weights=None):
    """Ask the page's scripts for a model's outputs; gives the answer, or the message of an error."""
    config = (folder / "config.json").read_text(encoding="utf-8", errors="replace")
    weights = (folder / "model.safetensors").read_bytes() if weights is None else weights
    script = RUN.replace('"./', '"/page/')
    answer = browser.execute_async_script(script, config, base64.b64encode(weights).decode(), action, given)
    assert not str(answer.get("error", "")).startswith("page:"), answer
    return answer


def lively(model):
    """A model whose weights differ from their first values, the statistics of batch normalisation included."""
    torch.manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
        for name, buffer in model.named_buffers():
            if name.endswith(("running_mean", "running_var")):
                buffer.add_(torch.rand_like(buffer))
    return model.eval()


RESIDUAL = {"name": "ResidualEncoder", "width": 8, "blocks": 2, "features": 40}
NETWORKS = {
    "conv": {},
    "conv of odd sides": {"image_shape": (3, 40, 28), "latent_dim": 3},
    "conv of larger images": {"image_shape": (3, 96, 80), "latent_dim": 5},
    "residual": {"image_shape": (3, 48, 36), "encoder": RESIDUAL, "decoder": {"name": "ResidualDecoder", "width": 6}},
    "mlp": {"image_shape": (1, 9, 7), "encoder": {"name": "MLPEncoder", "hidden": [31]}, "decoder": "MLPDecoder"},
    "gaussian": {"image_shape": (1, 16, 16), "likelihood": {"name": "gaussian", "variance": "learned"}},
    "unbounded": {"image_shape": (1, 16, 16), "likelihood": {"name": "gaussian", "bounded": False}},
    "continuous": {"image_shape": (1, 16, 16), "likelihood": "continuous_bernoulli"},
}


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_latents_and_images_are_those_of_pytorch(browser, tmp_path, name, dtype):
    model = lively(BetaVAE(**{"image_shape": (1, 32, 32), "latent_dim": 4} | NETWORKS[name]))
    folder = model.save_pretrained(tmp_path / "model", dtype=dtype)
    loaded = BetaVAE.from_pretrained(folder)
    images, codes = torch.rand(3, *model.image_shape), torch.randn(5, model.latent_dim)
    with torch.no_grad():
        posterior, decoded = loaded.encode(images), loaded.decode(codes).flatten(1)
    mean, logvar = run(browser, folder, "encode", images.flatten(1).tolist())["result"]
    torch.testing.assert_close(torch.tensor(mean), posterior.mean, atol=2e-5, rtol=1e-4)
    torch.testing.assert_close(torch.tensor(logvar), posterior.logvar, atol=2e-5, rtol=1e-4)
    shown = run(browser, folder, "decode", codes.tolist())["result"]
    torch.testing.assert_close(torch.tensor(shown), decoded, atol=2e-5, rtol=1e-4)


SLOTS = {
    "autoencoder": (SlotAutoEncoder, {"padding": "symmetric"}),
    "autoencoder padded as TensorFlow does": (SlotAutoEncoder, {"padding": "tensorflow", "image_shape": (3, 40, 36)}),
    "learned slots": (SlotAutoEncoder, {"initial": "learned", "gradient": "bilevel", "offset": 1.0}),
    "set predictor": (SlotSetPredictor, {"batch_norm": True}),
    "mlp": (SlotMLPSetPredictor, {"pooled": 3, "hidden_dim": 20}),
}


@pytest.mark.parametrize("name", SLOTS)
def test_slots_are_those_of_pytorch(browser, tmp_path, name):
    cls, more = SLOTS[name]
    model = lively(cls(**{"image_shape": (3, 32, 32), "num_slots": 4, "channels": 8, "strides": (1, 2, 2, 1)} | more))
    folder = model.save_pretrained(tmp_path / "model")
    image = torch.rand(1, *model.image_shape)
    torch.manual_seed(1)
    noise = torch.randn(1, 4, 64)
    torch.manual_seed(1)  # so that PyTorch starts from the same slots
    given = {"image": image.flatten().tolist(), "noise": noise.flatten().tolist(), "iterations": 3}
    answer = run(browser, folder, "look", given)
    assert "error" not in answer, answer
    with torch.no_grad():
        if cls is SlotAutoEncoder:
            expected = model.decompose(image)
            pairs = {"reconstruction": expected.reconstruction, "parts": expected.parts, "masks": expected.masks}
        else:
            predicted = model.predict_sets(image)
            pairs = {"sets": predicted.sets, "attention": predicted.attention}
    for part, value in pairs.items():
        if value is not None:
            found = torch.tensor(answer["result"][part]).flatten()
            torch.testing.assert_close(found, value.flatten(), atol=5e-5, rtol=1e-3)


def test_the_lists_of_the_page_are_those_of_the_zoo():
    zoo = {name: cls for name, cls in MODELS.items() if cls.__module__.startswith("unknot.")}
    vaes = {name: cls for name, cls in zoo.items() if issubclass(cls, VAE)}
    same = {name for name, cls in vaes.items() if (cls.encode, cls.decode) == (VAE.encode, VAE.decode)}
    assert in_browser._listed("models.js", "VAES") == same
    assert {name: in_browser.capabilities_of(name) for name in zoo} == {
        name: cls.capabilities for name, cls in zoo.items()
    }
    text = (PAGE / "scenes.js").read_text()
    for name, classes in CLASSES.items():
        assert f'["{name}", {PARTS[name].start}, {json.dumps(list(classes))}]' in text


HOSTILE = {
    "two files": ({"model": "BetaVAE", "arguments": {"image_shape": [1, 10**9, 10**9]}}, "image_shape must be"),
    "many latents": ({"model": "BetaVAE", "arguments": {"latent_dim": 10**9}}, "latent_dim must be"),
    "many layers": (
        {"model": "BetaVAE", "arguments": {"encoder": {"name": "MLPEncoder", "hidden": [5] * 10**5}}},
        "hidden must be",
    ),
    "many iterations": ({"model": "SlotAutoEncoder", "arguments": {"num_iterations": 10**9}}, "num_iterations must be"),
    "no stride": ({"model": "SlotSetPredictor", "arguments": {"strides": [0]}}, "Each of strides must be"),
    "a network of nobody": ({"model": "BetaVAE", "arguments": {"encoder": "toString"}}, "runs in Python only"),
    "no object": ([], "config.json must name a model"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_configurations_are_refused(browser, tmp_path, make, name):
    config, message = HOSTILE[name]
    folder = make().save_pretrained(tmp_path / "model")
    (folder / "config.json").write_text(json.dumps(config))
    answer = run(browser, folder)
    assert message in answer["error"]


def test_large_networks_are_refused_before_anything_is_allocated(browser, tmp_path, make):
    """The header names sizes that the file need not have: nothing is believed before it is checked."""
    folder = make().save_pretrained(tmp_path / "model")
    header = json.dumps({"decoder.0.weight": {"dtype": "F16", "shape": [2**40, 2**40], "data_offsets": [0, 2]}})
    weights = len(header).to_bytes(8, "little") + header.encode() + b"\0\0"
    assert "does not have the size of its shape" in run(browser, folder, weights=weights)["error"]
    wide = {"name": "ResidualDecoder", "width": 4096}
    config = {"model": "BetaVAE", "arguments": {"image_shape": [3, 512, 512], "decoder": wide}}
    (folder / "config.json").write_text(json.dumps(config))
    assert "error" in run(browser, folder)


def mutated(seed, config, weights):
    """A configuration and weights with a few changes that nobody meant."""
    chance = random.Random(seed)
    config, weights = json.loads(json.dumps(config)), bytearray(weights)
    values = [0, -1, 1e400, 10**9, None, "x", [], {}, [1] * 1000, True, "ConvDecoder", {"name": "MLPDecoder"}, 0.5]
    for _ in range(chance.randint(0, 3)):
        name = chance.choice([*config["arguments"], "encoder", "decoder", "likelihood", "latent_dim", "image_shape"])
        config["arguments"][name] = chance.choice(values)
    for _ in range(chance.randint(0, 6)):
        place = chance.choice([chance.randrange(len(weights)), chance.randrange(min(3000, len(weights)))])
        weights[place] = chance.randrange(256)
    if chance.random() < 0.2:
        del weights[chance.randrange(len(weights)) :]
    return json.dumps(config), bytes(weights)


def check_mutated(browser, tmp_path, folders, count):
    """Every mutation gives an image or a sentence, at the latest when the worker ends, and the tab keeps working."""
    slowest = 0.0
    for seed in range(count):
        source = folders[seed % len(folders)]
        config = json.loads((source / "config.json").read_text())
        text, weights = mutated(seed, config, (source / "model.safetensors").read_bytes())
        folder = tmp_path / "mutated"
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(text)
        action, given = ("decode", [[0.0] * 3]) if "latent_dim" in config["arguments"] else (None, None)
        answer = run(browser, folder, action, given, weights)
        assert "result" in answer or isinstance(answer["error"], str)
        slowest = max(slowest, answer["time"])
    print(f"slowest: {slowest:.0f} ms")
    assert browser.title == "scripts"


def test_mutated_checkpoints_neither_hang_nor_crash_the_tab(browser, tmp_path, make):
    slots = SlotAutoEncoder(image_shape=(3, 32, 32), num_slots=3, channels=8, strides=(2, 2, 1, 1))
    folders = [make().save_pretrained(tmp_path / "vae"), slots.save_pretrained(tmp_path / "slots")]
    check_mutated(browser, tmp_path, folders, 40)


@pytest.mark.slow
def test_mutated_bundled_checkpoints(browser, tmp_path):
    names = ("adagvae-dsprites32", "adagvae-rooms32", "slotautoencoder-scenes", "slotsetpredictor-scenes")
    folders = [Path(checkpoints.__file__).parent / "bundled" / name for name in names]
    check_mutated(browser, tmp_path, folders, 200)


def test_weights_of_another_model_are_refused(browser, tmp_path, make):
    folder = make().save_pretrained(tmp_path / "model")
    weights = load_file(folder / "model.safetensors")
    save_file(weights | {"more": torch.zeros(1)}, tmp_path / "more.safetensors")
    more = (tmp_path / "more.safetensors").read_bytes()
    assert "nothing takes more" in run(browser, folder, weights=more)["error"]
    del weights["decoder.0.bias"]
    save_file(weights, tmp_path / "less.safetensors")
    less = (tmp_path / "less.safetensors").read_bytes()
    assert "there is no decoder.0.bias" in run(browser, folder, weights=less)["error"]
