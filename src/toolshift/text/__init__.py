"""Text stage: encoders, embedding cache, lexical retrieval, spans. Import the modules; nothing is re-exported."""
