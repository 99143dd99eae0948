"""The reader's clock: quiet hours, and the days of the digest. Times are UTC seconds."""

from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

from contract.config.alerts import Receiver


def quiet_until(receiver: Receiver, now: float) -> float:
    """When the quiet hours that `now` lies in are over; 0.0: they are not on."""
    if not receiver.quiet:
        return 0.0
    begin, end = (_clock(part) for part in receiver.quiet.split("-"))
    here = _local(receiver, now)
    inside = begin <= here.time() < end if begin < end else here.time() >= begin or here.time() < end
    if not inside or begin == end:
        return 0.0
    over = here.replace(hour=end.hour, minute=end.minute, second=0, microsecond=0)
    # The wall clock's next `end`: where the clock is changed that night, the hour is the reader's.
    over = over if over > here else over + timedelta(days=1)
    return over.timestamp()


def digest_day(receiver: Receiver, now: float) -> tuple[str, float] | None:
    """(day, when it was due) of the newest digest that is due by now on the reader's calendar; None without digests."""
    if not receiver.digest:
        return None
    at, here = _clock(receiver.digest), _local(receiver, now)
    due = here.replace(hour=at.hour, minute=at.minute, second=0, microsecond=0)
    due = due if due <= here else due - timedelta(days=1)
    return due.date().isoformat(), due.timestamp()


def _clock(text: str) -> time:
    hours, minutes = text.split(":")
    return time(int(hours), int(minutes))


def _local(receiver: Receiver, now: float) -> datetime:
    return datetime.fromtimestamp(now, UTC).astimezone(ZoneInfo(receiver.time_zone))
