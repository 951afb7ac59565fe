"""The cheap scores stay small on large representations."""

import subprocess
import sys

import pytest

SCRIPT = """
import numpy as np
import unknot.metrics
from unknot.metrics import functional as f
import sklearn.linear_model  # which some scores load when they run

def peak():  # getrusage would count what the parent held when it forked
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024

before = peak()
rng = np.random.default_rng(0)
factors = rng.integers(0, (3, 6, 40, 32, 32), size=(100_000, 5))
codes = (factors @ rng.normal(size=(5, 50))).astype(np.float32)
codes += rng.normal(size=codes.shape).astype(np.float32)
scores = [f.mig(codes, factors), f.modularity(codes, factors), f.irs(codes, factors)]
scores += [f.total_correlation(codes), f.wasserstein_dependence(codes), f.pairwise_information(codes)]
scores += [f.sap(codes, factors, codes[:9], factors[:9], continuous_factors=True)]
assert all(score > 0 for score in scores), scores
print(peak() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak from /proc")
def test_a_hundred_thousand_rows_of_fifty_codes_take_less_than_a_gigabyte():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    assert 40e6 < int(done.stdout) < 1e9  # the codes alone are 20 MB, and 40 MB as float64
