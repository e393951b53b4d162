"""Published experiments, reproduced on this machine: `coulomb lab`."""
