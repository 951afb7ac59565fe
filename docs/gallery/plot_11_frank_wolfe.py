"""
Frank-Wolfe, and how far from the optimum it can be
===================================================

Frank-Wolfe minimises over a hull by asking for its best vertex. The answer also bounds how much there is left to
gain: the *gap*. Here a sparse regression over an ℓ₁ ball is solved by three variants. The optimum is known from a
long run, so the promise can be compared with the truth.
"""

import matplotlib.pyplot as plt
import numpy as np

from unknot.solvers import LeastSquares, atoms, frank_wolfe

rng = np.random.default_rng(0)
A = rng.standard_normal((200, 500))
truth = np.zeros(500)
truth[:20] = rng.standard_normal(20)
objective = LeastSquares(A, A @ truth + 0.1 * rng.standard_normal(200))
ball = atoms.L1Ball(0.9 * np.abs(truth).sum())

# %%
# ``value - gap`` of any result is a lower bound on the optimum. The best one is taken as the reference.
reference = frank_wolfe(objective, ball, variant="pairwise", tol=1e-10, max_iterations=20_000)
optimum = reference.value - reference.gap
print(reference)

# %%
figure, axis = plt.subplots(figsize=(8, 4.4))
for variant, colour in [("plain", "#0072b2"), ("away", "#e69f00"), ("pairwise", "#009e73")]:
    trace = frank_wolfe(objective, ball, variant=variant, tol=1e-6, max_iterations=600).trace
    distance = np.maximum(np.array(trace.value) - optimum, 1e-9)
    axis.semilogy(np.minimum.accumulate(trace.gap), color=colour, ls=":", lw=1.5)
    axis.semilogy(distance, color=colour, label=variant)
axis.plot([], [], color="#000000", label="distance from the optimum")
axis.plot([], [], color="#000000", ls=":", label="what the solver promises at most")
axis.set(xlabel="iteration", ylabel="f(x) - f(x*)", ylim=(1e-7, None))
axis.legend(ncols=2)
axis.set_title("The promise lies above the truth at every step; away and pairwise steps are linear")
plt.show()
