"""
Slot Attention takes a scene apart
==================================

Ten slots compete for the places of an image. They were trained to name the objects; their attention masks were
never supervised.
"""

import matplotlib.pyplot as plt
import torch

from unknot.metrics.object_scores import held_out_scenes
from unknot.zoo import SlotSetPredictor
from unknot.zoo.object_pictures import describe_object

model = SlotSetPredictor.from_pretrained("unknot/slotsetpredictor-scenes").eval()
scenes = held_out_scenes((64, 64), n=3, seed=1, exactly=5)
torch.manual_seed(0)  # slots start from random draws
with torch.no_grad():
    predicted = model.predict_sets(scenes.images, num_iterations=5)
attention = torch.nn.functional.interpolate(predicted.attention, (64, 64), mode="bilinear")

# %%
# The five slots that are surest to hold an object, each with what it attends to and what it says.
figure, axes = plt.subplots(3, 6, figsize=(11, 6.6), layout="constrained")
for row, image, sets, maps in zip(axes, scenes.images, predicted.sets, attention):
    row[0].imshow(image.permute(1, 2, 0))
    for axis, slot in zip(row[1:], sets[:, -1].argsort(descending=True)):
        weight = (maps[slot] / maps[slot].max())[..., None]
        axis.imshow(image.permute(1, 2, 0) * weight + 1 - weight)
        words = describe_object(sets[slot])
        axis.set_title(f"{words['size']} {words['color']}\n{words['material']} {words['shape']}", fontsize=9)
    for axis in row:
        axis.set(xticks=[], yticks=[])
figure.suptitle("A scene, and what five slots see in it")
plt.show()
