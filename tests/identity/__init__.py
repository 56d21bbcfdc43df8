"""Who a session is."""
