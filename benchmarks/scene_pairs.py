"""Changed properties of pairs of scenes against their law: ``python benchmarks/scene_pairs.py``.

The law takes re-sampled properties as independent of each other and of CLEVR's rules. The rules make a small object's
change to a large one rarer where there is little room, which the counts show.
"""

import argparse
import itertools
import time
from collections import Counter

import torch

from unknot.datamodules import ClevrScenes, ScenePairDataModule

PLACES = {"size": (3, 5), "material": (5, 7), "shape": (7, 10), "color": (10, 18), "place": (0, 2)}
STAYS = (1 / 2, 1 / 2, 1 / 3, 1 / 8, 0.0)  # probability that a re-sampled property keeps its value


def law(k: int | str, objects: int, exactly_k: bool) -> list[float]:
    """Probability of 0, 1, ... changed properties in scenes of so many objects."""
    properties = 5 * objects
    counts = range(1, properties) if k == "rnd" else [int(k)]
    weights = Counter()
    for count in counts:
        weights[count] += (1.0 if exactly_k else 0.5) / len(counts)
    if not exactly_k:
        weights[1] += 0.5
    # The number of properties of each kind among those chosen is hypergeometric: convolve the kinds.
    total = [[0.0] * (properties + 1) for _ in range(properties + 1)]  # [chosen][changed], ways
    total[0][0] = 1.0
    for stays in [each for each in STAYS for _ in range(objects)]:
        for chosen, changed in itertools.product(range(properties - 1, -1, -1), range(properties - 1, -1, -1)):
            if ways := total[chosen][changed]:
                total[chosen + 1][changed] += ways * stays
                total[chosen + 1][changed + 1] += ways * (1 - stays)
    result = [0.0] * (properties + 1)
    for count, weight in weights.items():
        ways = sum(total[count])
        for changed, each in enumerate(total[count]):
            result[changed] += weight * each / ways
    return result


def main() -> None:
    """Print a table for several k."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=10_000)
    parser.add_argument("--objects", type=int, default=3)
    parser.add_argument("--image-size", type=int, default=64)
    parser.add_argument("--k", nargs="+", default=["1", "3", "rnd"])
    options = parser.parse_args()
    scenes = ClevrScenes(options.image_size, max_objects=options.objects, min_objects=options.objects)
    for k in (each if each == "rnd" else int(each) for each in options.k):
        data = ScenePairDataModule(scenes, k, batch_size=500, seed=0, with_targets=True)
        share, counts, start = data._share(0), Counter(), time.process_time()
        for number in range(options.pairs // 500):
            *_, before, after = data.train_batch(number, share)
            changed = [(before[..., slice(*at)] != after[..., slice(*at)]).any(-1) for at in PLACES.values()]
            counts.update(torch.stack(changed).sum((0, 2)).tolist())
        pairs = sum(counts.values())
        expected = law(k, options.objects, exactly_k=False)
        seconds = time.process_time() - start
        print(
            f"k = {k}: {pairs:,} pairs of {options.objects} objects, {1000 * seconds / pairs:.2f} ms of processor each"
        )
        print("  changed   " + " ".join(f"{changed:6d}" for changed in range(max(counts) + 1)))
        print("  seen      " + " ".join(f"{counts[changed] / pairs:6.4f}" for changed in range(max(counts) + 1)))
        print("  law       " + " ".join(f"{expected[changed]:6.4f}" for changed in range(max(counts) + 1)))


if __name__ == "__main__":
    main()
