"""The demo of ``lockgate demo``: a small generation service behind a gate."""
