"""Drop-in classes for other libraries, one module for each."""
