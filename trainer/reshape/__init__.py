"""Carrying a checkpoint over into an engine of another shape: other ranks, another ZeRO stage, another model."""
