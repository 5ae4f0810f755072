"""Raw images to the partitions that clients train on. Knows nothing of fedmatch_tf."""
