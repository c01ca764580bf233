"""Experiments: compose the stages, run what is missing, leave run folders and tables behind."""
