"""Data sets in shards, local or remote: table of offsets, cache on disk, order in windows, reading ahead."""
