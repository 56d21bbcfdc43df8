"""The documentation: its pages, the build of the site, and the tables from the code."""
