"""Compare measures and models after 2020 with numbers that their authors' own programs gave on the same arrays.

python tools/reference_values.py FOLDER    # write the tables of docs/metrics/implementations.md

FOLDER holds the arrays and the numbers; ``tests/metrics/test_published_values.py`` asserts every row.
"""

import importlib.util
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch

from fill_page import fill
from unknot.datamodules import Correlated, DSprites
from unknot.metrics import functional as f
from unknot.zoo import SlotAttention, SlowVAE, Tripod
from unknot.zoo.factorised_support import factorised_support
from unknot.zoo.quantised import quantise
from unknot.zoo.slow import laplace_cross_entropy
from unknot.zoo.tripod import curvature, multi_information
from unknot.zoo.vae import Posterior

PAGE = Path(__file__).parents[1] / "docs" / "metrics" / "implementations.md"


@dataclass(frozen=True)
class Row:
    """One comparison: values of ours and theirs, and how far apart they may be."""

    score: str
    program: str
    ours: Any
    theirs: Any
    tolerance: float

    @property
    def difference(self) -> float:
        """Largest absolute difference."""
        ours, theirs = (np.asarray(values, dtype=float) for values in (self.ours, self.theirs))
        return float(np.abs(ours - theirs).max())

    @property
    def count(self) -> int:
        """Number of values."""
        return int(np.size(self.theirs))


class Reference:
    """The folder of arrays and numbers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @cached_property
    def arrays(self) -> ModuleType:
        """Module that makes the arrays."""
        spec = importlib.util.spec_from_file_location("recipes_of_arrays", self.folder / "recipes.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    def numbers(self, file: str, key: str) -> Any:
        """An entry of a JSON file; of a key that begins so if there is none."""
        content = json.loads((self.folder / f"{file}.json").read_text())
        return content[key] if key in content else next(content[name] for name in content if name.startswith(key))

    def load(self, name: str) -> Any:
        """An array, or a file of several."""
        return np.load(self.folder / name)


def infomec(of: Reference) -> Iterator[Row]:
    """InfoMEC of latent_quantization and of Tripod, two kinds of latents, and the pruning rules."""
    for authors, pruning in (("lq", "range"), ("tripod", "interquartile")):
        program = {"lq": "latent_quantization", "tripod": "tripod"}[authors]
        for case, recipe in (("continuous", "discrete"), ("quantised", "quantised")):
            factors, codes = getattr(of.arrays, recipe)()
            expected = of.numbers("metrics", f"infomec/{authors}/{case}")
            discrete = case == "quantised"
            found = f.infomec(codes, factors, discrete_codes=discrete, pruning=pruning)
            ours, theirs = ([values[name] for name in ("infom", "infoc")] for values in (found, expected))
            yield Row(f"InfoM, InfoC, {case} latents", program, ours, theirs, 1e-5)
            yield Row(f"InfoE, {case} latents", program, found["infoe"], expected["infoe"], 1e-4)
            ours = f.normalised_information(codes, factors, discrete_codes=discrete)
            yield Row(f"information of pairs, {case} latents", program, ours, expected["nmi"], 1e-6)
            kept = f.active_codes(codes, discrete, pruning)
            yield Row(f"active latents, {case}", program, kept, expected["active_latents"], 0)
        # The seventh latent ties in nine samples of ten: its information is that of unseeded noise, and left out here.
        factors, codes = of.arrays.heavy()
        expected = of.numbers("metrics", f"infomec/{authors}/heavy")
        ours = f.normalised_information(codes, factors)[:, :6]
        yield Row("information of pairs, without ties", program, ours, np.array(expected["nmi"])[:, :6], 1e-6)
        kept = f.active_codes(codes, pruning=pruning)
        yield Row("active latents, with ties", program, kept, expected["active_latents"], 0)


def correlations(of: Reference) -> Iterator[Row]:
    """MCC and linear regressions."""
    factors, codes = of.arrays.discrete()
    z, h, h6 = of.arrays.continuous()
    theirs = of.numbers("metrics", "mcc/cl-ica")
    for name in ("pearson", "spearman"):
        yield Row(f"MCC, {name.title()}", "cl-ica", f.mcc(h, z, name), theirs[f"mcc_{name}"], 1e-9)
        for case, rows in {"cont6": (h6, z), "discrete": (codes, factors)}.items():
            padded = of.numbers("metrics", f"mcc/slow/{name.title()}/{case}")["meanabscorr"]
            score = f"MCC, {name.title()}, more latents than factors"
            yield Row(score, "slow_disentanglement", f.mcc(*rows, name), padded, 1e-9)
    for split, rows in (("False", (h, z, h, z)), ("True", (h[:500], z[:500], h[500:], z[500:]))):
        found = f.regression_r2(*rows)
        expected = [theirs[f"linear_{name}_split={split}"] for name in ("r2", "pearson")]
        yield Row("linear R² and correlation", "cl-ica", [found["r2"], found["correlation"]], expected, 1e-9)


def regression_trees(of: Reference) -> Iterator[Row]:
    """DCI by regression trees, which break ties by an unseeded generator in the authors' program."""
    z, h, _ = of.arrays.continuous()
    found = f.dci_regression(h[:800], z[:800], h[800:], z[800:])
    expected = of.numbers("metrics", "dci_regression/ilcm")
    program = "weakly-supervised-causal-representation-learning"
    yield Row(
        "DCI by regression, training error", program, found["error_train"], expected["informativeness_train"], 1e-9
    )
    ours = [found[name] for name in ("disentanglement", "completeness", "error_test")]
    theirs = [expected[name] for name in ("disentanglement", "completeness", "informativeness_test")]
    yield Row("DCI by regression, D, C and test error", program, ours, theirs, 0.01)


