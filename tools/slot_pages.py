"""Train and score slot models for their pages.

python tools/slot_pages.py features      # DINOSAUR on Multi-dSprites: docs/zoo/after_the_thesis.md, dinosaur.png
python tools/slot_pages.py properties    # properties predicted from a bundled model's slots: docs/zoo/slots.md
"""

import argparse
import time
from pathlib import Path
from statistics import fmean, pstdev
from types import SimpleNamespace
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn import functional as F
from tqdm.auto import trange

from fill_page import fill
from unknot.datamodules import ClevrScenes, EfficientNetLite0, FeatureScenes, MultiDSprites, SetBatch
from unknot.hub import load
from unknot.metrics import Scores
from unknot.metrics.object_properties import SHIFTED_PROPERTIES, property_scores, shifted
from unknot.metrics.object_scores import attention_score
from unknot.zoo import DINOSAUR, SlotAutoEncoder, WarmupCosine
from unknot.zoo.object_discovery import Decomposition

ZOO = Path(__file__).parents[1] / "docs" / "zoo"
OBJECTS, SLOTS, SCENES, BATCH, TEST = 5, 6, 1000, 16, 256
MASKS = {"ari": "FG-ARI", "miou": "mIoU", "mbo": "mBO"}
BUNDLED = "unknot/slotautoencoder-scenes"


class Blocks(SimpleNamespace):
    """Masks that are always the same blocks, 2 x 3 of them."""

    capabilities = frozenset({"feature_slots"})
    device = torch.device("cpu")

    def decompose(self, images: Tensor) -> Decomposition:
        """The blocks for each image."""
        height, width = images.shape[2:]
        rows, columns = torch.arange(height) * 2 // height, torch.arange(width) * 3 // width
        masks = F.one_hot(rows[:, None] * 3 + columns, 6).movedim(2, 0).float().expand(len(images), -1, -1, -1)
        return Decomposition(images, images[:, None], masks)


