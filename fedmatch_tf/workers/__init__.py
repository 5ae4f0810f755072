"""Where tasks run. A backend has one method, `map`: tasks to results, in any order."""
