"""Groups of factors that share latents, from a factor-code matrix as a weighted bipartite graph.

Section "Does the Estimation of Factor-Code Matrices Impact the Evaluation?": edges below a threshold are deleted; as
the threshold decreases, more factors are connected to some latent, and then to each other.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.cluster.hierarchy import cophenet, linkage
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import squareform

from unknot.metrics.functional.checks import Floats, Ints, as_matrix


class IndependentGroups(NamedTuple):
    """Independent-groups curve: numbers of connected factors and of groups at each ``threshold``, from high to low.

    ``factors`` counts factors with an edge to a latent, ``groups`` connected components with an edge. Each is ``[T]``.

    Thesis: section "Does the Estimation of Factor-Code Matrices Impact the Evaluation?".

    how many ``factors`` have an edge to a code, and how many ``groups`` (connected components with an edge) there are.
    """

    threshold: Floats
    factors: Ints
    groups: Ints

    @property
    def area(self) -> float:
        """Mean over thresholds in [0, largest entry] of groups / F, with F all factors that are ever connected.

        1 if every factor has its own latents down to threshold 0.
        """
        widths = -np.diff(np.append(self.threshold, 0.0))
        total = self.threshold[0] * max(int(self.factors.max()), 1) if len(self.threshold) else 0
        return float((widths * self.groups).sum() / total) if total > 0 else 0.0


def independent_groups(matrix: Any) -> IndependentGroups:
    r"""Count connected factors and groups at every threshold where they change.

    .. math:: G_t = \left\{(i, k) : R_{ik} \geq t\right\}

    .. math:: \mathrm{groups}(t) = \text{connected components of } G_t

    Thesis: section "Does the Estimation of Factor-Code Matrices Impact the Evaluation?".

    An edge exists if its weight is at least the threshold.

    >>> curve = independent_groups([[0.9, 0.0], [0.2, 0.8]])
    >>> curve.threshold.tolist(), curve.factors.tolist(), curve.groups.tolist()
    ([0.9, 0.8, 0.2], [1, 2, 2], [1, 2, 1])
    """
    values = as_matrix(matrix)
    thresholds = np.unique(values[values > 0])[::-1]
    factors, groups = [], []
    for threshold in thresholds:
        edges = values >= threshold
        connected = edges.any(0)
        factors.append(connected.sum())
        # every latent or factor without an edge is a component of its own; such factors are left out here
        edges = edges[np.ix_(edges.any(1), connected)]
        graph = np.zeros((sum(edges.shape), sum(edges.shape)), dtype=bool)
        graph[: len(edges), len(edges) :] = edges
        groups.append(connected_components(graph, directed=False)[0])
    return IndependentGroups(thresholds, np.array(factors, dtype=int), np.array(groups, dtype=int))


def merge_factors(matrix: Any) -> Floats:
    r"""Compute at which thresholds factors merge, as a SciPy linkage ``[F - 1, 4]``.

    .. math:: G_t = \left\{(i, k) : R_{ik} \geq t\right\}

    .. math:: \mathrm{groups}(t) = \text{connected components of } G_t

    Thesis: section "Does the Estimation of Factor-Code Matrices Impact the Evaluation?".

    The height of a merge is the largest entry minus the threshold at which the two groups of factors first share a
    connected component, so that the most entangled factors merge lowest; groups that never merge have the height of the
    largest entry itself. Plot it with ``scipy.cluster.hierarchy.dendrogram``.

    >>> merge_factors([[0.9, 0.0], [0.2, 0.8]]).round(6).tolist()
    [[0.0, 1.0, 0.7, 2.0]]
    """
    values = as_matrix(matrix)
    num_codes, num_factors = values.shape
    if num_factors < 2:
        return np.empty((0, 4))
    # Single linkage of latents and factors together merges exactly what a decreasing threshold connects.
    distance = np.full((num_codes + num_factors,) * 2, values.max())
    distance[:num_codes, num_codes:] = values.max() - values
    distance[num_codes:, :num_codes] = distance[:num_codes, num_codes:].T
    np.fill_diagonal(distance, 0)
    meet = squareform(cophenet(linkage(squareform(distance), method="single")))
    return linkage(squareform(meet[num_codes:, num_codes:]), method="single")
