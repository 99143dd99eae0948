"""`python -P -m trainer`: train, and leave with the agreed exit code."""

import os
import sys

from trainer.main import main

if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Not sys.exit: on the failure paths threads of the communicator are still alive, and tearing them
    # down from the interpreter's end aborts the process (SIGABRT) instead of leaving with our code.
    os._exit(code)
