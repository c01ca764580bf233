"""Rankers that learn on source contexts and are applied to unseen ones."""
