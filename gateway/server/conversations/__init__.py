"""Keep the context of conversations: stored responses, reasoning memory and encryption."""
