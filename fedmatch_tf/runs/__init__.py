"""A run on disk: folders, checkpoints, store, records, training from start to end."""