def capacity(of: Reference) -> Iterator[Row]:
    """Explicitness of DCI-ES, of given curves and of 1,800 trees."""
    curves = of.numbers("metrics", "dcies/explicitness")
    for name, inputs in curves["inputs"].items():
        yield Row("explicitness of a curve", "DCI-ES", f.capacity_explicitness(*inputs), curves["E"][name], 1e-9)
    factors, codes = of.arrays.discrete()
    expected = of.numbers("metrics", "dcies/random_forest_on_discrete")
    found = f.dci_es(codes[:1500], factors[:1500], codes[1500:], factors[1500:], depths=expected["depths"])
    yield Row("losses of random forests", "DCI-ES", found["losses"], expected["losses_1_minus_acc"], 1e-9)
    yield Row("explicitness of DCI-ES", "DCI-ES", found["explicitness"], expected["E"], 1e-9)


def information(of: Reference) -> Iterator[Row]:
    """Scores of one matrix of mutual information."""
    factors, codes = of.arrays.discrete()
    z, h, _ = of.arrays.continuous()
    for bins in (10, 20):
        binned = np.stack([np.digitize(v, np.histogram(v, bins)[1][:-1]) for v in z.T], axis=1)
        for case, rows in (("discrete", (codes, factors)), ("continuous", (h, binned))):
            expected = of.numbers("more", f"ubisoft/{case}/bins={bins}")
            found = {name: getattr(f, name)(*rows, bins) for name in ("dcimig", "jemmig", "mig_sup")}
            found["mig"] = f.mig(*rows, bins, divide_by="code")
            titles = {"dcimig": "DCIMIG", "jemmig": "JEMMIG", "mig_sup": "MIG-sup", "mig": "MIG by H(latent)"}
            for name, title in titles.items():
                yield Row(title, "DisentanglementMetrics", found[name], expected[name], 1e-9)
    expected = of.numbers("more", "med/discrete") | of.numbers("more", "med/discrete/top2")
    for prefix, top_k in (("", None), ("top1_", 1), ("top2_", 2)):
        found = f.med(codes[:1500], factors[:1500], top_k=top_k)
        theirs = [expected[prefix + name] for name in found]  # theirs adds 1e-11 to probabilities
        yield Row("MED" if top_k is None else "top-k MED", "disentanglement_lib_med", [*found.values()], theirs, 1e-9)


def masks(of: Reference) -> Iterator[Row]:
    """Masks of objects."""
    true, predicted = of.arrays.masks()
    expected, objects = of.numbers("metrics", "masks"), true[:, 1:]
    found = {
        "miou_hungarian_no_bg": ("mIoU", f.mean_iou(predicted, objects)),
        "miou_hungarian_with_bg": ("mIoU, with background", f.mean_iou(predicted, true)),
        "mbo_no_bg": ("mBO", f.mean_best_overlap(predicted, objects)),
        "mbo_with_bg": ("mBO, with background", f.mean_best_overlap(predicted, true)),
        "corloc_no_bg": ("CorLoc", f.correct_localization(predicted, objects)),
        "recovery_no_bg": ("recovery", f.object_recovery(predicted, objects)),
        "fg_ari": ("FG-ARI", f.adjusted_rand_index(predicted, objects)),
        "ari": ("ARI", f.adjusted_rand_index(predicted, true)),
    }
    for name, (title, value) in found.items():
        yield Row(title, "OCLF", value, expected[name], 1e-8)
    overlaps = np.concatenate(expected["best_overlap_per_object_no_bg"]).mean()
    ours = f.mean_best_overlap(predicted, objects, average="object")
    yield Row("mBO per object", "OCLF", ours, overlaps, 1e-6)


