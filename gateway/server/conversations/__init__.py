"""Keep the context of conversations: stored responses, reasoning memory, encryption and expiry."""
