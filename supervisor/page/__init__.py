"""The live page: a picture of all runs and one of each, painted once for all who look, sent as what has changed."""
