"""Time and memory of a report of 10,000 models: ``python benchmarks/report.py``."""

import resource
import tempfile
import time

from unknot.studies.report import make_report
from unknot.studies.synthetic import synthetic_results

SETS = ("dsprites", "color_dsprites", "noisy_dsprites", "scream_dsprites", "smallnorb", "cars3d", "shapes3d")

table = synthetic_results(SETS, seeds=17)
start = time.process_time()
report = make_report(table)
analysed = time.process_time()
with tempfile.TemporaryDirectory() as folder:
    size = report.write(folder).stat().st_size
written = time.process_time()
print(f"{len(table):,} models, {len(table.columns)} columns, {len(report.results)} analyses")
seconds = f"analyses {analysed - start:.1f} s, figures and page {written - analysed:.1f} s of processor time"
print(f"{seconds}; page {size / 1e6:.1f} MB")
print(f"most memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB, torch included")
