"""Structured, strict settings: ``conf/`` and a command line to checked, frozen dataclasses.

Scripts start through ``toolshift.settings.launch.launch``, which is not imported here: it pulls in all of Hydra.
"""
