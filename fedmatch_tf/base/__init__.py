"""What every room needs: errors, whole files, files of others, signals, random streams."""
