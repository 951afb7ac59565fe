"""The pages of the studies: every measured number on them is computed from tables, and is what the tables give."""

import contextlib
from pathlib import Path

import pandas as pd
import pytest
import study_pages

from unknot.studies import claims
from unknot.studies.population import Missing
from unknot.studies.synthetic import synthetic_results

FOLDER = Path(__file__).parents[2] / "docs" / "studies"
PAGES = sorted(FOLDER.glob("*.md"))


@pytest.mark.parametrize(
    "path", [pytest.param(path, marks=pytest.mark.slow if path.stem == "results" else ()) for path in PAGES]
)
def test_pages_say_what_the_tables_say(path: Path) -> None:
    """Otherwise: python tools/study_pages.py docs/studies."""
    page = path.read_text(encoding="utf-8")
    assert study_pages.rewrite(page, FOLDER) == page


@pytest.mark.parametrize("path", PAGES)
def test_no_measured_number_is_typed_by_hand(path: Path) -> None:
    page = path.read_text(encoding="utf-8")
    assert study_pages.figures(page)[1] == []
    start = page.index("\n\n") + 2
    typed = f"{page[:start]}It is 3.5 % higher, 0.21 in all.\n\n{page[start:]}"
    assert study_pages.figures(typed)[1] == ["3.5 %", "0.21"]


def test_blocks_of_pages_are_those_that_are_written() -> None:
    names = [match["name"] for path in PAGES for match in study_pages.BLOCK.finditer(path.read_text(encoding="utf-8"))]
    assert sorted(names) == sorted(study_pages.BLOCKS)


def estimate(low: float, high: float) -> claims.Estimate:
    return claims.Estimate((low + high) / 2, low, high, 10)


@pytest.mark.parametrize(
    ("intervals", "verdict", "reason"),
    [
        ([(0.6, 0.8)], "reproduced", ""),
        ([(0.2, 0.4)], "contradicted", ""),
        ([(0.4, 0.6)], "untested here", "the interval holds the limit"),
        ([(0.6, 0.8), (0.4, 0.6)], "reproduced", "holds on 0, undecided on 1"),
        ([(0.6, 0.8), (0.2, 0.4)], "contradicted", "holds on 0, fails on 1"),
        ([], "untested here", "no models"),
    ],
)
def test_a_verdict_follows_from_intervals(intervals: list[tuple[float, float]], verdict: str, reason: str) -> None:
    claim = claims.Claim("weak", "", low=0.5)
    found = claims.Finding(claim, {str(i): estimate(*of) for i, of in enumerate(intervals)}, {"0": "no models"})
    assert (found.verdict, found.reason) == (verdict, reason)


def test_a_claim_that_something_is_small_has_two_limits() -> None:
    claim = claims.Claim("unsupervised", "", low=-0.3, high=0.3)
    verdicts = [claims.Finding(claim, {"": estimate(*of)}).verdict for of in ((-0.1, 0.2), (0.4, 0.6), (0.2, 0.4))]
    assert verdicts == ["reproduced", "contradicted", "untested here"]


def test_planted_effects_are_reproduced_and_absent_ones_are_not() -> None:
    table = synthetic_results(("dsprites",), seeds=4)

    def verdict(start: str, of: pd.DataFrame) -> str:
        (claim,) = (claim for claim in claims.CLAIMS if claim.text.startswith(start))
        assert claim.measure
        return claims.Finding(claim, {"": claim.measure(of, resamples=50)}).verdict

    for start in ("Metrics go with the accuracy", "All metrics but modularity", "100 samples do not"):
        assert verdict(start, table) == "reproduced", start
    assert verdict("An Ada-GVAE beats a model without", table) == "reproduced"
    reverse = table.assign(unfairness=-table.unfairness, weak_reconstruction=-table.weak_reconstruction)
    for start in ("Disentangled models are fairer", "The weak loss goes with bad metrics"):
        assert (verdict(start, table), verdict(start, reverse)) == ("reproduced", "contradicted"), start


@pytest.mark.slow
def test_numbers_that_claims_name_exist() -> None:
    """A number that an analysis gives another label would leave its claim untested."""
    table = synthetic_results(seeds=2).assign(elbo=1.0, elbo_reconstruction=1.0, total_correlation_sampled=1.0)
    named = [claim for claim in claims.CLAIMS if getattr(claim.measure, "func", None) is claims.number]
    assert len(named) > 20
    for claim in named:
        if claim.measure and claim.measure.keywords["analysis"] != "semi_supervised":  # needs labels
            with contextlib.suppress(Missing):
                claim.measure(table, resamples=2)


def test_correlations_of_claims_are_those_of_pandas() -> None:
    table = synthetic_results(("dsprites",), seeds=2, weak=False)
    found = claims.rank(table, 20, [("mig", "unfairness"), ("dci", "unfairness")], [("sap", "unfairness")])
    rho = table[["mig", "dci", "sap", "unfairness"]].corr(method="spearman").unfairness
    assert found.value == pytest.approx((rho.mig + rho.dci) / 2 - rho.sap, abs=1e-12)
    assert found.low < found.value < found.high
    assert found.models == len(table) == 72


def test_every_claim_has_a_chapter_and_a_side() -> None:
    findings = claims.decide({}, resamples=2)
    assert len(findings) == len(claims.CLAIMS) > 60
    assert claims.counts(findings) == {"reproduced": 0, "contradicted": 0, "untested here": len(findings)}
    for finding in findings:
        assert finding.claim.chapter in claims.CHAPTERS
        assert finding.reason
        assert finding.claim.reason or max(abs(finding.claim.low), abs(finding.claim.high)) > 0
        assert pd.notna(finding.claim.low)


def test_models_that_replace_others_bring_no_score_that_the_others_lack() -> None:
    def table(methods: list[str], **columns: float) -> pd.DataFrame:
        frame = pd.DataFrame({"method": methods, "mig": 0.5, **columns})
        frame.attrs |= {"models": len(methods), "planned": len(methods)}
        return frame

    small = table(["AnnealedVAE", "BetaVAE"])
    better = table(["AnnealedVAE", "DIPVAEI"], beta_vae=0.9, **{"model.c_max": 5.0})
    joined = claims.unsupervised({"dsprites32": small, "capacity32": better})
    assert joined.method.tolist() == ["BetaVAE", "AnnealedVAE"]
    assert sorted(joined) == ["method", "mig", "model.c_max"]
    better.attrs["models"] = 1  # not complete yet
    assert claims.unsupervised({"dsprites32": small, "capacity32": better}).equals(small)
