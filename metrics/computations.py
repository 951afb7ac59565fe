"""Scores that need more than codes and factors: interventions, predictions, objectives."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor
from tqdm.auto import trange

from unknot.datamodules import PairDataModule
from unknot.inference import device_of, fixed_noise
from unknot.metrics import functional
from unknot.metrics.draws import BATCH, Draws
from unknot.metrics.functional.checks import Floats, Ints, accuracies
from unknot.metrics.functional.trees import fit_trees

VOTE = 64  # images per batch that share one factor
VOTES_AT_ONCE = 500  # limits memory
SIZES = (10, 100, 1000, 10_000)  # sizes of the downstream training sets
SENSITIVE_SAMPLES = 100  # for each value of a sensitive factor
INTERVENTIONS = 10  # for each target, under covariate shift


def aggregation(draws: Draws) -> dict[str, float]:
    """All aggregations of all factor-code matrices, and the thresholds at which factors are connected and merge.

    The score itself is the chapter's recommendation: the mean of DCI of boosted trees and of mutual information.
    """
    scores: dict[str, float] = {}
    names = ("importance", "information", "predictability")
    for name, matrix in zip(names, draws.matrices.values(), strict=True):
        for kind, aggregate in functional.AGGREGATIONS.items():
            scores[f"aggregation_{name}_{kind}"] = aggregate(matrix)
        largest = matrix.values.max()
        if largest > 0:
            edges = np.sort(matrix.values.max(0))[::-1] / largest
            merges = 1 - functional.merge_factors(matrix.values)[:, 2] / largest
            for kind, thresholds in (("edge", edges), ("merge", merges)):
                scores |= {f"aggregation_{name}_{kind}_{i}": float(t) for i, t in enumerate(thresholds, 1)}
    advised = [scores[f"aggregation_{name}_dci_disentanglement"] for name in names[:2]]
    return {"aggregation": float(np.mean(advised)), **scores}


# Interventional


def beta_vae(draws: Draws) -> dict[str, float]:
    """BetaVAE score: features of pairs of images that share one factor, and the index of that factor."""
    generator = draws.generator("beta_vae")

    def features(count: int) -> tuple[Floats, Ints]:
        rows, labels = [], []
        for fixed, first in _fixed_factor_batches(draws, count, generator):
            second = draws.dataset.factor_space.sample(first.shape[0] * VOTE, generator).view_as(first)
            at = fixed[:, None, None].expand(-1, VOTE, 1)
            second.scatter_(2, at, first.gather(2, at))
            codes = draws.codes(torch.cat([first, second]).flatten(0, 1), generator).reshape(2, *first.shape[:2], -1)
            rows.append(functional.difference_features(*codes))
            labels.append(fixed.numpy())
        return np.concatenate(rows), np.concatenate(labels)

    if max(draws.dataset.factor_space.sizes) == 1:
        return {"beta_vae": 0.0}
    train = features(draws.num_train)
    return {"beta_vae": functional.beta_vae_score(*train, *features(draws.num_test))}


def factor_vae(draws: Draws) -> dict[str, float]:
    """FactorVAE score: votes of the latent that varies least while one factor is fixed."""
    generator = draws.generator("factor_vae")
    global_std = draws.train[0].std(0, ddof=1) if draws.num_train > 1 else np.zeros(draws.train[0].shape[1])
    if (global_std < 0.05).all() or max(draws.dataset.factor_space.sizes) == 1:
        return {"factor_vae": 0.0}

    def votes(count: int) -> tuple[Ints, Ints]:
        argmins, labels = [], []
        for fixed, factors in _fixed_factor_batches(draws, count, generator):
            at = fixed[:, None, None].expand(-1, VOTE, 1)
            factors.scatter_(2, at, factors[:, :1].gather(2, at[:, :1]).expand(-1, VOTE, 1))
            codes = draws.codes(factors.flatten(0, 1), generator).reshape(*factors.shape[:2], -1)
            argmins.append(functional.least_varying(codes, global_std))
            labels.append(fixed.numpy())
        return np.concatenate(argmins), np.concatenate(labels)

    train = votes(draws.num_train)
    return {"factor_vae": functional.factor_vae_score(*train, *votes(draws.num_test), latent_dim=len(global_std))}


def _fixed_factor_batches(draws: Draws, count: int, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
    """Draw indices of factors to fix ``[B]``, and random factors ``[B, 64, F]``, a few hundred batches at a time.

    Factors with a single value are never chosen.
    """
    space = draws.dataset.factor_space
    candidates = torch.tensor([index for index, size in enumerate(space.sizes) if size > 1])
    for start in trange(0, count, VOTES_AT_ONCE, desc="interventions", disable=None, leave=False):
        votes = min(VOTES_AT_ONCE, count - start)
        fixed = candidates[torch.randint(len(candidates), (votes,), generator=generator)]
        yield fixed, space.sample(votes * VOTE, generator).view(votes, VOTE, -1)


# Downstream


def downstream(draws: Draws, classifier: str) -> dict[str, float]:
    """Accuracy after 10 to 10,000 samples, tested on as many further samples, and sample efficiency."""
    name = f"downstream_{classifier}"
    codes, factors = draws.train
    test_codes, test_factors = draws.downstream
    sizes = [size for size in SIZES if size < draws.num_train] + [draws.num_train]
    scores, details = {}, {}
    for size in sizes:
        if classifier == "gbt" and size == draws.num_train:
            accuracy = accuracies(draws.predictors.predict(test_codes), test_factors)
        else:
            accuracy = functional.downstream_accuracy(
                codes[:size], factors[:size], test_codes, test_factors, classifier, draws.backend, per_factor=True
            )
        scores[f"{name}_{size}"] = float(accuracy.mean())
        for factor, value in zip(draws.factor_names, accuracy, strict=True):
            details[f"{name}_{size}/{factor}"] = float(value)
    scores = {name: scores[f"{name}_{sizes[-1]}"]} | scores
    if {100, 10_000} <= set(sizes):
        scores[f"{name}_efficiency"] = scores[f"{name}_100"] / scores[f"{name}_10000"]
    return scores | details


def covariate_shift(draws: Draws) -> dict[str, float]:
    """Accuracy if another factor is fixed to one value in training and takes only its other values in the test."""
    space = draws.dataset.factor_space
    varied = [index for index, size in enumerate(space.sizes) if size > 1]
    if len(varied) < 2:
        return {"covariate_shift": 0.0}
    generator = draws.generator("covariate_shift")
    accuracy: dict[int, list[float]] = {target: [] for target in varied}
    for _ in trange(INTERVENTIONS, desc="interventions", disable=None, leave=False):
        frozen_for = {target: _pick([other for other in varied if other != target], generator) for target in varied}
        for frozen in sorted(set(frozen_for.values())):
            # targets with the same fixed factor share its value and their samples
            targets = [target for target in varied if frozen_for[target] == frozen]
            size = space.sizes[frozen]
            value = torch.randint(size, (1,), generator=generator)
            train, test = (space.sample(n, generator) for n in (draws.num_train, draws.num_test))
            train[:, frozen] = value
            test[:, frozen] = (value + 1 + torch.randint(size - 1, (len(test),), generator=generator)) % size
            trees = fit_trees(draws.codes(train, generator), train[:, targets].numpy(), draws.backend, draws.seed)
            right = trees.predict(draws.codes(test, generator)) == test[:, targets].numpy()
            for target, share in zip(targets, right.mean(0), strict=True):
                accuracy[target].append(float(share))
    per_factor = {f"covariate_shift/{space.names[target]}": float(np.mean(accuracy[target])) for target in varied}
    return {"covariate_shift": float(np.mean(list(per_factor.values())))} | per_factor


def _pick(options: list[int], generator: torch.Generator) -> int:
    return options[int(torch.randint(len(options), (1,), generator=generator))]


def unfairness(draws: Draws) -> dict[str, float]:
    """Mean over targets and sensitive factors; samples of an intervention serve all targets."""
    space = draws.dataset.factor_space
    varied = [index for index, size in enumerate(space.sizes) if size > 1]
    if len(varied) < 2:
        return {"unfairness": 0.0, "unfairness_max": 0.0}
    generator = draws.generator("unfairness")
    means, largest = {}, []
    for sensitive in varied:
        size = space.sizes[sensitive]
        factors = space.sample(SENSITIVE_SAMPLES, generator).repeat(size, 1)
        factors[:, sensitive] = torch.arange(size).repeat_interleave(SENSITIVE_SAMPLES)
        predicted = draws.predictors.predict(draws.codes(factors, generator))
        for target in varied:
            if target != sensitive:
                both = predicted[:, target], factors[:, sensitive].numpy()
                means[f"unfairness/{space.names[target]}|{space.names[sensitive]}"] = functional.unfairness(*both)
                largest.append(functional.unfairness(*both, reduction="max"))
    return {"unfairness": float(np.mean(list(means.values()))), "unfairness_max": float(np.mean(largest))} | means


# Unsupervised


def total_correlation(draws: Draws) -> dict[str, float]:
    """Gaussian total correlation of the means, and of samples if the model has a posterior."""
    codes, _ = draws.train
    scores = {
        "total_correlation": functional.total_correlation(codes),
        "total_correlation_wasserstein": functional.wasserstein_dependence(codes),
        "total_correlation_wasserstein_normalized": functional.wasserstein_dependence(codes, normalized=True),
        "total_correlation_pairwise_information": functional.pairwise_information(codes),
    }
    if "elbo" in getattr(draws.model, "capabilities", ()):  # other models' `encode` may not return a distribution
        sampled = torch.cat([draws.model.encode(images).sample().cpu() for images in _batches(draws, draws.num_train)])
        scores["total_correlation_sampled"] = functional.total_correlation(sampled)
    return scores


def elbo(draws: Draws) -> dict[str, float]:
    """Terms of the objective, each a mean over images; latents are sampled."""
    totals = {"elbo": 0.0, "elbo_reconstruction": 0.0, "elbo_kl": 0.0}
    for images in _batches(draws, draws.num_test):
        terms = draws.model.objective(images, draws.model.encode(images))
        for name in totals:
            totals[name] += float(terms[name.removeprefix("elbo_")]) * len(images)
    return {name: total / draws.num_test for name, total in totals.items()}


def weak_reconstruction(draws: Draws) -> dict[str, float]:
    """Loss that selects weakly-supervised models without labels: both reconstructions, averaged over pairs.

    In each pair, k factors are resampled, with k from 1 to F - 1 at random; a model that needs a group label receives
    one of them.
    """
    pairs = PairDataModule(draws.dataset, batch_size=BATCH, group_label=True)
    generator, total = draws.generator("pairs"), 0.0
    batches = -(-draws.num_test // BATCH)
    with fixed_noise(draws.model, generator.initial_seed()):
        for _ in range(batches):
            batch = [part.to(device_of(draws.model)) for part in pairs.draw(generator)]
            total += float(draws.model.losses(batch)["weak_reconstruction"])
    return {"weak_reconstruction": total / batches}


def _batches(draws: Draws, count: int) -> Iterator[Tensor]:
    """Yield batches of images on the model's device, with separate random numbers for the model's noise."""
    generator = draws.generator("noise")
    with fixed_noise(draws.model, generator.initial_seed()):
        for images, _ in draws.images(count, generator):
            yield images.to(device_of(draws.model))
