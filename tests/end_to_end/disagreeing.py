"""The real training program with faults of rank 1: in generation 1 it falls asleep while it reads its data, in
generation 2 it leaves out one all-reduce that the others take part in.
"""

import os
import sys
import time
from itertools import count

os.environ.setdefault("DS_ACCELERATOR", "cpu")

import trainer.preload  # noqa: F401
from trainer.data.batches import Batches
from trainer.distributed import Ranks
from trainer.main import main

GENERATION, RANK = int(os.environ["CIUIC_GENERATION"]), int(os.environ["RANK"])
STEPS = 9  # of this generation, before its fault
AT_THE_BEGINNING = 2  # numbers in the all-reduce before a step; the one at its end has more
plain_window, plain_sums = Batches.window, Ranks.sums
windows, sums = count(1), count(1)


def read_samples(self, *arguments):
    if (GENERATION, RANK) == (1, 1) and next(windows) == STEPS:
        time.sleep(3600)
    return plain_window(self, *arguments)


def sums_of_all(self, *numbers):
    at_the_end = (GENERATION, RANK) == (2, 1) and len(numbers) > AT_THE_BEGINNING
    if at_the_end and next(sums) == STEPS:
        time.sleep(1.0)  # the others are in it by then: of two waits the older one names who left it out
        return [float(number) for number in numbers]
    return plain_sums(self, *numbers)


Batches.window, Ranks.sums = read_samples, sums_of_all
code = main()
sys.stdout.flush()
sys.stderr.flush()
os._exit(code)
