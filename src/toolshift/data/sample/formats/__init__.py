"""Upstream formats of the sample, one module per dataset, found by the dataset's name (``base.format_of``)."""
