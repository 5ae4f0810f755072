"""The command line's flags and subcommands; they stand in fedmatch_tf/parser.py."""

from fedmatch_tf.parser import Command, parse

__all__ = ["Command", "parse"]
