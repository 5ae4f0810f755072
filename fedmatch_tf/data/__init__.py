"""Raw images to the partitions that clients train on."""
