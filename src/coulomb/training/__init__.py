"""The run: configuration, data, the training loop, checkpoints, evaluation."""
