"""The afternoon in which an operator sets the gateway up for a team of fifty: `make afternoon`.

PostgreSQL, Prometheus and two gateways run as they would for a team, with the dashboard and the alerts of deploy/.
"""
