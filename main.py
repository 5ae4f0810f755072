"""The command line, as `python main.py ...`; what it does stands in fedmatch_tf/main.py."""

from fedmatch_tf.main import command, main

__all__ = ["command", "main"]

if __name__ == "__main__":
    raise SystemExit(command())
