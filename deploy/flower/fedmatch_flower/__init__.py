"""FedMatch between real hosts: a Flower app around the package's own rounds."""
