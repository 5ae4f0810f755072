"""The mathematics: parameters, layers, networks, losses, helpers, what crosses the wire."""
