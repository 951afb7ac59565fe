"""Definitions of unknot's scores: facts about each, its documentation, and its computation.

To add a score, write the pure function in ``functional/`` and register it here; everything else uses the registry. This
module imports neither torch nor NumPy, so that listing scores is fast: functions import what they need when called.
"""

from typing import TYPE_CHECKING, Any

from unknot import metrics
from unknot.metrics.registry import describe, register

if TYPE_CHECKING:
    from unknot.metrics.draws import Draws

UNIT = (0.0, 1.0)

# Disentanglement


@register(
    "mig", title="MIG", better="higher", rank=1, group="disentanglement", default=True, on_labels="all", bounds=UNIT
)
def _mig(draws: "Draws") -> Any:
    """Gap between the two latents with the most mutual information with a factor, as a share of the factor's entropy.

    Measures compactness: one latent per factor. Does not detect several factors in one latent. 10,000 samples.
    """
    return metrics.functional.mig(*draws.train)


@register(
    "dci",
    title="DCI",
    better="higher",
    rank=2,
    group="disentanglement",
    default=True,
    on_labels="split",
    bounds=UNIT,
    parts={
        "completeness": "DCI completeness",
        "informativeness_train": "DCI informativeness train",
        "informativeness_test": "DCI informativeness test",
    },
)
def _dci(draws: "Draws") -> Any:
    """Disentanglement by the importance of latents for boosted trees: does each latent encode one factor?

    Also reports completeness (is each factor encoded by one latent?) and informativeness (accuracy of the prediction).
    10,000 + 5,000 samples; 100 rounds of trees for every class.
    """
    from unknot.metrics.functional.dci import dci_of_trees

    scores = dci_of_trees(draws.trees, *draws.train, *draws.test)
    del scores["importance"]
    return {"dci": scores.pop("disentanglement"), **{f"dci_{name}": value for name, value in scores.items()}}


@register(
    "sap", title="SAP", better="higher", rank=3, group="disentanglement", default=True, on_labels="split", bounds=UNIT
)
def _sap(draws: "Draws") -> Any:
    """Gap in accuracy between the two latents that predict a factor best, each alone, by a linear support vector
    machine.

    Measures compactness. Does not detect several factors in one latent, or dependence that a linear classifier misses.
    10,000 + 5,000 samples.
    """
    return metrics.functional.sap(*draws.train, *draws.test)


@register(
    "modularity",
    title="Modularity",
    better="higher",
    rank=5,
    group="disentanglement",
    default=True,
    on_labels="all",
    bounds=UNIT,
)
def _modularity(draws: "Draws") -> Any:
    """Degree to which each latent has mutual information with only one factor.

    Measures disentanglement. Does not detect whether a factor is encoded at all. 10,000 samples.
    """
    return metrics.functional.modularity(*draws.train)


@register(
    "explicitness",
    title="Explicitness",
    better="higher",
    rank=9,
    group="disentanglement",
    default=True,
    on_labels="split",
    bounds=UNIT,
)
def _explicitness(draws: "Draws") -> Any:
    """Area under the ROC curve of a logistic regression for each value of each factor; 0.5 is chance.

    Measures whether classes are linearly separable. Does not measure disentanglement. 10,000 + 5,000 samples.
    """
    return metrics.functional.explicitness(*draws.train, *draws.test)


@register("irs", title="IRS", better="higher", rank=7, group="disentanglement", default=True, bounds=(None, 1.0))
def _irs(draws: "Draws") -> Any:
    """Degree to which a latent stays constant while its factor is fixed and all others change.

    Measures restrictiveness. Does not detect latents that encode several factors, if one of them dominates. 10,000
    samples.
    """
    return metrics.functional.irs(*draws.train)


@register("beta_vae", intervenes=True, title="BetaVAE", better="higher", rank=6, group="disentanglement", bounds=UNIT)
def _beta_vae(draws: "Draws") -> Any:
    """Accuracy of a linear classifier that names the factor shared by pairs of images, from differences of their
    latents.

    Measures consistency. Does not detect a latent that encodes two factors. 15,000 batches of 2 x 64 images.
    """
    return metrics.computations.beta_vae(draws)


@register(
    "factor_vae", intervenes=True, title="FactorVAE", better="higher", rank=4, group="disentanglement", bounds=UNIT
)
def _factor_vae(draws: "Draws") -> Any:
    """Accuracy of a majority vote that names the factor shared by a batch of images, from the latent that varies least.

    Measures consistency. Does not measure how strongly latents encode factors. 15,000 batches of 64 images.
    """
    return metrics.computations.factor_vae(draws)


