raise FileNotFoundError("checkpoint file not found")
