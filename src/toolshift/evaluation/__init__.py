"""Evaluation: opens the targets, keeps a value per task, and tests differences over transfer targets."""
