"""Runs: configuration and recipes, the data and their split, the run folder and its files."""
