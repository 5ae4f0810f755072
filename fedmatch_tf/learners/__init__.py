"""Gradient steps of a client or server on one model, one file per learner."""
