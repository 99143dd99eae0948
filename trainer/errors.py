"""The ends of a training process that have an exit code of their own."""

from contract.states import ExitCode


class TrainerError(Exception):
    """Base of the ends below; `code` is the exit code that says so.

    Once the ranks are connected, each of these is raised by all of them at the same place or not at all.
    """

    code = ExitCode.FAILED


class RefusedError(TrainerError):
    """This generation must not train: fenced, or a checkpoint was expected and none is valid."""

    code = ExitCode.REFUSED


class ConfigError(TrainerError):
    """The configuration cannot work here; trying again would not help."""

    code = ExitCode.CONFIG


class NumericsError(TrainerError):
    """Loss or gradient norm is not finite. The weights have not taken it."""

    code = ExitCode.NUMERICS


class NoMemoryError(RuntimeError):
    """A device has no room for a micro-batch; `ranks` are those that had none, where all have agreed on it.

    No `TrainerError`: one rank may be alone with it, and the others in the middle of a collective.
    """

    def __init__(self, text: str, ranks: tuple[int, ...] = ()) -> None:
        super().__init__(text)
        self.ranks = ranks


class RendezvousError(TrainerError):
    """The ranks did not find each other; the message names the one that is to blame. Not raised by all of them.

    `missing`: ranks that did not come, where rank 0 knows that.
    """

    def __init__(self, text: str, missing: tuple[int, ...] = ()) -> None:
        super().__init__(text)
        self.missing = missing


class SaveError(TrainerError):
    """A checkpoint could not be written by at least one rank; what was written of it has been removed."""


class ReadError(TrainerError):
    """A checkpoint of another shape does not hold what it should; nothing was trained with it."""