def features(steps: int, seeds: int) -> None:
    """DINOSAUR on features of a frozen network, against itself untrained and against blocks."""
    scenes = FeatureScenes(MultiDSprites(max_objects=OBJECTS, num_scenes=SCENES), EfficientNetLite0(14))
    raw = MultiDSprites(max_objects=OBJECTS).draw(TEST, torch.Generator().manual_seed(1))
    test = raw._replace(images=torch.cat([scenes.backbone(part) for part in raw.images.split(32)]))
    scenes.prepare()
    trained, untrained, losses, start = [], [], [], time.process_time()
    for seed in range(seeds):
        torch.manual_seed(seed)
        shape = scenes.image_shape
        model = DINOSAUR(image_shape=shape, num_slots=SLOTS, slot_dim=64, hidden_dim=256, lr=1e-3)
        untrained.append(attention_score(model.eval(), test))
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        schedule = WarmupCosine(optimizer, steps // 10, steps)
        generator = torch.Generator().manual_seed(seed)
        model.train()
        for _ in trange(steps, desc=f"seed {seed}", mininterval=30):
            batch = scenes.batch(torch.randint(len(scenes), (BATCH,), generator=generator).tolist())
            optimizer.zero_grad()
            model.losses(batch)["loss"].backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
        with torch.no_grad():
            losses.append(model.eval().losses(test)["loss"].item())
        trained.append(attention_score(model, test))
    variance = test.images.var((0, 2, 3), unbiased=False).mean().item()
    blocks: Any = Blocks()
    rows = {"trained": trained, "not trained": untrained, "blocks, 2 × 3": [attention_score(blocks, test)]}
    lines = [f"| masks | {' | '.join(MASKS.values())} |", "|---|" + "---|" * len(MASKS)]
    lines += [f"| {name} | {' | '.join(_spread(of, score) for score in MASKS)} |" for name, of in rows.items()]
    lines += [
        "",
        f"{steps:,} steps of {BATCH} of {SCENES:,} scenes, seeds 0 to {seeds - 1} (mean ± standard deviation), "
        f"{(time.process_time() - start) / 60:.0f} core-minutes;",
        f"masks of 14 × 14 compared at 32 × 32 on {TEST} other scenes. The squared error of the\n"
        f"features is {fmean(losses):.3f}, their variance {variance:.3f}.",
    ]
    _write(ZOO / "after_the_thesis.md", "tools/slot_pages.py features", "\n".join(lines))
    with torch.no_grad():
        _draw(raw, test, model, ZOO / "dinosaur.png")


def _draw(raw: SetBatch, test: SetBatch, model: DINOSAUR, path: Path, n: int = 6) -> None:
    """Images, true masks, and the slot of each pixel."""
    assert raw.masks is not None
    torch.manual_seed(0)
    masks = F.interpolate(model.decompose(test.images[:n]).masks, raw.images.shape[2:], mode="bilinear").argmax(1)
    figure = Figure(figsize=(1.5 * n, 4.7), layout="constrained")
    for row, (name, values) in enumerate({"image": raw.images, "objects": raw.masks, "slots": masks}.items()):
        for place in range(n):
            axis = figure.add_subplot(3, n, row * n + place + 1, xticks=[], yticks=[])
            if name == "image":
                axis.imshow(values[place].permute(1, 2, 0).numpy())
            else:
                axis.imshow(values[place].numpy(), cmap="tab10", vmin=0, vmax=9, interpolation="nearest")
            if not place:
                axis.set_ylabel(name)
    figure.savefig(path, dpi=80)


def properties(steps: int, seeds: int) -> None:
    """Properties of objects from slots of a bundled model and of an untrained one, in and out of distribution."""
    model = load(BUNDLED)
    size = model.image_shape[1:]
    most = model.num_slots - 1
    data = ClevrScenes(size, max_objects=most)
    train, new = (data.draw(n, torch.Generator().manual_seed(seed)) for seed, n in ((1, 1024), (2, TEST)))
    tests = {"as in training": new} | {shift: shifted(new, shift) for shift in SHIFTED_PROPERTIES}  # type: ignore[arg-type]
    more = ClevrScenes(size, max_objects=most + 2, min_objects=most + 1)
    tests["more objects"] = more.draw(TEST, torch.Generator().manual_seed(3))
    torch.manual_seed(0)
    untrained = SlotAutoEncoder(**model.hparams)
    results: dict[str, list[Scores]] = {}
    for name, of in (("trained", model), ("not trained", untrained)):
        for seed in range(seeds):
            options = {"left_out": SHIFTED_PROPERTIES, "steps": steps, "lr": 1e-2, "seed": seed}
            scores = property_scores(of.eval(), train, tests, data.properties, **options)  # type: ignore[arg-type]
            results.setdefault(name, []).append(scores)
    names = [prop.name for prop in data.properties]
    kinds = {prop.name: "R²" if prop.kind == "number" else "accuracy" for prop in data.properties}
    lines = [f"| slots | scenes | {' | '.join(f'{name} ({kinds[name]})' for name in names)} |"]
    lines.append("|---|---|" + "---|" * len(names))
    for name, of in results.items():
        for test in tests:
            cells = [_spread(of, f"{test}.{prop}") if f"{test}.{prop}" in of[0] else "" for prop in names]
            lines.append(f"| {name} | {test} | {' | '.join(cells)} |")
    lines += [
        "",
        f"`{BUNDLED}`, a linear probe of {steps:,} steps on {len(train.images):,} scenes, {TEST} test scenes, {seeds} "
        "seeds of slots",
        "and probe (mean ± standard deviation). Properties that a shift changes are left out.",
    ]
    _write(ZOO / "slots.md", "tools/slot_pages.py properties", "\n".join(lines))


def _spread(of: list[Scores], score: str) -> str:
    values = [scores[score] for scores in of]
    return f"{fmean(values):.2f} ± {pstdev(values):.2f}" if len(values) > 1 else f"{values[0]:.2f}"


def _write(page: Path, source: str, text: str) -> None:
    print(text)
    page.write_text(fill(page.read_text(encoding="utf-8"), source, text), encoding="utf-8")


def main() -> int:
    """Fill one of the tables."""
    parser = argparse.ArgumentParser(prog="python tools/slot_pages.py", description=__doc__)
    parser.add_argument("table", choices=["features", "properties"])
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=2)
    arguments = parser.parse_args()
    {"features": features, "properties": properties}[arguments.table](arguments.steps, arguments.seeds)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
