"""
What is a spectrum made of? Non-negative pursuit
================================================

A mixture of substances has a spectrum that is a sum of theirs, and amounts are never negative. Least squares does
not know that; the projection on the *cone* of the spectra does, and it is sparse by itself.
"""

import matplotlib.pyplot as plt
import numpy as np

from unknot.solvers import nonnegative_matching_pursuit

rng = np.random.default_rng(1)
wavelength = np.linspace(0, 1, 200)

# %%
# A library of 60 substances, each with three peaks.
centres, widths, heights = rng.random((60, 3)), rng.uniform(0.01, 0.05, (60, 3)), rng.uniform(0.3, 1, (60, 3))
peaks = np.exp(-(((wavelength[:, None, None] - centres) / widths) ** 2) / 2)
library = (heights * peaks).sum(2)

# %%
# Four of them are in the sample, and the measurement is noisy.
amounts = np.zeros(60)
amounts[[4, 17, 33, 51]] = [1.0, 0.7, 0.5, 0.3]
measured = library @ amounts + 0.03 * rng.standard_normal(200)

result = nonnegative_matching_pursuit(measured, library, tol=1e-10)
plain = np.linalg.lstsq(library, measured, rcond=None)[0]
print(result)

# %%
figure, (top, bottom) = plt.subplots(2, 1, figsize=(8, 5.6))
top.plot(wavelength, measured, color="#999999", lw=1, label="measured")
top.plot(wavelength, result.x, color="#0072b2", label="projection on the cone")
top.set(xlabel="wavelength", ylabel="intensity")
top.legend()
bottom.stem(np.arange(60) - 0.25, plain, linefmt="#e69f00", markerfmt=" ", basefmt=" ", label="least squares")
bottom.stem(
    np.arange(60) + 0.25,
    result.coefficients,
    linefmt="#0072b2",
    markerfmt=" ",
    basefmt=" ",
    label="non-negative pursuit",
)
bottom.plot(np.flatnonzero(amounts), amounts[amounts > 0], "k_", ms=14, mew=2, label="true amount")
bottom.set(xlabel="substance", ylabel="amount")
bottom.axhline(0, color="#000000", lw=0.5)
bottom.legend(ncols=3)
used = int((result.coefficients > 0.05).sum())
figure.suptitle(f"Pursuit finds {used} substances above 0.05; least squares spreads over all 60 and below zero")
plt.show()
