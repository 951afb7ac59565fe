"""
Slot Attention takes a scene apart
==================================

An autoencoder with slots must explain a picture as a sum of parts, each drawn from one slot. Nobody tells it what
an object is. It is trained here for some seconds on scenes of coloured discs that this script draws.
"""

import matplotlib.pyplot as plt
import torch
from pytorch_lightning import Trainer

from unknot.datamodules import ImageDataModule
from unknot.zoo import SlotAutoEncoder

# %%
# Three discs in each picture, in clear colours.
torch.manual_seed(0)
COLOURS = torch.tensor([[1.0, 0.3, 0.2], [0.2, 0.9, 0.3], [0.3, 0.4, 1.0], [1.0, 0.9, 0.2]])
grid = torch.arange(32) + 0.5
images = torch.zeros(1500, 3, 32, 32)
for _ in range(3):
    x, y, radius = (torch.rand(1500, 1, 1) * span + low for span, low in ((22, 5), (22, 5), (2, 4)))
    inside = ((grid[None, None] - x) ** 2 + (grid[None, :, None] - y) ** 2 < radius**2)[:, None]
    images = torch.where(inside, COLOURS[torch.randint(4, (1500,))][:, :, None, None], images)

# %%
model = SlotAutoEncoder(
    image_shape=(3, 32, 32), num_slots=4, channels=16, strides=(2, 1, 1, 1), lr=2e-3, warmup_steps=50
)
trainer = Trainer(
    max_steps=400, limit_val_batches=0, logger=False, enable_checkpointing=False, enable_progress_bar=False
)
trainer.fit(model, datamodule=ImageDataModule(images, batch_size=16))

# %%
# Each slot's part is shown where its mask is.
with torch.no_grad():
    again, parts, masks = model.eval().decompose(images[:5])
figure, axes = plt.subplots(5, 6, figsize=(8, 6.8))
for row, image, whole, slots, mask in zip(axes, images, again, parts, masks):
    shown = [image, whole, *(slots * mask[:, None])]
    for axis, picture in zip(row, shown):
        axis.imshow(picture.clamp(0, 1).permute(1, 2, 0))
        axis.set(xticks=[], yticks=[])
for axis, title in zip(axes[0], ["picture", "drawn again", *(f"slot {slot}" for slot in range(4))]):
    axis.set_title(title)
figure.suptitle(f"What each slot draws, after {trainer.global_step} steps")
plt.show()
