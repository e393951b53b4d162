"""Training: network, order of the images, optimizers, the loop, checkpoints, the second stage; a step for your own loop."""

from coulomb.training.cached import cached_step

__all__ = ["cached_step"]
