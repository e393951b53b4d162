"""What the documentation asks of Sphinx beyond Sphinx."""