def slots(of: Reference) -> Iterator[Row]:
    """Identifiability of slots, and compositional contrast."""
    arrays, expected = of.load("slots.npz"), of.numbers("metrics", "sis")
    found = f.slot_identifiability(arrays["H"], arrays["Z"])
    program = "objects-identifiability"
    yield Row("SIS", program, found["sis"], expected["SIS"], 1e-9)
    yield Row("SIS, R² of pairs", program, found["r2"], expected["r2"], 1e-6)
    jacobian, expected = of.load("jacobian.npy"), of.numbers("metrics", "compositional_contrast")
    for name, weighted in (("synth", False), ("weighted", True)):
        ours = f.compositional_contrast(jacobian, 3, weighted=weighted)
        yield Row("compositional contrast", program, ours, expected[name], 1e-8)


def correlated(of: Reference) -> Iterator[Row]:
    """Correlation of x and y of dSprites by the published formula."""
    for width in (0.2, 0.4, 0.7):
        expected = of.numbers("correlated", f"dsprites x,y, width {width}")["gaussian formula: pearson"]
        weights = Correlated(DSprites(), "pos_x", "pos_y", width).factor_space.weights.numpy()
        yield Row("correlation of factors", "formula of Träuble et al.", _pearson(weights), expected, 1e-4)


def _pearson(table: np.ndarray) -> float:
    """Correlation of the rows and columns of a table of probabilities."""
    u, v = (np.arange(size) for size in table.shape)
    table = table / table.sum()
    u, v = u - table.sum(1) @ u, v - table.sum(0) @ v
    return float(u @ table @ v / np.sqrt((table.sum(1) @ u**2) * (table.sum(0) @ v**2)))


def hfs(of: Reference) -> Iterator[Row]:
    """Hausdorff factorised support: value, norm and entries of the gradient."""
    expected, means = of.numbers("more", "hfs/all six pairs"), torch.from_numpy(of.load("hfs_mean.npy"))
    for name, average in (("hausdorff_hard", False), ("hausdorff_hard_mean", True)):
        leaf = means.clone().requires_grad_()
        value = factorised_support(leaf, average=average)
        value.backward()
        assert leaf.grad is not None
        program, title = "disentangling-correlated-factors", f"HFS, {'mean' if average else 'farthest'}"
        yield Row(title, program, value.item(), expected[name]["loss"], 1e-5)
        yield Row(f"{title}, norm of the gradient", program, leaf.grad.norm(), expected[name]["grad_norm"], 1e-5)
        yield Row(f"{title}, gradient", program, leaf.grad[0], expected[name]["grad_row0"], 1e-6)


def slow(of: Reference) -> Iterator[Row]:
    """Cross entropy and loss of SlowVAE."""
    expected = of.numbers("more", "slowvae/cross_entropy")
    mean, logvar = (torch.tensor(expected[name], dtype=torch.float64)[None] for name in ("mean", "logvar"))
    still = Posterior(torch.zeros_like(mean), logvar)
    for rate in (1, 6):
        ours = laplace_cross_entropy(Posterior(mean, logvar), still, rate)[0]
        yield Row("SlowVAE, cross entropy", "slow_disentanglement", ours, expected[f"rate{rate}"], 1e-6)
    first, second = _slow_pair(of)
    pair = of.load("slowvae_pair.npz")
    ours = _slow_model(True).transition(first, second).detach()
    yield Row("SlowVAE, transition as in the program", "slow_disentanglement", ours, pair["kl_laplace_code"], 1e-5)
    kl = torch.cat([first.kl(), second.kl()]).sum(1).mean()
    yield Row("SlowVAE, KL", "slow_disentanglement", kl, pair["kl_normal_code"], 1e-5)


def _slow_pair(of: Reference) -> list[Posterior]:
    pair = of.load("slowvae_pair.npz")
    parts = [[torch.from_numpy(pair[name][at::2]).double() for name in ("mu", "logvar")] for at in (0, 1)]
    return [Posterior(*part) for part in parts]


def _slow_model(reference: bool) -> SlowVAE:
    return SlowVAE(image_shape=(1, 16, 16), latent_dim=3, reference=reference)


