"""Monitoring of a training: metrics of every update, the pulse, live evaluation, warnings, progress."""
