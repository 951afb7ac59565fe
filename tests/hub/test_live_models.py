"""Models of the zoo in a real browser: the same numbers as in PyTorch, and bounds against hostile files."""

import base64
import json
import random
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from unknot import checkpoints
from unknot.clevr_objects import CLASSES, PARTS
from unknot.hub.browser import in_browser
from unknot.hub.web.pages import PAGE
from unknot.zoo import MODELS, VAE, BetaVAE, SlotAutoEncoder, SlotMLPSetPredictor, SlotSetPredictor

RUN = """
const [config, action, given, done] = arguments;
import("./models.js").then(async ({ modelOf }) => {
  const { LiveModel } = await import("./live-model.js");
  const bytesOf = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const bytes = await (await fetch("/model.safetensors", { cache: "no-store" })).arrayBuffer();
  const start = performance.now();
  try {
    const worker = new LiveModel();
    const model = await worker.ask("load", { config, weights: bytes });
    const arrays = ({ shape, base64 }) => {
      const values = new Float32Array(bytesOf(base64).buffer);
      const length = values.length / shape[0];
      return Array.from({ length: shape[0] }, (_, row) => values.subarray(row * length, (row + 1) * length));
    };
    const asked = {
      encode: () => ({ images: arrays(given) }),
      decode: () => ({ codes: arrays(given) }),
      look: () => ({
        iterations: given.iterations,
        image: arrays(given.image)[0],
        noise: Float64Array.from(arrays(given.noise)[0]),
      }),
    };
    const entries = (value) => Object.fromEntries(Object.entries(value).map(([name, part]) => [name, plain(part)]));
    const textOf = (bytes) => btoa(bytes.reduce((text, byte) => text + String.fromCharCode(byte), ""));
    const plain = (value) => ArrayBuffer.isView(value)
      ? { base64: textOf(new Uint8Array(Float32Array.from(value).buffer)) }
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


@pytest.fixture(scope="module")
def scripts(browser, web_host, tmp_path_factory):
    """A page that can import the scripts."""
    folder = tmp_path_factory.mktemp("scripts")
    shutil.copytree(PAGE, folder / "page")
    (folder / "index.html").write_text('<!DOCTYPE html><base href="/"><title>scripts</title>')
    browser.set_script_timeout(60)
    with web_host(folder) as url:
        browser.get(url)
        browser.folder = folder
        yield browser


def run(scripts, folder, action=None, given=None, weights=None):
    """Ask the page's scripts for a model's outputs; gives the answer, or the message of an error."""
    config = (folder / "config.json").read_text(encoding="utf-8", errors="replace")
    weights = (folder / "model.safetensors").read_bytes() if weights is None else weights
    script = RUN.replace('"./', '"/page/')
    (scripts.folder / "model.safetensors").write_bytes(weights)  # much faster than through the driver
    answer = scripts.execute_async_script(script, config, action, given)
    assert not str(answer.get("error", "")).startswith("page:"), answer
    return answer


def sent(tensor):
    """A tensor as the scripts take it: lists of numbers are slow to send."""
    content = tensor.detach().float().contiguous().numpy().tobytes()
    return {"shape": list(tensor.shape), "base64": base64.b64encode(content).decode()}


def got(value):
    """An array of the scripts, or a list of them, as a tensor."""
    if isinstance(value, list):
        return torch.stack([got(part) for part in value])
    return torch.frombuffer(bytearray(base64.b64decode(value["base64"])), dtype=torch.float32)


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
def test_latents_and_images_are_those_of_pytorch(scripts, tmp_path, name, dtype):
    model = lively(BetaVAE(**{"image_shape": (1, 32, 32), "latent_dim": 4} | NETWORKS[name]))
    folder = model.save_pretrained(tmp_path / "model", dtype=dtype)
    loaded = BetaVAE.from_pretrained(folder)
    images, codes = torch.rand(3, *model.image_shape), torch.randn(5, model.latent_dim)
    with torch.no_grad():
        posterior, decoded = loaded.encode(images), loaded.decode(codes).flatten(1)
    mean, logvar = run(scripts, folder, "encode", sent(images))["result"]
    torch.testing.assert_close(got(mean), posterior.mean, atol=2e-5, rtol=1e-4)
    torch.testing.assert_close(got(logvar), posterior.logvar, atol=2e-5, rtol=1e-4)
    shown = run(scripts, folder, "decode", sent(codes))["result"]
    torch.testing.assert_close(got(shown), decoded, atol=2e-5, rtol=1e-4)


SLOTS = {
    "autoencoder": (SlotAutoEncoder, {"padding": "symmetric"}),
    "autoencoder padded as TensorFlow does": (SlotAutoEncoder, {"padding": "tensorflow", "image_shape": (3, 40, 36)}),
    "learned slots": (SlotAutoEncoder, {"initial": "learned", "gradient": "bilevel", "offset": 1.0}),
    "set predictor": (SlotSetPredictor, {"batch_norm": True}),
    "mlp": (SlotMLPSetPredictor, {"pooled": 3, "hidden_dim": 20}),
}


@pytest.mark.parametrize("name", SLOTS)
def test_slots_are_those_of_pytorch(scripts, tmp_path, name):
    cls, more = SLOTS[name]
    model = lively(cls(**{"image_shape": (3, 32, 32), "num_slots": 4, "channels": 8, "strides": (1, 2, 2, 1)} | more))
    folder = model.save_pretrained(tmp_path / "model")
    image = torch.rand(1, *model.image_shape)
    torch.manual_seed(1)
    noise = torch.randn(1, 4, 64)
    torch.manual_seed(1)  # so that PyTorch starts from the same slots
    given = {"image": sent(image), "noise": sent(noise), "iterations": 3}
    answer = run(scripts, folder, "look", given)
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
            torch.testing.assert_close(got(answer["result"][part]).flatten(), value.flatten(), atol=5e-5, rtol=1e-3)


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
def test_hostile_configurations_are_refused(scripts, tmp_path, make, name):
    config, message = HOSTILE[name]
    folder = make().save_pretrained(tmp_path / "model")
    (folder / "config.json").write_text(json.dumps(config))
    answer = run(scripts, folder)
    assert message in answer["error"]


def test_large_networks_are_refused_before_anything_is_allocated(scripts, tmp_path, make):
    """The header names sizes that the file need not have: nothing is believed before it is checked."""
    folder = make().save_pretrained(tmp_path / "model")
    header = json.dumps({"decoder.0.weight": {"dtype": "F16", "shape": [2**40, 2**40], "data_offsets": [0, 2]}})
    weights = len(header).to_bytes(8, "little") + header.encode() + b"\0\0"
    assert "does not have the size of its shape" in run(scripts, folder, weights=weights)["error"]
    wide = {"name": "ResidualDecoder", "width": 4096}
    config = {"model": "BetaVAE", "arguments": {"image_shape": [3, 512, 512], "decoder": wide}}
    (folder / "config.json").write_text(json.dumps(config))
    assert "error" in run(scripts, folder)


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


def check_mutated(scripts, tmp_path, folders, count):
    """Every mutation gives an image or a sentence, at the latest when the worker ends, and the tab keeps working."""
    slowest = 0.0
    for seed in range(count):
        source = folders[seed % len(folders)]
        config = json.loads((source / "config.json").read_text())
        text, weights = mutated(seed, config, (source / "model.safetensors").read_bytes())
        folder = tmp_path / "mutated"
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(text)
        action, given = ("decode", sent(torch.zeros(1, 3))) if "latent_dim" in config["arguments"] else (None, None)
        answer = run(scripts, folder, action, given, weights)
        assert "result" in answer or isinstance(answer["error"], str)
        slowest = max(slowest, answer["time"])
    print(f"slowest: {slowest:.0f} ms")
    assert scripts.title == "scripts"


def test_mutated_checkpoints_neither_hang_nor_crash_the_tab(scripts, tmp_path, make):
    slots = SlotAutoEncoder(image_shape=(3, 32, 32), num_slots=3, channels=8, strides=(2, 2, 1, 1))
    folders = [make().save_pretrained(tmp_path / "vae"), slots.save_pretrained(tmp_path / "slots")]
    check_mutated(scripts, tmp_path, folders, 40)


@pytest.mark.slow
def test_mutated_bundled_checkpoints(scripts, tmp_path):
    names = ("adagvae-dsprites32", "adagvae-rooms32", "slotautoencoder-scenes", "slotsetpredictor-scenes")
    folders = [Path(checkpoints.__file__).parent / "bundled" / name for name in names]
    check_mutated(scripts, tmp_path, folders, 200)


def test_weights_of_another_model_are_refused(scripts, tmp_path, make):
    folder = make().save_pretrained(tmp_path / "model")
    weights = load_file(folder / "model.safetensors")
    save_file(weights | {"more": torch.zeros(1)}, tmp_path / "more.safetensors")
    more = (tmp_path / "more.safetensors").read_bytes()
    assert "nothing takes more" in run(scripts, folder, weights=more)["error"]
    del weights["decoder.0.bias"]
    save_file(weights, tmp_path / "less.safetensors")
    less = (tmp_path / "less.safetensors").read_bytes()
    assert "there is no decoder.0.bias" in run(scripts, folder, weights=less)["error"]


def test_an_action_of_too_much_work_is_refused_at_once(scripts, tmp_path):
    """Work is counted in multiplications, so that a busy machine ends no model that it can run."""
    model = SlotAutoEncoder(image_shape=(3, 64, 64), num_slots=2, channels=32, slot_dim=16)
    folder = model.save_pretrained(tmp_path / "model")
    given = {"image": sent(torch.zeros(1, 3, 64, 64)), "noise": sent(torch.zeros(1, 16 * 32)), "iterations": 10**9}
    answer = run(scripts, folder, "look", given)
    assert answer["error"] == "This model is too large to run in a browser."


def test_another_model_ends_the_one_before(scripts, tmp_path, make):
    """Also one that is loading still: what was asked last is shown."""
    folder = make().save_pretrained(tmp_path / "model")
    config = (folder / "config.json").read_text()
    weights = base64.b64encode((folder / "model.safetensors").read_bytes()).decode()
    answers = scripts.execute_async_script(
        """const [config, weights, done] = arguments;
        import("/page/live-model.js").then(async ({ LiveModel }) => {
          const files = ["application/json," + encodeURIComponent(config), "application/zip;base64," + weights];
          const load = () => LiveModel.load(...files.map((file) => "data:" + file));
          const [first, second] = await Promise.allSettled([load(), load()]);
          second.value.close("done");
          const after = await second.value.ask("decode", {}).catch((error) => error.message);
          done([first.reason.message, second.status, after]);
        });""",
        config,
        weights,
    )
    assert answers == ["Another model was opened.", "fulfilled", "done"]


PRODUCT = """
const [sizes, done] = arguments;
import("/page/layers.js").then(async ({ product }) => {
  const { multiply } = await import("/page/kernel.js");
  let worst = 0;
  for (const [m, k, n] of sizes) {
    const values = (length, from) => Float32Array.from({ length }, (_, at) => Math.sin(at * 1.7 + from));
    const [a, b, bias] = [values(m * k, 1), values(k * n, 2), values(m, 3)];
    for (const start of [bias, null]) {
      const found = product(a, b, m, k, n, start);
      for (let i = 0; i < m; i++)
        for (let j = 0; j < n; j++) {
          let sum = start ? start[i] : 0;
          for (let x = 0; x < k; x++) sum += a[i * k + x] * b[x * n + j];
          worst = Math.max(worst, Math.abs(sum - found[i * n + j]));
        }
    }
  }
  done([Boolean(multiply), worst]);
});"""


@pytest.mark.parametrize("has_webassembly", [True, False])
def test_products_with_and_without_webassembly(scripts, has_webassembly):
    scripts.refresh()
    if not has_webassembly:
        scripts.execute_script("delete window.WebAssembly")
    sizes = [[1, 1, 1], [4, 3, 8], [8, 7, 16], [5, 9, 19], [3, 40, 64], [12, 64, 7], [13, 200, 300], [4, 1, 9]]
    multiplies, worst = scripts.execute_async_script(PRODUCT, sizes)
    assert multiplies == has_webassembly
    assert worst < 2e-5
    scripts.refresh()


@pytest.mark.parametrize("dataset", [{"name": "dsprites"}, ["dsprites"], 1])
def test_a_data_set_that_is_not_a_name_is_refused(tmp_path, dataset):
    folder = BetaVAE(image_shape=(1, 32, 32)).save_pretrained(tmp_path / "mine")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"dataset": dataset}))
    with pytest.raises(ValueError, match="The data set of a model is a name"):
        in_browser.sheet(folder)
