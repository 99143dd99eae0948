"""Copies of checkpoints at other places: object storage and a second directory, behind one port."""
