"""The copier: a process of low priority that brings the newest checkpoint to another place, once, and ends."""
