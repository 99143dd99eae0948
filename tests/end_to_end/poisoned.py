"""The real training program with data that makes the loss NaN: the samples at these positions, on rank 1.

python -P poisoned.py START END
"""

import os
import sys

START, END = map(int, sys.argv[1:3])
sys.argv[1:] = []

os.environ.setdefault("DS_ACCELERATOR", "cpu")

import trainer.preload  # noqa: E402, F401
from trainer import step  # noqa: E402
from trainer.data.batches import Batches  # noqa: E402
from trainer.main import main  # noqa: E402

plain_loss, plain_window = step.summed_loss, Batches.window
bad = False


def window(self, *arguments):
    global bad  # noqa: PLW0603
    found = plain_window(self, *arguments)
    bad = any(START <= at < END for at in found.taken.positions) and os.environ["RANK"] == "1"
    return found


def summed_loss(engine, batch):
    loss = plain_loss(engine, batch)
    return loss * float("nan") if bad else loss


Batches.window, step.summed_loss = window, summed_loss
code = main()
sys.stdout.flush()
sys.stderr.flush()
os._exit(code)