@register(
    "aggregation",
    title="Aggregation",
    better="higher",
    group="disentanglement",
    parts={
        f"{matrix}_{kind}_{place}": (f"Aggregation {matrix} {kind} {place}", None)
        for matrix in ("importance", "information", "predictability")
        for kind in ("edge", "merge")
        for place in range(1, 21)
    },
)
def _aggregation(draws: "Draws") -> Any:
    """Mean of DCI's aggregation of the importance of boosted trees and of mutual information, as the thesis recommends.

    Also reports all aggregations of all factor-code matrices, and the thresholds at which factors are connected and
    merge.
    """
    return metrics.computations.aggregation(draws)


@register(
    "infomec",
    title="InfoM",
    better="higher",
    rank=12,
    group="disentanglement",
    parts={"explicitness": "InfoE", "compactness": "InfoC", "permuted": ("InfoM of permuted factors", None)},
    bounds=UNIT,
)
def _infomec(draws: "Draws") -> Any:
    """Share of a latent's information that is about one factor; also reports InfoE, InfoC and InfoM of permuted
    factors.

    Does not measure how much a latent encodes: uninformative latents can score higher than good ones. Read it with
    InfoE. For quantised models, which have the capability "levels", information is counted; for others it is estimated
    from nearest neighbours. 10,000 samples.
    """
    codes, factors = draws.train
    discrete = "levels" in getattr(draws.model, "capabilities", ())
    scores = metrics.functional.infomec(codes, factors, discrete)
    permuted = metrics.functional.permuted_baseline(
        lambda *rows: metrics.functional.infomec(rows[0], rows[1], discrete), codes, factors, 1, draws.seed
    )
    return {
        "infomec": scores["infom"],
        "infomec_explicitness": scores["infoe"],
        "infomec_compactness": scores["infoc"],
        "infomec_permuted": permuted["mean"]["infom"],
    }


@register(
    "mcc",
    title="MCC",
    better="higher",
    rank=13,
    group="disentanglement",
    parts={"spearman": "MCC (Spearman)"},
    bounds=UNIT,
)
def _mcc(draws: "Draws") -> Any:
    """Mean correlation of each factor with its own latent, under the best one-to-one match; also reports rank
    correlation.

    Treats factors as numbers: the value for a categorical or circular factor means little. 10,000 samples.
    """
    return {
        "mcc": metrics.functional.mcc(*draws.numbers[0]),
        "mcc_spearman": metrics.functional.mcc(*draws.numbers[0], correlation="spearman"),
    }


@register("linear_r2", title="Linear R²", better="higher", group="disentanglement", bounds=(None, 1.0))
def _linear_r2(draws: "Draws") -> Any:
    """Share of the variance of the factors, as numbers, that a linear map of the latents predicts on further samples.

    Does not measure disentanglement. 10,000 + 5,000 samples.
    """
    return metrics.functional.regression_r2(*draws.numbers[0], *draws.numbers[1])["r2"]


@register(
    "med",
    title="MED",
    better="higher",
    group="disentanglement",
    parts={"completeness": "MED completeness"},
    bounds=UNIT,
)
def _med(draws: "Draws") -> Any:
    """DCI's disentanglement and completeness of mutual information, factors weighted equally. 10,000 samples."""
    scores = metrics.functional.med(*draws.train)
    return {"med": scores["disentanglement"], "med_completeness": scores["completeness"]}


@register("dcimig", title="DCIMIG", better="higher", group="disentanglement", bounds=UNIT)
def _dcimig(draws: "Draws") -> Any:
    """Gap between two factors in each factor's best latent, as a share of all factors' entropy. 10,000 samples."""
    return metrics.functional.dcimig(*draws.train)


@register("jemmig", title="JEMMIG", better="higher", group="disentanglement", bounds=UNIT)
def _jemmig(draws: "Draws") -> Any:
    """MIG with a penalty for other information in the best latent. Constant latents score high. 10,000 samples."""
    return metrics.functional.jemmig(*draws.train)


@register("mig_sup", title="MIG-sup", better="higher", group="disentanglement", bounds=UNIT)
def _mig_sup(draws: "Draws") -> Any:
    """Gap of each latent between two factors, as a share of the latent's entropy. 10,000 samples."""
    return metrics.functional.mig_sup(*draws.train)


