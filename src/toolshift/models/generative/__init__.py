"""Retrieval through generated text or a language model's preference, and labelled stand-ins that need no such model."""