def qlae(of: Reference) -> Iterator[Row]:
    """Quantisation of QLAE, its two losses and gradients."""
    expected = of.numbers("jax", "qlae/latent")
    pre = torch.tensor([expected["pre"]], dtype=torch.float64, requires_grad=True)
    values = torch.linspace(-0.5, 0.5, 10, dtype=torch.float64).repeat(4, 1).requires_grad_()
    found = quantise(pre, values)
    yield Row("QLAE, indices", "latent_quantization", found.indices[0], expected["indices"], 0)
    yield Row("QLAE, codes", "latent_quantization", found.codes[0].detach(), expected["quantised"], 1e-8)
    losses = ((found.codes - pre.detach()) ** 2).mean(), ((pre - found.codes.detach()) ** 2).mean()
    theirs = [expected["quantization_loss"], expected["commitment_loss"]]
    yield Row("QLAE, losses", "latent_quantization", [loss.item() for loss in losses], theirs, 1e-9)
    (sum(losses) + (torch.arange(1, 5) * found.straight_through()[0]).sum()).backward()
    gradients = expected["grad of quantisation+commitment+sum_i i*z_hat_i"]
    assert pre.grad is not None
    yield Row("QLAE, gradient of latents", "latent_quantization", pre.grad[0], gradients["pre"], 1e-7)
    yield Row("QLAE, gradient of values", "latent_quantization", values.grad, gradients["values"], 1e-7)


