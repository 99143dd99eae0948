"""Asked to stop: at any line, any number of times, and never for ever."""

import signal
import threading
import time

from supervisor.adapters.stop import StopSignal


def test_a_signal_ends_the_wait_and_a_second_one_changes_nothing() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with StopSignal() as stop:
        stop.wait(0.01)
        assert not stop.asked
        began = time.monotonic()
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
        stop.wait(30)
        assert stop.asked
        assert time.monotonic() - began < 5
    assert signal.getsignal(signal.SIGTERM) == before


def test_signals_in_the_middle_of_short_waits_do_not_lock_up() -> None:
    """What threading.Event does when a handler sets it while its own wait holds the lock."""
    thread = threading.main_thread().ident
    for _ in range(200):
        with StopSignal() as stop:
            sender = threading.Timer(0.001, lambda: signal.pthread_kill(thread, signal.SIGTERM))
            sender.start()
            deadline = time.monotonic() + 10
            while not stop.asked and time.monotonic() < deadline:
                stop.wait(0.0002)
            sender.join()
            assert stop.asked
