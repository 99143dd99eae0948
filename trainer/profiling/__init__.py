"""Profiles of a few steps. `capture` records inside the rank; `__main__` sums a trace up in a process of its own."""
