"""Which process reads a batch."""

import os

from coulomb.tables.workers import read_batches


class Reader:
    """Items are the process that reads them."""

    def __getitems__(self, places):
        return [os.getpid() for _ in places]


def test_a_single_batch_is_read_in_this_process():
    assert list(read_batches(Reader(), [[0, 1]], workers=2)) == [[os.getpid()] * 2]
    two = list(read_batches(Reader(), [[0], [1]], workers=2))
    assert len(two) == 2 and [os.getpid()] not in two
