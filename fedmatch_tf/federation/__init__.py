"""The rounds: the loop, a client's round, the server's, tasks and scores, the worker that runs a task."""
