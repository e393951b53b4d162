"""Measurements of speed and memory, beside the alternatives, interleaved in one run."""
