"""
MIG and DCI disagree about the same codes
=========================================

Both are called scores of disentanglement. MIG asks whether each factor sits in *one code*; DCI's disentanglement
asks whether each code is about *one factor*. Copying a code separates the two questions, and mixing two codes
answers both.
"""

import matplotlib.pyplot as plt
import numpy as np

from unknot.metrics.functional import dci, information_matrix, mig

rng = np.random.default_rng(0)
factors = rng.integers(0, 4, size=(1200, 3))
noise = 0.05 * rng.standard_normal((1200, 6))
clean = factors - 1.5
turn = np.linalg.qr(rng.standard_normal((3, 3)))[0]

# %%
# The same information, arranged in three ways.
arrangements = {
    "one code each": clean + noise[:, :3],
    "every code twice": np.repeat(clean, 2, axis=1) + noise,
    "codes rotated": clean @ turn + noise[:, :3],
}

# %%
# Rows are codes, columns are factors; the brighter, the more a code knows.
figure, axes = plt.subplots(2, 3, figsize=(8.5, 5.6), height_ratios=[1.3, 1])
for (name, codes), top, bottom in zip(arrangements.items(), *axes):
    top.imshow(information_matrix(codes, factors).values, vmin=0, vmax=np.log(4), aspect="auto")
    top.set(title=name, xticks=range(3), yticks=range(codes.shape[1]), xlabel="factor", ylabel="code")
    scores = dci(codes[:800], factors[:800], codes[800:], factors[800:])
    values = [mig(codes, factors), scores["disentanglement"], scores["completeness"]]
    bars = bottom.bar(["MIG", "DCI\ndisent.", "DCI\ncompl."], values, color=["#e69f00", "#0072b2", "#56b4e9"])
    bottom.bar_label(bars, fmt="%.2f")
    bottom.set(ylim=(0, 1.15), yticks=[0, 0.5, 1])
figure.suptitle("A copied code ruins MIG and leaves DCI's disentanglement at one")
plt.show()
