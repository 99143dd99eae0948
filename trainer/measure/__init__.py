"""Measurements between ranks, started by name: collectives, and pairs of nodes."""
