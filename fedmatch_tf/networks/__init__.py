"""The mathematics: parameters, layers, networks and losses."""
