"""What people's requests change: the run's configuration, and the answers in the journal."""

from collections.abc import Callable

from contract import events as ev
from contract import files
from contract.config import ConfigError, RunConfig, digest, dump, read_resolved
from contract.config.amend import amended
from contract.requests import Request, remove_request
from supervisor.book import Book
from supervisor.core import actions as do


def reconfigure(book: Book, request: Request, say: Callable[[str], None]) -> RunConfig | None:
    """Replace run.toml as the request asks. Returns the new configuration, None when the request was refused.

    run.toml first: killed before the journal has it, the same changes are written once more.
    """
    try:
        config, changes = amended(read_resolved(book.run.config), request.settings, source=book.run.run_id)
    except ConfigError as error:
        problems = "; ".join(str(problem) for problem in error.problems)
        answer(book, do.Answer(request=request, outcome=f"not resumed: {problems}", ok=False), say)
        return None
    book.guard()
    _take(book, request)
    text = dump(config)
    files.replace_file(book.run.config, text.encode())
    told = tuple(str(item) for item in changes)
    named = {item.partition("=")[0].strip() for item in request.settings}
    dropped = tuple(sorted(named & set(book.history.hot)))
    say(f"settings changed by {request.by}: {'; '.join(told) or 'nothing'}")
    book.append(
        ev.SettingsChanged(
            request=request.id,
            by=request.by,
            changes=told,
            config_digest=digest(text),
            target_steps=config.run.steps,
            target_tokens=config.run.tokens,
            hot_dropped=dropped,
        )
    )
    return config


def _take(book: Book, request: Request) -> None:
    if request.id not in book.history.requests:
        book.append(ev.RequestTaken(id=request.id, request=request.kind, by=request.by, args=request.args))


def answer(book: Book, action: do.Answer, say: Callable[[str], None]) -> None:
    """Journal the request, what it brings about and its outcome; then the request is gone."""
    request = action.request
    if request.id not in book.answered:
        say(f"request {request.kind} of {request.by}: {action.outcome}")
        _take(book, request)
        for body in action.events:
            book.append(body)
        book.append(ev.RequestDone(id=request.id, outcome=action.outcome, ok=action.ok))
    remove_request(book.run, request.id)
