"""Training of rankers over packed candidate lists; knows no data set, protocol or view by name."""
