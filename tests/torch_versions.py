"""What the oldest supported versions of torch lack."""

import pytest
import torch

HAS_ATTENTION = torch.__version__ >= (2, 9)  # flex_attention returns the lse
NO_ATTENTION = "attention needs torch 2.9 or later"
needs_attention = pytest.mark.skipif(not HAS_ATTENTION, reason=NO_ATTENTION)
