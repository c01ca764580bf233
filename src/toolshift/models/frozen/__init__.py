"""Rows without training: the frozen methods of the main table and the controls every table needs."""
