"""Token shards: how they are prepared, read, and in which order samples come."""
