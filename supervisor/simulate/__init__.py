"""`ciuic simulate`: a cluster, its faults and the real decision functions, with time as data.

Nothing here reads a clock or a run: what happens follows from the scenario and the seed alone.
"""