@register(
    "dci_es",
    title="Explicitness (DCI-ES)",
    better="higher",
    group="disentanglement",
    on_request=True,
    parts={
        "disentanglement": "DCI-ES disentanglement",
        "completeness": "DCI-ES completeness",
        "informativeness_test": "DCI-ES informativeness",
        "size": ("DCI-ES size", None),
    },
)
def _dci_es(draws: "Draws") -> Any:
    """Small capacity that random forests need to predict the factors: 1 if more depth does not help.

    Does not measure accuracy: uninformative latents score 1, so informativeness is reported with it. 10,000 + 5,000
    samples; forests of depths 1 to 32.
    """
    scores = metrics.functional.dci_es(*draws.train, *draws.test)
    parts = ("disentanglement", "completeness", "informativeness_test", "size")
    return {"dci_es": scores["explicitness"], **{f"dci_es_{name}": scores[name] for name in parts}}


# Downstream


@register("downstream_gbt", title="Downstream GBT", better="higher", group="downstream", bounds=UNIT)
def _downstream_gbt(draws: "Draws") -> Any:
    """Accuracy of boosted trees that predict the factors after 10 to 10,000 samples, and sample efficiency."""
    return metrics.computations.downstream(draws, "gbt")


@register("downstream_lr", title="Downstream LR", better="higher", group="downstream", bounds=UNIT)
def _downstream_lr(draws: "Draws") -> Any:
    """Accuracy of logistic regressions that predict the factors after 10 to 10,000 samples, and sample efficiency."""
    return metrics.computations.downstream(draws, "lr")


@register("covariate_shift", intervenes=True, title="Covariate shift", better="higher", group="downstream", bounds=UNIT)
def _covariate_shift(draws: "Draws") -> Any:
    """Accuracy if another factor is fixed to one value in training and takes only its other values in the test."""
    return metrics.computations.covariate_shift(draws)


@register("unfairness", intervenes=True, title="Unfairness", better="lower", group="downstream", bounds=UNIT)
def _unfairness(draws: "Draws") -> Any:
    """Dependence of predictions of one factor on another, averaged over all pairs of factors."""
    return metrics.computations.unfairness(draws)


@register("reasoning", intervenes=True, on_request=True, title="Reasoning", better="higher", group="downstream")
def _reasoning(draws: "Draws") -> Any:
    """Accuracy of a relation network that learns to complete matrices of images from their latents."""
    from unknot.metrics.reasoning import reasoning

    return reasoning(draws)


# Unsupervised


@register(
    "total_correlation",
    title="Total correlation",
    better="lower",
    rank=10,
    group="unsupervised",
    default=True,
    bounds=(0.0, None),
    parts={
        "sampled": "Total correlation sampled",
        "wasserstein": "Total correlation Wasserstein",
        "wasserstein_normalized": "Total correlation Wasserstein normalized",
    },
)
def _total_correlation(draws: "Draws") -> Any:
    """Total correlation of the latents under a Gaussian approximation, in nats; also of samples if the model has a
    posterior.

    Does not use factors, and does not detect non-linear dependence. 10,000 samples.
    """
    return metrics.computations.total_correlation(draws)


@register(
    "elbo",
    needs="elbo",
    title="ELBO",
    better="higher",
    rank=11,
    group="unsupervised",
    default=True,
    parts={"reconstruction": ("ELBO reconstruction", "lower"), "kl": ("ELBO KL", "lower")},
)
def _elbo(draws: "Draws") -> Any:
    """Evidence lower bound and its two terms, each averaged over images; latents are sampled."""
    return metrics.computations.elbo(draws)


@register("weak_reconstruction", needs="pairs", title="Weak reconstruction", better="lower", group="unsupervised")
def _weak_reconstruction(draws: "Draws") -> Any:
    """Loss that selects weakly-supervised models without labels: both reconstructions, averaged over pairs."""
    return metrics.computations.weak_reconstruction(draws)


# Computed elsewhere: by `set_scores`, `attention_score`, `functional.udr` and training

describe("ap", "AP", "higher", "objects", bounds=UNIT)
describe("ari", "ARI", "higher", "objects", bounds=(-1.0, 1.0))
describe("miou", "mIoU", "higher", "objects", bounds=UNIT, parts={"object": "mIoU per object"})
describe("mbo", "mBO", "higher", "objects", bounds=UNIT, parts={"object": "mBO per object"})
describe("recovery", "Recovery", "higher", "objects", bounds=UNIT)
describe("corloc", "CorLoc", "higher", "objects", bounds=UNIT)
describe("udr", "UDR", "higher", "unsupervised", bounds=UNIT)
describe("accuracy", "Accuracy", "higher", bounds=UNIT)
describe("loss", "Loss", "lower")
describe("reconstruction", "Reconstruction", "lower")
describe("kl", "KL", "lower")
describe("supervised", "Supervised loss", "lower")
