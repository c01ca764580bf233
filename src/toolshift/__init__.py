"""toolshift: tool selection under distribution shift, reproduced honestly on one data model."""

__version__ = "0.1.0"
