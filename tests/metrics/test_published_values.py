"""Every measure that came after 2020 equals what its authors' own code gives on the same arrays."""

import importlib.util
import json

import numpy as np
import pytest

from unknot.metrics import functional as f


@pytest.fixture(scope="module")
def recipes(oracles):
    spec = importlib.util.spec_from_file_location("oracle_recipes", oracles / "recipes.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def published(oracles):
    return {name: json.loads((oracles / f"{name}.json").read_text()) for name in ("metrics", "more")}


@pytest.mark.parametrize("authors", ["lq", "tripod"])
@pytest.mark.parametrize(("case", "recipe"), [("continuous", "discrete"), ("quantised", "quantised")])
def test_infomec(recipes, published, authors, case, recipe):
    factors, codes = getattr(recipes, recipe)()
    expected = published["metrics"][f"infomec/{authors}/{case}"]
    pruning = {"lq": "range", "tripod": "interquartile"}[authors]
    discrete = case == "quantised"
    found = f.infomec(codes, factors, discrete_codes=discrete, pruning=pruning)
    assert found["infom"] == pytest.approx(expected["infom"], abs=1e-5)
    assert found["infoc"] == pytest.approx(expected["infoc"], abs=1e-5)
    assert found["infoe"] == pytest.approx(expected["infoe"], abs=1e-4)
    information = f.normalised_information(codes, factors, discrete_codes=discrete)
    np.testing.assert_allclose(information, expected["nmi"], atol=1e-6)
    assert f.active_codes(codes, discrete, pruning).tolist() == [bool(a) for a in expected["active_latents"]]


@pytest.mark.parametrize(("authors", "pruning"), [("lq", "range"), ("tripod", "interquartile")])
def test_infomec_pruning_rules(recipes, published, monkeypatch, authors, pruning):
    """The seventh latent ties in nine samples of ten; its information is that of unseeded noise, taken as given."""
    factors, codes = recipes.heavy()
    expected = published["metrics"][f"infomec/{authors}/heavy"]
    assert f.active_codes(codes, pruning=pruning).tolist() == [bool(a) for a in expected["active_latents"]]
    ours = f.normalised_information(codes, factors)
    np.testing.assert_allclose(ours[:, :6], np.array(expected["nmi"])[:, :6], atol=1e-6)
    assert ours[:, 6].max() < 0.02
    module = importlib.import_module("unknot.metrics.functional.infomec")
    monkeypatch.setattr(module, "normalised_information", lambda *arguments: np.array(expected["nmi"]))
    found = f.infomec(codes, factors, pruning=pruning)
    assert {name: found[name] for name in ("infom", "infoc", "infoe")} == pytest.approx(
        {name: expected[name] for name in ("infom", "infoc", "infoe")},
        abs=1e-5,  # of their matrix six digits are known
    )


def test_correlations_and_regressions(recipes, published):
    factors, codes = recipes.discrete()
    z, h, h6 = recipes.continuous()
    expected = published["metrics"]
    for correlation in ("pearson", "spearman"):
        assert f.mcc(h, z, correlation) == pytest.approx(expected["mcc/cl-ica"][f"mcc_{correlation}"], abs=1e-9)
        for name, (inputs, truth) in {"cont6": (h6, z), "discrete": (codes, factors)}.items():
            score, match = expected["mcc/rectangular_assignment"][f"{name}_{correlation}"]
            padded = expected[f"mcc/slow/{correlation.title()}/{name}"]["meanabscorr"]
            assert f.mcc(inputs, truth, correlation) == pytest.approx(score, abs=1e-9) == pytest.approx(padded)
            assert f.matched_correlations(inputs, truth, correlation)[0].tolist() == match
    for split, rows in (("False", (h, z, h, z)), ("True", (h[:500], z[:500], h[500:], z[500:]))):
        found = f.regression_r2(*rows)
        assert found["r2"] == pytest.approx(expected["mcc/cl-ica"][f"linear_r2_split={split}"], abs=1e-9)
        assert found["correlation"] == pytest.approx(expected["mcc/cl-ica"][f"linear_pearson_split={split}"], abs=1e-9)


def test_dci_of_regression_trees(recipes, published):
    z, h, _ = recipes.continuous()
    found = f.dci_regression(h[:800], z[:800], h[800:], z[800:])
    expected = published["metrics"]["dci_regression/ilcm"]
    assert found["error_train"] == pytest.approx(expected["informativeness_train"], abs=1e-9)
    for ours, theirs in (
        ("error_test", "informativeness_test"),
        *[2 * (n,) for n in ("disentanglement", "completeness")],
    ):
        assert found[ours] == pytest.approx(expected[theirs], abs=0.01)  # their trees break ties by a global seed


@pytest.mark.slow  # 1,800 trees
def test_explicitness_of_growing_forests(recipes, published):
    factors, codes = recipes.discrete()
    expected = published["metrics"]["dcies/random_forest_on_discrete"]
    found = f.dci_es(codes[:1500], factors[:1500], codes[1500:], factors[1500:], depths=expected["depths"])
    np.testing.assert_allclose(found["losses"], expected["losses_1_minus_acc"], atol=1e-9)
    assert found["explicitness"] == pytest.approx(expected["E"], abs=1e-9)
    curves = published["metrics"]["dcies/explicitness"]
    for name, (capacities, losses, baseline) in curves["inputs"].items():
        assert f.capacity_explicitness(capacities, losses, baseline) == pytest.approx(curves["E"][name], abs=1e-9)


@pytest.mark.parametrize("bins", [10, 20])
def test_scores_of_one_information_matrix(recipes, published, bins):
    factors, codes = recipes.discrete()
    z, h, _ = recipes.continuous()
    binned = np.stack([np.digitize(v, np.histogram(v, bins)[1][:-1]) for v in z.T], axis=1)
    for name, rows in (("discrete", (codes, factors)), ("continuous", (h, binned))):
        expected = published["more"][f"ubisoft/{name}/bins={bins}"]
        found = {score: getattr(f, score)(*rows, bins) for score in ("dcimig", "jemmig", "mig_sup")}
        found["mig"] = f.mig(*rows, bins, divide_by="code")
        assert found == pytest.approx(expected, abs=1e-9)


def test_med(recipes, published):
    factors, codes = recipes.discrete()
    expected = published["more"]["med/discrete"] | published["more"]["med/discrete/top2"]
    for prefix, top_k in (("", None), ("top1_", 1), ("top2_", 2)):
        for name, value in f.med(codes[:1500], factors[:1500], top_k=top_k).items():
            assert value == pytest.approx(expected[prefix + name], abs=1e-9)  # theirs adds 1e-11 to probabilities


def test_masks(recipes, published):
    true, predicted = recipes.masks()
    expected, objects = published["metrics"]["masks"], true[:, 1:]
    found = {
        "miou_hungarian_no_bg": f.mean_iou(predicted, objects),
        "miou_hungarian_with_bg": f.mean_iou(predicted, true),
        "mbo_no_bg": f.mean_best_overlap(predicted, objects),
        "mbo_with_bg": f.mean_best_overlap(predicted, true),
        "corloc_no_bg": f.correct_localization(predicted, objects),
        "recovery_no_bg": f.object_recovery(predicted, objects),
        "fg_ari": f.adjusted_rand_index(predicted, objects),
        "ari": f.adjusted_rand_index(predicted, true),
    }
    assert found == pytest.approx({name: expected[name] for name in found}, abs=1e-8)
    overlaps = np.concatenate(expected["best_overlap_per_object_no_bg"])
    assert f.mean_best_overlap(predicted, objects, average="object") == pytest.approx(overlaps.mean(), abs=1e-6)


def test_slot_identifiability_and_compositional_contrast(oracles, published):
    slots = np.load(oracles / "slots.npz")
    expected = published["metrics"]["sis"]
    found = f.slot_identifiability(slots["H"], slots["Z"])
    assert found["sis"] == pytest.approx(expected["SIS"], abs=1e-9)
    np.testing.assert_allclose(found["r2"], expected["r2"], atol=1e-6)
    jacobian = np.load(oracles / "jacobian.npy")
    expected = published["metrics"]["compositional_contrast"]
    assert f.compositional_contrast(jacobian, 3) == pytest.approx(expected["synth"], abs=1e-8)
    assert f.compositional_contrast(jacobian, 3, weighted=True) == pytest.approx(expected["weighted"], abs=1e-8)
