"""Black-box tests: the demo as a subprocess, over HTTP only, compared with its documentation."""
