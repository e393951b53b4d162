"""The experiments of the field, done again on this machine: `coulomb lab`."""
