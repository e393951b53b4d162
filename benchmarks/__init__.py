"""Benchmarks of speed and memory compared with alternatives, interleaved in one run."""
