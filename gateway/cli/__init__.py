"""Run the commands of `gateway`."""
