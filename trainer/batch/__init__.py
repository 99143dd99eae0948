"""Batch control: a pure controller that changes the plan of a step, and what measures for it."""
