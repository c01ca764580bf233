"""Language models behind an OpenAI-compatible endpoint: typed outcomes, retries, and a record/replay store."""
