"""Training: network, order of the images, optimizers, the loop, checkpoints, the second stage."""
