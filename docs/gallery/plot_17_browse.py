"""
Try the models
==============

Open a model and move its latents: it runs in your browser. ``unknot browse --export FILE.html`` writes such a page with
everything inside, and ``--export FOLDER`` one for a web host. Here are some of the checkpoints that come with the
package.
"""

import html
import os
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt

from unknot.hub import list_checkpoints
from unknot.hub.browser.export import export

os.environ["HF_HUB_OFFLINE"] = "1"  # only what is on this machine
os.environ["HF_HOME"] = tempfile.mkdtemp()
models = ["adagvae-dsprites", "adagvae-rooms32", "betavae-dsprites32", "slotautoencoder-scenes"]
names = [f"unknot/{name}" for name in models]
page = export(Path(tempfile.mkdtemp()) / "checkpoints.html", say=lambda message: None, only=names)
print(f"{page.stat().st_size / 1e6:.1f} MB")


# %%
# A click on a card opens a model. Filter, sort and compare them above.
class Embedded:
    """A page inside this one."""

    def _repr_html_(self):
        inside = html.escape(page.read_text(encoding="utf-8"))
        return f'<iframe srcdoc="{inside}" title="Checkpoints" style="width: 100%; height: 40rem"></iframe>'


Embedded()

# %%
# The same list in Python, as a picture: scores of the bundled models.
bundled = [each for each in list_checkpoints(sources=["bundled"]) if "mig" in each.scores]
figure, axis = plt.subplots(figsize=(7, 0.6 * len(bundled) + 1.6))
labels = [each.ref.partition("/")[2] for each in bundled]
for offset, (score, colour) in zip((-0.2, 0.2), [("mig", "#0072b2"), ("dci", "#e69f00")]):
    bars = axis.barh(
        [place + offset for place in range(len(bundled))],
        [each.scores.get(score, 0) for each in bundled],
        height=0.38,
        color=colour,
        label=score.upper(),
    )
    axis.bar_label(bars, fmt="%.2f", padding=3)
axis.set_yticks(range(len(bundled)), labels)
axis.invert_yaxis()
axis.set(xlim=(0, 1), title="Bundled checkpoints")
axis.legend(loc="lower right")
plt.show()
