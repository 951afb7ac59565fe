"""
A first model, on images of your own
====================================

A β-VAE learns to draw a pile of pictures from a few codes, without a single label. Here the pictures are coloured
discs that this script draws; a folder of photographs works the same way:
``ImageDataModule("my/photos", image_size=32)``.
"""

import matplotlib.pyplot as plt
import torch
from pytorch_lightning import Trainer

from unknot.datamodules import ImageDataModule
from unknot.zoo import BetaVAE

# %%
# Two thousand discs: place and colour are random, the size is not.
torch.manual_seed(0)
grid = torch.linspace(-1, 1, 32)
x, y, hue = (torch.rand(2000, 1, 1) for _ in range(3))
inside = (grid[None, None, :] - (x - 0.5)) ** 2 + (grid[None, :, None] - (y - 0.5)) ** 2 < 0.15
images = inside[:, None] * torch.stack([hue, 1 - hue, torch.full_like(hue, 0.6)], dim=1)

# %%
# The model knows nothing of discs. A tenth of the images is held out for validation.
data = ImageDataModule(images, batch_size=32)
model = BetaVAE(beta=2.0, image_shape=data.image_shape, latent_dim=6, lr=2e-3)
trainer = Trainer(max_steps=600, logger=False, enable_checkpointing=False, enable_progress_bar=False)
trainer.fit(model, datamodule=data)
print(trainer.callback_metrics["val/loss"])

# %%
# Each row changes one code of the same disc. The label is how many nats the code carries; those at zero are not used.
model.eval()
with torch.no_grad():
    information = model.encode(images[:256]).kl().mean(0)
order = information.argsort(descending=True)
strips = model.traverse(images[:1], torch.linspace(-2, 2, 9))[0, order]

figure, axes = plt.subplots(len(order), 1, figsize=(6, 4.4))
for axis, strip, code in zip(axes, strips, order.tolist()):
    axis.imshow(strip.permute(2, 0, 3, 1).flatten(1, 2))
    axis.set_ylabel(f"{information[code]:.1f} nats", rotation=0, ha="right", va="center")
    axis.set(xticks=[], yticks=[])
used = int((information > 0.1).sum())
figure.suptitle(f"{used} of {len(order)} codes are used, after {trainer.global_step} steps")
plt.show()
