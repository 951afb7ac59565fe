"""score: codes and labels from any framework, from Python and from files."""

import numpy as np
import pandas as pd
import pytest
import torch

from unknot.cli import main
from unknot.datamodules import FactorSpace, GroundTruthDataset
from unknot.metrics import Draws, Scores, evaluate, score

QUICK = ["mig", "sap", "modularity", "irs", "explicitness", "mcc", "linear_r2"]
RNG = np.random.default_rng(0)
FACTORS = RNG.integers(0, (3, 4), size=(600, 2))
CODES = (np.hstack([FACTORS, FACTORS[:, :1] - FACTORS[:, 1:]]) + 0.3 * RNG.normal(size=(600, 3))).astype(np.float32)


class Levels(GroundTruthDataset):
    """Each factor is the grey level of one pixel, under a little noise."""

    name = "levels"
    factor_space = FactorSpace(names=("left", "right"), sizes=(4, 6))
    image_shape = (1, 1, 2)
    stochastic = True
    finite = False

    def observe(self, factors, generator=None):
        clean = factors.float() / torch.tensor(self.factor_space.sizes)
        return (clean + 0.1 * torch.rand(clean.shape, generator=generator))[:, None, None, :]


def jax_arrays():
    jax = pytest.importorskip("jax")
    return jax.numpy.asarray(CODES), jax.numpy.asarray(FACTORS)


ARRAYS = {
    "torch": lambda: (torch.from_numpy(CODES), torch.from_numpy(FACTORS)),
    "a graph": lambda: (torch.from_numpy(CODES).requires_grad_(), torch.from_numpy(FACTORS)),
    "jax": jax_arrays,
    "pandas": lambda: (pd.DataFrame(CODES), pd.DataFrame(FACTORS, columns=["factor_0", "factor_1"])),
    "lists": lambda: (CODES.tolist(), FACTORS.tolist()),
    "columns": lambda: (CODES, {f"factor_{column}": FACTORS[:, column] for column in range(2)}),
}


@pytest.mark.parametrize("framework", ARRAYS)
def test_arrays_of_every_framework_score_alike(framework) -> None:
    expected = score(CODES, FACTORS, QUICK)
    ours = score(*ARRAYS[framework](), QUICK)
    assert dict(ours) == dict(expected)
    assert ours.protocol == expected.protocol


def test_is_evaluate_on_the_codes_of_the_model() -> None:
    def model(images):
        return torch.cat([images.flatten(1), images.flatten(1).sum(1, keepdim=True)], dim=1)

    names = [*QUICK, "dci"]
    draws = Draws(model, Levels(), 150, 80)
    evaluated = evaluate(model, Levels(), names, num_train=150, num_test=80)
    scored = score(*draws.train, names, names=("left", "right"), test=draws.test)
    assert not evaluated.reasons
    assert dict(scored) == dict(evaluated)
    assert scored.details == evaluated.details


def test_the_protocol_says_how_rows_are_split() -> None:
    protocol = score(CODES, FACTORS, "mig").protocol
    assert (protocol["num_train"], protocol["num_test"], protocol["split"]) == (400, 200, "at random")
    assert protocol["kinds"] == {"factor_0": "ordered", "factor_1": "ordered"}
    given = score(CODES[:400], FACTORS[:400], "mig", test=(CODES[400:], FACTORS[400:])).protocol
    assert (given["num_train"], given["num_test"], given["split"]) == (400, 200, "as given")


def test_several_splits_are_averaged() -> None:
    single = [score(CODES, FACTORS, "sap", seed=seed)["sap"] for seed in (3, 4)]
    several = score(CODES, FACTORS, "sap", seed=3, repeats=2)
    assert several["sap"] == pytest.approx(np.mean(single))
    assert several.std["sap"] == pytest.approx(np.std(single, ddof=1))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((CODES, FACTORS[:-1]), "as many rows, got 600 and 599"),
        ((CODES, FACTORS, "mig", ["same", "same"]), "names must be 2 different names"),
        ((CODES, FACTORS, "mig", None, {"colour": "ordered"}), "there is no factor 'colour'"),
        ((CODES, FACTORS, "mig", None, None, (CODES[:, :2], FACTORS)), "codes to test on must have 3 columns"),
        ((CODES, np.full((600, 2), -1)), "factors hold no label"),
        ((CODES[:1], FACTORS[:1]), "rows to fit on and rows to test on"),
    ],
)
def test_what_does_not_fit_is_explained(arguments, message) -> None:
    with pytest.raises(ValueError, match=message):
        score(*arguments)


@pytest.mark.parametrize("files", [("codes.npz", "factors.csv"), ("codes.npy", "factors.npy"), ("both.npz",)])
def test_files_score_as_arrays_do(tmp_path, monkeypatch, capsys, files) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("codes.npz", codes=CODES)
    np.save("codes.npy", CODES)
    np.save("factors.npy", FACTORS)
    np.savez("both.npz", codes=CODES, factors=FACTORS)
    pd.DataFrame(FACTORS, columns=["factor_0", "factor_1"]).to_csv("factors.csv", index=False)
    assert main(["score", *files, "--metrics", "mig", "sap", "--json", "scores.json"]) == 0
    expected = score(CODES, FACTORS, ["mig", "sap"])
    assert "400 rows to fit on, 200 to test on" in capsys.readouterr().out
    assert dict(Scores.read("scores.json")) == dict(expected)
