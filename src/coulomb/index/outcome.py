"""What became of the images or texts that one process was to embed."""

from dataclasses import dataclass, field
from typing import Any

ZERO = "its features are zero or not finite"


@dataclass
class Outcome:
    """What became of some images or texts: those whose content equals a stored one, and the reasons for unreadable ones.

    All others were embedded.
    """

    known: dict[int, Any] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)

    def add(self, other: "Outcome") -> None:
        """Adds the images or texts of ``other``."""
        self.known |= other.known
        self.failed |= other.failed
