"""``unknot score``: codes of any model, from a file."""

import argparse
import textwrap
import time
from pathlib import Path
from typing import Any

from unknot.cli.evaluate import METRICS_HELP
from unknot.cli.parsing import Commands, command


def add_to(commands: Commands) -> None:
    """Add the options of ``unknot score``."""
    parser = command(
        commands,
        "score",
        "score codes of any model, given the factors of variation",
        "unknot score codes.npz factors.csv",
        "unknot score latents.npy labels.parquet --metrics mig dci infomec --json scores.json",
        "unknot score both.npz                      with arrays called codes and factors",
    )
    parser.add_argument(
        "codes", help="codes [N, D]: .npy, .npz (an array called codes or the only one), .csv, .parquet"
    )
    parser.add_argument(
        "factors", nargs="?", help="factors [N, F], a row for each row of codes; by default read from the first file"
    )
    parser.add_argument("--metrics", nargs="+", default=["default"], metavar="NAME", help=METRICS_HELP)
    parser.add_argument(
        "--names", nargs="+", metavar="NAME", help="names of the factors (default: the header of a table)"
    )
    parser.add_argument(
        "--kinds",
        nargs="+",
        metavar="FACTOR=KIND",
        default=[],
        help="categorical, ordered, circular or continuous (default: inferred from the labels)",
    )
    parser.add_argument("--bins", type=int, default=20, metavar="N", help="bins of continuous factors (default: 20)")
    parser.add_argument(
        "--binning",
        default="uniform",
        choices=["uniform", "quantile"],
        help="bins of equal width or of equal counts (default: %(default)s)",
    )
    parser.add_argument("--num-train", type=int, default=10_000, metavar="N", help="rows to fit on (default: 10000)")
    parser.add_argument("--num-test", type=int, default=5_000, metavar="N", help="rows to test on (default: 5000)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the split (default: 0)")
    parser.add_argument("--repeats", type=int, default=1, help="splits to average over (default: 1)")
    parser.add_argument("--json", metavar="FILE", help="also write the scores, with details, to a file")
    parser.set_defaults(run=score_command)


def score_command(arguments: argparse.Namespace) -> int:
    """Read codes and factors, score them and print a table; write JSON if requested."""
    from unknot.metrics import score

    codes = read_codes(Path(arguments.codes))
    factors = read_labels(Path(arguments.factors or arguments.codes))
    kinds: Any = dict(_pair(text) for text in arguments.kinds)
    start = time.perf_counter()
    scores = score(
        codes,
        factors,
        arguments.metrics,
        arguments.names,
        kinds,
        num_train=arguments.num_train,
        num_test=arguments.num_test,
        bins=arguments.bins,
        binning=arguments.binning,
        seed=arguments.seed,
        repeats=arguments.repeats,
    )
    protocol = scores.protocol
    print(
        f"{arguments.codes}: {protocol['num_train']:,} rows to fit on, {protocol['num_test']:,} to test on, "
        f"{time.perf_counter() - start:.1f} s"
    )
    described = [f"{name} ({kind})" for name, kind in protocol["kinds"].items()]
    print(f"  factors: {', '.join(described)}")
    if "bins" in protocol:
        print(f"  continuous factors: {protocol['bins']} {protocol['binning']} bins where classes are needed")
    for name, (fit, held_out) in protocol.get("labelled", {}).items():
        print(f"  {name}: labelled in {fit:,} and {held_out:,} of these rows")
    print(textwrap.indent(str(scores), "  "))
    if arguments.json:
        print(f"All scores are in {scores.write(arguments.json)}.")
    return 0


def read_codes(path: Path) -> Any:
    """Read codes ``[N, D]`` from a file."""
    import numpy as np

    if path.suffix in (".npy", ".npz"):
        return _array(path, "codes")
    columns = _columns(path)
    try:
        return np.stack([np.asarray(column, dtype=np.float64) for column in columns.values()], axis=1)
    except ValueError as error:
        raise ValueError(f"{path}: codes must be numbers in every cell ({error}).") from None


def read_labels(path: Path) -> Any:
    """Read labels ``[N, F]`` from a file, or columns by name."""
    return _array(path, "factors") if path.suffix in (".npy", ".npz") else _columns(path)


def _array(path: Path, name: str) -> Any:
    import zipfile

    import numpy as np

    try:
        loaded = np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: no such file.") from None
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path}: not a file of plain NumPy arrays ({error}).") from None
    if isinstance(loaded, np.ndarray):
        return loaded
    with loaded:
        if name not in loaded.files and len(loaded.files) != 1:
            raise ValueError(f"{path}: no array called {name!r}; there are {', '.join(loaded.files)}.")
        try:
            return loaded[name if name in loaded.files else loaded.files[0]]
        except ValueError as error:
            raise ValueError(f"{path}: {name} is not a plain array ({error}).") from None


def _columns(path: Path) -> dict[str, Any]:
    """Read the columns of a table by name."""
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file.")
    if path.suffix == ".parquet":
        return _parquet(path)
    if path.suffix not in (".csv", ".tsv"):
        raise ValueError(f"{path}: expected a .npy, .npz, .csv, .tsv or .parquet file.")
    import csv

    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = [row for row in csv.reader(file, delimiter="\t" if path.suffix == ".tsv" else ",") if row]
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path}: not a table ({error}).") from None
    if len(rows) < 2:
        raise ValueError(f"{path}: expected a header and at least one row, got {len(rows)} lines.")
    header, cells = [name.strip() for name in rows[0]], rows[1:]
    if all(_is_number(name) for name in header):
        raise ValueError(f"{path}: the first line must be a header of names, got {', '.join(header)[:80]}.")
    for number, row in enumerate(cells, start=2):
        if len(row) != len(header):
            raise ValueError(f"{path}: row {number} has {len(row)} cells, the header {len(header)}.")
    if len({*header}) != len(header):
        raise ValueError(f"{path}: two columns of the same name in its header.")
    return {name: [row[place].strip() for row in cells] for place, name in enumerate(header)}


def _parquet(path: Path) -> dict[str, Any]:
    try:
        from pyarrow import parquet  # type: ignore[import-untyped]
    except ImportError:
        raise ValueError(f"{path}: reading Parquet needs pyarrow; `pip install pyarrow`, or give a CSV file.") from None
    try:
        table = parquet.read_table(path)
    except Exception as error:  # pyarrow raises many kinds of errors
        raise ValueError(f"{path}: not a Parquet file that can be read ({type(error).__name__}).") from None
    return {name: table.column(name).to_pylist() for name in table.column_names}


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _pair(text: str) -> tuple[str, str]:
    name, equals, kind = text.rpartition("=")
    if not equals:
        raise ValueError(f"--kinds takes FACTOR=KIND, such as angle=circular, got {text!r}.")
    return name, kind
