"""The version of this program."""

VERSION = "0.5.0"
