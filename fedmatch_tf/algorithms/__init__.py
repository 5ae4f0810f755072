"""Federated algorithms, one file each: what is sent, sent back, averaged and kept."""
