"""Every number of the page on implementations is computed again from the expression beside it."""

import re
from pathlib import Path

import numpy as np
import pytest

from unknot.metrics import functional

PAGE = Path(__file__).parents[2] / "docs" / "metrics" / "implementations.md"
COLUMNS = ("as given", "noise", "permuted factors", "constant latents")


def halves(codes, factors):
    return codes[:1000], factors[:1000], codes[1000:], factors[1000:]


@pytest.fixture(scope="module")
def arrays():
    names = {name: getattr(functional, name) for name in functional.__all__}
    exec(re.search(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[1], names)
    return names | {
        "halves": halves,
        "dci_of_halves": lambda codes, factors: functional.dci(*halves(codes, factors)),
        "regression_of_halves": lambda codes, factors: functional.dci_regression(*halves(codes, factors)),
        "forests_of_halves": lambda codes, factors: functional.dci_es(*halves(codes, factors), depths=(1, 4, 16)),
        "as_levels": lambda codes: np.round(5 * np.tanh((codes - codes.mean(0)) / (codes.std(0) + 1e-9))) / 5,
        "slots": lambda columns: columns[:500, :, None],
        "noise_masks": np.random.default_rng(8).random((2, 5, 32, 32)),
    }


def rows(width):
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    cells = [re.split(r" \| ", line.strip("| ")) for line in lines if line.startswith("| `")]
    return [row for row in cells if len(row) == width]


def digits(text):
    return 10.0 ** -len(text.partition(".")[2])


def value_of(expression, arrays, remembered, column=""):
    """An expression's value; of ``function(...)["name"]`` the call is computed once for all names."""
    call, key = re.fullmatch(r"`(.*?)(?:\[\"(\w+)\"\])?`", expression).groups()
    if (call, column) not in remembered:
        remembered[call, column] = eval(call, arrays)
    return remembered[call, column][key] if key else remembered[call, column]


def parameters(width):
    """Rows of tables; those of many trees take some seconds each."""
    return [
        pytest.param(
            row, id=row[0], marks=[pytest.mark.slow] if re.search("dci_es|dci_regression|_halves", row[0]) else []
        )
        for row in rows(width)
    ]


@pytest.fixture(scope="module")
def remembered():
    return {}


@pytest.mark.parametrize("row", parameters(3))
def test_expressions(arrays, remembered, row):
    expression, value, _ = row
    assert value_of(expression, arrays, remembered) == pytest.approx(float(value), abs=1.5 * digits(value))


@pytest.mark.parametrize("row", parameters(5))
def test_what_chance_gives(arrays, remembered, row):
    expression, *values = row
    codes, factors = arrays["codes"], arrays["factors"]
    inputs = ((codes, factors), (arrays["noise"], factors), (codes, arrays["permuted"]), (arrays["constant"], factors))
    for (c, f), value, column in zip(inputs, values, COLUMNS, strict=True):
        found = value_of(expression, arrays | {"c": c, "f": f}, remembered, column)
        assert found == pytest.approx(float(value), abs=1.5 * digits(value)), column


def test_the_page_warns_of_what_its_tables_show():
    table = {row[0].strip("`"): [float(value) for value in row[1:]] for row in rows(5)}
    for name in ("infom", "infoc"):
        given, _, permuted, _ = table[f'infomec(c, f)["{name}"]']
        assert permuted > given
    given, noise, _, constant = table["jemmig(c, f)"]
    assert noise < given <= constant
    explicit = table['dci_es(*halves(c, f), depths=(1, 4, 16))["explicitness"]']
    assert min(explicit[1:]) > 0.9
    assert all(abs(value) < 0.1 for value in table["mcc(c, f)"][1:] + table['regression_r2(*halves(c, f))["r2"]'][1:])
