"""Run the gateway as a process or several: start, reload, stop."""
