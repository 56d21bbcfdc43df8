"""Every flow that is not on the way of each request, once: one file a noun."""
