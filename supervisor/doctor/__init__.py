"""`ciuic doctor`: what about this machine, its Slurm and its file system will hurt a run, and how to mend it.

Measuring and judging are apart: `measure_*` reads, `judge_*` turns what was read into findings and is pure.
"""
