"""Variants of Frank-Wolfe that are newer than the thesis, each a loop beside the box of its paper.

blended-pairwise: Tsuji, Tanaka and Pokutta, "Pairwise conditional gradients without swap steps and sparser kernel
herding" (2022). blended-corrective: Halbey, Rakotomandimby, Besançon, Designolle and Pokutta, "Efficient quadratic
corrections for Frank-Wolfe algorithms" (2025). block-coordinate: Lacoste-Julien, Jaggi, Schmidt and Pletscher,
"Block-coordinate Frank-Wolfe optimization for structural SVMs" (2013).
"""

import math

import numpy as np
import torch

from unknot.solvers.atoms import Product
from unknot.solvers.corrections import HULL, full_correction
from unknot.solvers.frank_wolfe import Descent
from unknot.solvers.lines import Direction
from unknot.solvers.result import Result, check_gradient
from unknot.solvers.structured import Sparse, dot

FACTOR = 2.0
"""K of the weak separation oracle: an atom is good enough if it promises Φ / K."""


def blended(descent: Descent, corrective: bool) -> Result:
    """Blended pairwise conditional gradients: steps among the active atoms as long as those promise Φ_k.

        s_k = argmin_{s ∈ 𝒮} ⟨∇f(θ_k), s⟩,   v_k = argmax_{v ∈ 𝒮} ⟨∇f(θ_k), v⟩

        if ⟨∇f, v_k - s_k⟩ ≥ Φ_k:             θ_{k+1} = θ_k + γ (s_k - v_k),   γ ∈ [0, α_v]: no oracle, no swap
        else z_k = lmo(∇f(θ_k)):
            if ⟨∇f, θ_k - z_k⟩ ≥ Φ_k / K:     θ_{k+1} = θ_k + γ (z_k - θ_k)
            else:                             Φ_{k+1} = min(Φ_k / 2, that gap)

    The corrective one takes the minimiser of f over conv(𝒮) in place of the first step; for a quadratic f that is a
    small quadratic programme.
    """
    run, point, active = descent.run, descent.point, descent.active
    correction = full_correction(descent.problem.objective, HULL, run.tol) if corrective else None
    _, _, _, promise = descent.look()
    promise /= 2
    corrected = False
    while True:
        gradient, value = point.gradient(), point.value()
        check_gradient(gradient, run.iteration)
        s, v, weight, local = active.best(gradient)
        lazy = local >= promise > 0 and len(active) > 1 and not corrected and run.iteration < run.max_iterations
        if lazy:
            gap = descent.certificate(point, gradient, value, -math.inf)
        else:
            gradient, value, z, gap = descent.look()
        if run.finished(point.x, value, gap):
            break
        if lazy and correction is not None:
            moved = correction.apply(active, point, None, run.expired)
            corrected = True  # f is minimal over 𝒮: nothing more to be had there
        elif lazy:
            moved = descent.step(Direction(0.0, ((1.0, s), (-1.0, v))), weight, v)
        else:
            corrected = False
            gain = dot(gradient, point.x) - z.inner(gradient)
            if gain < promise / FACTOR:
                promise = min(promise / 2, max(gain, 0.0))
                continue
            moved = descent.step(Direction(-1.0, ((1.0, z),)), 1.0)
        if not moved and lazy:
            promise = 2 * local  # rounding is all that is left among the active atoms: ask the oracle
        descent.rebuild()
        if run.stalled(moved):
            break
    return descent.result()


def block_coordinate(descent: Descent, seed: int) -> Result:
    """One block of a product in each iteration, in a random order that is drawn again for every pass.

        z = lmo_{𝒜_i}(∇_i f(θ_k)),   θ_i ← θ_i + γ (z - θ_i)

    The gap is that of all blocks together, known once in every pass; in between it rests on the best lower bound.
    """
    run, point, product = descent.run, descent.point, descent.problem.atoms
    if not isinstance(product, Product):
        raise ValueError(f"variant 'block-coordinate' works on atoms.Product(...), not on {product}.")
    order = np.random.default_rng(seed)
    starts = np.cumsum([0, *(math.prod(block.shape or ()) for block in product.sets)])
    queue: list[int] = []
    quiet: set[int] = set()  # blocks in which no step was possible since the last one that was
    while True:
        gradient, value = point.gradient(), point.value()
        check_gradient(gradient, run.iteration)
        gap = descent.certificate(point, gradient, value, -math.inf)
        if not queue or run.iteration >= run.max_iterations:
            gradient, value, _, gap = descent.look()
            queue = order.permutation(len(product.sets)).tolist()
        if run.finished(point.x, value, gap):
            break
        i = queue.pop()
        places = torch.arange(int(starts[i]), int(starts[i + 1]), device=gradient.device)
        piece, here = product.blocks(gradient)[i], point.x[places].clone()
        z = product.sets[i].atom(piece, here.reshape(piece.shape)).dense().reshape(-1)
        ahead, behind = (
            Sparse(1.0, None, indices=places, values=values, shape=tuple(point.x.shape)) for values in (z, here)
        )
        if descent.step(Direction(0.0, ((1.0, ahead), (-1.0, behind))), 1.0, track=False):
            quiet.clear()
            run.stalled(True)
            continue
        quiet.add(i)
        if len(quiet) == len(product.sets):
            quiet.clear()
            if run.stalled(False):
                break
    return run.result(point.x, smoothness=descent.rule.smoothness)
