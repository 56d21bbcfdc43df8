"""The wire, and nothing but the wire: the demo as a subprocess, held to the documents."""
