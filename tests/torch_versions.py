"""What the oldest supported versions of torch lack."""

import pytest
import torch

HAS_ATTENTION = torch.__version__ >= (2, 9)  # flex_attention returns the lse
NO_ATTENTION = "attention needs torch 2.9 or later"
# Factor on absolute bounds in fp32: sums of torch 2.6 are rounded in another order; 2.4e-5 and 1.1e-5 were seen for 1e-5.
ROUNDING = 1 if torch.__version__ >= (2, 9) else 2
# flex_attention on a CPU rounds the products of bfloat16 to bfloat16, 1e-2 off: the self-check must find that.
ROUNDED_PRODUCTS = torch.__version__ < (2, 10)
# DistributedDataParallel takes a model of transformers 5 twice in a step (2.12, not 2.10); before, only without
# broadcast_buffers, with the losses of sentence-transformers, too. Options of it:
BUFFERS_TWICE = {} if torch.__version__ >= (2, 11) else {"broadcast_buffers": False}
needs_attention = pytest.mark.skipif(not HAS_ATTENTION, reason=NO_ATTENTION)
