"""Convert requests and responses of backends that speak Anthropic's Messages API."""
