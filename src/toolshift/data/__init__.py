"""Raw releases to records: adapters, the record store, checks, sources and the generated sample."""
