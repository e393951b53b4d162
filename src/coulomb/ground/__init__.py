"""The ground: errors, argument checks, randomness, untrusted files, threads, processes, the machine, the version."""