def tripod(of: Reference) -> Iterator[Row]:
    """Quantisation, multi-information and mixed curvature of Tripod."""
    expected = of.numbers("jax", "tripod/quantiser")
    pre = torch.tensor([expected["pre"]], requires_grad=True)
    model = Tripod(image_shape=(1, 16, 16), latent_dim=7, encoder="MLPEncoder", decoder="MLPDecoder")
    found = model.quantise(pre)
    found.straight_through().sum().backward()
    assert pre.grad is not None
    yield Row("Tripod, codes", "tripod", found.codes[0], expected["z_q"], 1e-6)
    yield Row("Tripod, gradient", "tripod", pre.grad[0], expected["gradient"], 1e-6)
    codes, std = _tripod_codes(of)
    ours, expected = multi_information(codes, std), of.numbers("jax", "tripod/latent_multiinformation")
    yield Row("Tripod, multi-information", "tripod", ours.mean(), expected["per_sample_mean"], 1e-8)
    yield Row("Tripod, multi-information of samples", "tripod", ours[:3], expected["first3"], 1e-7)
    expected = of.numbers("jax", "tripod/hessian penalty")
    std = torch.tensor(expected["z_std"], dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    signs = torch.randint(0, 2, (4096, 1, 3), generator=generator).double() * 2 - 1
    normal = torch.randn(4096, 1, 3, generator=generator, dtype=torch.float64)
    mixed, total = (curvature(_quadratic, codes[:1], v * std, 0.1)[0].item() for v in (signs, normal))
    yield Row("Tripod, mixed curvature, 4,096 directions", "tripod, exact value", mixed, expected["exact"], 1e-4)
    yield Row("Tripod, its share", "tripod, exact value", mixed / total, expected["exact_normalised"], 5e-3)


def _tripod_codes(of: Reference) -> tuple[torch.Tensor, torch.Tensor]:
    codes = torch.from_numpy(of.load("tripod_z.npy")).double()
    return codes, codes.std(0, unbiased=False) + 1e-6


def _quadratic(codes: torch.Tensor) -> list[torch.Tensor]:
    return [torch.stack([codes[:, 0] * codes[:, 1] + 2 * codes[:, 2] ** 2, codes[:, 0] ** 2], dim=1)]


def bo_qsa(of: Reference) -> Iterator[Row]:
    """Slots, attention and gradients of Slot Attention with the three gradients of BO-QSA."""
    published = of.load("boqsa_slot_attention.npz")
    names = {"norm_feature": "norm_inputs", "project_k": "k", "project_v": "v", "project_q": "q"}
    weights = {}
    for key in (key.removeprefix("w/") for key in published if key.startswith("w/")):
        part, _, name = key.partition(".")
        weights[f"{names.get(part, part)}.{name}"] = torch.from_numpy(published[f"w/{key}"])
    for mode, gradient in (("none", "full"), ("fixed-point", "implicit"), ("bi-level", "bilevel")):
        module = SlotAttention(3, 8, hidden_dim=16, gradient=gradient, offset=1.0).double()  # type: ignore[arg-type]
        assert {*module.load_state_dict(weights, strict=False).missing_keys} == {"mu", "log_sigma"}
        for norm in (module.norm_inputs, module.norm_slots, module.norm_mlp):
            norm.eps = 1e-5  # theirs
        x, start = (torch.from_numpy(published[name]).requires_grad_() for name in ("features", "slots_init"))
        found, attention, _ = module(x, slots=start)
        found.square().sum().backward()
        grad = torch.zeros_like(start) if start.grad is None else start.grad
        values = {"slots": found, "attn": attention, "grad_slots_init": grad, "grad_features": x.grad}
        ours = np.concatenate([value.detach().numpy().ravel() for value in values.values()])
        theirs = np.concatenate([published[f"{mode}/{name}"].ravel() for name in values])
        yield Row(f"Slot Attention, gradient `{gradient}`", "BO-QSA", ours, theirs, 1e-7)


GROUPS: dict[str, Callable[[Reference], Iterator[Row]]] = {
    group.__name__: group
    for group in (infomec, correlations, regression_trees, capacity, information, masks, slots, correlated)
} | {group.__name__: group for group in (hfs, slow, qlae, tripod, bo_qsa)}
"""Comparisons by topic."""
SLOW = {"capacity"}


def table(of: Reference) -> str:
    """All comparisons, those of the same score, program and tolerance in a row."""
    merged: dict[tuple[str, str, float], list[Row]] = {}
    for group in GROUPS.values():
        for row in group(of):
            merged.setdefault((row.score, row.program, row.tolerance), []).append(row)
    lines = ["| score | program | values | tolerance | largest difference |", "|---|---|---|---|---|"]
    for (score, program, tolerance), rows in merged.items():
        count, difference = sum(row.count for row in rows), max(row.difference for row in rows)
        lines.append(f"| {score} | {program} | {count} | {tolerance:.0e} | {difference:.1e} |")
    return "\n".join(line.replace("| 0e+00 |", "| equal |").replace("0.0e+00", "0") for line in lines)


def readings(of: Reference) -> str:
    """Both readings where a program and its paper, or two programs, disagree."""
    factors, codes = of.arrays.discrete()
    heavy_factors, heavy = of.arrays.heavy()
    first, second = _slow_pair(of)
    code, text = (float(_slow_model(reference).transition(first, second)) for reference in (True, False))
    points, std = _tripod_codes(of)
    wide, narrow = (float(multi_information(points, std, silverman).mean()) for silverman in (False, True))
    drawn = _pearson(of.load("traeuble_joint_8x15_w02.npy"))
    formula = of.numbers("correlated", "shapes3d size x azimuth, width 0.2")["gaussian formula: pearson"]
    by_range, by_quartiles = (
        f.infomec(heavy, heavy_factors, pruning=pruning)["infom"] for pruning in ("range", "interquartile")
    )
    by_code, by_factor = f.mig(codes, factors, 20, divide_by="code"), f.mig(codes, factors, 20)
    noise = of.numbers("metrics", "infomec/lq/pure noise")["infom"]
    pairs = [
        ("transition of SlowVAE", "its program, one entropy", code, "its text, both entropies", text, "the text"),
        (
            "multi-information of Tripod",
            "its program",
            wide,
            "Silverman's factor in the margins",
            narrow,
            "Silverman's",
        ),
        ("correlation at width 0.2", "program of Träuble et al.", drawn, "their formula", formula, "the formula"),
        ("InfoM with ties", "latent_quantization, range", by_range, "tripod, interquartile", by_quartiles, "the range"),
        ("MIG", "DisentanglementMetrics, by H(latent)", by_code, "disentanglement_lib", by_factor, "by H(factor)"),
    ]
    lines = ["| quantity | one reading | value | another | value | default |", "|---|---|---|---|---|---|"]
    lines += [f"| {name} | {a} | {x:.4f} | {b} | {y:.4f} | {ours} |" for name, a, x, b, y, ours in pairs]
    lines += [
        "",
        f"On pure noise, latent_quantization gives an InfoM of {noise:.2f}, and NaN where a latent has no information\n"
        "at all; ours leaves such latents out.",
    ]
    return "\n".join(lines)


def main() -> int:
    """Fill both tables of the page."""
    of, page = Reference(Path(sys.argv[1])), PAGE.read_text(encoding="utf-8")
    page = fill(page, "tools/reference_values.py", table(of))
    PAGE.write_text(fill(page, "both readings", readings(of)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
