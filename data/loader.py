"""Reads a task's partitions, ours and the original's: `open_partitions(path, task)`, then one of `load_...`."""

from fedmatch_tf.data.loader import load_client, load_eval, load_server, load_test, open_partitions

__all__ = ["load_client", "load_eval", "load_server", "load_test", "open_partitions"]
