"""The DeepSpeed training program. Started by name, never imported by the other packages."""
