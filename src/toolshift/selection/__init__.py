"""Selection on source contexts only: how a setting is valued before any target is opened."""
